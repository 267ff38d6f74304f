"""The blocks of a TFRecord file: consecutive records, about a megabyte, which are read in one go.

    index_<file>.json, beside the records    {"num_bytes": 2516582,
                                              "block_bytes": [1049012, 1048811, 418759],
                                              "block_records": [1163, 1160, 463]}

A block ends with the record with which it reaches `BLOCK_BYTES`. So the blocks of a file are the
same whether they are noted while the records are written, or found later.
"""

import dataclasses
import itertools
import json
import os
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

from bert_tf.config import declared
from bert_tf.files import READ_BYTES

BLOCK_BYTES = 1 << 20
# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
LENGTH_BYTES, HEADER_BYTES, FOOTER_BYTES = 8, 12, 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
LONGEST_RECORD = 2**31 - 1  # of protocol buffers
LENGTH = struct.Struct("<Q")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockIndex:
    """The blocks of one file, in its order."""

    num_bytes: int = declared(low=0)  # of the file
    block_bytes: tuple[int, ...] = declared(low=1)  # of each block, with the records' frames
    block_records: tuple[int, ...] = declared(low=1)  # how many each block has

    @property
    def num_records(self) -> int:
        """Of the file."""
        return sum(self.block_records)

    @property
    def offsets(self) -> list[int]:
        """Where each block begins, and at last where the file ends."""
        return list(itertools.accumulate(self.block_bytes, initial=0))

    def fits(self, num_bytes: int) -> bool:
        """Whether a file of so many bytes can have these blocks."""
        blocks = itertools.zip_longest(self.block_bytes, self.block_records, fillvalue=0)
        return self.num_bytes == num_bytes == sum(self.block_bytes) and all(
            0 < number * FRAME_BYTES <= size for size, number in blocks
        )

    def to_json_string(self) -> str:
        """The text of the JSON file."""
        return json.dumps(dataclasses.asdict(self)) + "\n"


class IndexBuilder:
    """Notes blocks while records come one after the other."""

    def __init__(self):
        self._ends: list[tuple[int, int]] = [(0, 0)]  # bytes and records, at the end of each block
        self._bytes = self._records = 0

    def add(self, record_bytes: int) -> None:
        """One more record, of so many bytes without its frame."""
        self._bytes += record_bytes + FRAME_BYTES
        self._records += 1
        if self._bytes - self._ends[-1][0] >= BLOCK_BYTES:
            self._ends.append((self._bytes, self._records))

    def finish(self) -> BlockIndex:
        """The index of all records so far."""
        last = (self._bytes, self._records)
        ends = self._ends if self._ends[-1] == last else [*self._ends, last]
        blocks = [(b - a, n - m) for (a, m), (b, n) in itertools.pairwise(ends)]
        return BlockIndex(
            num_bytes=self._bytes,
            block_bytes=tuple(size for size, _ in blocks),
            block_records=tuple(number for _, number in blocks),
        )


def index_path(path: str) -> str:
    """Where the index of a record file is: a name that no pattern for the records matches.

    >>> index_path("data/train.tfrecord")
    'data/index_train.tfrecord.json'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f"index_{name}.json")


# ---------------------------------------------------------------------------- finding blocks


def find_blocks(num_bytes: int, read: Callable[[int], memoryview]) -> BlockIndex | None:
    """The blocks of a file that has no index, from the lengths that its records begin with.

    Args:
      num_bytes: of the file.
      read: gives some bytes from a place on, at least eight if the file has so many.

    Returns:
      The index; None if the lengths do not lead to the end of the file, which is damaged then.
    """
    blocks, position, begin, records = [], 0, 0, 0
    data, first, last = memoryview(b""), 0, -LENGTH_BYTES
    while position < num_bytes:
        if position > last:  # its length is not in `data`
            data, first = read(position), position
            last = first + len(data) - LENGTH_BYTES
            if position > last:
                return None
        position += LENGTH.unpack_from(data, position - first)[0] + FRAME_BYTES
        records += 1
        if position - begin >= BLOCK_BYTES:
            blocks.append((position - begin, records))
            begin, records = position, 0
    if records:
        blocks.append((position - begin, records))
    if position > num_bytes or any(size > BLOCK_BYTES + LONGEST_RECORD for size, _ in blocks):
        return None
    sizes, numbers = zip(*blocks, strict=True) if blocks else ((), ())
    return BlockIndex(num_bytes=num_bytes, block_bytes=sizes, block_records=numbers)


def find_blocks_in(file: BinaryIO, num_bytes: int) -> BlockIndex | None:
    """`find_blocks` of an open file."""

    def read(position: int) -> memoryview:
        file.seek(position)
        return memoryview(file.read(READ_BYTES))

    return find_blocks(num_bytes, read)


def find_local_blocks(path: str) -> BlockIndex | None:
    """`find_blocks` of a local file."""
    # Not mapped into memory: where the file cannot be read, that would end the process.
    with open(path, "rb") as file:
        return find_blocks_in(file, os.fstat(file.fileno()).st_size)


def main() -> None:
    """As a process of its own: finds the blocks of the files that it reads, a line for each."""
    for path in json.load(sys.stdin):
        index = find_local_blocks(path)
        print(json.dumps(index and dataclasses.asdict(index)), flush=True)


if __name__ == "__main__":
    main()
