"""Samplers: every row as often as it should come, however the positions are asked for."""

import concurrent.futures
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.samplers import (
    BufferedShuffleSampler,
    ByLengthSampler,
    SequentialSampler,
    ShuffledSampler,
)


@given(
    num_rows=st.integers(1, 13),
    seed=st.integers(0, 2**40),
    cuts=st.lists(st.integers(0, 60), min_size=3, max_size=3).map(sorted),
)
def test_shuffled_sampler(num_rows, seed, cuts):
    sampler, other = ShuffledSampler(num_rows, seed=seed), ShuffledSampler(num_rows, seed=seed)
    a, b, c = cuts
    joined = np.concatenate([sampler.rows(a, b), sampler.rows(b, c)])
    # Another sampler, asked for the later part first: no state that could tell.
    later, earlier = other.rows(b, c), other.rows(a, b)
    assert joined.tolist() == other.rows(a, c).tolist() == [*earlier, *later]
    for epoch in range(3):
        epoch_rows = sampler.rows(epoch * num_rows, (epoch + 1) * num_rows)
        assert sorted(epoch_rows) == list(range(num_rows))


def test_shuffled_sampler_differs_between_epochs_and_seeds():
    def epochs(seed):
        return {tuple(ShuffledSampler(11, seed=seed).rows(i * 11, i * 11 + 11)) for i in range(50)}

    assert len(epochs(3)) == 50
    assert not epochs(3) & epochs(4)
    # Every row comes at every place about equally often: 50 of 550 draws, 6.7 the deviation.
    counts = np.zeros([11, 11])
    for seed in range(11):
        for epoch in epochs(seed):
            counts[range(11), epoch] += 1
    assert counts.sum() == 550 * 11
    assert np.abs(counts - 50).max() < 5 * 6.7


def test_shuffled_sampler_from_many_threads():
    sampler = ShuffledSampler(101, seed=7)
    expected = [ShuffledSampler(101, seed=7).rows(i * 40, i * 40 + 40).tolist() for i in range(9)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [i % 9 for i in range(900)]
        for i, rows in zip(
            asked, pool.map(lambda i: sampler.rows(i * 40, i * 40 + 40), asked), strict=True
        ):
            assert rows.tolist() == expected[i]


@given(num_rows=st.integers(1, 13), start=st.integers(0, 50), size=st.integers(0, 30))
def test_sequential_sampler(num_rows, start, size):
    rows = SequentialSampler(num_rows).rows(start, start + size)
    assert rows.tolist() == [position % num_rows for position in range(start, start + size)]


@given(
    num_rows=st.integers(1, 13),
    buffer=st.integers(1, 9),
    seed=st.integers(-3, 2**40),
    cuts=st.lists(st.integers(0, 60), min_size=2, max_size=2).map(sorted),
)
def test_a_buffer_is_filled_from_the_files_and_left_at_random(num_rows, buffer, seed, cuts):
    sampler = BufferedShuffleSampler(num_rows, seed=seed, buffer=buffer)
    a, b = cuts
    later, earlier = sampler.rows(a, b).tolist(), sampler.rows(0, a).tolist()
    assert [*earlier, *later] == sampler.rows(0, b).tolist()
    held = [position % num_rows for position in range(buffer)]
    for position, row in enumerate([*earlier, *later]):
        held.remove(row)  # it was in the buffer
        held.append((buffer + position) % num_rows)


def test_a_buffer_mixes_by_the_seed():
    orders = {tuple(BufferedShuffleSampler(101, seed=seed).rows(0, 99)) for seed in range(20)}
    assert len(orders) == 20
    assert not any(list(rows) == sorted(rows) for rows in orders)


@given(
    num_rows=st.integers(1, 40),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 4),
    seed=st.none() | st.integers(0, 3),
    cut=st.integers(0, 60),
    data=st.data(),
)
def test_each_window_has_the_rows_of_the_other_sampler(
    num_rows, batch_size, window, seed, cut, data
):
    lengths = np.array(data.draw(st.lists(st.integers(1, 9), min_size=num_rows, max_size=num_rows)))
    num_examples = 60
    under = ShuffledSampler(num_rows, seed=5)
    sampler = ByLengthSampler(
        under, lengths, batch_size=batch_size, window=window, ends=[num_examples], seed=seed
    )
    all_rows = sampler.rows(0, num_examples)
    assert all_rows.tolist() == [*sampler.rows(0, cut), *sampler.rows(cut, num_examples)]
    size = window * batch_size
    for start in range(0, num_examples, size):
        mine = all_rows[start : start + size]
        assert sorted(mine) == sorted(under.rows(start, min(start + size, num_examples)))
        batches = [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]
        last = start + len(mine) - 1
        epochs_begun = last // num_rows - start // num_rows
        if batch_size <= num_rows:  # a row comes twice only where two epochs meet
            assert sum(len(set(one)) < len(one) for one in batches) <= epochs_begun
        if epochs_begun:
            continue
        shortest_first = sorted(batches, key=lambda r: (lengths[r].max(), lengths[r].min()))
        for one, next_one in itertools.pairwise(shortest_first):
            assert lengths[one].max() <= lengths[next_one].min()  # neighbours are alike
        if seed is None and start < num_rows:
            assert (np.diff(lengths[mine]) >= 0).all()


def test_the_epochs_of_a_window_are_sorted_by_themselves():
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
        assert sorted(rows) == sorted(under.rows(start, start + num_rows))
        num_runs = np.bincount(rows).max()
        assert np.count_nonzero(np.diff(rows) == 0) < num_runs


@given(
    num_rows=st.integers(1, 40),
    batch_size=st.integers(1, 5),
    window=st.integers(1, 7),
    legs=st.lists(st.integers(1, 17), min_size=1, max_size=4),
    seed=st.none() | st.integers(0, 3),
    data=st.data(),
)
def test_a_longer_run_begins_as_the_shorter_one_was(num_rows, batch_size, window, legs, seed, data):
    """Wherever it ended; so each row that the other sampler has comes, and comes once."""
    lengths = np.array(data.draw(st.lists(st.integers(1, 9), min_size=num_rows, max_size=num_rows)))
    under, ends = ShuffledSampler(num_rows, seed=5), np.cumsum(legs) * batch_size

    def rows(number: int) -> list[int]:
        """Of a run that has been made longer so many times."""
        sampler = ByLengthSampler(
            under,
            lengths,
            batch_size=batch_size,
            window=window,
            ends=ends[: number + 1].tolist(),
            seed=seed,
        )
        return sampler.rows(0, ends[number]).tolist()

    longest = rows(len(legs) - 1)
    for number, end in enumerate(ends):
        assert longest[:end] == rows(number)
        assert sorted(longest[:end]) == sorted(under.rows(0, end))
