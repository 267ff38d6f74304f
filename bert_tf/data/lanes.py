"""The order of pre-training: blocks of records, dealt to lanes, mixed within windows of a lane.

An epoch puts all blocks in a new order and cuts the sequence of their records into as many equal
parts as there are lanes. A lane goes through its part, some blocks at a time: these are its window,
whose records it mixes. Each batch takes its first rows from lane 0, the next from lane 1, and so
on:

    blocks of an epoch      | c c c c | a a a a | d d d d | b b b b |       2 lanes, windows of 1
    lane 0, lane 1          | c c c c   a a a a | d d d d   b b b b |
    mixed in windows        | c2 c0 c3 c1 | a1 ...   | d3 d0 d2 d1 | b0 ...
    batches of 4            [c2 c0 d3 d0] [c3 c1 d2 d1] [a1 ...

What a lane has at a position follows from the seed and the sizes of the blocks alone. So any batch
can be made without those before it, on any number of hosts, each of which reads its lanes' blocks.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

MOST_LANES = 64
# Each lane has blocks of its own in an epoch; those at its ends it shares with its neighbours.
LEAST_BLOCKS_OF_A_LANE = 16
OPEN_BLOCKS = 64  # of all lanes together: the records of about so many megabytes are mixed


@dataclasses.dataclass(frozen=True)
class Window:
    """Records of a lane that are read together.

    Attributes:
      pieces: block, its first record that is taken, and how many; one piece after the other.
      rows: the places of its records in the joined pieces, in their order, int64 [rows].
    """

    pieces: tuple[tuple[int, int, int], ...]
    rows: np.ndarray

    def record(self, number: int) -> tuple[int, int]:
        """The block of the record that comes as number `number`, and its place in the block."""
        place = int(self.rows[number])
        for block, first, count in self.pieces:
            if place < count:
                return block, first + place
            place -= count
        raise IndexError(number)


def number_of_lanes(batch_size: int, num_blocks: int) -> int:
    """How many lanes make a batch: a divisor of its size, whatever the number of hosts."""
    most = min(MOST_LANES, max(1, num_blocks // LEAST_BLOCKS_OF_A_LANE))
    return next(n for n in range(most, 0, -1) if batch_size % n == 0)


class Lanes:
    """Which records each lane has, epoch after epoch.

    Attributes:
      is_small: whether all records are mixed as one.
    """

    def __init__(self, block_records: Sequence[int], *, num_lanes: int, seed: int | None):
        """Plans nothing yet.

        Args:
          block_records: how many records each block has, in the order of the files.
          num_lanes: of `number_of_lanes`.
          seed: of the order; None leaves blocks and records in the order of the files.
        """
        self._sizes = np.asarray(block_records, np.int64)
        self._num_lanes = num_lanes
        self._seed = None if seed is None else seed % 2**64  # the generator takes no negative seeds
        # Without a seed nothing is mixed, and one block at a time is enough.
        self._blocks_of_a_window = 1 if seed is None else -(-OPEN_BLOCKS // num_lanes)
        # An epoch of one window is a permutation of all records: blocks need no order.
        self.is_small = num_lanes == 1 and len(self._sizes) <= self._blocks_of_a_window
        self._bounds = np.arange(num_lanes + 1) * int(self._sizes.sum()) // num_lanes
        self._epoch = functools.lru_cache(maxsize=2)(self._plan_epoch)  # lanes do not end at once

    def windows(self, lane: int, position: int) -> Iterator[Window]:
        """The windows of a lane from the record on that comes there as number `position`; endless.

        Of the first one only the records from that one on are left.
        """
        begin, end = self._bounds[lane : lane + 2].tolist()
        epoch, skipped = divmod(position, end - begin)
        while True:
            blocks, ends = self._epoch(epoch)
            first, last = np.searchsorted(ends, [begin, end - 1], side="right").tolist()
            for number, block in enumerate(range(first, last + 1, self._blocks_of_a_window)):
                stop = min(block + self._blocks_of_a_window, last + 1)
                num_rows = min(ends[stop - 1], end) - max(ends[block - 1] if block else 0, begin)
                if skipped >= num_rows:
                    skipped -= num_rows
                    continue
                pieces = []
                for place in range(block, stop):
                    size = self._sizes[blocks[place]]
                    before = ends[place] - size
                    start, until = max(begin - before, 0), min(end - before, size)
                    pieces.append((int(blocks[place]), int(start), int(until - start)))
                rows = np.arange(num_rows)
                if self._seed is not None:
                    place = () if self.is_small else (lane, number)
                    rows = self._generator(epoch, *place).permutation(num_rows)
                yield Window(tuple(pieces), rows[skipped:])
                skipped = 0
            epoch += 1

    def _plan_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The blocks of an epoch in their order, and the sum of records up to each one's end."""
        blocks = np.arange(len(self._sizes))
        if self._seed is not None and not self.is_small:
            blocks = self._generator(epoch).permutation(blocks)
        return blocks, np.cumsum(self._sizes[blocks])

    def _generator(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *place])
