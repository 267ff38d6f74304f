"""The .index file of a TF1 checkpoint, taken apart and put together again with right checksums.

It is a sorted table of LevelDB's format: blocks of keys and values, and a footer that says where
the last of them begins. The key "" has the header, every tensor's name its entry, both protobufs.
"""

import importlib
import random
import struct
from typing import Any

from damage import NUMBERS, damage_bytes
from frames import checksum

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER_BYTES = 48
_FIELDS = ("dtype", "shape", "shape", "shard_id", "offset", "size", "crc32c", "slices")
_INT32S = (0, 1, 2, 3, 4, 7, 9, 10, 20, 21, 23, 101, 9999, 2**31 - 1, -1)


def read_table(content: bytes) -> dict[bytes, bytes]:
    """Values by key, of a table that is whole and not compressed."""
    footer = content[-FOOTER_BYTES:]
    _, _, at = _varints(footer, 0, 2)
    offset, size, _ = _varints(footer, at, 2)
    found = {}
    for handle in _entries(content[offset : offset + size]).values():
        offset, size, _ = _varints(handle, 0, 2)
        found |= _entries(content[offset : offset + size])
    return found


def table(values: dict[bytes, bytes], *, repeated: int = 1, expands: int = 0) -> bytes:
    """A table of one block, which may be listed several times.

    Args:
      values: by key.
      repeated: how often the block is listed.
      expands: how many entries follow that are the last one under a longer key, by four bytes each.
    """
    content = _block(values, expands)
    handles = [(0, len(content) - 5)]
    keys = (max(values, default=b"") + b"\0" + struct.pack(">I", n) for n in range(repeated))
    for entries in ({}, dict.fromkeys(keys, _handle(*handles[0]))):
        begin = len(content)
        content += _block(entries)
        handles.append((begin, len(content) - begin - 5))
    footer = _handle(*handles[1]) + _handle(*handles[2])
    return content + footer.ljust(FOOTER_BYTES - len(MAGIC), b"\0") + MAGIC


def damage_index(rng: random.Random, content: bytes) -> bytes:
    """Entries with other types, shapes and places, gone, or under other names; or bytes."""
    if rng.random() < 0.2:
        return damage_bytes(rng, content)
    values = read_table(content)
    for key in rng.sample(sorted(values), rng.choice((1, 1, 2))):
        kind = rng.random()
        if kind < 0.08:
            del values[key]
        elif kind < 0.16:
            values[rng.choice((b"", b"\0", b"\xff\xfe", key + b"x", b"global_step"))] = values[key]
        elif kind < 0.3:
            values[key] = damage_bytes(rng, values[key])
        elif key:
            values[key] = _damaged_entry(rng, values[key])
        else:
            values[key] = _damaged_header(rng, values[key])
    return table(dict(sorted(values.items())))


def _protobuf(name: str) -> Any:
    """A class of TensorFlow's, which takes seconds to load."""
    return getattr(importlib.import_module("tensorflow.core.protobuf.tensor_bundle_pb2"), name)


def _damaged_entry(rng: random.Random, value: bytes) -> bytes:
    entry = _protobuf("BundleEntryProto").FromString(value)
    field = rng.choice(_FIELDS)
    if field == "shape" and entry.shape.dim and rng.random() < 0.7:
        rng.choice(entry.shape.dim).size = _int64(rng)
    elif field == "shape":
        rng.choice((entry.shape.dim.add, entry.shape.Clear))()
        entry.shape.unknown_rank = rng.random() < 0.3
    elif field == "slices":
        entry.slices.add().extent.add(start=_int64(rng), length=_int64(rng))
    elif field == "crc32c":
        entry.crc32c ^= 1
    elif field in ("dtype", "shard_id"):
        setattr(entry, field, rng.choice(_INT32S))
    else:
        setattr(entry, field, _int64(rng))
    return entry.SerializeToString()


def _damaged_header(rng: random.Random, value: bytes) -> bytes:
    header = _protobuf("BundleHeaderProto").FromString(value)
    field = rng.choice(("num_shards", "endianness", "version"))
    if field == "num_shards":
        header.num_shards = rng.choice((0, 2, 99, 10**6, 2**31 - 1, -1))
    elif field == "endianness":
        header.endianness = 1
    else:
        header.version.producer = rng.choice((0, 99, 2**31 - 1, -1))
        header.version.min_consumer = rng.choice((0, 99))
    return header.SerializeToString()


def _int64(rng: random.Random) -> int:
    return rng.choice([n for n in NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63])


def _entries(block: bytes) -> dict[bytes, bytes]:
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end, at, key, found = len(block) - 4 - 4 * num_restarts, 0, b"", {}
    while at < end:
        shared, rest, size, at = _varints(block, at, 3)
        key = key[:shared] + block[at : at + rest]
        found[key] = block[at + rest : at + rest + size]
        at += rest + size
    return found


def _block(values: dict[bytes, bytes], expands: int = 0) -> bytes:
    """A block without shared prefixes, its type (not compressed) and checksum."""
    content, restarts = bytearray(), []
    for key, value in values.items():
        restarts.append(len(content))
        content += _varint(0) + _varint(len(key)) + _varint(len(value)) + key + value
    for longer in range(expands):
        content += _varint(len(key) + longer) + _varint(1) + _varint(len(value)) + b"x" + value
    restarts = restarts or [0]
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + b"\0"
    return bytes(content) + checksum(content)


def _handle(offset: int, size: int) -> bytes:
    return _varint(offset) + _varint(size)


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _varints(content: bytes, at: int, count: int) -> tuple[int, ...]:
    """That many numbers from a place on, and the place behind them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while True:
            byte = content[at]
            number |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        numbers.append(number)
    return (*numbers, at)
