"""data_gen/pairs.py: the drawn examples, and what holds for every document."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.corpus import MemoryCorpus
from data_gen.pairs import (
    Pair,
    chunk_end,
    document_pairs,
    random_segment,
    truncate_at_random_ends,
)


class ScriptedRandom(random.Random):
    """Draws what the test says; whole numbers and shares from two lists."""

    def __init__(self, *, integers=(), shares=()):
        super().__init__(0)
        self.integers, self.shares = list(integers), list(shares)

    def randint(self, a, b):
        number = self.integers.pop(0)
        assert a <= number <= b
        return number

    def random(self):
        return self.shares.pop(0)


def make_document(*lengths: int, first: int = 0) -> list[list[int]]:
    """Sentences of these lengths; no two tokens of the test are alike."""
    numbers = itertools.count(first)
    return [[next(numbers) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize(
    ("begin", "target_length", "expected"), [(0, 7, 2), (0, 8, 3), (0, 99, 4), (2, 1, 3), (3, 9, 4)]
)
def test_chunk_end(begin, target_length, expected):
    assert chunk_end(make_document(4, 3, 5, 2), begin, target_length) == expected


def test_the_drawn_example():
    s = make_document(5, 4, 4, 4, 4, 5)  # 13 tokens: about three sentences
    elsewhere = make_document(3, 6, 7, first=100)
    back = 0.9  # where a token is cut off
    rng = ScriptedRandom(
        shares=[0.99, 0.5, 0.49, back, back, back, back, 0.5],  # long; next; random; next
        # A is one sentence; again; document 1, sentence 1; A is one sentence
        integers=[1, 1, 1, 1, 1],
    )
    pairs = document_pairs(
        s,
        document_index=0,
        corpus=MemoryCorpus([s, elsewhere]),
        max_num_tokens=13,
        short_seq_prob=0.1,
        rng=rng,
    )
    assert list(pairs) == [
        Pair(s[0], s[1] + s[2], False),
        # A has 4 tokens, 9 are wanted of B: 6 are not enough, 6 + 7 are, of which 9 stay.
        Pair(s[3], (elsewhere[1] + elsewhere[2])[:9], True),
        Pair(s[4], s[5], False),
    ]
    assert rng.integers == rng.shares == []


def test_a_single_sentence_is_random_without_a_draw():
    s, elsewhere = make_document(4), make_document(5, first=100)
    rng = ScriptedRandom(shares=[0.09], integers=[7, 1, 0])  # short: 7 tokens; document, sentence
    pairs = document_pairs(
        s,
        document_index=0,
        corpus=MemoryCorpus([s, elsewhere]),
        max_num_tokens=9,
        short_seq_prob=0.1,
        rng=rng,
    )
    # A short sequence is a matter of where chunks end: 4 + 5 tokens fit into 9 and stay.
    assert list(pairs) == [Pair(s[0], elsewhere[0], True)]
    assert rng.integers == rng.shares == []


def test_random_segment_draws_another_document_and_whole_sentences():
    corpus = MemoryCorpus([make_document(3, 6), make_document(2, 4, 5, 9, first=50)])
    rng = ScriptedRandom(integers=[0, 0, 1, 1])  # twice the document itself, then 1, sentence 1
    segment = random_segment(corpus, not_document=0, min_tokens=5, rng=rng)
    assert segment == list(range(52, 61))  # 4 tokens are too few, 4 + 5 enough
    one_at_least = ScriptedRandom(integers=[1, 3])
    assert len(random_segment(corpus, not_document=0, min_tokens=-2, rng=one_at_least)) == 9
    to_the_end = ScriptedRandom(integers=[1, 2])
    assert len(random_segment(corpus, not_document=0, min_tokens=999, rng=to_the_end)) == 14


def test_random_segment_gives_up_after_ten_draws():
    corpus = MemoryCorpus([make_document(3, 6)])
    rng = ScriptedRandom(integers=[0] * 10 + [1])
    assert random_segment(corpus, not_document=0, min_tokens=1, rng=rng) == list(range(3, 9))


def test_truncation_of_the_drawn_example():
    rng = ScriptedRandom(shares=[0.49, 0.0])
    segments = truncate_at_random_ends([1, 2, 3, 4], [5, 6, 7], max_num_tokens=5, rng=rng)
    assert segments == ([2, 3, 4], [6, 7])


def test_truncation_takes_from_the_back_too():
    rng = ScriptedRandom(shares=[0.5, 0.49, 0.51, 0.1])
    segments = truncate_at_random_ends([1, 2], [3, 4, 5, 6, 7], max_num_tokens=3, rng=rng)
    # 7, 3, 6 go; then A and B have two each, and B's front goes.
    assert segments == ([1, 2], [5])


@given(length_a=st.integers(1, 40), length_b=st.integers(1, 40), room=st.integers(2, 30))
def test_truncation_has_the_closed_form_of_its_lengths(length_a, length_b, room):
    a, b = truncate_at_random_ends(
        list(range(length_a)),
        list(range(100, 100 + length_b)),
        max_num_tokens=room,
        rng=random.Random(length_a),
    )
    expected_a = min(length_a, max(room - length_b, (room + 1) // 2))
    assert (len(a), len(b)) == (expected_a, min(length_b, room - expected_a))
    assert a == list(range(a[0], a[0] + len(a)))
    assert b == list(range(b[0], b[0] + len(b)))


documents = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=5)


@given(lengths=documents, room=st.integers(2, 25), seed=st.integers(0, 999))
def test_what_holds_for_every_corpus(lengths, room, seed):
    corpus = [
        make_document(*sentence_lengths, first=1000 * number)
        for number, sentence_lengths in enumerate(lengths)
    ]
    rng = random.Random(seed)
    for index, document in enumerate(corpus):
        pairs = list(
            document_pairs(
                document,
                document_index=index,
                corpus=MemoryCorpus(corpus),
                max_num_tokens=room,
                short_seq_prob=0.3,
                rng=rng,
            )
        )
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
        firsts = [pair.tokens_a[0] for pair in pairs]
        assert firsts == sorted(set(firsts))


class CountingRandom(random.Random):
    """Counts the draws of a target length."""

    target_lengths = 0

    def randint(self, a, b):
        self.target_lengths += (a, b) == (2, 40)
        return super().randint(a, b)


def cut(sentences: int, *, times: int, short_seq_prob: float, rng: random.Random) -> list[Pair]:
    corpus = MemoryCorpus([make_document(*[6] * sentences), make_document(*[7] * 9, first=-99)])
    pairs = []
    for _ in range(times):
        pairs += document_pairs(
            corpus._documents[0],
            document_index=0,
            corpus=corpus,
            max_num_tokens=40,
            short_seq_prob=short_seq_prob,
            rng=rng,
        )
    return pairs


def test_the_share_of_documents_with_short_sequences():
    rng = CountingRandom(3)
    cut(2, times=4000, short_seq_prob=0.2, rng=rng)
    error = 4 * (0.2 * 0.8 / 4000) ** 0.5
    assert rng.target_lengths / 4000 == pytest.approx(0.2, abs=error)


def test_half_of_the_pairs_are_random_where_there_is_a_choice():
    pairs = cut(50_000, times=1, short_seq_prob=0, rng=random.Random(4))
    assert len(pairs) > 5000
    share = sum(pair.is_random_next for pair in pairs) / len(pairs)
    assert share == pytest.approx(0.5, abs=4 * (0.25 / len(pairs)) ** 0.5)
