"""Batches of fine-tuning: alike in length, and packed into rows that have hardly any padding.

    lengths of 8 examples            7 2 3 6 8 2 3 5
    dealt to batches of B = 4        [8 3 5 2] [7 3 6 2]      one as long as the other
    packed into R = 2 rows, W = 10   8 2 | 5 3    7 3 | 6 2   of a row, none sees another

A row has up to K sequences; input_mask is 1 for the tokens of the first, 2 for those of the second
and so on, as in packed records of pre-training. What an example has besides its tokens stands at
its place among K:

    input_ids, input_mask, segment_ids [R, W], label_ids [R, K] (of tokens [R, W]),
    is_real_example [R, K], sequences [R, K]

Examples of C sequences, as in multiple choice, are C neighbours of a row; what they have besides
tokens is [R, K / C].

All batches have the same R and W but for a few, which have more rows: so a step is compiled once or
twice.
"""

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

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
WINDOW = 50  # batches to which rows are dealt at once, at most an epoch
SAMPLED, TRIED = 32, 3  # batches that show which widths are good, and widths tried with all
# Positions that a step computes in about the time that it takes to compile it for another shape.
COMPILATION = 50_000
# A row has a place for a sequence for each so many tokens: shorter ones fill it with fewer.
LEAST_TOKENS = 8
# The width at which attention takes a third as long as the rest of the encoder.
ATTENTION = 400


# ---------------------------------------------------------------------------- order


class DealtSampler:
    """Another sampler's rows, dealt within windows of some batches so that these are alike.

    A window holds just the rows that the other sampler has there. None goes beyond the last whole
    batch of an epoch, so a run may end after any epoch:

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
        """Deals nothing yet.

        Args:
          sampler: decides which rows a window has.
          lengths: of each row, int [rows].
          batch_size: B.
          window: batches of a window.
          once: whether there is one epoch; its last batch, if short, is left as it is.
        """
        self._sampler, self._lengths, self._once = sampler, lengths, once
        self._batch_size, self._size = batch_size, window
        self._window = functools.lru_cache(maxsize=1)(self._make_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        return joined(start, stop, self._rows_from)

    def _rows_from(self, position: int) -> np.ndarray:
        """The rows from a position on, to the end of its window."""
        num_rows, size = len(self._lengths), self._batch_size
        epoch = ((position // size + 1) * size - 1) // num_rows
        first, last = epoch * num_rows // size, (epoch + 1) * num_rows // size  # of its batches
        begin = first + (position // size - first) // self._size * self._size
        end = begin + 1 if epoch and self._once else min(begin + self._size, last)
        return self._window(begin, end)[position - begin * size :]

    def _make_window(self, begin: int, end: int) -> np.ndarray:
        """The rows of batches `begin` to `end` - 1."""
        rows = self._sampler.rows(begin * self._batch_size, end * self._batch_size)
        return rows if end == begin + 1 else rows[deal(self._lengths[rows], end - begin)].ravel()


def deal(lengths: np.ndarray, num_batches: int) -> np.ndarray:
    """Places of rows [num_batches, B], so that the sums of their lengths are nearly the same.

    The longest go one to each batch, then the next ones, the longest of them to the batch that has
    least so far. Of the rows of a batch, any that follow each other are long and short ones, too.

    >>> deal(np.array([7, 2, 3, 6, 8, 2, 3, 5]), 2).tolist()
    [[4, 2, 7, 1], [0, 6, 3, 5]]
    """
    groups = np.argsort(-lengths, kind="stable").reshape(-1, num_batches)  # [B, num_batches]
    sums = np.zeros(num_batches, np.int64)
    dealt = np.empty_like(groups)
    for group, places in zip(groups, dealt, strict=True):
        places[np.argsort(sums, kind="stable")] = group
        sums += lengths[places]
    golden = np.arange(len(groups)) * (5**0.5 - 1) / 2 % 1
    return dealt[np.argsort(np.argsort(golden))].T


# ---------------------------------------------------------------------------- rows


def most_sequences(max_seq_length: int, num_choices: int = 1) -> int:
    """K, of rows of fine-tuning; a multiple of the choices of an example.

    >>> most_sequences(128), most_sequences(80, 4), most_sequences(8)
    (16, 12, 2)
    """
    return -(-max(2, max_seq_length // LEAST_TOKENS) // num_choices) * num_choices


class Packing:
    """How the examples of each batch are put into rows.

    Attributes:
      width: W, tokens of a row.
      shapes: R, ascending: the rows of a part of almost every batch, and of the fullest one.
      num_sequences: K.
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
        """Chooses the shapes that make the least work.

        Args:
          lengths: tokens of each example's sequences, int [examples, C].
          length: S, to which they are padded.
          batches: the examples of every batch, [batches, B]; -1 only fills a batch up.
          parts: the parts of a batch, each of which has rows of its own.
          one_shape: whether all batches must have the same shape.
        """
        self._lengths, self._length, self.parts = lengths, length, parts
        self._choices = lengths.shape[1]
        self.num_sequences = most_sequences(length, self._choices)
        self._totals = lengths.sum(axis=1)

        def plan(width: int, batches: np.ndarray) -> tuple[float, int, tuple[int, ...], np.ndarray]:
            """Work in positions, W, R, and the rows that each batch fills."""
            self.width = width
            needs = np.array([max(map(len, self._rows_of(batch))) for batch in batches])
            most = int(needs.max())
            works = {
                rows: np.where(needs <= rows, rows, most).sum() * parts * width
                + COMPILATION * (rows < most)
                for rows in ([most] if one_shape else np.unique(needs).tolist())
            }
            usual = min(works, key=works.__getitem__)
            share = 1 + width / (3 * ATTENTION)
            return works[usual] * share, width, tuple(sorted({usual, most})), needs

        least = -(-self._totals.max() // MULTIPLE) * MULTIPLE
        sampled = batches[:: -(-len(batches) // SAMPLED)]
        widths = range(least, max(least, 2 * length) + MULTIPLE, MULTIPLE)
        by_work = operator.itemgetter(0, 1, 2)
        plans = sorted((plan(width, sampled) for width in widths), key=by_work)
        whole = [plan(width, batches) for _, width, *_ in plans[:TRIED]]
        _, self.width, self.shapes, self._needs = min(whole, key=by_work)

    def num_rows(self, batch: int) -> int:
        """R of a batch."""
        return next(rows for rows in self.shapes if rows >= self._needs[batch])

    def specs(self, features: Sequence[Feature], num_parts: int) -> dict[str, tf.TensorSpec]:
        """What `pack` gives for one of so many replicas; the rows are None where batches differ."""
        rows = self.shapes[0] * self.parts // num_parts if len(self.shapes) == 1 else None
        units = self.num_sequences // self._choices

        def shape(feature: Feature) -> tuple[int, ...]:
            if feature.is_of_tokens:
                return (self.width,)
            return (units,) if feature.size == 1 else (units, feature.size)

        specs = {f.key: tf.TensorSpec([rows, *shape(f)], f.batch_dtype) for f in features}
        specs["is_real_example"] = tf.TensorSpec([rows, units], tf.float32)
        return specs | {SEQUENCES: tf.TensorSpec([rows, self.num_sequences], tf.int32)}

    def fill(self, examples: np.ndarray) -> np.ndarray:
        """Which examples stand in the rows of a batch, in their order.

        Args:
          examples: of the batch, [B]; -1 only fills it up.

        Returns:
          Their places in the batch, 0 to B - 1, or -1 for none: int32 [parts, R, K / C].
        """
        filled = self._rows_of(examples)
        most = max(map(len, filled))
        shape = next(rows for rows in self.shapes if rows >= most)
        found = np.full((self.parts, shape, self.num_sequences // self._choices), -1, np.int32)
        for rows, places in zip(filled, found, strict=True):
            for row, members in zip(rows, places, strict=False):
                members[: len(row)] = sorted(row)
        return found

    def _rows_of(self, examples: np.ndarray) -> list[list[list[int]]]:
        """For each part, the places in the batch of the examples that share a row."""
        filled, units = [], self.num_sequences // self._choices
        for places in np.arange(len(examples)).reshape(self.parts, -1):
            places = places[examples[places] >= 0]
            rows = fill_rows(self._totals[examples[places]], self.width, most_sequences=units)
            filled.append([places[row].tolist() for row in rows])
        return filled

    def pack(
        self,
        values: Mapping[str, np.ndarray],
        features: Sequence[Feature],
        examples: np.ndarray,
        filled: np.ndarray,
        first: int,
    ) -> dict[str, np.ndarray]:
        """The rows of some examples of a batch.

        Args:
          values: of the examples, [n, size] each, and is_real_example [n].
          features: all of the others.
          examples: their numbers, [n].
          filled: rows of `fill`, [R, K / C].
          first: the place in the batch of the first of them.

        Returns:
          As `specs` describes.
        """
        is_there, choices = filled >= 0, np.arange(self._choices)
        places = np.where(is_there, filled - first, 0)  # among these examples
        lengths = self._lengths[examples[places]] * is_there[..., np.newaxis]
        lengths = lengths.reshape(len(filled), -1)  # [R, K]
        ends = lengths.cumsum(axis=1)
        token = np.arange(self.width)
        number = (token >= ends[..., np.newaxis]).sum(axis=1)  # [R, W], K for padding
        is_token = number < self.num_sequences
        number = np.minimum(number, self.num_sequences - 1)

        def of_tokens(of_sequences: np.ndarray) -> np.ndarray:  # [R, K] -> [R, W]
            return np.take_along_axis(of_sequences, number, axis=1)

        sequences = (places[..., np.newaxis] * self._choices + choices).reshape(lengths.shape)
        source = of_tokens(sequences * self._length - ends + lengths) + token
        source = np.where(is_token, source, 0)
        packed = {"is_real_example": values["is_real_example"][places] * is_there}
        for feature in features:
            value = values[feature.key]
            if feature.is_of_tokens:
                nothing = value.dtype.type(feature.least)
                packed[feature.key] = np.where(is_token, value.ravel()[source], nothing)
            elif feature.key not in packed:
                value = value[places]  # [R, K / C, size]
                packed[feature.key] = value[..., 0] if feature.size == 1 else value
        packed["input_mask"] = np.where(is_token, number + 1, 0).astype(np.int32)
        none = np.repeat(~is_there, self._choices, axis=1)
        sequences = np.where(none, -1, sequences + first * self._choices)
        return packed | {SEQUENCES: sequences.astype(np.int32)}


def in_order(outputs: Mapping[str, np.ndarray]) -> dict[str, Sequence[np.ndarray]]:
    """What a model says of a packed batch, by example.

    Args:
      outputs: of sequences [R * K / C, ...] or of tokens [R, W, ...]; and of the batch input_mask
        [R, W] and sequences [R, K].

    Returns:
      For each output what belongs to each example, in their order in the batch.
    """
    outputs = dict(outputs)
    numbers, sequences = outputs.pop("input_mask"), outputs.pop(SEQUENCES)
    found: dict[str, Sequence[np.ndarray]] = {}
    for name, value in outputs.items():
        is_of_tokens = value.shape[:2] == numbers.shape
        units = sequences.shape[1] if is_of_tokens else len(value) // len(sequences)
        first = sequences[:, :: sequences.shape[1] // units].ravel()  # of each example
        order = np.argsort(first, kind="stable")[(first < 0).sum() :]
        if is_of_tokens:
            places = zip(*np.divmod(order, units), strict=True)
            found[name] = [value[row][numbers[row] == place + 1] for row, place in places]
        else:
            found[name] = value[order]
    return found


def real_lengths(files: RecordFiles) -> np.ndarray:
    """The tokens of each record's sequences, padding at the end aside: int64 [rows, C].

    Reads, and so checks, all records.
    """
    (num_sequences,) = (f.sequences for f in files.record.features if f.name == MASK)
    parts, begin = [], 0
    for count in files.block_records.tolist():
        mask = files.read(range(begin, begin + count))[MASK]  # [rows, C * S]
        mask = mask.reshape(count, num_sequences, -1)  # -> [rows, C, S]
        parts.append((mask * np.arange(1, mask.shape[-1] + 1)).max(axis=2))
        begin += count
    return np.concatenate(parts)


class BatchingConfig(Batching):
    """How fine-tuning makes batches of its records: packed or not, of sequences of what length."""

    max_seq_length: int

    def num_sequences(self, num_choices: int) -> int:
        """K of the model that is given these batches."""
        return most_sequences(self.max_seq_length, num_choices) if self.bucket_by_length else 1

    def training(
        self,
        files: RecordFiles,
        *,
        batch_size: int,
        num_train_steps: int,
        seed: int,
        **options: Any,
    ) -> Batches:
        """Shuffled batches for that many steps; a longer run begins with the same ones.

        **options: parts and one_shape, as of `Packing`.
        """
        lengths = real_lengths(files)
        sampler = ShuffledSampler(files.block_records, batch_size=batch_size, seed=seed)
        sampler = DealtSampler(sampler, lengths.sum(axis=1), batch_size=batch_size, window=WINDOW)
        num_examples = num_train_steps * batch_size
        return self._batches(files, sampler, lengths, batch_size, num_examples, options)

    def once(self, files: RecordFiles, *, batch_size: int, **rows: Any) -> Batches:
        """Every record once; **rows as of `training`."""
        sampler: Sampler = SequentialSampler(len(files))
        lengths = None
        if self.bucket_by_length:
            lengths = real_lengths(files)
            # Dealt as far as the blocks that are kept reach, so that each is read once.
            window = len(files) * 2 * OPEN_BLOCKS // len(files.block_records) // batch_size
            sampler = DealtSampler(
                sampler,
                lengths.sum(axis=1),
                batch_size=batch_size,
                window=max(1, window),
                once=True,
            )
        return self._batches(files, sampler, lengths, batch_size, len(files), rows)

    def _batches(
        self,
        files: RecordFiles,
        sampler: Sampler,
        lengths: np.ndarray | None,
        batch_size: int,
        num_examples: int,
        rows: Mapping[str, Any],
    ) -> Batches:
        """Batches, packed by `bucket_by_length`."""
        options: dict[str, Any] = {"batch_size": batch_size, "num_examples": num_examples}
        if self.bucket_by_length:
            whole = Batches(files, sampler, **options)
            batches = whole.rows(range(whole.num_batches))
            options["packing"] = Packing(lengths, self.max_seq_length, batches, **rows)
        return Batches(files, sampler, **options)
