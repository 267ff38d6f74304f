"""Batches of records: in a sampler's order, for any replicas and hosts, from any step on.

    SequentialSampler    the rows as in the files, over and over
    ShuffledSampler      every row once an epoch, each epoch in a new order

No sampler has a state to save: a run that is resumed at position p gets the rows that an
undisturbed run gets there. Rows and positions are int64.
"""

import collections
import concurrent.futures
import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.data import SEQUENCES
from bert_tf.data.records import Feature
from bert_tf.data.shards import RecordFiles, untuned
from bert_tf.errors import InputError

MOST_LANES = 64
# Two lanes share the block at the border between them, and each reads it: so lanes are long.
LEAST_BLOCKS_OF_A_LANE = 16
OPEN_BLOCKS = 64  # in the open windows of all lanes, about a megabyte each; their records are mixed
KEPT_BLOCKS = 3 * OPEN_BLOCKS  # in memory: of open windows and the next ones, and some to spare
ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 12, 1 << 21  # parsed in one call at most, in all features
PARSED_AHEAD = 2  # calls whose rows wait, while those of an earlier one are used
READERS = 8  # threads; more than processors, as remote files take their time


# ---------------------------------------------------------------------------- samplers


class Sampler(Protocol):
    """The order of the records of a run."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows at positions start to stop - 1, [stop - start]."""


class SequentialSampler:
    """The rows 0 to num_rows - 1 in the order of the files, over and over."""

    def __init__(self, num_rows: int):
        self._num_rows = num_rows

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        return np.arange(start, stop) % self._num_rows


def number_of_lanes(batch_size: int, num_blocks: int) -> int:
    """The number of lanes of a batch: a divisor of its size, whatever the number of hosts."""
    most = min(MOST_LANES, max(1, num_blocks // LEAST_BLOCKS_OF_A_LANE))
    return next(n for n in range(most, 0, -1) if batch_size % n == 0)


class ShuffledSampler:
    """Blocks in a new order each epoch, dealt to lanes, mixed within windows of a lane.

    In the picture letters are blocks, digits their records, and a window is one block. The
    sequence of all blocks' records is cut into as many equal parts as there are lanes. A lane
    goes through its part, some blocks at a time: these are its window, whose records it mixes. Each
    batch takes its first rows from lane 0, the next from lane 1, and so on:

        blocks of an epoch      | c c c c | a a a a | d d d d | b b b b |      2 lanes, windows of 1
        lane 0, lane 1          | c c c c   a a a a | d d d d   b b b b |
        mixed in windows        | c2 c0 c3 c1 | a1 ...   | d3 d0 d2 d1 | b0 ...
        batches of 4            [c2 c0 d3 d0] [c3 c1 d2 d1] [a1 ...

    So few blocks are open at a time, and a host reads only those of the lanes that its rows of a
    batch come from. Small files have one lane and one window: all rows are mixed.
    """

    def __init__(self, block_records: Sequence[int], *, batch_size: int, seed: int):
        """Plans nothing yet.

        Args:
          block_records: how many records each block has, in the order of the files.
          batch_size: B.
          seed: of the order.
        """
        self._sizes = np.asarray(block_records, np.int64)
        self.batch_size, self._seed = batch_size, seed
        self._num_lanes = number_of_lanes(batch_size, len(block_records))
        # In the sequence of an epoch, where each lane begins, and at last where all end.
        self._bounds = np.arange(self._num_lanes + 1) * int(self._sizes.sum()) // self._num_lanes
        # Two of each, as some lanes begin an epoch or a window while others are still in the last.
        self._epoch = functools.lru_cache(maxsize=2)(self._order_blocks)
        self._windows = functools.lru_cache(maxsize=2 * self._num_lanes)(self._plan_windows)
        self._window = functools.lru_cache(maxsize=2 * self._num_lanes)(self._mix_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As of `Sampler`."""
        size = self.batch_size // self._num_lanes  # rows of a batch from one lane
        first, last = start // self.batch_size, -(-stop // self.batch_size)
        by_lane = [
            joined(first * size, last * size, functools.partial(self._rows_from, lane))
            for lane in range(self._num_lanes)
        ]  # lanes, [batches * size] each
        by_batch = np.stack(by_lane).reshape(self._num_lanes, -1, size).swapaxes(0, 1)
        before = first * self.batch_size
        return by_batch.ravel()[start - before : stop - before]

    def _rows_from(self, lane: int, position: int) -> np.ndarray:
        """The rows of a lane from a position on, to the end of its window."""
        begin, end = self._bounds[lane : lane + 2].tolist()
        epoch, place = divmod(position, end - begin)
        starts = self._windows(lane, epoch)
        number = int(np.searchsorted(starts, begin + place, side="right")) - 1
        return self._window(lane, epoch, number)[begin + place - starts[number] :]

    def _order_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """For each block, in the epoch's order: where it ends, and its rows minus their places."""
        blocks = generator(self._seed, epoch).permutation(len(self._sizes))
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
        return rows[generator(self._seed, epoch, lane, number).permutation(len(rows))]


def joined(start: int, stop: int, rows_from: Callable[[int], np.ndarray]) -> np.ndarray:
    """The rows at positions start to stop - 1; `rows_from` gives some from a position on."""
    parts = [np.empty(0, np.int64)]
    while start < stop:
        parts.append(rows_from(start)[: stop - start])
        start += len(parts[-1])
    return np.concatenate(parts)


def generator(seed: int, *place: int) -> np.random.Generator:
    """Random numbers of a place in the order; NumPy takes no negative seeds."""
    # With its length: NumPy draws the same for a place and for the place with zeros behind it.
    return np.random.default_rng([seed % 2**64, len(place), *place])


# ---------------------------------------------------------------------------- batches


class Batches:
    """Batches of records, on any number of replicas, from any step on.

    Batch t has the rows at positions t * B to (t + 1) * B - 1, plus an offset: where a run goes on
    with another batch size than it began with, it reads the rows that it has not read yet. A host
    reads only the blocks that its rows are in: in threads, before they are needed.

    With `num_examples` the last batch may be short of rows; it is filled up with another record
    whose `is_real_example` is 0, so that every batch has the same shape and no example is lost or
    counted twice.

    With `packing` the examples of a batch are put into rows, of one shape on all replicas.

    Attributes:
      sampler: which record comes at which position.
      batch_size: B, rows of a batch, over all replicas together.
      offset: of positions, as given.
      num_records: in the files.
      packing: how the examples are put into rows; None: they are not.
      error: the `InputError` that ended the iteration, which tf.data hides; else None.
    """

    def __init__(
        self,
        files: RecordFiles,
        sampler: Sampler,
        *,
        batch_size: int,
        num_examples: int | None = None,
        offset: int = 0,
        packing: Any = None,
    ):
        """Reads nothing yet.

        Args:
          files: the records.
          sampler: which record comes at which position.
          batch_size: B, rows of a batch, over all replicas together.
          num_examples: how many examples in all; None for endless batches.
          offset: the position of the first row of batch 0, of endless batches; may be negative, as
            the first batches have been read.
          packing: how the examples are put into rows, a `packing.Packing`; None: they are not.
        """
        self._files, self.sampler = files, sampler
        self.batch_size, self._num_examples, self.offset = batch_size, num_examples, offset
        self.num_records = len(files)
        self.packing = packing
        self.error: InputError | None = None
        numbers = sum(feature.size for feature in files.record.features)
        self._choices = max(feature.sequences for feature in files.record.features)  # C
        self._at_once = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // numbers) // batch_size)

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if they are endless."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def shape(self, batch: int) -> int:
        """The rows of each part of a batch: a program is compiled for each number of them."""
        return self.packing.num_rows(batch) if self.packing else self.batch_size

    def fingerprint(self) -> int:
        """A number that differs for other files."""
        return self._files.fingerprint()

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        rows, is_real = self._rows(range(batch, batch + 1))
        return rows[is_real]

    def rows(self, batches: range) -> np.ndarray:
        """The rows of batches, int64 [batches, B]; -1 where a batch is filled up."""
        rows, is_real = self._rows(batches)
        return np.where(is_real, rows, -1)

    def dataset(
        self, *, start: int = 0, num_parts: int = 1, first_part: int = 0, parts_here: int = 1
    ) -> tf.data.Dataset:
        """The batches from batch `start` on, each cut into one part for each replica.

        Args:
          start: the first batch.
          num_parts: replicas of all hosts; must divide B.
          first_part: the first replica of this host.
          parts_here: replicas of this host; their parts follow each other.

        Returns:
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features,
          is_real_example float32 [B / num_parts], and sequences int32 [B / num_parts, C], the
          numbers of the sequences in the global batch. Packed, as packing.py says.

        Raises:
          InputError: B is not a multiple of num_parts.
        """
        if self.batch_size % num_parts:
            received = f"a batch size of {self.batch_size} for {num_parts} replicas"
            expected = "the same number of rows for each replica"
            raise InputError(received, expected, f"use a multiple of {num_parts}")
        size = self.batch_size // num_parts
        rows_here = slice(first_part * size, (first_part + parts_here) * size)

        def generate() -> Iterator[dict[str, np.ndarray]]:
            try:
                yield from self._batches(start, rows_here, size, self._at_once)
            except InputError as error:
                self.error = error
                raise

        features = self._files.record.features
        if self.packing:
            signature = self.packing.specs(features, num_parts)
        else:
            signature = {f.key: tf.TensorSpec([None, *_shape(f)], f.batch_dtype) for f in features}
            signature["is_real_example"] = tf.TensorSpec([None], tf.float32)
            signature[SEQUENCES] = tf.TensorSpec([None, self._choices], tf.int32)
        batches = tf.data.Dataset.from_generator(generate, output_signature=signature).prefetch(1)
        if not self.packing:
            batches = batches.rebatch(size, drop_remainder=True)
        return untuned(batches.prefetch(2))

    @contextlib.contextmanager
    def record_errors(self) -> Iterator[None]:
        """Re-raises the original error of a record instead of tf.data's."""
        try:
            yield
        except tf.errors.OpError as ended:
            error, self.error = self.error, None
            if error is None:
                raise
            # Their tracebacks would keep the iterator, and with it the threads that read.
            traceback.clear_frames(ended.__traceback__)
            raise error.with_traceback(None) from None

    def _rows(self, batches: range) -> tuple[np.ndarray, np.ndarray]:
        """The rows of batches, int64 [batches, B], and which of them are real, bool."""
        start, stop = (n * self.batch_size + self.offset for n in (batches.start, batches.stop))
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        rows = np.zeros(stop - start, np.int64)  # the first record fills up
        rows[: end - start] = self.sampler.rows(start, end)
        is_real = np.arange(start, stop) < end
        return rows.reshape(len(batches), -1), is_real.reshape(len(batches), -1)

    def _batches(
        self, start: int, rows_here: slice, size: int, at_once: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """This host's rows of the batches from `start` on; packed, each replica's by themselves;
        else batches are joined, and `dataset` cuts them again.

        A damaged record ends them at its batch, not some batches before.
        """
        stop = sys.maxsize if self._num_examples is None else self.num_batches
        parsing: collections.deque[concurrent.futures.Future] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            read = functools.partial(pool.submit, self._files.read_block)
            blocks = functools.lru_cache(maxsize=KEPT_BLOCKS)(read)
            try:
                for first in range(start, stop, at_once):
                    batches = range(first, min(first + at_once, stop))
                    parsing.append(pool.submit(self._reading(batches, rows_here, size, blocks)))
                    if len(parsing) > PARSED_AHEAD:
                        yield from parsing.popleft().result()
                        start += at_once
                while parsing:
                    yield from parsing.popleft().result()
                    start += at_once
            except InputError:  # maybe of the last of the batches that were parsed together
                if at_once > 1:
                    yield from self._batches(start, rows_here, size, 1)
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def _reading(
        self,
        batches: range,
        rows_here: slice,
        size: int,
        block: Callable[[int], concurrent.futures.Future],
    ) -> Callable[[], list[dict[str, np.ndarray]]]:
        """Starts to read the blocks; returns a function that parses, checks and cuts the rows."""
        rows, is_real = self._rows(batches)
        filled = [self.packing.fill(one) for one in self.rows(batches)] if self.packing else []
        places = np.tile(np.arange(rows_here.start, rows_here.stop), len(batches))
        rows, is_real = rows[:, rows_here].ravel(), is_real[:, rows_here].ravel()
        blocks = {n: block(n) for n in np.unique(self._files.blocks_of(rows)).tolist()}
        features = self._files.record.features

        def read() -> list[dict[str, np.ndarray]]:
            values = self._files.read(rows, lambda block: blocks[block].result())
            own = values.get("is_real_example", True)  # of a task's record, [rows, 1]
            values["is_real_example"] = np.float32(is_real & (np.ravel(own) != 0))
            if not filled:
                for feature in (f for f in features if f.sequences > 1):
                    value = values[feature.key]  # [rows, C * S]
                    values[feature.key] = value.reshape(len(value), *_shape(feature))
                sequences = places[:, np.newaxis] * self._choices + np.arange(self._choices)
                return [values | {SEQUENCES: sequences.astype(np.int32)}]
            parts = []
            for number, one in enumerate(filled):
                of_replicas = one.reshape(self.batch_size // size, -1, one.shape[-1])
                begin = number * (rows_here.stop - rows_here.start)
                for first in range(rows_here.start, rows_here.stop, size):
                    at = slice(begin, begin + size)
                    part = {name: value[at] for name, value in values.items()}
                    rows_of_part = of_replicas[first // size]
                    parts.append(self.packing.pack(part, features, rows[at], rows_of_part, first))
                    begin += size
            return parts

        return read


def _shape(feature: Feature) -> list[int]:
    """[C, S] for several sequences, [size] for all else."""
    several, size = feature.sequences, feature.size
    return [several, size // several] if several > 1 else [size]
