"""Pieces -> the text of the context that they stand for, in two ways.

Pieces are in lower case, without accents and without the spaces that were between them; the answer
should read as its context does.

    context                 "It was Steve Smith's  café."
    predicted pieces               steve smith
    by offsets                    "Steve Smith"     the characters that the pieces come from
    legacy                        "Steve Smith"     the original's: found again by its letters

The offsets are always right. The original's way falls back to whole words where it cannot find the
letters again: with a piece [UNK] or one that is never split, with characters that the tokenizer
drops or changes into several, and where an answer has a letter whose accent is a character of its
own.
"""

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.squad.windows import CONTEXTS_AT_ONCE, Document, Window
from bert_tf.tokenization.basic import UnicodeTable, load_unicode_table, split_words
from bert_tf.tokenization.wordpiece import LONE_SURROGATE, SURROGATE_STAND_IN, FullTokenizer

# (window, first index in it, last index in it) -> the text
Alignment = Callable[[Window, int, int], str]


def make_alignment(
    windows: Iterable[Window],
    tokenizer: FullTokenizer,
    *,
    legacy_alignment: bool,
    verbose_logging: bool = False,
) -> Alignment:
    """The function that turns pieces of these windows into text.

    Args:
      windows: of all questions.
      tokenizer: that made them.
      legacy_alignment: as the original does; else by offsets.
      verbose_logging: log where the original's way falls back to whole words.
    """
    if not legacy_alignment:
        return text_by_offsets
    documents = list(dict.fromkeys(window.document for window in windows))
    normalized = normalized_words(documents, do_lower_case=tokenizer.do_lower_case)
    words_of = dict(zip(documents, normalized, strict=True))

    def legacy_text(window: Window, start_index: int, end_index: int) -> str:
        document, shift = window.document, window.span.start - window.doc_offset
        first, last = document.word_of_piece[[start_index + shift, end_index + shift]]
        ids = window.input_ids[start_index : end_index + 1].tolist()
        pred_text = join_pieces(tokenizer.convert_ids_to_tokens(ids))
        tok_text = " ".join(filter(None, words_of[document][first : last + 1]))
        orig_text = " ".join(document.words.words[first : last + 1])
        found = find_final_text(pred_text, orig_text, tok_text)
        if found is None and verbose_logging:
            logging.info("Unable to find text: %r in %r; whole words used", pred_text, orig_text)
        return orig_text if found is None else found

    return legacy_text


def context_characters(window: Window, start_index: int, end_index: int) -> tuple[int, int]:
    """The characters of the context of some pieces of a window: first, and behind the last."""
    shift = window.span.start - window.doc_offset
    document = window.document
    return int(document.starts[start_index + shift]), int(document.ends[end_index + shift])


def text_by_offsets(window: Window, start_index: int, end_index: int) -> str:
    """The context from the first character of the first piece to the last one of the last."""
    start, end = context_characters(window, start_index, end_index)
    return window.document.context[start:end]


# ---------------------------------------------------------------------------- as the original does


def join_pieces(pieces: Sequence[str]) -> str:
    """Pieces as text, with spaces between words.

    >>> join_pieces(["steve", "smith", "'", "s", "tea", "##pot"])
    "steve smith ' s teapot"
    """
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def find_final_text(pred_text: str, orig_text: str, tok_text: str) -> str | None:
    """Finds a prediction in the words it was made from, by counting letters.

    All but spaces counts as a letter; the words and their normal form have equally many:

        orig_text   "Steve Smith's"         the words of the predicted pieces
        tok_text    "steve smith ' s"       the same in normal form
        pred_text   "steve smith"           is in tok_text, from its letter 0 to its letter 9
        result      "Steve Smith"           orig_text from letter 0 to letter 9

    None where the letters cannot be matched; then all the words are taken:

        orig_text        tok_text      pred_text
        "Straße 5"       "straße 5"    "[UNK] 5"      not in tok_text
        "a\\u200bb c"     "ab c"        "c"            4 letters against 3

    (The original's `get_final_text` makes tok_text itself, by its BasicTokenizer.)

    >>> find_final_text("steve smith", "Steve Smith's", "steve smith ' s")
    'Steve Smith'
    >>> find_final_text("[UNK] 5", "Straße 5", "straße 5")
    >>> find_final_text("c", "a\\u200bb c", "ab c")
    """
    place = tok_text.find(pred_text)
    letters = [i for i, character in enumerate(orig_text) if character != " "]
    if place < 0 or not pred_text or len(letters) != _num_letters(tok_text):
        return None
    first = _num_letters(tok_text[:place])
    last = first + _num_letters(pred_text) - 1
    return orig_text[letters[first] : letters[last] + 1]


def _num_letters(text: str) -> int:
    return len(text) - text.count(" ")


def normalized_words(documents: Sequence[Document], *, do_lower_case: bool) -> list[list[str]]:
    """Each word of each context in the tokenizer's normal form: "Smith's" is "smith ' s".

    A word of which nothing remains, such as a zero-width space, is the empty string.
    """
    table = UnicodeTable(*map(tf.constant, load_unicode_table(do_lower_case=do_lower_case)))
    result = []
    for first in range(0, len(documents), CONTEXTS_AT_ONCE):
        batch = documents[first : first + CONTEXTS_AT_ONCE]
        texts = [LONE_SURROGATE.sub(SURROGATE_STAND_IN, one.context).encode() for one in batch]
        with tf.device("CPU:0"):  # strings cannot be elsewhere
            parts = split_words(tf.constant(texts), table)
            starts = tf.gather(parts.starts, tf.cumsum(parts.lengths, exclusive=True)).numpy()
        splits = parts.text_splits.numpy().tolist()
        strings = [string.decode() for string in parts.strings.numpy().tolist()]
        for document, begin, end in zip(batch, splits[:-1], splits[1:], strict=True):
            words = [[] for _ in document.words.words]
            numbers = document.words.word_of_character(starts[begin:end]).tolist()
            for number, string in zip(numbers, strings[begin:end], strict=True):
                words[number].append(string)
            result.append([" ".join(word) for word in words])
    return result
