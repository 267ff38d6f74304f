"""Paragraphs -> sentences, by the package sentencex.

A line of --input_format=text is a sentence already.
"""

import importlib.metadata
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from bert_tf.errors import InputError
from bert_tf.runtime import import_extra
from data_gen.documents import Block, Counts

# The languages that sentencex 1.0 has rules for. Chinese needs none: it has no abbreviations.
LANGUAGES = (
    "am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it",
    "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk", "zh",
)  # fmt: skip
# Letters of Thai, Lao, Tibetan, Khmer, Tai Le and New Tai Lue: spaces end their sentences, or marks
# that sentencex does not know.
UNMARKED_LETTER = re.compile("[\u0e01-\u0fff\u1780-\u17ff\u1950-\u19df]")


def sentence_splitter(input_format: str, language: str) -> Callable[[str], list[str]]:
    """A function from a line to its sentences.

    Args:
      input_format: a key of `INPUT_FORMATS`. A line of "text" is a sentence; sentencex splits the
        paragraphs of the others.
      language: see `language_code`; chooses the abbreviations and the punctuation.

    Raises:
      InputError: sentencex is needed and not installed, or the language is not a code.
    """
    if input_format == "text":
        return lambda line: [line]
    sentencex = import_extra(
        "sentencex",
        package="sentencex",
        extra="wiki",
        needed_by=f"--input_format={input_format}",
    )
    code = language_code(language)
    return lambda line: join_fragments(sentencex.segment(code, line))


def language_code(language: str) -> str:
    """The code of a language for sentencex, which has rules for `LANGUAGES`.

    >>> [language_code(language) for language in ("en", "DE", "pt-BR", "yue")]
    ['en', 'de', 'pt', 'yue']

    Raises:
      InputError: it is not a code.
    """
    code, *_ = re.split("[-_]", language.lower())
    if not re.fullmatch("[a-z]{2,3}", code):
        expected = (
            "an ISO 639 code of two letters, such as en or de, or of three if it has no other"
        )
        raise InputError(f"--language={language}", expected, "correct it")
    return code


def splitter_warnings(input_format: str, language: str, counts: Counts) -> Iterator[str]:
    """Yields warnings of a language or a script without rules.

    Args:
      input_format: a key of `INPUT_FORMATS`.
      language: as for `sentence_splitter`.
      counts: counts of the whole corpus.
    """
    if input_format == "text":
        return
    if language_code(language) not in LANGUAGES:
        yield (
            f"There are no rules for --language={language}: sentences were split as in English or "
            "a related language, and may end at abbreviations. There are rules for "
            f"{', '.join(LANGUAGES)}."
        )
    if number := counts["unsplit_paragraphs"]:
        yield (
            f"{number} of {counts['lines']} paragraphs in Thai, Lao, Khmer, Tibetan or the like "
            "stayed whole, for their sentences end without a mark that is known: split them "
            "yourself, and use --input_format=text."
        )


def count_unsplit(block: Block, split_sentences: Callable[[str], list[str]]) -> int:
    """How many paragraphs stay whole because sentencex knows no sentence ends of their script."""
    lines = itertools.chain.from_iterable(block)
    return sum(_is_unmarked(line) and len(split_sentences(line)) == 1 for line in lines)


def _is_unmarked(line: str) -> bool:
    """Whether more than half of the characters of a line match `UNMARKED_LETTER`.

    >>> _is_unmarked("วันนี้อากาศดี ผมไปตลาด"), _is_unmarked("Thai: วันนี้"), _is_unmarked("今天。")
    (True, False, False)
    """
    return not line.isascii() and 2 * len(UNMARKED_LETTER.findall(line)) > len(line)


def splitter_version(input_format: str) -> str:
    """The version of sentencex if it is used, else "". Versions may split differently."""
    return "" if input_format == "text" else importlib.metadata.version("sentencex")


def join_fragments(pieces: Iterable[str]) -> list[str]:
    """Joins consecutive pieces of text to sentences.

    A piece joins the one before it if it has no letter or digit, or was cut off within a word:

    >>> join_fragments(["They use .", "NET. ", "It works", ". ", "Fine. ", '"'])
    ['They use .NET.', 'It works.', 'Fine. "']
    >>> join_fragments(["第一句。", "第二句!", "J.", "K.", "罗琳?", "是的"])
    ['第一句。', '第二句!', 'J.K.罗琳?', '是的']
    """
    sentences: list[str] = []
    for piece in pieces:
        is_sentence = any(map(str.isalnum, piece))
        if sentences and (not is_sentence or _is_cut_in_word(sentences[-1], piece)):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _is_cut_in_word(before: str, after: str) -> bool:
    """Whether an ASCII mark between two pieces of text, without a space, does not end a sentence.

    Only beside East Asian text, which needs no space, does it end one: a question mark if such text
    is on either side, an exclamation mark if it is before the mark, a full stop if it is on both
    sides. So "J.K.罗琳", "Yahoo!奇摩", "1.介绍" and "例子.com" stay whole.
    """
    if not before[-1:].isascii() or before[-1:].isspace() or after[:1].isspace():
        return False
    first = next(filter(str.isalnum, after), " ")
    last = next(filter(str.isalnum, reversed(before)), " ")
    marks = before[before.rfind(last) + 1 :]
    is_wide_before = unicodedata.east_asian_width(last) == "W"
    is_wide_after = unicodedata.east_asian_width(first) == "W"
    if "?" in marks:
        return not (is_wide_before or is_wide_after)
    if "!" in marks:
        return not is_wide_before
    return not (is_wide_before and is_wide_after)
