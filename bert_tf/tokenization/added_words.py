"""Words that were added to a tokenizer: found in the normalized text, before it is cut into words.

    text            "An anti-COVID-19  café."    added words: Covid-19, Café
    normalized      "an anti-covid-19  cafe."
    words           an  anti  -  covid-19  cafe  .

Hugging Face's `tokenizer.add_tokens` adds such words. The word itself is normalized, as the text
is: control characters dropped, white space as spaces, a space on each side of an ideograph, and in
an uncased model no capitals and no accents. It is found anywhere, also inside a word; of words that
overlap the leftmost is taken, of two that begin at one place the longer. What stands between is cut
into words as ever.

Shapes: N texts, C code points of all texts, K characters that they become, spaces included, W
words, M parts of all texts, A added words.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tokenization import basic
from bert_tf.tokenization.basic import Characters, UnicodeTable, Words
from bert_tf.tokenization.never_split import any_of, cut_at

HASHES = 2**63 - 1


class Places(NamedTuple):
    """Where added words are in texts that were normalized."""

    parts: tf.Tensor  # [K] int64: the part of each character: an added word or what is between
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
          table: of the tokenizer, in tensors.
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

    def mark(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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


# The words alone are looked up by it, so that two of them would have to have the same hash.
_hashed = functools.partial(tf.strings.to_hash_bucket_fast, num_buckets=HASHES)
