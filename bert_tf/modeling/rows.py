"""Packed rows: several sequences in a row, one after the other (Krell et al., 2021).

    sequence_numbers   1 1 1 1 2 2 3 3 3 0 0       int [B, S], the input_mask of such rows
    places             0 1 2 3 0 1 0 1 2 .

The number is 1 for tokens of the first sequence, 2 for those of the second, 0 for padding. In a
model for such rows (`models.encode`, num_sequences above 1) a token sees only its own sequence,
positions start at 0 in each sequence, and each is pooled.

Dimensions: B rows, S tokens, K sequences of a row at most, D hidden.
"""

from typing import Any

import numpy as np
from keras import ops

Tensor = Any  # of any backend


def numbered(input_mask: Tensor, num_sequences: int) -> Tensor:
    """The sequence numbers in an input_mask; with one sequence a row 0 and 1; int [B, S]."""
    if num_sequences > 1:
        return input_mask
    return ops.cast(ops.not_equal(input_mask, 0), "int32")


def same_sequence(sequence_numbers: Tensor) -> Tensor:
    """Whether two tokens are of the same sequence, as an attention_mask: [B, S] -> bool [B, S, S].

    Padding sees padding, as every token must see something for a soft-max.
    """
    rows = ops.expand_dims(sequence_numbers, 2)  # [B, S, 1]
    columns = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    return ops.equal(rows, columns)


def places_in_sequences(sequence_numbers: Tensor) -> Tensor:
    """The place of each token in its sequence, from 0: int32 [B, S]."""
    before = tokens_before(sequence_numbers, sequence_numbers)  # [B, S]
    places = ops.cumsum(ops.ones_like(before), axis=1) - 1  # 0, 1, 2, ... also of unknown lengths
    return places - before


def first_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the first tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    A sequence that the row does not have gets the vector of an arbitrary token.
    """
    numbers = ops.arange(1, num_sequences + 1, dtype="int32")[None, :]  # [1, K]
    places = tokens_before(sequence_numbers, numbers)  # [B, K]
    last = ops.sum(ops.cast(sequence_numbers > 0, "int32"), axis=1, keepdims=True) - 1  # [B, 1]
    return ops.take_along_axis(x, ops.expand_dims(ops.minimum(places, last), 2), axis=1)


def last_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the last tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    A sequence that the row does not have gets the vector of the last one before it.
    """
    # Of NumPy: LiteRT's converter would make a tensor an input of the model.
    numbers = np.arange(1, num_sequences + 1, dtype="int32")[None, :, None]  # [1, K, 1]
    token_numbers = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_up_to = ops.logical_and(token_numbers > 0, token_numbers <= numbers)  # [B, K, S]
    positions = ops.cumsum(ops.ones_like(token_numbers), axis=2) - 1  # [B, 1, S]
    places = ops.max(positions * ops.cast(is_up_to, "int32"), axis=2)  # [B, K]
    return ops.take_along_axis(x, ops.expand_dims(places, 2), axis=1)


def last_at_first(x: Tensor, input_mask: Tensor, num_sequences: int) -> Tensor:
    """x [B, S, D], with the vector of each sequence's last token in the place of its first."""
    sequence_numbers = numbered(input_mask, num_sequences)  # [B, S]
    last = last_tokens(x, sequence_numbers, num_sequences)  # [B, K, D]
    index = ops.expand_dims(ops.maximum(sequence_numbers - 1, 0), 2)  # [B, S, 1]
    before = ops.pad(sequence_numbers, ((0, 0), (1, 0)))[:, :-1]  # [B, S], of the token before
    is_first = ops.logical_and(sequence_numbers > 0, ops.not_equal(sequence_numbers, before))
    last = ops.take_along_axis(last, index, axis=1)  # [B, S, D]
    return ops.where(ops.expand_dims(is_first, 2), last, x)


def tokens_before(sequence_numbers: Tensor, numbers: Tensor) -> Tensor:
    """How many tokens of its row come before a sequence, which is its first token's position.

    Args:
      sequence_numbers: the sequence numbers of the tokens, int [B, S].
      numbers: the numbers of sequences, int [B, n] or [1, n]; the result is 0 for number 0, the
        padding.

    Returns:
      int32 [B, n].
    """
    token_numbers = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_smaller = ops.less(token_numbers, numbers[:, :, None])  # [B, n, S]
    is_before = ops.logical_and(token_numbers > 0, is_smaller)
    return ops.sum(ops.cast(is_before, "int32"), axis=-1)  # [B, n]
