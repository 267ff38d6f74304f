"""Sentences in CoNLL's format: a word a line, an empty line between sentences.

The first column is the word, the last one its tag; in a file with one column there are none. If the
first column counts the words of every sentence, as in CoNLL-U, it is left out, and so are comments
and the lines of CoNLL-U that are no words.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf.errors import InputError

DOCUMENT_MARK = "-DOCSTART-"  # between the documents of CoNLL-2003, no sentence
ENDS = ("", DOCUMENT_MARK)  # of a sentence
NO_WORD = re.compile(r"#|[0-9]+[-.][0-9]+$")  # in the column of numbers of CoNLL-U


def read_sentences(
    path: str, lines: Iterable[tuple[str, str]]
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The sentences in the lines of a file, each line with its place.

    Yields:
      words, label, the tags or None, and document: how many lines with -DOCSTART- were before, 0
      for none; and the place of each word.

    Raises:
      InputError: a line has another number of columns than the lines before.
    """
    table = [(place, re.split(r"[ \t]+", line.strip(" \t\r"))) for place, line in lines]
    if are_counted := _first_column_counts([columns for _, columns in table]):
        logging.warning("%s: the first column counts; the words are in the second one", path)
    words: list[list[str]] = []  # columns of each line
    places: list[str] = []
    width = document = 0
    for place, columns in [*table, ("", [""])]:
        if are_counted and NO_WORD.match(columns[0]):
            continue
        if columns[0] not in ENDS:
            width = width or len(columns)
            if len(columns) != width:
                received = f"{place}: {len(columns)} columns: {' '.join(columns)[:80]!r}"
                remedy = "correct or delete the line"
                raise InputError(received, f"{width} columns, as in the lines before", remedy)
            words.append(columns[1:] if are_counted else columns)
            places.append(place)
        elif words:
            tags = [columns[-1] for columns in words] if len(words[0]) > 1 else None
            cells = {"words": [columns[0] for columns in words], "label": tags}
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
