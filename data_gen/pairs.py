"""Documents of tokenized sentences -> pairs of segments for the next-sentence task.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

Sentence = list[int]  # the ids of one sentence, never empty

# How many draws it takes to give up looking for another document.
DOCUMENT_DRAWS = 10


class Pair(NamedTuple):
    """Two segments, together at most `max_num_tokens` long."""

    tokens_a: list[int]
    tokens_b: list[int]
    is_random_next: bool


class Corpus(Protocol):
    """All documents, in memory or on disk."""

    num_documents: int

    def num_sentences(self, document: int) -> int:
        """The number of sentences of a document."""

    def read_sentences(self, document: int, start: int, *, min_tokens: int) -> list[int]:
        """Whole sentences from `start` on, joined, until `min_tokens` or the document's end.

        At least one sentence, whatever `min_tokens` is.
        """


def document_pairs(
    document: Sequence[Sentence],
    *,
    document_index: int,
    corpus: Corpus,
    max_num_tokens: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[Pair]:
    """Cuts a document into pairs (paper, appendix A.2; `create_instances_from_document`).

    Sentences are collected until they fill a sequence, then divided at random into A and a rest.
    In half of the pairs B is that rest; in the others B is drawn from another document, and the
    rest goes into the next pair:

        document  s0 s1 s2 s3 s4 s5      a sequence holds about three sentences
        pair 1    A = s0      B = s1 s2             next
        pair 2    A = s3      B = from elsewhere    random: s4 and s5 go back
        pair 3    A = s4      B = s5                next

    A chunk of one sentence has no rest, so its B is always from elsewhere: more than half of all
    pairs are random.

    Args:
      document: its sentences.
      document_index: its number in `corpus`.
      corpus: where random next segments are drawn from.
      max_num_tokens: most tokens of A and B together: max_seq_length - 3.
      short_seq_prob: probability that the whole document is cut into shorter sequences, of a
        length drawn from 2 to max_num_tokens.
      rng: the source of all random numbers.
    """
    target_length = max_num_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_num_tokens)
    begin = 0
    while begin < len(document):
        end = chunk_end(document, begin, target_length)
        a_end = begin + (rng.randint(1, end - begin - 1) if end - begin >= 2 else 1)
        tokens_a = _join(document[begin:a_end])
        is_random_next = end - begin == 1 or rng.random() < 0.5
        if is_random_next:
            tokens_b = random_segment(
                corpus,
                not_document=document_index,
                min_tokens=target_length - len(tokens_a),
                rng=rng,
            )
            begin = a_end
        else:
            tokens_b = _join(document[a_end:end])
            begin = end
        tokens_a, tokens_b = truncate_at_random_ends(
            tokens_a, tokens_b, max_num_tokens=max_num_tokens, rng=rng
        )
        yield Pair(tokens_a, tokens_b, is_random_next)


def chunk_end(document: Sequence[Sentence], begin: int, target_length: int) -> int:
    """The end of the shortest run of sentences from `begin` on with `target_length` tokens.

    Sentences of 4, 3, 5 and 2 tokens, from sentence 0 on: 7 tokens end at 2, 8 at 3, 99 at 4.
    """
    length = 0
    for end in range(begin, len(document)):
        length += len(document[end])
        if length >= target_length:
            return end + 1
    return len(document)


def random_segment(
    corpus: Corpus, *, not_document: int, min_tokens: int, rng: random.Random
) -> list[int]:
    """Sentences from a random place of another document.

    After ten draws of `not_document` it is used, as in the original: in a corpus of one document
    the pair is labelled random although it is not.
    """
    for _ in range(DOCUMENT_DRAWS):
        document = rng.randint(0, corpus.num_documents - 1)
        if document != not_document:
            break
    start = rng.randint(0, corpus.num_sentences(document) - 1)
    return corpus.read_sentences(document, start, min_tokens=min_tokens)


def truncate_at_random_ends(
    tokens_a: list[int], tokens_b: list[int], *, max_num_tokens: int, rng: random.Random
) -> tuple[list[int], list[int]]:
    """Cuts single tokens off the longer segment until both fit (`truncate_seq_pair`).

    Of two equally long segments B is cut. Each token is cut from the front or the back with equal
    probability, so that segments do not always begin or end with a sentence. A = 1 2 3 4,
    B = 5 6 7, at most 5 tokens, draws front, front:

        1 2 3 4 | 5 6 7     A is longer: cut its front
          2 3 4 | 5 6 7     a tie: cut B's front
          2 3 4 |   6 7
    """
    starts, ends = [0, 0], [len(tokens_a), len(tokens_b)]
    lengths = list(ends)
    for _ in range(sum(lengths) - max_num_tokens):
        longer = 0 if lengths[0] > lengths[1] else 1
        lengths[longer] -= 1
        if rng.random() < 0.5:
            starts[longer] += 1
        else:
            ends[longer] -= 1
    return tokens_a[starts[0] : ends[0]], tokens_b[starts[1] : ends[1]]


def _join(sentences: Sequence[Sentence]) -> list[int]:
    return [token for sentence in sentences for token in sentence]
