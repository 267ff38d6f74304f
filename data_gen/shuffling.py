"""An external shuffle: any number of rows in bounded memory.

Every row gets a random 64-bit key; the shuffled order is the order of the keys. Keys are drawn from
the seed of a row's block, so the order is the same for any number of workers, whichever finishes
first.

    write_runs     a block's rows -> runs, files of rows sorted by key
    read_bucket    the rows of all runs whose keys lie in one part of all keys, sorted

A run is the places of its buckets, int64, and then its rows.
"""

import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

KEY_BITS = 64
PLACE_BYTES = 8
# About what the records of one bucket take; the largest part of the memory that the shuffle needs.
BUCKET_BYTES = 16 << 20
MAX_BUCKETS = 4096
RUN_BYTES = 32 << 20  # what a process keeps before it writes a run


def number_of_buckets(expected_bytes: int, *, num_parts: int = 1) -> int:
    """Enough buckets for so many bytes, as many in each of `num_parts` parts of the order.

    The order of the rows does not depend on it.
    """
    return num_parts * max(1, min(MAX_BUCKETS, 1 + expected_bytes // BUCKET_BYTES) // num_parts)


def in_order(rows: np.ndarray) -> np.ndarray:
    """Rows sorted by key; equal keys by content, so that where rows come from has no effect."""
    order = np.argsort(rows["key"])
    keys = rows["key"][order]
    if (keys[1:] == keys[:-1]).any():
        order = sorted(range(len(rows)), key=lambda row: (rows["key"][row], rows[row].tobytes()))
    return rows[order]


def split(rows: np.ndarray, num_buckets: int) -> np.ndarray:
    """Where each bucket begins in sorted rows, and where the last one ends: [num_buckets + 1].

    Bucket b has the keys for which key * num_buckets >> KEY_BITS is b.
    """
    smallest = [-(-(bucket << KEY_BITS) // num_buckets) for bucket in range(1, num_buckets)]
    inner = np.searchsorted(rows["key"], np.array(smallest, np.uint64))
    return np.array([0, *inner, len(rows)], np.int64)


def sorted_runs(parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Joins parts until they have RUN_BYTES, and sorts each such run."""
    kept: list[np.ndarray] = []
    for rows in parts:
        kept.append(rows)
        if sum(part.nbytes for part in kept) >= RUN_BYTES:
            yield in_order(np.concatenate(kept))
            kept = []
    if kept:
        yield in_order(np.concatenate(kept))


def write_runs(parts: Iterable[np.ndarray], path: str, num_buckets: int) -> list[str]:
    """Writes rows to files `path`-000, `path`-001 and so on; returns their names."""
    names = []
    for number, rows in enumerate(sorted_runs(parts)):
        names.append(f"{path}-{number:03d}")
        with open(names[-1], "wb") as file:
            file.write(split(rows, num_buckets).tobytes())
            rows.tofile(file)
    return names


def find_runs(folder: pathlib.Path) -> list[pathlib.Path]:
    """All runs in a folder."""
    return sorted(folder.glob("[0-9]*-*"))


def read_bucket(
    runs: Iterable[pathlib.Path], bucket: int, num_buckets: int, row_type: np.dtype
) -> np.ndarray:
    """The rows of a bucket in the order of their keys, from all runs."""
    parts = [np.empty(0, row_type)]
    for path in runs:
        begin, end = np.fromfile(path, np.int64, 2, offset=bucket * PLACE_BYTES).tolist()
        at = (num_buckets + 1) * PLACE_BYTES + begin * row_type.itemsize
        parts.append(np.fromfile(path, row_type, end - begin, offset=at))
    return in_order(np.concatenate(parts))
