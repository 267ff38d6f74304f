"""Documents of tokenized sentences -> pairs of segments for the next-sentence task.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from data_gen.corpus import TOKEN_BYTES, Corpus

# How many draws it takes to give up looking for another document.
DOCUMENT_DRAWS = 10


class Pair(NamedTuple):
    """Two segments, together at most `max_num_tokens` long."""

    tokens_a: bytes  # int32
    tokens_b: bytes  # int32
    is_random_next: bool

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers of tokens."""
        return len(self.tokens_a) // TOKEN_BYTES, len(self.tokens_b) // TOKEN_BYTES


def document_pairs(
    block: Corpus,
    document: int,
    *,
    first_document: int,
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
      block: consecutive documents of `corpus`.
      document: the number of the one to cut, in `block`.
      first_document: the number of the first of them in `corpus`.
      corpus: where random next segments are drawn from.
      max_num_tokens: most tokens of A and B together: max_seq_length - 3.
      short_seq_prob: probability that the whole document is cut into shorter sequences, of a
        length drawn from 2 to max_num_tokens.
      rng: the source of all random numbers.
    """
    target_length = max_num_tokens
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_num_tokens)
    bounds, sentences = block.token_bounds, block.sentences(document)
    begin = sentences.start
    while begin < sentences.stop:
        end = block.sentences_end(range(begin, sentences.stop), target_length)
        a_end = begin + (rng.randint(1, end - begin - 1) if end - begin >= 2 else 1)
        first_a, length_a = bounds[begin], bounds[a_end] - bounds[begin]
        first_b, length_b = bounds[a_end], bounds[end] - bounds[a_end]
        is_random_next = end - begin == 1 or rng.random() < 0.5
        if is_random_next:
            number, wanted = first_document + document, target_length - length_a
            first_b, length_b = random_span(corpus, not_document=number, min_tokens=wanted, rng=rng)
        begin = a_end if is_random_next else end
        cut_a, cut_b = truncate_at_random_ends(
            length_a, length_b, max_num_tokens=max_num_tokens, rng=rng
        )
        tokens_b = (corpus if is_random_next else block).tokens(first_b + cut_b.start, len(cut_b))
        yield Pair(block.tokens(first_a + cut_a.start, len(cut_a)), tokens_b, is_random_next)


def random_span(
    corpus: Corpus, *, not_document: int, min_tokens: int, rng: random.Random
) -> tuple[int, int]:
    """Sentences from a random place of another document: their first token, and how many.

    After ten draws of `not_document` it is used, as in the original: in a corpus of one document
    the pair is labelled random although it is not.
    """
    for _ in range(DOCUMENT_DRAWS):
        document = rng.randrange(corpus.num_documents)
        if document != not_document:
            break
    sentences = corpus.sentences(document)
    return corpus.span(sentences[rng.randrange(len(sentences)) :], min_tokens)


def truncate_at_random_ends(
    length_a: int, length_b: int, *, max_num_tokens: int, rng: random.Random
) -> tuple[range, range]:
    """Cuts single tokens off the longer segment until both fit (`truncate_seq_pair`).

    Of two equally long segments B is cut. Each token is cut from the front or the back with equal
    probability, so that segments do not always begin or end with a sentence. A = 1 2 3 4,
    B = 5 6 7, at most 5 tokens, draws front, front:

        1 2 3 4 | 5 6 7     A is longer: cut its front
          2 3 4 | 5 6 7     a tie: cut B's front
          2 3 4 |   6 7

    Returns:
      The tokens of A and of B that stay, numbered from 0 in each.
    """
    first_a = first_b = 0
    for _ in range(length_a + length_b - max_num_tokens):
        is_front = rng.random() < 0.5
        if length_a > length_b:
            length_a, first_a = length_a - 1, first_a + is_front
        else:
            length_b, first_b = length_b - 1, first_b + is_front
    return range(first_a, first_a + length_a), range(first_b, first_b + length_b)
