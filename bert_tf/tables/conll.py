"""Sentences in CoNLL's format: a word a line, an empty line between sentences.

The first column is the word, the last one its tag; in a file with one column there are none. If the
first column counts the words of every sentence, as in CoNLL-U, it is left out, and so are comments
and the lines of CoNLL-U that are no words.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import InputError, quoted

DOCUMENT_MARK = "-DOCSTART-"  # between the documents of CoNLL-2003, no sentence
ENDS = ("", DOCUMENT_MARK)  # of a sentence
NO_WORD = re.compile(r"#|[0-9]+[-.][0-9]+$")  # in the column of numbers of CoNLL-U


class Choice(NamedTuple):
    """Which column is the word, and what gives the tag of a line's columns; None: there is none."""

    words: int
    tag: Callable[[Sequence[str]], str] | None


def last_column(rows: Sequence[Sequence[str]], are_counted: bool) -> Choice:
    """The last column has the tags, as in CoNLL-2003; a single one has none."""
    first = 1 if are_counted else 0
    has_tags = len(rows[0]) - first > 1
    return Choice(first, (lambda columns: columns[-1]) if has_tags else None)


def read_sentences(
    path: str,
    lines: Iterable[tuple[str, str]],
    choose: Callable[[Sequence[Sequence[str]], bool], Choice] = last_column,
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The sentences in the lines of a file, each line with its place.

    Args:
      path: of the file, for messages.
      lines: with their places.
      choose: tells the columns, from those of all words and whether the first one counts.

    Yields:
      words, label, the tags or None, and document: how many lines with -DOCSTART- were before, 0
      for none; and the place of each word.

    Raises:
      InputError: a line has another number of columns than the lines before.
    """
    table = [(place, re.split(r"[ \t]+", line.strip(" \t\r"))) for place, line in lines]
    if are_counted := _first_column_counts([columns for _, columns in table]):
        logging.warning("%s: the first column counts; the words are in the second one", path)
    of_words = [
        columns
        for _, columns in table
        if columns[0] not in ENDS and not (are_counted and NO_WORD.match(columns[0]))
    ]
    even = [columns for columns in of_words if len(columns) == len(of_words[0])]
    choice = choose(even, are_counted) if of_words else Choice(0, None)
    words: list[list[str]] = []  # columns of each line
    places: list[str] = []
    width = document = 0
    for place, columns in [*table, ("", [""])]:
        if are_counted and NO_WORD.match(columns[0]):
            continue
        if columns[0] not in ENDS:
            width = width or len(columns)
            if len(columns) != width:
                received = f"{place}: {len(columns)} columns: {quoted(' '.join(columns))}"
                remedy = "correct or delete the line"
                raise InputError(received, f"{width} columns, as in the lines before", remedy)
            words.append(columns)
            places.append(place)
        elif words:
            tags = [choice.tag(columns) for columns in words] if choice.tag else None
            cells = {"words": [columns[choice.words] for columns in words], "label": tags}
            yield cells | {"document": document}, tuple(places)
            words, places = [], []
        document += columns[0] == DOCUMENT_MARK


def _first_column_counts(lines: Iterable[Sequence[str]]) -> bool:
    """Whether the first of several columns counts up from line to line of every sentence."""
    lines = [line for line in lines if not NO_WORD.match(line[0])]
    words = [line for line in lines if line[0] not in ENDS]
    if not all(len(line) > 1 and re.fullmatch("[0-9]{1,9}", line[0]) for line in words):
        return False
    pairs = [(a, b) for (a, *_), (b, *_) in itertools.pairwise(lines) if not {a, b} & {*ENDS}]
    return {int(b) - int(a) for a, b in pairs} == {1}
