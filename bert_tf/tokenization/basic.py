"""Texts -> words, as TensorFlow operations (original: BasicTokenizer).

Python's `unicodedata` changes with the version of Python, and with it the tokens of a text. A model
must not depend on that, so what each code point becomes is kept in a table, `unicode_14.npz`,
written by tests/helpers/make_unicode_table.py, with which a test compares it. Two things depend on
the neighbours and are decided here, both rare: the final sigma, and the canonical order of
combining characters.

Shapes: N texts, C code points of all texts, K characters that they become (K may be above C: a
Hangul syllable becomes two or three), W words, R rows of the table, M movable marks.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Texts of these characters alone take a short cut: no table, two regular expressions.
PLAIN_TEXT = r"[\t\n\r -~]*"
PLAIN_PUNCTUATION = r"([!-/:-@\[-`{-~])"

SPACE = 0x20
CAPITAL_SIGMA = 0x3A3
SMALL_SIGMA = 0x3C3
FINAL_SIGMA = 0x3C2
COMBINING_CLASSES = 256

# ---------------------------------------------------------------------------- the table

FILE = pathlib.Path(__file__).with_name("unicode_14.npz")
PAGE = 256
# Names of the tables by do_lower_case and strip_accents.
NAMES = {
    (True, True): "lower",
    (False, False): "cased",
    (True, False): "lower_accents",
    (False, True): "cased_stripped",
}

# In `characters`: no character. Larger than any distance between two code points.
ABSENT = 1 << 21

# Bits of `flags`.
DROPPED = 1  # control and format characters, U+0000, U+FFFD
BREAK_BEFORE = 2  # white space, punctuation, CJK ideographs
BREAK_AFTER = 4  # punctuation and CJK ideographs, which are words of their own
ACCENT = 8  # becomes nothing, and belongs to the character before it (lower-casing only)
# What decides whether a capital sigma between them is final (Unicode 3.13, Final_Sigma).
CASED = 16
CASE_IGNORABLE = 32
# Canonical order of combining characters (Unicode 3.11).
STARTER = 64  # nothing moves across it
MOVABLE = 128  # leaves a character that is kept and may change places with its neighbours


class UnicodeTable(NamedTuple):
    """Code point `c` has row `rows[pages[c // PAGE], c % PAGE]`.

    Nearly all of the 1,114,112 entries repeat, so code points share rows, and pages share lines.
    """

    pages: np.ndarray  # [all code points / PAGE] int32
    rows: np.ndarray  # [number of pages, PAGE] int32
    characters: np.ndarray  # [R, width] int32: what to add to c for each character, or ABSENT
    flags: np.ndarray  # [R] int32
    movable: np.ndarray  # [M, 2] int32: kept characters with a combining class, and the class


def load_unicode_table(*, do_lower_case: bool, strip_accents: bool | None = None) -> UnicodeTable:
    """Reads the table of a case; by default accents are stripped from lower-cased text only.

    The file holds differences along the first axis, which compress far better.
    """
    prefix = NAMES[do_lower_case, do_lower_case if strip_accents is None else strip_accents]
    with np.load(FILE) as file:
        parts = [file[f"{prefix}_{name}"] for name in UnicodeTable._fields]
    return UnicodeTable(*(np.cumsum(part, axis=0, dtype=np.int32) for part in parts))


def is_ideograph(point: Any) -> Any:
    """Whether code points [...] that are words of their own are ideographs, not punctuation."""
    blocks = (point >= 0x3400) & (point < 0xA000) | (point >= 0xF900) & (point < 0xFB00)
    return blocks | (point >= 0x20000)


def is_east_asian(point: Any) -> Any:
    """Whether characters [...] that are words of their own are ideographs or East Asian marks."""
    marks = (point >= 0x3000) & (point < 0x3040) | (point >= 0xFF00) & (point < 0xFFF0)
    return is_ideograph(point) | marks


# ---------------------------------------------------------------------------- words


class Words(NamedTuple):
    """The words of N texts, one after the other."""

    strings: tf.Tensor  # [W] string
    text_splits: tf.Tensor  # [N + 1] int64: words before each text
    characters: tf.Tensor  # [K] int32: the characters of all words
    starts: tf.Tensor  # [K] int32: where each begins in its text, in code points
    ends: tf.Tensor  # [K] int32: where it ends, with the accents taken off it


class Characters(NamedTuple):
    """The characters that N texts become, one after the other."""

    points: tf.RaggedTensor  # int32 [N, (points)]: the code points of the texts
    texts: tf.Tensor  # [C] int64: the text of each code point
    flags: tf.Tensor  # [C] int32: of the code points
    characters: tf.Tensor  # [K] int32
    sources: tf.Tensor  # [K] int64: the code point of each, in C; it never falls


def plain_words(texts: tf.Tensor, *, do_lower_case: bool) -> tf.RaggedTensor:
    """The words [N, (words)] of texts [N] that match PLAIN_TEXT."""
    if do_lower_case:
        texts = tf.strings.lower(texts)
    return tf.strings.split(tf.strings.regex_replace(texts, PLAIN_PUNCTUATION, r" \1 "))


def split_words(texts: tf.Tensor, table: UnicodeTable) -> Words:
    """The words of texts [N] in UTF-8; bytes that are not UTF-8 are skipped.

    The table decides on case and accents: only for lower-casing it has CASED entries, without
    which no sigma is final, and only for stripping MOVABLE ones.
    """
    normal = normalize(texts, table)
    breaks = tf.gather(breaks_of(normal), normal.sources)  # [K]
    return words_from(normal, _run_starts(breaks))


def normalize(texts: tf.Tensor, table: UnicodeTable, *, spaces: bool = False) -> Characters:
    """The characters that texts [N] become, in the case of the table and with or without accents.

    Args:
      texts: texts in UTF-8; bytes that are not UTF-8 are skipped.
      table: as for `split_words`.
      spaces: whether white space becomes spaces, and ideographs get one on each side. Otherwise
        white space becomes nothing.
    """
    points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [N, (points)]
    text_of_point = points.value_rowids()  # [C]
    point = points.values  # [C]
    point = tf.cond(
        tf.reduce_any(point == CAPITAL_SIGMA),
        lambda: _settle_final_sigmas(point, text_of_point, table),
        lambda: point,
    )
    row = _rows(point, table)  # [C]
    flags = tf.gather(table.flags, row)  # [C]
    distance = tf.gather(table.characters, row)  # [C, width]
    if spaces:
        distance = _with_spaces(distance, point, flags)  # [C, width + 2]
    character, source = _characters(point, distance)  # [K]
    if table.movable.shape[0] > 0:
        marks = tf.cumsum(tf.cast(flags & STARTER != 0, tf.int64)) + text_of_point  # [C]: run
        character = tf.cond(
            tf.reduce_any(flags & MOVABLE != 0),
            lambda: _in_canonical_order(character, tf.gather(marks, source), table.movable),
            lambda: character,
        )
    return Characters(points, text_of_point, flags, character, source)


def words_from(normal: Characters, first: tf.Tensor) -> Words:
    """The words of texts, each from one of the characters `first` [W] to the next."""
    starts, ends = extents(normal)  # [C]
    words = tf.RaggedTensor.from_row_starts(normal.characters, first, validate=False)
    return Words(
        strings=tf.strings.unicode_encode(words, "UTF-8"),
        text_splits=tf.searchsorted(
            tf.gather(normal.sources, first), normal.points.row_splits, out_type=tf.int64
        ),
        characters=normal.characters,
        starts=tf.gather(starts, normal.sources),
        ends=tf.gather(ends, normal.sources),
    )


def _rows(point: tf.Tensor, table: UnicodeTable) -> tf.Tensor:
    """The row of the table for each code point [C]."""
    page = tf.gather(table.pages, point // PAGE)
    return tf.gather(tf.reshape(table.rows, [-1]), page * PAGE + point % PAGE)


def _characters(point: tf.Tensor, distance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The characters [K] that code points [C] become, and the code point of each [K].

    Args:
      point: int32 [C].
      distance: int32 [C, width], what to add for each character, or ABSENT.
    """
    width = distance.shape[1]
    characters = tf.reshape(point[:, tf.newaxis] + distance, [-1])  # [C * width]
    present = tf.where(tf.reshape(distance, [-1]) != ABSENT)[:, 0]  # [K]
    return tf.gather(characters, present), present // width


def _with_spaces(distance: tf.Tensor, point: tf.Tensor, flags: tf.Tensor) -> tf.Tensor:
    """[C, width] -> [C, width + 2]: with spaces for white space and on both sides of ideographs."""
    alone = BREAK_BEFORE | BREAK_AFTER
    is_white = flags & alone == BREAK_BEFORE
    is_ideograph_alone = (flags & alone == alone) & is_ideograph(point)
    before = tf.where(is_white | is_ideograph_alone, SPACE - point, ABSENT)
    behind = tf.where(is_ideograph_alone, SPACE - point, ABSENT)
    return tf.concat([before[:, tf.newaxis], distance, behind[:, tf.newaxis]], 1)


def breaks_of(normal: Characters) -> tf.Tensor:
    """A number for each code point [C] that rises where a word ends and another may begin."""
    before = tf.cast(normal.flags & BREAK_BEFORE != 0, tf.int64)
    after = tf.cast(normal.flags & BREAK_AFTER != 0, tf.int64)
    return tf.cumsum(before) + tf.cumsum(after, exclusive=True) + normal.texts


def _run_starts(number: tf.Tensor) -> tf.Tensor:
    """The first index of each run of equal numbers [W]."""
    begins = tf.concat([tf.ones_like(number[:1], tf.bool), number[1:] != number[:-1]], 0)
    return tf.where(begins)[:, 0]


def extents(normal: Characters) -> tuple[tf.Tensor, tf.Tensor]:
    """Start and end in its text of each code point with its accents, int32 [C] both."""
    points = normal.points
    flags = normal.flags
    start = tf.ragged.range(points.row_lengths()).values
    # An accent extends the nearest code point before it that is neither an accent nor dropped.
    owns = tf.cast(flags & (ACCENT | DROPPED) == 0, tf.int64)
    owner = tf.cumsum(owns) + points.value_rowids()
    end = tf.where(flags & DROPPED == 0, start + 1, 0)
    end = tf.gather(tf.math.segment_max(end, owner), owner)
    return tf.cast(start, tf.int32), tf.cast(end, tf.int32)


def _settle_final_sigmas(
    point: tf.Tensor, text_of_point: tf.Tensor, table: UnicodeTable
) -> tf.Tensor:
    """Writes the final form for each capital sigma that ends a word (Unicode 3.13, Final_Sigma).

    Such a sigma has a cased letter before it and none behind it; case-ignorable characters do not
    count. The original splits at white space and CJK ideographs first. They are neither cased nor
    ignorable, so they need no rule of their own.
    """
    flags = tf.gather(table.flags, _rows(point, table))
    counts = tf.where(flags & (CASE_IGNORABLE | DROPPED) == 0)[:, 0]
    cased = tf.gather(flags, counts) & CASED != 0
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


def _in_canonical_order(character: tf.Tensor, run: tf.Tensor, movable: tf.Tensor) -> tf.Tensor:
    """Sorts each run [K] of combining characters by combining class (Unicode 3.11, D109)."""
    mark = movable[:, 0]  # [M], sorted
    class_of_mark = movable[:, 1]  # [M]
    place = tf.minimum(tf.searchsorted(mark, character), tf.size(mark) - 1)  # [K]
    combining = tf.where(tf.gather(mark, place) == character, tf.gather(class_of_mark, place), 0)
    key = run * COMBINING_CLASSES + tf.cast(combining, tf.int64)
    return tf.gather(character, tf.argsort(key, stable=True))


def in_texts(columns: tf.RaggedTensor, text_splits: tf.Tensor) -> tf.RaggedTensor:
    """Joins the rows of each text [N + 1]: [W, (pieces)] -> [N, (pieces)]."""
    splits = tf.gather(columns.row_splits, text_splits)
    return tf.RaggedTensor.from_row_splits(columns.values, splits, validate=False)
