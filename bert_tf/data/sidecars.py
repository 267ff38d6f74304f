"""Record files by name, and the two JSON files beside each: its index and its description.

    index_<file>.json                        {"num_bytes": 2516582,
                                              "block_bytes": [1049012, 1048811, 418759],
                                              "block_records": [1163, 1160, 463]}
    info_<file>.json                         the fields of `DataDescription`

A block is consecutive records, about a megabyte, which are read in one go. It ends with the record
with which it reaches `BLOCK_BYTES`, so the blocks of a file are the same whether they are noted
while the records are written, or found later.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Sequence
from typing import BinaryIO

from bert_tf.config import declared, size
from bert_tf.errors import InputError
from bert_tf.files import READ_BYTES, gfile, is_file, is_remote

BLOCK_BYTES = 1 << 20
# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
LENGTH_BYTES, FRAME_BYTES = 8, 16
LONGEST_RECORD = 2**31 - 1  # of protocol buffers


def expand_patterns(patterns: str | Sequence[str]) -> list[str]:
    """Paths and globs, comma-separated or a list -> the files.

    Raises:
      InputError: one matches nothing, or a file is given twice.
    """
    if isinstance(patterns, str):  # a name may have a comma in it, or a bracket
        patterns = [patterns] if is_file(patterns) else patterns.split(",")
    found: dict[str, str] = {}
    for pattern in patterns:
        if is_file(pattern):
            matches = [pattern]
        else:
            matches = sorted(gfile().glob(pattern)) if pattern else []
        if not matches:
            raise InputError(
                f"{pattern!r}, which matches no file",
                "paths or globs of existing files, separated by commas",
                "check the path, and that the file has been made",
            )
        for path in matches:
            file = path if is_remote(path) else os.path.realpath(path)
            if file in found:
                same = f": {found[file]} is the same file" if found[file] != path else ""
                raise InputError(
                    f"{path}, given twice{same}", "each file once", "leave out one of the two"
                )
            found[file] = path
    return list(found.values())


# ---------------------------------------------------------------------------- index


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
        sizes, counts = tuple(size for size, _ in blocks), tuple(count for _, count in blocks)
        return BlockIndex(num_bytes=sum(sizes), block_bytes=sizes, block_records=counts)


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
        begin = position - first
        length = int.from_bytes(data[begin : begin + LENGTH_BYTES], "little")
        if length > LONGEST_RECORD:
            return None
        builder.add(length)
        position += length + FRAME_BYTES
    return builder.finish() if position == num_bytes else None


# ---------------------------------------------------------------------------- description


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataDescription:
    """What a file of pre-training records was made with."""

    bert_tf_version: str
    do_lower_case: bool
    vocab_file: str  # its name, without its folder
    vocab_sha256: str  # see tokenization.wordpiece.vocabulary_sha256
    vocab_size: int = size()
    max_seq_length: int = size()
    max_predictions_per_seq: int = size()
    masked_lm_prob: float = declared(low=0, high=1)
    short_seq_prob: float = declared(low=0, high=1)
    do_whole_word_mask: bool
    words_from_spaces: bool = False
    one_draw_per_word: bool = False
    dupe_factor: int = size()
    random_seed: int
    shard: int = size()  # which of the files, from 1
    num_shards: int = size()
    num_records: int = declared(low=0)
    num_bytes: int = declared(low=0)
    never_split: tuple[str, ...] = declared((), distinct=True)  # pieces that were kept whole
    text_digest: str = ""  # with --num_shards, of the text and how it was read

    def to_json_string(self) -> str:
        """The text of the JSON file."""
        values = dataclasses.asdict(self)
        if not self.never_split:
            del values["never_split"]
        return json.dumps(values, indent=2, sort_keys=True) + "\n"


def description_path(path: str) -> str:
    """Where the description of a record file is: a name that no pattern for the records matches.

    >>> description_path("data/train.tfrecord")
    'data/info_train.tfrecord.json'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f"info_{name}.json")
