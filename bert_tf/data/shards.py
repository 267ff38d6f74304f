"""Reads TFRecord files block by block, as one sequence of records, and checks every record."""

import concurrent.futures
import contextlib
import functools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf
from absl import logging

# No public name chooses the threads of a tf.function; test_on_one_processor covers this one.
from tensorflow.python.eager import context

from bert_tf import decoding, files
from bert_tf.data import records as record_files
from bert_tf.data.records import FRAME_BYTES, PACKED, BlockIndex, DataDescription, Feature, Record
from bert_tf.declarations import names_with, typed
from bert_tf.errors import InputError
from bert_tf.terminal import announced, number_of

FILES_AT_ONCE = 16  # opened in parallel, as remote files are slow to open
FEW_BYTES = 1 << 28  # up to here, opening takes less than a second and is not announced
LENGTH_BYTES = 8  # a record begins with its length
LONGEST_RECORD = 2**31 - 1  # in bytes, the limit of protocol buffers


class RecordFiles:
    """TFRecord files as one sequence of records, in the order of the files.

    Opening finds the blocks of each file and checks its first record. The checksums of all other
    records are verified when their block is read.

    Attributes:
      record: the kind of the records.
      paths: the files.
      block_records: how many records each block has, int64 [blocks].
    """

    def __init__(
        self, patterns: str | Sequence[str], record: Record, *, keep_indexes: bool = False
    ):
        """Opens the files.

        Args:
          patterns: paths or globs, local or remote: a list, or one string with commas.
          record: the kind of the records.
          keep_indexes: whether to read the index beside each file, and to write it where it is
            missing. Otherwise the blocks are found by reading the files.

        Raises:
          InputError: nothing matches; a file is damaged, is empty although its description does not
            say so, or differs from its description; its first record is of another kind; or its
            index belongs to another file.
        """
        self.record = record
        self.paths = record_paths(patterns)
        num_bytes = sum(each(_size_of, self.paths))
        label = f"open {number_of(len(self.paths), 'files')}, {num_bytes / 1e9:.1f} GB"
        with announced(label, when=num_bytes > FEW_BYTES):
            opened = each(functools.partial(self._open, keep_index=keep_indexes), self.paths)
        indexes, checksums = zip(*opened, strict=True)
        self._first_checksums = np.array(checksums)
        self.block_records = _joined([index.block_records for index in indexes])
        if not len(self.block_records):
            raise _empty_file(self.paths[0])
        self._block_bytes = _joined([index.block_bytes for index in indexes])
        self._block_rows = _starts(self.block_records)  # the first row of each block
        self._file_rows = _starts([index.num_records for index in indexes])  # and of each file
        self._block_offsets = _joined([_starts(index.block_bytes) for index in indexes])  # in bytes

    def __len__(self) -> int:
        """The number of records."""
        return int(self.block_records.sum())

    def fingerprint(self) -> int:
        """A checksum of all blocks' sizes and each file's first record, to recognize the files."""
        parts = (self.block_records, self._block_bytes, self._first_checksums)
        return zlib.crc32(b"".join(part.tobytes() for part in parts))

    def where(self, row: int) -> str:
        """The file of a row and the record's number in it (from 1), for messages."""
        file = self._file_of(row)
        return f"{self.paths[file]}, record {row - self._file_rows[file] + 1}"

    def blocks_of(self, rows: np.ndarray) -> np.ndarray:
        """The block of each row, int64 [rows]."""
        return np.searchsorted(self._block_rows, rows, side="right") - 1

    def read(
        self, rows: Sequence[int], block: Callable[[int], tf.Tensor] | None = None
    ) -> dict[str, np.ndarray]:
        """The records at `rows`, checked: arrays int32 or float32 [len(rows), size], by name.

        Args:
          rows: row numbers, in any order.
          block: returns the serialized records of a block; `read_block` if None.

        Raises:
          InputError: a record is of another kind or has a value out of its range, or a block
            cannot be read.
        """
        rows = np.asarray(rows, np.int64)
        block = block or self.read_block
        blocks = self.blocks_of(rows)
        places = []  # of each block's records among `rows`
        parts = []  # these records
        with tf.device("CPU:0"):
            for number in np.unique(blocks).tolist():
                places_of_block = np.flatnonzero(blocks == number).astype(np.int32)
                indices = rows[places_of_block] - self._block_rows[number]
                places.append(places_of_block)
                parts.append(tf.raw_ops.GatherV2(params=block(number), indices=indices, axis=0))
            serialized = tf.raw_ops.DynamicStitch(indices=places, data=parts)
        return checked(self.record, serialized, where=lambda place: self.where(int(rows[place])))

    def read_block(self, block: int) -> tf.Tensor:
        """The records of a block, serialized: string [records].

        Raises:
          InputError: the file cannot be read, is damaged, or has changed.
        """
        path = self.paths[self._file_of(self._block_rows[block])]
        records = _read_records(
            path,
            offset=int(self._block_offsets[block]),
            num_bytes=int(self._block_bytes[block]),
            count=int(self.block_records[block]),
        )
        if records is None:
            raise _damage(path)
        return records

    def _file_of(self, row: int) -> int:
        return int(np.searchsorted(self._file_rows, row, side="right")) - 1

    def _open(self, path: str, *, keep_index: bool) -> tuple[BlockIndex, int]:
        """The index of a file and the checksum of its first record, both checked; 0 if empty."""
        stored_index = read_index(path) if keep_index else None
        index = stored_index or _make_index(path)
        is_described = check_described(path, index)
        checksum = 0
        if index.block_records:
            first_record = self._first_record(path)
            check_kind(self.record, first_record, f"{path}, record 1")
            checksum = zlib.crc32(first_record)
        elif not is_described:  # shards may be empty where there are more of them than records
            raise _empty_file(path)
        if keep_index and not stored_index:
            _write_index(path, index)
        return index, checksum

    @staticmethod
    def _first_record(path: str) -> bytes:
        """The first record of a file, serialized."""
        records = _read_records(path, offset=0, num_bytes=None, count=1)
        if records is None:
            raise _damage(path)
        return records.numpy()[0]


def each(function: Callable, paths: Iterable[str]) -> list[Any]:
    """`function` of each path, in order; computed in threads, for several files at a time."""
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(pool.map(function, paths))


def _joined(parts: Sequence[Sequence[int]]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def _starts(sizes: Sequence[int]) -> np.ndarray:
    """Where each part begins, of parts of these sizes that follow each other: int64 [parts]."""
    return np.cumsum([0, *sizes], dtype=np.int64)[:-1]


def _empty_file(path: str) -> InputError:
    remedy = "make it again, or leave it out"
    return InputError(f"{path}, an empty file", "one record or more", remedy)


# ---------------------------------------------------------------------------- blocks


def _read_records(path: str, offset: int, num_bytes: int | None, count: int) -> tf.Tensor | None:
    """Consecutive records, serialized: string [count]; None if they cannot be read.

    Args:
      path: the file.
      offset: the byte at which the first record begins.
      num_bytes: the size of all these records with their frames; None: unknown.
      count: how many records to read.
    """
    # Not in TensorFlow's threads: these may all be waiting for the records that are read here.
    in_this_thread = context.function_executor_type("SINGLE_THREADED_EXECUTOR")
    with contextlib.suppress(tf.errors.OpError), tf.device("CPU:0"), in_this_thread:
        records, bytes_read = _block_reader()(
            tf.constant(path),
            tf.constant(offset, tf.int64),
            tf.constant(num_bytes or files.READ_BYTES, tf.int64),
            tf.constant(count, tf.int64),
        )
        if len(records) == count and num_bytes in (None, int(bytes_read)):
            return records
    return None


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with tf.data's autotuning switched off.

    The end of a dataset waits for the autotuning thread, which sleeps by the time of day: for up to
    a minute, or longer if the clock was set back meanwhile.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@functools.cache
def _block_reader() -> Callable:
    """A function: path, offset, buffer size, count -> records, string [count], and their bytes.

    A graph, as the same operations take twice as long eagerly.
    """
    number = tf.TensorSpec([], tf.int64)

    @tf.function(
        input_signature=[tf.TensorSpec([], tf.string), number, number, number], autograph=False
    )
    def read(path, offset, buffer_size, count):
        dataset = _dataset(path, offset, buffer_size).take(count).batch(count)
        records = untuned(dataset).get_single_element()
        sizes = tf.cast(tf.strings.length(records), tf.int64) + FRAME_BYTES
        return records, tf.reduce_sum(sizes)

    return read.get_concrete_function()


def _dataset(path: Any, offset: Any, buffer_size: Any) -> tf.data.Dataset:
    """The records of a file from byte `offset` on; their checksums are verified."""
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=buffer_size, byte_offsets=[offset]
    )
    dataset = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
    options = tf.data.Options()  # the default optimizations lose the offset
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def _damage(path: str) -> InputError:
    """The error of a file whose records cannot be read; raises a more specific one if it can."""
    files.check_regular(path)
    with files.path_errors(path), _opened(path) as stream:
        decoding.refuse_binary(path, stream.read(8))
    expected = "a complete TFRecord file, as it was when the run began"
    index = record_files.index_path(path)
    remedy = f"copy or make the file again, and remove {index} if there is one"
    return InputError(f"{path}, damaged, cut off or changed", expected, remedy)


def _opened(path: str) -> BinaryIO:
    """A file opened for reading."""
    if files.is_remote(path):
        return tf.io.gfile.GFile(path, "rb")
    # GFile would read half a megabyte for each read.
    return open(path, "rb", buffering=files.READ_BYTES)


def _size_of(path: str) -> int:
    with files.path_errors(path):
        return tf.io.gfile.stat(path).length


# ---------------------------------------------------------------------------- checks


def checked(
    record: Record, serialized: Sequence[bytes] | tf.Tensor, *, where: Callable[[int], str]
) -> dict[str, np.ndarray]:
    """Serialized records [B] -> features as in a batch, int32 or float32 [B, size].

    Args:
      record: the declaration of their kind.
      serialized: the records.
      where: returns the file and the number of record b, for messages.

    Raises:
      InputError: a record is of another kind, or has a value out of its range.
    """
    try:
        stored = {name: value.numpy() for name, value in record.parse(serialized).items()}
    except (tf.errors.OpError, UnicodeDecodeError):  # TensorFlow may fail to decode its own message
        for place, serialized_record in enumerate(np.asarray(serialized, object)):
            check_kind(record, serialized_record, where(place))
        raise
    for feature in record.features:
        check_values(feature, stored[feature.name], where)
    return {f.key: stored[f.name].astype(f.batch_dtype) for f in record.features}


def check_kind(record: Record, serialized: bytes, where: str) -> None:
    """Raises `InputError` if the record at `where` is not of this kind."""
    try:
        stored = tf.train.Example.FromString(serialized).features.feature
        description = f"a record with the features {sorted(stored)}"
    except Exception:  # protobuf's DecodeError; its class differs between implementations
        stored = {}
        description = "a record that is not a tf.train.Example"
    for feature in record.features:
        if feature.name not in stored:
            expected = f"the {record.name} features {', '.join(f.name for f in record.features)}"
            remedy = "give a file that was made for this script"
            if PACKED in stored:  # its description, which says that rows are packed, is missing
                remedy = "copy its info_*.json beside it, too"
            raise InputError(f"{where}, {description:.600}", expected, remedy)
        list_name = "int64_list" if feature.dtype == tf.int64 else "float_list"
        size = len(getattr(stored[feature.name], list_name).value)
        if size != feature.size:
            raise _wrong_size(feature, size, list_name, where)


def _wrong_size(feature: Feature, size: int, list_name: str, where: str) -> InputError:
    """The error of the record at `where`, whose feature has `size` values."""
    received = f"{where}, a record whose {feature.name} has {size} values in its {list_name}"
    expected = f"{feature.size} values"
    remedy = "make the data again"
    if flag := feature.size_flag:
        expected += f", as --{flag} says"
        if length := size // feature.sequences:
            remedy = f"use --{flag}={length}, with which the data were made, or {remedy}"
    return InputError(received, expected, remedy)


def check_values(feature: Feature, values: np.ndarray, where: Callable[[int], str]) -> None:
    """Raises `InputError` if a value of records [B, size] is out of its feature's range.

    On a device such a value would be clamped or truncated, or lead to NaN.
    """
    least = feature.least
    most = feature.most
    if least == 0 and feature.dtype == tf.int64:  # in one pass: as unsigned, negatives are greatest
        all_fit = values.view(np.uint64).max() <= most
    else:
        all_fit = values.min() >= least and values.max() <= most  # false for NaN
    if all_fit:
        return
    fits = (values >= least) & (values <= most)
    record, place = np.argwhere(~fits)[0]
    received = f"{where(int(record))}, with the {feature.name} {values[record, place]}"
    expected = f"numbers from {least} to {most}"
    remedy = "make the data again"
    if feature.dtype == tf.float32:
        expected = "finite numbers" + (", 0 or more" if least == 0 else "")
    elif feature.model_size:
        expected += f", as the model's {feature.model_size} is {most + 1}"
        remedy = f"give the configuration that belongs to the data, or {remedy}"
    raise InputError(received, expected, remedy)


# ---------------------------------------------------------------------------- indexes


def read_index(path: str) -> BlockIndex | None:
    """The index beside a record file; None if there is none.

    Raises:
      InputError: it cannot be read, or belongs to another file.
    """
    source = record_files.index_path(path)
    if not files.is_file(source):
        return None
    index = typed(BlockIndex, files.read_json(source), source=source)
    num_bytes = _size_of(path)
    if not index.fits(num_bytes):
        received = f"{source}, which is not the index of {path} with its {num_bytes} bytes"
        remedy = f"remove {source}: it is made again; or copy both files again"
        raise InputError(received, "the index of this file", remedy)
    return index


def find_blocks(file: BinaryIO, num_bytes: int) -> BlockIndex | None:
    """The blocks of an open file of `num_bytes`, found by following the lengths of its records.

    Returns:
      The index; None for a damaged file, whose lengths do not lead to its end.
    """
    builder = record_files.IndexBuilder()
    position = 0  # where the next record begins
    data = b""  # what was read last
    data_position = 0  # where it begins in the file
    last_position = -LENGTH_BYTES  # the last position at which `data` has a whole length
    while position < num_bytes:
        if position > last_position:
            file.seek(position)
            data = file.read(files.READ_BYTES)
            data_position = position
            last_position = data_position + len(data) - LENGTH_BYTES
            if position > last_position:  # the file ends within a length
                return None
        offset = position - data_position
        record_bytes = int.from_bytes(data[offset : offset + LENGTH_BYTES], "little")
        if record_bytes > LONGEST_RECORD:
            return None
        builder.add(record_bytes)
        position += record_bytes + FRAME_BYTES
    return builder.finish() if position == num_bytes else None


def _make_index(path: str) -> BlockIndex:
    """The index of a file; raises `InputError` if it cannot be read, is damaged or cut off."""
    num_bytes = _size_of(path)
    if not num_bytes:  # not opened: it may be a pipe, which blocks until somebody writes
        return record_files.IndexBuilder().finish()
    with files.path_errors(path), _opened(path) as file:
        index = find_blocks(file, num_bytes)
    if index is None:
        raise _damage(path)
    return index


def _write_index(path: str, index: BlockIndex) -> None:
    """Writes the index beside its file; logs a warning once if nothing can be written there."""
    try:
        files.write_text(record_files.index_path(path), index.to_json_string())
    except InputError as error:
        message = "An index cannot be kept beside its file, and is made at each start: %s"
        logging.log_first_n(logging.WARNING, message, 1, error.received)


# ---------------------------------------------------------------------------- description

# Files that data generation writes beside records; a wide pattern such as data/* matches them too.
_BESIDE_RECORDS = re.compile(r"(?:info|report|index)_.*\.json")


def record_paths(patterns: str | Sequence[str]) -> list[str]:
    """The record files that patterns match, without the JSON files beside them.

    If JSON files are all that matches, these.

    Raises:
      InputError: nothing matches.
    """
    matches = record_files.expand_patterns(patterns)
    records = [path for path in matches if not _BESIDE_RECORDS.fullmatch(os.path.basename(path))]
    return records or matches


def read_description(path: str) -> DataDescription | None:
    """The description of a record file, what it was made with; None if there is none beside it.

    Raises:
      InputError: the description cannot be read, or is invalid.
    """
    source = record_files.description_path(path)
    if not files.is_file(source):
        return None
    return typed(DataDescription, files.read_json(source), source=source)


def common_description(paths: Sequence[str]) -> tuple[DataDescription | None, str | None]:
    """The description of the first described file, and the path of the first without one.

    Either is None if there is none.

    Raises:
      InputError: two files differ in a setting that all must have in common, such as vocabulary.
    """
    descriptions = dict(zip(paths, each(read_description, paths), strict=True))
    described = {path: data for path, data in descriptions.items() if data is not None}
    first_path, first = next(iter(described.items()), (None, None))
    names = names_with(DataDescription, "in_common")
    for path, data in described.items():
        for name in names:
            expected_value = getattr(first, name)
            value = getattr(data, name)
            if value != expected_value:
                received = f"{first_path} with {name} {expected_value}, {path} with {value}"
                remedy = "leave out files of other settings, or make them again"
                raise InputError(received, f"files that were made with one {name}", remedy)
    undescribed_path = next((path for path in paths if path not in described), None)
    return first, undescribed_path


def check_described(path: str, index: BlockIndex) -> bool:
    """Whether a record file has a description.

    Raises:
      InputError: the description says another number of records or bytes.
    """
    data = read_description(path)
    if data is None:
        return False
    received = f"{index.num_records} records in {index.num_bytes} bytes"
    described = f"{data.num_records} records in {data.num_bytes} bytes"
    if received != described:
        expected = f"{described}, as in {record_files.description_path(path)}"
        remedy = "copy both files again, or make the records again"
        raise InputError(f"{path}, with {received}", expected, remedy)
    return True
