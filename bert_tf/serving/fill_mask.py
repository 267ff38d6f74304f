"""The word pieces that a pre-trained BERT guesses for each [MASK], in Python."""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer

MASK = "[MASK]"


@dataclasses.dataclass(frozen=True)
class Guess:
    """A word piece for one [MASK], with its probability."""

    piece: str
    probability: float


def fill_mask(
    model: keras.Model,
    tokenizer: FullTokenizer,
    text: str,
    *,
    max_seq_length: int,
    top_k: int = 5,
) -> list[list[Guess]]:
    """Guesses the word pieces for each [MASK] of a text.

    Args:
      model: a `pretraining_model`.
      tokenizer: the one that the model was trained with.
      text: with one [MASK] or more.
      max_seq_length: maximum number of tokens, [CLS] and [SEP] included.
      top_k: guesses for each [MASK].

    Returns:
      For each [MASK], in order, `top_k` guesses, the likeliest first.

    Raises:
      InputError: there is no [MASK], or the text is too long.
    """
    tokenizer.require_special_tokens("[CLS]", "[SEP]", MASK)
    # The tokenizer would split the brackets off, as the original does: cut at [MASK] before.
    parts = [tokenizer.tokenize(part) for part in text.split(MASK)]
    pieces = ["[CLS]", *parts[0]]
    for part in parts[1:]:
        pieces += [MASK, *part]
    pieces.append("[SEP]")
    if len(parts) == 1 or len(pieces) > max_seq_length:
        raise InputError(
            f"{text!r}, of {len(pieces)} pieces with {len(parts) - 1} {MASK}",
            f"at least one {MASK} and at most {max_seq_length} pieces",
            f"write {MASK} in place of the word to guess, or shorten the text",
        )
    positions = [i for i, piece in enumerate(pieces) if piece == MASK]
    probabilities = _probabilities(model, tokenizer.convert_tokens_to_ids(pieces), positions)
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]  # [P, top_k]
    return [
        [Guess(tokenizer.inv_vocab.get(int(i), f"#{i}"), float(row[i])) for i in ids]
        for row, ids in zip(probabilities, best, strict=True)
    ]


def _probabilities(model: keras.Model, ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """Soft-max over the vocabulary at each position, float64 [P, V]."""
    outputs = model(
        {
            "input_ids": np.asarray([ids], np.int32),
            "input_mask": np.ones([1, len(ids)], np.int32),
            "segment_ids": np.zeros([1, len(ids)], np.int32),
            "masked_lm_positions": np.asarray([positions], np.int32),
        },
        training=False,
    )
    logits = np.asarray(outputs["masked_lm_logits"][0], np.float64)  # [P, V]
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
