"""data_gen/masking.py: drawn examples. The draws: test_instances.py; shares: test_pipeline.py."""

import dataclasses
import doctest
import random

import numpy as np
import pytest
from generation import SETTINGS

from data_gen import masking
from data_gen.masking import choose_words, maskable_positions, number_to_mask, shuffle, words_of


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
    assert words_of(positions, np.array([token.startswith("##") for token in tokens])) == expected


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
