"""TF1 checkpoints, the original's format and ours: named tensors in, out, and in a run's folder.

Variables have the original's names and shapes, the optimizer's moments are <variable>/adam_m and
/adam_v, the step is global_step. So either project reads the other's checkpoints.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints.metadata import Weights, damage_errors, read_model_files
from bert_tf.checkpoints.tensor_index import read_index
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.files import BEST, check_regular, make_folder, path_errors, temporary, write_text
from bert_tf.locks import check_lock, synced

GLOBAL_STEP = "global_step"
RUN_SETTINGS = "bert_tf/run_facts"  # JSON, ours: the settings that must not change on resuming
INDEX, DATA = ".index", ".data-00000-of-00001"  # the two files of a checkpoint that we write
_SCOPES = {  # by the layer that a weight is of
    r"(embeddings|pooler)/": "bert/",
    r"layer_\d+/": "bert/encoder/",
    r"(predictions|seq_relationship|squad)/": "cls/",
}


def checkpoint_name(variable: keras.Variable) -> str:
    """A weight's name in the original's checkpoints: layer_0/... is bert/encoder/layer_0/..."""
    for layer, scope in _SCOPES.items():
        if re.match(layer, variable.path):
            return scope + variable.path
    return variable.path.removeprefix("classifier/")  # whose weights have no scope


# ---------------------------------------------------------------------------- reading


def find_checkpoint(path: str | os.PathLike) -> str:
    """The prefix of a TF1 checkpoint given as prefix, .index or .data file, or folder.

    In a folder it is the best one, if a run has kept it in best/; else the latest one that the
    `checkpoint` file names, or the only one there.

    Raises:
      InputError: there is none, or a folder holds several and does not say which is meant.
    """
    path = str(path)
    prefix = re.sub(r"\.(index|data-\d+-of-\d+|meta)$", "", path)
    with path_errors(path):
        if tf.io.gfile.exists(prefix + INDEX):
            return prefix
        if not tf.io.gfile.isdir(path):
            raise _no_checkpoint(path)
    for folder in (os.path.join(path, BEST), path):
        named = _read_state(folder)
        if named and tf.io.gfile.exists(named[-1] + INDEX):
            return named[-1]
    found = [p.removesuffix(INDEX) for p in tf.io.gfile.glob(os.path.join(path, f"*{INDEX}"))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise _no_checkpoint(path)
    received = f"{path}, a folder with {len(found)} checkpoints"
    expected = "one, or a `checkpoint` file that names the latest"
    raise InputError(received, expected, "give the path of one, such as bert_model.ckpt in it")


def _no_checkpoint(path: str) -> InputError:
    return InputError(
        f"{path}, where there is no checkpoint",
        "a folder, or a prefix such as bert_model.ckpt beside its .index and .data files",
        "check the path, and unpack archives; models are not downloaded by name: download one, "
        "and give its folder",
    )


def has_checkpoints(folder: str) -> bool:
    """Whether a run has left checkpoints in a folder, or its best one in best/."""
    names = ("checkpoint", f"{BEST}/checkpoint")
    return any(tf.io.gfile.exists(os.path.join(folder, name)) for name in names)


def _read_state(folder: str) -> list[str]:
    """The checkpoints that the `checkpoint` file of a folder names, the latest last.

    If it names a path elsewhere, a checkpoint of the same name in the folder is used instead, so
    that the copy of a folder is complete. TensorFlow would read the original's.
    """
    path = os.path.join(folder, "checkpoint")
    if not tf.io.gfile.exists(path):
        return []
    check_regular(path)
    with contextlib.suppress(ValueError):  # it names no checkpoint
        if state := tf.train.get_checkpoint_state(folder):  # None: it cannot be parsed
            named = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
            both = [(os.path.join(folder, os.path.basename(path)), path) for path in named]
            found = [here if tf.io.gfile.exists(here + INDEX) else path for here, path in both]
            return [path for path in found[:-1] if path != found[-1]] + found[-1:]
    raise InputError(
        f"{path}, which cannot be read",
        "a text that names the latest checkpoint",
        'write into it model_checkpoint_path: "model.ckpt-<step>", or remove it beside one',
    )


class CheckpointReader:
    """The tensors of one checkpoint; a damaged file is an `InputError`.

    Attributes:
      prefix: its path, without .index.
      shapes: of all tensors, by name.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens a checkpoint given as `find_checkpoint` takes it."""
        self.prefix = find_checkpoint(path)
        for file in (self.prefix + INDEX, *tf.io.gfile.glob(f"{self.prefix}.data-*")):
            check_regular(file)
        with self._damage_errors():
            found = read_index(self.prefix)
        self._dtypes = {name: dtype for name, (dtype, _) in found.items()}
        self.shapes = {name: shape for name, (_, shape) in found.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor, from the file."""
        with self._damage_errors():
            with tf.device("CPU:0"):
                (tensor,) = tf.raw_ops.RestoreV2(
                    prefix=self.prefix,
                    tensor_names=[name],
                    shape_and_slices=[""],
                    dtypes=[self._dtypes[name]],
                )
            return tensor.numpy()

    def run_settings(self) -> dict[str, Any]:
        """The settings of the run that wrote the checkpoint; empty if it was not one of ours."""
        if RUN_SETTINGS not in self.shapes:
            return {}
        with self._damage_errors():
            settings = json.loads(self.read(RUN_SETTINGS))
            steps = settings.get("num_train_steps", 0)
            if type(steps) is not int:
                raise ValueError(f"{RUN_SETTINGS} in it with the steps {steps!r:.80}")
            return settings

    def _damage_errors(self):
        return damage_errors(self.prefix, "a complete checkpoint, its .index and all .data files")


def open_tf1(path: str | os.PathLike) -> Weights:
    """Opens a checkpoint given as `find_checkpoint` takes it."""
    reader = CheckpointReader(path)
    return Weights(
        path=reader.prefix,
        format="tf1",
        shapes=reader.shapes,
        read=reader.read,
        **read_model_files(os.path.dirname(reader.prefix)),
    )


# ---------------------------------------------------------------------------- writing


def write_checkpoint(prefix: str, tensors: Mapping[str, Any], *, temporary: str) -> None:
    """Writes a TF1 checkpoint that appears whole or not at all.

    Args:
      prefix: its path, without .index.
      tensors: values by name.
      temporary: a folder on the same file system, empty or still to be made; removed afterwards.
    """
    tf.io.gfile.makedirs(temporary)
    inside = os.path.join(temporary, "checkpoint")
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=inside,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
    )
    check_lock(prefix)
    # The index last: a checkpoint is there when its index is.
    for suffix in (DATA, INDEX):
        synced(inside + suffix)
        tf.io.gfile.rename(inside + suffix, prefix + suffix, overwrite=True)
    synced(os.path.dirname(prefix) or ".")
    tf.io.gfile.rmtree(temporary)


class CheckpointFolder:
    """The checkpoints of one run: model.ckpt-<step> in its output folder.

    A checkpoint is written under a temporary name and renamed when it is whole, then the
    `checkpoint` file is renamed over the old one. A run killed at any moment finds the latest
    whole one. Of several processes the chief writes, and the others wait for it. Only
    `model.ckpt-<step>` in this folder is ever removed.

    A thread writes, one checkpoint at a time. `latest` waits until it has done so.
    """

    def __init__(self, output_dir: str | os.PathLike, *, keep_max: int = 5):
        """Makes the folder, and checks that it can be written.

        Args:
          output_dir: the folder; local or remote.
          keep_max: how many checkpoints are kept; 0 keeps all.

        Raises:
          InputError: the folder cannot be made or written.
        """
        self.path = str(output_dir)
        self._keep_max = keep_max
        self._thread = futures.ThreadPoolExecutor(max_workers=1)
        self._saving: futures.Future | None = None
        if cluster.is_chief():
            make_folder(self.path)

    def latest(self) -> str | None:
        """The prefix of the latest checkpoint, or None.

        Raises:
          InputError: the `checkpoint` file cannot be read, or names a missing checkpoint. To start
            again would overwrite the run. Or `start_saving` failed.
        """
        self.wait()
        return self._latest()

    def _latest(self) -> str | None:
        prefix = (_read_state(self.path) or [None])[-1]
        if prefix and not tf.io.gfile.exists(prefix + INDEX):
            received = f"{self.path}/checkpoint, which names the missing {prefix}"
            remedy = "put the checkpoint back, or remove the folder to start again"
            raise InputError(received, "the checkpoint that it names", remedy)
        return prefix

    def clear(self) -> None:
        """Removes the run's checkpoints that the `checkpoint` file names, and that file."""
        self.wait()
        named = _read_state(self.path)
        if named and cluster.is_chief():
            check_lock(os.path.join(self.path, "checkpoint"))
            tf.io.gfile.remove(os.path.join(self.path, "checkpoint"))
            for path in filter(self._is_own, named):
                _remove_checkpoint(path)

    def save(self, step: int, tensors: Mapping[str, Any]) -> str:
        """Writes model.ckpt-<step> and removes the oldest beyond `keep_max`.

        Args:
          step: number of updates made.
          tensors: what to write, by name.

        Returns:
          The checkpoint's prefix.

        Raises:
          InputError: it cannot be written; for want of space, say. The earlier ones are whole.
        """
        self.start_saving(step, tensors)
        self.wait()
        return self._prefix(step)

    def start_saving(self, step: int, tensors: Mapping[str, Any]) -> None:
        """As `save`, but returns at once; `wait`, or what calls it, raises the error.

        The tensors must keep their values until then.
        """
        self.wait()
        self._saving = self._thread.submit(self._write, step, tensors)

    def wait(self) -> None:
        """Returns when the checkpoint of `start_saving` is whole, in every process.

        Raises:
          InputError: as `save`.
        """
        if self._saving is not None:
            futures.wait([self._saving])
            self.raise_error()
            self._saving = None
            cluster.barrier()

    def raise_error(self) -> None:
        """Raises the error of `start_saving` if it has failed by now; does not wait.

        Raises:
          InputError: the checkpoint was not written, or the folder was removed or replaced after
            the run had locked it.
        """
        check_lock(os.path.join(self.path, "checkpoint"))
        if self._saving is not None and self._saving.done() and self._saving.exception():
            saving, self._saving = self._saving, None
            saving.result()

    @contextlib.contextmanager
    def whole_at_end(self) -> Iterator[None]:
        """At its end the checkpoint of `start_saving` is whole, also where an error ends it."""
        try:
            yield
        except BaseException:
            if self._saving is not None:
                if error := self._saving.exception():  # waits, but for no other process:
                    logging.warning("%s", error)  # they may not come here
                self._saving = None
            raise
        self.wait()

    def _write(self, step: int, tensors: Mapping[str, Any]) -> None:
        """Writes a checkpoint, or nothing at all."""
        if not cluster.is_chief():
            return
        try:
            with temporary(self._prefix(step), folder=True) as folder:
                write_checkpoint(self._prefix(step), tensors, temporary=folder)
                self._name_latest(self._prefix(step))
        except Exception as error:
            if not is_system_error(error):
                raise
            expected, remedy = remedy_of(error)
            says = f"the checkpoint of step {step} cannot be written ({first_line(error)})"
            remedy += f": it resumes from {self._latest() or 'the beginning'}"
            raise InputError(f"{self.path}, where {says}", expected, remedy) from None

    def _name_latest(self, prefix: str) -> None:
        """Names a whole checkpoint as the latest; removes the oldest."""
        kept = [p for p in _read_state(self.path) if self._is_own(p) and p != prefix]
        kept.append(prefix)
        dropped = kept[: -self._keep_max] if self._keep_max else []
        # Named until they are gone: what a killed run failed to remove, the next save removes.
        self._write_state(kept)
        for path in dropped:
            _remove_checkpoint(path)
        if dropped:
            self._write_state(kept[len(dropped) :])

    def _write_state(self, prefixes: Sequence[str]) -> None:
        """Writes the `checkpoint` file, as TensorFlow 1 did; the last checkpoint is the latest."""
        names = [json.dumps(os.path.basename(prefix)) for prefix in prefixes]
        lines = [f"model_checkpoint_path: {names[-1]}\n"]
        lines += [f"all_model_checkpoint_paths: {name}\n" for name in names]
        write_text(os.path.join(self.path, "checkpoint"), "".join(lines))

    def _prefix(self, step: int) -> str:
        return os.path.join(self.path, f"model.ckpt-{step}")

    def _is_own(self, prefix: str) -> bool:
        return prefix == self._prefix(step_of(prefix))


def _remove_checkpoint(prefix: str) -> None:
    for suffix in (INDEX, DATA):
        if tf.io.gfile.exists(prefix + suffix):
            tf.io.gfile.remove(prefix + suffix)


def step_of(prefix: str) -> int:
    """The number of updates of one of our checkpoints, model.ckpt-<step>; 0 for others."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else 0
