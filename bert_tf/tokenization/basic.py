"""Texts -> words, as TensorFlow operations (original: BasicTokenizer).

Every code point is looked up in the frozen table of unicode_table.py. Two things depend on the
neighbours and are decided here, both rare: the final sigma, and the canonical order of combining
characters.

Shapes: N texts, C code points of all texts, K characters that they become (K may be above C: a
Hangul syllable becomes two or three), W words, R rows of the table.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tokenization import unicode_table as ut

# Texts of these characters alone take a short cut: no table, two regular expressions.
PLAIN_TEXT = r"[\t\n\r -~]*"
PLAIN_PUNCTUATION = r"([!-/:-@\[-`{-~])"

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
COMBINING_CLASSES = 256


class Words(NamedTuple):
    """The words of N texts, one after the other."""

    strings: tf.Tensor  # [W] string
    lengths: tf.Tensor  # [W] int32: characters in each
    text_splits: tf.Tensor  # [N + 1] int64: words before each text
    characters: tf.Tensor  # [K] int32: the characters of all words
    starts: tf.Tensor  # [K] int32: where each begins in its text, in code points
    ends: tf.Tensor  # [K] int32: where it ends, with the accents taken off it


def plain_words(texts: tf.Tensor, *, do_lower_case: bool) -> tf.RaggedTensor:
    """The words [N, (words)] of texts [N] that match PLAIN_TEXT."""
    if do_lower_case:
        texts = tf.strings.lower(texts)
    return tf.strings.split(tf.strings.regex_replace(texts, PLAIN_PUNCTUATION, r" \1 "))


def split_words(texts: tf.Tensor, table: ut.UnicodeTable) -> Words:
    """The words of texts [N] in UTF-8; bytes that are not UTF-8 are skipped.

    The table decides on lower-casing: only the one for it has CASED and MOVABLE entries.
    """
    points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [N, (points)]
    text_of_point = points.value_rowids()  # [C]
    point = points.values  # [C]
    lower_cases = table.movable.shape[0] > 0
    if lower_cases:
        point = tf.cond(
            tf.reduce_any(point == CAPITAL_SIGMA),
            lambda: _settle_final_sigmas(point, text_of_point, table),
            lambda: point,
        )
    row = _rows(point, table)  # [C]
    flags = tf.gather(table.flags, row)  # [C]
    character, source = _characters(point, row, table)  # [K]
    if lower_cases:
        character = tf.cond(
            tf.reduce_any(flags & ut.MOVABLE != 0),
            lambda: _in_canonical_order(character, source, flags, text_of_point, table),
            lambda: character,
        )
    breaks = _breaks(flags, text_of_point)  # [C]
    first, lengths = _runs(tf.gather(breaks, source))  # [W]
    starts, ends = _extents(points, flags)  # [C]
    return Words(
        strings=tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_lengths(character, lengths, validate=False), "UTF-8"
        ),
        lengths=tf.cast(lengths, tf.int32),
        text_splits=tf.searchsorted(tf.gather(source, first), points.row_splits, out_type=tf.int64),
        characters=character,
        starts=tf.gather(starts, source),
        ends=tf.gather(ends, source),
    )


def _rows(point: tf.Tensor, table: ut.UnicodeTable) -> tf.Tensor:
    """The row of the table for each code point [C]."""
    page = tf.gather(table.pages, point // ut.PAGE)
    return tf.gather(tf.reshape(table.rows, [-1]), page * ut.PAGE + point % ut.PAGE)


def _characters(
    point: tf.Tensor, row: tf.Tensor, table: ut.UnicodeTable
) -> tuple[tf.Tensor, tf.Tensor]:
    """The characters [K] that code points [C] become, and the code point of each [K]."""
    width = table.characters.shape[1]
    distance = tf.gather(table.characters, row)  # [C, width]
    characters = tf.reshape(point[:, tf.newaxis] + distance, [-1])  # [C * width]
    kept = tf.where(tf.reshape(distance, [-1]) != ut.ABSENT)[:, 0]  # [K]
    return tf.gather(characters, kept), kept // width


def _breaks(flags: tf.Tensor, text_of_point: tf.Tensor) -> tf.Tensor:
    """A number for each code point [C] that rises where a word ends and another may begin."""
    before = tf.cast(flags & ut.BREAK_BEFORE != 0, tf.int64)
    after = tf.cast(flags & ut.BREAK_AFTER != 0, tf.int64)
    return tf.cumsum(before) + tf.cumsum(after, exclusive=True) + text_of_point


def _runs(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First index [W] and length [W] of each run of equal numbers."""
    begins = tf.concat([tf.ones_like(number[:1], tf.bool), number[1:] != number[:-1]], 0)
    first = tf.where(begins)[:, 0]
    bounds = tf.concat([first, tf.shape(number, tf.int64)], 0)
    return first, bounds[1:] - bounds[:-1]


def _extents(points: tf.RaggedTensor, flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Start and end in its text of each code point with its accents, [C] both."""
    start = tf.range(tf.size(points.values, tf.int64)) - tf.gather(
        points.row_starts(), points.value_rowids()
    )
    # An accent extends the nearest code point before it that is neither accent nor dropped.
    owns = tf.cast(flags & (ut.ACCENT | ut.DROPPED) == 0, tf.int64)
    owner = tf.cumsum(owns) + points.value_rowids()
    end = tf.where(flags & ut.DROPPED == 0, start + 1, 0)
    end = tf.gather(tf.math.segment_max(end, owner), owner)
    return tf.cast(start, tf.int32), tf.cast(end, tf.int32)


def _settle_final_sigmas(
    point: tf.Tensor, text_of_point: tf.Tensor, table: ut.UnicodeTable
) -> tf.Tensor:
    """Writes the final form for each capital sigma that ends a word (Unicode 3.13, Final_Sigma).

    It has a cased letter before it and none behind it, case-ignorable characters apart. The
    original splits at white space and CJK ideographs beforehand; as they are neither cased nor
    ignorable, they need no rule of their own.
    """
    flags = tf.gather(table.flags, _rows(point, table))
    counts = tf.where(flags & (ut.CASE_IGNORABLE | ut.DROPPED) == 0)[:, 0]
    cased = tf.gather(flags, counts) & ut.CASED != 0
    text = tf.gather(text_of_point, counts)
    neighbours = text[1:] == text[:-1]
    nothing = tf.zeros_like(cased[:1])
    cased_before = tf.concat([nothing, cased[:-1] & neighbours], 0)
    cased_behind = tf.concat([cased[1:] & neighbours, nothing], 0)
    is_sigma = tf.gather(point, counts) == CAPITAL_SIGMA
    final = tf.boolean_mask(counts, is_sigma & cased_before & ~cased_behind)
    return tf.tensor_scatter_nd_update(
        point, final[:, tf.newaxis], tf.fill(tf.shape(final), FINAL_SIGMA)
    )


def _in_canonical_order(
    character: tf.Tensor,
    source: tf.Tensor,
    flags: tf.Tensor,
    text_of_point: tf.Tensor,
    table: ut.UnicodeTable,
) -> tf.Tensor:
    """Sorts each run of combining characters by combining class (Unicode 3.11, D109)."""
    runs = tf.cumsum(tf.cast(flags & ut.STARTER != 0, tf.int64)) + text_of_point  # [C]
    movable, combining_class = table.movable[:, 0], table.movable[:, 1]  # [M], sorted
    place = tf.minimum(tf.searchsorted(movable, character), tf.size(movable) - 1)  # [K]
    combining = tf.where(
        tf.gather(movable, place) == character, tf.gather(combining_class, place), 0
    )
    key = tf.gather(runs, source) * COMBINING_CLASSES + tf.cast(combining, tf.int64)
    return tf.gather(character, tf.argsort(key, stable=True))
