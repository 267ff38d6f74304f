"""Documents of tokenized sentences -> pairs of segments for the next-sentence task.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.
"""

from collections.abc import Iterator
from typing import NamedTuple

from data_gen.corpus import TOKEN_BYTES, Corpus, MemoryCorpus
from data_gen.draws import Draws

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
    block: MemoryCorpus,
    document: int,
    *,
    first_document: int,
    corpus: Corpus,
    max_num_tokens: int,
    short_seq_prob: float,
    draws: Draws,
) -> Iterator[Pair]:
    """Cuts a document into pairs (paper, appendix A.2; `create_instances_from_document`).

    Args:
      block: consecutive documents of `corpus`.
      document: the number of the one to cut, in `block`.
      first_document: the number of the first of them in `corpus`.
      corpus: where random next segments are drawn from.
      max_num_tokens: most tokens of A and B together: max_seq_length - 3.
      short_seq_prob: probability that the whole document is cut into shorter sequences, of a
        length drawn from 2 to max_num_tokens.
      draws: all that is random.
    """
    target_length = max_num_tokens
    if draws.share() < short_seq_prob:
        target_length = 2 + draws.below(max_num_tokens - 1)
    for first_a, length_a, first_b, length_b, is_random_next in segments(
        block, document, first_document, corpus, target_length, draws
    ):
        if length_a + length_b > max_num_tokens:
            cut_a, cut_b = truncate_at_random_ends(
                length_a, length_b, max_num_tokens=max_num_tokens, draws=draws
            )
            first_a, length_a = first_a + cut_a.start, len(cut_a)
            first_b, length_b = first_b + cut_b.start, len(cut_b)
        tokens_b = (corpus if is_random_next else block).tokens(first_b, length_b)
        yield Pair(block.tokens(first_a, length_a), tokens_b, is_random_next)


def segments(
    block: MemoryCorpus,
    document: int,
    first_document: int,
    corpus: Corpus,
    target_length: int,
    draws: Draws,
) -> Iterator[tuple[int, int, int, int, bool]]:
    """The segments of a document's pairs, in whole sentences, as `document_pairs` has them.

    Sentences are collected until they fill a sequence, then divided at random into A and a rest.
    In half of the pairs B is that rest; in the others B is drawn from another document, and the
    rest goes into the next pair:

        document  s0 s1 s2 s3 s4 s5      a sequence holds about three sentences
        pair 1    A = s0      B = s1 s2             next
        pair 2    A = s3      B = from elsewhere    random: s4 and s5 go back
        pair 3    A = s4      B = s5                next

    A chunk of one sentence has no rest, so its B is always from elsewhere: more than half of all
    pairs are random.

    Yields:
      A's first token in `block`, and how many; B's first token, in `corpus` if it is random, else
      in `block`, and how many; whether it is random.
    """
    bounds, sentences = block.token_bounds, block.sentences(document)
    begin = sentences.start
    while begin < sentences.stop:
        end = block.sentences_end(range(begin, sentences.stop), target_length)
        a_end = begin + 1 + (draws.below(end - begin - 1) if end - begin >= 2 else 0)
        first_a, length_a = bounds[begin], bounds[a_end] - bounds[begin]
        if end - begin == 1 or draws.is_below_half():
            elsewhere = random_span(
                corpus,
                not_document=first_document + document,
                min_tokens=target_length - length_a,
                draws=draws,
            )
            yield first_a, length_a, *elsewhere, True
            begin = a_end
        else:
            yield first_a, length_a, bounds[a_end], bounds[end] - bounds[a_end], False
            begin = end


def random_span(
    corpus: Corpus, *, not_document: int, min_tokens: int, draws: Draws
) -> tuple[int, int]:
    """Sentences from a random place of another document: their first token, and how many.

    After ten draws of `not_document` it is used, as in the original: in a corpus of one document
    the pair is labelled random although it is not.
    """
    for _ in range(DOCUMENT_DRAWS):
        document = draws.below(corpus.num_documents)
        if document != not_document:
            break
    sentences = corpus.sentences(document)
    return corpus.span(sentences[draws.below(len(sentences)) :], min_tokens)


def truncate_at_random_ends(
    length_a: int, length_b: int, *, max_num_tokens: int, draws: Draws
) -> tuple[range, range]:
    """Cuts single tokens off the longer segment until both fit (`truncate_seq_pair`).

    Of two equally long segments B is cut. Each token is cut from the front or the back with equal
    probability, so that segments do not always begin or end with a sentence. A = 1 2 3 4,
    B = 5 6 7, at most 5 tokens, draws front, front:

        1 2 3 4 | 5 6 7     A is longer: cut its front
          2 3 4 | 5 6 7     a tie: cut B's front
          2 3 4 |   6 7

    So the longer segment is cut until they are equally long; then B and A in turn.

    Returns:
      The tokens of A and of B that stay, numbered from 0 in each.
    """
    fronts = draws.halves(length_a + length_b - max_num_tokens)  # 1: cut the front
    tie = abs(length_a - length_b)
    of_a, of_b = fronts[tie + 1 :: 2], fronts[tie::2]
    if length_a > length_b:
        of_a += fronts[:tie]
    else:
        of_b += fronts[:tie]
    starts = of_a.count(1), of_b.count(1)
    return (
        range(starts[0], starts[0] + length_a - len(of_a)),
        range(starts[1], starts[1] + length_b - len(of_b)),
    )
