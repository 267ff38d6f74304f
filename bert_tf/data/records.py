"""The kinds of records, each declared once with writer and parser; and the files they lie in.

Two JSON files lie beside each file of records, its index and its description:

    index_<file>.json                        {"num_bytes": 2516582,
                                              "block_bytes": [1049012, 1048811, 418759],
                                              "block_records": [1163, 1160, 463]}
    info_<file>.json                         the fields of `DataDescription`

A block is consecutive records, about a megabyte, which are read in one go. It ends with the record
that brings it to `BLOCK_BYTES`, so a file has the same blocks whether its index is built while the
records are written, or later.
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
# The name under which packed rows store input_mask, so that a reader of plain masks refuses them.
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
    sequences: int = 1  # how many sequences it holds, one after the other
    least: float = 0
    most: float = 2**31 - 1  # int32, as in batches
    model_size: str = ""  # the key of bert_config.json that sets `most`
    name_in_batch: str = ""  # empty: `name`

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
        """A `tf.train.Example` with the declared features; the same values give the same bytes.

        Args:
          values: for each declared feature, `size` numbers.

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
        """Raises `ValueError` unless `sizes` has all features with their sizes, and no other."""
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
    """The features that all records have: input_ids, input_mask and segment_ids int64 [C * S].

    Args:
      max_seq_length: S.
      vocab_size: V of the model that reads them; None where they are only written.
      type_vocab_size: the number of segment types of that model.
      sequences: C, how many sequences an example has.
    """

    def feature(name: str, limit: int | None, model_size: str = "") -> Feature:
        bounds = {"most": limit - 1, "model_size": model_size} if limit else {}
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
    predictions of all sequences, at positions of the row. K and P are those of `packed_sizes`.

    A prediction with a weight may stand at a position of padding: this does not prevent training.
    """
    ids, mask, segments = input_features(max_seq_length, **model_sizes)
    if packed_with is None:
        num_sequences = 1
        num_predictions = max_predictions_per_seq
        size_flag: str | None = "max_predictions_per_seq"
    else:
        num_sequences, num_predictions = packed_sizes(
            max_seq_length, max_predictions_per_seq, packed_with
        )
        size_flag = None
        mask = dataclasses.replace(mask, name=PACKED, name_in_batch=mask.name, most=num_sequences)

    def prediction(name: str, dtype: tf.DType, **options: Any) -> Feature:
        return Feature(name, dtype, num_predictions, size_flag, **options)

    predictions = (
        prediction("masked_lm_positions", tf.int64, most=max_seq_length - 1),
        prediction("masked_lm_ids", tf.int64, most=ids.most, model_size=ids.model_size),
        prediction("masked_lm_weights", tf.float32, most=GREATEST_FLOAT),
    )
    label = Feature("next_sentence_labels", tf.int64, num_sequences, most=1)
    labels = (label,) if next_sentence else ()
    return Record("pre-training", (ids, mask, segments, *predictions, *labels))


def fill_rows(
    lengths: np.ndarray,
    most_tokens: int,
    predictions: np.ndarray | None = None,
    most_sequences: float = math.inf,
    most_predictions: int = 0,
) -> list[list[int]]:
    """Packs sequences into rows: the longest first, each into the fullest row in which it fits.

    Krell et al. (2021), "Efficient Sequence Packing without Cross-contamination": longest-pack-
    first.

    >>> fill_rows(np.array([5, 3, 3, 2, 1]), 6)
    [[0, 4], [1, 2], [3]]

    Args:
      lengths: tokens of each sequence, [B].
      most_tokens: the most tokens of a row.
      predictions: the number of predictions of each sequence, [B].
      most_sequences: the most sequences of a row.
      most_predictions: the most predictions of a row.

    Returns:
      For each row the numbers of its sequences; rows in the order of their longest ones.
    """
    rows: list[list[int]] = []  # the sequences of each row
    free_predictions: list[int] = []  # of each row
    open_rows: list[tuple[int, int]] = []  # ascending: free tokens of a row, its number
    for sequence in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[sequence])
        masked = 0 if predictions is None else int(predictions[sequence])
        long_enough = range(bisect.bisect_left(open_rows, (length, 0)), len(open_rows))
        place = next(
            (place for place in long_enough if free_predictions[open_rows[place][1]] >= masked),
            None,
        )
        if place is None:
            row = len(rows)
            free_tokens = most_tokens
            rows.append([])
            free_predictions.append(most_predictions)
        else:
            free_tokens, row = open_rows.pop(place)
        rows[row].append(sequence)
        free_predictions[row] -= masked
        if len(rows[row]) < most_sequences:
            bisect.insort(open_rows, (free_tokens - length, row))
    return sorted(rows)  # by their first sequences


# ---------------------------------------------------------------------------- files


def expand_patterns(patterns: str | Sequence[str]) -> list[str]:
    """The files that paths and globs match, a list or one string with commas.

    Raises:
      InputError: a pattern matches nothing, or a file is given twice.
    """
    if isinstance(patterns, str):  # a file's name may itself have a comma or a bracket
        patterns = [patterns] if is_file(patterns) else patterns.split(",")
    paths: dict[str, str] = {}  # as given, by the file behind symbolic links
    for pattern in map(own_path, patterns):
        for path in _matches(pattern):
            file = path if is_remote(path) else os.path.realpath(path)
            if file in paths:
                same = f": {paths[file]} is the same file" if paths[file] != path else ""
                received = f"{path}, given twice{same}"
                raise InputError(received, "each file once", "leave out one of the two")
            paths[file] = path
    return list(paths.values())


def _matches(pattern: str) -> list[str]:
    """The files that one path or glob matches; raises `InputError` if there are none."""
    if is_file(pattern):
        return [pattern]
    matches: list[str] = []
    folder, name = os.path.split(pattern)
    if re.search(r"[*?[\\]", folder):  # a folder's name may have these characters
        matches = paths_in(folder, f"^{fnmatch.translate(name)}")
    matches = matches or sorted(gfile().glob(pattern))
    if not matches:
        expected = "paths or globs of existing files, separated by commas"
        remedy = "check the path, and that the file has been made"
        raise InputError(f"{pattern!r}, which matches no file", expected, remedy)
    return matches


# ---------------------------------------------------------------------------- index


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockIndex:
    """The blocks of one file, in its order."""

    num_bytes: int = declared(low=0)  # of the file
    block_bytes: tuple[int, ...] = declared(low=1)  # of each block, with the records' frames
    block_records: tuple[int, ...] = declared(low=1)  # how many each block has

    @property
    def num_records(self) -> int:
        """The number of records in the file."""
        return sum(self.block_records)

    def fits(self, num_bytes: int) -> bool:
        """Whether a file of `num_bytes` can have these blocks."""
        if not self.num_bytes == num_bytes == sum(self.block_bytes):
            return False
        blocks = itertools.zip_longest(self.block_bytes, self.block_records, fillvalue=0)
        return all(0 < count * FRAME_BYTES <= block_bytes for block_bytes, count in blocks)

    def to_json_string(self) -> str:
        """The text of the JSON file."""
        return json.dumps(dataclasses.asdict(self)) + "\n"


class IndexBuilder:
    """Builds the index of a file while its records are written one after the other."""

    def __init__(self):
        self._blocks: list[tuple[int, int]] = []  # bytes and records of complete blocks
        self._bytes = 0  # of the last block
        self._records = 0  # of the last block

    def add(self, record_bytes: int) -> None:
        """Adds a record of `record_bytes` without its frame."""
        self._bytes += record_bytes + FRAME_BYTES
        self._records += 1
        if self._bytes >= BLOCK_BYTES:
            self._blocks.append((self._bytes, self._records))
            self._bytes = 0
            self._records = 0

    def finish(self) -> BlockIndex:
        """The index of all records so far."""
        blocks = list(self._blocks)
        if self._records:
            blocks.append((self._bytes, self._records))
        return BlockIndex(
            num_bytes=sum(num_bytes for num_bytes, _ in blocks),
            block_bytes=tuple(num_bytes for num_bytes, _ in blocks),
            block_records=tuple(num_records for _, num_records in blocks),
        )


def index_path(path: str) -> str:
    """The path of a record file's index; patterns for record files do not match its name.

    >>> index_path("data/train.tfrecord")
    'data/index_train.tfrecord.json'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f"index_{name}.json")


# ---------------------------------------------------------------------------- description


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What pre-training records depend on besides text and vocabulary; fields are named as flags.

    Fields that are `in_common` must be the same in all files of a run.

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
    # The shares of the tokens to predict that become [MASK], become a random piece, or stay.
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
    text_digest: str = ""  # of the text and of how it was read, with --num_shards

    @property
    def packed_with(self) -> float | None:
        """The argument of `pretraining_record`."""
        return self.masked_lm_prob if self.pack else None

    @property
    def sequences_per_record(self) -> int:
        """K of `packed_sizes`; 1 if records are not packed."""
        if not self.pack:
            return 1
        num_sequences, _ = packed_sizes(
            self.max_seq_length, self.max_predictions_per_seq, self.masked_lm_prob
        )
        return num_sequences

    def to_json_string(self) -> str:
        """The text of the JSON file."""
        values = dataclasses.asdict(self)
        for name in ("strip_accents", "never_split", "added_words"):
            if values[name] in (None, ()):
                del values[name]
        return json.dumps(values, indent=2, sort_keys=True) + "\n"


def description_path(path: str) -> str:
    """The path of a record file's description; patterns for record files do not match its name.

    >>> description_path("data/train.tfrecord")
    'data/info_train.tfrecord.json'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f"info_{name}.json")
