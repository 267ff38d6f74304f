"""Rows by length: nothing lost, nothing twice, neighbours alike, the least padding."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.by_length import (
    batches_by_length,
    choose_lengths,
    order_by_length,
    padded_length,
)

ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=40)


def test_up_and_down_by_hand():
    lengths, groups = [5, 1, 3, 5, 1, 3, 4], [0, 0, 0, 1, 1, 1, 2]
    assert order_by_length(lengths).tolist() == [1, 4, 2, 5, 6, 0, 3]
    assert order_by_length(lengths, groups).tolist() == [1, 2, 0, 3, 5, 4, 6]


@given(ROWS, st.integers(1, 7), st.integers(5, 30))
def test_batches_by_length(rows, batch_size, most):
    lengths, groups = [length for length, _ in rows], [group for _, group in rows]
    found = list(batches_by_length(lengths, batch_size=batch_size, groups=groups, most=most))
    order = list(itertools.chain.from_iterable(found))
    assert order == order_by_length(lengths, groups).tolist()
    assert sorted(order) == list(range(len(rows)))
    size_of = [len(batch) * max(lengths[row] for row in batch) for batch in found]
    for batch, size in zip(found, size_of, strict=True):
        assert 1 <= len(batch) <= batch_size
        assert len({groups[row] for row in batch}) == 1
        assert len(batch) == 1 or size <= most
    for one, after in itertools.pairwise(found):  # no batch could have had one row more
        longest = max(lengths[row] for row in [*one, after[0]])
        fits = len(one) < batch_size and (len(one) + 1) * longest <= most
        assert not fits or groups[one[0]] != groups[after[0]]


def test_padded_length():
    assert [padded_length(n, (4, 8)) for n in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]


@given(
    st.lists(st.integers(1, 44), min_size=1, max_size=40),
    st.integers(44, 50),
    st.integers(1, 3),
    st.sampled_from([0, 20, 100]),
)
@settings(deadline=None)
def test_chosen_lengths_make_least_work(lengths, longest, count, cost):
    def work(chosen) -> int:
        padded = [padded_length(n, chosen) for n in lengths]
        return sum(padded) + cost * len(set(padded))

    chosen = choose_lengths(np.array(lengths), longest=longest, count=count, cost=cost)
    assert len(chosen) <= count
    assert chosen[-1] == longest
    assert sorted(set(chosen)) == list(chosen)
    steps = list(range(8, longest, 8))
    best = min(
        work((*some, longest)) for k in range(count) for some in itertools.combinations(steps, k)
    )
    assert work(chosen) == best
