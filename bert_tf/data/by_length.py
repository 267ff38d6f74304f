"""Rows of similar length side by side, and the lengths to which their batches are padded.

    lengths of rows 0 to 5            7 2 3 6 8 2          batches of B = 2, padded to 4 or 8
    in their order                    [7 2] [3 6] [8 2]    [2, 8] each
    by length                         [2 2] [3 6] [7 8]    [2, 4], [2, 8], [2, 8]

Padded lengths are few and fixed, so that a compiled step is compiled a few times only.
"""

from collections.abc import Iterator, Sequence

import numpy as np

MULTIPLE = 8  # chosen lengths are multiples of it


def order_by_length(lengths: Sequence[int], groups: Sequence[int] | None = None) -> np.ndarray:
    """The rows sorted by group and within each by length, int64 [rows].

    Args:
      lengths: of the rows.
      groups: the group of each row, a number; None for a single one. Even groups rise in length and
        odd ones fall, so that rows are similar where two groups meet.
    """
    lengths = np.asarray(lengths, np.int64)
    if groups is None:
        return np.argsort(lengths, kind="stable")
    groups = np.asarray(groups, np.int64)
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
    batch: list[int] = []
    longest = 0
    for row in order_by_length(lengths, groups).tolist():
        longest = max(longest, lengths[row])
        is_full = len(batch) == batch_size or (len(batch) + 1) * longest > most
        if batch and (is_full or (groups is not None and groups[row] != groups[batch[0]])):
            yield batch
            batch, longest = [], lengths[row]
        batch.append(row)
    if batch:
        yield batch


def padded_length(longest: int, padded_lengths: Sequence[int]) -> int:
    """The least of ascending lengths that holds `longest`; `longest` itself if none does."""
    return next((length for length in padded_lengths if length >= longest), longest)


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
      Ascending multiples of 8, and `longest`.
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
