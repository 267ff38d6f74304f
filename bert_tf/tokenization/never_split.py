"""Pieces that are never split: found in the raw text, before it is cut into words.

Shapes: N texts, M parts of all texts, Q pieces that are found in them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from bert_tf.tokenization.basic import in_texts

MARK = b"\xff"  # occurs in no UTF-8


class Parts(NamedTuple):
    """The parts of N texts, one after the other; in each text every second one is a piece."""

    strings: tf.Tensor  # [M] string: empty where the part is a piece
    pieces: tf.RaggedTensor  # string [M, (0 or 1)]: the piece
    ids: tf.RaggedTensor  # int32 [M, (0 or 1)]: of the piece
    starts: tf.Tensor  # [M] int32: where the part begins in its text, in code points
    lengths: tf.Tensor  # [M] int32, in code points
    text_splits: tf.Tensor  # [N + 1] int64: parts before each text


class NeverSplit:
    """Tokenizes texts whose pieces of a list are kept whole.

        text     "He <e1> [MASK]."     never split: <e1>, [MASK]
        parts    "He " | <e1> | " " | [MASK] | "."

    The parts between such pieces are tokenized as texts of their own. A piece is found anywhere,
    also inside a word, in its own case only; of two that begin at one place, the longer.
    """

    def __init__(self, ids: Mapping[str, int]):
        """Takes the ids of these pieces, which are not empty."""
        pieces = sorted(ids, key=len, reverse=True)
        self._pattern = any_of(pieces)
        self._pieces = tf.constant(pieces)
        self._ids = tf.constant([ids[piece] for piece in pieces], tf.int32)

    def tokenize(self, tokenize: Callable, texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Returns what `tokenize` gives for texts [N], with the kept pieces among the others.

        Args:
          tokenize: gives the ids of texts, or their ids, starts and ends: [N, (pieces)] each.
          texts: of UTF-8; bytes that are not UTF-8 are skipped.
        """
        parts = self.split(texts)
        ids, *borders = tokenize(parts.strings)
        columns = [tf.concat([parts.ids, ids], axis=1)]  # each part has one or the other
        borders_of_parts = (parts.starts, parts.starts + parts.lengths)
        for border_of_part, border in zip(borders_of_parts, borders, strict=False):
            of_pieces = tf.gather(border_of_part, parts.ids.value_rowids())
            in_text = border.values + tf.gather(parts.starts, border.value_rowids())
            column = [parts.ids.with_values(of_pieces), border.with_values(in_text)]
            columns.append(tf.concat(column, axis=1))
        return [in_texts(column, parts.text_splits) for column in columns]

    def split(self, texts: tf.Tensor) -> Parts:
        """The parts of texts [N]."""
        # Bytes that are not UTF-8 are skipped later anyway; here it keeps MARK out of the texts.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        parts, is_piece = cut_at(texts, self._pattern)
        strings = parts.values  # [M]
        pieces = tf.boolean_mask(strings, is_piece)  # [Q]
        which = tf.argmax(tf.cast(pieces[:, tf.newaxis] == self._pieces, tf.int32), 1)
        lengths = tf.strings.length(strings, "UTF8_CHAR")
        before = tf.cumsum(lengths, exclusive=True)
        ids = tf.RaggedTensor.from_row_lengths(
            tf.gather(self._ids, which), tf.cast(is_piece, tf.int64), validate=False
        )
        return Parts(
            strings=tf.where(is_piece, "", strings),
            pieces=ids.with_values(pieces),
            ids=ids,
            starts=before - tf.gather(before, tf.gather(parts.row_starts(), parts.value_rowids())),
            lengths=lengths,
            text_splits=parts.row_splits,
        )


def any_of(pieces: Iterable[str]) -> str:
    """A pattern, in parentheses, of any of these strings; of two at one place the earlier one."""
    return f"({'|'.join(map(re.escape, pieces))})"


def cut_at(texts: tf.Tensor, pattern: str) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """The parts of texts [N] of UTF-8, [N, (parts)], and whether each matches the pattern, [M].

    In each text every second part does, from the second on; those between may be empty.
    """
    marked = tf.strings.regex_replace(texts, pattern, MARK + rb"\1" + MARK)
    parts = tf.strings.split(marked, MARK)  # [N, (parts)]
    return parts, tf.ragged.range(parts.row_lengths()).values % 2 == 1
