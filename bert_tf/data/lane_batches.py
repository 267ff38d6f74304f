"""Blocks -> batches: the reading of pre-training, for files of any size.

    BlockFiles     block 0, block 1, ...                           blocks.py
    Lanes          lane, position -> windows of some blocks        lanes.py
    LaneBatches    batch t: from each lane its records at t * R to (t + 1) * R - 1, R = B / lanes

Windows are read in threads, each before it is needed; so are records parsed and checked, some
batches at a time.
"""

import collections
import concurrent.futures
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_tf.data.batches import Batches
from bert_tf.data.blocks import BlockFiles
from bert_tf.data.lanes import Lanes, Window, number_of_lanes
from bert_tf.errors import InputError

ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 12, 1 << 21  # most that are parsed at a time, in all features
PARSED_AHEAD = 2  # times, while what is before them is used
READERS = 8  # threads; more than processors, as remote files take their time


class LaneBatches(Batches):
    """Shuffled batches of files of any size; without a seed the records in their order.

    Batch t depends on the files, the batch size, the seed and t, and on nothing else. Each host
    reads the blocks of the lanes that its rows come from.
    """

    def __init__(
        self,
        files: BlockFiles,
        *,
        batch_size: int,
        seed: int | None,
        num_examples: int | None = None,
    ):
        """Reads nothing yet.

        Args:
          files: the records.
          batch_size: B, rows of a batch, over all replicas together.
          seed: of the order; None for that of the files, over and over.
          num_examples: how many examples in all; None for endless batches.
        """
        super().__init__(files.record, batch_size=batch_size, num_examples=num_examples)
        self._files = files
        self.num_records = len(files)
        blocks = len(files.block_records)
        self.num_lanes = 1 if seed is None else number_of_lanes(batch_size, blocks)
        self._lanes = Lanes(files.block_records, num_lanes=self.num_lanes, seed=seed)
        self.order = "as one" if self._lanes.is_small else "in lanes"
        numbers = sum(feature.size for feature in files.record.features)
        rows_at_once = min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // numbers)
        self._batches_at_once = max(1, rows_at_once // batch_size)

    def fingerprint(self) -> int:
        """The fingerprint of the files."""
        return self._files.fingerprint()

    def _parts(self, start: int, rows: range, size: int) -> tf.data.Dataset:
        made = self._generated(lambda: self._rows_of_batches(start, rows), None)
        return made.prefetch(1).rebatch(size, drop_remainder=True)

    def _rows_of_batches(self, start: int, rows: range) -> Iterator[dict[str, np.ndarray]]:
        """The values of these rows of the batches from `start` on, of some batches at a time.

        A record that is damaged ends them at its batch, not some batches before.
        """
        at_once, ahead = self._batches_at_once, PARSED_AHEAD
        while self.num_batches is None or start < self.num_batches:
            try:
                for values in self._read(start, rows, at_once, ahead):
                    yield values
                    start += len(values["is_real_example"]) // len(rows)
                return
            except InputError:
                if not ahead:
                    raise
                at_once, ahead = 1, 0

    def _read(
        self, start: int, rows: range, at_once: int, ahead: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """As `_rows_of_batches`, with so many batches at a time, and so many times ahead."""
        size = self.batch_size // self.num_lanes  # rows of a batch from one lane
        numbers = range(rows.start // size, -(-rows.stop // size))
        parsing: collections.deque[concurrent.futures.Future] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            lanes = [_Lane(self, pool, lane, start * size) for lane in numbers]
            try:
                while self.num_batches is None or start < self.num_batches:
                    count = at_once if self.num_batches is None else self.num_batches - start
                    count = min(count, at_once)
                    taken = [lane.take(count * size) for lane in lanes]
                    batches = range(start, start + count)
                    parsing.append(pool.submit(self._values, taken, batches, rows))
                    if len(parsing) > ahead:
                        yield parsing.popleft().result()
                    start += count
                while parsing:
                    yield parsing.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _are_real(self, batches: range, rows: range) -> np.ndarray:
        """1 for the rows of batches that are to be counted, 0 for what fills up."""
        examples = np.add.outer(np.array(batches) * self.batch_size, np.array(rows))
        real = True if self._num_examples is None else examples < self._num_examples
        return np.float32(np.broadcast_to(real, examples.shape)).ravel()

    def _values(self, taken: list["_Taken"], batches: range, rows: range) -> dict[str, np.ndarray]:
        """Records of each lane, some batches of them -> checked values, batch after batch."""
        with tf.device("CPU:0"):
            serialized = tf.concat([part for lane in taken for part in lane.parts], 0)
        stored = self._record.checked(
            serialized, where=lambda place: self._where(taken, place)
        )  # [lanes * count * R, size]
        # Of the first and the last lane another host may have some rows.
        others = rows.start % (self.batch_size // self.num_lanes)
        here = slice(others, others + len(rows))
        values = {"is_real_example": self._are_real(batches, rows)}
        for feature in self._record.features:
            by_lane = stored[feature.name].reshape(len(taken), len(batches), -1, feature.size)
            shape = (len(batches), len(taken), by_lane.shape[2], feature.size)
            by_batch = np.empty(shape, feature.batch_dtype)
            by_batch[...] = by_lane.swapaxes(0, 1)
            of_host = by_batch.reshape(len(batches), -1, feature.size)[:, here]
            values[feature.name] = of_host.reshape(-1, feature.size)
        return values

    def _where(self, taken: list["_Taken"], place: int) -> str:
        for lane in taken:
            for part, window, first in zip(lane.parts, lane.windows, lane.firsts, strict=True):
                if place < len(part):
                    return self._files.where(*window.record(first + place))
                place -= len(part)
        raise IndexError(place)

    def load(self, window: Window) -> tf.Tensor:
        """The pieces of a window, serialized: string [records]."""
        pieces = [self._files.read(*piece) for piece in window.pieces]
        with tf.device("CPU:0"):
            return pieces[0] if len(pieces) == 1 else tf.concat(pieces, 0)


class _Taken:
    """Records of a lane: the parts of windows that they are in."""

    def __init__(self):
        self.parts: list[tf.Tensor] = []
        self.windows: list[Window] = []
        self.firsts: list[int] = []  # place of the part in its window


class _Lane:
    """The records of one lane, one after the other; the next window is read beforehand."""

    def __init__(self, batches: LaneBatches, pool, number: int, position: int):
        self._windows = batches._lanes.windows(number, position)
        self._submit = lambda window: pool.submit(batches.load, window)
        self._window, self._records = None, None
        self._rows, self._place = np.empty(0, np.int64), 0  # of the window; how many are taken
        self._begin_next()

    def _begin_next(self) -> None:
        self._next = next(self._windows)
        self._loading = self._submit(self._next)

    def take(self, count: int) -> _Taken:
        """The next records."""
        taken = _Taken()
        while count:
            if self._place == len(self._rows):
                self._records, self._window = self._loading.result(), self._next
                self._rows, self._place = self._window.rows, 0
                self._begin_next()
            rows = self._rows[self._place : self._place + count]
            with tf.device("CPU:0"):
                taken.parts.append(tf.raw_ops.GatherV2(params=self._records, indices=rows, axis=0))
            taken.windows.append(self._window)
            taken.firsts.append(self._place)
            self._place += len(rows)
            count -= len(rows)
        return taken
