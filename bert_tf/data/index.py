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
from typing import BinaryIO

from bert_tf.config import declared
from bert_tf.files import READ_BYTES

BLOCK_BYTES = 1 << 20
# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
LENGTH_BYTES, FRAME_BYTES = 8, 16
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
        self._blocks: list[tuple[int, int]] = []  # bytes and records of those that are complete
        self._bytes = self._records = 0  # of the last one

    def add(self, record_bytes: int) -> None:
        """One more record, of so many bytes without its frame."""
        self._bytes += record_bytes + FRAME_BYTES
        self._records += 1
        if self._bytes >= BLOCK_BYTES:
            self._blocks.append((self._bytes, self._records))
            self._bytes = self._records = 0

    def finish(self) -> BlockIndex:
        """The index of all records so far."""
        blocks = self._blocks + ([(self._bytes, self._records)] if self._records else [])
        return BlockIndex(
            num_bytes=sum(size for size, _ in blocks),
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


def find_blocks(file: BinaryIO, num_bytes: int) -> BlockIndex | None:
    """The blocks of an open file of so many bytes, found by the lengths of its records.

    Returns:
      The index; None if the lengths do not lead to the end of the file, which is damaged then.
    """
    builder, position = IndexBuilder(), 0
    data, first, last = b"", 0, -LENGTH_BYTES
    while position < num_bytes:
        if position > last:  # its length is not in `data`
            file.seek(position)
            data, first = file.read(READ_BYTES), position
            last = first + len(data) - LENGTH_BYTES
            if position > last:
                return None
        (length,) = LENGTH.unpack_from(data, position - first)
        if length > LONGEST_RECORD:
            return None
        builder.add(length)
        position += length + FRAME_BYTES
    return builder.finish() if position == num_bytes else None
