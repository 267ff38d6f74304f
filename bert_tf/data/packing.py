"""Batches of fine-tuning: alike in length, and packed into rows that have hardly any padding.

    lengths of 8 examples            7 2 3 6 8 2 3 5
    dealt to batches of B = 4        [8 3 5 2] [7 3 6 2]      one as long as the other
    packed into R = 2 rows, W = 10   8 2 | 5 3    7 3 | 6 2   of a row, none sees another

A batch keeps its examples, each padded to S; beside them `PACKED_TOKENS`, [R, W], says which of
their tokens stand in the rows that the encoder computes (`modeling.models.encode`). All batches
have the same R and W but for a few, which have more rows: so a step is compiled once or twice.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.data.batches import (
    OPEN_BLOCKS,
    Batches,
    Sampler,
    SequentialSampler,
    ShuffledSampler,
    joined,
)
from bert_tf.data.records import fill_rows
from bert_tf.data.shards import RecordFiles

MASK = "input_mask"  # the feature that tells real tokens from padding
MULTIPLE = 4  # widths of rows are multiples of it
WINDOW = 50  # batches to which rows are dealt at once, at most an epoch
SAMPLED, TRIED = 32, 3  # batches that show which widths are good, and widths tried with all
# Positions that a step computes in about the time that it takes to compile it for another shape.
COMPILATION = 50_000
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


class Packing:
    """How the examples of each batch are put into rows.

    Attributes:
      width: W, tokens of a row.
      shapes: R, ascending: the rows of a part of almost every batch, and of the fullest one.
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

        def plan(width: int, batches: np.ndarray) -> tuple[float, int, tuple[int, ...]]:
            """Work in positions, W, and R."""
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
            return works[usual] * share, width, tuple(sorted({usual, most}))

        least = -(-lengths.max() // MULTIPLE) * MULTIPLE
        sampled = batches[:: -(-len(batches) // SAMPLED)]
        plans = sorted(plan(w, sampled) for w in range(least, 2 * length + MULTIPLE, MULTIPLE))
        _, self.width, self.shapes = min(plan(width, batches) for _, width, _ in plans[:TRIED])

    def shape(self, num_parts: int) -> list[int | None]:
        """Of `PACKED_TOKENS` of a replica, of so many; None where batches differ."""
        rows = self.shapes[0] * self.parts // num_parts if len(self.shapes) == 1 else None
        return [rows, self.width]

    def fill(self, examples: np.ndarray) -> np.ndarray:
        """`PACKED_TOKENS` of each part of a batch, int32 [parts, R, W].

        Args:
          examples: of the batch, [B]; -1 only fills it up.

        Returns:
          The number of a token among the part's, b * S + place, or -1 for none. In a row the
          sequences are in their order, one after the other.
        """
        filled = self._rows_of(examples)
        most = max(map(len, filled))
        shape = next(rows for rows in self.shapes if rows >= most)
        lengths = self._lengths_of(examples)
        found = np.full((self.parts, shape, self.width), -1, np.int32)
        for rows, of_part, cells in zip(filled, lengths, found, strict=True):
            for row, sequences in enumerate(rows):
                tokens = [np.arange(of_part[b]) + b * self._length for b in sorted(sequences)]
                cells[row, : sum(map(len, tokens))] = np.concatenate(tokens)
        return found

    def _lengths_of(self, examples: np.ndarray) -> np.ndarray:
        """Of the sequences of each part, [parts, B / parts * C]."""
        lengths = np.where(examples[:, np.newaxis] >= 0, self._lengths[examples], 0)
        return lengths.reshape(self.parts, -1)

    def _rows_of(self, examples: np.ndarray) -> list[list[list[int]]]:
        """For each part, which of its sequences share a row."""
        return [fill_rows(lengths, self.width) for lengths in self._lengths_of(examples)]


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    """How fine-tuning makes batches of its records."""

    max_seq_length: int
    bucket_by_length: bool = True  # whether batches are packed

    def training(
        self, files: RecordFiles, *, batch_size: int, num_train_steps: int, seed: int, **rows: Any
    ) -> Batches:
        """Shuffled batches for that many steps; a longer run begins with the same ones.

        **rows: parts and one_shape, as of `Packing`.
        """
        lengths = real_lengths(files)
        sampler = ShuffledSampler(files.block_records, batch_size=batch_size, seed=seed)
        sampler = DealtSampler(sampler, lengths.sum(axis=1), batch_size=batch_size, window=WINDOW)
        num_examples = num_train_steps * batch_size
        return self._batches(files, sampler, lengths, batch_size, num_examples, rows)

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
