"""Batches of records: in a sampler's order, for any replicas and hosts, from any step on.

Blocks are read in threads before they are needed; so are records parsed and checked, some batches
at a time.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data import samplers
from bert_tf.data.by_length import MULTIPLE, choose_lengths, padded_length
from bert_tf.data.records import Feature, untuned
from bert_tf.data.samplers import OPEN_BLOCKS, Sampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

MASK = "input_mask"  # the feature that tells real tokens from padding
ROWS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 12, 1 << 21  # most that are parsed at a time, in all features
PARSED_AHEAD = 2  # times, while what is before them is used
READERS = 8  # threads; more than processors, as remote files take their time
KEPT_BLOCKS = 3 * OPEN_BLOCKS  # in memory: those of open windows, of the next ones, and to spare
WINDOW = 50  # batches that training sorts by length at once, at most an epoch
# Positions that a step computes in about the time that it takes to compile it for another length.
COMPILATION = 50_000


class Batches:
    """Batches of records, on any number of replicas, from any step on.

    Batch t depends on the files, the sampler, the batch size and t, and on nothing else. A host
    reads only the blocks that its rows are in.

    With `num_examples` the last batch may be short of rows; it is filled up with another record
    whose `is_real_example` is 0, so that every batch has the same shape and no example is lost or
    counted twice.

    With `lengths` every batch is cut to the shortest padded length that holds its sequences, which
    all replicas share.

    Attributes:
      batch_size: B, rows of a batch, over all replicas together.
      num_records: in the files.
      error: the `InputError` that ended the iteration, which tf.data hides; else None.
    """

    def __init__(
        self,
        files: RecordFiles,
        sampler: Sampler,
        *,
        batch_size: int,
        num_examples: int | None = None,
        lengths: np.ndarray | None = None,
        padded_lengths: Sequence[int] = (),
    ):
        """Reads nothing yet.

        Args:
          files: the records.
          sampler: which record comes at which position.
          batch_size: B, rows of a batch, over all replicas together.
          num_examples: how many examples in all; None for endless batches.
          lengths: real tokens of each record, int [rows]; None leaves sequences as they are.
          padded_lengths: allowed lengths, ascending.

        Raises:
          InputError: a record is longer than all padded lengths.
        """
        self._files, self._sampler = files, sampler
        self.batch_size, self._num_examples = batch_size, num_examples
        self.num_records = len(files)
        self._lengths, self._padded_lengths = lengths, padded_lengths
        self.error: InputError | None = None
        if lengths is not None and lengths.max() > padded_lengths[-1]:
            raise InputError(
                f"records of up to {lengths.max()} tokens",
                f"at most {padded_lengths[-1]}",
                "make the data again with the same --max_seq_length",
            )
        numbers = sum(feature.size for feature in files.record.features)
        self._at_once = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // numbers) // batch_size)

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if they are endless."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def fingerprint(self) -> int:
        """A number that differs for other files."""
        return self._files.fingerprint()

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        rows, is_real = self._rows(range(batch, batch + 1))
        return rows[is_real]

    def length(self, batch: int) -> int | None:
        """What the sequences of a batch are cut to; None: they are left as they are."""
        if self._lengths is None:
            return None
        return padded_length(self._lengths[self.batch_rows(batch)].max(), self._padded_lengths)

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
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features and
          is_real_example float32 [B / num_parts].

        Raises:
          InputError: B is not a multiple of num_parts.
        """
        if self.batch_size % num_parts:
            raise InputError(
                f"a batch size of {self.batch_size} for {num_parts} replicas",
                "a batch size that is a multiple of the number of replicas",
                f"use a multiple of {num_parts}",
            )
        size = self.batch_size // num_parts
        here = slice(first_part * size, (first_part + parts_here) * size)

        def generate() -> Iterator[dict[str, np.ndarray]]:
            try:
                yield from self._batches(start, here)
            except InputError as error:
                self.error = error
                raise

        signature = {
            f.name: tf.TensorSpec([None, *self._shape(f)], f.batch_dtype)
            for f in self._files.record.features
        }
        signature["is_real_example"] = tf.TensorSpec([None], tf.float32)
        batches = tf.data.Dataset.from_generator(generate, output_signature=signature)
        return untuned(batches.prefetch(1).rebatch(size, drop_remainder=True).prefetch(2))

    @contextlib.contextmanager
    def record_errors(self) -> Iterator[None]:
        """Re-raises the original error of a record instead of tf.data's."""
        try:
            yield
        except tf.errors.OpError as ended:
            error, self.error = self.error, None
            if error is None:
                raise
            # What is kept of either would keep the iterator, and so the threads that read.
            traceback.clear_frames(ended.__traceback__)
            raise error.with_traceback(None) from None

    def _rows(self, batches: range) -> tuple[np.ndarray, np.ndarray]:
        """The rows of batches, int64 [batches, B], and which of them are real, bool."""
        start, stop = batches.start * self.batch_size, batches.stop * self.batch_size
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        rows = np.zeros(stop - start, np.int64)  # the first record fills up
        rows[: end - start] = self._sampler.rows(start, end)
        is_real = np.arange(start, stop) < end
        return rows.reshape(len(batches), -1), is_real.reshape(len(batches), -1)

    def _batches(self, start: int, here: slice) -> Iterator[dict[str, np.ndarray]]:
        """These rows of the batches from `start` on: of consecutive ones of one length together.

        A damaged record ends them at its batch, not some batches before.
        """
        numbers: Iterator[int] = itertools.count(start)
        if self.num_batches is not None:
            numbers = iter(range(start, self.num_batches))
        parsing: collections.deque[tuple[range, concurrent.futures.Future]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            read = functools.partial(pool.submit, self._files.read_block)
            blocks = functools.lru_cache(maxsize=KEPT_BLOCKS)(read)
            try:
                while True:
                    if batches := list(itertools.islice(numbers, self._at_once)):
                        batches = range(batches[0], batches[-1] + 1)
                        reading = pool.submit(self._reading(batches, here, blocks))
                        parsing.append((batches, reading))
                    elif not parsing:
                        return
                    if not batches or len(parsing) > PARSED_AHEAD:
                        batches, reading = parsing.popleft()
                        if reading.exception() is None:
                            yield from reading.result()
                        else:  # maybe of the last of these batches
                            for batch in batches:
                                one = range(batch, batch + 1)
                                yield from self._reading(one, here, blocks)()
            finally:
                pool.shutdown(cancel_futures=True)

    def _reading(
        self, batches: range, here: slice, block: Callable[[int], concurrent.futures.Future]
    ) -> Callable[[], list[dict[str, np.ndarray]]]:
        """Begins to read the blocks of batches; returns what parses, checks and cuts the rows."""
        rows, is_real = self._rows(batches)
        lengths = [self.length(batch) for batch in batches]
        rows, is_real = rows[:, here].ravel(), is_real[:, here].ravel()
        blocks = {n: block(n) for n in np.unique(self._files.blocks_of(rows)).tolist()}

        def read() -> list[dict[str, np.ndarray]]:
            values = self._files.read(rows, lambda block: blocks[block].result())
            own = values.get("is_real_example", True)  # a record of a task has its own, [rows, 1]
            values["is_real_example"] = np.float32(is_real & (np.ravel(own) != 0))
            cut, begin = [], 0
            for length, group in itertools.groupby(lengths):
                end = begin + (here.stop - here.start) * sum(1 for _ in group)
                some = {name: value[begin:end] for name, value in values.items()}
                cut.append(self._cut(some, length))
                begin = end
            return cut

        return read

    def _cut(self, values: dict[str, np.ndarray], length: int | None) -> dict[str, np.ndarray]:
        """Cuts sequences [rows, C * S] to a length: [rows, length], or [rows, C, length]."""
        sequences = [f for f in self._files.record.features if f.is_sequence and length is not None]
        for feature in sequences:
            value = values[feature.name]
            value = value.reshape(len(value), feature.sequences, -1)[:, :, :length]
            values[feature.name] = value if feature.sequences > 1 else value[:, 0]
        return values

    def _shape(self, feature: Feature) -> list[int | None]:
        """[S] for a sequence, [C, S] for several; S is None where batches differ in it."""
        if self._lengths is None or not feature.is_sequence:
            return [feature.size]
        length = self._padded_lengths[0] if len(self._padded_lengths) == 1 else None
        return [length] if feature.sequences == 1 else [feature.sequences, length]


def real_lengths(files: RecordFiles) -> np.ndarray:
    """The number of positions of each record that are not padding, int64 [rows].

    For a record of several sequences (multiple choice) that of the longest. Reads, and so checks,
    all records.
    """
    parts, begin = [], 0
    for count in files.block_records.tolist():
        mask = files.read(range(begin, begin + count))[MASK]
        mask = mask.reshape(count, sequences_of(files), -1)
        parts.append((mask * np.arange(1, mask.shape[-1] + 1)).max(axis=(1, 2)))
        begin += count
    return np.concatenate(parts)


def sequences_of(files: RecordFiles) -> int:
    """The number of sequences of a record: 1, or C of multiple choice."""
    return next(f.sequences for f in files.record.features if f.name == MASK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    """How fine-tuning makes batches of its records."""

    max_seq_length: int
    bucket_by_length: bool = True
    legacy_shuffle: bool = False  # the original's buffer of 100 records

    def training(
        self,
        files: RecordFiles,
        *,
        batch_size: int,
        num_train_steps: int,
        seed: int,
        run_ends: Sequence[int] = (),
    ) -> Batches:
        """Shuffled batches for that many steps.

        Args:
          files: the records.
          batch_size: B.
          num_train_steps: of the run in all.
          seed: of the order.
          run_ends: of a run that is trained further, the steps at which it once was to end, and the
            last one.
        """
        if self.legacy_shuffle:
            sampler = samplers.BufferedShuffleSampler(len(files), seed=seed)
        else:
            sampler = samplers.shuffled(files.block_records, batch_size=batch_size, seed=seed)
        return self._batches(
            files,
            sampler,
            num_train_steps * batch_size,
            batch_size=batch_size,
            window=min(WINDOW, max(len(files) // batch_size, 1)),
            ends=[step * batch_size for step in run_ends or (num_train_steps,)],
            seed=seed,
        )

    def once(self, files: RecordFiles, *, batch_size: int) -> Batches:
        """Every record once."""
        # Sorted as far as the blocks that are kept reach, so that each is read once.
        kept = len(files) * 2 * OPEN_BLOCKS // len(files.block_records)
        window, ends = -(-min(kept, len(files)) // batch_size), [len(files)]
        sampler = samplers.SequentialSampler(len(files))
        sizes = {"batch_size": batch_size, "window": window, "ends": ends}
        return self._batches(files, sampler, len(files), **sizes, seed=None)

    def _batches(
        self, files: RecordFiles, sampler: Sampler, num_examples: int, **windows: Any
    ) -> Batches:
        """Batches by length, if they are to be so; `windows` as for `ByLengthSampler`."""
        lengths = real_lengths(files)
        padded: tuple[int, ...] = (self.max_seq_length,)
        if self.bucket_by_length:
            # If no example is as long as max_seq_length, the last bucket is as long as the longest.
            longest = -(-int(lengths.max()) // MULTIPLE) * MULTIPLE
            passes = num_examples / len(files)
            padded = choose_lengths(
                lengths,
                longest=min(longest, self.max_seq_length),
                cost=COMPILATION / (passes * sequences_of(files)),
            )
            sampler = samplers.ByLengthSampler(sampler, lengths, **windows)
        return Batches(
            files,
            sampler,
            batch_size=windows["batch_size"],
            num_examples=num_examples,
            lengths=lengths,
            padded_lengths=padded,
        )
