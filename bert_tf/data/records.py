"""Records, each kind declared once: its features, writer and parser. And the files they lie in.

Beside each file of records are two JSON files, its index and its description:

    index_<file>.json                        {"num_bytes": 2516582,
                                              "block_bytes": [1049012, 1048811, 418759],
                                              "block_records": [1163, 1160, 463]}
    info_<file>.json                         the fields of `DataDescription`

A block is consecutive records, about a megabyte, which are read in one go. It ends with the record
with which it reaches `BLOCK_BYTES`, so the blocks of a file are the same whether they are noted
while the records are written, or found later.
"""

import bisect
import dataclasses
import fnmatch
import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data import packed_sizes
from bert_tf.declarations import check_fields, declared, size
from bert_tf.errors import InputError
from bert_tf.files import gfile, is_file, is_remote, own_path, paths_in

GREATEST_FLOAT = float(np.finfo(np.float32).max)
# The input_mask of packed rows, as it is stored: what reads masks of 0 and 1 alone finds none.
PACKED = "sequence_numbers"
BLOCK_BYTES = 1 << 20
# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
FRAME_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `size` numbers of type int64 or float32, from `least` to `most`."""

    name: str
    dtype: tf.DType
    size: int
    size_flag: str | None = None  # the flag that sets the size
    sequences: int = 1  # how many sequences lie in it, one after the other
    least: float = 0
    most: float = 2**31 - 1  # batches have int32
    model_size: str = ""  # the key of bert_config.json that sets `most`
    name_in_batch: str = ""  # if it has another one there

    @property
    def key(self) -> str:
        """Its name in a batch."""
        return self.name_in_batch or self.name

    @property
    def is_of_tokens(self) -> bool:
        """Whether it has a number for each token."""
        return self.size_flag == "max_seq_length"

    @property
    def batch_dtype(self) -> np.dtype:
        """Its type in a batch: int64 becomes int32, as in the original."""
        return np.dtype(np.int32 if self.dtype == tf.int64 else np.float32)


@dataclasses.dataclass(frozen=True)
class Record:
    """The declaration of one kind of record."""

    name: str
    features: tuple[Feature, ...]

    def serialize(self, values: Mapping[str, Sequence]) -> bytes:
        """A `tf.train.Example` with just the declared features; the same values, the same bytes.

        Args:
          values: for each declared feature its `size` numbers.

        Raises:
          ValueError: a feature is missing, unknown, or has another length.
        """
        self.check_sizes({name: len(value) for name, value in values.items()})
        example = tf.train.Example()
        for feature in self.features:
            slot = example.features.feature[feature.name]
            numbers = slot.int64_list if feature.dtype == tf.int64 else slot.float_list
            numbers.value.extend(values[feature.name])
        return example.SerializeToString(deterministic=True)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raises `ValueError` unless these are all features, with their sizes."""
        declared = {feature.name: feature.size for feature in self.features}
        if sizes != declared:
            raise ValueError(f"received features {sizes}, expected {declared}")

    def parse(self, serialized: Sequence[bytes]) -> dict[str, tf.Tensor]:
        """Serialized records [B] -> features [B, size], as they are stored and unchecked."""
        return tf.io.parse_example(
            serialized, {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in self.features}
        )


def input_features(
    max_seq_length: int,
    *,
    vocab_size: int | None = None,
    type_vocab_size: int | None = None,
    sequences: int = 1,
) -> tuple[Feature, ...]:
    """input_ids, input_mask and segment_ids int64 [C * S], which all records have.

    Args:
      max_seq_length: S.
      vocab_size: V of the model that reads them; None where they are only written.
      type_vocab_size: of that model.
      sequences: C.
    """

    def feature(name: str, below: int | None, model_size: str = "") -> Feature:
        bounds = {"most": below - 1, "model_size": model_size} if below else {}
        length = sequences * max_seq_length
        return Feature(name, tf.int64, length, "max_seq_length", sequences, **bounds)

    return (
        feature("input_ids", vocab_size, "vocab_size"),
        feature("input_mask", 2),
        feature("segment_ids", type_vocab_size, "type_vocab_size"),
    )


def pretraining_record(
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    next_sentence: bool = True,
    packed_with: float | None = None,
    **model_sizes: int,
) -> Record:
    """The record of masked-LM and next-sentence pre-training (original: `input_fn_builder`).

    Features: input_ids, input_mask, segment_ids int64 [S]; masked_lm_positions, masked_lm_ids
    int64 [P]; masked_lm_weights float32 [P]; unless `next_sentence` is false,
    next_sentence_labels int64 [1], 1 = random. `model_sizes`: as for `input_features`.

    With `packed_with`, the masked_lm_prob of packed data, a record is a row of up to K sequences,
    one after the other: input_mask is 1 for the tokens of the first sequence, 2 for those of the
    second, 0 for padding, and stored as sequence_numbers; next_sentence_labels int64 [K]; P
    predictions of all sequences, at positions of the row (`packed_sizes`).

    A weight may stand at a position that is padding: a model can be trained with it, and it need
    not be damage.
    """
    inputs = input_features(max_seq_length, **model_sizes)
    num_sequences, num_predictions = 1, max_predictions_per_seq
    size_flag: str | None = "max_predictions_per_seq"
    if packed_with is not None:
        size_flag = None
        num_sequences, num_predictions = packed_sizes(
            max_seq_length, max_predictions_per_seq, packed_with
        )
        ids, mask, segments = inputs
        more = {"name": PACKED, "name_in_batch": mask.name, "most": num_sequences}
        inputs = ids, dataclasses.replace(mask, **more), segments

    def prediction(name: str, dtype: tf.DType, **options: Any) -> Feature:
        return Feature(name, dtype, num_predictions, size_flag, **options)

    ids = inputs[0]
    predictions = (
        prediction("masked_lm_positions", tf.int64, most=max_seq_length - 1),
        prediction("masked_lm_ids", tf.int64, most=ids.most, model_size=ids.model_size),
        prediction("masked_lm_weights", tf.float32, most=GREATEST_FLOAT),
    )
    label = Feature("next_sentence_labels", tf.int64, num_sequences, most=1)
    labels = (label,) if next_sentence else ()
    return Record("pre-training", (*inputs, *predictions, *labels))


def fill_rows(
    lengths: np.ndarray,
    most_tokens: int,
    predictions: np.ndarray | None = None,
    most_sequences: float = math.inf,
    most_predictions: int = 0,
) -> list[list[int]]:
    """Which sequences share a row: the longest first, each into the fullest row that it fits.

    Krell et al. (2021), "Efficient Sequence Packing without Cross-contamination": longest-pack-
    first.

    >>> fill_rows(np.array([5, 3, 3, 2, 1]), 6)
    [[0, 4], [1, 2], [3]]

    Args:
      lengths: tokens of each sequence, [B].
      most_tokens: of a row.
      predictions: of each sequence, [B].
      most_sequences: of a row.
      most_predictions: of a row.

    Returns:
      For each row the numbers of its sequences; rows in the order of their longest ones.
    """
    packed: list[list[int]] = []
    free_predictions: list[int] = []
    open_rows: list[tuple[int, int]] = []  # ascending: free tokens, number of the row
    for sequence in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[sequence])
        masked = 0 if predictions is None else int(predictions[sequence])
        fitting = bisect.bisect_left(open_rows, (length, 0))
        places = range(fitting, len(open_rows))
        place = next((p for p in places if free_predictions[open_rows[p][1]] >= masked), None)
        if place is None:
            free, row = most_tokens, len(packed)
            packed.append([])
            free_predictions.append(most_predictions)
        else:
            free, row = open_rows.pop(place)
        packed[row].append(sequence)
        free_predictions[row] -= masked
        if len(packed[row]) < most_sequences:
            bisect.insort(open_rows, (free - length, row))
    return sorted(packed)  # by their first sequences


# ---------------------------------------------------------------------------- files


def expand_patterns(patterns: str | Sequence[str]) -> list[str]:
    """Paths and globs, comma-separated or a list -> the files.

    Raises:
      InputError: one matches nothing, or a file is given twice.
    """
    if isinstance(patterns, str):  # a name may have a comma in it, or a bracket
        patterns = [patterns] if is_file(patterns) else patterns.split(",")
    found: dict[str, str] = {}
    for pattern in map(own_path, patterns):
        folder, name = os.path.split(pattern)
        is_magic = re.search(r"[*?[\\]", folder)  # which may be the name of a folder all the same
        matches = paths_in(folder, f"^{fnmatch.translate(name)}") if is_magic else []
        matches = [pattern] if is_file(pattern) else matches or sorted(gfile().glob(pattern))
        if not matches:
            expected = "paths or globs of existing files, separated by commas"
            remedy = "check the path, and that the file has been made"
            raise InputError(f"{pattern!r}, which matches no file", expected, remedy)
        for path in matches:
            file = path if is_remote(path) else os.path.realpath(path)
            if file in found:
                same = f": {found[file]} is the same file" if found[file] != path else ""
                received = f"{path}, given twice{same}"
                raise InputError(received, "each file once", "leave out one of the two")
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
    """Builds the index of a file while its records are written one after the other."""

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


# ---------------------------------------------------------------------------- description


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What pre-training records depend on besides text and vocabulary; named as the flags.

    Fields with the role `in_common` must be the same in all files of a run.

    Raises:
      InputError: a value is out of its bounds, or the shares do not sum to 1.
    """

    max_seq_length: int = size(in_common=True)  # S
    max_predictions_per_seq: int = size(in_common=True)  # P
    masked_lm_prob: float = declared(low=0, high=1)
    short_seq_prob: float = declared(low=0, high=1)
    dupe_factor: int = size()
    random_seed: int
    do_whole_word_mask: bool
    words_from_spaces: bool = False
    one_draw_per_word: bool = declared(False, choices=(False,))  # of older descriptions
    pack: bool = declared(False, in_common=True)  # several sequences a record
    # Of the tokens to predict: those that become [MASK], a random piece, or stay.
    mask_share: float = declared(0.8, low=0, high=1)
    random_share: float = declared(0.1, low=0, high=1)
    unchanged_share: float = declared(0.1, low=0, high=1)

    def __post_init__(self):
        check_fields(self)
        total = self.mask_share + self.random_share + self.unchanged_share
        if not math.isclose(total, 1, abs_tol=1e-6):
            received = f"mask_share {self.mask_share:g} and random_share {self.random_share:g}"
            raise InputError(received, "shares that sum to at most 1", "correct them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataDescription(DataSettings):
    """What a file of pre-training records was made with."""

    bert_tf_version: str
    do_lower_case: bool = declared(in_common=True)
    vocab_file: str  # its name, without its folder
    vocab_sha256: str = declared(in_common=True)  # see tokenization.wordpiece.vocabulary_sha256
    vocab_size: int = size()
    shard: int = size()  # which of the files, from 1
    num_shards: int = size()
    num_records: int = declared(low=0)
    num_bytes: int = declared(low=0)
    strip_accents: bool | None = declared(None, in_common=True)  # None: as do_lower_case
    # Pieces that were kept whole.
    never_split: tuple[str, ...] = declared((), distinct=True, in_common=True)
    # Pieces that were kept whole in normalized text.
    added_words: tuple[str, ...] = declared((), distinct=True, in_common=True)
    text_digest: str = ""  # with --num_shards, of the text and how it was read

    @property
    def packed_with(self) -> float | None:
        """As for `pretraining_record`."""
        return self.masked_lm_prob if self.pack else None

    @property
    def sequences_per_record(self) -> int:
        """K of `packed_sizes`, or 1."""
        sizes = self.max_seq_length, self.max_predictions_per_seq, self.masked_lm_prob
        return packed_sizes(*sizes)[0] if self.pack else 1

    def to_json_string(self) -> str:
        """The text of the JSON file."""
        values = dataclasses.asdict(self)
        for name in ("strip_accents", "never_split", "added_words"):
            if values[name] in (None, ()):
                del values[name]
        return json.dumps(values, indent=2, sort_keys=True) + "\n"


def description_path(path: str) -> str:
    """Where the description of a record file is: a name that no pattern for the records matches.

    >>> description_path("data/train.tfrecord")
    'data/info_train.tfrecord.json'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f"info_{name}.json")
