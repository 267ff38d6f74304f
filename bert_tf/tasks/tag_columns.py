"""Which column of a file with a word a line has the tags.

    CoNLL-2003  word PoS chunk tag      the last column
    GermEval    number word tag tag     two, of outer and of nested entities: the user must choose
    CoNLL-U     number word ... MISC    name=B-PER within MISC (NorNE), or a column by its name

Columns are counted from 0, as they stand in the file.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.errors import InputError
from bert_tf.heads.schemes import OUTSIDE_ELSEWHERE, TAG, outside_of

CONLL_U = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
MOST_EXAMPLES = 3  # values of a column in a message


class TagColumn(NamedTuple):
    """A column of tags: a cell is a tag, or has it after `key` and =."""

    position: int
    key: str = ""

    def tag(self, cell: str) -> str:
        """The tag in a cell; "" if it has none.

        >>> TagColumn(9, "name").tag("SpaceAfter=No|name=B-PER")
        'B-PER'
        """
        if not self.key:
            return cell
        return _pairs(cell).get(self.key, "")


def _pairs(cell: str) -> dict[str, str]:
    """a=1|b=2 -> {"a": "1", "b": "2"}."""
    parts = (part.partition("=") for part in cell.split("|") if "=" in part)
    return {key: value for key, _, value in parts}


def chosen_column(
    source: str, column: str, width: int, *, names: Sequence[str] = (), flag: str = "label_column"
) -> TagColumn:
    """The column that a flag names: by its number, its name, or a key in MISC.

    Args:
      source: the file, for messages.
      column: the value of the flag.
      width: how many columns the file has.
      names: the names of the columns; by default those of CoNLL-U if there are ten columns.
      flag: the name of the flag; only --label_column may name a key in MISC.

    Raises:
      InputError: there is no such column.
    """
    is_conll_u = width == len(CONLL_U) and not names
    names = names or (CONLL_U if is_conll_u else ())
    if column in names:
        return TagColumn([*names].index(column))
    if column.isdecimal() and int(column) < width:
        return TagColumn(int(column))
    if is_conll_u and not column.isdecimal() and flag == "label_column":
        return TagColumn(width - 1, key=column)
    listed = f", or {', '.join(names)}" if names else ""
    received = f"--{flag}={column} for {source}, which has {width} columns"
    raise InputError(received, f"0 to {width - 1}{listed}", f"correct --{flag}")


def find_tags(source: str, rows: Sequence[Sequence[str]], *, are_counted: bool) -> TagColumn:
    """The column of tags in a file without a header.

    A column fits if its values are tags with B- or I-, and O or what stands for O. The last column
    is taken if it fits, as in CoNLL-2003, or if no column fits. If the first column counts words,
    exactly one column must fit.

    Args:
      source: the file, for messages.
      rows: the columns of each word, equally many.
      are_counted: whether the first column counts the words of each sentence.

    Raises:
      InputError: several columns fit, or none of CoNLL-U's.
    """
    width = len(rows[0])
    fitting = _fitting(rows, first=2 if are_counted else 1)
    last = TagColumn(width - 1)
    is_conll_u = are_counted and width == len(CONLL_U)
    if (not fitting and not is_conll_u) or (last in fitting and not are_counted):
        return last
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        what = f"{len(fitting)} have tags"
        shown = [_shown(rows, column) for column in fitting]
    else:
        what = "none has tags"
        shown = [_shown(rows, TagColumn(number)) for number in range(2, width)]
    received = f"{source}, of whose columns {what}: {'; '.join(shown)}"
    remedy = "add --label_column with its number"
    if is_conll_u:
        remedy += " or its name in CoNLL-U (UPOS), or the key before = in MISC"
    raise InputError(received, "one column of tags", remedy)


def _fitting(rows: Sequence[Sequence[str]], *, first: int) -> list[TagColumn]:
    """The columns that fit, and the keys that fit in columns such as a=1|b=2; from `first` on."""
    candidates = [TagColumn(number) for number in range(first, len(rows[0]))]
    for number in range(first, len(rows[0])):
        candidates += [TagColumn(number, key) for key in _pairs(rows[0][number])]
    fitting = []
    for column in candidates:
        tags = {column.tag(row[column.position]) for row in rows}
        entities = tags - {outside_of(tags), *"Oo"}
        are_typed = all(len(tag) > 1 and TAG.fullmatch(tag) for tag in entities)
        has_outside = bool(tags & {"O", *OUTSIDE_ELSEWHERE})
        if entities and are_typed and has_outside:
            fitting.append(column)
    return fitting


def _shown(rows: Sequence[Sequence[str]], column: TagColumn) -> str:
    """A column's number and first values, for messages."""
    values = dict.fromkeys(column.tag(row[column.position]) for row in rows)
    examples = ", ".join([*values][:MOST_EXAMPLES])
    key = f" ({column.key}=)" if column.key else ""
    return f"{column.position}{key}: {examples}"
