"""Rows of similar length in one batch, of what is in memory whole: texts to predict, a table."""

from collections.abc import Iterator, Sequence

import numpy as np

# To which batches of texts are padded: of each XLA compiles a program.
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def order_by_length(lengths: Sequence[int], groups: Sequence[int]) -> np.ndarray:
    """The rows sorted by group and within each by length, int64 [rows].

    Args:
      lengths: of the rows.
      groups: the group of each row, a number. Even groups rise in length and odd ones fall, so that
        rows are similar where two groups meet.
    """
    lengths, groups = np.asarray(lengths, np.int64), np.asarray(groups, np.int64)
    return np.lexsort([np.where(groups % 2, -lengths, lengths), groups])


def batches_by_length(
    lengths: Sequence[int],
    *,
    batch_size: int,
    groups: Sequence[int] | None = None,
    most: float = np.inf,
) -> Iterator[list[int]]:
    """Batches of rows of similar length; every row once.

    Args:
      lengths: of the rows.
      batch_size: rows of a batch, at most.
      groups: the group of each row, a number; a batch is of one group. None: all are of one.
      most: the rows of a batch times their greatest length, at most; a row alone may exceed it.
    """
    groups = [0] * len(lengths) if groups is None else groups
    batch: list[int] = []
    longest = 0
    for row in order_by_length(lengths, groups).tolist():
        longest = max(longest, lengths[row])
        is_full = len(batch) == batch_size or (len(batch) + 1) * longest > most
        if batch and (is_full or groups[row] != groups[batch[0]]):
            yield batch
            batch, longest = [], lengths[row]
        batch.append(row)
    if batch:
        yield batch


def padded_length(longest: int, padded_lengths: Sequence[int]) -> int:
    """The least of ascending lengths that holds `longest`; `longest` itself if none does."""
    return next((length for length in padded_lengths if length >= longest), longest)
