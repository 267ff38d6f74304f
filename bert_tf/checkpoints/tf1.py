"""Checkpoints: bundles of named tensors in and out, and what a run needs to go on.

Our checkpoints are the original's: the same file format, variable names and shapes, the optimizer's
moments as <variable>/adam_m and /adam_v, and global_step. So either project reads the other's.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints.metadata import Weights, folder_of, read_model_files
from bert_tf.errors import InputError
from bert_tf.files import BEST, path_errors, write_text

GLOBAL_STEP = "global_step"
RUN_SETTINGS = "bert_tf/run_facts"  # JSON, ours: what must not change when a run is resumed
INDEX, DATA = ".index", ".data-00000-of-00001"  # the two files of a checkpoint that we write
# What TensorFlow's reader raises; IndexError where a file is too short.
READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
_SCOPES = {
    "embeddings": "bert/",
    "pooler": "bert/",
    "layer": "bert/encoder/",
    "predictions": "cls/",
    "seq_relationship": "cls/",
    "squad": "cls/",
}
_UNSCOPED = "classifier/"  # the classifier's weights stand at the top


def checkpoint_name(variable: keras.Variable) -> str:
    """A weight's name in the original's checkpoints: layer_0/... is bert/encoder/layer_0/..."""
    first = variable.path.split("/")[0]
    name = _SCOPES.get(re.sub(r"_\d+$", "", first), "") + variable.path
    return name.removeprefix(_UNSCOPED)


def find_checkpoint(path: str) -> str:
    """The prefix of a TF1 checkpoint given as prefix, .index or .data file, or folder.

    In a folder it is the best one, if the run that wrote it kept such (best/); else the latest one
    that its `checkpoint` file names, or the only one there.

    Raises:
      InputError: there is none, or a folder holds several and does not say which is meant.
    """
    prefix = re.sub(r"\.(index|data-\d+-of-\d+|meta)$", "", str(path))
    with path_errors(path):
        if tf.io.gfile.exists(f"{prefix}.index"):
            return prefix
        is_folder = tf.io.gfile.isdir(path)
    if is_folder:
        for folder in (tf.io.gfile.join(str(path), BEST), str(path)):
            state = _read_state(folder)
            if state and tf.io.gfile.exists(f"{state.model_checkpoint_path}.index"):
                return state.model_checkpoint_path
        found = [p[: -len(".index")] for p in tf.io.gfile.glob(tf.io.gfile.join(path, "*.index"))]
        if len(found) == 1:
            return found[0]
        raise InputError(
            received=f"{path}, a folder with {len(found)} checkpoints",
            expected="one, or a `checkpoint` file that names the latest",
            remedy="give the checkpoint's own path, such as bert_model.ckpt in that folder",
        )
    raise InputError(
        received=f"{path}, where there is no checkpoint",
        expected="a prefix such as bert_model.ckpt beside its .index and .data files, or a folder",
        remedy="check the path",
    )


def has_checkpoints(folder: str) -> bool:
    """Whether a run has left checkpoints in a folder, if only its best one so far."""
    names = ("checkpoint", f"{BEST}/checkpoint")
    return any(tf.io.gfile.exists(tf.io.gfile.join(folder, name)) for name in names)


def _read_state(folder: str):
    """What the `checkpoint` file of a folder says, paths made whole; None without that file."""
    path = tf.io.gfile.join(folder, "checkpoint")
    if not tf.io.gfile.exists(path):
        return None
    try:
        state = tf.train.get_checkpoint_state(folder)  # None if it is no such text at all
    except ValueError:  # it names none
        state = None
    if state is None:
        raise InputError(
            received=f"{path}, which cannot be read",
            expected="a text that names the latest checkpoint of its folder",
            remedy=f"remove the file if the folder holds one checkpoint; else write into it "
            f"model_checkpoint_path: {json.dumps('model.ckpt-<step>')}",
        )
    return state


def open_checkpoint(path: str):
    """A `tf.train.load_checkpoint` reader; a damaged file is an `InputError`."""
    prefix = find_checkpoint(path)
    try:
        return tf.train.load_checkpoint(prefix)
    except READ_ERRORS as error:
        raise _damaged(prefix, error) from None


def _damaged(prefix: str, error: Exception) -> InputError:
    return InputError(
        received=f"{prefix}, which cannot be read ({str(error).splitlines()[0]})",
        expected="a complete checkpoint, its .index and all its .data files",
        remedy="copy it again, or give another checkpoint",
    )


def read_tensor(reader, name: str, *, prefix: str) -> np.ndarray:
    """One tensor of a checkpoint; a damaged file is an `InputError`."""
    try:
        return reader.get_tensor(name)
    except READ_ERRORS as error:
        raise _damaged(prefix, error) from None


class CheckpointFolder:
    """The checkpoints of one run: model.ckpt-<step> in its output folder.

    A checkpoint is written under a temporary name and renamed when it is whole, then the
    `checkpoint` file is renamed over the old one. Killed at any moment, the run finds the latest
    whole one. Of several processes the chief writes, and the others wait for it.
    """

    def __init__(self, output_dir: str, *, keep_max: int = 5):
        """Makes the folder, and sees whether it can be written.

        Args:
          output_dir: the folder; local or remote.
          keep_max: how many checkpoints are kept; 0 keeps all.

        Raises:
          InputError: the folder cannot be made or written.
        """
        self.path = str(output_dir)
        self._keep_max = keep_max
        self._temporary = tf.io.gfile.join(self.path, "incomplete_checkpoint")
        if not cluster.is_chief():
            return
        trial = tf.io.gfile.join(self.path, f"trial_{os.getpid()}")
        try:
            tf.io.gfile.makedirs(trial)
            tf.io.gfile.rmtree(trial)
        except (tf.errors.OpError, OSError) as error:
            raise InputError(
                received=f"{self.path}, which cannot be written ({error})",
                expected="a folder for checkpoints and results, or a path where one can be made",
                remedy="choose another --output_dir, or change its permissions",
            ) from None

    def latest(self) -> str | None:
        """The prefix of the latest checkpoint, or None.

        Raises:
          InputError: the `checkpoint` file cannot be read, or names one that is not there. To start
            again would overwrite the run.
        """
        state = _read_state(self.path)
        if state is None:
            return None
        if not tf.io.gfile.exists(f"{state.model_checkpoint_path}.index"):
            raise InputError(
                received=f"{self.path}/checkpoint, which names the missing "
                f"{state.model_checkpoint_path}",
                expected="the checkpoint that it names",
                remedy="put the checkpoint back, or remove the folder to start again",
            )
        return state.model_checkpoint_path

    def clear(self) -> None:
        """Removes every checkpoint that the `checkpoint` file names, and that file."""
        state = _read_state(self.path)
        if state is None or not cluster.is_chief():
            return
        tf.io.gfile.remove(tf.io.gfile.join(self.path, "checkpoint"))
        for path in state.all_model_checkpoint_paths:
            _remove_checkpoint(path)

    def save(self, step: int, tensors: Mapping[str, np.ndarray]) -> str:
        """Writes model.ckpt-<step> and removes the oldest beyond `keep_max`.

        Args:
          step: number of updates made.
          tensors: what to write, by name.

        Returns:
          The checkpoint's prefix.

        Raises:
          InputError: it cannot be written; for want of space, say. The earlier ones are whole.
        """
        if not cluster.is_chief():
            cluster.wait_for_all()
            return self._prefix(step)
        try:
            _remove_folder(self._temporary)  # of a run that was killed while it wrote
            self._save(step, tensors)
        except (tf.errors.OpError, OSError) as error:
            with contextlib.suppress(tf.errors.OpError):
                _remove_folder(self._temporary)
            raise InputError(
                received=f"{self.path}, where the checkpoint of step {step} cannot be written "
                f"({error})",
                expected="a folder with space for checkpoints",
                remedy="make room and start again with the same command: it goes on from "
                f"{self.latest() or 'the beginning'}",
            ) from None
        cluster.wait_for_all()
        return self._prefix(step)

    def _prefix(self, step: int) -> str:
        return tf.io.gfile.join(self.path, f"model.ckpt-{step}")

    def _save(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        final = self._prefix(step)
        write_checkpoint(final, tensors, temporary=self._temporary)
        state = _read_state(self.path)
        old = [] if state is None else [p for p in state.all_model_checkpoint_paths if p != final]
        dropped = old[: max(0, len(old) + 1 - self._keep_max)] if self._keep_max else []
        # Named until they are gone: what a killed run did not come to remove, the next save does.
        self._write_state(final, [*old, final])
        for path in dropped:
            _remove_checkpoint(path)
        if dropped:
            self._write_state(final, [path for path in old if path not in dropped] + [final])

    def _write_state(self, latest: str, kept: Sequence[str]) -> None:
        """The `checkpoint` file, as TensorFlow 1 wrote it: it names the latest and all others."""
        lines = [f"model_checkpoint_path: {json.dumps(latest.split('/')[-1])}"]
        lines += [f"all_model_checkpoint_paths: {json.dumps(p.split('/')[-1])}" for p in kept]
        write_text(tf.io.gfile.join(self.path, "checkpoint"), "\n".join(lines) + "\n")


def write_checkpoint(prefix: str, tensors: Mapping[str, Any], *, temporary: str) -> None:
    """Writes a TF1 checkpoint that appears whole or not at all.

    Args:
      prefix: its path, without .index.
      tensors: values by name.
      temporary: a folder on the same file system that does not exist; gone afterwards.
    """
    tf.io.gfile.makedirs(temporary)
    inside = tf.io.gfile.join(temporary, "checkpoint")
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=inside,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
    )
    # The index last: a checkpoint is there when its index is.
    for suffix in (DATA, INDEX):
        tf.io.gfile.rename(inside + suffix, prefix + suffix, overwrite=True)
    tf.io.gfile.rmtree(temporary)


def _remove_folder(path: str) -> None:
    if tf.io.gfile.exists(path):
        tf.io.gfile.rmtree(path)


def _remove_checkpoint(prefix: str) -> None:
    for suffix in (INDEX, DATA):
        if tf.io.gfile.exists(prefix + suffix):
            tf.io.gfile.remove(prefix + suffix)


def step_of(prefix: str) -> int:
    """The number of updates of one of our checkpoints, model.ckpt-<step>; 0 for others."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else 0


def read_run_settings(reader, *, prefix: str) -> dict[str, Any]:
    """What `bert_tf` noted about the run that wrote a checkpoint; empty for other checkpoints."""
    if not reader.has_tensor(RUN_SETTINGS):
        return {}
    return json.loads(read_tensor(reader, RUN_SETTINGS, prefix=prefix))


def changed_settings(
    saved: Mapping[str, Any], given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> list[str]:
    """The names of what both say, and say otherwise.

    On another host than the chief's the same first weights may lie at another place.

    Args:
      saved: as `read_run_settings` gives them.
      given: those of a run that is asked for.
      besides: names that do not count.
    """
    names = (saved.keys() & given.keys()) - {*besides}
    if not cluster.is_chief():
        names -= {"init_checkpoint"}
    return sorted(name for name in names if saved[name] != json.loads(json.dumps(given[name])))


def check_finished_run(
    prefix: str, given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> None:
    """Refuses to take the end of a run for that of one with other settings, in all processes.

    On how many devices it ran is no such setting; nor are the dev data, where nothing hung on them,
    nor first weights that are not said, or are the run's own.

    Args:
      prefix: of the run's last checkpoint.
      given: the settings of the run that is asked for.
      besides: names of settings that may be others.

    Raises:
      InputError: naming what differs.
    """
    saved = read_run_settings(open_checkpoint(prefix), prefix=prefix)
    ignored = {"num_replicas", *besides}
    if None in (saved.get("dev_data"), given.get("dev_data")):
        ignored.add("dev_data")
    own = prefix.rpartition("/")[0] + "/"
    begun_with = [settings.get("init_checkpoint") or own for settings in (saved, given)]
    if any(f"{path}/".startswith(own) for path in begun_with):
        ignored.add("init_checkpoint")
    other = changed_settings(saved, given, besides=ignored)
    if cluster.any_of(bool(other)):
        listed = ", ".join(f"{name} {given[name]} (it had {saved[name]})" for name in other)
        raise InputError(
            received=f"{prefix}, where a run has ended, with "
            + (listed or "other settings in another process"),
            expected="the settings and data of that run: it would not be trained again",
            remedy="choose another --output_dir, remove the folder to train again, or leave out "
            "--do_train to use its model as it is",
        )


def is_finished(prefix: str) -> bool:
    """Whether a checkpoint is the last of its run, as far as it was to go."""
    settings = read_run_settings(open_checkpoint(prefix), prefix=prefix)
    return settings.get("num_train_steps") == step_of(prefix)


def warn_of_changed_settings(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Says what differs from the run that is resumed: its end will not be that of one run."""
    for name in changed_settings(saved, given):
        logging.warning(
            "Resuming with %s %s; the run was begun with %s. It goes on from its last step, "
            "but is no longer the run that either setting alone would give.",
            *(name, given[name], saved[name]),
        )


def open_bundle(path: str) -> Weights:
    """Opens a checkpoint given as `find_checkpoint` takes it."""
    prefix = find_checkpoint(path)
    reader = open_checkpoint(prefix)
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    return Weights(
        path=prefix,
        format="tf1",
        shapes=shapes,
        read=lambda name: read_tensor(reader, name, prefix=prefix),
        **read_model_files(folder_of(prefix)),
    )
