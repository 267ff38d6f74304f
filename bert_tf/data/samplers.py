"""Which record comes at which position of a run: pure functions of the position.

    FileOrder             as in the files, over and over
    ShuffledOrder         each epoch anew, every record once
    BufferShuffledOrder   as the original's buffer of 100 records mixes them
    ByLengthOrder         another order's records, neighbours of alike length

Nothing here has a state that would have to be saved: whoever asks for the positions from p on gets
what it would have got after asking for all before.
"""

from typing import Protocol

import numpy as np


class Order(Protocol):
    """Which row comes at which position."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start .. stop-1."""


class FileOrder:
    """The rows of 0 .. num_rows-1 in the order of the files, over and over."""

    def __init__(self, num_rows: int):
        self._num_rows = num_rows

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start .. stop-1."""
        return np.arange(start, stop) % self._num_rows


class BlockOrder:
    """An order that is made block by block, of which the latest is kept."""

    def __init__(self, block_size: int):
        self._block_size = block_size
        self._latest = (-1, np.empty(0, np.int64))  # a block's number and its rows

    def make_block(self, number: int) -> np.ndarray:
        """The rows of a block, at most `block_size`."""
        raise NotImplementedError

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start .. stop-1."""
        parts = [np.empty(0, np.int64)]
        while start < stop:
            number, offset = divmod(start, self._block_size)
            end = min(stop, (number + 1) * self._block_size)
            parts.append(self._block(number)[offset : offset + end - start])
            start = end
        return np.concatenate(parts)

    def _block(self, number: int) -> np.ndarray:
        latest, rows = self._latest  # taken together: other threads may ask too
        if number != latest:
            rows = self.make_block(number)
            self._latest = (number, rows)
        return rows


class ShuffledOrder(BlockOrder):
    """The rows of 0 .. num_rows-1 over and over, each time in a new order made from the seed.

    The row at position p is row p % num_rows of the permutation of epoch p // num_rows, so every
    row comes exactly once an epoch and any position can be asked for.
    """

    def __init__(self, num_rows: int, *, seed: int):
        super().__init__(num_rows)
        self._seed = seed % 2**64  # the generator takes no negative ones

    def make_block(self, number: int) -> np.ndarray:
        """The permutation of an epoch."""
        return np.random.default_rng([self._seed, number]).permutation(self._block_size)


class BufferShuffledOrder:
    """The original's order: the file over and over, through a buffer that a random row leaves.

    It mixes little: a row can come at most a buffer's length early. Position p is found by going
    through the positions before it.
    """

    def __init__(self, num_rows: int, *, seed: int, buffer: int = 100):
        self._num_rows = num_rows
        self._random = np.random.default_rng(seed % 2**64)
        self._buffer = [i % num_rows for i in range(buffer)]
        self._next = buffer
        self._found: list[int] = []

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start .. stop-1."""
        missing = stop - len(self._found)
        if missing > 0:
            for place in self._random.integers(0, len(self._buffer), missing):
                self._found.append(self._buffer[place])
                self._buffer[place] = self._next % self._num_rows
                self._next += 1
        return np.array(self._found[start:stop], np.int64)


class ByLengthOrder(BlockOrder):
    """Another order's rows, sorted by length within windows of a number of batches.

    In training the batches of a window are shuffled, so that long ones do not come last. Every
    window holds just the rows that the other order has there. Where it is of two epochs, those of
    each are sorted by themselves: the copies of a row, which are of one length, would else be
    brought together in one batch.
    """

    def __init__(
        self,
        order: Order,
        lengths: np.ndarray,
        *,
        batch_size: int,
        window: int,
        num_examples: int,
        seed: int | None,
    ):
        """Plans the windows.

        Args:
          order: which rows a window has.
          lengths: of each row, int [rows].
          batch_size: B.
          window: batches of a window.
          num_examples: positions in all; the last window ends there.
          seed: of the order of batches in a window; None leaves them sorted.
        """
        super().__init__(window * batch_size)
        self._order, self._lengths, self._seed = order, lengths, seed
        self._batch_size = batch_size
        self._num_examples = num_examples

    def make_block(self, number: int) -> np.ndarray:
        """The rows of a window."""
        start = number * self._block_size
        # Beyond the last example nothing is asked for but what fills up the last batch.
        stop = max(start, min(start + self._block_size, self._num_examples))
        rows = self._order.rows(start, stop)
        epochs = np.arange(start, stop) // len(self._lengths)
        # The original's buffer can bring a row twice within so many.
        times = _times_before(epochs * len(self._lengths) + rows)
        # Up and down in turn, so that rows of a batch are alike long where two epochs meet.
        lengths = np.where((epochs + times) % 2, -1, 1) * self._lengths[rows]
        rows = rows[np.lexsort([lengths, times, epochs])]
        if self._seed is None:
            return rows
        whole = len(rows) // self._batch_size * self._batch_size
        batches = rows[:whole].reshape(-1, self._batch_size)
        generator = np.random.default_rng([self._seed % 2**64, number])
        return np.concatenate([generator.permutation(batches).ravel(), rows[whole:]])


def _times_before(values: np.ndarray) -> np.ndarray:
    """How often each value comes before its place."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    times = np.empty(len(values), np.int64)
    times[order] = np.arange(len(values)) - np.searchsorted(in_order, in_order)
    return times
