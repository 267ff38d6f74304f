"""A pair's tokens -> the positions to mask, and what stands there instead.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.

Shapes: L tokens of the sequence, n masked positions, P max_predictions_per_seq.
"""

import array
import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data_gen.corpus import TOKEN_TYPE
from data_gen.draws import FIRST, SECOND, Draws, first_shuffled, shuffled
from data_gen.pairs import Pair
from data_gen.spaced_words import CONTINUES_WORD

MASK_PROBABILITY = 0.8  # of a masked token to become [MASK]; half of the rest stay as they are
MASKED, UNCHANGED = FIRST, SECOND


@dataclasses.dataclass(frozen=True)
class MaskingRules:
    """Which tokens are masked, how many, and what replaces them."""

    masked_lm_prob: float  # share of all tokens, [CLS] and [SEP] included
    max_predictions_per_seq: int  # P
    mask_id: int
    vocab_ids: np.ndarray  # int [pieces]: random replacements are drawn from these
    continues_word: np.ndarray  # bool [V]: the word pieces that begin with ##
    do_whole_word_mask: bool
    words_from_spaces: bool = False  # the tokens' CONTINUES_WORD decides, not ##
    one_draw_per_word: bool = False


class Masked(NamedTuple):
    """What was drawn to mask a sequence [L]."""

    order: array.array | list[int]  # the draws of a shuffle of [L - 3]; or the positions [n]
    choices: list[int]  # [n]: MASKED, UNCHANGED, or the place of an id in `vocab_ids`


def mask(pair: Pair, rules: MaskingRules, draws: Draws) -> Masked:
    """Draws how to mask a sequence (paper, section 3.1; original: `create_masked_lm_predictions`).

    Of the chosen tokens 80 % become [MASK], 10 % stay, and 10 % become a random id of the
    vocabulary. Each word piece draws for itself, in whole-word masking too unless the rules have
    `one_draw_per_word`.

    Args:
      pair: the tokens between [CLS], [SEP] and [SEP], which are never masked.
      rules: see there.
      draws: all that is random; its threshold is MASK_PROBABILITY.

    Returns:
      With whole-word masking the positions. Without it the shuffle is left to `chosen_positions`,
      as the number of positions is known and many shuffles at a time are quicker.
    """
    length_a, length_b = pair.lengths
    number = number_to_mask(length_a + length_b + 3, rules)
    if rules.do_whole_word_mask:
        tokens = np.frombuffer(pair.tokens_a + pair.tokens_b, TOKEN_TYPE)
        groups = words(maskable_positions(length_a, length_b), tokens, rules)
        chosen = choose_words(shuffled(groups, draws.swaps(len(groups))), number)
        order = [*itertools.chain.from_iterable(chosen)]
        if rules.one_draw_per_word:
            return Masked(order, choices_of_words(chosen, len(rules.vocab_ids), draws))
        number = len(order)
    else:
        order = draws.swaps(length_a + length_b)
        number = min(number, length_a + length_b)
    return Masked(order, draws.choices(number, len(rules.vocab_ids)))


def chosen_positions(
    masked: Sequence[Masked], lengths_a: np.ndarray, rules: MaskingRules
) -> np.ndarray:
    """The positions of B sequences, [all masked tokens], in the order in which they were drawn.

    Args:
      masked: what `mask` gave.
      lengths_a: [B].
      rules: as for `mask`.
    """
    if rules.do_whole_word_mask:
        return np.fromiter(itertools.chain.from_iterable(m.order for m in masked), np.int64)
    numbers = np.array([len(m.choices) for m in masked])[:, np.newaxis]
    places = first_shuffled([m.order for m in masked], int(numbers.max()))  # [B, n]
    positions = places + 1 + (places >= lengths_a[:, np.newaxis])
    return positions[np.arange(positions.shape[1]) < numbers]


def maskable_positions(length_a: int, length_b: int) -> list[int]:
    """Where the tokens of A and B stand in [CLS] A [SEP] B [SEP].

    >>> maskable_positions(3, 2)
    [1, 2, 3, 5, 6]
    """
    return [*range(1, 1 + length_a), *range(2 + length_a, 2 + length_a + length_b)]


def words(positions: Sequence[int], tokens: np.ndarray, rules: MaskingRules) -> list[list[int]]:
    """The positions that are masked together with `do_whole_word_mask`.

        position   0     1   2     3     4     5     6   7     8
        token      [CLS] he  jump  ##ed  [SEP] ##er  is  here  [SEP]
        words           [1] [2,    3,          5]   [6] [7]

    A ## piece joins the group before it. Position 5 does so across [SEP], as in the original: the
    first tokens of B were cut off in the middle of a word.

    With `words_from_spaces` all tokens that have CONTINUES_WORD join, such as the second character
    of a Chinese word.
    """
    if rules.words_from_spaces:
        continues = tokens & CONTINUES_WORD != 0
    else:
        continues = rules.continues_word[tokens]
    groups: list[list[int]] = []
    for position, joins in zip(positions, continues.tolist(), strict=True):
        if groups and joins:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def number_to_mask(length: int, rules: MaskingRules) -> int:
    """How many of `length` tokens to mask: the rounded share, at least 1, at most P.

    Halves are rounded to the even number: with 0.15, both 130 (19.5) and 134 (20.1) give 20, and
    10 (1.5) gives 2.
    """
    return min(rules.max_predictions_per_seq, max(1, round(length * rules.masked_lm_prob)))


def choose_words(words: Sequence[Sequence[int]], num_positions: int) -> list[Sequence[int]]:
    """Takes words in their order until they have `num_positions` positions.

    A word that is too long for the rest is skipped, so there may be fewer positions: of the words
    [6] [2 3 5] [1] [7] it takes [6] [1] [7] for 3 positions.
    """
    chosen: list[Sequence[int]] = []
    for word in words:
        if num_positions <= 0:
            break
        if len(word) <= num_positions:
            chosen.append(word)
            num_positions -= len(word)
    return chosen


def choices_of_words(words: Sequence[Sequence[int]], n: int, draws: Draws) -> list[int]:
    """The choice for each position of some words, with one draw a word.

    All pieces of a word become [MASK], or all stay, or each becomes a random piece of its own.
    """
    made: list[int] = []
    for word in words:
        (choice,) = draws.choices(1, n)
        if choice in (MASKED, UNCHANGED):
            made += [choice] * len(word)
        else:
            made += [choice, *(draws.below(n) for _ in word[1:])]
    return made
