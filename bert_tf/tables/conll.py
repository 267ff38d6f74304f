"""Sentences in CoNLL's format: a word a line, an empty line between sentences.

The first column is the word, the last one its tag; a file with one column has no tags. If the first
column counts the words of every sentence, as in CoNLL-U, it is ignored, as are comments and the
lines of CoNLL-U that are no words.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import InputError, quoted

DOCUMENT_MARK = "-DOCSTART-"  # a line between the documents of CoNLL-2003
ENDS = ("", DOCUMENT_MARK)  # the first columns of lines that end a sentence
NO_WORD = re.compile(r"#|[0-9]+[-.][0-9]+$")  # the first columns of lines to ignore in CoNLL-U


class Choice(NamedTuple):
    """Where words and tags are.

    Attributes:
      words: the number of the column of words.
      tag: returns the tag in the columns of a line; None: there are no tags.
    """

    words: int
    tag: Callable[[Sequence[str]], str] | None


def last_column(rows: Sequence[Sequence[str]], are_counted: bool) -> Choice:
    """Takes the last column for the tags, as in CoNLL-2003, unless it is the column of words."""
    words = 1 if are_counted else 0
    has_tags = len(rows[0]) - words > 1
    return Choice(words, (lambda columns: columns[-1]) if has_tags else None)


def read_sentences(
    path: str,
    lines: Iterable[tuple[str, str]],
    choose: Callable[[Sequence[Sequence[str]], bool], Choice] = last_column,
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The sentences in the lines of a file.

    Args:
      path: the path of the file, for messages.
      lines: the place and the text of each line.
      choose: chooses the columns, by the columns of all words and by whether the first one counts.

    Yields:
      The cells of a sentence: words; label, the tags or None; document, the number of lines with
      -DOCSTART- before it. And the place of each word.

    Raises:
      InputError: a line has another number of columns than the lines before.
    """
    table = [(place, re.split(r"[ \t]+", line.strip(" \t\r"))) for place, line in lines]
    are_counted = _first_column_counts([columns for _, columns in table])
    if are_counted:
        logging.warning("%s: the first column counts; the words are in the second one", path)
        table = [(place, columns) for place, columns in table if not NO_WORD.match(columns[0])]
    all_words = [columns for _, columns in table if columns[0] not in ENDS]
    choice = Choice(0, None)
    width = 0
    if all_words:
        width = len(all_words[0])
        choice = choose([columns for columns in all_words if len(columns) == width], are_counted)
    words: list[list[str]] = []  # columns of each word of the sentence
    places: list[str] = []
    document = 0
    for place, columns in [*table, ("", [""])]:
        if columns[0] not in ENDS:
            if len(columns) != width:
                raise _wrong_width(place, columns, width)
            words.append(columns)
            places.append(place)
        elif words:
            texts = [row[choice.words] for row in words]
            tags = [choice.tag(row) for row in words] if choice.tag else None
            yield {"words": texts, "label": tags, "document": document}, tuple(places)
            words = []
            places = []
        if columns[0] == DOCUMENT_MARK:
            document += 1


def _wrong_width(place: str, columns: Sequence[str], width: int) -> InputError:
    """The error of a line with another number of columns."""
    received = f"{place}: {len(columns)} columns: {quoted(' '.join(columns))}"
    return InputError(
        received, f"{width} columns, as in the lines before", "correct or delete the line"
    )


def _first_column_counts(lines: Iterable[Sequence[str]]) -> bool:
    """Whether the first of several columns counts up from line to line of every sentence."""
    lines = [line for line in lines if not NO_WORD.match(line[0])]
    words = [line for line in lines if line[0] not in ENDS]
    if not all(len(line) > 1 and re.fullmatch("[0-9]{1,9}", line[0]) for line in words):
        return False
    steps = set()
    for line, next_line in itertools.pairwise(lines):
        if line[0] not in ENDS and next_line[0] not in ENDS:
            steps.add(int(next_line[0]) - int(line[0]))
    return steps == {1}
