"""data_gen/pairs.py: the drawn examples, and shares. The draws: test_instances.py."""

import itertools
import random

import numpy as np
import pytest

from data_gen.corpus import TOKEN_TYPE, Corpus
from data_gen.pairs import document_pairs, random_span, truncate_at_random_ends


class ScriptedDraws(random.Random):
    """Draws what the test says."""

    def __init__(self, *, numbers=(), shares=()):
        super().__init__()
        self.numbers, self.shares = list(numbers), list(shares)

    def randrange(self, start, stop=None):
        number = self.numbers.pop(0)
        assert number in (range(start) if stop is None else range(start, stop))
        return number

    def random(self):
        return self.shares.pop(0)

    def is_used_up(self):
        return self.numbers == self.shares == []


def ids(tokens: bytes) -> list[int]:
    return np.frombuffer(tokens, TOKEN_TYPE).tolist()


def found_pairs(corpus, **options) -> list[tuple[list[int], list[int], bool]]:
    made = document_pairs(corpus, 0, first_document=0, corpus=corpus, **options)
    return [(ids(pair.tokens_a), ids(pair.tokens_b), pair.is_random_next) for pair in made]


def make_document(*lengths: int, first: int = 0) -> list[list[int]]:
    """Sentences of these lengths; no two tokens of the test are alike."""
    numbers = itertools.count(first)
    return [[next(numbers) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize(
    ("begin", "target_length", "expected"), [(0, 7, 2), (0, 8, 3), (0, 99, 4), (2, 1, 3), (3, 9, 4)]
)
def test_sentences_end(begin, target_length, expected):
    corpus = Corpus.of([make_document(4, 3, 5, 2), make_document(1)])
    assert corpus.sentences_end(range(begin, 4), target_length) == expected


def test_the_drawn_example():
    s = make_document(5, 4, 4, 4, 4, 5)  # 13 tokens: about three sentences
    elsewhere = make_document(3, 6, 7, first=100)
    rng = ScriptedDraws(
        # long; next; random; four tokens cut off behind; next
        shares=[0.99, 0.5, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
        numbers=[1, 1, 1, 1, 1],  # A is one sentence; again; document 1, sentence 1; A is one
    )
    corpus = Corpus.of([s, elsewhere])
    assert found_pairs(corpus, max_num_tokens=13, short_seq_prob=0.1, rng=rng) == [
        (s[0], s[1] + s[2], False),
        # A has 4 tokens, 9 are wanted of B: 6 are not enough, 6 + 7 are, of which 9 stay.
        (s[3], (elsewhere[1] + elsewhere[2])[:9], True),
        (s[4], s[5], False),
    ]
    assert rng.is_used_up()


def test_a_single_sentence_is_random_without_a_draw():
    s, elsewhere = make_document(4), make_document(5, first=100)
    rng = ScriptedDraws(shares=[0.09], numbers=[7, 1, 0])  # short: 7 tokens; document, sentence
    corpus = Corpus.of([s, elsewhere])
    found = found_pairs(corpus, max_num_tokens=9, short_seq_prob=0.1, rng=rng)
    # A short sequence is a matter of where chunks end: 4 + 5 tokens fit into 9 and stay.
    assert found == [(s[0], elsewhere[0], True)]
    assert rng.is_used_up()


def test_random_span_draws_another_document_and_whole_sentences():
    corpus = Corpus.of([make_document(3, 6), make_document(2, 4, 5, 9, first=50)])

    def span(numbers: list[int], min_tokens: int) -> list[int]:
        rng = ScriptedDraws(numbers=numbers)
        first, length = random_span(corpus, not_document=0, min_tokens=min_tokens, rng=rng)
        return ids(corpus.tokens(first, length))

    # Twice the document itself, then 1, sentence 1: 4 tokens are too few, 4 + 5 enough.
    assert span([0, 0, 1, 1], 5) == list(range(52, 61))
    assert len(span([1, 3], -2)) == 9  # one sentence at least
    assert len(span([1, 2], 999)) == 14  # to the end
    assert span([0] * 10 + [1], 1) == list(range(3, 9))  # gives up after ten draws


@pytest.mark.parametrize(
    ("lengths", "room", "shares", "expected"),
    [
        ((4, 3), 5, [0.4, 0.4], (range(1, 4), range(1, 3))),
        # B's back, front, back go; then A and B have two each, and B's front goes.
        ((2, 5), 3, [0.5, 0.4, 0.6, 0.1], (range(2), range(2, 3))),
        ((2, 3), 5, [], (range(2), range(3))),
    ],
)
def test_truncation(lengths, room, shares, expected):
    rng = ScriptedDraws(shares=shares)
    assert truncate_at_random_ends(*lengths, max_num_tokens=room, rng=rng) == expected
    assert rng.is_used_up()


def test_half_of_the_pairs_are_random_where_there_is_a_choice():
    corpus = Corpus.of([make_document(*[6] * 50_000), make_document(*[7] * 9)])
    pairs = found_pairs(corpus, max_num_tokens=40, short_seq_prob=0, rng=random.Random(4))
    assert len(pairs) > 5000
    share = sum(is_random_next for _, _, is_random_next in pairs) / len(pairs)
    assert share == pytest.approx(0.5, abs=4 * (0.25 / len(pairs)) ** 0.5)
