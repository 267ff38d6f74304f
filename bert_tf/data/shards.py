"""TFRecord files: written whole or not at all, and read as one indexed sequence of records."""

import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

# Reads records one after the other with their checksums and tells where each begins. TensorFlow
# does not export it; test_shards.py covers what we use of it.
from tensorflow.python.lib.io import tf_record as tf_record_io

from bert_tf import cluster
from bert_tf.data.records import Record
from bert_tf.errors import InputError
from bert_tf.files import expand_patterns, is_remote, path_errors, whole_file

# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
HEADER_BYTES, FOOTER_BYTES = 12, 4


class RecordFiles:
    """TFRecord files as one sequence of records, in the order of the files.

    Opening reads every file once and checks every checksum, so that a damaged file is found before
    the first step. The index takes 8 bytes a record.
    """

    def __init__(self, patterns: str | Sequence[str], record: Record):
        """Opens the files.

        Args:
          patterns: paths or globs, a list or one string with commas; local or remote.
          record: the kind of the records.

        Raises:
          InputError: nothing matches, a file is empty or damaged, or its first record is of
            another kind.
        """
        self.record = record
        self.paths = expand_patterns(patterns)
        self._offsets = [self._index(path) for path in self.paths]
        self._first_rows = np.cumsum([0] + [len(offsets) - 1 for offsets in self._offsets])

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def _index(self, path: str) -> np.ndarray:
        """Where each record of the file begins, and at last where the file ends."""
        offsets, reader = [0], tf_record_io.tf_record_random_reader(path)
        size = tf.io.gfile.stat(path).length
        while offsets[-1] < size:
            try:
                serialized, next_offset = reader.read(offsets[-1])
            except (IndexError, tf.errors.OpError):  # IndexError is its end of file
                raise InputError(
                    f"{path}, damaged or cut off after {len(offsets) - 1} records "
                    f"(byte {offsets[-1]} of {size})",
                    "a complete TFRecord file",
                    "copy or make the file again",
                ) from None
            if len(offsets) == 1:
                self.record.check(serialized, where=f"{path}, record 1")
            offsets.append(next_offset)
        if size == 0:
            raise InputError(
                f"{path}, an empty file",
                "a TFRecord file with at least one record",
                "make the file again, or leave it out",
            )
        return np.asarray(offsets, np.int64)

    def _locate(self, row: int) -> tuple[int, int]:
        file = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        return file, int(row - self._first_rows[file])

    def fingerprint(self) -> int:
        """A checksum of the records' sizes; detects other files."""
        return zlib.crc32(b"".join(offsets.tobytes() for offsets in self._offsets))

    def where(self, row: int) -> str:
        """The file of a record and its number there (from 1), for messages."""
        file, number = self._locate(row)
        return f"{self.paths[file]}, record {number + 1}"

    def read(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """The records at `rows` as a dict of arrays [len(rows), size].

        Raises:
          InputError: one of them is of another kind.
        """
        serialized = [self._read_bytes(row) for row in rows]
        try:
            parsed = self.record.parse(serialized)
        except tf.errors.InvalidArgumentError:
            for row, one in zip(rows, serialized, strict=True):
                self.record.check(one, where=self.where(row))
            raise
        return {name: value.numpy() for name, value in parsed.items()}

    def _read_bytes(self, row: int) -> bytes:
        file, number = self._locate(row)
        begin, end = map(int, self._offsets[file][number : number + 2])
        path = self.paths[file]
        # Opened for each read: several threads may read, and there may be more files than a process
        # can hold open. Local files without GFile, which fetches half a megabyte for each read.
        with (
            tf.io.gfile.GFile(path, "rb")
            if is_remote(path)
            else open(path, "rb", buffering=0) as stream
        ):
            stream.seek(begin + HEADER_BYTES)
            return stream.read(end - begin - HEADER_BYTES - FOOTER_BYTES)


def write_records(path: str, record: Record, rows: Iterable[Mapping]) -> int:
    """Writes a TFRecord file that appears when it is whole; returns the number of records.

    Args:
      path: local or remote.
      record: the declaration.
      rows: for each record the values of its features.

    Raises:
      InputError: the file cannot be written, or other processes of the run have other rows.
    """
    count = checksum = 0
    with (
        path_errors(path, "written"),
        whole_file(path) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        for count, row in enumerate(rows, 1):  # noqa: B007
            serialized = record.serialize(row)
            checksum = zlib.crc32(serialized, checksum)
            writer.write(serialized)
    # Waits for the chief, whose file they all read.
    cluster.check_same({f"records of {path}": checksum})
    return count
