"""Writes the .index file of a TF1 checkpoint with right checksums.

It is a sorted table in LevelDB's format: blocks of keys and values, and a footer with the places of
the last two blocks. The key "" has the header, the name of each tensor its entry, both protobufs.
"""

import struct

from frames import checksum

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER_BYTES = 48


def table(values: dict[bytes, bytes], *, repeated: int = 1, expands: int = 0) -> bytes:
    """A table of one block, which may be listed several times.

    Args:
      values: the values by key, in the order of the keys.
      repeated: how often the block is listed.
      expands: how many copies of the last entry follow, each with a longer key. Each takes only a
        few bytes in the file, because it shares the beginning of the key before it.
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


def _block(values: dict[bytes, bytes], expands: int = 0) -> bytes:
    """A block without shared prefixes, its type (not compressed) and checksum."""
    content = bytearray()
    restarts = []
    for key, value in values.items():
        restarts.append(len(content))
        content += _varint(0) + _varint(len(key)) + _varint(len(value)) + key + value
    for longer in range(expands):
        content += _varint(len(key) + longer) + _varint(1) + _varint(len(value)) + b"x" + value
    restarts = restarts or [0]
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + b"\0"
    return bytes(content) + checksum(content)


def _handle(offset: int, size: int) -> bytes:
    """The place of a block."""
    return _varint(offset) + _varint(size)


def _varint(number: int) -> bytes:
    """A number in 7 bits a byte, the lowest first; all bytes but the last have the high bit."""
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])
