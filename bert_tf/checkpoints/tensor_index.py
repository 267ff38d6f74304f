"""The .index file of a TF1 checkpoint: what each tensor is and where, checked before it is read.

TensorFlow's own reader takes the entries as it finds them. A wrong type, shape or size ends the
process, without an error to catch; and as a key may repeat the one before it for a few bytes, a
file of 320 KB takes 4.7 GB. The file is a sorted table of LevelDB's format, of protobufs.
"""

import functools
import importlib
import math
import struct
from collections.abc import Sequence
from typing import Any

from bert_tf.files import gfile

_FOOTER_BYTES = 48  # at its end, of which 8 are a mark
_MOST_DIMENSIONS = 64  # of an array in NumPy
_RESTART_INTERVAL = 16  # LevelDB writes the first of so many keys whole


def read_index(prefix: str) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """The dtype and shape of every tensor of a TF1 checkpoint, by name.

    Raises:
      Exception: of any kind; the file is damaged or cannot be read.
    """
    import tensorflow as tf  # not at the top: takes seconds

    with gfile().GFile(f"{prefix}.index", "rb") as file:
        content = file.read()
    bundle = importlib.import_module("tensorflow.core.protobuf.tensor_bundle_pb2")
    entries = dict(_read_table(content))
    header = bundle.BundleHeaderProto.FromString(entries.pop(b""))
    names = (f"{prefix}.data-{n:05}-of-{header.num_shards:05}" for n in range(header.num_shards))
    lengths = [gfile().stat(name).length for name in names]
    found = {}
    for key, value in entries.items():
        entry = bundle.BundleEntryProto.FromString(value)
        dtype = tf.dtypes.as_dtype(entry.dtype)
        _check_entry(entry, dtype, lengths)
        if not key.startswith(b"\0"):  # a part of a tensor that has several
            found[key.decode()] = dtype, tuple(dim.size for dim in entry.shape.dim)
    return found


def _check_entry(entry: Any, dtype: Any, lengths: Sequence[int]) -> None:
    """Checks the type, shape and place of a tensor against the lengths of the files."""
    shape = [dim.size for dim in entry.shape.dim]
    elements, least = math.prod(shape), max(dtype.size, 1)  # a text has a byte for its length
    extents = [n for part in entry.slices for one in part.extent for n in (one.start, one.length)]
    if (
        not dtype.is_numpy_compatible
        or entry.dtype != dtype.base_dtype.as_datatype_enum  # a reference
        or entry.shape.unknown_rank
        or len(shape) > _MOST_DIMENSIONS
        or not 0 <= entry.shard_id < len(lengths)
        or min(entry.offset, entry.size, *shape, *extents) < 0
        or entry.offset + entry.size > lengths[entry.shard_id]
        or elements * least > (sum(lengths) if entry.slices else entry.size)
    ):
        raise ValueError(f"an entry of {dtype.name} {shape} with {entry.size} bytes")


def _read_table(content: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a table: blocks, one that lists them, its place at the end."""
    places = _varints(content, len(content) - _FOOTER_BYTES, 4)  # of two blocks, and the end
    handles = [_varints(handle, 0, 2)[:2] for _, handle in _read_block(content, *places[2:4])]
    if sum(size for _, size in handles) > len(content):
        raise ValueError("blocks that overlap")
    return [pair for handle in handles for pair in _read_block(content, *handle)]


def _read_block(content: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """A block: entries, whose keys leave out what they share with the key before; restarts."""
    block, is_compressed = content[offset : offset + size], content[offset + size]
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 - 4 * num_restarts
    restarts = set(struct.unpack(f"<{num_restarts}I", block[end:-4])) - {0}
    at, key, found, key_bytes = 0, b"", [], 0
    while at < end and key_bytes <= _RESTART_INTERVAL * len(block):
        start = at
        shared, rest, length, at = _varints(block, at, 3)
        key = key[:shared] + block[at : at + rest]
        key_bytes += len(key)
        found.append((key, block[at + rest : at + rest + length]))
        at += rest + length
        if not shared:
            restarts.discard(start)
    if is_compressed or at != end or restarts:  # TensorFlow has never compressed one
        raise ValueError("a block that is damaged or compressed")
    return found


def _varints(content: bytes, at: int, count: int) -> tuple[int, ...]:
    """That many numbers of 7 bits a byte from a place on, and the place behind them."""
    numbers = []
    for _ in range(count):
        size = next(n for n in range(1, 11) if content[at + n - 1] < 128)
        sevens = (byte & 127 for byte in reversed(content[at : at + size]))
        numbers.append(functools.reduce(lambda high, low: high << 7 | low, sevens))
        at += size
    return (*numbers, at)
