"""Checks the .index file of a TF1 or TF2 checkpoint before TensorFlow opens it.

TensorFlow's reader trusts the entries: a wrong type, shape or size ends the process without an
error to catch, or takes gigabytes. The file is a sorted table in LevelDB's format:

    data blocks    keys and values; a key leaves out the beginning that it shares with the last key
    index block    the places of the data blocks
    footer         the place of the index block, and a mark

Values are protocol buffers: a header under the empty key, and for each tensor its type, shape and
place in a data file. A key that begins with a 0 byte is a part of a tensor that is stored in parts.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.errors import InputError, first_line, printable, shortened

FOOTER_BYTES = 48
TRAILER_BYTES = 5  # after a block: a byte for its compression, and a checksum
MOST_SHARDS = 10_000
MOST_DIMENSIONS = 64  # of an array in NumPy
RESTART_INTERVAL = 16  # at least every 16th key of a block is whole
MOST_SHOWN = 80  # characters of a name
Entry = tensor_bundle_pb2.BundleEntryProto


class Handle(NamedTuple):
    """The place of a block."""

    offset: int
    size: int


def check_index(prefix: str) -> None:
    """Compares every entry of a checkpoint's index with the data files.

    Args:
      prefix: the prefix of the checkpoint, without .index.

    Raises:
      InputError: the index is damaged, or an entry is not what TensorFlow writes.
      OSError, tf.errors.OpError: a file cannot be read.
    """
    path = f"{prefix}.index"
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    entries = {}
    try:
        entries = dict(read_table(content))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries.pop(b""))
        if not 0 < header.num_shards <= MOST_SHARDS:
            raise ValueError(f"{header.num_shards} data files")
    except Exception as error:  # of any kind, as the bytes may be anything
        raise _refused(f"{path}, which cannot be read ({first_line(error)})") from None
    shards = [f"{prefix}.data-{n:05}-of-{header.num_shards:05}" for n in range(header.num_shards)]
    sizes = [tf.io.gfile.stat(shard).length for shard in shards]
    for key, value in entries.items():
        try:
            flaw = flaw_of(Entry.FromString(value), sizes)
        except Exception as error:
            flaw = first_line(error)
        if flaw:
            name = shortened(printable(key.decode("utf-8", "backslashreplace")), MOST_SHOWN)
            raise _refused(f"{path}, whose entry {name} has {flaw}")


def _refused(received: str) -> InputError:
    """The error for a damaged index."""
    expected = "types, shapes and places of tensors that are in its .data files"
    return InputError(received, expected, "copy the checkpoint again, or give another one")


def flaw_of(entry: Entry, sizes: Sequence[int]) -> str:
    """The flaw of an entry, for a message; "" if it has none.

    Args:
      entry: the entry of the index.
      sizes: the sizes of the data files, in bytes.
    """
    shape = [dimension.size for dimension in entry.shape.dim]
    try:
        dtype = tf.dtypes.as_dtype(entry.dtype)
    except TypeError:
        return f"the unknown type {entry.dtype}"
    if not dtype.is_numpy_compatible or dtype.base_dtype != dtype:
        return f"the type {dtype.name}"
    if entry.shape.unknown_rank or len(shape) > MOST_DIMENSIONS or min(shape, default=1) < 1:
        return f"the shape {shortened(str(shape), MOST_SHOWN)}, which no tensor of a model has"
    if not 0 <= entry.shard_id < len(sizes):
        return f"the data file {entry.shard_id} of {len(sizes)}"
    if min(entry.offset, entry.size) < 0 or entry.offset + entry.size > sizes[entry.shard_id]:
        return f"{entry.size} bytes at {entry.offset} of a file of {sizes[entry.shard_id]}"
    for part in entry.slices:
        if any(min(extent.start, extent.length) < 0 for extent in part.extent):
            return "a part before its tensor"
    least = math.prod(shape) * max(dtype.size, 1)  # a text has at least a byte, for its length
    room = sum(sizes) if entry.slices else entry.size
    if least > room or (dtype.size and not entry.slices and least != room):
        return f"the shape {shape} of {dtype.name} and {room} bytes"
    return ""


# ---------------------------------------------------------------------------- LevelDB's tables


def read_table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table.

    Raises:
      Exception: of any kind; it is damaged.
    """
    footer = Reader(content, len(content) - FOOTER_BYTES)
    footer.handle()  # of a block that TensorFlow does not write
    handles = [Reader(value).handle() for _, value in read_block(content, footer.handle())]
    if sum(handle.size for handle in handles) > len(content):
        raise ValueError("blocks that overlap")
    for handle in handles:
        yield from read_block(content, handle)


def read_block(content: bytes, handle: Handle) -> list[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    end = handle.offset + handle.size
    if end + TRAILER_BYTES > len(content):
        raise ValueError("a block behind the end of the file")
    if content[end]:
        raise ValueError("a compressed block")
    block = content[handle.offset : end]
    (num_restarts,) = struct.unpack("<I", block[-4:])
    reader = Reader(block)
    last = len(block) - 4 - 4 * num_restarts  # the entries end here; places of whole keys follow
    pairs = []
    key = b""
    key_bytes = 0
    while reader.place < last:
        shared = reader.varint()
        rest = reader.varint()
        length = reader.varint()
        key = key[:shared] + reader.bytes(rest)
        key_bytes += len(key)
        if key_bytes > RESTART_INTERVAL * len(block):  # a small file could claim any amount
            raise ValueError("keys that repeat each other")
        pairs.append((key, reader.bytes(length)))
    if reader.place != last:
        raise ValueError("a block without its end")
    return pairs


class Reader:
    """Reads numbers and bytes, one after the other.

    Attributes:
      place: where the next one begins.
    """

    def __init__(self, content: bytes, place: int = 0):
        self._content = content
        self.place = place

    def varint(self) -> int:
        """A number of 7 bits a byte, the lowest first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._content[self.place]
            self.place += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of more than 10 bytes")

    def bytes(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self.place + size
        if end > len(self._content):
            raise ValueError("an entry behind the end of its block")
        part = self._content[self.place : end]
        self.place = end
        return part

    def handle(self) -> Handle:
        """The place of a block."""
        offset = self.varint()
        return Handle(offset, self.varint())
