"""TFRecord files, read by blocks as one sequence of records, and checked."""

import concurrent.futures
import contextlib
import functools
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf
from absl import logging

# A function's threads cannot be chosen otherwise; test_on_one_processor covers it.
from tensorflow.python.eager import context

from bert_tf import decoding, files
from bert_tf.data import records as record_files
from bert_tf.data.records import FRAME_BYTES, PACKED, BlockIndex, DataDescription, Feature, Record
from bert_tf.declarations import names_with, typed
from bert_tf.errors import InputError
from bert_tf.terminal import announced, number_of

FILES_AT_ONCE = 16  # that are opened side by side: remote ones take their time
FEW_BYTES = 1 << 28  # in which records are found within a second
LENGTH_BYTES = 8  # with which a record begins
LONGEST_RECORD = 2**31 - 1  # of protocol buffers


class RecordFiles:
    """TFRecord files as one sequence of records, in the order of the files.

    Opening finds the blocks of each file and checks its first record. Damage elsewhere is found
    when its block is read, by the checksums of the records.

    Attributes:
      record: the kind of the records.
      paths: of the files.
      block_records: how many records each block has, int64 [blocks].
    """

    def __init__(
        self, patterns: str | Sequence[str], record: Record, *, keep_indexes: bool = False
    ):
        """Opens the files.

        Args:
          patterns: paths or globs, a list or one string with commas; local or remote.
          record: the kind of the records.
          keep_indexes: whether indexes beside the files are used, and kept where they are missing,
            as for files of any size. Otherwise the blocks are found anew.

        Raises:
          InputError: nothing matches, a file is empty (unless its description says so), damaged or
            not as described beside it, its first record is of another kind, or its index is of
            another file.
        """
        self.record, self.paths = record, record_paths(patterns)
        total = sum(each(_size_of, self.paths))
        label = f"open {number_of(len(self.paths), 'files')}, {total / 1e9:.1f} GB"
        with announced(label, when=total > FEW_BYTES):
            opened = each(functools.partial(self._open, keep_index=keep_indexes), self.paths)
        indexes, checksums = zip(*opened, strict=True)
        self._first_records = np.array(checksums)
        self.block_records = _joined([one.block_records for one in indexes])
        if not len(self.block_records):
            raise _empty_file(self.paths[0])
        self._block_bytes = _joined([one.block_bytes for one in indexes])
        # Of each block and each file its first row; of each block its offset in its file.
        self._block_rows = _starts(self.block_records)
        self._file_rows = _starts([one.num_records for one in indexes])
        self._offsets = _joined([_starts(one.block_bytes) for one in indexes])

    def __len__(self) -> int:
        """The number of records."""
        return int(self.block_records.sum())

    def fingerprint(self) -> int:
        """A checksum of the blocks' sizes and the first records; detects other files."""
        parts = self.block_records, self._block_bytes, self._first_records
        return zlib.crc32(b"".join(part.tobytes() for part in parts))

    def where(self, row: int) -> str:
        """The file of a record and its number there (from 1), for messages."""
        file = self._file_of(row)
        return f"{self.paths[file]}, record {row - self._file_rows[file] + 1}"

    def blocks_of(self, rows: np.ndarray) -> np.ndarray:
        """The blocks that rows are in."""
        return np.searchsorted(self._block_rows, rows, side="right") - 1

    def read(
        self, rows: Sequence[int], block: Callable[[int], tf.Tensor] | None = None
    ) -> dict[str, np.ndarray]:
        """The records at `rows` as a dict of checked arrays int32 or float32 [len(rows), size].

        Args:
          rows: in any order.
          block: gives the records of a block; `read_block` if None.

        Raises:
          InputError: a record is of another kind, or has a value that is out of its range; or a
            block cannot be read.
        """
        rows, block = np.asarray(rows, np.int64), block or self.read_block
        blocks = self.blocks_of(rows)
        places, parts = [], []
        with tf.device("CPU:0"):
            for number in np.unique(blocks).tolist():
                places.append(np.flatnonzero(blocks == number).astype(np.int32))
                indices = rows[places[-1]] - self._block_rows[number]
                parts.append(tf.raw_ops.GatherV2(params=block(number), indices=indices, axis=0))
            serialized = tf.raw_ops.DynamicStitch(indices=places, data=parts)
        return checked(self.record, serialized, where=lambda row: self.where(int(rows[row])))

    def read_block(self, block: int) -> tf.Tensor:
        """The records of a block, serialized: string [records].

        Raises:
          InputError: the file cannot be read, is damaged, or has changed.
        """
        row, offset = int(self._block_rows[block]), int(self._offsets[block])
        file = self._file_of(row)
        sizes = int(self._block_bytes[block]), int(self.block_records[block])
        found = _read_records(self.paths[file], offset, *sizes)
        if found is None:
            raise _damage(self.paths[file])
        return found

    def _file_of(self, row: int) -> int:
        return int(np.searchsorted(self._file_rows, row, side="right")) - 1

    def _open(self, path: str, *, keep_index: bool) -> tuple[BlockIndex, int]:
        """The index of a file and the checksum of its first record, both checked."""
        kept = read_index(path) if keep_index else None
        index, checksum = kept or _find_index(path), 0
        is_described = check_described(path, index)
        if index.block_records:
            found = _read_records(path, 0, None, 1)
            if found is None:
                raise _damage(path)
            check_kind(self.record, found.numpy()[0], f"{path}, record 1")
            checksum = zlib.crc32(found.numpy()[0])
        elif not is_described:  # of more shards than records some are empty
            raise _empty_file(path)
        if keep_index and not kept:
            _keep(path, index)
        return index, checksum


def each(function: Callable, paths: Iterable[str]) -> list[Any]:
    """`map`, of several files at once."""
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(pool.map(function, paths))


def _joined(parts: Sequence[Sequence[int]]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def _starts(sizes: Sequence[int]) -> np.ndarray:
    """Where each part of a sequence begins."""
    return np.cumsum([0, *sizes], dtype=np.int64)[:-1]


def _empty_file(path: str) -> InputError:
    remedy = "make it again, or leave it out"
    return InputError(f"{path}, an empty file", "one record or more", remedy)


# ---------------------------------------------------------------------------- blocks


def _read_records(path: str, offset: int, num_bytes: int | None, count: int) -> tf.Tensor | None:
    """Consecutive records, serialized: string [count]; None if they cannot be read.

    Args:
      path: of the file.
      offset: the byte at which they begin.
      num_bytes: of them all with their frames; None: unknown.
      count: how many.
    """
    # In this thread: those of TensorFlow may all be waiting for what is read here.
    in_this_thread = context.function_executor_type("SINGLE_THREADED_EXECUTOR")
    with contextlib.suppress(tf.errors.OpError), tf.device("CPU:0"), in_this_thread:
        numbers = (tf.constant(n, tf.int64) for n in (offset, num_bytes or files.READ_BYTES, count))
        found, found_bytes = _block_reader()(tf.constant(path), *numbers)
        if len(found) == count and num_bytes in (None, int(found_bytes)):
            return found
    return None


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without tf.data's tuning of itself.

    The thread that tunes sleeps by the time of day, and the end waits for it: for a minute, or for
    as long as the clock was set back meanwhile.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@functools.cache
def _block_reader() -> Callable:
    """Gives consecutive records and their bytes. The same operations eagerly take twice as long."""
    number = tf.TensorSpec([], tf.int64)

    @tf.function(
        input_signature=[tf.TensorSpec([], tf.string), number, number, number], autograph=False
    )
    def read(path, offset, num_bytes, count):
        dataset = _dataset(path, offset, num_bytes).take(count).batch(count)
        found = untuned(dataset).get_single_element()
        sizes = tf.cast(tf.strings.length(found), tf.int64) + FRAME_BYTES
        return found, tf.reduce_sum(sizes)

    return read.get_concrete_function()


def _dataset(path: Any, offset: Any, buffer_size: Any) -> tf.data.Dataset:
    """The records of a file from a byte on, each with its checksums verified."""
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=buffer_size, byte_offsets=[offset]
    )
    options = tf.data.Options()  # the optimizations lose the offset
    options.experimental_optimization.apply_default_optimizations = False
    dataset = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
    return dataset.with_options(options)


def _damage(path: str) -> InputError:
    """The error of a file in which records cannot be read."""
    files.check_regular(path)
    with files.path_errors(path), _opened(path) as stream:
        decoding.refuse_binary(path, stream.read(8))
    expected = "a complete TFRecord file, as it was when the run began"
    index = record_files.index_path(path)
    remedy = f"copy or make the file again, and remove {index} if there is one"
    return InputError(f"{path}, damaged, cut off or changed", expected, remedy)


def _opened(path: str) -> BinaryIO:
    """An open file; local ones without GFile, which fetches half a megabyte for each read."""
    if files.is_remote(path):
        return tf.io.gfile.GFile(path, "rb")
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
      record: their declaration.
      serialized: the records.
      where: gives the file and the number of record b, for the message.

    Raises:
      InputError: one of them is of another kind, or has a value that is out of its range.
    """
    try:
        stored = {name: value.numpy() for name, value in record.parse(serialized).items()}
    except (tf.errors.OpError, UnicodeDecodeError):  # the latter of TensorFlow's own message
        for place, one in enumerate(np.asarray(serialized, object)):
            check_kind(record, one, where(place))
        raise
    for feature in record.features:
        check_values(feature, stored[feature.name], where)
    return {f.key: stored[f.name].astype(f.batch_dtype) for f in record.features}


def check_kind(record: Record, serialized: bytes, where: str) -> None:
    """Raises `InputError` if the record at `where` is not of this kind."""
    try:
        given = tf.train.Example.FromString(serialized).features.feature
        found = f"a record with the features {sorted(given)}"
    except Exception:  # protobuf's DecodeError; its class differs between implementations
        given, found = {}, "a record that is not a tf.train.Example"
    for feature in record.features:
        if feature.name not in given:
            expected = f"the {record.name} features {', '.join(f.name for f in record.features)}"
            remedy = "give a file that was made for this script"
            if PACKED in given:  # rows are read as packed if their description says so
                remedy = "copy its info_*.json beside it, too"
            raise InputError(f"{where}, {found:.600}", expected, remedy)
        kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
        size = len(getattr(given[feature.name], kind).value)
        if size != feature.size:
            received = f"{where}, a record whose {feature.name} has {size} values in its {kind}"
            expected, remedy = f"{feature.size} values", "make the data again"
            if flag := feature.size_flag:
                expected += f", as --{flag} says"
                if length := size // feature.sequences:
                    remedy = f"use --{flag}={length}, with which the data were made, or {remedy}"
            raise InputError(received, expected, remedy)


def check_values(feature: Feature, values: np.ndarray, where: Callable[[int], str]) -> None:
    """Raises `InputError` if a value of records [B, size] is out of its feature's range.

    On a device such a value would be clamped, cut off, or end in NaN.
    """
    least, most = feature.least, feature.most
    if least == 0 and feature.dtype == tf.int64:  # one pass: negative ones are the greatest
        fits = values.view(np.uint64).max() <= most
    else:
        fits = values.min() >= least and values.max() <= most  # NaN is not
    if fits:
        return
    row, place = np.argwhere(~((values >= least) & (values <= most)))[0]
    received = f"{where(int(row))}, with the {feature.name} {values[row, place]}"
    expected, remedy = f"numbers from {least} to {most}", "make the data again"
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
      InputError: it cannot be read, or is of another file.
    """
    source = record_files.index_path(path)
    if not files.is_file(source):
        return None
    found, size = typed(BlockIndex, files.read_json(source), source=source), _size_of(path)
    if not found.fits(size):
        received = f"{source}, which is not the index of {path} with its {size} bytes"
        remedy = f"remove {source}: it is made again; or copy both files again"
        raise InputError(received, "the index of this file", remedy)
    return found


def find_blocks(file: BinaryIO, num_bytes: int) -> BlockIndex | None:
    """The blocks of an open file of so many bytes, found by the lengths of its records.

    Returns:
      The index; None if the lengths do not lead to the end of the file, which is damaged then.
    """
    builder, position = record_files.IndexBuilder(), 0
    data, first, last = b"", 0, -LENGTH_BYTES
    while position < num_bytes:
        if position > last:  # its length is not in `data`
            file.seek(position)
            data, first = file.read(files.READ_BYTES), position
            last = first + len(data) - LENGTH_BYTES
            if position > last:
                return None
        begin = position - first
        length = int.from_bytes(data[begin : begin + LENGTH_BYTES], "little")
        if length > LONGEST_RECORD:
            return None
        builder.add(length)
        position += length + FRAME_BYTES
    return builder.finish() if position == num_bytes else None


def _find_index(path: str) -> BlockIndex:
    """The index of a file; raises `InputError` if it cannot be read, is damaged or cut off."""
    size = _size_of(path)
    if not size:  # a pipe, maybe, which opens when somebody writes
        return record_files.IndexBuilder().finish()
    with files.path_errors(path), _opened(path) as file:
        found = find_blocks(file, size)
    if found is None:
        raise _damage(path)
    return found


def _keep(path: str, index: BlockIndex) -> None:
    """Writes an index beside its file, unless nothing can be written there."""
    try:
        files.write_text(record_files.index_path(path), index.to_json_string())
    except InputError as error:
        says = "An index cannot be kept beside its file, and is made at each start: %s"
        logging.log_first_n(logging.WARNING, says, 1, error.received)


# ---------------------------------------------------------------------------- description

# Of data generation, beside records; a wide pattern such as data/* matches them too.
_BESIDE_RECORDS = re.compile(r"(?:info|report|index)_.*\.json")


def record_paths(patterns: str | Sequence[str]) -> list[str]:
    """The record files that patterns match, without the JSON files beside them.

    Raises:
      InputError: nothing matches.
    """
    found = record_files.expand_patterns(patterns)
    beside = {path for path in found if _BESIDE_RECORDS.fullmatch(os.path.basename(path))}
    return [path for path in found if path not in beside] or found


def read_description(path: str) -> DataDescription | None:
    """What a record file was made with; None if nothing beside it says so.

    Raises:
      InputError: the description cannot be read, or is none.
    """
    source = record_files.description_path(path)
    if not files.is_file(source):
        return None
    return typed(DataDescription, files.read_json(source), source=source)


def common_description(paths: Sequence[str]) -> tuple[DataDescription | None, str | None]:
    """What record files were made with, and the first of them that does not say so.

    Raises:
      InputError: two files were made with another case, vocabulary or size.
    """
    found = dict(zip(paths, each(read_description, paths), strict=True))
    described = {path: data for path, data in found.items() if data is not None}
    first_path, first = next(iter(described.items()), (None, None))
    in_common = names_with(DataDescription, "in_common")
    for (path, data), name in itertools.product(described.items(), in_common):
        one, other = getattr(first, name), getattr(data, name)
        if one != other:
            received = f"{first_path} with {name} {one}, {path} with {other}"
            remedy = "leave out files of other settings, or make them again"
            raise InputError(received, f"files that were made with one {name}", remedy)
    return first, next((path for path in paths if path not in described), None)


def check_described(path: str, index: BlockIndex) -> bool:
    """Whether there is a description of a record file; raises `InputError` if it is of another."""
    data = read_description(path)
    found = [f"{one.num_records} records in {one.num_bytes} bytes" for one in (index, data) if one]
    if len(set(found)) == 2:
        expected = f"{found[1]}, as in {record_files.description_path(path)}"
        remedy = "copy both files again, or make the records again"
        raise InputError(f"{path}, with {found[0]}", expected, remedy)
    return data is not None
