"""Batches of rows of similar length, for data that are in memory: texts to predict, a table."""

from collections.abc import Iterator, Sequence

import numpy as np

# Batches of texts are padded to one of these lengths; XLA compiles a program for each.
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def order_by_length(lengths: Sequence[int], groups: Sequence[int]) -> np.ndarray:
    """The rows sorted by group and within each by length, int64 [rows].

    Args:
      lengths: the lengths of the rows.
      groups: the group of each row, a number. Even groups ascend in length and odd ones descend, so
        that rows are similar where two groups meet.
    """
    lengths = np.asarray(lengths, np.int64)
    groups = np.asarray(groups, np.int64)
    in_group = np.where(groups % 2, -lengths, lengths)
    return np.lexsort([in_group, groups])


def batches_by_length(
    lengths: Sequence[int],
    *,
    batch_size: int,
    groups: Sequence[int] | None = None,
    most: float = np.inf,
) -> Iterator[list[int]]:
    """Batches of rows of similar length; every row once.

    Args:
      lengths: the lengths of the rows.
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
            batch = []
            longest = lengths[row]
        batch.append(row)
    if batch:
        yield batch


def padded_length(longest: int, padded_lengths: Sequence[int]) -> int:
    """The first of ascending lengths that is enough for `longest`; `longest` itself if none is."""
    return next((length for length in padded_lengths if length >= longest), longest)
