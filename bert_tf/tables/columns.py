"""Which columns of a table are read, and where they are in its header."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import InputError, quoted

Column = str | int  # the name in the header, or the position from 0 in a file without one
LONGEST_NAME = 40  # of a column
# Names of columns of texts in published files.
TEXT_NAME = r"hypothesis|premise|question[12]?|sentence[12]?|text(?:[12]|_[ab])?"
# A cell of the first line that is one of these is the header of a column, not data.
HEADER_WORD = (
    rf"{TEXT_NAME}|category|class|comment|content|gold_label|id|idx|index|labels?|quality|rating|"
    "review|score|sentiment|target|title|tweet"
)
CLOSE = 0.8  # how alike a name is that differs by a letter


class Columns(NamedTuple):
    """The columns to read.

    Attributes:
      by_field: text_a, label, id, ... with the column of each.
      optional: fields whose column the file may lack; their cells are then None.
      positions: of fields, where the original reads them; used if the header has none of the names.
        Negative positions count from the end.
      headless: of fields, in published files without a header, whose first line has a number where
        the label is; some rows may have two columns more, the sources of two texts.
      hint: the end of a remedy: flags that name columns, if there are any.
      keep_empty: whether empty lines of a table are rows: they may part sentences.
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
        return {c for field, c in self.by_field.items() if field not in self.optional}

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
    wanted = columns.by_field.items()
    return {field: names.index(str(c)) if c in names else None for field, c in wanted}


def _by_position(
    place: str, names: Sequence[str], columns: Columns
) -> dict[str, int | None] | None:
    """The positions that the original reads, in a header of other names; None: by the names."""
    wanted = columns.by_field
    if not columns.positions or len(names) <= max(columns.positions.values()):
        return None
    positions: dict[str, int | None] = {
        field: position % len(names) for field, position in columns.positions.items()
    }
    # Data have numbers, as ids or labels, or long texts; these are a header of other names. A
    # text's name in another column is that of another task's file.
    are_names = not any(name.isdigit() or len(name) > LONGEST_NAME for name in names)
    others = [name for at, name in enumerate(names) if at not in positions.values()]
    is_of_others = any(re.fullmatch(TEXT_NAME, name.lower()) for name in others)
    has_all = positions.keys() >= wanted.keys() - {*columns.optional}
    has_none = {*wanted.values()}.isdisjoint(names)
    if not (are_names and has_all and has_none and not is_of_others):
        return None
    logging.warning("%s: the columns %s, read by position as in the original", place, names)
    return {field: at for field, at in positions.items() if field in wanted}


def did_you_mean(column: str, names: Iterable[str]) -> str:
    """The end of a message: the name that differs from the column by its case or a letter."""
    folded = {name.casefold(): name for name in names if name}
    alike = difflib.get_close_matches(column.casefold(), folded, 1, CLOSE)
    return f"; did you mean {folded[alike[0]]!r}?" if alike else ""


def is_header(cells: Iterable[str]) -> bool:
    """Whether a row has a cell that is the usual name of a column."""
    return any(re.fullmatch(HEADER_WORD, cell.strip().lower()) for cell in cells)


def preview(cells: Iterable[str]) -> str:
    """The beginning of a row, for messages."""
    return quoted(" | ".join(cells))
