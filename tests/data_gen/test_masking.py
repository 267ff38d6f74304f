"""data_gen/masking.py: the drawn examples, the shares, and what holds for every sequence."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.masking import (
    MaskingRules,
    choose_positions,
    mask_ids,
    maskable_groups,
    number_to_mask,
)

# Ids are positions in this list.
PIECES = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "jump", "##ed", "##er", "is", "here", "in"]
CLS, SEP, MASK = 1, 2, 3


def make_rules(**changes) -> MaskingRules:
    values = {
        "masked_lm_prob": 0.15,
        "max_predictions_per_seq": 20,
        "mask_id": MASK,
        "special_ids": frozenset([CLS, SEP]),
        "vocab_ids": range(len(PIECES)),
        "continuation_ids": frozenset(i for i, piece in enumerate(PIECES) if piece[:2] == "##"),
        "do_whole_word_mask": False,
    }
    return MaskingRules(**values | changes)


DRAWN = [1, 4, 5, 6, 2, 7, 8, 9, 2]  # [CLS] he jump ##ed [SEP] ##er is here [SEP]


class FixedRandom(random.Random):
    """Leaves orders as they are and draws given numbers."""

    def __init__(self, *draws: float):
        super().__init__(0)
        self.draws = list(draws)

    def shuffle(self, x):
        pass

    def random(self):
        return self.draws.pop(0)

    def randint(self, a, b):
        return b


def test_groups_of_the_drawn_example():
    assert maskable_groups(DRAWN, make_rules()) == [[1], [2], [3], [5], [6], [7]]
    words = make_rules(do_whole_word_mask=True)
    assert maskable_groups(DRAWN, words) == [[1], [2, 3, 5], [6], [7]]


def test_a_piece_that_continues_nothing_is_a_group_of_its_own():
    front_cut_off = [CLS, PIECES.index("##ed"), PIECES.index("##er"), PIECES.index("is"), SEP]
    words = make_rules(do_whole_word_mask=True)
    assert maskable_groups(front_cut_off, words) == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("length", "expected"),
    # 0.15 of it: 0.45, 1.5 and 4.5 (halves to the even number), 19.5, 20.1, 76.8
    [(3, 1), (10, 2), (30, 4), (130, 20), (134, 20), (512, 20)],
)
def test_number_to_mask(length, expected):
    assert number_to_mask(length, make_rules()) == expected


def test_a_group_that_would_go_beyond_is_left_out():
    order = [[6], [2, 3, 5], [1], [7], [8]]
    assert choose_positions(order, 3, FixedRandom()) == [6, 1, 7]
    assert choose_positions(order, 4, FixedRandom()) == [6, 2, 3, 5]
    assert choose_positions([[2, 3, 5]], 2, FixedRandom()) == []


def test_each_piece_draws_its_own_fate():
    rules = make_rules(do_whole_word_mask=True, masked_lm_prob=0.4, vocab_ids=[7, 9, 10])  # 4 of 9
    # Position 1 is masked; the word at 2, 3, 5: masked, kept, replaced.
    rng = FixedRandom(0.79, 0.0, 0.81, 0.49, 0.8, 0.5)
    masked = mask_ids(DRAWN, rules, rng)
    assert masked.positions == [1, 2, 3, 5]
    assert masked.labels == [DRAWN[position] for position in masked.positions]
    assert masked.input_ids == [1, MASK, MASK, DRAWN[3], SEP, 10, DRAWN[6], DRAWN[7], SEP]
    assert rng.draws == []


@pytest.mark.parametrize("do_whole_word_mask", [False, True])
def test_shares_over_many_tokens(do_whole_word_mask):
    """80/10/10 of more than 100,000 masked pieces, each share within four standard errors."""
    rng = random.Random(5)
    size = 30011
    rules = make_rules(
        vocab_ids=range(size),
        continuation_ids=frozenset(range(0, size, 4)),
        do_whole_word_mask=do_whole_word_mask,
    )
    masked_count = as_mask = as_itself = 0
    for _ in range(6000):
        ids = [CLS, *(rng.randrange(4, size) for _ in range(117)), SEP]
        masked = mask_ids(ids, rules, rng)
        assert len(masked.positions) == 18  # round(0.15 * 119); single pieces can always fill it
        shown = [masked.input_ids[position] for position in masked.positions]
        masked_count += len(shown)
        as_mask += shown.count(MASK)
        as_itself += sum(map(int.__eq__, shown, masked.labels))
    assert masked_count == 108_000
    assert as_mask / masked_count == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / masked_count) ** 0.5)
    error = 4 * (0.1 * 0.9 / masked_count) ** 0.5
    assert as_itself / masked_count == pytest.approx(0.1, abs=error)


@given(
    body=st.lists(st.integers(0, len(PIECES) - 1), max_size=60),
    masked_lm_prob=st.floats(0.01, 1),
    max_predictions=st.integers(1, 25),
    do_whole_word_mask=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_what_holds_for_every_sequence(
    body, masked_lm_prob, max_predictions, do_whole_word_mask, seed
):
    rules = make_rules(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions,
        do_whole_word_mask=do_whole_word_mask,
    )
    ids = [CLS, *body, SEP]
    masked = mask_ids(ids, rules, random.Random(seed))
    assert masked.positions == sorted(set(masked.positions))
    assert len(masked.positions) <= max_predictions
    assert not {CLS, SEP} & {ids[position] for position in masked.positions}
    assert masked.labels == [ids[position] for position in masked.positions]
    untouched = set(range(len(ids))) - set(masked.positions)
    assert all(masked.input_ids[position] == ids[position] for position in untouched)
    if do_whole_word_mask:
        for group in maskable_groups(ids, rules):
            assert len(set(group) & set(masked.positions)) in (0, len(group))
    elif set(body) - {CLS, SEP}:
        maskable = sum(token not in (CLS, SEP) for token in ids)
        assert len(masked.positions) == min(number_to_mask(len(ids), rules), maskable)
