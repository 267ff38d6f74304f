"""data_gen/masking.py: drawn examples. The draws: test_instances.py; shares: test_pipeline.py."""

import dataclasses
import doctest
import random

import numpy as np
import pytest
from generation import SETTINGS

from data_gen import masking
from data_gen.documents import TOKEN_TYPE
from data_gen.masking import (
    MASKED,
    UNCHANGED,
    Pair,
    choose_words,
    mask,
    maskable_positions,
    number_to_mask,
    shuffle,
    words,
)


def test_the_drawn_positions():
    assert doctest.testmod(masking).failed == 0


@pytest.mark.parametrize("length", [0, 1, 2, 3, 64, 300])
def test_a_shuffle_is_that_of_python(length):
    rng, other = random.Random(length), random.Random(length)
    found, expected = list(range(length)), list(range(length))
    shuffle(found, rng)
    other.shuffle(expected)
    assert found == expected
    assert rng.getstate() == other.getstate()


@pytest.mark.parametrize(
    ("tokens", "positions", "expected"),
    [
        (("he", "jump", "##ed", "##er", "is", "here"), maskable_positions(3, 3),
         [[1], [2, 3, 5], [6], [7]]),
        (("##ed", "##er", "is"), [1, 2, 4], [[1, 2], [4]]),  # continues nothing
    ],
)  # fmt: skip
def test_words(tokens, positions, expected):
    assert words(positions, np.array([token.startswith("##") for token in tokens])) == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    # 0.15 of it: 0.45, 1.5 and 4.5 (halves to the even number), 19.5, 20.1, 76.8
    [(3, 1), (10, 2), (30, 4), (130, 20), (134, 20), (512, 20)],
)
def test_number_to_mask(length, expected):
    settings = dataclasses.replace(SETTINGS, max_predictions_per_seq=20)
    assert number_to_mask(length, settings) == expected


def test_a_word_that_would_go_beyond_is_left_out():
    order = [[6], [2, 3, 5], [1], [7], [8]]
    assert choose_words(order, 3) == [[6], [1], [7]]
    assert choose_words(order, 4) == [[6], [2, 3, 5]]
    assert choose_words([[2, 3, 5]], 2) == []


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
    continues_word = np.arange(size) % 4 == 0
    settings = dataclasses.replace(
        SETTINGS,
        max_predictions_per_seq=20,
        do_whole_word_mask=do_whole_word_mask,
        one_draw_per_word=one_draw_per_word,
    )
    choices = []
    for _ in range(6000):
        tokens = np.array([rng.randrange(4, size) for _ in range(116)], TOKEN_TYPE).tobytes()
        pair = Pair(tokens[:200], tokens[200:], False)
        masked = mask(pair, settings, continues_word, size, rng)
        assert len(masked.choices) == 18  # round(0.15 * 119); single pieces can always fill it
        choices += masked.choices
    assert len(choices) == 108_000
    as_mask, as_itself = choices.count(MASKED), choices.count(UNCHANGED)
    for share, expected in ((as_mask / 108_000, 0.8), (as_itself / 108_000, 0.1)):
        error = (clustered * expected * (1 - expected) / 108_000) ** 0.5
        assert share == pytest.approx(expected, abs=4 * error)
