"""TFRecord files: written whole or not at all, and read as one indexed sequence of records."""

import array
import bisect
import concurrent.futures
import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import tensorflow as tf

# Reads records one after the other with their checksums and tells where each begins. TensorFlow
# does not export it; test_shards.py covers what we use of it.
from tensorflow.python.lib.io import tf_record as tf_record_io

from bert_tf import runtime
from bert_tf.config import typed
from bert_tf.data.index import FOOTER_BYTES, HEADER_BYTES, LENGTH_BYTES, LONGEST_RECORD
from bert_tf.data.patterns import expand_patterns
from bert_tf.data.records import DataDescription, Record, description_path
from bert_tf.errors import InputError
from bert_tf.files import (
    READ_BYTES,
    is_file,
    is_remote,
    path_errors,
    read_json,
    refuse_gzip,
    whole_file,
)
from bert_tf.terminal import counted
from bert_tf.tokenization.wordpiece import read_vocabulary, vocabulary_sha256

FILES_AT_ONCE = 16  # that are opened side by side: remote ones take their time


class RecordFiles:
    """TFRecord files as one sequence of records, in the order of the files.

    Opening reads every file once and checks every checksum, so that a damaged file is found before
    the first step. A record that changes afterwards is refused when it is read. The index takes 12
    bytes a record.
    """

    def __init__(self, patterns: str | Sequence[str], record: Record):
        """Opens the files.

        Args:
          patterns: paths or globs, a list or one string with commas; local or remote.
          record: the kind of the records.

        Raises:
          InputError: nothing matches, a file is empty, damaged or not as described beside it, or
            its first record is of another kind.
        """
        self.record = record
        self.paths = record_paths(patterns)
        self._indexes = [self._index(path) for path in self.paths]
        sizes = (len(checksums) for _, checksums in self._indexes)
        self._first_rows = list(itertools.accumulate(sizes, initial=0))

    def __len__(self) -> int:
        return self._first_rows[-1]

    def _index(self, path: str) -> tuple[array.array, array.array]:
        """The offsets of the records, then that of the file's end; the records' CRC-32."""
        offsets, checksums = array.array("q", [0]), array.array("I")
        for serialized, end in read_records(path):
            if len(offsets) == 1:
                self.record.check_kind(serialized, where=f"{path}, record 1")
            offsets.append(end)
            checksums.append(zlib.crc32(serialized))
        if len(offsets) == 1:
            raise empty_file(path)
        check_described(path, len(offsets) - 1, offsets[-1])
        return offsets, checksums

    def _locate(self, row: int) -> tuple[int, int]:
        file = bisect.bisect_right(self._first_rows, row) - 1
        return file, int(row) - self._first_rows[file]

    def fingerprint(self) -> int:
        """A checksum of the records' sizes and contents; detects other files."""
        return zlib.crc32(b"".join(part.tobytes() for part in itertools.chain(*self._indexes)))

    def where(self, row: int) -> str:
        """The file of a record and its number there (from 1), for messages."""
        file, number = self._locate(row)
        return f"{self.paths[file]}, record {number + 1}"

    def read(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """The records at `rows` as a dict of checked arrays [len(rows), size].

        Raises:
          InputError: one of them is of another kind, or has a value that is out of its range.
        """
        serialized = [self._read_record(row) for row in rows]
        stored = self.record.checked(serialized, where=lambda place: self.where(rows[place]))
        return {f.name: stored[f.name].astype(f.batch_dtype) for f in self.record.features}

    def _read_record(self, row: int) -> bytes:
        file, number = self._locate(row)
        offsets, checksums = self._indexes[file]
        begin, end = offsets[number : number + 2]
        path, size = self.paths[file], end - begin - HEADER_BYTES - FOOTER_BYTES
        try:
            data = _read_bytes(path, begin + HEADER_BYTES, size)
            if zlib.crc32(data) == checksums[number]:
                return data
            says = "it has become shorter" if len(data) < size else "it has other bytes"
        except (OSError, tf.errors.OpError) as error:
            says = str(error)
        raise InputError(
            f"{self.where(row)}, which can no longer be read ({says})",
            "files that stay as they were when the run began",
            "restore the file and run the same command again",
        )


def empty_file(path: str) -> InputError:
    """The error of a record file without a record."""
    return InputError(
        f"{path}, an empty file",
        "a TFRecord file with at least one record",
        "make the file again, or leave it out",
    )


def read_records(path: str, begin: int = 0, count: int = 0) -> Iterator[tuple[bytes, int]]:
    """The records of a TFRecord file, each with the byte at which the next one begins.

    Args:
      path: local or remote.
      begin: the byte at which the first one begins.
      count: how many records are before it.

    Raises:
      InputError: the file cannot be read, is compressed, damaged or cut off.
    """
    with path_errors(path):
        size = tf.io.gfile.stat(path).length
        if not size:  # a pipe, maybe, which opens when somebody writes
            return
        reader = tf_record_io.tf_record_random_reader(path)
        with _opened(path) as stream:
            while begin < size:
                try:
                    _check_length(stream, begin, size)
                    serialized, end = reader.read(begin)
                except (IndexError, tf.errors.DataLossError):  # IndexError: the file ends
                    stream.seek(0)
                    refuse_gzip(path, stream.read(2))
                    raise InputError(
                        f"{path}, damaged or cut off after {count} records "
                        f"(byte {begin} of {size})",
                        "a complete TFRecord file",
                        "copy or make the file again",
                    ) from None
                yield serialized, end
                begin, count = end, count + 1


def _opened(path: str) -> BinaryIO:
    """An open file; local ones without GFile, which fetches half a megabyte for each read."""
    if is_remote(path):
        return tf.io.gfile.GFile(path, "rb")
    return open(path, "rb", buffering=READ_BYTES)


def _read_bytes(path: str, begin: int, size: int) -> bytes:
    """`size` bytes of a file, or fewer at its end.

    The file is opened for each read: several threads may read, and there may be more files than a
    process can hold open.
    """
    if is_remote(path):
        with _opened(path) as stream:
            stream.seek(begin)
            return stream.read(size)
    file = os.open(path, os.O_RDONLY)  # half the time of Python's own files
    try:
        return os.pread(file, size, begin)
    finally:
        os.close(file)


def _check_length(stream: BinaryIO, begin: int, size: int) -> None:
    """Raises IndexError if a record ends beyond its file: the reader trusts its length."""
    stream.seek(begin)
    length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    if length > min(size - begin - HEADER_BYTES - FOOTER_BYTES, LONGEST_RECORD):
        raise IndexError


# ---------------------------------------------------------------------------- description

# Of data generation, beside records; a wide pattern such as data/* matches them too.
_BESIDE_RECORDS = re.compile(r"(?:info|report|index)_.*\.json")
# What the files of one run must have in common.
_IN_COMMON = ("do_lower_case", "never_split", "vocab_sha256", "max_seq_length",
              "max_predictions_per_seq")  # fmt: skip


def record_paths(patterns: str | Sequence[str]) -> list[str]:
    """The record files that patterns match, without the JSON files beside them.

    Raises:
      InputError: nothing matches.
    """
    found = expand_patterns(patterns)
    beside = {path for path in found if _BESIDE_RECORDS.fullmatch(os.path.basename(path))}
    return [path for path in found if path not in beside] or found


def read_description(path: str) -> DataDescription | None:
    """What a record file was made with; None if nothing beside it says so.

    Raises:
      InputError: the description cannot be read, or is none.
    """
    source = description_path(path)
    if not is_file(source):
        return None
    return typed(DataDescription, read_json(source), source=source)


def check_described(path: str, num_records: int, num_bytes: int) -> bool:
    """Whether there is a description of a record file; raises `InputError` if it is of another."""
    data = read_description(path)
    if data is not None and (num_records, num_bytes) != (data.num_records, data.num_bytes):
        raise InputError(
            f"{path}, with {num_records} records in {num_bytes} bytes",
            f"{data.num_records} records in {data.num_bytes} bytes, as in {description_path(path)}",
            "copy both files again, or make the records again",
        )
    return data is not None


def common_description(paths: Sequence[str]) -> tuple[DataDescription | None, str | None]:
    """What record files were made with, and the first of them that does not say so.

    Raises:
      InputError: two files were made with another case, vocabulary or size.
    """
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        found = dict(zip(paths, pool.map(read_description, paths), strict=True))
    described = [(path, data) for path, data in found.items() if data is not None]
    for path, data in described:
        first_path, first = described[0]
        for name in _IN_COMMON:
            one, other = getattr(first, name), getattr(data, name)
            if one != other:
                raise InputError(
                    f"{first_path} with {name} {one}, {path} with {other}",
                    f"files that were made with one {name}",
                    "leave out files of other settings, or make them again",
                )
    undescribed = next((path for path, data in found.items() if data is None), None)
    return (described[0][1] if described else None), undescribed


def refuse_other_vocabulary(path: str, data: DataDescription) -> None:
    """Raises `InputError` if a vocabulary is not that of the data."""
    pieces = read_vocabulary(path)
    if vocabulary_sha256(pieces) != data.vocab_sha256:
        raise InputError(
            f"{path} with {len(pieces)} word pieces, for data made with another vocabulary: "
            f"{data.vocab_file} with {data.vocab_size}",
            f"the vocabulary with SHA-256 {data.vocab_sha256}",
            "give the data's --vocab_file, and an --output_dir of its own; or make the data again",
        )


# ---------------------------------------------------------------------------- writing


def write_records(
    path: str, record: Record, rows: Iterable[Mapping], *, total: int | None = None
) -> int:
    """Writes a TFRecord file that appears when it is whole; returns the number of records.

    Args:
      path: local or remote.
      record: the declaration.
      rows: for each record the values of its features.
      total: about how many there are, for the progress.

    Raises:
      InputError: the file cannot be written, or other processes of the run have other rows.
    """
    count = checksum = 0
    with (
        path_errors(path, "written"),
        whole_file(path) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        rows = counted(rows, f"write {os.path.basename(path)}", total, "records")
        for count, row in enumerate(rows, 1):  # noqa: B007
            serialized = record.serialize(row)
            checksum = zlib.crc32(serialized, checksum)
            writer.write(serialized)
    # Waits for the chief, whose file they all read.
    runtime.check_same({f"records of {path}": checksum})
    return count
