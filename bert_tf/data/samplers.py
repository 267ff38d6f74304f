"""The order of records in a run: which row comes at which position.

    SequentialSampler        as in the files, over and over
    ShuffledSampler          every row once an epoch, each epoch in a new order
    LaneSampler              the same for files of any size: blocks in a new order, mixed in windows
    BufferedShuffleSampler   the original's shuffle, through a buffer of 100 rows
    ByLengthSampler          another sampler's rows, neighbours of similar length

No sampler has a state to save: a run that is resumed at position p gets the rows that an
undisturbed run gets there. Rows and positions are int64.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from bert_tf.data.by_length import order_by_length

MOST_LANES = 64
# Each lane has blocks of its own in an epoch; those at its ends it shares with its neighbours.
LEAST_BLOCKS_OF_A_LANE = 16
OPEN_BLOCKS = 64  # of all lanes together: the records of about so many megabytes are mixed


class Sampler(Protocol):
    """The order of the records of a run."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start to stop - 1, [stop - start]."""


def shuffled(block_records: Sequence[int], *, batch_size: int, seed: int) -> Sampler:
    """Every row once an epoch, each epoch in a new order: in lanes unless the files are small.

    Args:
      block_records: how many records each block has, in the order of the files.
      batch_size: B.
      seed: of the order.
    """
    num_lanes = number_of_lanes(batch_size, len(block_records))
    if num_lanes == 1 and len(block_records) <= OPEN_BLOCKS:
        return ShuffledSampler(int(np.sum(block_records)), seed=seed)
    return LaneSampler(block_records, batch_size=batch_size, num_lanes=num_lanes, seed=seed)


class SequentialSampler:
    """The rows 0 to num_rows - 1 in the order of the files, over and over."""

    def __init__(self, num_rows: int):
        self._num_rows = num_rows

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        return np.arange(start, stop) % self._num_rows


class ShuffledSampler:
    """A new permutation of the rows 0 to num_rows - 1 for each epoch, made from the seed.

    Position p is row p % num_rows of the permutation of epoch p // num_rows, so every row comes
    exactly once an epoch.
    """

    def __init__(self, num_rows: int, *, seed: int):
        self._num_rows, self._seed = num_rows, seed
        self._epoch = functools.lru_cache(maxsize=1)(self._permutation)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        size = self._num_rows
        return _joined(start, stop, lambda place: self._epoch(place // size)[place % size :])

    def _permutation(self, epoch: int) -> np.ndarray:
        return _generator(self._seed, epoch).permutation(self._num_rows)


def number_of_lanes(batch_size: int, num_blocks: int) -> int:
    """The number of lanes of a batch: a divisor of its size, whatever the number of hosts."""
    most = min(MOST_LANES, max(1, num_blocks // LEAST_BLOCKS_OF_A_LANE))
    return next(n for n in range(most, 0, -1) if batch_size % n == 0)


class LaneSampler:
    """Blocks in a new order each epoch, dealt to lanes, mixed within windows of a lane.

    The sequence of all blocks' records is cut into as many equal parts as there are lanes. A lane
    goes through its part, some blocks at a time: these are its window, whose records it mixes. Each
    batch takes its first rows from lane 0, the next from lane 1, and so on:

        blocks of an epoch      | c c c c | a a a a | d d d d | b b b b |      2 lanes, windows of 1
        lane 0, lane 1          | c c c c   a a a a | d d d d   b b b b |
        mixed in windows        | c2 c0 c3 c1 | a1 ...   | d3 d0 d2 d1 | b0 ...
        batches of 4            [c2 c0 d3 d0] [c3 c1 d2 d1] [a1 ...

    So few blocks are open at a time, and a host reads only those of the lanes that its rows of a
    batch come from.
    """

    def __init__(self, block_records: Sequence[int], *, batch_size: int, num_lanes: int, seed: int):
        """Plans nothing yet.

        Args:
          block_records: how many records each block has, in the order of the files.
          batch_size: B.
          num_lanes: of `number_of_lanes`.
          seed: of the order.
        """
        self._sizes = np.asarray(block_records, np.int64)
        self._batch_size, self._num_lanes, self._seed = batch_size, num_lanes, seed
        # In the sequence of an epoch, where each lane begins, and at last where all end.
        self._bounds = np.arange(num_lanes + 1) * int(self._sizes.sum()) // num_lanes
        # Lanes do not end an epoch, or a window, at the same position.
        self._epoch = functools.lru_cache(maxsize=2)(self._order_blocks)
        self._windows = functools.lru_cache(maxsize=2 * num_lanes)(self._plan_windows)
        self._window = functools.lru_cache(maxsize=2 * num_lanes)(self._mix_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        size = self._batch_size // self._num_lanes  # rows of a batch from one lane
        first, last = start // self._batch_size, -(-stop // self._batch_size)
        by_lane = [
            _joined(first * size, last * size, functools.partial(self._rows_from, lane))
            for lane in range(self._num_lanes)
        ]  # lanes, [batches * size] each
        by_batch = np.stack(by_lane).reshape(self._num_lanes, -1, size).swapaxes(0, 1)
        before = first * self._batch_size
        return by_batch.ravel()[start - before : stop - before]

    def _rows_from(self, lane: int, position: int) -> np.ndarray:
        """The rows of a lane from a position on, to the end of its window."""
        begin, end = self._bounds[lane : lane + 2].tolist()
        epoch, place = divmod(position, end - begin)
        starts = self._windows(lane, epoch)
        number = int(np.searchsorted(starts, begin + place, side="right")) - 1
        return self._window(lane, epoch, number)[begin + place - starts[number] :]

    def _order_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """For each block of an epoch's sequence its end there, and row - place of its records."""
        blocks = _generator(self._seed, epoch).permutation(len(self._sizes))
        first_rows, ends = np.cumsum(self._sizes) - self._sizes, np.cumsum(self._sizes[blocks])
        return ends, first_rows[blocks] - (ends - self._sizes[blocks])

    def _plan_windows(self, lane: int, epoch: int) -> np.ndarray:
        """The places in an epoch's sequence where a lane's windows begin, and where it ends."""
        ends, _ = self._epoch(epoch)
        begin, end = self._bounds[lane : lane + 2]
        blocks_of_a_window = -(-OPEN_BLOCKS // self._num_lanes)
        first = np.searchsorted(ends, begin, side="right")
        inside = ends[first + blocks_of_a_window - 1 :: blocks_of_a_window]
        return np.concatenate([[begin], inside[inside < end], [end]])

    def _mix_window(self, lane: int, epoch: int, number: int) -> np.ndarray:
        """The rows of a window of a lane, in their order."""
        ends, shifts = self._epoch(epoch)
        places = np.arange(*self._windows(lane, epoch)[number : number + 2])
        rows = places + shifts[np.searchsorted(ends, places, side="right")]
        return rows[_generator(self._seed, epoch, lane, number).permutation(len(rows))]


class BufferedShuffleSampler:
    """The original's shuffle: the files over and over, through a buffer that random rows leave.

    It mixes little: a row can come at most a buffer's length early. To find position p it goes
    through all positions before p.
    """

    def __init__(self, num_rows: int, *, seed: int, buffer: int = 100):
        self._num_rows = num_rows
        self._random = _generator(seed)
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


class ByLengthSampler:
    """Another sampler's rows, sorted by length within windows of some batches.

    A window holds just the rows that the other sampler has there. In training its batches are
    shuffled, so that long ones do not come last. Where a row comes again in a window, as where two
    epochs meet, the second ones are sorted by themselves: else the two copies, being of one length,
    would meet in one batch.

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
            ends at the last of them, and no row comes after it.
          seed: of the order of batches in a window; None leaves them sorted.
        """
        self._sampler, self._lengths, self._seed = sampler, lengths, seed
        self._batch_size, self._size, self._ends = batch_size, window * batch_size, ends
        self._window = functools.lru_cache(maxsize=1)(self._make_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        size = self._size
        return _joined(start, stop, lambda place: self._window(place // size)[place % size :])

    def _make_window(self, number: int) -> np.ndarray:
        start = number * self._size
        stop = min(start + self._size, self._ends[-1])
        cuts = [start, *(end for end in self._ends if start < end < stop), stop]
        # One generator for all parts: the first part is shuffled as if there were no other.
        generator = None if self._seed is None else _generator(self._seed, number)
        return np.concatenate([self._sorted(*part, generator) for part in itertools.pairwise(cuts)])

    def _sorted(self, start: int, stop: int, generator: np.random.Generator | None) -> np.ndarray:
        """The rows at some positions of a window: sorted by length, their batches shuffled."""
        rows = self._sampler.rows(start, stop)
        rows = rows[order_by_length(self._lengths[rows], groups=_times_before(rows))]
        if generator is None:
            return rows
        whole = len(rows) // self._batch_size * self._batch_size
        batches = rows[:whole].reshape(-1, self._batch_size)
        return np.concatenate([generator.permutation(batches).ravel(), rows[whole:]])


def _joined(start: int, stop: int, rows_from: Callable[[int], np.ndarray]) -> np.ndarray:
    """The rows at positions start to stop - 1; `rows_from` gives some from a position on."""
    parts = [np.empty(0, np.int64)]
    while start < stop:
        parts.append(rows_from(start)[: stop - start])
        if not len(parts[-1]):
            raise IndexError(start)
        start += len(parts[-1])
    return np.concatenate(parts)


def _generator(seed: int, *place: int) -> np.random.Generator:
    """Random numbers of a place in the order; the generator takes no negative seeds."""
    return np.random.default_rng([seed % 2**64, *place])


def _times_before(values: np.ndarray) -> np.ndarray:
    """How often each value comes before its place."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    times = np.empty(len(values), np.int64)
    times[order] = np.arange(len(values)) - np.searchsorted(in_order, in_order)
    return times
