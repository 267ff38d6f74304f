"""The ids of one or two texts -> the ids and segments of one sequence, cut to length.

    one     [CLS] a [SEP]             segments 0 0 0
    pair    [CLS] a [SEP] b [SEP]     segments 0 0 0 1 1

Source: `convert_single_example` and `_truncate_seq_pair` of google-research/bert.
"""

import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

LEAST_LENGTH = 5  # [CLS], [SEP], [SEP] and a piece of either text


class Packer:
    """Joins the ids of one or two texts to sequences of at most `max_seq_length` ids."""

    def __init__(self, tokenizer: "FullTokenizer", max_seq_length: int):
        self._cls, self._sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self._max_seq_length = max_seq_length

    def pack(self, a: list[int], b: list[int]) -> tuple[list[int], list[int], bool]:
        """Ids, segments, and whether ids were cut off; a second text without ids counts as none."""
        room = self._max_seq_length - (3 if b else 2)
        is_cut = len(a) + len(b) > room
        a, b = truncate_pair(a, b, room)
        first, second = [self._cls, *a, self._sep], [*b, self._sep] if b else []
        return first + second, [0] * len(first) + [1] * len(second), is_cut


def pack_texts(
    tokenizer: "FullTokenizer",
    texts: Iterable[Any],
    text_pairs: Iterable[Any] | None,
    max_length: int | None,
) -> list[tuple[list[int], list[int]]]:
    """Ids and segments of each text or pair, of at most `max_length` ids; None: of any number.

    Raises:
      InputError: there are more or fewer second texts, one is no text, `max_length` is too short
        for a pair, or the vocabulary lacks [CLS] or [SEP].
    """
    tokenizer.require_special_tokens("[CLS]", "[SEP]")
    if max_length is not None and max_length < LEAST_LENGTH:
        raise InputError(f"max_length {max_length}", f"{LEAST_LENGTH} or more", "use a greater one")
    first = _texts(texts, "text")
    second = [""] * len(first) if text_pairs is None else _texts(text_pairs, "second text")
    if len(first) != len(second):
        received = f"{len(first)} texts and {len(second)} second texts"
        raise InputError(received, "as many, some of them empty", "correct one of the two lists")
    packer = Packer(tokenizer, sys.maxsize if max_length is None else max_length)
    ids = tokenizer.iter_ids(itertools.chain(first, second))
    of_first = list(itertools.islice(ids, len(first)))
    return [packer.pack(a, b)[:2] for a, b in zip(of_first, ids, strict=True)]


def _texts(texts: Iterable[Any], what: str) -> list[str | bytes]:
    texts = [texts] if isinstance(texts, str | bytes) else list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            received = f"{text!r:.80} as {what} {number}, counted from 0"
            raise InputError(received, "a string", "leave out rows without a text")
    return texts


def padded(
    rows: Sequence[tuple[list[int], list[int]]], length: int | None = None
) -> dict[str, np.ndarray]:
    """Rows of ids and segments as a model's inputs, int32 [B, S]; S is `length`, or the longest."""
    longest = max((len(ids) for ids, _ in rows), default=0)
    shape = len(rows), longest if length is None else length
    batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for number, (ids, segments) in enumerate(rows):
        for array, values in zip(batch.values(), (ids, 1, segments), strict=True):
            array[number, : len(ids)] = values
    return batch


def truncate_pair(a: list[int], b: list[int], most: int) -> tuple[list[int], list[int]]:
    """Cuts from the end of the longer, of the second if equal, until both fit into `most`."""
    of_a, of_b = max(most - len(b), most - most // 2), max(most - len(a), most // 2)
    return a[:of_a], b[:of_b]
