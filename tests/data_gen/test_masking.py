"""data_gen/masking.py: the drawn examples, the shares, and what holds for every sequence."""

import doctest
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen import masking
from data_gen.corpus import TOKEN_TYPE
from data_gen.draws import Draws
from data_gen.masking import (
    MASK_PROBABILITY,
    MASKED,
    UNCHANGED,
    MaskingRules,
    choose_words,
    chosen_positions,
    mask,
    maskable_positions,
    number_to_mask,
    words,
)
from data_gen.pairs import Pair

# Ids are positions in this list.
PIECES = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "jump", "##ed", "##er", "is", "here", "in"]


def make_rules(**changes) -> MaskingRules:
    values = {
        "masked_lm_prob": 0.15,
        "max_predictions_per_seq": 20,
        "mask_id": 3,
        "vocab_ids": np.arange(len(PIECES)),
        "continues_word": np.array([piece.startswith("##") for piece in PIECES]),
        "do_whole_word_mask": False,
    }
    return MaskingRules(**values | changes)


def make_pair(a, b) -> Pair:
    return Pair(np.array(a, TOKEN_TYPE).tobytes(), np.array(b, TOKEN_TYPE).tobytes(), False)


def make_draws(seed: int, longest: int = 200) -> Draws:
    return Draws(random.Random(seed), longest=longest, threshold=MASK_PROBABILITY)


def test_the_drawn_positions():
    assert doctest.testmod(masking).failed == 0


def test_words_of_the_drawn_example():
    tokens = [PIECES.index(piece) for piece in ("he", "jump", "##ed", "##er", "is", "here")]
    found = words(maskable_positions(3, 3), np.array(tokens), make_rules())
    assert found == [[1], [2, 3, 5], [6], [7]]


def test_a_piece_that_continues_nothing_is_a_word_of_its_own():
    tokens = [PIECES.index(piece) for piece in ("##ed", "##er", "is")]
    assert words([1, 2, 4], np.array(tokens), make_rules()) == [[1, 2], [4]]


@pytest.mark.parametrize(
    ("length", "expected"),
    # 0.15 of it: 0.45, 1.5 and 4.5 (halves to the even number), 19.5, 20.1, 76.8
    [(3, 1), (10, 2), (30, 4), (130, 20), (134, 20), (512, 20)],
)
def test_number_to_mask(length, expected):
    assert number_to_mask(length, make_rules()) == expected


def test_a_word_that_would_go_beyond_is_left_out():
    order = [[6], [2, 3, 5], [1], [7], [8]]
    assert choose_words(order, 3) == [6, 1, 7]
    assert choose_words(order, 4) == [6, 2, 3, 5]
    assert choose_words([[2, 3, 5]], 2) == []


@pytest.mark.parametrize("do_whole_word_mask", [False, True])
def test_shares_over_many_tokens(do_whole_word_mask):
    """80/10/10 of more than 100,000 masked pieces, each share within four standard errors."""
    rng, size = random.Random(5), 30011
    rules = make_rules(
        vocab_ids=np.arange(size),
        continues_word=np.arange(size) % 4 == 0,
        do_whole_word_mask=do_whole_word_mask,
    )
    draws, choices = make_draws(6), []
    for _ in range(6000):
        tokens = [rng.randrange(4, size) for _ in range(116)]
        masked = mask(make_pair(tokens[:50], tokens[50:]), rules, draws)
        assert len(masked.choices) == 18  # round(0.15 * 119); single pieces can always fill it
        choices += masked.choices
    assert len(choices) == 108_000
    as_mask, as_itself = choices.count(MASKED), choices.count(UNCHANGED)
    assert as_mask / 108_000 == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / 108_000) ** 0.5)
    assert as_itself / 108_000 == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / 108_000) ** 0.5)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5),
    masked_lm_prob=st.floats(0.01, 1),
    max_predictions=st.integers(1, 25),
    do_whole_word_mask=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_what_holds_for_every_sequence(
    lengths, masked_lm_prob, max_predictions, do_whole_word_mask, seed
):
    rules = make_rules(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions,
        do_whole_word_mask=do_whole_word_mask,
    )
    draws, rng = make_draws(seed), random.Random(seed)
    pairs = [make_pair(*(rng.choices(range(11), k=k) for k in both)) for both in lengths]
    masked = [mask(pair, rules, draws) for pair in pairs]
    found = chosen_positions(masked, np.array(lengths)[:, 0], rules).tolist()
    for pair, one in zip(pairs, masked, strict=True):
        positions, found = found[: len(one.choices)], found[len(one.choices) :]
        possible = maskable_positions(*pair.lengths)
        most = number_to_mask(len(possible) + 3, rules)
        assert len(set(positions)) == len(positions)
        assert set(positions) <= set(possible)
        if not do_whole_word_mask:
            assert len(positions) == min(most, len(possible))
            continue
        assert len(positions) <= most
        tokens = np.frombuffer(pair.tokens_a + pair.tokens_b, TOKEN_TYPE)
        for word in words(possible, tokens, rules):
            assert len(set(word) & set(positions)) in (0, len(word))
    assert found == []
