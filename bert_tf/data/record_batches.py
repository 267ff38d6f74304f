"""Records -> batches of one length, or each cut to one of a few lengths.

    RecordFiles     row 0, row 1, row 2, ...             shards.py
    Sampler         position 0, 1, 2, ... -> row         samplers.py
    RecordBatches   batch t: the rows at positions t * B to (t + 1) * B - 1

    tokens of rows 0 to 5             7 2 3 6 8 2          records of S = 8, batches of B = 2
    as they are                       [7 2] [3 6] [8 2]    [2, 8] each
    sorted and cut                    [2 2] [3 6] [7 8]    [2, 4], [2, 8], [2, 8]

The lengths are few and fixed, so that a compiled step is compiled a few times only.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data import samplers
from bert_tf.data.batches import MULTIPLE, Batches
from bert_tf.data.records import Feature
from bert_tf.data.samplers import Sampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

MASK = "input_mask"  # the feature that tells real tokens from padding
ROWS_AT_ONCE = 4096
WINDOW = 50  # batches that training sorts by length at once, at most an epoch
# Positions that a step computes in about the time that it takes to compile it for another length.
COMPILATION = 50_000


class RecordBatches(Batches):
    """Batches in the order of a sampler; a record is read when its batch is made."""

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
          padded_lengths: allowed lengths, ascending; a batch is cut to the shortest that holds it.

        Raises:
          InputError: a record is longer than all padded lengths.
        """
        super().__init__(files.record, batch_size=batch_size, num_examples=num_examples)
        self._files, self._sampler = files, sampler
        self.num_records = len(files)
        self._lengths, self._padded_lengths = lengths, padded_lengths
        if lengths is not None and lengths.max() > padded_lengths[-1]:
            raise InputError(
                f"records of up to {lengths.max()} tokens",
                f"at most {padded_lengths[-1]}",
                "make the data again with the same --max_seq_length",
            )

    def fingerprint(self) -> int:
        """The fingerprint of the files."""
        return self._files.fingerprint()

    def _parts(self, start: int, rows: range, size: int) -> tf.data.Dataset:
        def parts() -> Iterator[dict[str, np.ndarray]]:
            batches = itertools.count(start)
            if self.num_batches is not None:
                batches = range(start, self.num_batches)
            for batch in batches:
                for row in rows[::size]:
                    first = batch * self.batch_size + row
                    yield self._cut(batch, self._read(first, first + size))

        return self._generated(parts, size)

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        return self._rows(batch * self.batch_size, (batch + 1) * self.batch_size)

    def length(self, batch: int) -> int:
        """What the sequences of a batch are cut to."""
        longest = self._lengths[self.batch_rows(batch)].max()
        return next(length for length in self._padded_lengths if length >= longest)

    def _shape(self, feature: Feature) -> list[int | None]:
        """[S] for a sequence, [C, S] for several; S is None where batches differ in it."""
        if self._lengths is None or not feature.is_sequence:
            return [feature.size]
        length = self._padded_lengths[0] if len(self._padded_lengths) == 1 else None
        return [length] if feature.sequences == 1 else [feature.sequences, length]

    def _cut(self, batch: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Cuts every sequence to the length of the whole batch, which all replicas share."""
        if self._lengths is None:
            return values
        length = self.length(batch)
        for feature in self._files.record.features:
            if feature.is_sequence:
                value = values[feature.name]
                value = value.reshape(len(value), feature.sequences, -1)[:, :, :length]
                values[feature.name] = value if feature.sequences > 1 else value[:, 0]
        return values

    def _rows(self, start: int, stop: int) -> np.ndarray:
        if self._num_examples is not None:
            stop = max(start, min(stop, self._num_examples))
        return self._sampler.rows(start, stop)

    def _read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        rows = self._rows(start, stop)
        real = np.arange(stop - start) < len(rows)
        rows = np.concatenate([rows, np.zeros(stop - start - len(rows), rows.dtype)])
        values = self._files.read(rows)
        if "is_real_example" in values:  # a record of a task has its own, int [rows, 1]
            real &= values["is_real_example"][:, 0] != 0
        return values | {"is_real_example": np.float32(real)}


def real_lengths(files: RecordFiles) -> np.ndarray:
    """The number of positions of each record that are not padding, int64 [rows].

    For a record of several sequences (multiple choice) that of the longest.
    """
    parts = []
    for start in range(0, len(files), ROWS_AT_ONCE):
        rows = range(start, min(start + ROWS_AT_ONCE, len(files)))
        mask = files.read(rows)[MASK].reshape(len(rows), sequences_of(files), -1)
        positions = np.arange(1, mask.shape[-1] + 1)
        parts.append((mask * positions).max(axis=(1, 2)))
    return np.concatenate(parts)


def sequences_of(files: RecordFiles) -> int:
    """The number of sequences of a record: 1, or C of multiple choice."""
    return next(f.sequences for f in files.record.features if f.name == MASK)


def choose_lengths(
    lengths: np.ndarray, *, longest: int, count: int = 5, cost: float = 0.0
) -> tuple[int, ...]:
    """The padded lengths that make the least work if examples are sorted by length.

    Args:
      lengths: of the examples, int [rows].
      longest: the length of the records; always the last one chosen.
      count: the most lengths.
      cost: of one more length, in padded positions: the step is compiled once more.

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
    ) -> RecordBatches:
        """Shuffled batches for that many steps.

        Args:
          files: the records.
          batch_size: B.
          num_train_steps: of the run in all.
          seed: of the order.
          run_ends: of a run that is trained further, the steps at which it once was to end, and the
            last one.
        """
        shuffled = (
            samplers.BufferedShuffleSampler if self.legacy_shuffle else samplers.ShuffledSampler
        )
        window = min(WINDOW, max(len(files) // batch_size, 1))
        return self._batches(
            files,
            shuffled(len(files), seed=seed),
            batch_size=batch_size,
            num_examples=num_train_steps * batch_size,
            window=window,
            ends=[step * batch_size for step in run_ends or (num_train_steps,)],
            seed=seed,
        )

    def once(self, files: RecordFiles, *, batch_size: int) -> RecordBatches:
        """Every record once."""
        return self._batches(
            files,
            samplers.SequentialSampler(len(files)),
            batch_size=batch_size,
            num_examples=len(files),
            window=-(-len(files) // batch_size),
            ends=[len(files)],
            seed=None,
        )

    def _batches(
        self, files: RecordFiles, sampler: Sampler, *, batch_size, num_examples, window, ends, seed
    ) -> RecordBatches:
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
            sampler = samplers.ByLengthSampler(
                sampler, lengths, batch_size=batch_size, window=window, ends=ends, seed=seed
            )
        return RecordBatches(
            files,
            sampler,
            batch_size=batch_size,
            lengths=lengths,
            padded_lengths=padded,
            num_examples=num_examples,
        )
