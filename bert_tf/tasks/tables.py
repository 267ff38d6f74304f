"""Files -> rows: TSV, CSV, JSON lines and CoNLL, each row with the place where it stands.

A row is what other modules see of a file: its place for messages, and the cells that were asked
for, in that order. Windows line ends, a byte order mark and empty lines at the end are taken as
they come; whatever else is wrong is said with file and line.
"""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

FORMATS = ("tsv", "csv", "jsonl")
BYTE_ORDER_MARK = "\ufeff"
LONGEST_NAME = 40  # of a column
DOCUMENT_MARK = "-DOCSTART-"  # between the documents of CoNLL-2003, no sentence
TEXT_NAMES = frozenset(
    [
        "hypothesis",
        "premise",
        "question",
        "question1",
        "question2",
        "sentence",
        "sentence1",
        "sentence2",
        "text",
        "text1",
        "text2",
        "text_a",
        "text_b",
    ]
)
# A cell of the first line that is one of these is the header of a column, not data.
HEADER_WORDS = TEXT_NAMES | frozenset(
    [
        "category",
        "class",
        "comment",
        "content",
        "gold_label",
        "id",
        "idx",
        "index",
        "label",
        "labels",
        "quality",
        "rating",
        "review",
        "score",
        "sentiment",
        "target",
        "title",
        "tweet",
    ]
)

Column = str | int  # the name in the header, or the position from 0 in a file without one


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Some cells of a row, and where they stand ("train.tsv, line 7").

    Of a sentence in words, which has a line for each word, `word_places` says where each stands.
    """

    place: str
    cells: list[Any]
    word_places: tuple[str, ...] = ()


def read_task_text(path: str) -> str:
    """The text of a task's file in UTF-8, without a byte order mark; raises `InputError`."""
    text = files.read_text(
        path, expected="a file of the task, in UTF-8", remedy="check --data_dir and its files"
    )
    return text.removeprefix(BYTE_ORDER_MARK)


def read_rows(
    path: str,
    file_format: str,
    columns: Sequence[Column],
    *,
    optional: Iterable[Column] = (),
    skip_broken: bool = False,
    positions: Mapping[Column, int] | None = None,
) -> Iterator[Row]:
    """The rows of a table, one at a time, with the cells of `columns` only.

    Args:
      path: of the file.
      file_format: tsv, where quotes are text as any other (original: `_read_tsv`); csv, where they
        enclose cells; or jsonl, an object a line.
      columns: names, if the file has a header or is jsonl; or positions, if it has none.
      optional: those of `columns` that the file may lack; their cells are None then.
      skip_broken: leave out, with a warning, the rows that have too few or too many columns.
      positions: where the original reads a column, whatever the header says; for headers that do
        not have the names. Below 0 they are counted from the end.

    Raises:
      InputError: a column is not there, a row is broken, or the header comes again.
    """
    text = read_task_text(path)
    lines = _json_lines(path, text) if file_format == "jsonl" else _lines(path, text, file_format)
    if file_format == "jsonl":
        yield from _pick_keys(lines, columns, set(optional))
        return
    if any(isinstance(column, str) for column in columns):
        header = next(lines, Row(f"{path}, line 1", [""]))
        found = _find_columns(header, columns, set(optional), positions or {})
        width = len(header.cells)
    else:
        found, header, width = list(columns), None, None
    least = width or 1 + max(column for column in columns if column not in set(optional))
    broken = []
    for row in lines:
        if header is not None and row.cells == header.cells:
            raise InputError(
                received=f"{row.place}: the header again",
                expected="one header, in the first line",
                remedy="delete the line; files that were joined have such",
            )
        problem = _check_width(row, least, width)
        if problem is None:
            have = len(row.cells)
            cells = [row.cells[p] if p is not None and p < have else None for p in found]
            yield Row(row.place, cells)
        elif skip_broken:
            broken.append(row.place)
        else:
            raise problem
    if broken:
        logging.warning("%d broken rows are left out, the first: %s", len(broken), broken[0])


def _lines(path: str, text: str, file_format: str) -> Iterator[Row]:
    """The lines as lists of cells."""
    if file_format == "csv":
        yield from _csv_lines(path, text)
        return
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        yield Row(f"{path}, line {number}", line.removesuffix("\r").split("\t"))


def _csv_lines(path: str, text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text.rstrip("\r\n"), newline=""), strict=True)
    while True:
        place = f"{path}, line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                received=f"{place}: no row of a CSV file ({error})",
                expected="cells with commas between; with quotes around a cell that has a comma, a "
                'quote or a line end in it, and "" for a quote',
                remedy="correct the row, or use tsv or jsonl, where quotes mean nothing",
            ) from None
        yield Row(place, cells or [""])


def _json_lines(path: str, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        place = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            value = error
        if not isinstance(value, dict):
            raise InputError(
                received=f"{place}: {_preview(line)} ({type(value).__name__})",
                expected='a JSON object, such as {"text_a": "...", "label": "..."}',
                remedy="correct the line",
            )
        yield Row(place, [value])


def _pick_keys(lines: Iterator[Row], columns: Sequence[Column], optional: set) -> Iterator[Row]:
    """JSON objects -> the values of `columns`."""
    for row in lines:
        (values,) = row.cells
        missing = [c for c in columns if c not in values and c not in optional]
        if missing:
            raise InputError(
                received=f"{row.place}: an object with {', '.join(values) or 'nothing in it'}",
                expected=f"the key {missing[0]}",
                remedy="correct the line, or name another column",
            )
        yield Row(row.place, [values.get(c) for c in columns])


def _find_columns(
    header: Row, columns: Sequence[Column], optional: set, positions: Mapping[Column, int]
) -> list[int | None]:
    """The position of each column; None for an optional one that is not there."""
    names = [name.strip() for name in header.cells]
    shown = _preview(" | ".join(header.cells))
    missing = [column for column in columns if column not in names and column not in optional]
    if missing and _has_positions(names, columns, optional, positions):
        logging.warning(
            "%s: the columns %s, without %s. Its columns are read by their position, as the "
            "original does.",
            *(header.place, shown, " and ".join(map(repr, missing))),
        )
        return [
            positions[column] % len(names)
            if column in positions
            else (names.index(column) if column in names else None)
            for column in columns
        ]
    for column in columns:
        count = names.count(column)
        if count > 1 or column in missing:
            raise InputError(
                received=f"{header.place}: the columns {shown}",
                expected=f"a header with one column {column!r} (there is "
                f"{'two columns of that name' if count else 'no such column'})",
                remedy="check that it is the right file, that it begins with its header, and what "
                "separates its columns; those of your own files are named with --text_a_column, "
                "--label_column and so on",
            )
    return [names.index(column) if column in names else None for column in columns]


def _has_positions(
    names: Sequence[str], columns: Sequence[Column], optional: set, positions: Mapping[Column, int]
) -> bool:
    """Whether all that must be there can be read by position, below a line that is a header.

    Data have numbers, as ids or labels, or long texts. In a file of this task, or of another one
    that is known, texts have names that are read.
    """
    needed = [column for column in columns if column not in optional]
    if not all(column in positions for column in needed):
        return False
    are_names = not any(name.isdigit() or len(name) > LONGEST_NAME for name in names)
    if not are_names or len(names) <= max(abs(positions[column]) for column in needed):
        return False
    read = {positions[column] % len(names) for column in needed}
    elsewhere = [c for c in needed if c in names and names.index(c) != positions[c] % len(names)]
    return not elsewhere and all(
        names.index(name) in read for name in names if name.lower() in TEXT_NAMES
    )


def _check_width(row: Row, least: int, width: int | None) -> InputError | None:
    """What is wrong with the number of columns of a row; `width` is that of the header."""
    count = len(row.cells)
    if count >= least and (width is None or not any(row.cells[width:])):
        return None
    what = "an empty line" if row.cells == [""] else f"{count} columns"
    size = f"at least {least} columns" if width is None else f"{width} columns, as in the header"
    return InputError(
        received=f"{row.place}: {what}: {_preview(' | '.join(row.cells))}",
        expected=size,
        remedy="correct or delete the line; a line end or a tab inside a text makes such rows",
    )


def refuse_header(row: Row) -> None:
    """Raises InputError if a cell of the first row of a file without header is a header's."""
    if any(isinstance(cell, str) and cell.strip().lower() in HEADER_WORDS for cell in row.cells):
        raise InputError(
            received=f"{row.place}: {_preview(' | '.join(map(str, row.cells)))}, a header",
            expected="data in the first line: this file has no header",
            remedy="delete the line; if it is data after all, name the labels with --labels, or "
            "move it down",
        )


def read_conll(path: str) -> Iterator[Row]:
    """The sentences of a file in CoNLL's format: a word a line, an empty line between sentences.

    The first column is the word, the last one its tag; in a file with one column there are none.

    Yields:
      Rows with two cells: the words, and the tags or None. The place is that of the first word.
    """
    words: list[list[str]] = []
    places: list[str] = []
    width = None
    lines = read_task_text(path).rstrip("\r\n").split("\n")
    for number, line in enumerate([*lines, ""], 1):
        columns = re.split(r"[ \t]+", line.strip(" \t\r"))
        if columns[0] and columns[0] != DOCUMENT_MARK:
            width = width or len(columns)
            if len(columns) != width:
                raise InputError(
                    received=f"{path}, line {number}: {len(columns)} columns: {_preview(line)}",
                    expected=f"{width} columns, as in the lines before",
                    remedy="correct the line",
                )
            words.append(columns)
            places.append(f"{path}, line {number}")
        elif words:
            tags = [columns[-1] for columns in words] if width > 1 else None
            yield Row(places[0], [[columns[0] for columns in words], tags], tuple(places))
            words, places = [], []


def _preview(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
