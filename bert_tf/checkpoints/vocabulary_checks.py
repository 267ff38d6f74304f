"""Whether a vocabulary and the case of the text belong to a model."""

import re
from collections.abc import Mapping

from absl import logging

from bert_tf.checkpoints.metadata import Weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer

MOST_SPARE_ROWS = 1023  # of a table that was padded to a round number


def check_spare_rows(tokenizer: FullTokenizer, config: BertConfig) -> None:
    """Raises `InputError` where the table has far more rows than there are pieces; warns of few."""
    spare = config.vocab_size - tokenizer.vocab_size
    if spare > MOST_SPARE_ROWS:
        raise InputError(
            received=f"{tokenizer.vocab_file} with {tokenizer.vocab_size} pieces",
            expected=f"{config.vocab_size}, the rows of the model's table, or a few less",
            remedy="give the vocabulary that belongs to the model",
        )
    if spare:
        logging.warning(
            "%s has %d pieces, the model's table %d rows; the last %d are not used.",
            tokenizer.vocab_file,
            tokenizer.vocab_size,
            config.vocab_size,
            spare,
        )


# The released models by the case of their text, as the original knows them.
_RELEASED = {
    True: r"(?:wwm_)?uncased_L-\d+_H-\d+_A-\d+|(?:multilingual|chinese)_L-12_H-768_A-12",
    False: r"(?:wwm_)?cased_L-\d+_H-\d+_A-\d+|multi_cased_L-12_H-768_A-12",
}


def check_case(weights: Weights, tokenizer: FullTokenizer) -> None:
    """Raises `InputError` where facts, folder or vocabulary say another do_lower_case.

    Original: `validate_case_matches_checkpoint`, which knows the folder's name only.
    """
    lower = tokenizer.do_lower_case
    folder = weights.path.rpartition("/")[0].rpartition("/")[2]
    says = None
    if weights.facts.do_lower_case not in (None, lower):
        says = f"{weights.path}, whose model says do_lower_case {weights.facts.do_lower_case}"
    elif re.fullmatch(_RELEASED[not lower], folder):
        says = f"{weights.path}, by its name a model with do_lower_case {not lower}"
    elif (cased := is_cased(tokenizer.vocab)) not in (None, not lower):
        kind = "with capital letters" if cased else "without one capital letter"
        says = f"{tokenizer.vocab_file}, a vocabulary {kind}"
    if says:
        raise InputError(
            received=f"do_lower_case {lower} with {says}",
            expected="text in the case that the model was trained with",
            remedy=f"use --{'no' if lower else ''}do_lower_case",
        )


def is_cased(vocab: Mapping[str, int]) -> bool | None:
    """Whether a vocabulary has capital letters; None if it is too small to say."""
    pieces = [piece for piece in vocab if not re.fullmatch(r"\[.*\]|<.*>", piece)]
    capital = sum(piece != piece.lower() for piece in pieces)
    small = sum(piece != piece.upper() for piece in pieces)
    if small < 1000:
        return None
    if capital == 0:
        return False
    return True if capital > small / 50 else None
