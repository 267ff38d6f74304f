"""The shuffling of records in training: which record comes at which position of a run.

    SequentialSampler        as in the files, over and over
    ShuffledSampler          every record once an epoch, each epoch in a new order
    BufferedShuffleSampler   the original's shuffle, through a buffer of 100 records
    ByLengthSampler          another sampler's records, neighbours of similar length

No sampler has a state to save: a run that is resumed at position p gets the rows that an
undisturbed run gets there.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Sampler(Protocol):
    """The order of the records of a run."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start to stop - 1, int64 [stop - start]."""


class SequentialSampler:
    """The rows 0 to num_rows - 1 in the order of the files, over and over."""

    def __init__(self, num_rows: int):
        self._num_rows = num_rows

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        return np.arange(start, stop) % self._num_rows


class BlockSampler:
    """Makes the order block by block; keeps the latest block."""

    def __init__(self, block_size: int):
        self._block_size = block_size
        self._latest = (-1, np.empty(0, np.int64))  # a block's number and its rows

    def make_block(self, number: int) -> np.ndarray:
        """The rows of a block, at most `block_size`."""
        raise NotImplementedError

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        parts = [np.empty(0, np.int64)]
        while start < stop:
            number, offset = divmod(start, self._block_size)
            end = min(stop, (number + 1) * self._block_size)
            parts.append(self._block(number)[offset : offset + end - start])
            start = end
        return np.concatenate(parts)

    def _block(self, number: int) -> np.ndarray:
        latest, rows = self._latest  # read together: other threads may ask too
        if number != latest:
            rows = self.make_block(number)
            self._latest = (number, rows)
        return rows


class ShuffledSampler(BlockSampler):
    """A new permutation of the rows 0 to num_rows - 1 for each epoch, made from the seed.

    Position p is row p % num_rows of the permutation of epoch p // num_rows, so every row comes
    exactly once an epoch.
    """

    def __init__(self, num_rows: int, *, seed: int):
        super().__init__(num_rows)
        self._seed = seed % 2**64  # the generator takes no negative seeds

    def make_block(self, number: int) -> np.ndarray:
        """The permutation of an epoch."""
        return np.random.default_rng([self._seed, number]).permutation(self._block_size)


class BufferedShuffleSampler:
    """The original's shuffle: the files over and over, through a buffer that random rows leave.

    It mixes little: a row can come at most a buffer's length early. To find position p it goes
    through all positions before p.
    """

    def __init__(self, num_rows: int, *, seed: int, buffer: int = 100):
        self._num_rows = num_rows
        self._random = np.random.default_rng(seed % 2**64)
        self._buffer = [i % num_rows for i in range(buffer)]
        self._next = buffer
        self._found: list[int] = []

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        missing = stop - len(self._found)
        if missing > 0:
            for place in self._random.integers(0, len(self._buffer), missing):
                self._found.append(self._buffer[place])
                self._buffer[place] = self._next % self._num_rows
                self._next += 1
        return np.array(self._found[start:stop], np.int64)


class ByLengthSampler(BlockSampler):
    """Another sampler's rows, sorted by length within windows of some batches.

    A window holds just the rows that the other sampler has there. In training its batches are
    shuffled, so that long ones do not come last. Where two epochs meet in a window, each is sorted
    by itself: else the two copies of a row, being of one length, would meet in one batch.

    No window goes across an end of the run. A run that ended and is trained further keeps its old
    end, so that the batches before it stay as they were, and every row still comes once an epoch:

        ends at 6           | 0 1 2 3 | 4 5 |            positions in windows of 4
        ends at 8           | 0 1 2 3 | 4 5 6 7 |
        6, then on to 8     | 0 1 2 3 | 4 5 | 6 7 |
    """

    def __init__(
        self,
        sampler: Sampler,
        lengths: np.ndarray,
        *,
        batch_size: int,
        window: int,
        ends: Sequence[int],
        seed: int | None,
    ):
        """Plans the windows.

        Args:
          sampler: decides which rows a window has.
          lengths: of each row, int [rows].
          batch_size: B.
          window: batches of a window.
          ends: positions at which the run ends, or once was to end, ascending; the last window
            ends at the last of them.
          seed: of the order of batches in a window; None leaves them sorted.
        """
        super().__init__(window * batch_size)
        self._sampler, self._lengths, self._seed = sampler, lengths, seed
        self._batch_size, self._ends = batch_size, ends

    def make_block(self, number: int) -> np.ndarray:
        """The rows of a window."""
        start = number * self._block_size
        # Behind the last example come only the rows that fill up the last batch.
        stop = max(start, min(start + self._block_size, self._ends[-1]))
        cuts = [start, *(end for end in self._ends if start < end < stop), stop]
        # One generator for all parts: the first part is shuffled as if there were no other.
        generator = None
        if self._seed is not None:
            generator = np.random.default_rng([self._seed % 2**64, number])
        parts = (self._sorted(*part, generator) for part in itertools.pairwise(cuts))
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _sorted(self, start: int, stop: int, generator: np.random.Generator | None) -> np.ndarray:
        """The rows at some positions of a window: sorted by length, their batches shuffled."""
        rows = self._sampler.rows(start, stop)
        epochs = np.arange(start, stop) // len(self._lengths)
        # The original's buffer can bring a row twice within an epoch.
        times = _times_before(epochs * len(self._lengths) + rows)
        # Up and down in turn, so that the rows of a batch are similar where two epochs meet.
        lengths = np.where((epochs + times) % 2, -1, 1) * self._lengths[rows]
        rows = rows[np.lexsort([lengths, times, epochs])]
        if generator is None:
            return rows
        whole = len(rows) // self._batch_size * self._batch_size
        batches = rows[:whole].reshape(-1, self._batch_size)
        return np.concatenate([generator.permutation(batches).ravel(), rows[whole:]])


def _times_before(values: np.ndarray) -> np.ndarray:
    """How often each value comes before its place."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    times = np.empty(len(values), np.int64)
    times[order] = np.arange(len(values)) - np.searchsorted(in_order, in_order)
    return times
