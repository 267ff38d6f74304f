"""Pieces that a tokenizer keeps whole: found in the raw text or in the normalized text.

`never_split` are found in the raw text, as they are written:

    text            "He <e1> [MASK]."     never split: <e1>, [MASK]
    parts           "He " | <e1> | " " | [MASK] | "."

`added_words`, such as Hugging Face's `tokenizer.add_tokens` adds, are found in the normalized text:

    text            "An anti-COVID-19  café."    added words: Covid-19, Café
    normalized      "an anti-covid-19  cafe."
    words           an  anti  -  covid-19  cafe  .

The word itself is normalized, as the text is: control characters dropped, white space as spaces, a
space on each side of an ideograph, and in an uncased model no capitals and no accents.

Either is found anywhere, also inside a word; of pieces that overlap the leftmost is taken, of two
that begin at one place the longer. What stands between is cut into words as ever.

Shapes: N texts, M parts of all texts, Q pieces that are found in them, C code points of all texts,
K characters that they become, spaces included, W words, A added words.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tokenization import basic
from bert_tf.tokenization.basic import Characters, UnicodeTable, Words

# How pieces are kept whole: options of a tokenizer, and fields of what describes one.
KEPT_WHOLE = ("never_split", "added_words")


def kept_whole(of: Any) -> dict[str, Any]:
    """The pieces that a tokenizer, or what describes one, keeps whole: tuples by KEPT_WHOLE.

    Lists without a piece are left out.
    """
    lists = {name: tuple(getattr(of, name, None) or ()) for name in KEPT_WHOLE}
    return {name: pieces for name, pieces in lists.items() if pieces}


def without_kept_whole(pieces: Iterable[str], of: Any) -> list[str]:
    """The pieces of a vocabulary that `of` does not keep whole: those that show its case."""
    whole = {piece for pieces_of_list in kept_whole(of).values() for piece in pieces_of_list}
    return [piece for piece in pieces if piece not in whole]


# ---------------------------------------------------------------------------- never split

MARK = b"\xff"  # occurs in no UTF-8


def any_of(pieces: Sequence[str]) -> str:
    """A pattern, in parentheses, of any of these strings; of two at one place the earlier one.

    Raises:
      InputError: it is too large for TensorFlow.
    """
    pattern = f"({'|'.join(map(re.escape, pieces))})"
    try:
        tf.strings.regex_full_match("", pattern)
    except tf.errors.InvalidArgumentError:
        received = f"{len(pieces)} pieces that are kept whole"
        expected = "at most some ten thousand: TensorFlow cannot search for more"
        raise InputError(received, expected, "leave out those that no text has") from None
    return pattern


def cut_at(texts: tf.Tensor, pattern: str) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """The parts of texts [N] of UTF-8, [N, (parts)], and whether each matches the pattern, [M].

    In each text every second part does, from the second on; those between may be empty.
    """
    marked = tf.strings.regex_replace(texts, pattern, MARK + rb"\1" + MARK)
    parts = tf.strings.split(marked, MARK)  # [N, (parts)]
    return parts, tf.ragged.range(parts.row_lengths()).values % 2 == 1


class Parts(NamedTuple):
    """The parts of N texts, one after the other; in each text every second one is a piece."""

    strings: tf.Tensor  # [M] string: empty where the part is a piece
    pieces: tf.RaggedTensor  # string [M, (0 or 1)]: the piece
    ids: tf.RaggedTensor  # int32 [M, (0 or 1)]: of the piece
    starts: tf.Tensor  # [M] int32: where the part begins in its text, in code points
    lengths: tf.Tensor  # [M] int32, in code points
    text_splits: tf.Tensor  # [N + 1] int64: parts before each text


class NeverSplit:
    """Tokenizes texts in which pieces of a list are kept whole, as they are written.

    The parts between such pieces are tokenized as texts of their own.
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
          texts: texts in UTF-8; bytes that are not UTF-8 are skipped.
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
        return [basic.in_texts(column, parts.text_splits) for column in columns]

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


# ---------------------------------------------------------------------------- added words

HASHES = 2**63 - 1


class Places(NamedTuple):
    """Where added words are in texts that were normalized."""

    parts: tf.Tensor  # [K] int32: the part of each character: an added word or what is between
    is_added: tf.Tensor  # [K] bool: whether that is an added word
    ids: tf.Tensor  # [M] int32: of the added words, -1 for other parts


class AddedWords:
    """Splits texts into words in which the added words are whole."""

    def __init__(self, ids: Mapping[str, int], table: UnicodeTable, *, do_lower_case: bool):
        """Takes the ids of the words.

        Of words that are the same when they are normalized, the one with the smallest id is found;
        the library finds one by chance.

        Args:
          ids: by word.
          table: the table of the tokenizer, in tensors.
          do_lower_case: as the table was loaded.

        Raises:
          InputError: a word has no character that the tokenizer keeps.
        """
        self._table = table
        self._do_lower_case = do_lower_case
        words = sorted(ids, key=ids.__getitem__, reverse=True)  # the smallest last
        texts = _searched(basic.normalize(tf.constant(words, tf.string), table, spaces=True))
        id_of = {}
        for word, text in zip(words, texts.numpy(), strict=True):
            if not text:
                received = f"the added word {word!r}, of which nothing is left in normalized text"
                expected = "words with a character that the tokenizer keeps"
                raise InputError(received, expected, "take it out of the added words")
            id_of[text.decode()] = ids[word]
        longest_first = sorted(id_of, key=len, reverse=True)
        self._pattern = any_of(longest_first)
        ascii_words = [text for text in longest_first if text.isascii()]
        self._within_plain_text = f"(?s).*{any_of(ascii_words)}.*" if ascii_words else None
        hashes = _hashed(tf.constant(longest_first, tf.string))  # [A]
        order = tf.argsort(hashes)
        self._hashes = tf.gather(hashes, order)
        self._ids = tf.gather(tf.constant([id_of[text] for text in longest_first], tf.int32), order)

    def are_in_plain_texts(self, texts: tf.Tensor) -> tf.Tensor:
        """Whether each of the texts [N] has an added word, if it matches `basic.PLAIN_TEXT`."""
        if self._within_plain_text is None:
            return tf.zeros_like(texts, tf.bool)
        if self._do_lower_case:
            texts = tf.strings.lower(texts)
        texts = tf.strings.regex_replace(texts, r"[\t\n\r]", " ")
        return tf.strings.regex_full_match(texts, self._within_plain_text)

    def split_words(self, texts: tf.Tensor) -> tuple[Words, tf.Tensor]:
        """The words of texts [N] of UTF-8, and their ids int32 [W]; -1 where none was added."""
        normal = basic.normalize(texts, self._table, spaces=True)
        places = self._find(normal)
        in_words = tf.where(places.is_added | (normal.characters != basic.SPACE))[:, 0]
        normal = normal._replace(
            characters=tf.gather(normal.characters, in_words),
            sources=tf.gather(normal.sources, in_words),
        )  # without the spaces between words
        part = tf.gather(places.parts, in_words)  # [K]
        is_added = tf.gather(places.is_added, in_words)
        breaks = tf.gather(basic.breaks_of(normal), normal.sources)
        is_other_part = part[1:] != part[:-1]
        is_break = (breaks[1:] != breaks[:-1]) & ~is_added[1:]
        always = tf.ones_like(is_added[:1])
        first = tf.where(tf.concat([always, is_other_part | is_break], 0))[:, 0]  # [W]
        ids = tf.gather(places.ids, tf.gather(part, first))
        return basic.words_from(normal, first), ids

    def mark_points(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Where the added words are in texts [N] of UTF-8.

        Returns:
          A number of each code point, int32 [C], which rises where an added word begins and behind
          it; and whether the code point is in an added word, bool [C].
        """
        normal = basic.normalize(texts, self._table, spaces=True)
        places = self._find(normal)
        starts, ends = basic.extents(normal)  # [C], in their text
        text_start = tf.gather(normal.points.row_starts(), normal.points.value_rowids())
        begins = tf.gather(tf.cast(starts, tf.int64) + text_start, normal.sources)  # [K]
        stops = tf.gather(tf.cast(ends, tf.int64) + text_start, normal.sources)  # [K]
        word = tf.unique(tf.boolean_mask(places.parts, places.is_added)).idx  # of each character
        begin = tf.math.segment_min(tf.boolean_mask(begins, places.is_added), word)  # [added words]
        stop = tf.math.segment_max(tf.boolean_mask(stops, places.is_added), word)
        # Two words may share a code point: the first has it.
        begin = tf.maximum(begin, tf.concat([tf.zeros_like(stop[:1]), stop[:-1]], 0))
        size = tf.size(starts) + 1
        opened = tf.math.bincount(tf.cast(begin, tf.int32), minlength=size, maxlength=size)[:-1]
        closed = tf.math.bincount(tf.cast(stop, tf.int32), minlength=size, maxlength=size)[:-1]
        return tf.cumsum(opened + closed), tf.cumsum(opened - closed) > 0

    def _find(self, normal: Characters) -> Places:
        """The added words in texts whose white space has become spaces."""
        parts, is_added = cut_at(_searched(normal), self._pattern)  # [N, (parts)], [M]
        strings = parts.values  # [M]
        place = tf.searchsorted(self._hashes, _hashed(strings))
        place = tf.minimum(place, tf.size(self._hashes) - 1)  # any, of other parts
        lengths = tf.strings.length(strings, "UTF8_CHAR")
        part = tf.repeat(tf.range(tf.size(strings)), lengths)  # [K]
        return Places(
            parts=part,
            is_added=tf.gather(is_added, part),
            ids=tf.where(is_added, tf.gather(self._ids, place), -1),
        )


def _searched(normal: Characters) -> tf.Tensor:
    """Texts [N] that were normalized, as strings, as the library does it: no sigma is final."""
    is_capital = tf.gather(normal.points.values, normal.sources) == basic.CAPITAL_SIGMA
    is_settled = is_capital & (normal.characters == basic.FINAL_SIGMA)
    characters = tf.where(is_settled, basic.SMALL_SIGMA, normal.characters)
    splits = tf.searchsorted(normal.sources, normal.points.row_splits, out_type=tf.int64)
    texts = tf.RaggedTensor.from_row_splits(characters, splits, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")


# Only parts that match the pattern are looked up, so no other text can have the hash of a word.
_hashed = functools.partial(tf.strings.to_hash_bucket_fast, num_buckets=HASHES)
