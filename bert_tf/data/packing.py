"""Batches of fine-tuning: of similar total length, and packed into rows with hardly any padding.

    lengths of 8 examples            7 2 3 6 8 2 3 5
    dealt to batches of B = 4        [8 3 5 2] [7 3 6 2]      equal sums
    packed into R = 2 rows, W = 10   8 2 | 5 3    7 3 | 6 2   sequences of a row do not see
                                                              each other

A row has up to K sequences; input_mask is 1 for the tokens of the first, 2 for those of the second
and so on, as in packed records of pre-training. Other features of an example stand at its place
among the K:

    input_ids, input_mask, segment_ids [R, W], label_ids [R, K] (of tokens [R, W]),
    is_real_example [R, K], sequences [R, K]

The C sequences of an example of multiple choice are neighbours in a row; its other features are
[R, K / C].

All batches have the same R and W, except a few that have more rows. So a step is compiled at most
twice.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data import SEQUENCES
from bert_tf.data.batches import (
    OPEN_BLOCKS,
    Batches,
    Sampler,
    SequentialSampler,
    ShuffledSampler,
    joined,
)
from bert_tf.data.options import Batching
from bert_tf.data.records import Feature, fill_rows
from bert_tf.data.shards import RecordFiles

MASK = "input_mask"  # the feature that tells real tokens from padding
MULTIPLE = 4  # widths of rows are multiples of it
WINDOW = 50  # batches to which rows are dealt together, at most those of an epoch
SAMPLED = 32  # batches with which all widths are compared
TRIED = 3  # widths that are compared with all batches, the best ones of the first comparison
# Compiling a step for another shape takes about as long as computing so many positions.
COMPILATION = 50_000
# A row has one place for a sequence per so many tokens; shorter sequences leave padding.
LEAST_TOKENS = 8
# The width at which attention takes a third as long as the rest of the encoder.
ATTENTION = 400


# ---------------------------------------------------------------------------- order


class DealtSampler:
    """Another sampler's rows, dealt to the batches of a window so that all have similar lengths.

    A window has the rows that the other sampler has there, in another order. It ends at the latest
    with the last whole batch of an epoch, so that a run may end after any epoch:

        4.5 batches an epoch    | 0 1 2 | 3 | 4 5 6 | 7 8 | 9 ...     in windows of 3 batches
    """

    def __init__(
        self,
        sampler: Sampler,
        lengths: np.ndarray,
        *,
        batch_size: int,
        window: int,
        once: bool = False,
    ):
        """Stores the sampler; a window is dealt when its rows are asked for.

        Args:
          sampler: decides which rows a window has.
          lengths: the length of each row, int [rows].
          batch_size: the rows of a batch.
          window: the batches of a window.
          once: whether there is one epoch; its last batch, if short, is left as it is.
        """
        self._sampler = sampler
        self._lengths = lengths
        self._batch_size = batch_size
        self._window_batches = window
        self._once = once
        self._latest_window = functools.lru_cache(maxsize=1)(self._make_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As in `Sampler`."""
        return joined(start, stop, self._rows_from)

    def _rows_from(self, position: int) -> np.ndarray:
        """The rows from a position on, to the end of its window."""
        num_rows = len(self._lengths)
        batch_size = self._batch_size
        batch = position // batch_size
        epoch = ((batch + 1) * batch_size - 1) // num_rows  # in which this batch ends
        first_batch = epoch * num_rows // batch_size
        end_batch = (epoch + 1) * num_rows // batch_size
        begin = batch - (batch - first_batch) % self._window_batches
        if self._once and epoch > 0:  # the short last batch
            end = begin + 1
        else:
            end = min(begin + self._window_batches, end_batch)
        return self._latest_window(begin, end)[position - begin * batch_size :]

    def _make_window(self, begin: int, end: int) -> np.ndarray:
        """The rows of batches `begin` to `end` - 1, dealt."""
        rows = self._sampler.rows(begin * self._batch_size, end * self._batch_size)
        if end == begin + 1:
            return rows
        return rows[deal(self._lengths[rows], end - begin)].ravel()


def deal(lengths: np.ndarray, num_batches: int) -> np.ndarray:
    """Deals rows to batches so that the sums of their lengths are nearly equal.

    The longest go one to each batch, then the next ones, the longest of them to the batch with the
    least sum so far. Neighbours in a batch are long and short in turn, so that the parts of a batch
    have similar sums, too.

    >>> deal(np.array([7, 2, 3, 6, 8, 2, 3, 5]), 2).tolist()
    [[4, 2, 7, 1], [0, 6, 3, 5]]

    Args:
      lengths: the lengths of all rows, [num_batches * B].
      num_batches: how many batches.

    Returns:
      The places of the rows of each batch in `lengths`, [num_batches, B].
    """
    groups = np.argsort(-lengths, kind="stable").reshape(-1, num_batches)  # [B, num_batches]
    sums = np.zeros(num_batches, np.int64)
    dealt = np.empty_like(groups)
    for group, places in zip(groups, dealt, strict=True):
        places[np.argsort(sums, kind="stable")] = group
        sums += lengths[places]
    # Multiples of the golden ratio, modulo 1, spread any consecutive groups evenly.
    golden = np.arange(len(groups)) * (5**0.5 - 1) / 2 % 1
    order = np.argsort(np.argsort(golden))
    return dealt[order].T


# ---------------------------------------------------------------------------- rows


def most_sequences(max_seq_length: int, num_choices: int = 1) -> int:
    """K, the most sequences in a row of fine-tuning: a multiple of the choices of an example.

    >>> most_sequences(128), most_sequences(80, 4), most_sequences(8)
    (16, 12, 2)
    """
    least = max(2, max_seq_length // LEAST_TOKENS)
    return _rounded_up(least, num_choices)


def _rounded_up(number: int, divisor: int) -> int:
    """The least multiple of `divisor` that is not below `number`."""
    return -(-number // divisor) * divisor


class Plan(NamedTuple):
    """How much work batches are when they are packed into rows of one width."""

    work: float  # of all batches, in positions
    width: int  # W
    shapes: tuple[int, ...]  # R, ascending
    num_rows: Sequence[int]  # how many rows each batch needs


class Packing:
    """Which examples of a batch share a row, and how many rows it has.

    Attributes:
      width: W, tokens of a row.
      parts: the parts of a batch, each of which has rows of its own.
      shapes: R, ascending: the rows of a part of almost every batch, and of the fullest one.
      num_sequences: K, the most sequences of a row.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        length: int,
        batches: np.ndarray,
        *,
        parts: int = 1,
        one_shape: bool = False,
    ):
        """Chooses the width and the numbers of rows with which a step computes least.

        Args:
          lengths: tokens of each example's sequences, int [examples, C].
          length: S, to which sequences are padded in the records.
          batches: the examples of every batch, [batches, B]; -1 is padding.
          parts: the parts of a batch, each of which has rows of its own.
          one_shape: whether all batches must have the same number of rows.
        """
        self._lengths = lengths
        self._length = length
        self.parts = parts
        self._choices = lengths.shape[1]  # C
        self.num_sequences = most_sequences(length, self._choices)
        self._examples_of_row = self.num_sequences // self._choices  # at most
        self._totals = lengths.sum(axis=1)  # tokens of each example

        # All widths are compared with some batches, the best of them with all batches.
        least = _rounded_up(self._totals.max(), MULTIPLE)
        widths = range(least, max(least, 2 * length) + MULTIPLE, MULTIPLE)
        sample = batches[:: -(-len(batches) // SAMPLED)]
        by_work = operator.itemgetter(0, 1, 2)
        rough_plans = [self._plan(width, sample, one_shape) for width in widths]
        best_widths = [plan.width for plan in sorted(rough_plans, key=by_work)[:TRIED]]
        best = min((self._plan(width, batches, one_shape) for width in best_widths), key=by_work)
        self.width = best.width
        self.shapes = best.shapes
        self._rows_needed = best.num_rows

    def _plan(self, width: int, batches: np.ndarray, one_shape: bool) -> Plan:
        """The plan of least work for these batches with rows of this width."""
        needed = np.array([max(map(len, self._fill(batch, width))) for batch in batches])
        most = int(needed.max())
        positions = {}  # by the usual number of rows; batches that need more have `most`
        for usual in [most] if one_shape else np.unique(needed).tolist():
            rows = np.where(needed <= usual, usual, most).sum()
            compilation = COMPILATION * (usual < most)
            positions[usual] = rows * self.parts * width + compilation
        usual = min(positions, key=positions.__getitem__)
        work_of_position = 1 + width / (3 * ATTENTION)
        shapes = tuple(sorted({usual, most}))
        return Plan(positions[usual] * work_of_position, width, shapes, needed)

    def num_rows(self, batch: int) -> int:
        """R of a batch."""
        return self._shape_for(self._rows_needed[batch])

    def _shape_for(self, num_rows: int) -> int:
        """The least R that is enough for `num_rows`."""
        return next(shape for shape in self.shapes if shape >= num_rows)

    def specs(self, features: Sequence[Feature], num_parts: int) -> dict[str, tf.TensorSpec]:
        """The specs of what `pack` returns for one of `num_parts` replicas.

        The number of rows is None where it differs between batches.
        """
        num_rows = None
        if len(self.shapes) == 1:
            num_rows = self.shapes[0] * self.parts // num_parts
        num_examples = self._examples_of_row

        def shape(feature: Feature) -> tuple[int, ...]:
            if feature.is_of_tokens:
                return (self.width,)
            return (num_examples,) if feature.size == 1 else (num_examples, feature.size)

        specs = {f.key: tf.TensorSpec([num_rows, *shape(f)], f.batch_dtype) for f in features}
        specs["is_real_example"] = tf.TensorSpec([num_rows, num_examples], tf.float32)
        specs[SEQUENCES] = tf.TensorSpec([num_rows, self.num_sequences], tf.int32)
        return specs

    def fill(self, examples: np.ndarray) -> np.ndarray:
        """Which examples of a batch stand in which row.

        Args:
          examples: the examples of the batch, [B]; -1 is padding.

        Returns:
          The places of a row's examples in the batch, ascending, 0 to B - 1, then -1 where there is
          none: int32 [parts, R, K / C].
        """
        rows_of_parts = self._fill(examples, self.width)
        num_rows = self._shape_for(max(map(len, rows_of_parts)))
        filled = np.full((self.parts, num_rows, self._examples_of_row), -1, np.int32)
        for part, rows in enumerate(rows_of_parts):
            for number, places in enumerate(rows):
                filled[part, number, : len(places)] = sorted(places)
        return filled

    def _fill(self, examples: np.ndarray, width: int) -> list[list[list[int]]]:
        """For each part of a batch, and each row of it: the places of its examples in the batch."""
        rows_of_parts = []
        for places in np.arange(len(examples)).reshape(self.parts, -1):
            places = places[examples[places] >= 0]
            lengths = self._totals[examples[places]]
            rows = fill_rows(lengths, width, most_sequences=self._examples_of_row)
            rows_of_parts.append([places[row].tolist() for row in rows])
        return rows_of_parts

    def pack(
        self,
        values: Mapping[str, np.ndarray],
        features: Sequence[Feature],
        examples: np.ndarray,
        filled: np.ndarray,
        first: int,
    ) -> dict[str, np.ndarray]:
        """Packs examples of a batch into rows.

        Args:
          values: the values of n examples: features [n, size], and is_real_example [n].
          features: the features of `values` to pack.
          examples: the numbers of these examples, [n].
          filled: their rows, as in `fill`, [R, K / C].
          first: the place in the batch of the first example.

        Returns:
          As `specs` describes.
        """
        is_example = filled >= 0
        places = np.where(is_example, filled - first, 0)  # among these examples
        lengths = self._lengths[examples[places]] * is_example[..., np.newaxis]  # [R, K / C, C]
        lengths = lengths.reshape(len(filled), -1)  # [R, K]
        sequences = places[..., np.newaxis] * self._choices + np.arange(self._choices)
        sequences = sequences.reshape(lengths.shape)  # [R, K], among those of these examples
        number, source = self._sources(sequences, lengths)
        is_token = number < self.num_sequences

        packed = {"is_real_example": values["is_real_example"][places] * is_example}
        for feature in features:
            value = values[feature.key]
            if feature.is_of_tokens:
                padding = value.dtype.type(feature.least)
                packed[feature.key] = np.where(is_token, value.ravel()[source], padding)
            elif feature.key not in packed:
                value = value[places]  # [R, K / C, size]
                packed[feature.key] = value[..., 0] if feature.size == 1 else value
        packed["input_mask"] = np.where(is_token, number + 1, 0).astype(np.int32)
        is_sequence = np.repeat(is_example, self._choices, axis=1)  # [R, K]
        sequences = np.where(is_sequence, sequences + first * self._choices, -1)
        packed[SEQUENCES] = sequences.astype(np.int32)
        return packed

    def _sources(self, sequences: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of rows come from.

        Args:
          sequences: the numbers of the sequences in each row, [R, K].
          lengths: tokens of these sequences, [R, K]; 0 where there is none.

        Returns:
          For each token, [R, W]: the number of its sequence in the row, K for padding; its place in
          the values of all sequences, of S places each, 0 for padding.
        """
        ends = lengths.cumsum(axis=1)
        token = np.arange(self.width)
        number = (token >= ends[..., np.newaxis]).sum(axis=1)  # [R, W]
        is_token = number < self.num_sequences
        starts = ends - lengths
        shifts = sequences * self._length - starts  # [R, K]
        last = self.num_sequences - 1
        source = np.take_along_axis(shifts, np.minimum(number, last), axis=1) + token
        return number, np.where(is_token, source, 0)


def in_order(outputs: Mapping[str, np.ndarray]) -> dict[str, Sequence[np.ndarray]]:
    """A model's outputs for a packed batch, by example, in the order of the batch.

    Args:
      outputs: the outputs of examples [R * K / C, ...] or of tokens [R, W, ...]; and of the batch
        input_mask [R, W] and sequences [R, K].

    Returns:
      By name: outputs of examples [B, ...]; for outputs of tokens an array for each example, of its
      own tokens.
    """
    outputs = dict(outputs)
    numbers = outputs.pop("input_mask")
    sequences = outputs.pop(SEQUENCES)
    num_sequences = sequences.shape[1]  # K
    by_example: dict[str, Sequence[np.ndarray]] = {}
    for name, value in outputs.items():
        is_of_tokens = value.shape[:2] == numbers.shape
        examples_of_row = num_sequences if is_of_tokens else len(value) // len(sequences)
        # The number of each example's first sequence, which orders the examples; -1 for none.
        first_sequences = sequences[:, :: num_sequences // examples_of_row].ravel()
        num_empty = (first_sequences < 0).sum()
        order = np.argsort(first_sequences, kind="stable")[num_empty:]
        if is_of_tokens:
            rows, places = np.divmod(order, examples_of_row)
            by_example[name] = [
                value[row][numbers[row] == place + 1]
                for row, place in zip(rows, places, strict=True)
            ]
        else:
            by_example[name] = value[order]
    return by_example


def real_lengths(files: RecordFiles) -> np.ndarray:
    """The tokens of each record's sequences, without padding at the end: int64 [rows, C].

    Reads, and so checks, all records.
    """
    (num_sequences,) = (f.sequences for f in files.record.features if f.name == MASK)
    lengths = []
    begin = 0
    for count in files.block_records.tolist():
        mask = files.read(range(begin, begin + count))[MASK]  # [rows, C * S]
        mask = mask.reshape(count, num_sequences, -1)  # [rows, C, S]
        positions = np.arange(1, mask.shape[-1] + 1)
        lengths.append((mask * positions).max(axis=2))
        begin += count
    return np.concatenate(lengths)


class BatchingConfig(Batching):
    """How fine-tuning makes batches of its records: whether packed, and of what length."""

    max_seq_length: int

    def num_sequences(self, num_choices: int) -> int:
        """K of the model that takes these batches; 1 if they are not packed."""
        return most_sequences(self.max_seq_length, num_choices) if self.bucket_by_length else 1

    def training(
        self,
        files: RecordFiles,
        *,
        batch_size: int,
        num_train_steps: int,
        seed: int,
        **packing_options: Any,
    ) -> Batches:
        """Shuffled batches for `num_train_steps`; a longer run begins with the same ones.

        **packing_options: parts and one_shape, as in `Packing`.
        """
        lengths = real_lengths(files)
        sampler = ShuffledSampler(files.block_records, batch_size=batch_size, seed=seed)
        sampler = DealtSampler(sampler, lengths.sum(axis=1), batch_size=batch_size, window=WINDOW)
        num_examples = num_train_steps * batch_size
        return self._batches(files, sampler, lengths, batch_size, num_examples, packing_options)

    def once(self, files: RecordFiles, *, batch_size: int, **packing_options: Any) -> Batches:
        """Batches of every record once; **packing_options as in `training`."""
        sampler: Sampler = SequentialSampler(len(files))
        lengths = None
        if self.bucket_by_length:
            lengths = real_lengths(files)
            # A window reaches no further than the blocks in memory, so that each is read once.
            window = len(files) * 2 * OPEN_BLOCKS // len(files.block_records) // batch_size
            sampler = DealtSampler(
                sampler,
                lengths.sum(axis=1),
                batch_size=batch_size,
                window=max(1, window),
                once=True,
            )
        return self._batches(files, sampler, lengths, batch_size, len(files), packing_options)

    def _batches(
        self,
        files: RecordFiles,
        sampler: Sampler,
        lengths: np.ndarray | None,
        batch_size: int,
        num_examples: int,
        packing_options: Mapping[str, Any],
    ) -> Batches:
        """Batches in the sampler's order; packed if `bucket_by_length`."""
        options: dict[str, Any] = {"batch_size": batch_size, "num_examples": num_examples}
        if self.bucket_by_length:
            unpacked = Batches(files, sampler, **options)
            batches = unpacked.rows(range(unpacked.num_batches))
            options["packing"] = Packing(lengths, self.max_seq_length, batches, **packing_options)
        return Batches(files, sampler, **options)
