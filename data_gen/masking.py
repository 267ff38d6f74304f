"""A pair's tokens -> the positions to mask, and their replacements.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.

Shapes: L tokens of the sequence, n masked positions, P max_predictions_per_seq, V word pieces.
"""

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.data.records import DataSettings
from data_gen.corpus import CONTINUES_WORD, TOKEN_BYTES, TOKEN_TYPE

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]
# Choices for a token; a number from 0 is the index of a piece of the vocabulary.
MASKED = -1
UNCHANGED = -2


class Pair(NamedTuple):
    """Two segments, together at most S - 3 tokens."""

    tokens_a: bytes  # int32
    tokens_b: bytes  # int32
    is_random_next: bool

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers of tokens."""
        return len(self.tokens_a) // TOKEN_BYTES, len(self.tokens_b) // TOKEN_BYTES


class Masked(NamedTuple):
    """How a sequence [L] is masked."""

    positions: list[int]  # [n], in the order in which they were drawn
    choices: list[int]  # [n]: MASKED, UNCHANGED, or the index of the piece that is put there


def mask(
    pair: Pair,
    settings: DataSettings,
    is_continuation: np.ndarray,
    num_pieces: int,
    rng: random.Random,
) -> Masked:
    """Draws how to mask a sequence (paper, section 3.1; original: `create_masked_lm_predictions`).

    Of the chosen tokens a `mask_share` (80 % in the paper) become [MASK], an `unchanged_share`
    (10 %) stay, and a `random_share` (10 %) become a random id of the vocabulary. Each word piece
    draws for itself, in whole-word masking too.

    Args:
      pair: the tokens of both texts; [CLS] and [SEP], which are never masked, stand around them.
      settings: how many tokens are masked, whole words or not, and the shares.
      is_continuation: bool [ids], whether the piece with this id begins with ##.
      num_pieces: V, from which random pieces are drawn.
      rng: the source of all random numbers.
    """
    length_a, length_b = pair.lengths
    num_to_mask = number_to_mask(length_a + length_b + NUM_SPECIAL_TOKENS, settings)
    positions = maskable_positions(length_a, length_b)
    if not settings.do_whole_word_mask:
        shuffle(positions, rng)
        positions = positions[:num_to_mask]
        return Masked(positions, [choose(settings, num_pieces, rng) for _ in positions])
    tokens = np.frombuffer(pair.tokens_a + pair.tokens_b, TOKEN_TYPE)
    if settings.words_from_spaces:
        continues = (tokens & CONTINUES_WORD) != 0  # a bit of the id
    else:
        continues = is_continuation[tokens]
    words = words_of(positions, continues)
    shuffle(words, rng)
    positions = [*itertools.chain.from_iterable(choose_words(words, num_to_mask))]
    return Masked(positions, [choose(settings, num_pieces, rng) for _ in positions])


def shuffle(items: list, rng: random.Random) -> None:
    """Does what `rng.shuffle` does, with the same draws in half the time: it calls no method."""
    getrandbits = rng.getrandbits
    for place in range(len(items) - 1, 0, -1):
        bits = (place + 1).bit_length()
        while (drawn := getrandbits(bits)) > place:
            pass
        items[place], items[drawn] = items[drawn], items[place]


def choose(settings: DataSettings, num_pieces: int, rng: random.Random) -> int:
    """Draws MASKED, UNCHANGED, or the index of a random piece of the vocabulary."""
    if rng.random() < settings.mask_share:
        return MASKED
    unchanged = settings.unchanged_share
    is_unchanged = rng.random() * (unchanged + settings.random_share) < unchanged
    return UNCHANGED if is_unchanged else rng.randrange(num_pieces)


def maskable_positions(length_a: int, length_b: int) -> list[int]:
    """The positions of A and B in [CLS] A [SEP] B [SEP].

    >>> maskable_positions(3, 2)
    [1, 2, 3, 5, 6]
    """
    return [*range(1, 1 + length_a), *range(2 + length_a, 2 + length_a + length_b)]


def words_of(positions: Sequence[int], continues: np.ndarray) -> list[list[int]]:
    """The words of a sequence: the positions that `do_whole_word_mask` masks together.

        position   0     1   2     3     4     5     6   7     8
        token      [CLS] he  jump  ##ed  [SEP] ##er  is  here  [SEP]
        words           [1] [2,    3,          5]   [6] [7]

    A ## piece joins the word before it. Position 5 does so across [SEP], as in the original: B was
    cut in the middle of a word.

    Args:
      positions: the positions of the tokens.
      continues: bool, whether each token continues a word: ## pieces do, or with
        `words_from_spaces` those with CONTINUES_WORD, such as a word's second Chinese character.
    """
    words: list[list[int]] = []
    for position, is_continued in zip(positions, continues.tolist(), strict=True):
        if not (words and is_continued):
            words.append([])
        words[-1].append(position)
    return words


def number_to_mask(length: int, settings: DataSettings) -> int:
    """How many of `length` tokens to mask: the rounded share, at least 1, at most P.

    Halves are rounded to the even number: with 0.15, both 130 (19.5) and 134 (20.1) give 20, and
    10 (1.5) gives 2.
    """
    share = round(length * settings.masked_lm_prob)
    return min(settings.max_predictions_per_seq, max(1, share))


def choose_words(words: Sequence[Sequence[int]], num_positions: int) -> list[Sequence[int]]:
    """Takes words in their order until they have `num_positions` positions, or no more fits.

    A word that is too long for the rest is skipped: of the words [6] [2 3 5] [1] [7] it takes
    [6] [1] [7] for 3 positions.
    """
    chosen: list[Sequence[int]] = []
    for word in words:
        if num_positions <= 0:
            break
        if len(word) <= num_positions:
            chosen.append(word)
            num_positions -= len(word)
    return chosen
