"""Rows of similar length side by side, and the lengths to which their batches are padded.

    lengths of rows 0 to 5            7 2 3 6 8 2          batches of B = 2, padded to 4 or 8
    in their order                    [7 2] [3 6] [8 2]    [2, 8] each
    by length                         [2 2] [3 6] [7 8]    [2, 4], [2, 8], [2, 8]

Padded lengths are few and fixed, so that a compiled step is compiled a few times only.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bert_tf.data.batches import OPEN_BLOCKS, Batches, Sampler, ShuffledSampler, generator, joined
from bert_tf.data.shards import RecordFiles

MASK = "input_mask"  # the feature that tells real tokens from padding
MULTIPLE = 8  # chosen lengths are multiples of it
WINDOW = 50  # batches that training sorts by length at once, at most an epoch
# Positions that a step computes in about the time that it takes to compile it for another length.
COMPILATION = 50_000


def order_by_length(lengths: Sequence[int], groups: Sequence[int]) -> np.ndarray:
    """The rows sorted by group and within each by length, int64 [rows].

    Args:
      lengths: of the rows.
      groups: the group of each row, a number. Even groups rise in length and odd ones fall, so that
        rows are similar where two groups meet.
    """
    lengths, groups = np.asarray(lengths, np.int64), np.asarray(groups, np.int64)
    return np.lexsort([np.where(groups % 2, -lengths, lengths), groups])


def choose_lengths(
    lengths: np.ndarray, *, most: int, count: int = 5, cost: float = 0.0
) -> tuple[int, ...]:
    """The padded lengths that make the least work if examples are sorted by length.

    Args:
      lengths: of the examples, int [rows].
      most: the length of the records.
      count: the most lengths.
      cost: of one more length, in padded positions: the step is compiled once more.

    Returns:
      Ascending multiples of 8, or `most`; the last one holds the longest example.
    """
    steps = [*range(MULTIPLE, most, MULTIPLE), most]
    steps = steps[: np.searchsorted(steps, lengths.max()) + 1]
    rows_to = np.searchsorted(np.sort(lengths), steps, side="right").tolist()  # that fit each

    @functools.cache
    def least(last: int, count: int) -> tuple[float, tuple[int, ...]]:
        """The work of the rows that fit step `last`, and its lengths, the last one this step."""
        found = [(rows_to[last] * steps[last] + cost, (steps[last],))]
        for before in range(last if count > 1 else 0):
            work, chosen = least(before, count - 1)
            work += (rows_to[last] - rows_to[before]) * steps[last] + cost
            found.append((work, (*chosen, steps[last])))
        return min(found)

    return least(len(steps) - 1, count)[1]


class GivenOrder:
    """The rows of an array, [positions], each at its position."""

    def __init__(self, order: np.ndarray):
        self._order = order

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        return self._order[start:stop]


class ByLengthSampler:
    """Another sampler's rows, sorted by length within windows of some batches of an epoch.

    A window holds just the rows that the other sampler has there; its batches are shuffled. No
    window goes across the end of an epoch, so a run may end after any epoch:

        4.5 batches an epoch    | 0 1 2 | 3 | 4 5 6 | 7 8 | 9 ...     in windows of 3 batches
    """

    def __init__(
        self, sampler: Sampler, lengths: np.ndarray, *, batch_size: int, window: int, seed: int
    ):
        """Sorts nothing yet.

        Args:
          sampler: decides which rows a window has.
          lengths: of each row, int [rows].
          batch_size: B.
          window: batches of a window.
          seed: of the order of batches in a window.
        """
        self._sampler, self._lengths, self._seed = sampler, lengths, seed
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
        return self._window(begin, min(begin + self._size, last))[position - begin * size :]

    def _make_window(self, begin: int, end: int) -> np.ndarray:
        """The rows of batches `begin` to `end` - 1."""
        start, stop = begin * self._batch_size, end * self._batch_size
        rows = self._sampler.rows(start, stop)
        # Where two epochs meet each is sorted by itself: else a row would stand beside its copy.
        epochs = np.arange(start, stop) // len(self._lengths)
        rows = rows[order_by_length(self._lengths[rows], epochs)].reshape(-1, self._batch_size)
        return generator(self._seed, begin, end).permutation(rows).ravel()


class BufferedShuffleSampler:
    """The original's shuffle: the files over and over, through a buffer that random rows leave.

    It mixes little: a row can come at most a buffer's length early. To find position p it goes
    through all positions before p.
    """

    def __init__(self, num_rows: int, *, seed: int, buffer: int = 100):
        self._num_rows = num_rows
        self._random = generator(seed)
        self._buffer = [i % num_rows for i in range(buffer)]
        self._next = buffer
        self._found: list[int] = []

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        missing = max(stop - len(self._found), 0)
        for place in self._random.integers(0, len(self._buffer), missing):
            self._found.append(self._buffer[place])
            self._buffer[place] = self._next % self._num_rows
            self._next += 1
        return np.array(self._found[start:stop], np.int64)


def real_lengths(files: RecordFiles) -> np.ndarray:
    """The number of positions of each record that are not padding, int64 [rows].

    For a record of several sequences (multiple choice) that of the longest. Reads, and so checks,
    all records.
    """
    parts, begin = [], 0
    for count in files.block_records.tolist():
        mask = files.read(range(begin, begin + count))[MASK]  # [rows, C * S]
        mask = mask.reshape(count, num_sequences(files), -1)  # -> [rows, C, S]
        parts.append((mask * np.arange(1, mask.shape[-1] + 1)).max(axis=(1, 2)))
        begin += count
    return np.concatenate(parts)


def num_sequences(files: RecordFiles) -> int:
    """The number of sequences of a record: 1, or C of multiple choice."""
    return next(f.sequences for f in files.record.features if f.name == MASK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    """How fine-tuning makes batches of its records."""

    max_seq_length: int
    bucket_by_length: bool = True
    legacy_shuffle: bool = False  # the original's buffer of 100 records

    def training(
        self, files: RecordFiles, *, batch_size: int, num_train_steps: int, seed: int
    ) -> Batches:
        """Shuffled batches for that many steps; a longer run begins with the same ones."""
        if self.legacy_shuffle:
            sampler = BufferedShuffleSampler(len(files), seed=seed)
        else:
            sampler = ShuffledSampler(files.block_records, batch_size=batch_size, seed=seed)
        lengths = real_lengths(files) if self.bucket_by_length else None
        if lengths is not None:
            window = min(WINDOW, max(len(files) // batch_size, 1))
            sampler = ByLengthSampler(
                sampler, lengths, batch_size=batch_size, window=window, seed=seed
            )
        return self._batches(files, sampler, lengths, batch_size, num_train_steps * batch_size)

    def once(self, files: RecordFiles, *, batch_size: int) -> Batches:
        """Every record once."""
        order, lengths = np.arange(len(files)), None
        if self.bucket_by_length:
            lengths = real_lengths(files)
            # Sorted as far as the blocks that are kept reach, so that each is read once.
            kept = len(files) * 2 * OPEN_BLOCKS // len(files.block_records)
            order = order_by_length(lengths, order // kept)
        return self._batches(files, GivenOrder(order), lengths, batch_size, len(files))

    def _batches(
        self,
        files: RecordFiles,
        sampler: Sampler,
        lengths: np.ndarray | None,
        batch_size: int,
        num_examples: int,
    ) -> Batches:
        """Batches, cut to the lengths that cost least if `lengths` are given."""
        padded_lengths: tuple[int, ...] = ()
        if lengths is not None:
            cost = COMPILATION * len(files) / (num_examples * num_sequences(files))
            padded_lengths = choose_lengths(lengths, most=self.max_seq_length, cost=cost)
        return Batches(
            files,
            sampler,
            batch_size=batch_size,
            num_examples=num_examples,
            lengths=lengths,
            padded_lengths=padded_lengths,
        )
