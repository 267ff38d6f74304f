"""Texts -> parts, at word pieces that are never split, as TensorFlow operations.

    text     "He <e1> [MASK]."     never split: <e1>, [MASK]
    parts    "He " | <e1> | " " | [MASK] | "."

The parts between such pieces are tokenized as texts of their own. A piece is found anywhere, also
inside a word, in its own case only; of two that begin at one place, the longer.

Shapes: N texts, M parts of all texts, Q of them pieces.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

MARK = b"\xff"  # occurs in no UTF-8


class Parts(NamedTuple):
    """The parts of N texts, one after the other; in each text every second one is a piece."""

    strings: tf.Tensor  # [M] string: empty in the place of a piece
    pieces: tf.RaggedTensor  # string [M, (0 or 1)]: the piece
    ids: tf.RaggedTensor  # int32 [M, (0 or 1)]: of the piece
    starts: tf.Tensor  # [M] int32: where the part begins in its text, in code points
    lengths: tf.Tensor  # [M] int32, in code points
    text_splits: tf.Tensor  # [N + 1] int64: parts before each text


class NeverSplit:
    """Tokenizes texts whose pieces of a list are kept whole."""

    def __init__(self, ids: Mapping[str, int]):
        """Takes the ids of these pieces, which are not empty."""
        pieces = sorted(ids, key=len, reverse=True)
        self._pattern = f"({'|'.join(map(re.escape, pieces))})"
        self._pieces = tf.constant(pieces)
        self._ids = tf.constant([ids[piece] for piece in pieces], tf.int32)

    def ids(self, tokenize: Callable, texts: tf.Tensor) -> tf.RaggedTensor:
        """Texts [N] -> ids [N, (pieces)], with `tokenize` for what is between the pieces."""
        parts = self.split(texts)
        return _of_texts(parts, tf.concat([parts.ids, tokenize(parts.strings)], axis=1))

    def spans(self, tokenize: Callable, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Texts [N] -> ids, starts, ends [N, (pieces)], as `ids`."""
        parts = self.split(texts)
        ids, *borders = tokenize(parts.strings)
        found = [tf.concat([parts.ids, ids], axis=1)]
        for own, border in zip((parts.starts, parts.starts + parts.lengths), borders, strict=True):
            of_pieces = parts.ids.with_values(tf.gather(own, parts.ids.value_rowids()))
            moved = border.values + tf.gather(parts.starts, border.value_rowids())
            found.append(tf.concat([of_pieces, border.with_values(moved)], axis=1))
        return tuple(_of_texts(parts, values) for values in found)

    def split(self, texts: tf.Tensor) -> Parts:
        """Texts [N] -> their parts."""
        # What is no UTF-8 is skipped in any case; here so that no text has the mark.
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        marked = tf.strings.regex_replace(texts, self._pattern, MARK + rb"\1" + MARK)
        parts = tf.strings.split(marked, MARK)  # [N, (parts)]
        strings, rows = parts.values, parts.value_rowids()  # [M]
        number = tf.range(tf.size(strings, tf.int64)) - tf.gather(parts.row_starts(), rows)
        is_piece = number % 2 == 1  # [M]
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
            starts=before - tf.gather(before, tf.gather(parts.row_starts(), rows)),
            lengths=lengths,
            text_splits=parts.row_splits,
        )


def _of_texts(parts: Parts, values: tf.RaggedTensor) -> tf.RaggedTensor:
    """[M, (pieces)] to [N, (pieces)]."""
    splits = tf.gather(values.row_splits, parts.text_splits)
    return tf.RaggedTensor.from_row_splits(values.values, splits, validate=False)
