"""Files -> rows: TSV, CSV, JSON lines and CoNLL, each row with its place ("train.tsv, line 7").

A row has the cells of the columns that were asked for, by what is in them:

    columns = {"text_a": "sentence", "label": "gold_label"}

    index  sentence    gold_label
    0      It rains.   neutral        ->  Row("train.tsv, line 2",
                                              {"text_a": "It rains.", "label": "neutral"})

Windows line ends, a byte order mark and empty lines at the end are accepted; everything else that
is wrong is an `InputError` with file and line.
"""

import csv
import dataclasses
import io
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

FORMATS = ("tsv", "csv", "jsonl")
BYTE_ORDER_MARK = "\ufeff"
LONGEST_NAME = 40  # of a column
DOCUMENT_MARK = "-DOCSTART-"  # between the documents of CoNLL-2003, no sentence
TEXT_NAME = r"hypothesis|premise|question[12]?|sentence[12]?|text(?:[12]|_[ab])?"
# A cell of the first line that is one of these is the header of a column, not data.
HEADER_WORD = (
    rf"{TEXT_NAME}|category|class|comment|content|gold_label|id|idx|index|labels?|quality|rating|"
    "review|score|sentiment|target|title|tweet"
)

Column = str | int  # the name in the header, or the position from 0 in a file without one
Columns = Mapping[str, Column]  # by what is in them: text_a, label, id, ...
Line = tuple[str, list[str]]  # its place, and all its cells


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Some cells of a row by what is in them, and where the row is ("train.tsv, line 7").

    A sentence in words has a line for each word: `word_places` are the places of these lines.
    """

    place: str
    cells: Mapping[str, Any]
    word_places: tuple[str, ...] = ()


def read_rows(
    path: str,
    file_format: str,
    columns: Columns,
    *,
    optional: Collection[str] = (),
    skip_broken: bool = False,
    positions: Mapping[str, int] | None = None,
) -> Iterator[Row]:
    """Yields the rows of a table with the cells of `columns`.

    Args:
      path: of the file.
      file_format: tsv, where quotes are text (original: `_read_tsv`); csv, where they enclose
        cells; or jsonl, an object a line.
      columns: names, if the file has a header or is jsonl; or positions, if it has no header.
      optional: keys of `columns` that the file may lack; their cells are then None.
      skip_broken: leave out rows with too few or too many columns, with a warning.
      positions: where the original reads a column, whatever its name; used where the header has
        other names. Negative positions count from the end.

    Raises:
      InputError: a column is missing, a row is broken, or the header is repeated.
    """
    if file_format == "jsonl":
        yield from _json_rows(path, columns, optional)
        return
    lines = _csv_lines(path) if file_format == "csv" else _tsv_lines(path)
    header, places = None, columns
    if any(isinstance(column, str) for column in columns.values()):
        place, header = next(lines, (f"{path}, line 1", [""]))
        places = _find_columns(place, header, columns, optional, positions or {})
        least = len(header)
    else:
        least = 1 + max(column for part, column in columns.items() if part not in optional)
    broken = []
    for place, cells in lines:
        if cells == header:
            raise InputError(
                f"{place}: the header again",
                "one header, in the first line",
                "delete the line; files that were joined have such",
            )
        if len(cells) >= least and not (header and any(cells[least:])):
            yield Row(place, {part: _cell(cells, at) for part, at in places.items()})
        elif skip_broken:
            broken.append(place)
        else:
            what = "an empty line" if cells == [""] else f"{len(cells)} columns"
            raise InputError(
                f"{place}: {what}: {_preview(cells)}",
                f"{least} columns, as in the header" if header else f"at least {least} columns",
                "correct or delete the line; a line end or a tab inside a text makes such rows",
            )
    if broken:
        logging.warning("%d broken rows are left out, the first: %s", len(broken), broken[0])


def _cell(cells: list[str], position: int | None) -> str | None:
    return cells[position] if position is not None and position < len(cells) else None


# ---------------------------------------------------------------------------- lines


def _lines(path: str, *, keepends: bool = False) -> Iterator[tuple[str, str]]:
    """Place and text of each line of a file in UTF-8, without a byte order mark; at least one.

    Only the line feed ends one: U+2028 and others are text. Empty lines at the end are left out.
    """
    empty, is_all_empty = [], True  # lines kept until one follows that is not empty
    for number, line in enumerate(files.read_text_lines(path), 1):
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        text = line.removesuffix("\n").removesuffix("\r")
        empty.append((f"{path}, line {number}", line if keepends else text))
        if line.strip("\r\n"):
            yield from empty
            empty, is_all_empty = [], False
    if is_all_empty:
        yield f"{path}, line 1", ""


def _tsv_lines(path: str) -> Iterator[Line]:
    # Not with the csv module: there a carriage return inside a cell ends the row, and a cell of
    # more than 131,072 characters is an error.
    return ((place, line.split("\t")) for place, line in _lines(path))


def _csv_lines(path: str) -> Iterator[Line]:
    text = "".join(line for _, line in _lines(path, keepends=True)).rstrip("\r\n")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        place = f"{path}, line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{place}: no row of a CSV file ({error})",
                "cells with commas between; with quotes around a cell that has a comma, a quote "
                'or a line end in it, and "" for a quote',
                "correct the row, or use tsv or jsonl, where quotes mean nothing",
            ) from None
        yield place, cells or [""]


def _json_rows(path: str, columns: Columns, optional: Collection[str]) -> Iterator[Row]:
    for place, line in _lines(path):
        try:
            values = json.loads(line, object_pairs_hook=files.each_key_once)
        except (ValueError, RecursionError) as error:
            values = error
        if not isinstance(values, dict):
            says = f": {values!s:.80}" if isinstance(values, Exception) else ""
            raise InputError(
                f"{place}: {_preview([line])} ({type(values).__name__}{says})",
                'a JSON object with each key once, such as {"text_a": "...", "label": "..."}',
                "correct the line",
            )
        yield pick(place, values, columns, optional, kind="key")


def pick(
    place: str, values: Mapping, columns: Columns, optional: Collection[str], *, kind: str
) -> Row:
    """The row of a JSON object or of an example of a dataset; `kind` of its keys, for messages.

    Raises:
      InputError: a column is missing.
    """
    for part, column in columns.items():
        if column not in values and part not in optional:
            raise InputError(
                f"{place}: only the {kind}s {', '.join(map(str, values)) or '(none)'}",
                f"a {kind} {column!r}",
                "correct the data, or name another column with the flags",
            )
    return Row(place, {part: values.get(column) for part, column in columns.items()})


# ---------------------------------------------------------------------------- headers


def _find_columns(
    place: str,
    header: list[str],
    columns: Columns,
    optional: Collection[str],
    positions: Mapping[str, int],
) -> dict[str, int | None]:
    """The position of each column; None for an optional one that is missing."""
    names = [name.strip() for name in header]
    found = {part: names.index(c) if c in names else None for part, c in columns.items()}
    needed = {part: column for part, column in columns.items() if part not in optional}
    missing = [column for part, column in needed.items() if found[part] is None]
    if missing and _has_positions(names, needed, positions):
        logging.warning(
            "%s: the columns %s, without %s. Its columns are read by their position, as the "
            "original does.",
            *(place, _preview(header), " and ".join(map(repr, missing))),
        )
        return found | {part: positions[part] % len(names) for part in columns.keys() & positions}
    for column in columns.values():
        count = names.count(column)
        if count > 1 or column in missing:
            raise InputError(
                f"{place}: the columns {_preview(header)}",
                f"a header with one column {column!r} (there is "
                f"{'two columns of that name' if count else 'no such column'})",
                "check that it is the right file, that it begins with its header, and what "
                "separates its columns; --text_a_column, --label_column and so on name those of "
                "your own files",
            )
    return found


def _has_positions(names: list[str], needed: Columns, positions: Mapping[str, int]) -> bool:
    """Whether all columns can be read by position, below a line that is a header.

    Data have numbers, as ids or labels, or long texts. In a file of this task, or of another known
    one, the columns of texts have names, and these columns are read.
    """
    size = len(names)
    if not needed.keys() <= positions.keys() or size <= max(
        abs(positions[part]) for part in needed
    ):
        return False
    places = {column: positions[part] % size for part, column in needed.items()}
    return all(
        places.get(name, at) == at
        and not (name.isdigit() or len(name) > LONGEST_NAME)
        and (at in places.values() or not re.fullmatch(TEXT_NAME, name.lower()))
        for at, name in enumerate(names)
    )


def refuse_header(row: Row) -> None:
    """Raises InputError if the first row of a file without header has the name of a column."""
    cells = list(map(str, row.cells.values()))
    if any(re.fullmatch(HEADER_WORD, cell.strip().lower()) for cell in cells):
        raise InputError(
            f"{row.place}: {_preview(cells)}, a header",
            "data in the first line: this file has no header",
            "delete the line; if it is data after all, name the labels with --labels, or move it "
            "down",
        )


# ---------------------------------------------------------------------------- words with tags


def read_conll(path: str) -> Iterator[Row]:
    """The sentences of a file in CoNLL's format: a word a line, an empty line between sentences.

    The first column is the word, the last one its tag; in a file with one column there are none.

    Yields:
      Rows of words, label, the tags or None, and document: how many lines with -DOCSTART- were
      before, 0 for none. The place is that of the first word.

    Raises:
      InputError: a line has another number of columns than the lines before.
    """
    words: list[list[str]] = []
    places: list[str] = []
    width = document = 0
    for place, line in itertools.chain(_lines(path), [("", "")]):
        columns = re.split(r"[ \t]+", line.strip(" \t\r"))
        if columns[0] and columns[0] != DOCUMENT_MARK:
            width = width or len(columns)
            if len(columns) != width:
                raise InputError(
                    f"{place}: {len(columns)} columns: {_preview([line])}",
                    f"{width} columns, as in the lines before",
                    "correct the line",
                )
            words.append(columns)
            places.append(place)
        elif words:
            tags = [columns[-1] for columns in words] if width > 1 else None
            cells = {"words": [columns[0] for columns in words], "label": tags}
            yield Row(places[0], cells | {"document": document}, tuple(places))
            words, places = [], []
        document += columns[0] == DOCUMENT_MARK


def _preview(cells: list[str]) -> str:
    text = " | ".join(cells)
    return repr(text if len(text) <= 80 else text[:77] + "...")
