"""The frames of TFRecord files: lengths and checksums around records."""

import struct


def _table() -> list[int]:
    """CRC-32C of every byte."""
    crcs = list(range(256))
    for _ in range(8):
        crcs = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in crcs]
    return crcs


_CRCS = _table()


def checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRCS[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes, *, length: int | None = None) -> bytes:
    """A record as TFRecord files have it, or one that claims another length."""
    length = struct.pack("<Q", len(data) if length is None else length)
    return length + checksum(length) + data + checksum(data)


def unframed(content: bytes) -> list[bytes]:
    """The records of a valid file."""
    records = []
    start = 0
    while start < len(content):
        (size,) = struct.unpack_from("<Q", content, start)
        records.append(content[start + 12 : start + 12 + size])  # behind length and checksum
        start += size + 16
    return records
