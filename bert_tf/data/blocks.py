"""TFRecord files read by blocks: their indexes, and the records of a block in one go."""

import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

# Where a function runs TensorFlow does not let choose otherwise; test_lane_batches.py covers it.
from tensorflow.python.eager import context

import bert_tf
from bert_tf import runtime
from bert_tf.config import typed
from bert_tf.data import index
from bert_tf.data.index import BlockIndex, index_path
from bert_tf.data.records import Record, untuned
from bert_tf.data.shards import (
    FILES_AT_ONCE,
    check_described,
    empty_file,
    read_records,
    record_paths,
)
from bert_tf.errors import InputError
from bert_tf.files import is_file, is_remote, path_errors, read_json, write_text
from bert_tf.terminal import announced

# Below so many bytes the records are found faster than a process starts.
FEW_BYTES = 1 << 28


class BlockFiles:
    """TFRecord files as one sequence of blocks, in the order of the files.

    Opening reads the indexes and the first record of each file. What is damaged elsewhere is found
    where it is read.

    Attributes:
      record: the kind of the records.
      paths: of the files.
      block_records: how many records each block has, int64 [blocks].
    """

    def __init__(self, patterns: str | Sequence[str], record: Record):
        """Opens the files; takes and raises what `RecordFiles` does.

        Files without an index get one.
        """
        self.record, self.paths = record, record_paths(patterns)
        self._first_records: dict[str, int] = {}  # of each file, its checksum
        self._indexes = open_indexes(self.paths, self._check)
        self.block_records = _joined(one.block_records for one in self._indexes)
        self._bytes = _joined(one.block_bytes for one in self._indexes)
        self._offsets = _joined(one.offsets[:-1] for one in self._indexes)
        self._first_blocks = np.cumsum([0] + [len(one.block_bytes) for one in self._indexes])
        self._first_rows = np.cumsum(self.block_records) - self.block_records
        if not len(self):
            raise empty_file(self.paths[0])
        self._reader = _block_reader()  # traced here, not in several threads at once

    def __len__(self) -> int:
        """The number of records."""
        return int(self.block_records.sum())

    def fingerprint(self) -> int:
        """A checksum of the blocks' sizes and the first records; detects other files."""
        first_records = np.array([self._first_records[path] for path in self.paths])
        parts = self.block_records, self._bytes, first_records
        return zlib.crc32(b"".join(part.tobytes() for part in parts))

    def where(self, block: int, place: int) -> str:
        """The file of a record of a block and its number there (from 1), for messages."""
        file = self._file_of(block)
        before = self._first_rows[block] - self._first_rows[self._first_blocks[file]]
        return f"{self.paths[file]}, record {before + place + 1}"

    def read(self, block: int, first: int, count: int) -> tf.Tensor:
        """Consecutive records of a block, serialized: string [count].

        Raises:
          InputError: the file cannot be read, is damaged, or has changed.
        """
        path = self.paths[self._file_of(block)]
        offset, num_bytes = int(self._offsets[block]), int(self._bytes[block])
        # In this thread: those of TensorFlow may all be waiting for what is read here.
        in_this_thread = context.function_executor_type("SINGLE_THREADED_EXECUTOR")
        with contextlib.suppress(tf.errors.OpError), tf.device("CPU:0"), in_this_thread:
            numbers = (tf.constant(n, tf.int64) for n in (offset, num_bytes, first, count))
            found, found_bytes = self._reader(tf.constant(path), *numbers)
            is_whole = count == self.block_records[block]
            if len(found) == count and not (is_whole and found_bytes != num_bytes):
                return found
        raise self._unreadable(block, path)

    def _file_of(self, block: int) -> int:
        return int(np.searchsorted(self._first_blocks, block, side="right")) - 1

    def _check(self, path: str, blocks: BlockIndex) -> None:
        """Raises `InputError` unless the first record, and what is beside the file, fit."""
        is_described = check_described(path, blocks.num_records, blocks.num_bytes)
        serialized = b""
        if blocks.block_records:
            serialized, _ = next(read_records(path))
            self.record.check_kind(serialized, where=f"{path}, record 1")
        elif not is_described:  # of more shards than records some are empty
            raise empty_file(path)
        self._first_records[path] = zlib.crc32(serialized)

    def _unreadable(self, block: int, path: str) -> InputError:
        """The error of a block that could not be read whole."""
        with path_errors(path):
            size = tf.io.gfile.stat(path).length
        file = self._file_of(block)
        if size != self._indexes[file].num_bytes:
            says = f"{size} bytes instead of {self._indexes[file].num_bytes}"
            return InputError(
                f"{path}, which has changed since it was opened ({says})",
                "files that stay as they were when the run began",
                "restore the file and run the same command again",
            )
        if make_indexes([path])[path] != self._indexes[file]:
            return InputError(
                f"{path}, whose records are not where its index has them",
                "an index that was made of this file",
                f"remove {index_path(path)}: it is made again",
            )
        before = int(self._first_rows[block] - self._first_rows[self._first_blocks[file]])
        records = read_records(path, int(self._offsets[block]), before)
        for _ in itertools.islice(records, int(self.block_records[block])):
            pass  # raises the error of a damaged record
        return InputError(
            f"{path}, of which {self.where(block, 0)} could not be read at first and now can",
            "files that can be read at any time",
            "run the same command again: it goes on from its last checkpoint",
        )


def _joined(numbers: Iterable[Sequence[int]]) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(numbers), np.int64)


@functools.cache
def _block_reader() -> Callable:
    """Gives consecutive records of a block and their bytes; traced once."""
    number = tf.TensorSpec([], tf.int64)
    signature = [tf.TensorSpec([], tf.string), number, number, number, number]

    @tf.function(input_signature=signature, autograph=False)
    def read(path, offset, num_bytes, first, count):
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=[path], compression_type="", buffer_size=num_bytes, byte_offsets=[offset]
        )
        dataset = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        dataset = dataset.take(first + count).skip(first).batch(count).with_options(options)
        found = untuned(dataset).get_single_element()
        sizes = tf.cast(tf.strings.length(found), tf.int64) + index.FRAME_BYTES
        return found, tf.reduce_sum(sizes)

    return read.get_concrete_function()


# ---------------------------------------------------------------------------- indexes


def open_indexes(
    paths: Sequence[str], check: Callable[[str, BlockIndex], None]
) -> list[BlockIndex]:
    """The indexes of record files. Those that are missing are made and kept beside the files.

    Of several processes of a run the chief makes them, and the others wait.

    Args:
      paths: of the record files.
      check: raises `InputError` for a file that is not what it should be; before an index is kept.

    Raises:
      InputError: a file or an index cannot be read, is damaged, or they do not fit each other.
    """
    if not runtime.is_chief():
        runtime.barrier()
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        found = dict(zip(paths, pool.map(read_index, paths), strict=True))
        made = make_indexes([path for path in found if found[path] is None])
        found |= made
        list(pool.map(check, found.keys(), found.values()))
    _keep(made)
    if runtime.is_chief():
        runtime.barrier()
    return [found[path] for path in paths]


def read_index(path: str) -> BlockIndex | None:
    """The index beside a record file; None if there is none.

    Raises:
      InputError: it cannot be read, or is of another file.
    """
    source = index_path(path)
    if not is_file(source):
        return None
    found = typed(BlockIndex, read_json(source), source=source)
    with path_errors(path):
        size = tf.io.gfile.stat(path).length
    if not found.fits(size):
        raise InputError(
            f"{source}, which is not the index of {path} with its {size} bytes",
            "the index of this file",
            f"remove {source}: it is made again; or copy both files again",
        )
    return found


def make_indexes(paths: Sequence[str]) -> dict[str, BlockIndex]:
    """Finds the blocks of record files, several files at once.

    Raises:
      InputError: a file cannot be read, is damaged or cut off.
    """
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        total = sum(pool.map(_size_of, paths))
    local = [path for path in paths if not is_remote(path)]
    remote = [path for path in paths if is_remote(path)]
    find = find_in_processes if len(local) > 1 and total > FEW_BYTES else find_in_turn
    size = f"{len(paths)} files, {total / 1e9:.1f} GB"
    label = f"find the records of {size}, which have no index; once, as it is kept"
    with announced(label, when=total > FEW_BYTES):
        found = dict(zip(local, find(local), strict=True))
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            found |= zip(remote, pool.map(_find_remote_blocks, remote), strict=True)
    for path, blocks in found.items():
        if blocks is None:
            _refuse_damaged(path)
    return found


def _size_of(path: str) -> int:
    with path_errors(path):
        return tf.io.gfile.stat(path).length


def find_in_turn(paths: Sequence[str]) -> list[BlockIndex | None]:
    """As `index.find_local_blocks`, of each."""
    return [_find_local_blocks(path) for path in paths]


def _find_local_blocks(path: str) -> BlockIndex | None:
    with path_errors(path):
        return index.find_local_blocks(path)


def find_in_processes(paths: Sequence[str]) -> list[BlockIndex | None]:
    """As `find_in_turn`, by as many processes as there are processors."""
    num_processes = min(os.cpu_count() or 1, len(paths))
    shares = [paths[first::num_processes] for first in range(num_processes)]
    root = os.path.dirname(os.path.dirname(bert_tf.__file__))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}

    def find(share: Sequence[str]) -> subprocess.CompletedProcess:
        given = {"input": json.dumps(share), "env": environment, "text": True}
        command = [sys.executable, "-m", index.__name__]
        return subprocess.run(command, **given, stdout=subprocess.PIPE, check=False)

    found: dict[str, BlockIndex | None] = {}
    with concurrent.futures.ThreadPoolExecutor(num_processes) as pool:
        runs = pool.map(find, shares)
        for share, run in zip(shares, runs, strict=True):
            lines = run.stdout.splitlines()
            for path, line in zip(share, lines, strict=False):
                values = json.loads(line)
                found[path] = values and typed(BlockIndex, values, source=path)
    return [found[path] if path in found else _find_local_blocks(path) for path in paths]


def _find_remote_blocks(path: str) -> BlockIndex | None:
    with path_errors(path), tf.io.gfile.GFile(path, "rb") as file:
        return index.find_blocks_in(file, tf.io.gfile.stat(path).length)


def _refuse_damaged(path: str) -> None:
    """Raises the `InputError` of a file whose records do not lead to its end."""
    for _ in read_records(path):
        pass
    raise InputError(
        f"{path}, which changes while it is read",
        "a complete TFRecord file",
        "wait until it is written, or copy it again",
    )


def _keep(found: dict[str, BlockIndex]) -> None:
    """Writes indexes beside their files, unless nothing can be written there."""

    def write(path: str) -> None:
        write_text(index_path(path), found[path].to_json_string())

    try:
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            list(pool.map(write, found))
    except InputError as error:
        logging.warning(
            "An index cannot be kept beside its file, and is made at each start: %s", error.received
        )
