"""The rows of a file: its format is found, then they are read one by one.

A row that cannot be read has an error instead of cells; `refuse_rows` raises one error for all such
rows, or warns that they are left out.
"""

import csv
import dataclasses
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
MOST_SHOWN = 20  # rows in a message
MOST_OF_A_ROW = 80  # characters for what is wrong in a row, in a message about several
LEAST_EXPECTED = 40  # characters of these for what is expected
DECIMAL_START = "+-.0123456789"
EMPTY: list[str] = []  # the cells of a row that separates sentences

# The rows of a table: place, and cells or what is wrong with them.
PlacedCells = Iterator[tuple[str, list[str] | InputError]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of a file.

    Attributes:
      place: where it is: "train.tsv, line 7".
      cells: by field.
      word_places: of a sentence in words, the place of each word's line.
      flaw: why the row cannot be read; None: it can.
      all_cells: all cells of a table's row, as many as the table has names.
      value: the JSON value; of a text the line.
    """

    place: str
    cells: Mapping[str, Any]
    word_places: tuple[str, ...] = ()
    flaw: InputError | None = None
    all_cells: Sequence[str] = ()
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A file that is read as rows.

    Attributes:
      source: its path, or "standard input".
      format: the format of its content.
      names: the names of all its columns; their numbers if there is no header, () if it is no
        table.
      rows: an iterator of the rows.
      is_live: whether each row is answered as it comes.
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
    """Opens a file of rows, finds its format by its content, and logs it.

    Accepts line ends of Windows and of old Macs, a byte order mark, Excel's line `sep=;`, and empty
    lines or rows at the end.

    Args:
      path: the path of the file; None: standard input, whose rows are returned as they come.
      columns: names, if the file has a header or is JSON; or positions, if it has no header.
      reading: how its bytes are decoded; None where the user has no such options.
      form: the format, or its kind, if it is known.
      texts: what the lines may be if they are no rows of a table.

    Returns:
      The table; its rows are read while the caller iterates over them.

    Raises:
      InputError: a column is missing, or the file is no text; the latter also while rows are read.
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
    """The table in lines; arguments and errors as in `open_table`."""
    file_format = form if isinstance(form, Format) else format_of(lines, columns, texts, form)
    if not form:
        logging.info("%s is read as %s", lines.name, file_format.describe())
    names: Sequence[str] = ()
    if file_format.kind == CONLL:
        rows = _sentences(lines)
    elif file_format.kind == JSONL:
        rows = _json_lines(lines, columns, are_texts=bool(texts.count))
    elif file_format.kind == JSON:
        rows = _json_list(lines, columns, are_texts=bool(texts.count))
    elif file_format.kind == TEXT:
        rows = _texts(lines)
    else:
        placed_cells = _placed_cells(lines, file_format, keep_empty=columns.keep_empty)
        names, rows = _named(placed_cells, lines.place(1), columns, is_live=lines.is_live)
        rows = _without_tail(lines.name, rows)
    return Table(lines.name, file_format, names, rows, lines.is_live)


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
    """The cells of a table's first row, whatever its separator; [] of an empty file.

    Raises:
      InputError: it cannot be read.
    """
    mark = mark_of(path)
    if mark:
        rows = parquet_rows(path) if mark == PARQUET else sheet_rows(path, mark)
        _, first = next(rows)
        return [*first]
    lines = lines_in(path, reading)
    _, cells = next(_placed_cells(lines, format_of(lines, columns, kind=CSV)), ("", []))
    return [] if isinstance(cells, InputError) else cells


def refuse_header(
    rows: Iterator[Row], labels: Collection[str] = (), *, hint: str = ""
) -> Iterator[Row]:
    """The rows of a file without a header, the first of which must be data.

    Args:
      rows: the rows of the file.
      labels: a first row with one of these labels is data.
      hint: the end of the remedy.

    Raises:
      InputError: while rows are read: the first one looks like a header.
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


class _Shape(NamedTuple):
    """The shape of a table, by its first row.

    Attributes:
      header: its cells; None: there is none.
      positions: the positions of the fields; None for a field without a column.
      least, most: how many columns a row may have; more if they are empty.
    """

    header: list[str] | None
    positions: Mapping[str, int | None]
    least: int
    most: int


def _named(
    rows: PlacedCells, beginning: str, columns: Columns, *, is_live: bool = False
) -> tuple[Sequence[str], Iterator[Row]]:
    """The names of a table's columns, and its rows, from the cells of all rows."""
    place, first = next(rows, (beginning, [""]))
    if isinstance(first, InputError):
        raise first
    if columns.are_names and not columns.positions and not is_live:
        first, rows = _with_name_of_rows(first, rows, beginning)
    shape = _shape_of(place, first, columns)
    if shape.header:
        names = [name.strip() for name in shape.header]
    else:
        names = [str(number) for number in range(len(first))]
    if shape.header is None:
        rows = itertools.chain([(place, first)], rows)
    if columns.keep_empty:
        rows = _with_empty_marked(rows)
    return names, _rows(rows, shape, len(names))


def _with_name_of_rows(
    header: list[str], rows: PlacedCells, beginning: str
) -> tuple[list[str], PlacedCells]:
    """The header, with a name for a first column that has none in tables of R, and the rows."""
    second = next(rows, None)
    if second is None:
        return header, rows
    _, cells = second
    if isinstance(cells, list) and lacks_name_of_rows(header, cells):
        logging.info("%s: the header has no name for the first column, as R writes it", beginning)
        header = ["", *header]
    return header, itertools.chain([second], rows)


def _with_empty_marked(rows: PlacedCells) -> PlacedCells:
    """The rows, with `EMPTY` for those without a text in any cell."""
    for place, cells in rows:
        is_empty = isinstance(cells, list) and not any(cell.strip() for cell in cells)
        yield place, EMPTY if is_empty else cells


def _rows(rows: PlacedCells, shape: _Shape, num_names: int) -> Iterator[Row]:
    """The rows of a table; those of another width, and repeated headers, have a flaw."""
    header, positions, least, most = shape
    for place, cells in rows:
        if isinstance(cells, InputError):
            yield Row(place, {}, flaw=cells)
            continue
        if cells is EMPTY:
            yield Row(place, {})
            continue
        has_width = least <= len(cells) and not any(cells[most:])
        padded = [*cells, *[""] * (num_names - len(cells))]
        if has_width and cells != header:
            by_field = {field: _cell(cells, position) for field, position in positions.items()}
            yield Row(place, by_field, all_cells=padded[:num_names])
            continue
        if has_width:
            expected = "the header only in the first line"
        elif least == most:
            expected = f"{least} columns"
        else:
            expected = f"{least} to {most} columns"
        received = f"{place}: {len(cells)} columns: {preview(cells)}"
        remedy = f"{CORRECT}; a line end or a tab inside a text makes such rows"
        flaw = InputError(received, expected, remedy)
        yield Row(place, {}, flaw=flaw, all_cells=padded)


def _without_tail(name: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows without empty ones at the end, which Excel writes."""
    empty: list[Row] = []
    for row in rows:
        if len(row.all_cells) > 1 and not any(cell.strip() for cell in row.all_cells):
            empty.append(row)
            continue
        yield from empty
        empty.clear()
        yield row
    if empty:
        message = "%s: %d rows at the end, all of whose cells are empty, are left out"
        logging.info(message, name, len(empty))


def _shape_of(place: str, first: list[str], columns: Columns) -> _Shape:
    """The shape of a table, by the cells of its first row."""
    by_field = columns.by_field
    headless = columns.headless
    if headless and _is_number(first[headless["label"] :][:1]):
        least = 1 + max(headless.values())
        in_table = {field: number for field, number in headless.items() if field in by_field}
        return _Shape(None, in_table, least, least + 2)
    if columns.are_names:
        return _Shape(first, find_columns(place, first, columns), len(first), len(first))
    positions = {field: int(column) for field, column in by_field.items()}
    required = [number for field, number in positions.items() if field not in columns.optional]
    least = 1 + max(required, default=-1)
    most = 1 + max(positions.values(), default=-1)
    num_filled = max((1 + number for number, cell in enumerate(first) if cell), default=0)
    if num_filled > most:  # the first row has columns that are not read
        return _Shape(None, positions, num_filled, len(first))
    return _Shape(None, positions, least, max(most, len(first)))


def _is_number(cells: Sequence[str]) -> bool:
    """Whether the first cell is a number in decimals."""
    try:
        return bool(cells) and cells[0][:1] in DECIMAL_START and float(cells[0]) is not None
    except ValueError:
        return False


def _cell(cells: Sequence[str], position: int | None) -> str | None:
    """The cell at a position; None if there is none."""
    return cells[position] if position is not None and position < len(cells) else None


def _placed_cells(lines: Lines, form: Format, *, keep_empty: bool = False) -> PlacedCells:
    """Place and cells of each row of a table, without Excel's line of the separator."""
    if not form.is_sure:
        rows = _until_quotes(lines, form, keep_empty=keep_empty)
    elif form.quoted:
        rows = _quoted(lines, form, keep_empty=keep_empty)
    else:
        rows = _unquoted(lines, form, keep_empty=keep_empty)
    first = next(rows, None)
    if first is None:
        return
    _, cells = first
    names_separator = isinstance(cells, list) and EXCEL.fullmatch(form.separator.join(cells))
    if not names_separator:
        yield first
    yield from rows


def _until_quotes(lines: Lines, form: Format, *, keep_empty: bool) -> PlacedCells:
    """As `_placed_cells`, of a file whose first lines do not show whether quotes enclose cells.

    The first line that begins a cell with a quote shows it. The lines before it read the same
    either way.
    """
    begins = re.compile(f'(?:^|{re.escape(form.separator)})"')
    # Where tabs separate cells, a carriage return is text.
    rest = iter(lines) if form.separator == "\t" else at_returns(lines)
    width = 0
    for number, line in enumerate(rest):
        if begins.search(line):
            following = lines.from_here(line, rest)
            if are_enclosing(following.head(), form.separator, width):
                yield from _quoted(following, form, number, keep_empty=keep_empty)
                return
            logging.info("%s: quotes are text, as line %d shows", lines.name, number + 1)
            yield from _unquoted(following, form, number, keep_empty=keep_empty)
            return
        cells = without_end(line).split(form.separator)
        if keep_empty or _has_text(line):
            width = max(width, len(cells))
            yield lines.place(number + 1), cells


def _has_text(line: str) -> bool:
    """Whether a line is not empty; programs for Windows may write empty ones as "\r\r\n"."""
    return bool(without_end(line).strip("\r"))


def _unquoted(
    lines: Lines, form: Format, before: int = 0, *, keep_empty: bool = False
) -> PlacedCells:
    """Place and cells of each row of a table in which quotes are text.

    Args:
      lines: the lines of the table.
      form: its format.
      before: how many lines of the file come before these.
      keep_empty: whether empty lines are rows.
    """
    # Not by the csv module, which ends a row at a carriage return inside a cell.
    for number, line in _to_last_text(lines):
        if keep_empty or _has_text(line):
            yield lines.place(before + number), without_end(line).split(form.separator)


def _to_last_text(lines: Lines) -> Iterator[tuple[int, str]]:
    """Numbered lines, from 1, without empty ones at the end; an empty one if all are empty."""
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
    lines: Lines, form: Format, before: int = 0, *, keep_empty: bool = False
) -> PlacedCells:
    """As `_unquoted`, of a table whose cells may be in quotes."""
    text = at_returns(lines)
    if form.escaped:
        text = map(with_doubled_quotes, text)
    reader = csv.reader(text, strict=True, delimiter=form.separator)
    row_number = before  # as a spreadsheet counts: a row may have several lines
    while True:
        row_number += 1
        line_number = before + reader.line_num + 1
        place = lines.place(line_number)
        if row_number != line_number:
            place += f" (row {row_number})"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            received = f"{place}: no row of a CSV file ({error})"
            name = repr(form.separator)
            expected = f'quotes around cells with {name}, quotes or line ends, and "" for a quote'
            yield place, InputError(received, expected, f"{CORRECT}, or use JSON lines")
            continue
        if cells or keep_empty:
            yield place, cells


# ---------------------------------------------------------------------------- others


def _texts(lines: Lines) -> Iterator[Row]:
    """A row for each line, including empty ones."""
    for number, line in enumerate(lines, 1):
        text = without_end(line)
        yield Row(lines.place(number), {}, value=text)


def _sentences(lines: Lines) -> Iterator[Row]:
    """A row for each sentence in CoNLL's format."""
    numbered = ((lines.place(number), without_end(line)) for number, line in enumerate(lines, 1))
    for cells, places in read_sentences(lines.name, numbered):
        yield Row(places[0], cells, places)


def _json_lines(lines: Lines, columns: Columns, *, are_texts: bool) -> Iterator[Row]:
    """A row for each line of JSON, which must be an object unless `are_texts`."""
    numbered = enumerate(lines, 1) if are_texts else _to_last_text(lines)
    for number, line in numbered:
        place = lines.place(number)
        text = without_end(line)
        try:
            value = json.loads(text, object_pairs_hook=files.each_key_once)
        except (ValueError, RecursionError) as error:
            yield Row(place, {}, flaw=_no_object(place, text, error))
            continue
        if are_texts or isinstance(value, dict):
            yield _json_row(place, value, columns, may_lack=are_texts)
        else:
            yield Row(place, {}, flaw=_no_object(place, text, value))


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
    """The error of a text that is no object of JSON, but `value`, or raises it when it is read."""
    received = f"{place}: {preview([text])} ({type(value).__name__}: {shortened(str(value), 80)})"
    expected = 'a JSON object with each key once, such as {"text_a": "...", "label": "..."}'
    return InputError(received, expected, CORRECT)


def _json_row(place: str, value: Any, columns: Columns, *, may_lack: bool) -> Row:
    """The row of a value of JSON; with `may_lack`, of which columns may be missing, the value."""
    if may_lack:
        return Row(place, {}, value=value)
    try:
        return dataclasses.replace(pick(place, value, columns), value=value)
    except InputError as flaw:
        return Row(place, {}, flaw=flaw, value=value)


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


# ---------------------------------------------------------------------------- bad rows


def refuse_rows(
    source: str, flaws: Sequence[InputError], *, skip: bool, hint: str = "", skipped: str = ""
) -> None:
    """Raises an error, or warns, if rows cannot be used; shows the first `MOST_SHOWN` of them.

    Args:
      source: the file, for messages.
      flaws: what is wrong with each row.
      skip: whether the rows are skipped (--skip_bad_rows), with a warning.
      hint: the end of the remedy; with one, it names --skip_bad_rows.
      skipped: what becomes of skipped rows; "": they are left out.

    Raises:
      InputError: there are flaws, and the rows are not skipped.
    """
    if not flaws:
        return
    shown = []
    for flaw in flaws[:MOST_SHOWN]:
        received = shortened(flaw.received.removeprefix(f"{source}, "), MOST_OF_A_ROW)
        room = max(MOST_OF_A_ROW - len(received), LEAST_EXPECTED)
        shown.append(f"{received}; expected: {shortened(flaw.expected, room)}")
    if len(flaws) > MOST_SHOWN:
        shown.append(f"and {len(flaws) - MOST_SHOWN} more")
    listed = "\n".join(shown)
    if skip:
        message = "%s: %d rows that cannot be used are %s:\n%s"
        logging.warning(message, source, len(flaws), skipped or "left out", listed)
        return
    if len(flaws) == 1:
        raise flaws[0]
    received = f"{source}, with {len(flaws)} rows that cannot be used:\n{listed}"
    remedy = f"correct or delete the rows{hint}"
    if hint:
        remedy += "; --skip_bad_rows goes on without them"
    raise InputError(received, "rows of texts and labels", remedy)
