"""The rows of a file: its format is found, then they are read one by one.

A row that cannot be read has its fault in place of its cells; `refuse_rows` names all of them in
one message, or says that they are left out.
"""

import csv
import dataclasses
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError, shortened
from bert_tf.options import Reading
from bert_tf.tables.columns import Columns, find_columns, is_header, preview
from bert_tf.tables.conll import read_sentences
from bert_tf.tables.formats import (
    CONLL,
    CSV,
    JSON,
    JSONL,
    NO_TEXTS,
    TEXT,
    Format,
    Texts,
    are_enclosing,
    format_of,
    lacks_name_of_rows,
    with_doubled_quotes,
)
from bert_tf.tables.lines import EXCEL, Lines, at_returns, lines_in, without_end
from bert_tf.tables.pandas_files import PARQUET, mark_of, parquet_rows, sheet_rows

CORRECT = "correct or delete the row"
MOST_SHOWN = 20  # rows of a message
MOST_OF_A_ROW = 80  # characters of what is wrong: all rows have room in a message
LEAST_EXPECTED = 40  # characters of what is expected there
DECIMAL_START = "+-.0123456789"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Some cells of a row by field, and where the row is ("train.tsv, line 7").

    A sentence in words has a line for each word: `word_places` are the places of these lines. A row
    that cannot be read has the fault in place of its cells. A table's row has all its cells, as
    many as the table has names.
    """

    place: str
    cells: Mapping[str, Any]
    word_places: tuple[str, ...] = ()
    flaw: InputError | None = None
    all_cells: Sequence[str] = ()
    value: Any = None  # of JSON: what the line holds; of a text the line


@dataclasses.dataclass(frozen=True)
class Table:
    """A file that is read as rows.

    Attributes:
      source: its path, or "standard input".
      format: what its content shows.
      names: of all its columns; their numbers where there is no header, () if it is no table.
      rows: to be read once.
      is_live: whether the rows come while they are answered.
    """

    source: str
    format: Format
    names: Sequence[str]
    rows: Iterator[Row]
    is_live: bool = False


def open_table(
    path: str | None,
    columns: Columns,
    *,
    reading: Reading | None = None,
    form: Format | str = "",
    texts: Texts = NO_TEXTS,
) -> Table:
    """Opens a file of rows, whose format its content shows; the log says which.

    Windows line ends, those of old Macs, a byte order mark, Excel's line `sep=;`, and empty lines
    or rows at the end are accepted.

    Args:
      path: of the file; None: standard input, whose rows are given as they come.
      columns: names, if the file has a header or is JSON; or positions, if it has no header.
      reading: how its bytes are decoded; None where the user has no such options.
      form: the format, or its kind, if it is given.
      texts: what the lines may be besides rows of a table.

    Returns:
      The table; its rows are read as they are taken.

    Raises:
      InputError: a column is missing, or the file is no text; while rows are taken, it is no text
        further down.
    """
    mark = mark_of(path)
    if path and mark:
        return _by_pandas(path, mark, columns)
    return table_of(lines_in(path, reading), columns, form, texts)


def _by_pandas(path: str, mark: bytes, columns: Columns) -> Table:
    """The table of a spreadsheet, or of a Parquet file."""
    rows: Iterator[Row]
    if mark == PARQUET:
        logging.info("%s is read as a Parquet file", path)
        rows = (
            _json_row(place, value, columns, may_lack=False) for place, value in parquet_rows(path)
        )
        return Table(path, Format(JSON), (), rows)
    logging.info("%s is read as a spreadsheet", path)
    names, rows = _named(sheet_rows(path, mark), f"{path}, row 1", columns)
    return Table(path, Format(CSV), names, _without_tail(path, rows))


def table_of(
    lines: Lines, columns: Columns, form: Format | str = "", texts: Texts = NO_TEXTS
) -> Table:
    """As `open_table`, of lines that are opened."""
    found = form if isinstance(form, Format) else format_of(lines, columns, texts, form)
    if not form:
        logging.info("%s is read as %s", lines.name, found.describe())
    names: Sequence[str] = ()
    if found.kind == CONLL:
        rows = _sentences(lines)
    elif found.kind == JSONL:
        rows = _json_lines(lines, columns, are_texts=bool(texts.count))
    elif found.kind == JSON:
        rows = _json_list(lines, columns, are_texts=bool(texts.count))
    elif found.kind == TEXT:
        rows = _texts(lines)
    else:
        numbered = _numbered(lines, found, keep_empty=columns.keep_empty)
        names, rows = _named(numbered, lines.place(1), columns, is_live=lines.is_live)
        rows = _without_tail(lines.name, rows)
    return Table(lines.name, found, names, rows, lines.is_live)


def find_format(
    path: str, columns: Columns, *, reading: Reading | None = None, texts: Texts = NO_TEXTS
) -> Format:
    """The format of a file of rows, by its content.

    Raises:
      InputError: it cannot be read.
    """
    mark = mark_of(path)
    if mark:
        return Format(JSON if mark == PARQUET else CSV)
    return format_of(lines_in(path, reading), columns, texts)


def first_cells(path: str, columns: Columns, *, reading: Reading | None = None) -> list[str]:
    """The cells of a table's first row, with whatever separator; [] of an empty file.

    Raises:
      InputError: it cannot be read.
    """
    mark = mark_of(path)
    if mark:
        rows = parquet_rows(path) if mark == PARQUET else sheet_rows(path, mark)
        return [*next(rows)[1]]
    lines = lines_in(path, reading)
    found = format_of(lines, columns, kind=CSV)
    for _, cells in _numbered(lines, found):
        return [] if isinstance(cells, InputError) else cells
    return []


def refuse_header(
    rows: Iterator[Row], labels: Collection[str] = (), *, hint: str = ""
) -> Iterator[Row]:
    """The rows of a file without header; unless it has one of `labels`, the first must be data.

    The `hint` is the end of the remedy.
    """
    for number, row in enumerate(rows):
        cells = [str(cell) for cell in row.cells.values()]
        may_be_header = number == 0 and row.cells.get("label") not in labels
        if may_be_header and is_header(cells):
            received = f"{row.place}: {preview(cells)}, a header"
            remedy = f"delete the line; if it is data, move it{hint}"
            raise InputError(received, "data in the first line of this file", remedy)
        yield row


# ---------------------------------------------------------------------------- tables


def _named(
    rows: Iterator[tuple[str, list[str] | InputError]],
    beginning: str,
    columns: Columns,
    *,
    is_live: bool = False,
) -> tuple[Sequence[str], Iterator[Row]]:
    """The names of a table's columns, and its rows, from the cells of all rows."""
    place, first = next(rows, (beginning, [""]))
    if isinstance(first, InputError):
        raise first
    if columns.are_names and not columns.positions and not is_live:
        first, rows = _with_name_of_rows(first, rows, beginning)
    header, positions, least, most = _places(place, first, columns)
    if header is None:
        rows = itertools.chain([(place, first)], rows)
    names = [name.strip() for name in header] if header else [str(at) for at in range(len(first))]
    if columns.keep_empty:
        rows = _marked(rows)
    return names, _rows(rows, header, names, positions, (least, most))


def _with_name_of_rows(
    header: list[str], rows: Iterator[tuple[str, list[str] | InputError]], beginning: str
) -> tuple[list[str], Iterator[tuple[str, list[str] | InputError]]]:
    """The header with a name for the first column where it lacks one, as R writes tables."""
    second = next(rows, None)
    if second is None:
        return header, rows
    _, cells = second
    if isinstance(cells, list) and lacks_name_of_rows(header, cells):
        logging.info("%s: the header has no name for the first column, as R writes it", beginning)
        header = ["", *header]
    return header, itertools.chain([second], rows)


EMPTY: list[str] = []  # the cells of a row that parts sentences


def _marked(
    rows: Iterator[tuple[str, list[str] | InputError]],
) -> Iterator[tuple[str, list[str] | InputError]]:
    """The rows, with `EMPTY` for those without text in a cell."""
    for place, cells in rows:
        is_empty = isinstance(cells, list) and not any(cell.strip() for cell in cells)
        yield place, EMPTY if is_empty else cells


def _rows(
    rows: Iterator[tuple[str, list[str] | InputError]],
    header: Sequence[str] | None,
    names: Sequence[str],
    positions: Mapping[str, int | None],
    widths: tuple[int, int],
) -> Iterator[Row]:
    """The rows of a table, with the cells of the fields; those of another width are flawed."""
    least, most = widths
    for place, cells in rows:
        if isinstance(cells, InputError):
            yield Row(place, {}, flaw=cells)
            continue
        if cells is EMPTY:
            yield Row(place, {})
            continue
        is_whole = least <= len(cells) and not any(cells[most:])
        padded = [*cells, *[""] * (len(names) - len(cells))]
        if is_whole and cells != header:
            values = {field: _cell(cells, at) for field, at in positions.items()}
            yield Row(place, values, all_cells=padded[: len(names)])
            continue
        expected = f"{least} columns" if least == most else f"{least} to {most} columns"
        flaw = InputError(
            f"{place}: {len(cells)} columns: {preview(cells)}",
            "the header only in the first line" if is_whole else expected,
            f"{CORRECT}; a line end or a tab inside a text makes such rows",
        )
        yield Row(place, {}, flaw=flaw, all_cells=padded)


def _without_tail(name: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows without those at the end whose cells are all empty, as Excel writes them."""
    empty: list[Row] = []
    for row in rows:
        if len(row.all_cells) > 1 and not any(cell.strip() for cell in row.all_cells):
            empty.append(row)
            continue
        yield from empty
        empty.clear()
        yield row
    if empty:
        says = "%s: %d rows at the end, all of whose cells are empty, are left out"
        logging.info(says, name, len(empty))


def _places(
    place: str, first: list[str], columns: Columns
) -> tuple[list[str] | None, Mapping[str, int | None], int, int]:
    """By the first row of a table: its header, the position of each field, how many columns."""
    wanted = columns.by_field
    published = columns.headless
    if published and _is_number(first[published["label"] :][:1]):
        least = 1 + max(published.values())
        positions = {field: at for field, at in published.items() if field in wanted}
        return None, positions, least, least + 2
    if columns.are_names:
        return first, find_columns(place, first, columns), len(first), len(first)
    places = {field: int(at) for field, at in wanted.items()}
    required = [at for field, at in places.items() if field not in columns.optional]
    least = 1 + max(required, default=-1)
    most = 1 + max(places.values(), default=-1)
    filled = max((1 + at for at, cell in enumerate(first) if cell), default=0)
    if filled > most:  # the first row has columns that are not read
        return None, places, filled, len(first)
    return None, places, least, max(most, len(first))


def _is_number(cells: Sequence[str]) -> bool:
    try:
        return bool(cells) and cells[0][:1] in DECIMAL_START and float(cells[0]) is not None
    except ValueError:
        return False


def _cell(cells: Sequence[str], position: int | None) -> str | None:
    return cells[position] if position is not None and position < len(cells) else None


def _numbered(
    lines: Lines, found: Format, *, keep_empty: bool = False
) -> Iterator[tuple[str, list[str] | InputError]]:
    """Place and cells of each row of a table, or why there are none."""
    if not found.is_sure:
        rows = _until_quotes(lines, found, keep_empty=keep_empty)
    elif found.quoted:
        rows = _quoted(lines, found, keep_empty=keep_empty)
    else:
        rows = _unquoted(lines, found, keep_empty=keep_empty)
    first = next(rows, None)
    if first is None:
        return
    is_declared = isinstance(first[1], list) and EXCEL.fullmatch(found.separator.join(first[1]))
    if not is_declared:
        yield first
    yield from rows


def _until_quotes(
    lines: Lines, found: Format, *, keep_empty: bool
) -> Iterator[tuple[str, list[str] | InputError]]:
    """As `_numbered`, where the first line that begins a cell with a quote shows what quotes are.

    A line without such a cell reads the same in both ways.
    """
    begins = re.compile(f'(?:^|{re.escape(found.separator)})"')
    rest = iter(lines) if found.separator == "\t" else at_returns(lines)  # there a return is text
    width = 0
    for number, line in enumerate(rest):
        if begins.search(line):
            following = lines.from_here(line, rest)
            if are_enclosing(following.head(), found.separator, width):
                yield from _quoted(following, found, number, keep_empty=keep_empty)
                return
            logging.info("%s: quotes are text, as line %d shows", lines.name, number + 1)
            yield from _unquoted(following, found, number, keep_empty=keep_empty)
            return
        cells = without_end(line).split(found.separator)
        if keep_empty or _has_text(line):
            width = max(width, len(cells))
            yield lines.place(number + 1), cells


def _has_text(line: str) -> bool:
    """Whether a line is not empty: programs for Windows write "\r\r\n"."""
    return bool(without_end(line).strip("\r"))


def _unquoted(
    lines: Lines, found: Format, before: int = 0, *, keep_empty: bool = False
) -> Iterator[tuple[str, list[str] | InputError]]:
    """Place and cells of each row of a table in which quotes are text; empty lines are none.

    Not by the csv module: there a carriage return inside a cell ends the row.
    """
    for number, line in _to_last_text(lines):
        if keep_empty or _has_text(line):
            yield lines.place(before + number), without_end(line).split(found.separator)


def _to_last_text(lines: Lines) -> Iterator[tuple[int, str]]:
    """Numbered lines, without empty ones at the end; there is at least one."""
    empty: list[tuple[int, str]] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if _has_text(line):
            yield from empty
            empty.clear()
            yield number, line
        else:
            empty.append((number, line))
    if number == len(empty):
        yield 1, ""


def _quoted(
    lines: Lines, found: Format, before: int = 0, *, keep_empty: bool = False
) -> Iterator[tuple[str, list[str] | InputError]]:
    """Place and cells of each row of a table whose cells may be in quotes; empty lines are none."""
    read = at_returns(lines)
    if found.escaped:
        read = map(with_doubled_quotes, read)
    reader = csv.reader(read, strict=True, delimiter=found.separator)
    number = before
    while True:
        line = before + reader.line_num + 1
        number += 1  # as a spreadsheet counts
        place = lines.place(line) + (f" (row {number})" if number != line else "")
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            received = f"{place}: no row of a CSV file ({error})"
            name = repr(found.separator)
            expected = f'quotes around cells with {name}, quotes or line ends, and "" for a quote'
            yield place, InputError(received, expected, f"{CORRECT}, or use JSON lines")
            continue
        if cells or keep_empty:
            yield place, cells


# ---------------------------------------------------------------------------- others


def _texts(lines: Lines) -> Iterator[Row]:
    """Each line, an empty one too."""
    for number, line in enumerate(lines, 1):
        text = without_end(line)
        yield Row(lines.place(number), {}, value=text)


def _sentences(lines: Lines) -> Iterator[Row]:
    numbered = ((lines.place(n), without_end(line)) for n, line in enumerate(lines, 1))
    for cells, places in read_sentences(lines.name, numbered):
        yield Row(places[0], cells, places)


def _json_lines(lines: Lines, columns: Columns, *, are_texts: bool) -> Iterator[Row]:
    """A row for each line; where lines may be texts also of JSON that is no object."""
    numbered = enumerate(lines, 1) if are_texts else _to_last_text(lines)
    for number, line in numbered:
        place = lines.place(number)
        text = without_end(line)
        try:
            value = json.loads(text, object_pairs_hook=files.each_key_once)
        except (ValueError, RecursionError) as error:
            value = error
        is_fault = isinstance(value, Exception)
        if is_fault or not (are_texts or isinstance(value, dict)):
            yield Row(place, {}, flaw=_no_object(place, text, value))
            continue
        yield _json_row(place, value, columns, may_lack=are_texts)


def _json_list(lines: Lines, columns: Columns, *, are_texts: bool) -> Iterator[Row]:
    """A row for each object of a list."""
    text = "".join(lines)
    try:
        values = json.loads(text, object_pairs_hook=files.each_key_once)
    except (ValueError, RecursionError) as error:
        received = f"{lines.name}, which begins as a list in JSON and is not ({error})"
        raise InputError(received, "a list of objects", "correct it, or use JSON lines") from None
    for number, value in enumerate(values, 1):
        place = f"{lines.name}, item {number}"
        if isinstance(value, dict):
            yield _json_row(place, value, columns, may_lack=are_texts)
        else:
            yield Row(place, {}, flaw=_no_object(place, repr(value), value))


def _no_object(place: str, text: str, value: Any) -> InputError:
    received = f"{place}: {preview([text])} ({type(value).__name__}: {shortened(str(value), 80)})"
    expected = 'a JSON object with each key once, such as {"text_a": "...", "label": "..."}'
    return InputError(received, expected, CORRECT)


def _json_row(place: str, value: Any, columns: Columns, *, may_lack: bool) -> Row:
    """The row of a value of JSON; where it may lack columns, they are empty."""
    if not may_lack:
        try:
            return dataclasses.replace(pick(place, value, columns), value=value)
        except InputError as flaw:
            return Row(place, {}, flaw=flaw, value=value)
    return Row(place, {}, value=value)


def pick(place: str, values: Mapping, columns: Columns) -> Row:
    """The row of a JSON object or of an example of a dataset.

    Raises:
      InputError: a column is missing.
    """
    for field, column in columns.by_field.items():
        if column not in values and field not in columns.optional:
            received = f"{place}: only {', '.join(map(str, values)) or 'an empty object'}"
            raise InputError(received, f"a value for {column!r}", "correct the data or the flags")
    return Row(place, {field: values.get(column) for field, column in columns.by_field.items()})


# ---------------------------------------------------------------------------- what is wrong


def refuse_rows(
    source: str, flaws: Sequence[InputError], *, skip: bool, hint: str = "", skipped: str = ""
) -> None:
    """Names all rows that cannot be used, the first `MOST_SHOWN` of them with their faults.

    Args:
      source: the file, for messages.
      flaws: what is wrong with each row.
      skip: whether the rows are skipped (--skip_bad_rows): then this is a warning.
      hint: the end of the remedy; with one, it names --skip_bad_rows.
      skipped: what becomes of skipped rows; "": they are left out.

    Raises:
      InputError: there are some, and they are not skipped.
    """
    if not flaws:
        return
    shown = []
    for flaw in flaws[:MOST_SHOWN]:
        what = flaw.received.removeprefix(f"{source}, ")
        received = shortened(what, MOST_OF_A_ROW)
        room = MOST_OF_A_ROW - len(received)
        shown.append(f"{received}; expected: {shortened(flaw.expected, max(room, LEAST_EXPECTED))}")
    if len(flaws) > MOST_SHOWN:
        shown.append(f"and {len(flaws) - MOST_SHOWN} more")
    listed = "\n".join(shown)
    if skip:
        says = "%s: %d rows that cannot be used are %s:\n%s"
        logging.warning(says, source, len(flaws), skipped or "left out", listed)
        return
    if len(flaws) == 1:
        raise flaws[0]
    received = f"{source}, with {len(flaws)} rows that cannot be used:\n{listed}"
    remedy = f"correct or delete the rows{hint}"
    if hint:
        remedy += "; --skip_bad_rows goes on without them"
    raise InputError(received, "rows of texts and labels", remedy)
