"""Text to word pieces, ids and offsets: BERT's tokenizer, exactly, as TensorFlow operations.

One tokenizer serves data generation, training and serving. `tokenize_ids` and
`tokenize_with_offsets` are graph operations that work in tf.data, tf.function and a SavedModel;
`tokenize` is the same for Python strings.

    text     "He's unaffable\\u0301!"
    words    ["he", "'", "s", "unaffable", "!"]          white space, punctuation, accents, case
    pieces   ["he", "'", "s", "una", "##ffa", "##ble", "!"]
    spans    (0, 2) (2, 3) (3, 4) (5, 8) (8, 11) (11, 15) (15, 16)

Shapes: N texts, C code points of all texts, K characters that are left of them, W words.
Source: BasicTokenizer, WordpieceTokenizer and FullTokenizer of google-research/bert.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.errors import InputError
from bert_tf.files import read_text
from bert_tf.tokenization.basic import PLAIN_TEXT, Words, plain_words, split_words
from bert_tf.tokenization.unicode_table import UnicodeTable, load_unicode_table

UNKNOWN = "[UNK]"
MAX_CHARACTERS_PER_WORD = 200  # longer words are unknown
MAX_BYTES_PER_CHARACTER = 4  # of UTF-8
MAX_BYTES_PER_PIECE = 256  # a limit of FastWordpieceTokenizer; "##" does not count
MAX_BYTES_PER_BATCH = 1 << 20  # that `tokenize` hands over at once

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# UTF-8 cannot hold a lone surrogate. This stands for it: it too is in no vocabulary, has no case
# and is no punctuation.
SURROGATE_STAND_IN = "\U0010ffff"


class FullTokenizer:
    """Cuts text into the pieces of a WordPiece vocabulary, as the original's FullTokenizer does.

    Attributes:
      vocab: dict of piece to id, in file order. The id is the line number from 0; of a piece that
        is there twice the last line counts.
      inv_vocab: dict of id to piece, for every line.
      vocab_size: number of lines, so that every id is below it.
      do_lower_case: whether text is lower-cased and its accents taken off.
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        *,
        pieces: Sequence[str] | None = None,
    ):
        """Reads the vocabulary, one piece a line.

        Args:
          vocab_file: where it is.
          do_lower_case: for uncased models: lower-case the text and take its accents off.
          pieces: the vocabulary itself, if it has been read; the file is then only named.

        Raises:
          InputError: the file cannot be read, is not UTF-8, is empty or lacks [UNK].
        """
        self.vocab_file = os.fspath(vocab_file)
        self.do_lower_case = do_lower_case
        lines = read_vocabulary(self.vocab_file) if pieces is None else list(pieces)
        self.vocab = {piece: number for number, piece in enumerate(lines)}
        self.inv_vocab = dict(enumerate(lines))
        self.vocab_size = len(lines)
        self.require_special_tokens(UNKNOWN)
        with tf.init_scope():  # constants, also when made while something else is being traced
            self._wordpiece = _build_wordpiece(self.vocab_file, lines, self.vocab)
            table = load_unicode_table(do_lower_case=do_lower_case)
            self._table = UnicodeTable(*map(tf.constant, table))
        self._ids = _graph(self._ids_of_texts)
        self._ids_and_spans = _graph(self._spans_of_texts)

    def require_special_tokens(self, *pieces: str) -> None:
        """Raises InputError, naming the file, where one of `pieces` is not in the vocabulary."""
        missing = [piece for piece in pieces if piece not in self.vocab]
        if missing:
            raise InputError(
                received=f"{self.vocab_file}: {self.vocab_size} pieces, without "
                + ", ".join(missing),
                expected=f"a vocabulary with {', '.join(pieces)}, each on a line of its own",
                remedy="add the missing pieces or give another --vocab_file",
            )

    def tokenize(self, text: str | bytes | Iterable[str | bytes]) -> list:
        """The pieces of a text, or of each of many texts.

        Args:
          text: a string, or a list of strings. bytes are read as UTF-8, without what is not valid.

        Returns:
          list of str for one text, list of lists for a list. One list is far quicker than a call
          for each text.
        """
        if isinstance(text, str | bytes):
            return self.tokenize([text])[0]
        result = []
        for batch in _batches(map(utf8, text)):
            ids = self.tokenize_ids(batch)
            pieces = self.convert_ids_to_tokens(ids.values.numpy().tolist())
            splits = ids.row_splits.numpy().tolist()
            result += [pieces[first:last] for first, last in itertools.pairwise(splits)]
        return result

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each piece; KeyError for what is not in the vocabulary."""
        return [self.vocab[token] for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id; KeyError for what is not an id of the vocabulary."""
        return [self.inv_vocab[i] for i in ids]

    def tokenize_ids(self, texts) -> tf.RaggedTensor:
        """Ids of the pieces of each text.

        Args:
          texts: string tensor [N] of UTF-8, or a list of strings. Bytes that are not UTF-8 are
            skipped.

        Returns:
          RaggedTensor int32 [N, (pieces)].
        """
        return self._ids(_as_tensor(texts))

    def tokenize_with_offsets(self, texts) -> tuple[tf.RaggedTensor, ...]:
        """Ids of the pieces of each text, and where in the text each piece comes from.

        Args:
          texts: as for `tokenize_ids`.

        Returns:
          (ids, starts, ends), each RaggedTensor int32 [N, (pieces)]. In code points, so that
          `text[start:end]` of the Python string is the piece before lower-casing: with the accents
          that follow its last letter, and without control characters at its borders. [UNK] spans
          its whole word. Pieces of a character that becomes several (a Hangul syllable) all span
          this character. Combining characters that are put in another order keep the place they
          are put at.
        """
        return self._ids_and_spans(_as_tensor(texts))

    def _ids_of_texts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Plain ASCII texts by the short cut, the others by the table, in one batch again."""
        plain = tf.strings.regex_full_match(texts, PLAIN_TEXT)
        plain_rows, other_rows = tf.where(plain)[:, 0], tf.where(~plain)[:, 0]
        short = plain_words(tf.gather(texts, plain_rows), do_lower_case=self.do_lower_case)
        words = split_words(tf.gather(texts, other_rows), self._table)
        ids, _ = self._pieces(
            tf.concat([short.values, words.strings], 0),
            tf.concat([tf.strings.length(short.values), words.lengths], 0),
        )
        splits = [short.row_splits, words.text_splits[1:] + short.row_splits[-1]]
        order = tf.math.invert_permutation(tf.concat([plain_rows, other_rows], 0))
        return tf.gather(_of_texts(ids, tf.concat(splits, 0)), order)

    def _spans_of_texts(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        words = split_words(texts, self._table)
        ids, offsets = self._pieces(words.strings, words.lengths)
        first, last = _characters_of_pieces(words, offsets)  # [pieces]
        values = (ids.values, tf.gather(words.starts, first), tf.gather(words.ends, last))
        return tuple(_of_texts(ids.with_values(v), words.text_splits) for v in values)

    def _pieces(self, words: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Ids of the pieces of words [W], and the bytes of its word before each: [W, (pieces)]."""
        too_long = lengths > MAX_CHARACTERS_PER_WORD
        words = tf.where(too_long, UNKNOWN, words)  # which is a single piece
        ids, offsets, _ = self._wordpiece.tokenize_with_offsets(words)
        return ids, offsets


def _graph(function: Callable) -> Callable:
    """`function` of texts [N] as a graph on the CPU, where strings are.

    Else, on a machine with a GPU, its many small integer operations would go there and back.
    """

    def on_cpu(texts):
        with tf.device("CPU:0"):
            return function(texts)

    texts = tf.TensorSpec([None], tf.string)
    return tf.function(on_cpu, input_signature=[texts], autograph=False)


def _characters_of_pieces(words: Words, offsets: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last of the K characters of each piece; the pieces of a word cover all of it."""
    sizes = 1 + sum(tf.cast(words.characters >= 1 << bits, tf.int64) for bits in (7, 11, 16))
    byte = tf.cumsum(sizes, exclusive=True)  # [K]: in UTF-8, from the first word on
    word_byte = tf.gather(byte, tf.cumsum(words.lengths, exclusive=True))  # [W]
    piece_byte = tf.gather(word_byte, offsets.value_rowids()) + tf.cast(offsets.values, tf.int64)
    first = tf.searchsorted(byte, piece_byte)
    return first, tf.concat([first, [tf.size(byte)]], 0)[1:] - 1


def _of_texts(pieces: tf.RaggedTensor, text_splits: tf.Tensor) -> tf.RaggedTensor:
    """[W, (pieces)] to [N, (pieces)], by the number of words before each text [N + 1]."""
    splits = tf.gather(pieces.row_splits, text_splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, splits, validate=False)


def read_vocabulary(vocab_file: str) -> list[str]:
    """The lines of a vocabulary, stripped; the number of a line is the id of its piece.

    Raises:
      InputError: the file cannot be read, is not UTF-8 or has no piece in it.
    """
    expected = "a text file in UTF-8, one word piece a line"
    remedy = "check the path given as --vocab_file"
    text = read_text(vocab_file, expected=expected, remedy=remedy)
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if not any(lines):
        raise InputError(
            received=f"{vocab_file}, which is empty",
            expected=expected,
            remedy="give another --vocab_file",
        )
    return lines


def _build_wordpiece(
    vocab_file: str, lines: list[str], vocab: dict[str, int]
) -> tf_text.FastWordpieceTokenizer:
    """The WordPiece search over the pieces that a word can have.

    It takes no piece twice, and no NUL. What cannot occur in a word makes room for a piece that
    cannot either: lines are stripped, so none begins with a space.
    """
    pieces = list(lines)
    for number, piece in enumerate(lines):
        characters = piece.removeprefix("##")
        never = len(characters) > MAX_CHARACTERS_PER_WORD or "\0" in piece or not characters
        if never or vocab[piece] != number:
            pieces[number] = f" {number}"
        elif len(characters.encode()) > MAX_BYTES_PER_PIECE:
            raise InputError(
                received=f"{vocab_file}, line {number + 1}: a piece of {len(piece.encode())} bytes",
                expected=f"pieces of at most {MAX_BYTES_PER_PIECE} bytes",
                remedy="make the vocabulary again with shorter pieces",
            )
    return tf_text.FastWordpieceTokenizer(
        pieces,
        token_out_type=tf.int32,
        unknown_token=UNKNOWN,
        no_pretokenization=True,
        max_bytes_per_word=MAX_BYTES_PER_CHARACTER * MAX_CHARACTERS_PER_WORD,
    )


def utf8(text: str | bytes) -> bytes:
    """A text as TensorFlow takes it, with as many code points."""
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return LONE_SURROGATE.sub(SURROGATE_STAND_IN, text).encode("utf-8")


def _as_tensor(texts) -> tf.Tensor:
    """Texts [N] as a string tensor."""
    if not tf.is_tensor(texts):
        texts = [utf8(text) if isinstance(text, str) else text for text in texts]
    return tf.convert_to_tensor(texts, tf.string)


def _batches(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cuts a list of texts where it would take too much memory at once."""
    batch, size = [], 0
    for text in texts:
        if batch and size + len(text) > MAX_BYTES_PER_BATCH:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def truncate_pair(a: list[int], b: list[int], most: int) -> tuple[list[int], list[int]]:
    """Cuts from the end of the longer, of the second if equal (original: `_truncate_seq_pair`)."""
    excess = max(0, len(a) + len(b) - most)
    from_longer = min(excess, abs(len(a) - len(b)))
    rest = excess - from_longer
    cut_a, cut_b = rest // 2, rest - rest // 2
    if len(a) > len(b):
        cut_a += from_longer
    else:
        cut_b += from_longer
    return a[: len(a) - cut_a], b[: len(b) - cut_b]
