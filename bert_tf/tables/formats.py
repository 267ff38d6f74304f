"""Finds the format of a file by its first lines: JSON, words with tags, a table, or plain texts.

    {"text": "Rain."}           JSON lines
    [{"text": "Rain."}, ...     JSON: a list of objects
    EU B-ORG                    CoNLL, for a model with these tags
    id;text;label               a table: with some separator it has the columns to read
    Rain again.                 texts, a line each, if the caller takes these

The file's name plays no part. The separator of a table, and whether quotes enclose its cells, are
found by the names of columns in the header, then by rows of the same width, then by the absence of
stray quotes.
"""

import csv
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.errors import InputError
from bert_tf.tables.columns import (
    LONGEST_NAME,
    Column,
    Columns,
    did_you_mean,
    is_header,
    preview,
)
from bert_tf.tables.lines import EXCEL, Lines, at_returns, without_end

TEXT = "text"
TSV = "tsv"
CSV = "csv"
JSONL = "jsonl"
JSON = "json"
CONLL = "conll"
KINDS = (TEXT, TSV, CSV, JSONL, CONLL)  # the kinds that a user can choose
SEPARATORS = ",;\t|"
ESCAPED = '\\"'  # a quote within quotes, as R's write.table writes it
PAIR_MARK = " ||| "  # between the two texts of a line, in the original's files
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ENOUGH_ROWS = 10  # so many rows of the same width are a table, not texts
csv.field_size_limit(sys.maxsize)  # the module's own limit is 131,072 characters


@dataclasses.dataclass(frozen=True)
class Format:
    """The form of a file.

    Attributes:
      kind: text, csv, tsv, jsonl, json (a list of objects) or conll. A table with tabs is a tsv,
        one with another separator a csv.
      separator: the separator of a table's cells.
      quoted: whether quotes enclose a table's cells; otherwise they are text.
      is_sure: whether the first lines show `quoted`; otherwise the first line that begins a cell
        with a quote shows it, see `are_enclosing`.
      are_all_quoted: whether quotes enclose all cells of the first row.
      escaped: whether a quote within quotes has a backslash before it, as in R's files, instead of
        being doubled.
      line_end: the line end of a table's rows.
    """

    kind: str
    separator: str = ","
    quoted: bool = True
    is_sure: bool = True
    are_all_quoted: bool = False
    escaped: bool = False
    line_end: str = "\n"

    @property
    def is_table(self) -> bool:
        """Whether it has cells in columns."""
        return self.kind in (CSV, TSV)

    def describe(self) -> str:
        """The format in words, for the log."""
        if not self.is_table:
            words = {TEXT: "a text a line", JSONL: "JSON lines", JSON: "a list in JSON"}
            return words.get(self.kind, "words with their tags (CoNLL)")
        name = NAMES.get(self.separator, repr(self.separator))
        described = f"a table with {name} between cells"
        if self.is_sure:
            described += ", quotes around cells" if self.quoted else ", quotes as text"
        return described


PUBLISHED_TSV = Format(TSV, "\t", quoted=False)  # as the original reads it (`_read_tsv`)


class Texts(NamedTuple):
    """What lines may be if they are no rows of a table.

    Attributes:
      count: how many texts a line may hold, separated by tabs; 0: lines are no texts.
      are_tagged: returns whether first lines are words with tags; None: lines are no such words.
    """

    count: int = 0
    are_tagged: Callable[[Sequence[str]], bool] | None = None


NO_TEXTS = Texts()


def format_of(lines: Lines, columns: Columns, texts: Texts = NO_TEXTS, kind: str = "") -> Format:
    """The format of lines, by the first of them.

    Args:
      lines: from the first one.
      columns: those that a table should have.
      texts: what lines may be if they are no rows of a table.
      kind: the kind, if it is known; of a csv or tsv separator and quotes are found.

    Raises:
      InputError: lines may be texts, but seem to be a table without these columns.
    """
    head = [line for line in lines.head() if line.strip()]
    first = without_end(head[0]) if head else ""
    if kind not in ("", CSV, TSV):
        return Format(kind)
    if lines.is_live and first.strip() == "[":
        head = [line for line in lines.one_more() if line.strip()]
    if not kind:
        json_kind = _json_kind(head, may_be_texts=bool(texts.count))
        if json_kind:
            return Format(json_kind)
        if texts.are_tagged and _are_tagged(lines, texts.are_tagged):
            return Format(CONLL)
    separators = "\t" if kind == TSV else SEPARATORS
    fits = fits_of(head, separators, columns)
    best = _with_quotes_as_words(max(fits), fits, head) if fits else EMPTY_FILE
    has_columns = best.has_columns and (columns.are_names or best.width > 1 or not texts.count)
    has_some_columns = best.width > 1 and _has_some(_cells(first, best), columns)
    is_table = kind == CSV or not texts.count or (kind == TSV and texts.count == 1)
    if is_table or has_columns or has_some_columns:
        _doubt_separator(lines.name, fits, best, columns)
        return _table_format(best, head, first)
    _refuse_table(lines, first, best, columns, texts)
    return Format(TEXT)


def _table_format(fit: "Fit", head: Sequence[str], first: str) -> Format:
    """The format of a table.

    Args:
      fit: the fit of its separator.
      head: its first lines.
      first: the first line, without its end.
    """
    cells = first.split(fit.separator)
    return Format(
        TSV if fit.separator == "\t" else CSV,
        fit.separator,
        quoted=fit.quoted,
        is_sure=any('"' in line for line in head),
        are_all_quoted=fit.quoted and all(_is_enclosed(cell) for cell in cells),
        escaped=fit.escaped,
        line_end="\r\n" if head and head[0].endswith("\r\n") else "\n",
    )


def _are_tagged(lines: Lines, are_tagged: Callable[[Sequence[str]], bool]) -> bool:
    """Whether lines are words with tags; waits for the second line of a live stream if need be."""
    head = [line for line in lines.head() if line.strip()]
    if lines.is_live and len(head) == 1 and are_tagged([*head, *head]):
        head = [line for line in lines.one_more() if line.strip()]
        if len(head) == 1:  # a sentence of one word
            head = [*head, *head]
    return are_tagged(head)


# ---------------------------------------------------------------------------- JSON


def _json_kind(head: Sequence[str], *, may_be_texts: bool) -> str:
    """jsonl or json if lines are JSON; otherwise ""."""
    first = head[0].strip() if head else ""
    if not first.startswith(("{", "[", '"')):
        return ""
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        if first.startswith('{"') or (first.startswith("{") and not may_be_texts):
            return JSONL  # the reader of its rows raises the error
        is_list = re.match(r"\[\s*\{", "".join(head))
        return JSON if is_list else ""
    if isinstance(value, dict):
        return JSONL
    if isinstance(value, list):
        are_objects = any(isinstance(item, dict) for item in value)
        return JSON if are_objects or not may_be_texts else JSONL
    return JSONL if may_be_texts and all(map(_is_json_text, head)) else ""


def _is_json_text(line: str) -> bool:
    """Whether a line is a text in JSON, a list or an object."""
    try:
        return isinstance(json.loads(line), str | list | dict)
    except (ValueError, RecursionError):
        return False


# ---------------------------------------------------------------------------- tables


class Fit(NamedTuple):
    """How well a separator fits the first rows of a table; the greatest tuple is the best fit.

    Attributes:
      has_columns: whether the first row has the columns to read.
      has_several: whether it has these, or several columns.
      share: the share of the rows with as many cells as the first one.
      against: minus the number of rows with quotes that contradict `quoted`: quotes inside a cell
        if quotes enclose cells, and quotes around a cell if they are text.
      quoted: whether quotes enclose cells.
      order: greater for earlier separators.
      width: the number of cells in the first row.
      count: the number of rows.
      separator: between cells.
      escaped: as in `Format`.
    """

    has_columns: bool
    has_several: bool
    share: float
    against: int
    quoted: bool
    order: int
    width: int
    count: int
    separator: str
    escaped: bool


EMPTY_FILE = Fit(
    has_columns=False, has_several=False, share=0.0, against=0, quoted=True, order=0, width=0,
    count=0, separator=",", escaped=False,
)  # fmt: skip


def _with_quotes_as_words(best: Fit, fits: Sequence[Fit], head: Sequence[str]) -> Fit:
    """The best fit; or that with quotes as text, if a cell that is a quote would join rows.

    In files of words a quote is a word, and with quotes around cells, fewer rows would be read.
    """
    for fit in fits:
        is_plain = fit.separator == best.separator and not fit.quoted
        is_even = fit.share == 1.0 and fit.has_columns and not fit.against
        if best.quoted and is_plain and is_even and fit.count > best.count:
            rows = cells_of(head, fit.separator, quoted=False)
            return fit if any('"' in cells for cells in rows) else best
    return best


def fits_of(head: Sequence[str], separators: str, columns: Columns) -> list[Fit]:
    """How the separators fit the first lines, with quotes around cells and with quotes as text."""
    named_separator = EXCEL.fullmatch(without_end(head[0])) if head else None
    if named_separator:
        head = head[1:]
        separators = named_separator[1]
    if head and PAIR_MARK in head[0]:
        separators = separators.replace("|", "")
    fits: list[Fit | None] = []
    for order, separator in enumerate(separators):
        for quoted in (True, False):
            fits.append(_fit(head, separator, quoted, -order, columns))
    if any(ESCAPED in line for line in head):
        doubled = [with_doubled_quotes(line) for line in head]
        for order, separator in enumerate(separators):
            fits.append(_fit(doubled, separator, True, -order, columns, escaped=True))
    return [fit for fit in fits if fit]


def with_doubled_quotes(line: str) -> str:
    """A line of a table with quotes doubled instead of escaped by a backslash.

    >>> with_doubled_quotes(r'"He said \"no\"."')
    '"He said ""no""."'
    """
    return line.replace(ESCAPED, '""')


def _fit(
    head: Sequence[str],
    separator: str,
    quoted: bool,
    order: int,
    columns: Columns,
    *,
    escaped: bool = False,
) -> Fit | None:
    """How a separator fits; None if there is no row."""
    rows: list[list[str]] = []
    against = 0  # rows with quotes that contradict `quoted`
    if quoted:
        inside = re.compile(f'[^"{re.escape(separator)}]"[^"{re.escape(separator)}\r\n]')
        against = sum(inside.search(line) is not None for line in head)
    for cells in cells_of(head, separator, quoted=quoted):
        if isinstance(cells, csv.Error):
            against += 1
        elif any(cells):
            rows.append(cells)
            if not quoted and any(_is_enclosed(cell) for cell in cells):
                against += 1
    if not rows:
        return None
    first = rows[0]
    widths = [len(cells) for cells in rows]
    may_lack_name = columns.are_names and not columns.positions and len(rows) > 1
    if may_lack_name and lacks_name_of_rows(first, rows[1]):
        widths[0] += 1
    has_columns = _has_columns(first, columns)
    return Fit(
        has_columns=has_columns,
        has_several=has_columns or len(first) > 1,
        share=widths.count(widths[0]) / len(widths),
        against=-against,
        quoted=quoted,
        order=order,
        width=len(first),
        count=len(rows),
        separator=separator,
        escaped=escaped,
    )


def lacks_name_of_rows(header: Sequence[str], first: Sequence[str]) -> bool:
    """Whether a header has no name for the first column, which counts rows, as in tables of R.

    >>> lacks_name_of_rows(["text", "label"], ["1", "It rains.", "a"])
    True
    """
    return len(first) == len(header) + 1 and first[0] == "1"


def _is_enclosed(cell: str) -> bool:
    """Whether quotes enclose a cell."""
    return len(cell) > 1 and cell.startswith('"') and cell.endswith('"')


def _has_columns(first: Sequence[str], columns: Columns) -> bool:
    """Whether a first row has the needed columns, by number or name."""
    known: set[Column] = {*range(len(first)), *(cell.strip() for cell in first)}
    return columns.needed <= known


def cells_of(
    lines: Sequence[str], separator: str, *, quoted: bool
) -> Iterator[list[str] | csv.Error]:
    """The cells of each row, or the error of a bad one; a row without its end is left out."""
    if not quoted:
        for line in lines:
            yield without_end(line).split(separator)
        return
    reader = csv.reader(at_returns(lines), strict=True, delimiter=separator)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):  # in the first lines, not in the file
                return
            yield error


def are_enclosing(lines: Sequence[str], separator: str, width: int) -> bool:
    """Whether quotes in the lines of a table enclose cells; otherwise they are text.

    Args:
      lines: the first of them begins a cell with a quote.
      separator: between cells.
      width: the number of cells in a row.
    """
    quoted = list(cells_of(lines, separator, quoted=True))
    if any(isinstance(cells, csv.Error) for cells in quoted):
        return False
    plain = list(cells_of(lines, separator, quoted=False))
    rows = [cells for cells in plain if any(cells)]  # an empty line has another width
    share_of_plain = _share(rows, width)
    if share_of_plain == 1.0 and any('"' in cells for cells in rows):  # a cell by itself
        return False
    if not quoted:  # the first cell has no end here; between tabs it may be a quote that is text
        return separator != "\t" or share_of_plain < 1.0
    return _share(quoted, width) >= share_of_plain


def _share(rows: Sequence[Any], width: int) -> float:
    """The share of the rows with `width` cells."""
    return sum(len(cells) == width for cells in rows) / len(rows)


def _doubt_separator(name: str, fits: Sequence[Fit], best: Fit, columns: Columns) -> None:
    """Warns if all rows have the columns with another separator, too, and there is no header."""
    if columns.are_names:
        return
    for fit in fits:
        is_another = fit.separator != best.separator and fit.quoted == best.quoted
        is_table = fit.count > 1 and fit.width > 1
        has_columns = fit.has_columns and fit.share == 1.0 and not fit.against
        if is_another and is_table and has_columns:
            message = (
                "%s is read with %r between cells; with %r all rows have columns, too. If these "
                "are meant, add a header."
            )
            logging.warning(message, name, best.separator, fit.separator)
            return


def _refuse_table(lines: Lines, first: str, best: Fit, columns: Columns, texts: Texts) -> None:
    """Raises `InputError` if lines that may be texts seem to be a table without the columns."""
    cells = [cell.strip() for cell in _cells(first, best)]
    is_single = len(cells) == 1
    names = [str(column) for column in columns.needed if isinstance(column, str)]
    has_similar_name = any(_is_similar(name, cells, is_single) for name in names)
    are_short = all(len(cell) <= LONGEST_NAME for cell in cells)
    has_header = are_short and is_header(cells) and not (is_single and lines.is_live)
    is_even = best.share == 1.0 and not best.against and len(lines.head()) >= ENOUGH_ROWS
    is_named_as_table = lines.name.lower().endswith((".csv", ".tsv"))
    are_texts = texts.count > 1 and best.separator == "\t"  # separated by tabs
    is_table = (is_even or is_named_as_table) and not is_single and not are_texts
    if not (has_similar_name or has_header or is_table):
        return
    hint = "".join(did_you_mean(name, cells) for name in names)
    received = f"{lines.place(1)}: {preview(cells)}, a header or a row of a table"
    expected = f"the columns {', '.join(map(str, columns.by_field.values()))}, or texts{hint}"
    remedy = f"name the columns{columns.hint}; if it is a text, add --input_format=text"
    raise InputError(received, expected, remedy)


def _has_some(cells: Collection[str], columns: Columns) -> bool:
    """Whether a row has the names of some columns; the reader then asks for the others."""
    names = {column for column in columns.needed if isinstance(column, str)}
    return not names.isdisjoint(cell.strip() for cell in cells)


def _is_similar(name: str, cells: Collection[str], is_single: bool) -> bool:
    """Whether a cell is the name in another case, or one of several cells differs by a letter."""
    if is_single:
        return any(cell.casefold() == name.casefold() for cell in cells)
    return bool(did_you_mean(name, cells))


def _cells(line: str, fit: Fit) -> list[str]:
    """The cells of a line, read as the fit says."""
    for cells in cells_of([line], fit.separator, quoted=fit.quoted):
        if not isinstance(cells, csv.Error):
            return cells
    return [line]
