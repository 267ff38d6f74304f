"""Rows of several sequences, one after the other (Krell et al., 2021).

    sequence_numbers   1 1 1 1 2 2 3 3 3 0 0       int [B, S], the input_mask of such rows
    places             0 1 2 3 0 1 0 1 2 .

1 for the tokens of the first sequence, 2 for those of the second, 0 for padding. A model that is
built for such rows (`models.encode`, num_sequences above 1) lets a token see those of its own
sequence alone, counts positions from the beginning of each, and pools each.

Dimensions: B rows, S tokens, K sequences of a row at most, D hidden.
"""

from typing import Any

import numpy as np
from keras import ops

Tensor = Any  # of any backend


def numbered(input_mask: Tensor, num_sequences: int) -> Tensor:
    """The mask as sequence numbers: of rows of one sequence anything but 0 is 1; int [B, S]."""
    if num_sequences > 1:
        return input_mask
    return ops.cast(ops.not_equal(input_mask, 0), "int32")


def same_sequence(sequence_numbers: Tensor) -> Tensor:
    """Whether a token sees another, as an attention_mask: [B, S] -> bool [B, S, S].

    Padding sees padding: a token that sees nothing has no probabilities.
    """
    numbers = sequence_numbers
    return ops.equal(ops.expand_dims(numbers, 2), ops.expand_dims(numbers, 1))


def places_in_sequences(sequence_numbers: Tensor) -> Tensor:
    """The place of each token in its sequence, from 0: int32 [B, S]."""
    before = tokens_before(sequence_numbers, sequence_numbers)  # [B, S]
    places = ops.cumsum(ops.ones_like(before), axis=1) - 1  # 0, 1, 2, ... also of unknown lengths
    return places - before


def first_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the first tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    Of an absent sequence that of an arbitrary token.
    """
    numbers = ops.arange(1, num_sequences + 1, dtype="int32")[None, :]  # [1, K]
    places = tokens_before(sequence_numbers, numbers)  # [B, K]
    last = ops.sum(ops.cast(sequence_numbers > 0, "int32"), axis=1, keepdims=True) - 1  # [B, 1]
    return ops.take_along_axis(x, ops.expand_dims(ops.minimum(places, last), 2), axis=1)


def last_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the last tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    Of an absent sequence that of the last one before it.
    """
    # [1, K, 1]; not as a tensor, which LiteRT's converter would make an input.
    numbers = np.arange(1, num_sequences + 1, dtype="int32")[None, :, None]
    of_tokens = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_until = ops.logical_and(of_tokens > 0, of_tokens <= numbers)  # [B, K, S]
    positions = ops.cumsum(ops.ones_like(of_tokens), axis=2) - 1  # [B, 1, S]
    places = ops.max(positions * ops.cast(is_until, "int32"), axis=2)  # [B, K]
    return ops.take_along_axis(x, ops.expand_dims(places, 2), axis=1)


def last_at_first(x: Tensor, input_mask: Tensor, num_sequences: int) -> Tensor:
    """[B, S, D], with the vector of each sequence's last token at its first one."""
    sequence_numbers = numbered(input_mask, num_sequences)
    last = last_tokens(x, sequence_numbers, num_sequences)  # [B, K, D]
    number = ops.expand_dims(ops.maximum(sequence_numbers - 1, 0), 2)  # [B, S, 1]
    before = ops.pad(sequence_numbers, ((0, 0), (1, 0)))[:, :-1]  # [B, S]
    is_first = ops.logical_and(sequence_numbers > 0, ops.not_equal(sequence_numbers, before))
    last = ops.take_along_axis(last, number, axis=1)  # [B, S, D]
    return ops.where(ops.expand_dims(is_first, 2), last, x)


def tokens_before(sequence_numbers: Tensor, of: Tensor) -> Tensor:
    """How many tokens of a row are of sequences with smaller numbers: int32, of the shape of `of`.

    0 for number 0, the padding.
    """
    own = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_before = ops.logical_and(own > 0, ops.less(own, of[:, :, None]))  # [B, n, S]
    return ops.sum(ops.cast(is_before, "int32"), axis=-1)
