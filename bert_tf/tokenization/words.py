"""Texts -> words that can have a label each, with their places, as TensorFlow operations.

    text          "Ruprecht (I.) of the U.S., 東京"
    words          Ruprecht  (  I  .  )  of  the  U.S  .  ,  東  京
    every mark     Ruprecht  (  I  .  )  of  the  U  .  S  .  ,  東  京

White space separates chunks. Each punctuation mark at the start or end of a chunk is a word, as in
the published data of named entities; inside a chunk it is part of the word, unless every mark is to
be a word. An ideograph is always a chunk, and so are the marks of East Asian text and a piece that
the tokenizer keeps whole. Either way the words have the word pieces of the text.

Shapes: B texts, C code points of all texts, V of them that are neither space nor dropped by the
tokenizer, W words of all texts.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tokenization import basic
from bert_tf.tokenization.whole_pieces import AddedWords, NeverSplit


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


def words_of_texts(
    texts: tf.Tensor,
    splitter: NeverSplit | None = None,
    added_words: AddedWords | None = None,
    *,
    every_mark: bool = False,
) -> TextWords:
    """The words of texts [B] of UTF-8; bytes that are not UTF-8 are skipped.

    Args:
      texts: any.
      splitter: the splitter of pieces that are never split: each is a word. None: there are none.
      added_words: each is a word, too. None: there are none.
      every_mark: whether every punctuation mark is a word, also inside a chunk.
    """
    if splitter is None:
        return _words_between(texts, added_words, every_mark)
    parts = splitter.split(texts)
    between = _words_between(parts.strings, added_words, every_mark)
    counts = tf.cast(between.counts, tf.int64)
    words = tf.RaggedTensor.from_row_lengths(between.strings, counts, validate=False)
    shift = tf.gather(parts.starts, words.value_rowids())
    start = tf.gather(parts.starts, parts.pieces.value_rowids())
    end = start + tf.gather(parts.lengths, parts.pieces.value_rowids())

    def joined(of_pieces: tf.Tensor, of_words: tf.Tensor) -> tf.RaggedTensor:
        columns = [parts.pieces.with_values(of_pieces), words.with_values(of_words)]
        return tf.concat(columns, axis=1)  # each part has a piece or words

    strings = joined(parts.pieces.values, words.values)
    before = tf.gather(strings.row_splits, parts.text_splits)
    return TextWords(
        strings=strings.values,
        starts=joined(start, between.starts + shift).values,
        ends=joined(end, between.ends + shift).values,
        counts=tf.cast(before[1:] - before[:-1], tf.int32),
    )


def _words_between(texts: tf.Tensor, added_words: AddedWords | None, every_mark: bool) -> TextWords:
    points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [B, (points)]
    text = tf.cast(points.value_rowids(), tf.int32)  # [C]
    flags = _flags_of(points.values)  # [C]
    solo = basic.BREAK_BEFORE | basic.BREAK_AFTER
    is_solo = flags & solo == solo  # punctuation and ideographs
    is_space = (flags & basic.BREAK_BEFORE != 0) & ~is_solo
    if added_words is not None:
        number, is_added = added_words.mark_points(texts)  # [C]
        is_solo &= ~is_added
        is_space &= ~is_added
    is_chunk = tf.cast(is_solo & basic.is_east_asian(points.values), tf.int32)
    # Rises at spaces, before and behind each chunk of one character, and from text to text.
    chunk = tf.cumsum(tf.cast(is_space, tf.int32) + is_chunk)
    chunk += tf.cumsum(is_chunk, exclusive=True) + text
    if added_words is not None:
        chunk += number
    seen = tf.where(~is_space & (flags & basic.DROPPED == 0))[:, 0]  # [V]
    begins = _begins(tf.gather(chunk, seen), tf.gather(is_solo, seen), every_mark)  # [V]
    first = tf.where(begins)[:, 0]  # [W], in V
    last = tf.concat([first, tf.shape(seen, tf.int64)], 0)[1:] - 1
    start = tf.gather(seen, first)  # [W], in C
    end = tf.gather(seen, last) + 1
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


def _begins(chunk: tf.Tensor, solo: tf.Tensor, every_mark: bool) -> tf.Tensor:
    """Whether a word begins at each character [V]."""
    always = tf.ones_like(chunk[:1], tf.bool)
    is_first = tf.concat([always, chunk[1:] != chunk[:-1]], 0)
    rank = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # of its chunk
    core = tf.cast(~solo, tf.int32)  # not punctuation
    before = tf.cumsum(core, exclusive=True)
    before -= tf.gather(tf.boolean_mask(before, is_first), rank)  # in its chunk
    behind = tf.gather(tf.math.segment_sum(core, rank), rank) - before - core
    alone = (core == 0) & ((before == 0) | (behind == 0) | every_mark)
    return is_first | alone | tf.concat([~always, alone[:-1]], 0)


def _flags_of(point: tf.Tensor) -> tf.Tensor:
    """Flags int32 [C] of code points [C], as in `basic`."""
    table = basic.load_unicode_table(do_lower_case=False)  # case makes no word boundaries
    page = tf.gather(tf.constant(table.pages), point // basic.PAGE)
    flags = tf.constant(table.flags[table.rows])  # [pages, PAGE]
    return tf.gather_nd(flags, tf.stack([page, point % basic.PAGE], 1))
