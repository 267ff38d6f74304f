"""The files of a run: records, a description and an index beside each; the working folder."""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import typed
from bert_tf.data.sidecars import DataDescription, IndexBuilder, description_path, index_path
from bert_tf.errors import InputError
from bert_tf.files import gfile, is_file, is_remote, locked, path_errors, read_json, whole_file
from bert_tf.locks import IN_FOLDER, hidden_sibling, refuse_link, remove

MARK = "of_bert_tf"  # a file in a working folder, made first and removed last: a run made it


def shard_path(output_file: str, shard: int, num_shards: int) -> str:
    """The name of a shard, which counts from 0.

    >>> shard_path("data/train", 2, 64)
    'data/train-00002-of-00064'
    """
    return f"{output_file}-{shard:05d}-of-{num_shards:05d}"


def output_paths(output_file: str, num_shards: int) -> list[str]:
    """The files to write: the shards of one name, or for 0 the names between commas.

    Raises:
      InputError: no name or several are given for shards.
    """
    if not num_shards:
        return output_file.split(",")
    if "," in output_file or not os.path.basename(output_file):
        raise InputError(
            f"--output_file={output_file} with --num_shards={num_shards}",
            "one name, which the names of all files begin with",
            "give one such name, or leave out --num_shards",
        )
    return [shard_path(output_file, shard, num_shards) for shard in range(num_shards)]


def check_paths(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Makes the folders of the outputs.

    Raises:
      InputError: a folder cannot be made; an output has no name, is there twice, or is an input.
    """
    inputs, outputs = set(map(_real_path, input_files)), list(map(_real_path, output_files))
    counts = collections.Counter(outputs)
    for path, real_path in zip(output_files, outputs, strict=True):
        if not path or counts[real_path] > 1 or real_path in inputs:
            raise InputError(
                f"--output_file with {path!r}",
                "names of files, separated by commas, each once, none of them an input",
                f"correct {path!r}",
            )
    for folder in dict.fromkeys(os.path.dirname(path) or "." for path in output_files):
        with path_errors(folder, "written"):
            gfile().makedirs(folder)


def _real_path(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def describe(made_with: Mapping[str, Any], **numbers: int) -> DataDescription:
    """The description of a file.

    Args:
      made_with: what all files of the run have in common, as JSON values.
      **numbers: shard, num_shards, num_records and num_bytes.
    """
    kept = tuple(made_with.get("never_split", ()))
    return DataDescription(**{**made_with, **numbers, "never_split": kept})


class RecordFile(contextlib.ExitStack):
    """A TFRecord file that is being written, with its description and its index.

    After `finish` they get their names when it exits, the records last.
    """

    def __init__(self, path: str):
        super().__init__()
        self.path, self.num_records = path, 0
        self._builder = IndexBuilder()
        with contextlib.ExitStack() as made:  # removed again if one cannot be made
            self._name, self._description, self._index = (
                made.enter_context(whole_file(name))
                for name in (path, description_path(path), index_path(path))
            )
            self._writer = made.enter_context(tf.io.TFRecordWriter(self._name))
            self.push(made.pop_all())

    def write(self, record: bytes) -> None:
        """Adds a serialized record."""
        self._writer.write(record)
        self._builder.add(len(record))
        self.num_records += 1

    def finish(self, made_with: Mapping[str, Any], shard: int, num_shards: int) -> None:
        """Completes the files: shard number `shard`, from 1, of `num_shards`; see `describe`."""
        self._writer.close()
        description = describe(
            made_with,
            shard=shard,
            num_shards=num_shards,
            num_records=self.num_records,
            num_bytes=gfile().stat(self._name).length,
        )
        for name, made in ((self._description, description), (self._index, self._builder.finish())):
            with gfile().GFile(name, "w") as file:
                file.write(made.to_json_string())


def write_in_turn(
    files: Sequence[RecordFile], records: Iterable[bytes], made_with: Mapping[str, Any]
) -> dict[str, int]:
    """Writes serialized records to open files in turn, as the original does; finishes the files.

    Returns:
      The number of records of each file.
    """
    for record, file in zip(records, itertools.cycle(files), strict=False):
        file.write(record)
    for shard, file in enumerate(files, start=1):
        file.finish(made_with, shard, len(files))
    return {file.path: file.num_records for file in files}


# ------------------------------------------------------------------------- earlier runs


def shards_there(output_file: str) -> set[str]:
    """The names, without their folder, of all shards of an output, of whatever run."""
    folder, name = os.path.split(output_file)
    shard = re.compile(re.escape(name) + r"-\d{5}-of-\d{5}")
    return set(filter(shard.fullmatch, gfile().listdir(folder or ".")))


def finished_shards(
    output_file: str, num_shards: int, made_with: Mapping[str, Any]
) -> dict[str, int]:
    """The shards that an earlier run of the same command finished, with their numbers of records.

    Raises:
      InputError: a file there is no shard of this run: it has another number of shards, another
        description, or none; or it is a single file of that name; or another process writes it.
    """
    finished, paths = {}, output_paths(output_file, num_shards)
    remedy = (
        "give the command that the others were made with; or remove all of them, or give another "
        "--output_file"
    )
    there = shards_there(output_file)
    others = there - {*map(os.path.basename, paths)}
    if is_file(output_file):
        others.add(os.path.basename(output_file))
    if others:
        raise InputError(
            f"--num_shards={num_shards}, where {min(others)} is there", "shards of one run", remedy
        )
    for shard, path in enumerate(paths, start=1):
        if os.path.basename(path) not in there:
            continue
        with locked(path):  # removes the lock of a run that was killed after the shard had its name
            pass
        source = description_path(path)
        made = typed(DataDescription, read_json(source, remedy=remedy), source=source)
        numbers = {"num_records": made.num_records, "num_bytes": gfile().stat(path).length}
        ours = describe(made_with, shard=shard, num_shards=num_shards, **numbers)
        for field in dataclasses.fields(DataDescription):
            theirs, expected = getattr(made, field.name), getattr(ours, field.name)
            if theirs != expected:
                raise InputError(
                    f"{path}, a shard with the {field.name} {theirs}",
                    f"{expected}, as of this command",
                    remedy,
                )
        finished[path] = made.num_records
    return finished


@contextlib.contextmanager
def working_folder(
    output_file: str, temp_dir: str | None, *, kept_with: str = ""
) -> Iterator[pathlib.Path]:
    """A local folder; removed at the end, or by the next run if this one is killed.

    Args:
      output_file: what is made; by one run at a time.
      temp_dir: where to put the folder; by default beside the output file, or, if that is remote,
        in the system's folder for temporary files.
      kept_with: the name of a file. Where it is in the folder, what a run leaves that fails or is
        killed is kept for the next one.

    Raises:
      InputError: the folder cannot be made, another run is using it, or it was not made by a run.
    """
    folder = pathlib.Path(hidden_sibling(output_file, "working"))
    if temp_dir or is_remote(output_file):
        name = output_file.replace("://", "_").replace("/", "_") + ".working"
        folder = pathlib.Path(temp_dir or tempfile.gettempdir(), name)

    def is_kept() -> bool:
        return bool(kept_with) and (folder / kept_with).exists()

    refuse_link(str(folder))
    with locked(output_file, parents=True), locked(str(folder), folder=True):
        check_mark(folder, {path.name for path in folder.iterdir()} - {IN_FOLDER})
        (folder / MARK).touch()
        if not is_kept():
            clear(folder)
        keeps = False
        try:
            yield folder
        except BaseException:
            keeps = is_kept()
            raise
        finally:
            if not keeps:
                with contextlib.suppress(OSError):  # the next run removes the rest
                    clear(folder)
                    shutil.rmtree(folder)


def clear(folder: pathlib.Path) -> None:
    """Empties a working folder, but for its lock and its mark.

    Its files go first: they say that what is in its folders is complete.
    """
    for path in sorted(folder.iterdir(), key=pathlib.Path.is_dir):
        if path.name not in (IN_FOLDER, MARK):
            remove(path)


def check_mark(folder: str | os.PathLike, names: Iterable[str]) -> None:
    """Raises `InputError` if a folder, with files of these names, is not one that a run made."""
    if {*names} - {MARK} and MARK not in names:
        raise InputError(
            f"{folder}, a folder that no run has made, in the place of the working folder",
            "no folder there, or one that an earlier run left",
            "rename it, or choose another --output_file or --temp_dir",
        )
