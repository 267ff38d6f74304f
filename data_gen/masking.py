"""Input ids -> the positions that the masked-LM task hides, and what stands there instead.

The random numbers are drawn in the original's order, so one `random.Random` over a whole corpus
gives the original's records byte for byte (tests/test_masking.py).
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import NamedTuple


class MaskedIds(NamedTuple):
    """What `mask_ids` makes of a sequence of length L with n masked positions."""

    input_ids: list[int]  # [L], after masking
    positions: list[int]  # [n], ascending
    labels: list[int]  # [n], the ids that stood at the positions


@dataclasses.dataclass(frozen=True)
class MaskingRules:
    """What may be masked, how much, and by what."""

    masked_lm_prob: float  # share of the tokens, [CLS] and [SEP] counted
    max_predictions_per_seq: int  # P
    mask_id: int
    special_ids: frozenset[int]  # never masked: [CLS] and [SEP]
    vocab_ids: Sequence[int]  # every id of the vocabulary; random replacements are drawn from it
    continues_word: Sequence[bool]  # [V], by id: is the piece one that begins with ##?
    do_whole_word_mask: bool


def mask_ids(input_ids: Sequence[int], rules: MaskingRules, rng: random.Random) -> MaskedIds:
    """Masks a sequence (paper, section 3.1; original: `create_masked_lm_predictions`).

    A masked id becomes [MASK] in 80 % of the draws, stays in 10 %, and becomes any id of the
    vocabulary in 10 %. The draw is one for each piece, in whole-word masking too.
    """
    groups = maskable_groups(input_ids, rules)
    num_positions = number_to_mask(
        len(input_ids),
        masked_lm_prob=rules.masked_lm_prob,
        max_predictions_per_seq=rules.max_predictions_per_seq,
    )
    chosen = choose_positions(groups, num_positions, rng)
    masked = list(input_ids)
    for position in chosen:
        masked[position] = _replacement(input_ids[position], rules, rng)
    chosen.sort()
    return MaskedIds(masked, chosen, [input_ids[position] for position in chosen])


def maskable_groups(input_ids: Sequence[int], rules: MaskingRules) -> list[list[int]]:
    """The positions that are masked together: single pieces, or with `do_whole_word_mask` words.

        position   0     1   2     3     4     5     6   7     8
        piece      [CLS] he  jump  ##ed  [SEP] ##er  is  here  [SEP]
        pieces          [1] [2]   [3]         [5]   [6] [7]
        words           [1] [2,    3,          5]   [6] [7]

    A ## piece joins the group before it. Position 5 does so across [SEP]: the first tokens of B
    were cut off in the middle of a word, and the original does the same.
    """
    special_ids = rules.special_ids
    positions = [p for p, token in enumerate(input_ids) if token not in special_ids]
    if not rules.do_whole_word_mask:
        return [[position] for position in positions]
    groups: list[list[int]] = []
    for position in positions:
        if groups and rules.continues_word[input_ids[position]]:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def number_to_mask(length: int, *, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """How many of `length` tokens to mask: the rounded share, at least 1, at most P.

    Halves go to the even number, as in Python 3: with 0.15, both 130 (19.5) and 134 (20.1) give
    20, and 10 (1.5) gives 2.
    """
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


def choose_positions(
    groups: Sequence[Sequence[int]], num_positions: int, rng: random.Random
) -> list[int]:
    """Takes groups in random order until there are `num_positions` positions.

    A group that would go beyond is left out, so with whole words it may end a little below:
    groups [1] [2 3 5] [6] [7] in the order [6] [2 3 5] [1] [7] give for 3 positions 6, 1, 7.
    """
    order = list(groups)
    rng.shuffle(order)
    chosen: list[int] = []
    for group in order:
        if len(chosen) >= num_positions:
            break
        if len(chosen) + len(group) <= num_positions:
            chosen.extend(group)
    return chosen


def _replacement(token: int, rules: MaskingRules, rng: random.Random) -> int:
    if rng.random() < 0.8:
        return rules.mask_id
    if rng.random() < 0.5:
        return token
    return rules.vocab_ids[rng.randint(0, len(rules.vocab_ids) - 1)]
