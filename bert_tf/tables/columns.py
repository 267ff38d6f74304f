"""The columns of a table that are read, and their positions in its header."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import InputError, quoted

Column = str | int  # the name in the header, or the position from 0 in a file without one
LONGEST_NAME = 40  # characters of a column's name; a longer cell is a text
# Names of columns of texts in published files.
TEXT_NAME = r"hypothesis|premise|question[12]?|sentence[12]?|text(?:[12]|_[ab])?"
# A cell of the first line that is one of these is the header of a column, not data.
HEADER_WORD = (
    rf"{TEXT_NAME}|category|class|comment|content|gold_label|id|idx|index|labels?|quality|rating|"
    "review|score|sentiment|target|title|tweet"
)
CLOSE = 0.8  # difflib's similarity of names that differ by a letter


class Columns(NamedTuple):
    """The columns to read.

    Attributes:
      by_field: the column of each field: text_a, label, id, ...
      optional: fields whose column the file may lack; their cells are then None.
      positions: the positions at which the original reads fields, for headers that have none of the
        names. Negative positions count from the end.
      headless: the positions of fields in published files without a header. A file is one if its
        first line has a number where the label is; its rows may have two more columns, the sources
        of two texts.
      hint: the end of a remedy: flags that name columns, if there are any.
      keep_empty: whether empty lines of a table are rows, as they may separate sentences.
    """

    by_field: Mapping[str, Column]
    optional: Collection[str] = ()
    positions: Mapping[str, int] = {}
    headless: Mapping[str, int] | None = None
    hint: str = ""
    keep_empty: bool = False

    @property
    def needed(self) -> set[Column]:
        """The columns that a table must have."""
        return {column for field, column in self.by_field.items() if field not in self.optional}

    @property
    def are_names(self) -> bool:
        """Whether the table has a header."""
        return any(isinstance(column, str) for column in self.by_field.values())


def find_columns(place: str, header: Sequence[str], columns: Columns) -> dict[str, int | None]:
    """The position of each column in a header; None for an optional one that is missing.

    Raises:
      InputError: a column is missing, or there are two of its name.
    """
    names = [name.strip() for name in header]
    by_position = _by_position(place, names, columns)
    if by_position is not None:
        return by_position
    for field, column in columns.by_field.items():
        count = names.count(str(column))
        if count > 1 or (count == 0 and field not in columns.optional):
            received = f"{place}: the columns {preview(header)}"
            if not any(header):
                received = f"{place}: empty"
            there_is = count or f"no such column{did_you_mean(str(column), names)}"
            expected = f"a header with one column {column!r} (there is {there_is})"
            remedy = f"check the file, its header, and what separates its columns{columns.hint}"
            raise InputError(received, expected, remedy)
    positions: dict[str, int | None] = {}
    for field, column in columns.by_field.items():
        positions[field] = names.index(str(column)) if column in names else None
    return positions


def _by_position(
    place: str, names: Sequence[str], columns: Columns
) -> dict[str, int | None] | None:
    """The positions that the original reads, if the header has other names; None otherwise."""
    by_field = columns.by_field
    if not columns.positions or len(names) <= max(columns.positions.values()):
        return None
    positions: dict[str, int | None] = {
        field: position % len(names) for field, position in columns.positions.items()
    }
    # A row of data has a number, as id or label, or a long text; a header has neither.
    are_names = not any(name.isdigit() or len(name) > LONGEST_NAME for name in names)
    # A text's name at another position: the file is of another task.
    unread = [name for number, name in enumerate(names) if number not in positions.values()]
    is_of_another_task = any(re.fullmatch(TEXT_NAME, name.lower()) for name in unread)
    has_all = positions.keys() >= by_field.keys() - {*columns.optional}
    has_none = {*by_field.values()}.isdisjoint(names)
    if not (are_names and has_all and has_none and not is_of_another_task):
        return None
    logging.warning("%s: the columns %s, read by position as in the original", place, names)
    return {field: position for field, position in positions.items() if field in by_field}


def did_you_mean(column: str, names: Iterable[str]) -> str:
    """The end of a message: a name that differs from the column by its case or a letter, or ""."""
    folded = {name.casefold(): name for name in names if name}
    alike = difflib.get_close_matches(column.casefold(), folded, n=1, cutoff=CLOSE)
    return f"; did you mean {folded[alike[0]]!r}?" if alike else ""


def is_header(cells: Iterable[str]) -> bool:
    """Whether a cell of a row is a usual name of a column."""
    return any(re.fullmatch(HEADER_WORD, cell.strip().lower()) for cell in cells)


def preview(cells: Iterable[str]) -> str:
    """The beginning of a row, for messages."""
    return quoted(" | ".join(cells))
