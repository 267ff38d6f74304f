"""Text -> word pieces, ids and offsets: BERT's tokenizer, exactly, as TensorFlow operations.

Data generation, training and serving share this tokenizer. `tokenize_ids` and
`tokenize_with_offsets` are graph operations that work in tf.data, tf.function and a SavedModel;
`tokenize` is for Python strings.

    text     "He's unaffable\\u0301!"
    words    ["he", "'", "s", "unaffable", "!"]          white space, punctuation, accents, case
    pieces   ["he", "'", "s", "una", "##ffa", "##ble", "!"]
    spans    (0, 2) (2, 3) (3, 4) (5, 8) (8, 11) (11, 15) (15, 16)

A sequence is one text or two, cut to length:

    one      [CLS] a [SEP]             segments 0 0 0
    pair     [CLS] a [SEP] b [SEP]     segments 0 0 0 1 1

Shapes: B sequences of S ids, N texts, K characters of all texts, W words.
Source: BasicTokenizer, WordpieceTokenizer and FullTokenizer of google-research/bert; of sequences,
its `convert_single_example` and `_truncate_seq_pair`.
"""

import collections
import functools
import hashlib
import itertools
import os
import re
import string
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.declarations import check
from bert_tf.decoding import LONE_SURROGATE
from bert_tf.errors import InputError
from bert_tf.files import gfile, own_path, read_json, read_text_lines
from bert_tf.runtime import import_tensorflow_text, is_forked, refuse_forked
from bert_tf.terminal import number_of
from bert_tf.tokenization import SPECIAL_PIECES, basic
from bert_tf.tokenization.texts import as_columns, each_text
from bert_tf.tokenization.whole_pieces import (
    KEPT_WHOLE,
    AddedWords,
    NeverSplit,
    without_kept_whole,
)

tf_text = import_tensorflow_text()
Texts: TypeAlias = Iterable[str | bytes] | tf.Tensor
UNKNOWN = "[UNK]"
MAX_CHARACTERS_PER_WORD = 200  # longer words are unknown
MOST_LOST = 0.01  # of the words lose letters without a warning
LEAST_LENGTH = SPECIAL_PIECES + 2  # of a sequence: with a piece of either text
MAX_BYTES_PER_BATCH = 1 << 20  # that `iter_ids` tokenizes at once
MAX_TEXTS_PER_BATCH = 8192

# UTF-8 cannot hold a lone surrogate. This replaces it: it too is in no vocabulary, has no case and
# is no punctuation.
SURROGATE_STAND_IN = "\U0010ffff"


class FullTokenizer:
    """Cuts text into the word pieces of a vocabulary (original: FullTokenizer).

    Attributes:
      vocab: dict of piece to id, in file order. The id is the line number from 0; for a piece on
        two lines, that of the last.
      inv_vocab: dict of id to piece, for every line.
      vocab_size: number of lines, so that every id is below it.
      do_lower_case: whether text is lower-cased, and by default loses its accents.
      strip_accents: whether text loses its accents; None: if it is lower-cased.
      never_split: pieces that are found in the raw text, before it is cut into words.
      splitter: finds them; None without any.
      added_words: pieces that are found in the normalized text, in any case if it is lower-cased.
      word_finder: finds them; None without any.
      max_length: the most ids of a sequence, where a call does not say it; None: any number.
      positions: those of its model, which no sequence exceeds; None: unknown.
      longest: the most ids of a sequence: the smaller of `max_length` and `positions`; None: any
        number.
    """

    positions: int | None = None

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        *,
        pieces: Sequence[str] | None = None,
        never_split: Sequence[str] = (),
        added_words: Sequence[str] = (),
        max_length: int | None = None,
        strip_accents: bool | None = None,
    ):
        """Reads the vocabulary, one piece a line.

        Args:
          vocab_file: its path.
          do_lower_case: for uncased models: lower-case the text and remove its accents.
          pieces: the vocabulary itself; the path is then used in messages only.
          never_split: pieces that are kept whole wherever a text has them, in this case only, such
            as ("[MASK]", "<e1>"); see `NeverSplit`. By default none, as in the original, which
            cuts "[MASK]" into "[", "mask" and "]".
          added_words: pieces that are kept whole wherever a text has them after it is normalized,
            such as ("Covid-19",): for uncased models in any case and with any accents. Hugging
            Face's `tokenizer.add_tokens` adds such words; see `AddedWords`.
          max_length: the most ids of a sequence, of a model's tokenizer that of its positions.
          strip_accents: remove accents, whatever the case; None: as do_lower_case.

        Raises:
          InputError: the file cannot be read, is not UTF-8, is empty or lacks [UNK] or one of
            `never_split` or `added_words`; or a piece is in both.
        """
        self.vocab_file = own_path(vocab_file)
        self.do_lower_case = do_lower_case
        self.max_length = max_length
        self.strip_accents = None if strip_accents == do_lower_case else strip_accents
        self.never_split = _distinct("never_split", never_split)
        self.added_words = _distinct("added_words", added_words)
        lines = read_vocabulary(self.vocab_file) if pieces is None else list(pieces)
        if pieces is None:  # refuses the wrong case
            choose_case(self.vocab_file, without_kept_whole(lines, self), do_lower_case)
        self.vocab = {piece: number for number, piece in enumerate(lines)}
        self.inv_vocab = dict(enumerate(lines))
        self.vocab_size = len(lines)
        self.require_special_tokens(UNKNOWN, *self.never_split, *self.added_words)
        if in_both := sorted({*self.never_split} & {*self.added_words}):
            received = f"{', '.join(in_both)} in both {' and '.join(KEPT_WHOLE)}"
            remedy = "leave it in added_words if it is found in any case, else in never_split"
            raise InputError(received, "each piece in one of the lists", remedy)
        # In a forked process it is unusable, but a pool must be able to unpickle it.
        if not is_forked():
            self._build(lines)

    def _build(self, lines: list[str]) -> None:
        """Makes the tables and graphs for a vocabulary."""
        with tf.init_scope():  # constants, also when made while something else is being traced
            self._wordpiece = _build_wordpiece(lines)
            table = basic.load_unicode_table(**self.case)
            self._table = basic.UnicodeTable(*map(tf.constant, table))
            self.splitter = None
            if self.never_split:
                self.splitter = NeverSplit(self._ids_by_piece(self.never_split))
            self.word_finder = None
            if self.added_words:
                self.word_finder = AddedWords(
                    self._ids_by_piece(self.added_words),
                    self._table,
                    do_lower_case=self.do_lower_case,
                )
        self._ids = self._graph(self._ids_of_texts)
        self._ids_and_spans = self._graph(self._spans_of_texts)

    def __call__(
        self,
        texts: str | bytes | Iterable[str | bytes] | Iterable[tuple[str | bytes, str | bytes]],
        text_pairs: str | bytes | Iterable[str | bytes] | None = None,
        max_length: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Texts or pairs of texts -> the inputs of a model (original: `convert_single_example`).

            one     [CLS] a [SEP]             segments 0 0 0
            pair    [CLS] a [SEP] b [SEP]     segments 0 0 0 1 1

        Args:
          texts: a string, or any number of them: a list, a column of pandas or `datasets`, an array
            of NumPy, a string tensor [B]. Or a list of pairs, each a tuple of two strings.
          text_pairs: the second text of each, "" for none; None: there are none, or `texts` has
            them.
          max_length: the most ids of a sequence; by default `longest`. A longer text loses its end.
            In a pair the longer text loses its last piece, again and again until the pair fits; of
            equally long texts the second does.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S] each, padded with 0 to the longest.

        Raises:
          InputError: an item is not a text, which the message names; there are more or fewer second
            texts, or pairs among texts; max_length is below 5 or above the model's positions; the
            vocabulary lacks [CLS] or [SEP]; or the process was forked after TensorFlow had run.
        """
        rows, _ = self.rows(texts, text_pairs, max_length)
        return padded(rows)

    def rows(
        self, texts: Any, text_pairs: Any = None, max_length: int | None = None
    ) -> tuple[list[tuple[list[int], list[int]]], int]:
        """The ids and segments of each row that a call returns, and how many were cut.

        Raises:
          InputError: as a call does.
        """
        self.require_special_tokens("[CLS]", "[SEP]")
        bounds = {"low": LEAST_LENGTH} | ({"high": self.positions} if self.positions else {})
        check("max_length", np.asarray(max_length).tolist(), int | None, **bounds)
        check("max_length", np.asarray(self.max_length).tolist(), int | None, low=LEAST_LENGTH)
        most = self.longest if max_length is None else max_length
        first, second = as_columns(texts, text_pairs)
        packer = Packer(self, sys.maxsize if most is None else most)
        ids = self.iter_ids(itertools.chain(first, second or [""] * len(first)))
        of_first = list(itertools.islice(ids, len(first)))
        packed = [packer.pack(a, b) for a, b in zip(of_first, ids, strict=True)]
        num_cut = sum(is_cut for *_, is_cut in packed)
        return [(ids_of_row, segments) for ids_of_row, segments, _ in packed], num_cut

    @property
    def longest(self) -> int | None:
        """The most ids of a sequence, where a call does not say it."""
        return min(filter(None, (self.max_length, self.positions)), default=None)

    @property
    def case(self) -> dict[str, Any]:
        """Case and accents of the text, as arguments of `basic.load_unicode_table`."""
        return {"do_lower_case": self.do_lower_case, "strip_accents": self.strip_accents}

    @property
    def pieces(self) -> tuple[str, ...]:
        """The vocabulary in the order of the ids."""
        return tuple(self.inv_vocab.values())

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the vocabulary's pieces among them, as JSON values."""
        return {
            "vocab_file": self.vocab_file,
            **self.case,
            "pieces": list(self.pieces),
            "never_split": list(self.never_split),
            **({"added_words": list(self.added_words)} if self.added_words else {}),
            "max_length": self.max_length,
        }

    def __reduce__(self) -> tuple:
        """For pickle and copy, which take no graphs."""
        return functools.partial(type(self), **self.get_config()), (), {"positions": self.positions}

    def _ids_by_piece(self, pieces: Iterable[str]) -> dict[str, int]:
        return {piece: self.vocab[piece] for piece in pieces}

    def require_special_tokens(self, *pieces: str) -> None:
        """Raises `InputError` if the vocabulary lacks one of `pieces`."""
        missing = [piece for piece in pieces if piece not in self.vocab]
        if missing:
            received = f"{self.vocab_file}: {self.vocab_size} pieces, without {', '.join(missing)}"
            remedy = "add the missing pieces or give another --vocab_file"
            raise InputError(received, f"{', '.join(pieces)}, each on a line of its own", remedy)

    def tokenize(self, text: str | bytes | Iterable[str | bytes]) -> list:
        """The word pieces of a text, or of each of many texts.

        Args:
          text: a string, or a list of strings. Bytes are read as UTF-8; invalid ones are skipped.

        Returns:
          list of str for one text, list of lists for a list. A call with a list is far quicker than
          a call for each text.

        Raises:
          InputError: an item is not a text, or the process was forked after TensorFlow had run.
        """
        if isinstance(text, str | bytes):
            return self.tokenize([text])[0]
        return [self.convert_ids_to_tokens(ids) for ids in self.iter_ids(text)]

    def iter_ids(self, texts: Iterable[str | bytes]) -> Iterator[list[int]]:
        """The ids of each of any number of texts, which are tokenized many at a time.

        Raises:
          InputError: as `tokenize`; earlier batches are answered.
        """
        for ids, splits in self.iter_batches(texts):
            ids = ids.tolist()
            for first, last in itertools.pairwise(splits.tolist()):
                yield ids[first:last]

    def iter_batches(self, texts: Iterable[str | bytes]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The ids of N texts at a time, int32 [pieces], and how they are split by text [N + 1]."""
        refuse_forked("a tokenizer")
        for batch in batches(_encoded(texts)):
            (ids,) = self._ids(tf.constant(batch))
            yield ids.values.numpy(), ids.row_splits.numpy()

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each piece; KeyError for a piece that is not in the vocabulary."""
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id; KeyError for an id that is not in the vocabulary."""
        return [self.inv_vocab[i] for i in ids]

    def tokenize_ids(self, texts: Texts) -> tf.RaggedTensor:
        """The ids of the word pieces of each text.

        Args:
          texts: string tensor [N] of UTF-8, or a list of strings, not a single one. Bytes that
            are not UTF-8 are skipped.

        Returns:
          RaggedTensor int32 [N, (pieces)].

        Raises:
          InputError: as `tokenize`; or a tensor has no strings.
        """
        texts = _as_tensor(texts)
        return self._ids(texts)[0]

    def tokenize_with_offsets(self, texts: Texts) -> tuple[tf.RaggedTensor, ...]:
        """The ids of the word pieces of each text, and where in the text each piece lies.

        Args:
          texts: as for `tokenize_ids`.

        Returns:
          (ids, starts, ends), each RaggedTensor int32 [N, (pieces)]. Starts and ends are in code
          points: `text[start:end]` of the Python string is the piece before lower-casing, with the
          accents that follow its last letter, without control characters at its borders. [UNK]
          spans its whole word. Pieces of a character that becomes several (a Hangul syllable) all
          span this character. Reordered combining characters have the place they are moved to.
        """
        texts = _as_tensor(texts)
        return self._ids_and_spans(texts)

    def _graph(self, tokenize: Callable) -> Callable:
        """`tokenize` of texts [N] as a graph on the CPU, where strings are.

        On a machine with a GPU its many small integer operations would otherwise go there and back.
        """
        if self.splitter:
            tokenize = functools.partial(self.splitter.tokenize, tokenize)

        def on_cpu(texts):
            with tf.device("CPU:0"):
                return tuple(tokenize(texts))

        texts = tf.TensorSpec([None], tf.string)
        return tf.function(on_cpu, input_signature=[texts], autograph=False)

    def _ids_of_texts(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor]:
        """Plain ASCII texts by the short cut, the others by the table, in one batch again."""
        plain = tf.strings.regex_full_match(texts, basic.PLAIN_TEXT)
        if self.word_finder:
            plain &= ~self.word_finder.are_in_plain_texts(texts)
        plain_rows = tf.where(plain)[:, 0]
        other_rows = tf.where(~plain)[:, 0]
        short = basic.plain_words(tf.gather(texts, plain_rows), do_lower_case=self.do_lower_case)
        words, added_ids = self._words(tf.gather(texts, other_rows))
        if added_ids is not None:
            added_ids = tf.pad(added_ids, [[tf.size(short.values), 0]], constant_values=-1)
        ids, _ = self._pieces(tf.concat([short.values, words.strings], 0), added_ids)
        splits = [short.row_splits, words.text_splits[1:] + short.row_splits[-1]]
        order = tf.math.invert_permutation(tf.concat([plain_rows, other_rows], 0))
        return (tf.gather(basic.in_texts(ids, tf.concat(splits, 0)), order),)

    def _spans_of_texts(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        words, added_ids = self._words(texts)
        ids, offsets = self._pieces(words.strings, added_ids)
        first, last = _characters_of_pieces(words, offsets)  # [pieces]
        values = (ids.values, tf.gather(words.starts, first), tf.gather(words.ends, last))
        return tuple(basic.in_texts(ids.with_values(v), words.text_splits) for v in values)

    def _words(self, texts: tf.Tensor) -> tuple[basic.Words, tf.Tensor | None]:
        """The words of texts [N], and the ids of added words among them, [W]; None without any."""
        if self.word_finder:
            return self.word_finder.split_words(texts)
        return basic.split_words(texts, self._table), None

    def _pieces(
        self, words: tf.Tensor, added_ids: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, ...]:
        """Ids of the pieces of words [W], and their byte offsets in the word: [W, (pieces)].

        `added_ids`: int32 [W], of words that are whole; -1 of others. None: there are none.
        """
        is_single = tf.strings.length(words, "UTF8_CHAR") > MAX_CHARACTERS_PER_WORD
        if added_ids is not None:
            is_single |= added_ids >= 0
        words = tf.where(is_single, UNKNOWN, words)  # which is a single piece
        ids, offsets, _ = self._wordpiece.tokenize_with_offsets(words)
        if added_ids is not None:
            added = tf.gather(added_ids, ids.value_rowids())  # [pieces]
            ids = ids.with_values(tf.where(added >= 0, added, ids.values))
        return ids, offsets


def _characters_of_pieces(
    words: basic.Words, offsets: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last of the K characters of each piece; the pieces of a word cover all of it."""
    sizes = 1 + sum(tf.cast(words.characters >= 1 << bits, tf.int64) for bits in (7, 11, 16))
    byte = tf.cumsum(sizes, exclusive=True)  # [K]: in UTF-8, from the first word on
    word_byte = tf.cumsum(tf.cast(tf.strings.length(words.strings), tf.int64), exclusive=True)
    piece_byte = tf.gather(word_byte, offsets.value_rowids()) + tf.cast(offsets.values, tf.int64)
    first = tf.searchsorted(byte, piece_byte)
    return first, tf.concat([first, [tf.size(byte)]], 0)[1:] - 1


def read_vocabulary(vocab_file: str) -> list[str]:
    """The lines of a vocabulary, stripped; the number of a line is the id of its piece.

    Raises:
      InputError: the file cannot be read, is not UTF-8, or has no pieces.
    """
    pieces = [line.strip() for line in read_text_lines(own_path(vocab_file))]
    if not any(pieces):
        expected = "a text file in UTF-8, one word piece a line"
        raise InputError(f"{vocab_file}, which is empty", expected, "give another --vocab_file")
    return pieces


def accents_beside(vocab_file: str) -> bool | None:
    """The strip_accents in a model's files beside its vocabulary; None if it is in none."""
    for name in ("model_facts.json", "tokenizer_config.json"):
        path = os.path.join(os.path.dirname(vocab_file), name)
        if gfile(path).exists(path):
            strip_accents = read_json(path).get("strip_accents")
            if isinstance(strip_accents, bool):
                return strip_accents
    return None


def strips_accents(tokenizer: Any) -> bool | None:
    """Whether a tokenizer, or what describes one, strips accents: by default as its case."""
    strip_accents = tokenizer.strip_accents
    return tokenizer.do_lower_case if strip_accents is None else strip_accents


def vocabulary_sha256(pieces: Iterable[str]) -> str:
    """The SHA-256 of a vocabulary's pieces, a line each, whatever ends the lines of its file."""
    return hashlib.sha256("".join(f"{piece}\n" for piece in pieces).encode("utf-8")).hexdigest()


# ---------------------------------------------------------------------------- its case


def refuted_case(vocab_file: str, pieces: Iterable[str], do_lower_case: bool | None) -> str:
    """How the vocabulary shows that its text had another case, for messages; else ""."""
    words = _words(pieces)
    num_with_capitals = sum(word != word.lower() for word in words)
    num_with_small = sum(word != word.upper() for word in words)
    cased = num_with_capitals > num_with_small / 50
    is_unclear = num_with_small < 1000 or bool(num_with_capitals) is not cased
    if is_unclear or cased is not do_lower_case:
        return ""
    return f"{vocab_file}, a vocabulary with{'' if cased else 'out'} capital letters"


def choose_case(
    vocab_file: str,
    pieces: Sequence[str],
    given: bool | None,
    *,
    strip_accents: bool | None = None,
) -> bool:
    """The do_lower_case for a vocabulary: the one given, else the one that its pieces show.

    Args:
      vocab_file: for messages.
      pieces: the word pieces of the vocabulary, but those that are kept whole.
      given: what the user chose; None: nothing.
      strip_accents: as the vocabulary's folder says; None: as the case.

    Raises:
      InputError: the vocabulary shows that its text had another case; or nothing is given, and it
        has pieces that lower-cased text never gives, but too few to show the case.
    """
    lower = given is not False
    if given is None and (reason := refuted_case(vocab_file, pieces, lower)):
        logging.info("The text is not lower-cased: %s.", reason)
        return False
    if reason := refuted_case(vocab_file, pieces, lower):
        expected = "text in the case that the vocabulary was made for"
        remedy = f"use --{'no' if lower else ''}do_lower_case"
        raise InputError(f"do_lower_case {lower} with {reason}", expected, remedy)
    lowered = str.lower if strip_accents is False else _lowered_and_stripped
    if given is None and (lost := [piece for piece in _words(pieces) if lowered(piece) != piece]):
        unused = f"{len(lost)} of its pieces, such as {lost[0]!r}, never occur in lower-cased text"
        received = f"{vocab_file}, which does not show whether text is to be lower-cased: {unused}"
        expected = "--do_lower_case or --nodo_lower_case, as the model was or will be trained"
        raise InputError(received, expected, "add one of the two")
    return lower


def _words(pieces: Iterable[str]) -> list[str]:
    """The pieces without [MASK] and the like."""
    return [piece for piece in pieces if not re.fullmatch(r"\[.*\]|<.*>", piece)]


def without_accents(text: str) -> str:
    """The text in NFD, without combining marks."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def _lowered_and_stripped(text: str) -> str:
    return without_accents(text.lower())


def warn_of_lost_letters(texts: Iterable[str], remedy: str) -> None:
    """Logs how many words lose accents in lower-cased text, if that is more than a hundredth."""
    words = collections.Counter(w.strip(string.punctuation) for text in texts for w in text.split())
    whole = {word: unicodedata.normalize("NFD", word) for word in words}
    lost = collections.Counter({w: words[w] for w in words if without_accents(w) != whole[w]})
    if (share := lost.total() / max(1, words.total())) > MOST_LOST:
        shown = ", ".join(f"{word} -> {without_accents(word)}" for word, _ in lost.most_common(5))
        says = "%.1f %% of the words lose letters or accents: %s. %s."
        logging.warning(says, 100 * share, shown, remedy)


# ---------------------------------------------------------------------------- sequences


Ids = TypeVar("Ids", list[int], bytes)


def joined(cls: Ids, a: Ids, sep: Ids, b: Ids) -> Ids:
    """[CLS] a [SEP] b [SEP], or [CLS] a [SEP] where b is empty; lists of ids, or their bytes.

    `layers.Tokenizer.join` does the same as TensorFlow operations.
    """
    first = cls + a + sep
    return first + b + sep if b else first


def room_for(most: int, has_second: bool) -> int:
    """How many ids of texts a sequence of at most `most` ids holds, beside [CLS] and [SEP]."""
    return most - SPECIAL_PIECES + (not has_second)


class Packer:
    """Joins the ids of one or two texts to sequences of at most `max_seq_length` ids."""

    def __init__(self, tokenizer: FullTokenizer, max_seq_length: int = sys.maxsize):
        cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self._cls = [cls]
        self._sep = [sep]
        self._max_seq_length = max_seq_length

    def pack(self, a: list[int], b: list[int]) -> tuple[list[int], list[int], bool]:
        """Ids, segments, and whether ids were cut off; a second text without ids counts as none."""
        room = room_for(self._max_seq_length, bool(b))
        is_cut = len(a) + len(b) > room
        a, b = truncate_pair(a, b, room)
        return *self.join(a, b), is_cut

    def join(self, a: list[int], b: list[int]) -> tuple[list[int], list[int]]:
        """Ids and segments of texts that have room."""
        ids = joined(self._cls, a, self._sep, b)
        of_first = len(a) + 2
        return ids, [0] * of_first + [1] * (len(ids) - of_first)


# What a vocabulary has for other purposes: in a text it is cut into pieces, as by the original.
SPECIAL_TOKEN = re.compile(r"\[(?:CLS|SEP|MASK|PAD|UNK)\]")


def warn_of_special_tokens(number: int, of: int) -> None:
    """Logs how many of a number of texts have special tokens in them, if some have."""
    if number:
        says = "%d of %s have [CLS], [SEP] or another special token as text, which is cut into "
        says += "pieces: remove them."
        logging.warning(says, number, number_of(of, "texts"))


def told_cut(num_cut: int, number: int, most: int, things: str = "texts") -> str:
    """A sentence on how many of a number of texts, or of other things, were cut.

    >>> told_cut(2, 7, 128)
    'Cut to 128 tokens (max_seq_length): 2 of 7 texts.'
    """
    return f"Cut to {most} tokens (max_seq_length): {num_cut} of {number_of(number, things)}."


def padded(
    rows: Sequence[tuple[list[int], list[int]]], length: int | None = None
) -> dict[str, np.ndarray]:
    """Rows of ids and segments as a model's inputs, int32 [B, S]; S is `length`, or the longest."""
    longest = max((len(ids) for ids, _ in rows), default=0)
    shape = len(rows), longest if length is None else length
    batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for number, (ids, segments) in enumerate(rows):
        for array, values in zip(batch.values(), (ids, 1, segments), strict=True):
            array[number, : len(ids)] = values  # type: ignore[call-overload]  # also one number
    return batch


def truncate_pair(a: list[int], b: list[int], most: int) -> tuple[list[int], list[int]]:
    """Cuts from the end of the longer, of the second if equal, until both fit into `most`."""
    num_of_a = max(most - len(b), most - most // 2)
    num_of_b = max(most - len(a), most // 2)
    return a[:num_of_a], b[:num_of_b]


# ---------------------------------------------------------------------------- details


def _distinct(name: str, pieces: Sequence[str]) -> tuple[str, ...]:
    """The pieces of an option, each once.

    Raises:
      InputError: they are a string, or one of them is empty.
    """
    if isinstance(pieces, str) or "" in pieces:
        received = f"{name} {pieces!r}"
        raise InputError(received, "a list of word pieces", 'write ("[MASK]",) for one')
    return tuple(dict.fromkeys(pieces))


def _build_wordpiece(lines: list[str]) -> Any:
    """The WordPiece search over the pieces that can occur in a word.

    It refuses duplicates and NUL. Pieces that cannot occur in a word are replaced by other such
    pieces: lines are stripped, so none begins with a space.
    """
    pieces = list(lines)
    vocab = {piece: number for number, piece in enumerate(lines)}
    for number, piece in enumerate(lines):
        characters = piece.removeprefix("##")
        never = len(characters) > MAX_CHARACTERS_PER_WORD or "\0" in piece or not characters
        if never or vocab[piece] != number:
            pieces[number] = f" {number}"
    return tf_text.FastWordpieceTokenizer(
        pieces,
        token_out_type=tf.int32,
        unknown_token=UNKNOWN,
        no_pretokenization=True,
        max_bytes_per_word=4 * MAX_CHARACTERS_PER_WORD,  # a character has at most 4 in UTF-8
    )


def utf8(text: str | bytes) -> bytes:
    """A text in UTF-8, with as many code points: lone surrogates are replaced."""
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return LONE_SURROGATE.sub(SURROGATE_STAND_IN, text).encode("utf-8")


def _as_tensor(texts: Texts) -> tf.Tensor:
    """Texts [N] as a string tensor."""
    refuse_forked("a tokenizer")
    if isinstance(texts, tf.Tensor) and texts.dtype == tf.string and texts.shape.rank in (1, None):
        return texts
    return tf.convert_to_tensor([*_encoded(texts)], tf.string)


def _encoded(texts: Iterable[str | bytes]) -> Iterator[bytes]:
    """Texts in UTF-8."""
    return map(utf8, each_text(texts))


def batches(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cuts a list of texts into parts that fit into memory."""
    batch: list[bytes] = []
    size = 0
    for text in texts:
        if batch and (size + len(text) > MAX_BYTES_PER_BATCH or len(batch) == MAX_TEXTS_PER_BATCH):
            yield batch
            batch = []
            size = 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
