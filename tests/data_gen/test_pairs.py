"""data_gen/pairs.py: the drawn examples, and what holds for every document."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.corpus import TOKEN_TYPE, MemoryCorpus, TokenizedBlock
from data_gen.draws import Draws
from data_gen.pairs import document_pairs, random_span, truncate_at_random_ends


class ScriptedDraws:
    """Draws what the test says; whole numbers, and for shares 1 where they are below one half."""

    def __init__(self, *, numbers=(), halves=(), shares=()):
        self.numbers, self.to_come, self.shares = list(numbers), list(halves), list(shares)

    def below(self, n):
        number = self.numbers.pop(0)
        assert 0 <= number < n
        return number

    def share(self):
        return self.shares.pop(0)

    def halves(self, count):
        return bytes(self.to_come.pop(0) for _ in range(count))

    def is_below_half(self):
        return self.halves(1) == b"\1"

    def is_used_up(self):
        return self.numbers == self.to_come == self.shares == []


def corpus_of(*documents: list[list[int]]) -> MemoryCorpus:
    return MemoryCorpus(TokenizedBlock.of(documents))


def ids(tokens: bytes) -> list[int]:
    return np.frombuffer(tokens, TOKEN_TYPE).tolist()


def found_pairs(corpus, document=0, **options) -> list[tuple[list[int], list[int], bool]]:
    made = document_pairs(corpus, document, first_document=0, corpus=corpus, **options)
    return [(ids(pair.tokens_a), ids(pair.tokens_b), pair.is_random_next) for pair in made]


def make_document(*lengths: int, first: int = 0) -> list[list[int]]:
    """Sentences of these lengths; no two tokens of the test are alike."""
    numbers = itertools.count(first)
    return [[next(numbers) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize(
    ("begin", "target_length", "expected"), [(0, 7, 2), (0, 8, 3), (0, 99, 4), (2, 1, 3), (3, 9, 4)]
)
def test_sentences_end(begin, target_length, expected):
    corpus = corpus_of(make_document(4, 3, 5, 2), make_document(1))
    assert corpus.sentences_end(range(begin, 4), target_length) == expected


def test_the_drawn_example():
    s = make_document(5, 4, 4, 4, 4, 5)  # 13 tokens: about three sentences
    elsewhere = make_document(3, 6, 7, first=100)
    draws = ScriptedDraws(
        shares=[0.99],  # long
        halves=[0, 1, 0, 0, 0, 0, 0],  # next; random; four tokens cut off behind; next
        numbers=[0, 0, 1, 1, 0],  # A is one sentence; again; document 1, sentence 1; A is one
    )
    corpus = corpus_of(s, elsewhere)
    assert found_pairs(corpus, max_num_tokens=13, short_seq_prob=0.1, draws=draws) == [
        (s[0], s[1] + s[2], False),
        # A has 4 tokens, 9 are wanted of B: 6 are not enough, 6 + 7 are, of which 9 stay.
        (s[3], (elsewhere[1] + elsewhere[2])[:9], True),
        (s[4], s[5], False),
    ]
    assert draws.is_used_up()


def test_a_single_sentence_is_random_without_a_draw():
    s, elsewhere = make_document(4), make_document(5, first=100)
    draws = ScriptedDraws(shares=[0.09], numbers=[5, 1, 0])  # short: 7 tokens; document, sentence
    corpus = corpus_of(s, elsewhere)
    found = found_pairs(corpus, max_num_tokens=9, short_seq_prob=0.1, draws=draws)
    # A short sequence is a matter of where chunks end: 4 + 5 tokens fit into 9 and stay.
    assert found == [(s[0], elsewhere[0], True)]
    assert draws.is_used_up()


def test_random_span_draws_another_document_and_whole_sentences():
    corpus = corpus_of(make_document(3, 6), make_document(2, 4, 5, 9, first=50))

    def span(numbers: list[int], min_tokens: int) -> list[int]:
        draws = ScriptedDraws(numbers=numbers)
        first, length = random_span(corpus, not_document=0, min_tokens=min_tokens, draws=draws)
        return ids(corpus.tokens(first, length))

    # Twice the document itself, then 1, sentence 1: 4 tokens are too few, 4 + 5 enough.
    assert span([0, 0, 1, 1], 5) == list(range(52, 61))
    assert len(span([1, 3], -2)) == 9  # one sentence at least
    assert len(span([1, 2], 999)) == 14  # to the end


def test_random_span_gives_up_after_ten_draws():
    corpus = corpus_of(make_document(3, 6))
    draws = ScriptedDraws(numbers=[0] * 10 + [1])
    assert random_span(corpus, not_document=0, min_tokens=1, draws=draws) == (3, 6)


def test_truncation_of_the_drawn_example():
    draws = ScriptedDraws(halves=[1, 1])
    ranges = truncate_at_random_ends(4, 3, max_num_tokens=5, draws=draws)
    assert ranges == (range(1, 4), range(1, 3))


def test_truncation_takes_from_the_back_too():
    draws = ScriptedDraws(halves=[0, 1, 0, 1])
    # B's back, front, back go; then A and B have two each, and B's front goes.
    assert truncate_at_random_ends(2, 5, max_num_tokens=3, draws=draws) == (range(2), range(2, 3))


@given(
    lengths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    room=st.integers(2, 30),
    seed=st.integers(0, 999),
)
def test_truncation_is_that_of_one_token_after_the_other(lengths, room, seed):
    segments = [list(range(length)) for length in lengths]
    rng = random.Random(seed)
    draws = Draws(rng)
    while sum(map(len, segments)) > room:
        longer = segments[0] if len(segments[0]) > len(segments[1]) else segments[1]
        longer.pop(0 if rng.random() < 0.5 else -1)
    if sum(lengths) > room:
        found = truncate_at_random_ends(*lengths, max_num_tokens=room, draws=draws)
        assert [list(part) for part in found] == segments


documents = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=5)


@given(lengths=documents, room=st.integers(2, 25), seed=st.integers(0, 999))
def test_what_holds_for_every_corpus(lengths, room, seed):
    documents = [
        make_document(*sentence_lengths, first=1000 * number)
        for number, sentence_lengths in enumerate(lengths)
    ]
    corpus, draws = corpus_of(*documents), Draws(random.Random(seed))
    for index in range(len(documents)):
        pairs = found_pairs(corpus, index, max_num_tokens=room, short_seq_prob=0.3, draws=draws)
        for tokens_a, tokens_b, is_random_next in pairs:
            assert tokens_a
            assert tokens_b
            assert len(tokens_a) + len(tokens_b) <= room
            assert {token // 1000 for token in tokens_a} == {index}
            (document_of_b,) = {token // 1000 for token in tokens_b}
            if not is_random_next:
                assert document_of_b == index
                assert tokens_b[0] > tokens_a[-1]  # it does come next
        # A segments go through the document, none is used twice.
        firsts = [tokens_a[0] for tokens_a, _, _ in pairs]
        assert firsts == sorted(set(firsts))


class CountingDraws(Draws):
    """Counts the draws of a target length."""

    target_lengths = 0

    def below(self, n):
        self.target_lengths += n == 39
        return super().below(n)


def cut(sentences: int, *, times: int, short_seq_prob: float, draws: Draws) -> list[tuple]:
    corpus = corpus_of(make_document(*[6] * sentences), make_document(*[7] * 9, first=-99))
    options = {"max_num_tokens": 40, "short_seq_prob": short_seq_prob, "draws": draws}
    return [pair for _ in range(times) for pair in found_pairs(corpus, **options)]


def test_the_share_of_documents_with_short_sequences():
    draws = CountingDraws(random.Random(3))
    cut(2, times=4000, short_seq_prob=0.2, draws=draws)
    error = 4 * (0.2 * 0.8 / 4000) ** 0.5
    assert draws.target_lengths / 4000 == pytest.approx(0.2, abs=error)


def test_half_of_the_pairs_are_random_where_there_is_a_choice():
    pairs = cut(50_000, times=1, short_seq_prob=0, draws=Draws(random.Random(4)))
    assert len(pairs) > 5000
    share = sum(is_random_next for _, _, is_random_next in pairs) / len(pairs)
    assert share == pytest.approx(0.5, abs=4 * (0.25 / len(pairs)) ** 0.5)
