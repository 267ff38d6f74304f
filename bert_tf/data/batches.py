"""No work on padding: batches of examples of alike length, padded to one of a few lengths.

    lengths     the real tokens of each record
    Bucketed    batches cut to the shortest of the lengths that holds their longest example

The lengths are few and fixed, so that a compiled step is compiled a few times only.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.data.samplers import (
    BufferShuffledOrder,
    ByLengthOrder,
    FileOrder,
    Order,
    ShuffledOrder,
)
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError


class RecordBatches:
    """Batches of records: batch t holds the rows at positions t*B .. (t+1)*B-1 of an order.

    With `num_batches` the last batch may be short of rows; it is filled up with copies of row 0
    whose `is_real_example` is 0, so that every batch has the same shape and no example is lost or
    counted twice.
    """

    def __init__(
        self,
        files: RecordFiles,
        order: Order,
        *,
        batch_size: int,
        vocab_size: int,
        num_examples: int | None = None,
    ):
        """Plans the batches.

        Args:
          files: where the records are.
          order: which record comes at which position.
          batch_size: B, rows of a batch, over all replicas together.
          vocab_size: V; an id that has no row in the embedding table is an `InputError`.
          num_examples: how many examples in all; None goes on for ever.
        """
        self._files = files
        self._order = order
        self.batch_size = batch_size
        self._vocab_size = vocab_size
        self._num_examples = num_examples
        self.error: InputError | None = None  # what ended the iteration, tf.data hides it

    @property
    def num_batches(self) -> int | None:
        """How many batches there are; None if they go on for ever."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def dataset(
        self, *, start: int = 0, num_parts: int = 1, first_part: int = 0, parts_here: int = 1
    ) -> tf.data.Dataset:
        """The batches from batch `start` on, cut into parts, one for each replica.

        Args:
          start: the first batch.
          num_parts: the replicas of all hosts; must divide B.
          first_part: the first replica of this host.
          parts_here: the replicas of this host; their parts come one after the other.

        Returns:
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features and
          is_real_example float32 [B / num_parts].
        """
        if self.batch_size % num_parts:
            raise InputError(
                received=f"a batch size of {self.batch_size} for {num_parts} replicas",
                expected="a batch size that is a multiple of the number of replicas",
                remedy=f"use a multiple of {num_parts}",
            )
        part_size = self.batch_size // num_parts

        def parts() -> Iterator[dict[str, np.ndarray]]:
            batch = start
            while self.num_batches is None or batch < self.num_batches:
                for part in range(first_part, first_part + parts_here):
                    first = batch * self.batch_size + part * part_size
                    values = self._read_or_note(first, first + part_size)
                    yield self.cut(batch, values)
                batch += 1

        shapes = {
            f.name: tf.TensorSpec([part_size, *self.shape(f)], _parsed_dtype(f))
            for f in self.features
        }
        shapes["is_real_example"] = tf.TensorSpec([part_size], tf.float32)
        dataset = tf.data.Dataset.from_generator(parts, output_signature=shapes).prefetch(2)
        options = tf.data.Options()
        # There is nothing to tune, and when training ends its thread may sleep on for a minute.
        options.autotune.enabled = False
        return dataset.with_options(options)

    @property
    def num_records(self) -> int:
        """How many records the files hold."""
        return len(self._files)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of the records."""
        return self._files.record.features

    def shape(self, feature: Feature) -> list[int | None]:
        """The shape of a feature in one example of a batch."""
        return [feature.size]

    def cut(self, batch: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values of a part of a batch, in those shapes; overridden where lengths differ."""
        del batch
        return values

    def fingerprint(self) -> int:
        """That of the files."""
        return self._files.fingerprint()

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        start, stop = batch * self.batch_size, (batch + 1) * self.batch_size
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        return self._order.rows(start, max(start, end))

    def _read_or_note(self, start: int, stop: int) -> dict[str, np.ndarray]:
        try:
            return self._read(start, stop)
        except InputError as error:
            self.error = error
            raise

    def _read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        rows = self._order.rows(start, max(start, end))
        missing = (stop - start) - len(rows)
        rows = np.concatenate([rows, np.zeros(missing, rows.dtype)])
        batch = self._files.read(rows)
        for name in ("input_ids", "masked_lm_ids"):
            if name in batch:
                self._check_ids(name, batch[name], rows)
        real = np.arange(stop - start) < stop - start - missing
        if "is_real_example" in batch:  # a record of a task says it itself, int [rows, 1]
            real &= batch["is_real_example"][:, 0] != 0
        batch["is_real_example"] = np.float32(real)
        return batch

    def _check_ids(self, name: str, ids: np.ndarray, rows: np.ndarray) -> None:
        # On a device an id beyond the table is silently clamped or gives NaN.
        bad = (ids < 0) | (ids >= self._vocab_size)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            raise InputError(
                received=f"{self._files.where(int(rows[row]))}, with the {name} "
                f"{int(ids[row][bad[row]][0])}",
                expected=f"ids from 0 to {self._vocab_size - 1}, the vocab_size of the model",
                remedy="give the configuration that belongs to the vocabulary of the data",
            )


def _parsed_dtype(feature: Feature) -> tf.DType:
    return tf.int32 if feature.dtype == tf.int64 else feature.dtype


ROWS_AT_ONCE = 4096
MULTIPLE = 8  # of which padded lengths are
MASK = "input_mask"


def real_lengths(files: RecordFiles) -> np.ndarray:
    """How many positions of each record are not padding, int64 [rows].

    Of a record of several sequences (multiple choice) it is the longest one's.
    """
    parts = []
    for start in range(0, len(files), ROWS_AT_ONCE):
        rows = range(start, min(start + ROWS_AT_ONCE, len(files)))
        mask = files.read(rows)[MASK].reshape(len(rows), sequences_of(files), -1)
        positions = np.arange(1, mask.shape[-1] + 1)
        parts.append((mask * positions).max(axis=(1, 2)))
    return np.concatenate(parts)


def sequences_of(files: RecordFiles) -> int:
    """How many sequences a record has: 1, or C of multiple choice."""
    return next(f.sequences for f in files.record.features if f.name == MASK)


def choose_lengths(
    lengths: np.ndarray, *, longest: int, count: int = 5, cost: float = 0.0
) -> tuple[int, ...]:
    """The padded lengths that make the least work if examples are sorted by length.

    Args:
      lengths: int [rows].
      longest: the length of the records; always the last one chosen.
      count: how many at most.
      cost: what one more length costs, in padded positions: the step is compiled once more.

    Returns:
      Rising multiples of 8, and `longest`.
    """
    steps = sorted({*range(MULTIPLE, longest, MULTIPLE), longest})
    rows = np.diff(np.searchsorted(np.sort(lengths), [0, *steps], side="right"))
    rows_to = np.concatenate([[0], np.cumsum(rows)])  # rows that fit the first n steps
    # least[k][j]: least work for the rows of the first j steps, with k lengths, the last one j's.
    least = np.full([count + 1, len(steps) + 1], np.inf)
    least[:, 0] = 0
    before = np.zeros([count + 1, len(steps) + 1], int)
    for k in range(1, count + 1):
        for j in range(1, len(steps) + 1):
            rows_here = rows_to[j] - rows_to[:j]
            costs = least[k - 1, :j] + rows_here * steps[j - 1] + cost * (rows_here > 0)
            before[k, j] = int(np.argmin(costs))
            least[k, j] = costs[before[k, j]]
    chosen, j = [], len(steps)
    for k in range(count, 0, -1):
        if j:
            chosen.append(steps[j - 1])
            j = before[k, j]
    return tuple(sorted(chosen))


class BucketedBatches(RecordBatches):
    """Batches whose sequences are cut to one of a few lengths."""

    def __init__(
        self,
        files: RecordFiles,
        order: Order,
        *,
        batch_size: int,
        vocab_size: int,
        lengths: np.ndarray,
        padded_lengths: Sequence[int],
        num_examples: int | None = None,
    ):
        """Plans the batches.

        Args:
          files: where the records are.
          order: which record comes at which position; a `ByLengthOrder` saves most.
          batch_size: B, rows of a batch, over all replicas together.
          vocab_size: V, as for `RecordBatches`.
          lengths: of each row, int [rows].
          padded_lengths: what sequences are cut to, rising; the last is the records' own length.
          num_examples: how many examples in all; None goes on for ever.
        """
        super().__init__(
            files, order, batch_size=batch_size, vocab_size=vocab_size, num_examples=num_examples
        )
        if lengths.max() > padded_lengths[-1]:
            raise InputError(
                received=f"records of up to {lengths.max()} tokens",
                expected=f"at most {padded_lengths[-1]}",
                remedy="make the data again with the same --max_seq_length",
            )
        self._lengths, self._padded = lengths, np.asarray(padded_lengths)

    def shape(self, feature: Feature) -> list[int | None]:
        """[S] for a sequence, [C, S] for several; S is None where batches differ in it."""
        if not feature.is_sequence:
            return [feature.size]
        length = int(self._padded[0]) if len(self._padded) == 1 else None
        return [length] if feature.sequences == 1 else [feature.sequences, length]

    def length(self, batch: int) -> int:
        """What the sequences of a batch are cut to."""
        longest = int(self._lengths[self.batch_rows(batch)].max())
        return int(self._padded[np.searchsorted(self._padded, longest)])

    def cut(self, batch: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Cuts every sequence to the length of the whole batch, which all replicas share."""
        length = self.length(batch)
        for feature in self.features:
            if feature.is_sequence:
                value = values[feature.name]
                value = value.reshape(len(value), feature.sequences, -1)[:, :, :length]
                shape = value.shape if feature.sequences > 1 else (len(value), length)
                values[feature.name] = value.reshape(shape)
        return values


WINDOW = 50  # batches of training that are sorted by length at once; no more than an epoch has


# Positions that a step computes in about the time in which it is compiled for one more length.
COMPILATION = 50_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batching:
    """How records become batches."""

    vocab_size: int
    max_seq_length: int
    bucket_by_length: bool = True
    legacy_shuffle: bool = False

    def training(
        self, files: RecordFiles, *, batch_size: int, num_train_steps: int, seed: int
    ) -> BucketedBatches:
        """Endless shuffled batches; planned up to the last step."""
        order: Order = ShuffledOrder(len(files), seed=seed)
        if self.legacy_shuffle:
            order = BufferShuffledOrder(len(files), seed=seed)
        num_examples = num_train_steps * batch_size
        window = min(WINDOW, max(len(files) // batch_size, 1))
        return self._batches(files, order, batch_size, num_examples, seed=seed, window=window)

    def once(self, files: RecordFiles, *, batch_size: int) -> BucketedBatches:
        """Every record once."""
        order = FileOrder(len(files))
        window = -(-len(files) // batch_size)
        return self._batches(files, order, batch_size, len(files), seed=None, window=window)

    def _batches(self, files, order: Order, batch_size: int, num_examples: int, *, seed, window):
        lengths = real_lengths(files)
        padded: tuple[int, ...] = (self.max_seq_length,)
        if self.bucket_by_length:
            # No example may be as long as max_seq_length; the longest has the last bucket.
            longest = -(-int(lengths.max()) // MULTIPLE) * MULTIPLE
            passes = num_examples / len(files)
            padded = choose_lengths(
                lengths,
                longest=min(longest, self.max_seq_length),
                cost=COMPILATION / (passes * sequences_of(files)),
            )
            order = ByLengthOrder(
                order,
                lengths,
                batch_size=batch_size,
                window=window,
                num_examples=num_examples,
                seed=seed,
            )
        return BucketedBatches(
            files,
            order,
            batch_size=batch_size,
            vocab_size=self.vocab_size,
            lengths=lengths,
            padded_lengths=padded,
            num_examples=num_examples,
        )
