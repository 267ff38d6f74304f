"""Reads and writes TF1 checkpoints, the original's format and ours; the folder of a run.

Variables have the original's names and shapes, the optimizer's moments are <variable>/adam_m and
/adam_v, the step is global_step. So the original reads our checkpoints, and we read its own.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, runtime
from bert_tf.checkpoints.metadata import Weights, damage_errors, read_model_files
from bert_tf.checkpoints.scopes import unwrapped
from bert_tf.checkpoints.tensor_index import check_index
from bert_tf.errors import NO_MODEL, InputError, first_line, is_system_error, quoted, remedy_of
from bert_tf.options import Settings

GLOBAL_STEP = "global_step"
RUN_SETTINGS = "bert_tf/run_facts"  # JSON: the settings that a resumed run is compared with
INDEX, DATA = ".index", ".data-00000-of-00001"  # the two files of a checkpoint that we write


# ---------------------------------------------------------------------------- reading


def find_checkpoint(path: str | os.PathLike) -> str:
    """The prefix of a TF1 checkpoint given as prefix, .index or .data file, or folder.

    In a folder it is the best one, if a run left it in best/; else the latest one that the
    `checkpoint` file names, or the only one.

    Raises:
      InputError: there is no checkpoint, or another program's weights; or a folder has several
        checkpoints and no `checkpoint` file.
    """
    path = files.own_path(path)
    prefix = re.sub(r"\.(index|data-\d+-of-\d+|meta)$", "", path)
    with files.path_errors(path):
        if tf.io.gfile.exists(prefix + INDEX):
            return prefix
        is_folder = tf.io.gfile.isdir(path)
    if is_folder:
        for folder in (os.path.join(path, files.BEST), path):
            named = _read_state(folder)
            if named and tf.io.gfile.exists(named[-1] + INDEX):
                return named[-1]
        indices = files.paths_in(path, r"\.index$")
        if len(indices) == 1:
            return indices[0].removesuffix(INDEX)
        if indices:
            received = f"{path}, a folder with {len(indices)} checkpoints"
            expected = "one, or a file `checkpoint`"
            raise InputError(received, expected, "give the path of one of them")
    from bert_tf.checkpoints.others import refuse_others  # not at the top: for errors alone

    refuse_others(path)
    expected = "a model's folder, or a prefix such as bert_model.ckpt beside .index and .data files"
    raise InputError(f"{path}, where there is no checkpoint", expected, NO_MODEL)


def has_checkpoints(folder: str) -> bool:
    """Whether a run left checkpoints in a folder, or its best one in best/."""
    names = ("checkpoint", f"{files.BEST}/checkpoint")
    return any(tf.io.gfile.exists(os.path.join(folder, name)) for name in names)


def _read_state(folder: str) -> list[str]:
    """The checkpoints that the `checkpoint` file of a folder names, the latest last.

    If the file names a path elsewhere, a checkpoint of the same name in the folder is used instead,
    so that a copied folder does not depend on the first one. TensorFlow would read that one's.
    """
    path = os.path.join(folder, "checkpoint")
    if not tf.io.gfile.exists(path):
        return []
    files.check_regular(path)
    with contextlib.suppress(ValueError):  # it names no checkpoint
        if state := tf.train.get_checkpoint_state(folder):  # None: it cannot be parsed
            prefixes = []
            for named in [*state.all_model_checkpoint_paths, state.model_checkpoint_path]:
                inside = os.path.join(folder, os.path.basename(named))
                prefixes.append(inside if tf.io.gfile.exists(inside + INDEX) else named)
            latest = prefixes.pop()
            return [prefix for prefix in prefixes if prefix != latest] + [latest]
    expected = 'the latest checkpoint, such as model_checkpoint_path: "model.ckpt-900"'
    raise InputError(f"{path}, which cannot be read", expected, "write that into it")


class CheckpointReader:
    """The tensors of a checkpoint; methods raise `InputError` for a damaged file.

    Attributes:
      prefix: its path, without .index.
      shapes: the shapes of all tensors, by name.
    """

    def __init__(self, path: str | os.PathLike):
        """Opens a checkpoint given as `find_checkpoint` takes it.

        Raises:
          InputError: there is none, it is damaged, or TensorFlow takes its path for a pattern.
        """
        self.prefix = find_checkpoint(path)
        files.refuse_pattern(self.prefix)
        folder, name = os.path.split(self.prefix)
        for file in files.paths_in(folder or ".", rf"^{re.escape(name)}\.(index|data-.*)$"):
            files.check_regular(file)
        with self._damage_errors():
            check_index(self.prefix)
            self._reader = tf.compat.v1.train.NewCheckpointReader(self.prefix)
            shapes = self._reader.get_variable_to_shape_map()
            self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor from the file."""
        with self._damage_errors():
            return self._reader.get_tensor(name)

    def run_settings(self) -> dict[str, Any]:
        """The settings of the run that wrote the checkpoint; empty if it was no run of ours."""
        if RUN_SETTINGS not in self.shapes:
            return {}
        with self._damage_errors():
            settings = json.loads(self.read(RUN_SETTINGS))
            steps = settings.get("num_train_steps", 0)
            if type(steps) is not int:
                raise ValueError(f"{RUN_SETTINGS} in it with the steps {quoted(steps)}")
            return settings

    def _damage_errors(self) -> contextlib.AbstractContextManager[None]:
        return damage_errors(self.prefix, "a complete checkpoint, its .index and all .data files")


def open_tf1(path: str | os.PathLike) -> Weights:
    """Opens a checkpoint given as `find_checkpoint` takes it.

    Raises:
      InputError: it is damaged, or is not of a single BERT.
    """
    reader = CheckpointReader(path)
    beside = read_model_files(os.path.dirname(reader.prefix))
    new_names = unwrapped(reader.shapes, reader.prefix, separator="/")
    names_in_file = {name: stored for stored, name in new_names.items()}
    return Weights(
        path=reader.prefix,
        format="tf1",
        shapes={name: reader.shapes[stored] for name, stored in names_in_file.items()},
        read=lambda name: reader.read(names_in_file[name]),
        **beside,
    )


# ---------------------------------------------------------------------------- writing


def write_checkpoint(prefix: str, tensors: Mapping[str, Any], *, temporary: str) -> None:
    """Writes a TF1 checkpoint, which appears when it is complete.

    Args:
      prefix: its path, without .index.
      tensors: values by name.
      temporary: a folder on the same file system, empty or not yet made; it is removed afterwards.
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
    # The index comes last: a checkpoint exists when its index does.
    for suffix in (DATA, INDEX):
        files.synced(inside + suffix)
        tf.io.gfile.rename(inside + suffix, prefix + suffix, overwrite=True)
    files.synced(os.path.dirname(prefix) or ".")
    tf.io.gfile.rmtree(temporary)


class CheckpointFolder:
    """The checkpoints of one run: model.ckpt-<step> in its output folder.

    A checkpoint is written under a temporary name and renamed when it is complete; then a new
    `checkpoint` file is renamed over the old one. So after a kill at any moment the latest complete
    checkpoint is found. Of several processes the chief writes, and the others wait for it. Only
    `model.ckpt-<step>` in this folder is ever removed.

    A thread writes, one checkpoint at a time; `latest` waits for it.

    Attributes:
      path: the path of the folder.
    """

    def __init__(self, output_dir: str | os.PathLike, *, keep_max: int = 5):
        """Makes the folder, and checks that it can be written.

        Args:
          output_dir: the folder; local or remote.
          keep_max: maximum number of checkpoints that are kept; 0 keeps all.

        Raises:
          InputError: the folder cannot be made or written, or TensorFlow takes its path for a
            pattern.
        """
        self.path = files.own_path(output_dir)
        files.refuse_pattern(self.path)
        self._keep_max = keep_max
        self._thread = futures.ThreadPoolExecutor(max_workers=1)
        self._saving: futures.Future | None = None
        if runtime.is_chief():
            files.make_folder(self.path)

    def latest(self) -> str | None:
        """The prefix of the latest checkpoint, or None.

        Raises:
          InputError: the `checkpoint` file cannot be read, or names a missing checkpoint (starting
            again would overwrite the run); or `start_saving` failed.
        """
        self.wait()
        return self._latest()

    def _latest(self) -> str | None:
        named = _read_state(self.path)
        if not named:
            return None
        prefix = named[-1]
        if not tf.io.gfile.exists(prefix + INDEX):
            received = f"{self.path}/checkpoint, which names the missing {prefix}"
            remedy = "put the checkpoint back, or remove the folder to start again"
            raise InputError(received, "the checkpoint that it names", remedy)
        return prefix

    def clear(self) -> None:
        """Removes the run's checkpoints that the `checkpoint` file names, and that file."""
        self.wait()
        named = _read_state(self.path)
        if named and runtime.is_chief():
            tf.io.gfile.remove(os.path.join(self.path, "checkpoint"))
            self._remove(filter(self._is_of_run, named))

    def save(self, step: int, tensors: Mapping[str, Any]) -> str:
        """Writes model.ckpt-<step> and removes the oldest beyond `keep_max`.

        Args:
          step: the number of updates.
          tensors: values by name.

        Returns:
          The checkpoint's prefix.

        Raises:
          InputError: it cannot be written, for lack of space say. Earlier checkpoints are intact.
        """
        self.start_saving(step, tensors)
        self.wait()
        return self._prefix(step)

    def start_saving(self, step: int, tensors: Mapping[str, Any]) -> None:
        """Begins to save as `save` does; `wait`, and what calls it, raises the error.

        The tensors must keep their values until then.
        """
        self.wait()
        self._saving = self._thread.submit(self._write, step, tensors)

    def wait(self) -> None:
        """Waits until the checkpoint of `start_saving` is complete, in every process.

        Raises:
          InputError: as `save`.
        """
        if self._saving is not None:
            futures.wait([self._saving])
            self.raise_error()
            self._saving = None
            runtime.barrier()

    def raise_error(self) -> None:
        """Raises the error of `start_saving` if it has failed by now; does not wait.

        Raises:
          InputError: the checkpoint was not written.
        """
        if self._saving is not None and self._saving.done() and self._saving.exception():
            saving = self._saving
            self._saving = None
            saving.result()

    @contextlib.contextmanager
    def whole_at_end(self) -> Iterator[None]:
        """Waits for the checkpoint of `start_saving` at the block's end, also after an error."""
        try:
            yield
        except BaseException:
            if self._saving is not None:
                # Waits for the thread, but for no other process, which may not come here.
                if error := self._saving.exception():
                    logging.warning("%s", error)
                self._saving = None
            raise
        self.wait()

    def _write(self, step: int, tensors: Mapping[str, Any]) -> None:
        """Writes a checkpoint, or nothing at all."""
        if not runtime.is_chief():
            return
        try:
            with files.temporary(self._prefix(step), folder=True) as folder:
                write_checkpoint(self._prefix(step), tensors, temporary=folder)
                self._name_latest(self._prefix(step))
        except Exception as error:
            if not is_system_error(error):
                raise
            expected, remedy = remedy_of(error)
            says = f"where the checkpoint of step {step} cannot be written ({first_line(error)})"
            remedy += f": it resumes from {self._latest() or 'the beginning'}"
            raise InputError(f"{self.path}, {says}", expected, remedy) from None

    def _name_latest(self, prefix: str) -> None:
        """Names a complete checkpoint as the latest; removes the oldest beyond `keep_max`."""
        named = [p for p in _read_state(self.path) if self._is_of_run(p) and p != prefix]
        named.append(prefix)
        dropped = named[: -self._keep_max] if self._keep_max else []
        # Named until they are removed, so that after a kill the next save removes them.
        self._write_state(named)
        self._remove(dropped)
        if dropped:
            self._write_state(named[len(dropped) :])

    def _remove(self, prefixes: Iterable[str]) -> None:
        for prefix in prefixes:
            for path in (prefix + INDEX, prefix + DATA):
                if tf.io.gfile.exists(path):
                    tf.io.gfile.remove(path)

    def _write_state(self, prefixes: Sequence[str]) -> None:
        """Writes the `checkpoint` file as TensorFlow 1 did; the last prefix is the latest."""
        names = [json.dumps(os.path.basename(prefix)) for prefix in prefixes]
        lines = [f"model_checkpoint_path: {names[-1]}\n"]
        lines += [f"all_model_checkpoint_paths: {name}\n" for name in names]
        files.write_text(os.path.join(self.path, "checkpoint"), "".join(lines))

    def _prefix(self, step: int) -> str:
        return os.path.join(self.path, f"model.ckpt-{step}")

    def _is_of_run(self, prefix: str) -> bool:
        return prefix == self._prefix(step_of(prefix))


def step_of(prefix: str) -> int:
    """The step of a run's checkpoint, model.ckpt-<step>; 0 for other checkpoints."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else 0


def check_of_run(reader: CheckpointReader) -> None:
    """Raises `InputError` if a checkpoint was not left by a run: it has no step then."""
    if GLOBAL_STEP not in reader.shapes:
        raise no_run(os.path.dirname(reader.prefix), reader.prefix)


def no_run(folder: str, model: str) -> InputError:
    """The error for a folder that should be a run's, and has another model."""
    expected = "the folder of a run, or a new one; training begins with --init_checkpoint"
    remedy = f"add --init_checkpoint={model}, and give another --output_dir"
    return InputError(f"{folder}, where {model} is, which no run has left", expected, remedy)


# ---------------------------------------------------------------------------- the settings of a run


def is_finished(prefix: str) -> bool:
    """Whether a checkpoint is the last of its run, after all steps.

    Raises:
      InputError: it was not left by a run.
    """
    reader = CheckpointReader(prefix)
    check_of_run(reader)
    return reader.run_settings().get("num_train_steps") == step_of(prefix)


def changed_settings(
    saved: Mapping[str, Any], given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> list[str]:
    """The names of settings in which a new run differs from a checkpoint's.

    Compares the settings that both have, and options that the checkpoint does not record, as their
    defaults. A path may be spelled in several ways, and on other hosts than the chief's the same
    initial weights may have another path.

    Args:
      saved: as from `CheckpointReader.run_settings`; empty if no run of ours wrote the checkpoint.
      given: the settings of the new run.
      besides: names that are ignored.
    """
    saved = with_defaults(saved, given)
    names = (saved.keys() & given.keys()) - set(besides)
    saved_path = os.path.realpath(str(saved.get("init_checkpoint") or ""))
    given_path = os.path.realpath(str(given.get("init_checkpoint") or ""))
    if not runtime.is_chief() or saved_path == given_path:
        names -= {"init_checkpoint"}
    new = json.loads(json.dumps({name: given[name] for name in names}))
    return sorted(name for name in names if saved[name] != new[name])


def with_defaults(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a checkpoint's run, with the defaults of options that it does not record."""
    defaults = given.defaults if saved and isinstance(given, Settings) else {}
    return json.loads(json.dumps(dict(defaults))) | dict(saved)


def check_finished_run(
    prefix: str, given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> None:
    """Raises `InputError`, in all processes, if a finished run had other settings than these.

    The number of devices is ignored, and so are dev data that did not select a model, and initial
    weights that are not given or are the run's own.

    Args:
      prefix: the prefix of the run's last checkpoint.
      given: the settings of the new run.
      besides: names of settings that may differ.
    """
    saved = CheckpointReader(prefix).run_settings()
    ignored = {"num_replicas", *besides}
    if None in (saved.get("dev_data"), given.get("dev_data")):
        ignored.add("dev_data")
    folder = f"{os.path.dirname(prefix)}/"
    initial = [settings.get("init_checkpoint") or folder for settings in (saved, given)]
    if any(f"{path}/".startswith(folder) for path in initial):
        ignored.add("init_checkpoint")
    other = changed_settings(saved, given, besides=ignored)
    if runtime.any_process(bool(other)):
        had = with_defaults(saved, given)
        listed = ", ".join(f"{name} {given[name]} (it had {had[name]})" for name in other)
        raise InputError(
            f"{prefix}, a finished run, with other settings: {listed or 'of another process'}",
            "the settings and data of that run, which is not trained again",
            "choose another --output_dir, remove the folder, or leave out --do_train",
        )


def warn_of_changed_settings(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Logs the settings in which a resumed run differs from its beginning."""
    had = with_defaults(saved, given)
    # The order of the data follows from train_batch_size, which has a warning of its own.
    for name in changed_settings(saved, given, besides=("data_order",)):
        what = {"train_records": "other records, whose checksum is"}.get(name, name)
        logging.warning(
            "Resuming with %s %s; the run was started with %s. Training continues from the last "
            "step, but the result differs from a run with one setting throughout.",
            *(what, given[name], had[name]),
        )
