"""A shuffle of any number of records with bounded memory, the same whoever does the work.

Every record gets a random 64-bit key, and the shuffled order is the order of the keys. The keys
come from the block that made the record, so neither the number of workers nor the order in which
they finish changes anything.

    spread     a record goes to the bucket that its key falls into, a file on disk
    collect    bucket after bucket is read, sorted by key, and handed out
"""

import collections
import os
import pathlib
import struct
from collections.abc import Iterable, Iterator

KEY_BITS = 64
HEADER = struct.Struct("<QI")  # key, length of the record
# What one bucket may hold, about; the largest part of the memory that the shuffle needs.
BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 4096
# What a process keeps before it writes to the buckets.
BUFFER_BYTES = 16 << 20


def number_of_buckets(expected_bytes: int) -> int:
    """Enough buckets for that many bytes. The order of the records does not depend on it."""
    return min(MAX_BUCKETS, 1 + expected_bytes // BUCKET_BYTES)


def bucket_of(key: int, num_buckets: int) -> int:
    """The bucket that a key falls into; bucket 0 has the least keys."""
    return key * num_buckets >> KEY_BITS


def pack(key: int, record: bytes) -> bytes:
    """A keyed record as it lies in a bucket, among others."""
    return HEADER.pack(key, len(record)) + record


def unpack(data: bytes) -> Iterator[tuple[int, bytes]]:
    """All keyed records of what `pack` made, joined."""
    position = 0
    while position < len(data):
        key, length = HEADER.unpack_from(data, position)
        position += HEADER.size
        yield key, data[position : position + length]
        position += length


def spread(
    keyed_records: Iterable[tuple[int, bytes]], folder: pathlib.Path, *, num_buckets: int
) -> None:
    """Adds records to the buckets.

    Each process writes files of its own: appending to one file from several processes is safe on
    some file systems only.

    Args:
      keyed_records: (key, record), the key from 0 to 2**64 - 1.
      folder: of the buckets.
      num_buckets: how many buckets there are.
    """
    for bucket, packed in in_buckets(keyed_records, num_buckets):
        bucket_folder = folder / str(bucket)
        bucket_folder.mkdir(parents=True, exist_ok=True)
        with open(bucket_folder / str(os.getpid()), "ab") as file:
            file.write(packed)


def in_buckets(
    keyed_records: Iterable[tuple[int, bytes]], num_buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Keyed records -> (bucket, some of them packed), a few megabytes at a time."""
    buffers: dict[int, bytearray] = collections.defaultdict(bytearray)
    size = 0
    for key, record in keyed_records:
        buffers[bucket_of(key, num_buckets)] += pack(key, record)
        size += len(record)
        if size >= BUFFER_BYTES:
            yield from ((bucket, bytes(buffer)) for bucket, buffer in buffers.items())
            buffers.clear()
            size = 0
    yield from ((bucket, bytes(buffer)) for bucket, buffer in buffers.items())


def collect(folder: pathlib.Path, *, num_buckets: int) -> Iterator[bytes]:
    """All records of the buckets in the order of their keys; each bucket is deleted when read."""
    for bucket in range(num_buckets):
        keyed_records = []
        for path in (folder / str(bucket)).glob("*"):
            keyed_records.extend(unpack(path.read_bytes()))
            path.unlink()
        # By key; the record decides between equal keys, so that the order of the files does not.
        keyed_records.sort()
        for _, record in keyed_records:
            yield record
