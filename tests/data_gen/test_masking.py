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
    choices_of_words,
    choose_words,
    chosen_positions,
    mask,
    maskable_positions,
    number_to_mask,
    words,
)
from data_gen.pairs import Pair
from data_gen.spaced_words import CONTINUES_WORD

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
    assert choose_words(order, 3) == [[6], [1], [7]]
    assert choose_words(order, 4) == [[6], [2, 3, 5]]
    assert choose_words([[2, 3, 5]], 2) == []


def test_words_of_chinese_between_spaces():
    """使用 语言 模型 | 来 预测 下: of the words in this order, as many as fit into six places."""
    continues = np.array([0, 1, 0, 1, 0, 1, 0, 0, 1, 0], TOKEN_TYPE)
    tokens = np.arange(10, dtype=TOKEN_TYPE) | continues * CONTINUES_WORD
    rules = make_rules(do_whole_word_mask=True, words_from_spaces=True)
    found = words(maskable_positions(6, 4), tokens, rules)
    assert found == [[1, 2], [3, 4], [5, 6], [8], [9, 10], [11]]
    assert choose_words(found, 6) == [[1, 2], [3, 4], [5, 6]]
    assert choose_words(found[::-1], 6) == [[11], [9, 10], [8], [5, 6]]


def test_one_draw_decides_for_a_word():
    """Against one draw of `random.Random` after the other: 0.8, one half, then a piece each."""
    chosen, size = [[4], [1, 2, 3], [6, 7]] * 40, 11
    rng, expected = random.Random(8), []
    for word in chosen:
        if rng.random() < 0.8:
            expected += [MASKED for _ in word]
        elif rng.random() < 0.5:
            expected += [UNCHANGED for _ in word]
        else:
            expected += [rng.randrange(size) for _ in word]
    assert choices_of_words(chosen, size, make_draws(8)) == expected
    assert {MASKED, UNCHANGED} < {*expected}


@pytest.mark.parametrize(
    ("do_whole_word_mask", "one_draw_per_word"), [(False, False), (True, False), (True, True)]
)
def test_shares_over_many_tokens(do_whole_word_mask, one_draw_per_word):
    """80/10/10 of more than 100,000 masked pieces, each share within four standard errors.

    A quarter of the pieces continues a word. Words of mean length 4/3 that share a draw multiply
    the variance of a share by E[k^2] / E[k] = 5/3, if k is geometric.
    """
    clustered = 5 / 3 if one_draw_per_word else 1
    rng, size = random.Random(5), 30011
    rules = make_rules(
        vocab_ids=np.arange(size),
        continues_word=np.arange(size) % 4 == 0,
        do_whole_word_mask=do_whole_word_mask,
        one_draw_per_word=one_draw_per_word,
    )
    draws, choices = make_draws(6), []
    for _ in range(6000):
        tokens = [rng.randrange(4, size) for _ in range(116)]
        masked = mask(make_pair(tokens[:50], tokens[50:]), rules, draws)
        assert len(masked.choices) == 18  # round(0.15 * 119); single pieces can always fill it
        choices += masked.choices
    assert len(choices) == 108_000
    as_mask, as_itself = choices.count(MASKED), choices.count(UNCHANGED)
    for share, expected in ((as_mask / 108_000, 0.8), (as_itself / 108_000, 0.1)):
        error = (clustered * expected * (1 - expected) / 108_000) ** 0.5
        assert share == pytest.approx(expected, abs=4 * error)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5),
    masked_lm_prob=st.floats(0.01, 1),
    max_predictions=st.integers(1, 25),
    do_whole_word_mask=st.booleans(),
    words_from_spaces=st.booleans(),
    one_draw_per_word=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_what_holds_for_every_sequence(
    lengths,
    masked_lm_prob,
    max_predictions,
    do_whole_word_mask,
    words_from_spaces,
    one_draw_per_word,
    seed,
):
    rules = make_rules(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions,
        do_whole_word_mask=do_whole_word_mask,
        words_from_spaces=words_from_spaces,
        one_draw_per_word=one_draw_per_word,
    )
    draws, rng = make_draws(seed), random.Random(seed)
    possible_tokens = range(11)
    if words_from_spaces:
        possible_tokens = [*possible_tokens, *(n | CONTINUES_WORD for n in possible_tokens)]
    pairs = [make_pair(*(rng.choices(possible_tokens, k=k) for k in both)) for both in lengths]
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
        choices = dict(zip(positions, one.choices, strict=True))
        for word in words(possible, tokens, rules):
            of_word = [choices[position] for position in word if position in choices]
            assert len(of_word) in (0, len(word))
            if one_draw_per_word:
                assert len({min(choice, 0) for choice in of_word}) <= 1  # FIRST, SECOND < 0
    assert found == []
