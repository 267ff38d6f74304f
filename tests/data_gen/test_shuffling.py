"""data_gen/shuffling.py: nothing lost, a fixed order, and every order equally likely."""

import collections
import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import shuffling
from data_gen.shuffling import KEY_BITS, collect, number_of_buckets, spread

keyed = st.lists(st.tuples(st.integers(0, 2**KEY_BITS - 1), st.binary(max_size=5)), max_size=30)


@given(parts=st.lists(keyed, max_size=3), num_buckets=st.integers(1, 7))
@settings(max_examples=60)
def test_records_come_back_in_the_order_of_their_keys(tmp_path_factory, parts, num_buckets):
    folder = tmp_path_factory.mktemp("buckets")
    for part in parts:
        spread(part, folder, num_buckets=num_buckets)
    everything = sorted(itertools.chain(*parts))
    assert list(collect(folder, num_buckets=num_buckets)) == [record for _, record in everything]
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_neither_buckets_nor_buffers_change_the_order(tmp_path, monkeypatch):
    rng = random.Random(1)
    records = [(rng.getrandbits(KEY_BITS), bytes([n % 251]) * (n % 17)) for n in range(3000)]
    orders = []
    for num_buckets, buffer_bytes in ((1, 1 << 20), (5, 100), (301, 999)):
        monkeypatch.setattr(shuffling, "BUFFER_BYTES", buffer_bytes)
        folder = tmp_path / str(num_buckets)
        spread(records, folder, num_buckets=num_buckets)
        orders.append(list(collect(folder, num_buckets=num_buckets)))
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 3000


def test_every_order_is_equally_likely(tmp_path):
    rng = random.Random(2)
    counts = collections.Counter()
    for trial in range(1200):
        folder = tmp_path / str(trial)
        keyed_records = [(rng.getrandbits(KEY_BITS), name) for name in (b"a", b"b", b"c")]
        spread(keyed_records, folder, num_buckets=2)
        counts[b"".join(collect(folder, num_buckets=2))] += 1
    assert len(counts) == 6
    # Chi-squared with 5 degrees of freedom: above 20.5 once in a thousand.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 20.5


def test_number_of_buckets_bounds_the_memory():
    for total in (0, 1, 10**8, 10**11):
        assert number_of_buckets(total) * shuffling.BUCKET_BYTES > total
    assert number_of_buckets(0) == 1
    assert number_of_buckets(10**14) == shuffling.MAX_BUCKETS
