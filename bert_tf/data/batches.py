"""No work on padding: batches of examples of alike length, padded to one of a few lengths.

    lengths     the real tokens of each record
    Bucketed    batches cut to the shortest of the lengths that holds their longest example

The lengths are few and fixed, so that a compiled step is compiled a few times only.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.data.samplers import Order
from bert_tf.data.records import Feature
from bert_tf.data.batches import RecordBatches
from bert_tf.data.shards import RecordFiles

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
