"""An external shuffle: any number of records in bounded memory.

Every record gets a random 64-bit key; the shuffled order is the order of the keys. Keys are drawn
from the seed of a record's block, so the order is the same for any number of workers, whichever
finishes first.

    spread     appends each record to the bucket of its key, a file on disk
    collect    reads bucket after bucket, sorts it by key, and yields its records
"""

import collections
import os
import pathlib
import struct
from collections.abc import Iterable, Iterator

KEY_BITS = 64
HEADER = struct.Struct("<QI")  # key, length of the record
# About what one bucket holds; the largest part of the memory that the shuffle needs.
BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 4096
# What a process keeps before it writes to the buckets.
BUFFER_BYTES = 16 << 20


def number_of_buckets(expected_bytes: int) -> int:
    """Enough buckets for so many bytes. The order of the records does not depend on it."""
    return min(MAX_BUCKETS, 1 + expected_bytes // BUCKET_BYTES)


def bucket_of(key: int, num_buckets: int) -> int:
    """The bucket of a key; bucket 0 has the smallest keys."""
    return key * num_buckets >> KEY_BITS


def pack(key: int, record: bytes) -> bytes:
    """A keyed record as bytes that can be joined with others."""
    return HEADER.pack(key, len(record)) + record


def unpack(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The keyed records in joined outputs of `pack`."""
    position = 0
    while position < len(data):
        key, length = HEADER.unpack_from(data, position)
        position += HEADER.size
        yield key, data[position : position + length]
        position += length


def spread(
    keyed_records: Iterable[tuple[int, bytes]], folder: pathlib.Path, *, num_buckets: int
) -> None:
    """Adds (key, record) pairs to the buckets in `folder`.

    Each process writes its own files: not every file system lets several processes append to one.
    """
    for bucket, packed in in_buckets(keyed_records, num_buckets):
        bucket_folder = folder / str(bucket)
        bucket_folder.mkdir(parents=True, exist_ok=True)
        with open(bucket_folder / str(os.getpid()), "ab") as file:
            file.write(packed)


def in_buckets(
    keyed_records: Iterable[tuple[int, bytes]], num_buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Keyed records -> (bucket, packed records), a few megabytes at a time."""
    buffers: dict[int, bytearray] = collections.defaultdict(bytearray)
    size = 0
    for key, record in keyed_records:
        buffers[bucket_of(key, num_buckets)] += pack(key, record)
        size += len(record)
        if size >= BUFFER_BYTES:
            yield from zip(buffers, map(bytes, buffers.values()), strict=True)
            buffers.clear()
            size = 0
    yield from zip(buffers, map(bytes, buffers.values()), strict=True)


def collect(folder: pathlib.Path, *, num_buckets: int) -> Iterator[bytes]:
    """All records in the order of their keys; each bucket is deleted once it is read."""
    for bucket in range(num_buckets):
        keyed_records = []
        for path in (folder / str(bucket)).glob("*"):
            keyed_records.extend(unpack(path.read_bytes()))
            path.unlink()
        keyed_records.sort()  # equal keys by record, so that the order of the files has no effect
        yield from (record for _, record in keyed_records)
