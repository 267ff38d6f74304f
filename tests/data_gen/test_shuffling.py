"""data_gen/shuffling.py: nothing lost, a fixed order, and every order equally likely."""

import collections
import itertools
import random

import killed
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import shuffling
from data_gen.shuffling import (
    KEY_BITS,
    find_runs,
    in_order,
    number_of_buckets,
    read_bucket,
    split,
    write_runs,
)

ROW_TYPE = np.dtype([("key", np.uint64), ("value", np.uint16, 3)])
MOST = 2**KEY_BITS - 1
keys = st.one_of(st.integers(0, MOST), st.sampled_from([0, 1, MOST, 1 << 63, MOST // 3]))
keyed = st.lists(st.tuples(keys, st.integers(0, 3)), max_size=30)


def make_rows(items) -> np.ndarray:
    return np.array([(key, (value, 0, value)) for key, value in items], ROW_TYPE)


def collected(folder, num_buckets: int) -> list[tuple[int, int]]:
    runs = find_runs(folder)
    parts = [read_bucket(runs, bucket, num_buckets, ROW_TYPE) for bucket in range(num_buckets)]
    return [(int(row["key"]), int(row["value"][2])) for row in np.concatenate(parts)]


@given(
    blocks=st.lists(st.lists(keyed, max_size=3), max_size=3),
    num_buckets=st.integers(1, 7),
    run_bytes=st.sampled_from([1, 100, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_rows_come_back_in_the_order_of_their_keys(
    tmp_path_factory, blocks, num_buckets, run_bytes
):
    """What a killed run has left of its notes beside the runs is not read."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "000002.json").write_text("{}")
    (folder / killed.left_name("000002.json")).write_bytes(bytes(100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffling, "RUN_BYTES", run_bytes)
        for number, parts in enumerate(blocks):
            write_runs(map(make_rows, parts), str(folder / f"{number:06d}"), num_buckets)
    everything = sorted(itertools.chain.from_iterable(itertools.chain.from_iterable(blocks)))
    assert collected(folder, num_buckets) == everything


@given(num_buckets=st.integers(1, 5000), key=keys)
def test_a_key_lies_in_its_bucket(num_buckets, key):
    places = split(make_rows([(key, 0)]), num_buckets)
    assert (len(places), places[-1]) == (num_buckets + 1, 1)
    assert int(np.searchsorted(places, 0, side="right")) - 1 == key * num_buckets >> KEY_BITS


def test_equal_keys_are_sorted_by_content():
    items = [(7, 2), (7, 1), (3, 9), (7, 3)]
    for given_order in itertools.permutations(items):
        assert in_order(make_rows(given_order)).tobytes() == make_rows(sorted(items)).tobytes()


def test_every_order_is_equally_likely(tmp_path):
    rng = random.Random(2)
    counts = collections.Counter()
    for trial in range(1200):
        folder = tmp_path / str(trial)
        folder.mkdir()
        items = [(rng.getrandbits(KEY_BITS), value) for value in range(3)]
        write_runs([make_rows(items)], str(folder / "0"), 2)
        counts[tuple(value for _, value in collected(folder, 2))] += 1
    assert len(counts) == 6
    # Chi-squared with 5 degrees of freedom: above 20.5 once in a thousand.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 20.5


def test_number_of_buckets_bounds_the_memory():
    for total in (0, 1, 10**8, 10**10):
        assert number_of_buckets(total) * shuffling.BUCKET_BYTES > total
        for parts in (3, 64):
            found = number_of_buckets(total, num_parts=parts)
            assert found % parts == 0
            assert found > 0
    assert number_of_buckets(0) == 1
    assert number_of_buckets(10**14) == shuffling.MAX_BUCKETS
    assert number_of_buckets(10**14, num_parts=9000) == 9000
