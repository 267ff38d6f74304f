"""Input ids -> masked ids, the masked positions, and the ids to predict there.

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.

Shapes: L tokens of the sequence, n masked positions, P max_predictions_per_seq.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import NamedTuple


class MaskedIds(NamedTuple):
    """A masked sequence."""

    input_ids: list[int]  # [L], after masking
    positions: list[int]  # [n], ascending
    labels: list[int]  # [n], the original ids at the positions


@dataclasses.dataclass(frozen=True)
class MaskingRules:
    """Which ids are masked, how many, and what replaces them."""

    masked_lm_prob: float  # share of all tokens, [CLS] and [SEP] included
    max_predictions_per_seq: int  # P
    mask_id: int
    special_ids: frozenset[int]  # never masked: [CLS] and [SEP]
    vocab_ids: Sequence[int]  # random replacements are drawn from these
    continuation_ids: frozenset[int]  # of the word pieces that begin with ##
    do_whole_word_mask: bool


def mask_ids(input_ids: Sequence[int], rules: MaskingRules, rng: random.Random) -> MaskedIds:
    """Masks a sequence [L] (paper, section 3.1; original: `create_masked_lm_predictions`).

    Of the chosen ids 80 % become [MASK], 10 % stay, and 10 % become a random id of the vocabulary.
    Each word piece draws for itself, in whole-word masking too.
    """
    num_positions = number_to_mask(len(input_ids), rules)
    chosen = choose_positions(maskable_groups(input_ids, rules), num_positions, rng)
    masked = list(input_ids)
    for position in chosen:
        masked[position] = _replacement(input_ids[position], rules, rng)
    chosen.sort()
    return MaskedIds(masked, chosen, [input_ids[position] for position in chosen])


def maskable_groups(input_ids: Sequence[int], rules: MaskingRules) -> list[list[int]]:
    """The positions that are masked together: single tokens, or with `do_whole_word_mask` words.

        position   0     1   2     3     4     5     6   7     8
        token      [CLS] he  jump  ##ed  [SEP] ##er  is  here  [SEP]
        tokens          [1] [2]   [3]         [5]   [6] [7]
        words           [1] [2,    3,          5]   [6] [7]

    A ## piece joins the group before it. Position 5 does so across [SEP], as in the original: the
    first tokens of B were cut off in the middle of a word.
    """
    special_ids = rules.special_ids
    positions = [p for p, token in enumerate(input_ids) if token not in special_ids]
    if not rules.do_whole_word_mask:
        return [[position] for position in positions]
    groups: list[list[int]] = []
    for position in positions:
        if groups and input_ids[position] in rules.continuation_ids:
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


def choose_positions(
    groups: Sequence[Sequence[int]], num_positions: int, rng: random.Random
) -> list[int]:
    """Takes groups in random order until there are `num_positions` positions.

    A group that is too large for the rest is skipped, so whole words may give fewer positions:
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
