"""Raw texts -> the words that get a label, as TensorFlow operations.

    text     "Ruprecht (I.) of the U.S., 東京"
    words     Ruprecht  (  I  .  )  of  the  U.S  .  ,  東  京

White space parts words. Punctuation at the beginning and end of what it parts is a word for each
mark, as in the published data of named entities; inside it is part of the word. An ideograph is
always a word of its own.

Shapes: B texts, C code points of all texts, V of them that are neither space nor dropped by the
tokenizer, W words of all texts.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tokenization import unicode_table as ut


class TextWords(NamedTuple):
    """Words of texts, one after the other.

    Attributes:
      strings: string [W].
      starts, ends: int32 [W], code points in their text.
      counts: int32 [B], words of each text.
    """

    strings: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    counts: tf.Tensor


def words_of_texts(texts: tf.Tensor, flags: "PointFlags") -> TextWords:
    """The words of texts [B] of UTF-8; bytes that are not UTF-8 are skipped."""
    points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [B, (points)]
    text = tf.cast(points.value_rowids(), tf.int32)  # [C]
    found = flags.of(points.values)  # [C]
    is_solo = found & (ut.BREAK_BEFORE | ut.BREAK_AFTER) == ut.BREAK_BEFORE | ut.BREAK_AFTER
    is_space = (found & ut.BREAK_BEFORE != 0) & ~is_solo
    chunk = tf.cumsum(tf.cast(is_space, tf.int32)) + text  # grows at spaces and with the text
    seen = tf.where(~is_space & (found & ut.DROPPED == 0))[:, 0]  # [V]
    chunk, solo = tf.gather(chunk, seen), tf.gather(is_solo, seen)
    begins = _begins(chunk, solo, solo & _is_ideograph(tf.gather(points.values, seen)))  # [V]
    first = tf.where(begins)[:, 0]  # [W], in V
    last = tf.concat([first, tf.shape(seen, tf.int64)], 0)[1:] - 1
    start, end = tf.gather(seen, first), tf.gather(seen, last) + 1  # [W], in C
    of_text = tf.gather(text, start)
    before = tf.gather(points.row_starts(), of_text)
    places = tf.ragged.range(start, end)
    return TextWords(
        strings=tf.strings.unicode_encode(
            places.with_values(tf.gather(points.values, places.values)), "UTF-8"
        ),
        starts=tf.cast(start - before, tf.int32),
        ends=tf.cast(end - before, tf.int32),
        counts=tf.math.bincount(of_text, minlength=tf.shape(texts)[0], dtype=tf.int32),
    )


def _begins(chunk: tf.Tensor, solo: tf.Tensor, ideograph: tf.Tensor) -> tf.Tensor:
    """Whether a word begins at each character [V]."""
    always = tf.ones_like(chunk[:1], tf.bool)
    is_first = tf.concat([always, chunk[1:] != chunk[:-1]], 0)
    rank = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # of its chunk
    core = tf.cast(~solo | ideograph, tf.int32)  # is no punctuation
    before = tf.cumsum(core, exclusive=True)
    before -= tf.gather(tf.boolean_mask(before, is_first), rank)  # in its chunk
    behind = tf.gather(tf.math.segment_sum(core, rank), rank) - before - core
    alone = ideograph | (core == 0) & ((before == 0) | (behind == 0))
    return is_first | alone | tf.concat([~always, alone[:-1]], 0)


def _is_ideograph(point: tf.Tensor) -> tf.Tensor:
    """Of characters that are words of their own: whether it is an ideograph, no punctuation."""
    blocks = (point >= 0x3400) & (point < 0xA000) | (point >= 0xF900) & (point < 0xFB00)
    return blocks | (point >= 0x20000)


class PointFlags:
    """What `unicode_table` says of code points, on the graph's side."""

    def __init__(self):
        with tf.init_scope():
            # Where words are parted does not depend on case.
            table = ut.load_unicode_table(do_lower_case=False)
            self._pages = tf.constant(table.pages)
            self._flags = tf.constant(table.flags[table.rows])  # [pages, PAGE]

    def of(self, point: tf.Tensor) -> tf.Tensor:
        """Flags int32 [C] of code points [C]."""
        page = tf.gather(self._pages, point // ut.PAGE)
        return tf.gather_nd(self._flags, tf.stack([page, point % ut.PAGE], 1))
