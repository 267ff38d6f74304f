"""Samplers: every row as often as it should come, however the positions are asked for."""

import concurrent.futures
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data import samplers
from bert_tf.data.samplers import (
    BufferedShuffleSampler,
    ByLengthSampler,
    LaneSampler,
    SequentialSampler,
    ShuffledSampler,
    number_of_lanes,
)

BLOCKS = st.lists(st.integers(1, 9), min_size=1, max_size=90)


def make(kind: str, blocks: list[int], batch_size: int, seed: int):
    num_rows = sum(blocks)
    if kind == "lanes":  # as many as can have a row each
        most = min(batch_size, num_rows)
        num_lanes = next(n for n in range(most, 0, -1) if batch_size % n == 0)
        return LaneSampler(blocks, batch_size=batch_size, num_lanes=num_lanes, seed=seed)
    if kind == "by length":
        lengths = np.arange(num_rows) % 7
        under = ShuffledSampler(num_rows, seed=seed)
        return ByLengthSampler(
            under, lengths, batch_size=batch_size, window=3, ends=[5000], seed=seed
        )
    return {
        "in order": lambda: SequentialSampler(num_rows),
        "shuffled": lambda: ShuffledSampler(num_rows, seed=seed),
        "buffered": lambda: BufferedShuffleSampler(num_rows, seed=seed, buffer=9),
    }[kind]()


@pytest.mark.parametrize("kind", ["in order", "shuffled", "lanes", "buffered", "by length"])
@given(
    blocks=BLOCKS,
    batch_size=st.integers(1, 8),
    seed=st.integers(-(2**40), 2**40),
    cuts=st.lists(st.integers(0, 1300), min_size=3, max_size=3).map(sorted),
)
@settings(max_examples=40, deadline=None)
def test_rows_are_a_function_of_the_position(kind, blocks, batch_size, seed, cuts):
    sampler, other = (make(kind, blocks, batch_size, seed) for _ in range(2))
    a, b, c = cuts
    whole = sampler.rows(0, c).tolist()
    # Another sampler, asked for the later part first: no state that could tell.
    assert other.rows(b, c).tolist() == whole[b:]
    assert other.rows(a, b).tolist() == whole[a:b]
    assert other.rows(0, c).dtype == np.int64


@pytest.mark.parametrize("kind", ["in order", "shuffled", "lanes"])
@given(blocks=BLOCKS, batch_size=st.integers(1, 8), seed=st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_every_row_once_an_epoch(kind, blocks, batch_size, seed):
    """In lanes, each in its own epoch."""
    num_rows, sampler = sum(blocks), make(kind, blocks, batch_size, seed)
    lanes = getattr(sampler, "_num_lanes", 1)
    by_lane = sampler.rows(0, 3 * batch_size * num_rows).reshape(-1, lanes, batch_size // lanes)
    for epoch in range(2):
        rows = []
        for lane in range(lanes):
            size = (lane + 1) * num_rows // lanes - lane * num_rows // lanes
            rows += by_lane[:, lane].ravel()[epoch * size : (epoch + 1) * size].tolist()
        assert sorted(rows) == list(range(num_rows))
        assert kind != "in order" or rows == sorted(rows)


@pytest.mark.parametrize("kind", ["shuffled", "lanes"])
def test_epochs_and_seeds_differ(kind):
    orders = [make(kind, [5] * 400, 4, seed).rows(e * 2000, e * 2000 + 2000)
              for seed, e in ((0, 0), (0, 1), (1, 0))]  # fmt: skip
    for one, other in itertools.combinations(orders, 2):
        assert sum(one == other) < 20
    if kind == "lanes":  # of the blocks, not only within them
        of_lane_1 = [set((rows[1::4] // 5).tolist()) for rows in orders]
        assert len(of_lane_1[0] & of_lane_1[1]) < 60


def test_a_shuffle_is_even():
    """Every row comes at every place about equally often: 50 of 550 draws, 6.7 the deviation."""
    counts = np.zeros([11, 11])
    for seed in range(11):
        rows = ShuffledSampler(11, seed=seed).rows(0, 550).reshape(50, 11)
        assert len({tuple(epoch) for epoch in rows.tolist()}) == 50
        for epoch in rows:
            counts[range(11), epoch] += 1
    assert np.abs(counts - 50).max() < 5 * 6.7


def test_from_many_threads():
    sampler = ShuffledSampler(101, seed=7)
    expected = [ShuffledSampler(101, seed=7).rows(i * 40, i * 40 + 40).tolist() for i in range(9)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda i: sampler.rows(i % 9 * 40, i % 9 * 40 + 40).tolist(), range(900))
        assert list(found) == expected * 100


# ---------------------------------------------------------------------------- lanes


@pytest.mark.parametrize(
    ("batch_size", "num_blocks", "expected"),
    [
        (256, 10**6, 64),
        (32, 10**6, 32),
        (96, 10**6, 48),
        (37 * 2, 10**6, 37),
        (7, 10**6, 7),
        (1, 10**6, 1),
        (32, 1, 1),
        (32, 31, 1),
        (32, 32, 2),
        (48, 100, 6),
    ],
)
def test_number_of_lanes(batch_size, num_blocks, expected):
    assert number_of_lanes(batch_size, num_blocks) == expected
    sampler = samplers.shuffled([3] * min(num_blocks, 200), batch_size=batch_size, seed=1)
    assert isinstance(sampler, ShuffledSampler if num_blocks <= 31 else LaneSampler)


def test_a_window_mixes_its_blocks():
    """Records of one block come far apart: 64 blocks are open at once, in all lanes together."""
    sampler = LaneSampler([100] * 640, batch_size=4, num_lanes=4, seed=3)
    blocks = sampler.rows(0, 6400).reshape(1600, 4)[:, 2] // 100  # the first window of a lane
    assert np.bincount(blocks)[blocks].tolist() == [100] * 1600
    for block in set(blocks.tolist()):
        places = np.flatnonzero(blocks == block)
        assert 600 < places.mean() < 1000
        assert places.min() < 200
        assert places.max() > 1400


def test_a_billion_records_are_planned_at_once():
    """What is read next, some terabytes into a run, is known in a moment."""
    sampler = LaneSampler(np.full(10**6, 1000), batch_size=64, num_lanes=64, seed=3)
    rows = sampler.rows(40 * 10**9, 40 * 10**9 + 64)
    assert len(set((rows // 1000).tolist())) == 64


# ---------------------------------------------------------------------------- the original's buffer


@given(num_rows=st.integers(1, 13), buffer=st.integers(1, 9), seed=st.integers(-3, 2**40))
def test_a_buffer_is_filled_from_the_files_and_left_at_random(num_rows, buffer, seed):
    held = [position % num_rows for position in range(buffer)]
    rows = BufferedShuffleSampler(num_rows, seed=seed, buffer=buffer).rows(0, 60)
    for position, row in enumerate(rows.tolist()):
        held.remove(row)  # it was in the buffer
        held.append((buffer + position) % num_rows)


def test_a_buffer_mixes_by_the_seed():
    orders = {tuple(BufferedShuffleSampler(101, seed=seed).rows(0, 99)) for seed in range(20)}
    assert len(orders) == 20
    assert not any(list(rows) == sorted(rows) for rows in orders)


# ---------------------------------------------------------------------------- by length


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(np.array),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 4),
    seed=st.none() | st.integers(0, 3),
)
def test_each_window_has_the_rows_of_the_other_sampler(lengths, batch_size, window, seed):
    num_rows, num_examples, size = len(lengths), 60, window * batch_size
    under = ShuffledSampler(num_rows, seed=5)
    sampler = ByLengthSampler(
        under, lengths, batch_size=batch_size, window=window, ends=[num_examples], seed=seed
    )
    with pytest.raises(IndexError):
        sampler.rows(0, num_examples + 1)
    for start in range(0, num_examples, size):
        stop = min(start + size, num_examples)
        mine = sampler.rows(start, stop)
        assert sorted(mine) == sorted(under.rows(start, stop))
        batches = [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]
        epochs_begun = (stop - 1) // num_rows - start // num_rows
        if batch_size <= num_rows:  # a row comes twice only where its copies begin
            assert sum(len(set(one)) < len(one) for one in batches) <= epochs_begun
        if epochs_begun:
            continue
        shortest_first = sorted(batches, key=lambda r: (lengths[r].max(), lengths[r].min()))
        for one, next_one in itertools.pairwise(shortest_first):
            assert lengths[one].max() <= lengths[next_one].min()  # neighbours are alike
        if seed is None:
            assert (np.diff(lengths[mine]) >= 0).all()


def test_copies_of_a_row_are_sorted_by_themselves():
    """Else the three copies of a row would make up a batch."""
    lengths = np.array([5, 1, 3])
    sampler = ByLengthSampler(
        SequentialSampler(3), lengths, batch_size=3, window=3, ends=[9], seed=None
    )  # up, down, up
    assert sampler.rows(0, 9).tolist() == [1, 2, 0, 0, 2, 1, 1, 2, 0]


@pytest.mark.parametrize("num_rows", [5, 23, 150])
def test_copies_that_the_buffer_brings_together_do_not_make_up_a_batch(num_rows):
    """Of distinct lengths, a row is beside its copy only where one sorted run ends."""
    lengths = np.random.default_rng(0).permutation(num_rows)
    under = BufferedShuffleSampler(num_rows, seed=7)
    sampler = ByLengthSampler(
        under, lengths, batch_size=num_rows, window=1, ends=[10 * num_rows], seed=None
    )
    for start in range(0, 10 * num_rows, num_rows):
        rows = sampler.rows(start, start + num_rows)
        assert np.count_nonzero(np.diff(rows) == 0) < np.bincount(rows).max()


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(np.array),
    batch_size=st.integers(1, 5),
    window=st.integers(1, 7),
    legs=st.lists(st.integers(1, 17), min_size=1, max_size=4),
    seed=st.none() | st.integers(0, 3),
)
def test_a_longer_run_begins_as_the_shorter_one_was(lengths, batch_size, window, legs, seed):
    """Wherever it ended; so each row that the other sampler has comes, and comes once."""
    under, ends = ShuffledSampler(len(lengths), seed=5), np.cumsum(legs) * batch_size
    sizes = {"batch_size": batch_size, "window": window}

    def rows(number: int) -> list[int]:
        """Of a run that has been made longer so many times."""
        some = ends[: number + 1].tolist()
        return ByLengthSampler(under, lengths, **sizes, ends=some, seed=seed).rows(0, some[-1])

    longest = rows(len(legs) - 1)
    for number, end in enumerate(ends):
        assert longest[:end].tolist() == rows(number).tolist()
        assert sorted(longest[:end]) == sorted(under.rows(0, end))
