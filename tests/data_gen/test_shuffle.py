"""The shuffle of data_gen/pipeline.py: nothing lost, and a fixed order."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import pipeline
from data_gen.pipeline import KEY_BITS, in_order, number_of_buckets, read_bucket, split

ROW_TYPE = np.dtype([("key", np.uint64), ("value", np.uint16, 3)])
MOST = 2**KEY_BITS - 1
keys = st.one_of(st.integers(0, MOST), st.sampled_from([0, 1, MOST, 1 << 63, MOST // 3]))
keyed = st.lists(st.tuples(keys, st.integers(0, 3)), max_size=30)


def make_rows(items) -> np.ndarray:
    return np.array([(key, (value, 0, value)) for key, value in items], ROW_TYPE)


@given(blocks=st.lists(keyed, max_size=4), num_buckets=st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_rows_come_back_in_the_order_of_their_keys(tmp_path_factory, blocks, num_buckets):
    paths = [tmp_path_factory.mktemp("rows") / "block" for _ in blocks]
    for path, block in zip(paths, blocks, strict=True):
        rows = in_order(make_rows(block))
        path.write_bytes(split(rows, num_buckets).tobytes() + rows.tobytes())
    parts = [read_bucket(paths, bucket, num_buckets, ROW_TYPE) for bucket in range(num_buckets)]
    found = [(int(row["key"]), int(row["value"][2])) for row in np.concatenate(parts)]
    assert found == sorted(itertools.chain.from_iterable(blocks))


@given(num_buckets=st.integers(1, 5000), key=keys)
def test_a_key_lies_in_its_bucket(num_buckets, key):
    places = split(make_rows([(key, 0)]), num_buckets)
    assert (len(places), places[-1]) == (num_buckets + 1, 1)
    assert int(np.searchsorted(places, 0, side="right")) - 1 == key * num_buckets >> KEY_BITS


def test_equal_keys_are_sorted_by_content():
    items = [(7, 2), (7, 1), (3, 9), (7, 3)]
    for given_order in itertools.permutations(items):
        assert in_order(make_rows(given_order)).tobytes() == make_rows(sorted(items)).tobytes()


def test_number_of_buckets_bounds_the_memory():
    for total in (0, 1, 10**8, 10**10):
        assert number_of_buckets(total) * pipeline.BUCKET_BYTES > total
        for parts in (3, 64):
            found = number_of_buckets(total, num_parts=parts)
            assert found % parts == 0
            assert found > 0
    assert number_of_buckets(0) == 1
    assert number_of_buckets(10**14) == pipeline.MAX_BUCKETS
    assert number_of_buckets(10**14, num_parts=9000) == 9000
