"""The .index file of a TF1 checkpoint, taken apart and put together again with right checksums.

It is a sorted table of LevelDB's format: blocks of keys and values, and a footer that says where
the last of them begins. The key "" has the header, every tensor's name its entry, both protobufs.
"""

import struct

from frames import checksum

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER_BYTES = 48


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
