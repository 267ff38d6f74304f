"""Batches of records: in a sampler's order, for any number of replicas and hosts, from any step on.

    SequentialSampler    the rows as in the files, over and over
    ShuffledSampler      every row once an epoch, each epoch in a new order

No sampler has a state to save: a run that is resumed at position p gets the rows that an
uninterrupted run gets there. Rows and positions are int64.
"""

import collections
import concurrent.futures
import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.data import SEQUENCES
from bert_tf.data.records import Feature
from bert_tf.data.shards import RecordFiles, untuned
from bert_tf.errors import InputError

MOST_LANES = 64
# Lanes are long because a block at the border of two lanes is read for each of them.
LEAST_BLOCKS_OF_A_LANE = 16
OPEN_BLOCKS = 64  # in the windows of all lanes, whose records are mixed; about a megabyte each
KEPT_BLOCKS = 3 * OPEN_BLOCKS  # in memory: of these windows, of the next ones, and some to spare
ROWS_AT_ONCE = 1 << 12  # at most, parsed in one call
NUMBERS_AT_ONCE = 1 << 21  # at most, in all features of these rows
PARSED_AHEAD = 2  # calls whose rows wait while those of an earlier call are used
READERS = 8  # threads; more than processors, as remote files are slow


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
        """As in `Sampler`."""
        return np.arange(start, stop) % self._num_rows


def number_of_lanes(batch_size: int, num_blocks: int) -> int:
    """The number of lanes: a divisor of the batch size; it does not depend on the number of hosts.

    The order of the records is therefore the same on any number of hosts.
    """
    most = min(MOST_LANES, max(1, num_blocks // LEAST_BLOCKS_OF_A_LANE))
    return next(n for n in range(most, 0, -1) if batch_size % n == 0)


class ShuffledSampler:
    """Blocks in a new order each epoch, dealt to lanes, mixed within windows of a lane.

    The sequence of all blocks' records is cut into equal parts, one for each lane. A lane goes
    through its part some blocks at a time: these are its window, whose records it mixes. Each batch
    takes its first rows from lane 0, the next from lane 1, and so on. In this picture letters are
    blocks, digits are their records, and a window is one block:

        blocks of an epoch      | c c c c | a a a a | d d d d | b b b b |      2 lanes, windows of 1
        lane 0, lane 1          | c c c c   a a a a | d d d d   b b b b |
        mixed in windows        | c2 c0 c3 c1 | a1 ...   | d3 d0 d2 d1 | b0 ...
        batches of 4            [c2 c0 d3 d0] [c3 c1 d2 d1] [a1 ...

    So few blocks are open at a time, and a host reads only blocks of the lanes from which its rows
    of a batch come. Small files have one lane and one window, so that all rows are mixed.
    """

    def __init__(self, block_records: Sequence[int], *, batch_size: int, seed: int):
        """Stores the sizes; epochs and windows are planned when their rows are asked for.

        Args:
          block_records: how many records each block has, in the order of the files.
          batch_size: B.
          seed: the seed of the order.
        """
        self._sizes = np.asarray(block_records, np.int64)
        self.batch_size = batch_size
        self._seed = seed
        self._num_lanes = number_of_lanes(batch_size, len(block_records))
        # Where each lane begins in the sequence of an epoch, and where the last one ends.
        self._bounds = np.arange(self._num_lanes + 1) * int(self._sizes.sum()) // self._num_lanes
        # Two of each: some lanes begin an epoch or a window while others are still in the last one.
        self._epoch = functools.lru_cache(maxsize=2)(self._order_blocks)
        self._windows = functools.lru_cache(maxsize=2 * self._num_lanes)(self._plan_windows)
        self._window = functools.lru_cache(maxsize=2 * self._num_lanes)(self._mix_window)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """As in `Sampler`."""
        size = self.batch_size // self._num_lanes  # rows of a batch from one lane
        first_batch = start // self.batch_size
        end_batch = -(-stop // self.batch_size)
        by_lane = []
        for lane in range(self._num_lanes):
            rows_from = functools.partial(self._rows_from, lane)
            by_lane.append(joined(first_batch * size, end_batch * size, rows_from))
        rows = np.stack(by_lane).reshape(self._num_lanes, -1, size)  # [lanes, batches, size]
        rows = rows.swapaxes(0, 1).ravel()  # [batches * B]
        first_position = first_batch * self.batch_size
        return rows[start - first_position : stop - first_position]

    def _rows_from(self, lane: int, position: int) -> np.ndarray:
        """The rows of a lane from a position on, to the end of its window."""
        begin, end = self._bounds[lane : lane + 2].tolist()
        epoch, place = divmod(position, end - begin)
        starts = self._windows(lane, epoch)
        number = int(np.searchsorted(starts, begin + place, side="right")) - 1
        return self._window(lane, epoch, number)[begin + place - starts[number] :]

    def _order_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The blocks in the order of an epoch.

        Returns:
          For each block, in this order: where it ends in the sequence of the epoch, and what is
          added to a place in the sequence to get the row there. Both int64 [blocks].
        """
        blocks = generator(self._seed, epoch).permutation(len(self._sizes))
        first_rows = np.cumsum(self._sizes) - self._sizes
        sizes = self._sizes[blocks]
        ends = np.cumsum(sizes)
        begins = ends - sizes
        return ends, first_rows[blocks] - begins

    def _plan_windows(self, lane: int, epoch: int) -> np.ndarray:
        """Where a lane's windows begin in the sequence of an epoch, and where the last one ends."""
        ends, _ = self._epoch(epoch)
        begin, end = self._bounds[lane : lane + 2]
        blocks_of_a_window = -(-OPEN_BLOCKS // self._num_lanes)
        first_block = np.searchsorted(ends, begin, side="right")
        borders = ends[first_block + blocks_of_a_window - 1 :: blocks_of_a_window]
        return np.concatenate([[begin], borders[borders < end], [end]])

    def _mix_window(self, lane: int, epoch: int, number: int) -> np.ndarray:
        """The rows of a lane's window, mixed."""
        ends, shifts = self._epoch(epoch)
        begin, end = self._windows(lane, epoch)[number : number + 2]
        places = np.arange(begin, end)
        rows = places + shifts[np.searchsorted(ends, places, side="right")]
        return rows[generator(self._seed, epoch, lane, number).permutation(len(rows))]


def joined(start: int, stop: int, rows_from: Callable[[int], np.ndarray]) -> np.ndarray:
    """The rows at positions start to stop - 1; `rows_from` returns some from a position on."""
    parts = [np.empty(0, np.int64)]
    while start < stop:
        parts.append(rows_from(start)[: stop - start])
        start += len(parts[-1])
    return np.concatenate(parts)


def generator(seed: int, *place: int) -> np.random.Generator:
    """The generator of random numbers for a place in the order, such as an epoch and a lane."""
    # The length is part of the seed, as NumPy ignores zeros at its end; negative seeds it refuses.
    return np.random.default_rng([seed % 2**64, len(place), *place])


# ---------------------------------------------------------------------------- batches


class Batches:
    """Batches of records, on any number of replicas, from any step on.

    Batch t has the rows at positions t * B to (t + 1) * B - 1, plus an offset: a run that is
    resumed with another batch size continues with the rows that it has not read yet. A host reads
    only the blocks of its own rows, in threads, before they are needed.

    With `num_examples` the last batch may be short of rows. It is padded with the first record,
    whose `is_real_example` is 0 there, so that every batch has the same shape and no example is
    lost or counted twice.

    With `packing` several examples of a batch share a row, and all replicas have as many rows.

    Attributes:
      sampler: which row comes at which position.
      batch_size: B, rows of a batch, over all replicas together.
      offset: the position of the first row of batch 0.
      num_records: the number of records in the files.
      packing: how examples share rows; None: they do not.
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
        """Stores what the batches are made of; `dataset` reads the records.

        Args:
          files: the records.
          sampler: which row comes at which position.
          batch_size: B, rows of a batch, over all replicas together.
          num_examples: how many examples in all; None for endless batches.
          offset: the position of the first row of batch 0, of endless batches; may be negative
            where the first batches are not asked for.
          packing: how examples share rows, a `packing.Packing`; None: they do not.
        """
        self._files = files
        self.sampler = sampler
        self.batch_size = batch_size
        self._num_examples = num_examples
        self.offset = offset
        self.num_records = len(files)
        self.packing = packing
        self.error: InputError | None = None
        features = files.record.features
        self._choices = max(feature.sequences for feature in features)  # C
        numbers_of_a_row = sum(feature.size for feature in features)
        rows_at_once = min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // numbers_of_a_row)
        self._batches_at_once = max(1, rows_at_once // batch_size)

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if they are endless."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def shape(self, batch: int) -> int:
        """The number of rows of each part of a batch; a step is compiled for each such number."""
        return self.packing.num_rows(batch) if self.packing else self.batch_size

    def fingerprint(self) -> int:
        """A checksum of the files, as in `RecordFiles`."""
        return self._files.fingerprint()

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        rows, is_real = self._rows(range(batch, batch + 1))
        return rows[is_real]

    def rows(self, batches: range) -> np.ndarray:
        """The rows of batches, int64 [batches, B]; -1 where a batch is padded."""
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
          parts_here: how many replicas this host has; they have consecutive numbers.

        Returns:
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features,
          is_real_example float32 [B / num_parts], and sequences int32 [B / num_parts, C], the
          numbers of the sequences in the global batch. With `packing`: as in packing.py.

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
                yield from self._batches(start, rows_here, size, self._batches_at_once)
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
        except tf.errors.OpError as tensorflow_error:
            error = self.error
            self.error = None
            if error is None:
                raise
            # The tracebacks would keep the iterator alive, and with it the threads that read.
            traceback.clear_frames(tensorflow_error.__traceback__)
            raise error.with_traceback(None) from None

    def _rows(self, batches: range) -> tuple[np.ndarray, np.ndarray]:
        """The rows of batches, int64 [batches, B], and which of them are real, bool."""
        start = batches.start * self.batch_size + self.offset
        stop = batches.stop * self.batch_size + self.offset
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        rows = np.zeros(stop - start, np.int64)  # the first record is the padding
        rows[: end - start] = self.sampler.rows(start, end)
        is_real = np.arange(start, stop) < end
        return rows.reshape(len(batches), -1), is_real.reshape(len(batches), -1)

    def _batches(
        self, start: int, rows_here: slice, size: int, at_once: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """This host's rows of the batches from `start` on, of `at_once` batches parsed in one call.

        Packed, each replica's rows of a batch are an element of their own. Otherwise the rows of a
        call are one element, which `dataset` cuts again.

        A damaged record ends the iteration at its batch, not some batches before.
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
            except InputError:  # batches that were parsed with the damaged one may be whole
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
        all_rows, all_real = self._rows(batches)
        rows = all_rows[:, rows_here].ravel()
        is_real = all_real[:, rows_here].ravel()
        packed_rows = []
        if self.packing:
            packed_rows = [self.packing.fill(batch_rows) for batch_rows in self.rows(batches)]
        numbers = np.unique(self._files.blocks_of(rows)).tolist()
        blocks = {number: block(number) for number in numbers}

        def read() -> list[dict[str, np.ndarray]]:
            values = self._files.read(rows, lambda number: blocks[number].result())
            stored = values.get("is_real_example", True)  # a feature of tasks' records, [rows, 1]
            values["is_real_example"] = np.float32(is_real & (np.ravel(stored) != 0))
            if self.packing:
                return self._packed_parts(rows, values, packed_rows, rows_here, size)
            return [self._plain_rows(values, len(batches), rows_here)]

        return read

    def _plain_rows(
        self, values: dict[str, np.ndarray], num_batches: int, rows_here: slice
    ) -> dict[str, np.ndarray]:
        """The features [rows, ...] as in a batch, with the numbers of the sequences."""
        for feature in self._files.record.features:
            if feature.sequences > 1:
                value = values[feature.key]  # [rows, C * S]
                values[feature.key] = value.reshape(len(value), *_shape(feature))  # [rows, C, S]
        places = np.tile(np.arange(rows_here.start, rows_here.stop), num_batches)
        sequences = places[:, np.newaxis] * self._choices + np.arange(self._choices)  # [rows, C]
        return values | {SEQUENCES: sequences.astype(np.int32)}

    def _packed_parts(
        self,
        rows: np.ndarray,
        values: Mapping[str, np.ndarray],
        packed_rows: Sequence[np.ndarray],
        rows_here: slice,
        size: int,
    ) -> list[dict[str, np.ndarray]]:
        """The packed rows of each batch for each replica of this host.

        Args:
          rows: the rows of this host, of one batch after the other, [n].
          values: the values of these rows, [n, ...].
          packed_rows: for each batch, as `Packing.fill` returns them.
          rows_here: this host's part of a batch.
          size: examples of a replica.
        """
        parts = []
        begin = 0  # of a replica's examples among `rows`
        for filled in packed_rows:
            filled = filled.reshape(self.batch_size // size, -1, filled.shape[-1])
            for first in range(rows_here.start, rows_here.stop, size):
                examples = slice(begin, begin + size)
                parts.append(
                    self.packing.pack(
                        {name: value[examples] for name, value in values.items()},
                        self._files.record.features,
                        rows[examples],
                        filled[first // size],  # of this replica, [R, K / C]
                        first,
                    )
                )
                begin += size
        return parts


def _shape(feature: Feature) -> list[int]:
    """The shape of an example's values: [C, S] for several sequences, otherwise [size]."""
    if feature.sequences > 1:
        return [feature.sequences, feature.size // feature.sequences]
    return [feature.size]
