"""The order of pre-training: every record once an epoch, the same from any position on."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.lanes import Lanes, number_of_lanes
from bert_tf.data.samplers import ShuffledSampler


def stream(lanes: Lanes, lane: int, position: int = 0):
    """The records of a lane as block and place, endless."""
    for window in lanes.windows(lane, position):
        for number in range(len(window.rows)):
            yield window.record(number)


def taken(lanes: Lanes, lane: int, count: int, position: int = 0) -> list[tuple[int, int]]:
    return list(itertools.islice(stream(lanes, lane, position), count))


def lengths(total: int, num_lanes: int) -> list[int]:
    """The records of an epoch in each lane."""
    bounds = [lane * total // num_lanes for lane in range(num_lanes + 1)]
    return [end - begin for begin, end in itertools.pairwise(bounds)]


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


def test_without_a_seed_as_in_the_files():
    lanes = Lanes([3, 1, 2], num_lanes=1, seed=None)
    in_order = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert taken(lanes, 0, 8) == in_order + in_order[:2]
    assert taken(lanes, 0, 3, position=4) == [*in_order[4:], in_order[0]]
    assert [window.pieces for window in itertools.islice(lanes.windows(0, 0), 3)] == [
        ((0, 0, 3),),
        ((1, 0, 1),),
        ((2, 0, 2),),
    ]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=90)


@given(SIZES, st.integers(1, 8), st.integers(-(2**40), 2**40))
@settings(max_examples=60, deadline=None)
def test_every_record_once_an_epoch(sizes, num_lanes, seed):
    num_lanes = min(num_lanes, sum(sizes))
    lanes = Lanes(sizes, num_lanes=num_lanes, seed=seed)
    every = sorted((block, place) for block, size in enumerate(sizes) for place in range(size))
    epochs = [[], []]
    for lane, length in enumerate(lengths(sum(sizes), num_lanes)):
        records = taken(lanes, lane, 2 * length)
        for epoch in range(2):
            epochs[epoch] += records[epoch * length : (epoch + 1) * length]
    assert sorted(epochs[0]) == sorted(epochs[1]) == every


@given(SIZES, st.integers(1, 8), st.integers(0, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_from_any_position_on(sizes, num_lanes, seed, data):
    num_lanes = min(num_lanes, sum(sizes))
    lane = data.draw(st.integers(0, num_lanes - 1))
    position = data.draw(st.integers(0, 3 * sum(sizes)))
    whole = taken(Lanes(sizes, num_lanes=num_lanes, seed=seed), lane, position + 20)
    fresh = Lanes(sizes, num_lanes=num_lanes, seed=seed)
    assert taken(fresh, lane, 20, position) == whole[position:]


def test_epochs_and_seeds_differ():
    sizes = [5] * 400
    orders = [
        taken(Lanes(sizes, num_lanes=4, seed=seed), 1, 500, position)
        for seed, position in ((0, 0), (0, 500), (1, 0))
    ]
    for one, other in itertools.combinations(orders, 2):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 20
    # Of the blocks, not only within them.
    assert len({block for block, _ in orders[0]} & {block for block, _ in orders[1]}) < 60


def test_a_window_mixes_its_blocks():
    """Records of one block come far apart: 64 blocks are open at once, in all lanes together."""
    lanes = Lanes([100] * 640, num_lanes=4, seed=3)
    window = next(lanes.windows(2, 0))
    assert [count for *_, count in window.pieces] == [100] * 16
    blocks = np.array([window.record(number)[0] for number in range(1600)])
    for block, *_ in window.pieces:
        places = np.flatnonzero(blocks == block)
        assert 600 < places.mean() < 1000
        assert places.min() < 200
        assert places.max() > 1400


def test_a_billion_records_are_planned_at_once():
    """Some gigabytes an hour are read; what is to be read next is known in a moment."""
    lanes = Lanes(np.full(10**6, 1000), num_lanes=64, seed=3)
    window = next(lanes.windows(63, 40 * 10**9 // 64))
    assert len(window.pieces) == 1


def test_few_blocks_are_shuffled_as_one():
    """As fine-tuning does; a larger set could not be held at once."""
    sizes = [3, 9, 4]
    sampler = ShuffledSampler(16, seed=11)
    every = [(block, place) for block, size in enumerate(sizes) for place in range(size)]
    expected = [every[row] for row in sampler.rows(0, 40)]
    assert taken(Lanes(sizes, num_lanes=1, seed=11), 0, 40) == expected
