"""Files that appear only when they are complete, and a folder for work that leaves no trace."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.files import hidden_sibling, is_remote, whole_file


def report_path(output_file: str) -> str:
    """Where the report on some output files is written, given the first of them.

    >>> report_path("data/train.tfrecord")
    'data/report_train.tfrecord.json'
    """
    folder, name = os.path.split(output_file)
    return os.path.join(folder, f"report_{name}.json")


class OutputFiles:
    """TFRecord files that are filled in turn, record by record, as in the original.

    They are written under other names in the same folders. `complete` gives all of them their
    names at the end; leaving the context without it removes what was written.
    """

    def __init__(self, paths: Sequence[str]):
        """Names the files; they are begun when the context is entered."""
        self.records = dict.fromkeys(paths, 0)
        self._paths = list(paths)
        self._temporary = {path: hidden_sibling(path, "incomplete") for path in paths}
        self._writers: dict[str, tf.io.TFRecordWriter] = {}
        self._num_written = 0

    def __enter__(self) -> "OutputFiles":
        """Begins the files; raises `InputError` if one cannot be written."""
        try:
            for path, temporary in self._temporary.items():
                _check_writable(path)
                self._writers[path] = tf.io.TFRecordWriter(temporary)
        except InputError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for path, writer in self._writers.items():
            with contextlib.suppress(tf.errors.OpError):
                writer.close()
            if tf.io.gfile.exists(self._temporary[path]):
                tf.io.gfile.remove(self._temporary[path])

    def write(self, record: bytes) -> None:
        """Adds a record to the next file."""
        path = self._paths[self._num_written % len(self._paths)]
        self._writers[path].write(record)
        self.records[path] += 1
        self._num_written += 1

    def complete(self) -> None:
        """Gives the files their names."""
        for writer in self._writers.values():
            writer.close()
        for path, temporary in self._temporary.items():
            tf.io.gfile.rename(temporary, path, overwrite=True)


@contextlib.contextmanager
def complete_file(path: str) -> Iterator[str]:
    """Where to write a file so that it gets its name at the end, or nothing is left of it.

    Raises:
      InputError: it cannot be written there.
    """
    _check_writable(path)
    with whole_file(path) as temporary:
        yield temporary


def _check_writable(path: str) -> None:
    try:
        if tf.io.gfile.isdir(path):
            raise InputError(
                received=f"--output_file={path}, which is a folder",
                expected="the name of a file to write",
                remedy="add a file name",
            )
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
        with tf.io.gfile.GFile(hidden_sibling(path, "incomplete"), "w") as file:
            file.write("")  # only this makes the file
    except tf.errors.OpError as error:
        raise InputError(
            received=f"--output_file={path}, which cannot be written ({error.message})",
            expected="a file in a folder where files can be made",
            remedy="check the path and the rights to its folder",
        ) from None


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON file."""
    with complete_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(content, indent=2) + "\n")


@contextlib.contextmanager
def working_folder(output_file: str, temp_dir: str | None) -> Iterator[pathlib.Path]:
    """An empty local folder, removed at the end, and at the next run if this one is killed.

    Args:
      output_file: what the work is for; one run at a time may make it.
      temp_dir: where to put the folder; by default beside the output file, or, if that is remote,
        where the system keeps temporary files.

    Raises:
      InputError: the folder cannot be made, or another run that is still alive uses it.
    """
    folder = pathlib.Path(hidden_sibling(output_file, "working"))
    if temp_dir or is_remote(output_file):
        parent = temp_dir or tempfile.gettempdir()
        folder = pathlib.Path(
            parent, output_file.replace("://", "_").replace("/", "_") + ".working"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise InputError(
            received=f"{folder}, a folder that cannot be made ({error.strerror})",
            expected="that files can be made in the folder of --output_file, or in --temp_dir",
            remedy="check the path and the rights to the folder, or give another one",
        ) from None
    with lock:
        _lock(lock, output_file)
        for left_over in set(folder.iterdir()) - {folder / "lock"}:
            shutil.rmtree(left_over)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _lock(lock, output_file: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone when the process is
    except BlockingIOError:
        raise InputError(
            received=f"--output_file={output_file}, which another run is making at this moment",
            expected="one run for one output",
            remedy="wait for the other run, or give another --output_file",
        ) from None
