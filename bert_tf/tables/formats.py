"""What the first lines of a file show: JSON, words with tags, what parts its cells, or plain texts.

    {"text": "Rain."}           JSON lines
    [{"text": "Rain."}, ...     JSON: a list of objects
    EU B-ORG                    CoNLL, for a model with these tags
    id;text;label               a table: some separator gives the columns that are wanted
    Rain again.                 texts, a line each, where these may stand

A file's name plays no part. Of a table the separator and whether quotes enclose cells are found by
the names in its header where they are known, then by rows of the same width, then by the absence of
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

TEXT, TSV, CSV, JSONL, JSON, CONLL = "text", "tsv", "csv", "jsonl", "json", "conll"
KINDS = (TEXT, TSV, CSV, JSONL, CONLL)  # that can be asked for
SEPARATORS = ",;\t|"
ESCAPED = '\\"'  # a quote within quotes, as R's write.table writes it
PAIR_MARK = " ||| "  # between two texts of a line, in the original's files
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
ENOUGH_ROWS = 10  # of one width, to be a table rather than texts
csv.field_size_limit(sys.maxsize)  # the module's own limit is 131,072 characters


@dataclasses.dataclass(frozen=True)
class Format:
    """The form of a file.

    Attributes:
      kind: text, csv, tsv, jsonl, json (a list of objects) or conll. A table with tabs is a tsv,
        one with another separator a csv.
      separator: of a table's cells.
      quoted: whether quotes enclose a table's cells; else they are text.
      is_sure: whether the first lines show that; else the first line that begins a cell with a
        quote does, see `are_enclosing`.
      are_all_quoted: whether quotes enclose all cells of the first row.
      escaped: whether a quote within quotes has a backslash before it, as R writes it, and is not
        doubled.
      line_end: of a table's rows.
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
        """In words, for the log."""
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
    """What lines may be besides tables.

    Attributes:
      count: how many texts a line may hold, with tabs between; 0: none, all files are tables.
      are_tagged: whether the first lines are words with tags of a model; None: it has no tags.
    """

    count: int = 0
    are_tagged: Callable[[Sequence[str]], bool] | None = None


NO_TEXTS = Texts()


def format_of(lines: Lines, columns: Columns, texts: Texts = NO_TEXTS, kind: str = "") -> Format:
    """The format of lines, by the first of them.

    Args:
      lines: from the first one.
      columns: those that a table should have.
      texts: what lines may be besides tables.
      kind: if the format is given; of tables then only the separator and the quotes are found.

    Raises:
      InputError: it seems to be a table without these columns, where lines may be texts.
    """
    head = [line for line in lines.head() if line.strip()]
    first = without_end(head[0]) if head else ""
    line_end = "\r\n" if head and head[0].endswith("\r\n") else "\n"
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
    has_quotes = any('"' in line for line in head)
    table_kind = TSV if best.separator == "\t" else CSV
    cells = first.split(best.separator)
    are_all_quoted = best.quoted and all(_is_enclosed(cell) for cell in cells)
    found = Format(
        table_kind,
        best.separator,
        quoted=best.quoted,
        is_sure=has_quotes,
        are_all_quoted=are_all_quoted,
        escaped=best.escaped,
        line_end=line_end,
    )
    is_wanted = best.has_columns and (columns.are_names or best.width > 1 or not texts.count)
    is_wanted = is_wanted or (best.width > 1 and _has_some(_cells(first, best), columns))
    is_table = kind == CSV or (kind == TSV and texts.count == 1)
    if is_table or not texts.count or is_wanted:
        _doubt_separator(lines.name, fits, best, columns)
        return found
    _refuse_table(lines, first, best, columns, texts)
    return Format(TEXT)


def _are_tagged(lines: Lines, are_tagged: Callable[[Sequence[str]], bool]) -> bool:
    """Whether lines are words with tags; of a live stream the second is waited for if need be."""
    head = [line for line in lines.head() if line.strip()]
    if lines.is_live and len(head) == 1 and are_tagged([*head, *head]):
        head = [line for line in lines.one_more() if line.strip()]
        head = head if len(head) > 1 else [*head, *head]  # a sentence of a word
    return are_tagged(head)


# ---------------------------------------------------------------------------- JSON


def _json_kind(head: Sequence[str], *, may_be_texts: bool) -> str:
    """jsonl or json where lines are JSON, else ""."""
    first = head[0].strip() if head else ""
    if not first.startswith(("{", "[", '"')):
        return ""
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        if first.startswith('{"') or (first.startswith("{") and not may_be_texts):
            return JSONL  # its rows will be refused
        is_list = re.match(r"\[\s*\{", "".join(head))
        return JSON if is_list else ""
    if isinstance(value, dict):
        return JSONL
    if isinstance(value, list):
        are_objects = any(isinstance(item, dict) for item in value)
        return JSON if are_objects or not may_be_texts else JSONL
    return JSONL if may_be_texts and all(map(_is_json_text, head)) else ""


def _is_json_text(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str | list | dict)
    except (ValueError, RecursionError):
        return False


# ---------------------------------------------------------------------------- tables


class Fit(NamedTuple):
    """How well a separator fits the first rows of a table; the better one is the greater tuple.

    Attributes:
      has_columns: whether the first row has the columns that are wanted.
      has_several: whether it then has what was wanted, or at least several columns.
      share: of the rows, that have as many cells as the first one.
      against: minus the rows with quotes that speak against this reading: inside of a cell, where
        quotes are to enclose cells; around one, where they are to be text.
      quoted: whether quotes enclose cells.
      order: earlier separators are greater.
      width: cells of the first row.
      count: of the rows.
      separator: between cells.
      escaped: as of `Format`.
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
    """The fit in which quotes are text, where some are cells by themselves and join whole rows.

    So a quote is a word of its own in files of words.
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
    declared = EXCEL.fullmatch(without_end(head[0])) if head else None
    if declared:
        head = head[1:]
        separators = declared[1]
    fits: list[Fit | None] = []
    if head and PAIR_MARK in head[0]:
        separators = separators.replace("|", "")
    for order, separator in enumerate(separators):
        for quoted in (True, False):
            fits.append(_fit(head, separator, quoted, -order, columns))
    if any(ESCAPED in line for line in head):
        doubled = [with_doubled_quotes(line) for line in head]
        for order, separator in enumerate(separators):
            fits.append(_fit(doubled, separator, True, -order, columns, escaped=True))
    return [fit for fit in fits if fit]


def with_doubled_quotes(line: str) -> str:
    """A line of a table with each quote doubled that has a backslash before it.

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
    """How a separator fits; None where there is no row."""
    widths = []
    first: list[str] = []
    second: list[str] = []
    inside = re.compile(f'[^"{re.escape(separator)}]"[^"{re.escape(separator)}\r\n]')
    against = sum(inside.search(line) is not None for line in head) if quoted else 0
    for cells in cells_of(head, separator, quoted=quoted):
        if isinstance(cells, csv.Error):
            against += 1
            continue
        if not any(cells):
            continue
        if first:
            second = second or cells
        first = first or cells
        widths.append(len(cells))
        if not quoted and any(_is_enclosed(cell) for cell in cells):
            against += 1
    if not first:
        return None
    has_columns = _has_columns(first, columns)
    width = len(first)
    is_named = columns.are_names and not columns.positions
    if second and is_named and lacks_name_of_rows(first, second):
        width += 1
        widths[0] = width
    share = widths.count(width) / len(widths)
    return Fit(
        has_columns=has_columns,
        has_several=has_columns or len(first) > 1,
        share=share,
        against=-against,
        quoted=quoted,
        order=order,
        width=len(first),
        count=len(widths),
        separator=separator,
        escaped=escaped,
    )


def lacks_name_of_rows(header: Sequence[str], first: Sequence[str]) -> bool:
    """Whether a header lacks the name of a first column, which counts rows, as R writes tables.

    >>> lacks_name_of_rows(["text", "label"], ["1", "It rains.", "a"])
    True
    """
    return len(first) == len(header) + 1 and first[0] == "1"


def _is_enclosed(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith('"') and cell.endswith('"')


def _has_columns(first: Sequence[str], columns: Columns) -> bool:
    known: set[Column] = {*range(len(first)), *(cell.strip() for cell in first)}
    return columns.needed <= known


def cells_of(
    lines: Sequence[str], separator: str, *, quoted: bool
) -> Iterator[list[str] | csv.Error]:
    """The cells of each row, or what is wrong with it; an open quote at the end is not said."""
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
            if "unexpected end of data" in str(error):  # the head's, not the file's
                return
            yield error


def are_enclosing(lines: Sequence[str], separator: str, width: int) -> bool:
    """Whether the quotes of a table's lines enclose cells, rather than being text.

    Args:
      lines: from one on that begins a cell with a quote.
      separator: between cells.
      width: cells of a row.
    """
    quoted = list(cells_of(lines, separator, quoted=True))
    if any(isinstance(cells, csv.Error) for cells in quoted):
        return False
    plain = list(cells_of(lines, separator, quoted=False))
    rows = [cells for cells in plain if any(cells)]  # an empty line has another width
    share_of_plain = _share(rows, width)
    if share_of_plain == 1.0 and any('"' in cells for cells in rows):  # a cell by itself
        return False
    if not quoted:  # a cell that is still open: where tabs part cells it may go on, or be a quote
        return separator != "\t" or share_of_plain < 1.0
    return _share(quoted, width) >= share_of_plain


def _share(rows: Sequence[Any], width: int) -> float:
    """The share of the rows that have so many cells."""
    return sum(len(cells) == width for cells in rows) / len(rows)


def _doubt_separator(name: str, fits: Sequence[Fit], best: Fit, columns: Columns) -> None:
    """Warns where another separator gives columns in all rows, too, and no header decides."""
    if columns.are_names:
        return
    for fit in fits:
        is_other = fit.separator != best.separator and fit.quoted == best.quoted
        is_other = is_other and fit.count > 1
        if is_other and fit.has_columns and fit.width > 1 and fit.share == 1.0 and not fit.against:
            says = "%s is read with %r between cells; with %r all rows have columns, too. If these "
            says += "are meant, add a header."
            logging.warning(says, name, best.separator, fit.separator)
            return


def _refuse_table(lines: Lines, first: str, best: Fit, columns: Columns, texts: Texts) -> None:
    """Refuses what seems to be a table without the wanted columns, where lines may be texts."""
    cells = [cell.strip() for cell in _cells(first, best)]
    are_short = all(len(cell) <= LONGEST_NAME for cell in cells)
    is_single = len(cells) == 1
    names = [str(column) for column in columns.needed if isinstance(column, str)]
    alike = [name for name in names if _is_alike(name, cells, is_single)]
    is_table = not is_single and not best.against and best.share == 1.0
    is_table = is_table and len(lines.head()) >= ENOUGH_ROWS
    is_named = lines.name.lower().endswith((".csv", ".tsv")) and not is_single
    if texts.count > 1 and best.separator == "\t":  # the texts themselves
        is_table = is_named = False
    is_headed = are_short and is_header(cells) and not (is_single and lines.is_live)
    if not (alike or is_headed or is_table or is_named):
        return
    hint = "".join(did_you_mean(name, cells) for name in names)
    received = f"{lines.place(1)}: {preview(cells)}, a header or a row of a table"
    expected = f"the columns {', '.join(map(str, columns.by_field.values()))}, or texts{hint}"
    remedy = f"name the columns{columns.hint}; if it is a text, add --input_format=text"
    raise InputError(received, expected, remedy)


def _has_some(cells: Collection[str], columns: Columns) -> bool:
    """Whether some columns are there by their names: what else is wanted will be asked for."""
    names = {column for column in columns.needed if isinstance(column, str)}
    return not names.isdisjoint(cell.strip() for cell in cells)


def _is_alike(name: str, cells: Collection[str], is_single: bool) -> bool:
    """Whether a cell is a name in another case; of several cells also one letter off."""
    if is_single:
        return any(cell.casefold() == name.casefold() for cell in cells)
    return bool(did_you_mean(name, cells))


def _cells(line: str, fit: Fit) -> list[str]:
    """The cells of a line, as the fit reads it."""
    for cells in cells_of([line], fit.separator, quoted=fit.quoted):
        if not isinstance(cells, csv.Error):
            return cells
    return [line]
