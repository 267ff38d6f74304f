"""Items and lines of a caller -> the model's inputs; its arrays -> answers.

    "a text"                                  {"text": "a text"}
    ("who?", "It was Ann.")                   {"question": "who?", "context": "It was Ann."}
    ("She", ["left.", "slept."])              {"context": "She", "endings": ["left.", "slept."]}

A row of a file, as from `bert_tf.tables`, is one item, even if it is empty, so that there is an
answer for each row:

    text     the line is the text; several texts have tabs between, and a list takes the rest
    table    the texts are in columns: those that the model was trained on, or that the caller names
    jsonl    a JSON string, list or object; its keys may be columns, too
    conll    the words of a sentence are joined

Shapes: B rows, C texts of a list.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import InputError, quoted
from bert_tf.options import Reading
from bert_tf.serving.options import DEFAULT
from bert_tf.tables import (
    CONLL,
    JSON,
    JSONL,
    STDIN,
    TEXT,
    TEXT_NAME,
    Columns,
    Format,
    Table,
    Texts,
    open_table,
    refuse_header,
)
from bert_tf.tables import (
    Row as TableRow,
)
from bert_tf.tasks.word_files import WordFile, are_words, sentences_of
from bert_tf.terminal import number_of
from bert_tf.tokenization.wordpiece import utf8

Row = dict[str, bytes | list[bytes]]  # the texts of one request, in UTF-8


class Item(dict[str, Any]):
    """The texts of a table's row by their names, with the cells of all its columns."""

    cells: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A row of a file as a question to a model.

    Attributes:
      place: the place of the row.
      item: as for `RowReader.read`; None where the row cannot be read.
      flaw: why it cannot be read.
      cells: the cells of all columns, if the file is a table.
    """

    place: str
    item: Any
    flaw: InputError | None = None
    cells: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Questions:
    """The rows of a file as questions to a model; they can be read once."""

    table: Table
    rows: Iterator[Question]
    has_header: bool


# The output with the number of columns that are no padding: the outputs with such columns.
_COUNTED = {
    "num_words": ("words", "labels", "probabilities", "starts", "ends"),
    "num_masks": ("pieces", "probabilities"),
}
MOST_LOOKED_AT = 20  # rows, for texts or single words
_NBEST = ("nbest_answers", "nbest_probabilities", "nbest_starts", "nbest_ends")
_HINT = "; --text_a_column and --text_b_column name the columns of the texts"
# Keys that hold a text in this or another model. Other keys are ignored: id, label, title, ...
_TEXT_KEY = re.compile(rf"{TEXT_NAME}|text_pair|context|endings")


def text_inputs(metadata: Mapping[str, Any]) -> dict[str, bool]:
    """The names of a model's texts, in order, and whether each is a list of texts.

    Args:
      metadata: the metadata of the model, as in export.json.
    """
    specs = metadata["signatures"][DEFAULT]
    return {name: len(specs[name]["shape"]) > 1 for name in metadata["texts"]}


class RowReader:
    """Reads the texts of one model from items.

    Attributes:
      is_list_by_name: the names of the texts, in order, and whether each is a list of texts.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        """Takes the names and shapes of the texts from `metadata`, as in export.json."""
        self.is_list_by_name = text_inputs(metadata)

    def read(self, item: Any, place: str) -> Row:
        """Reads the texts of an item.

        Args:
          item: a text for a model of single texts; otherwise texts in the model's order, or a
            mapping with their names. Its other keys are ignored, unless they hold another text.
          place: names the item in messages.

        Raises:
          InputError: the item has another form, lacks a text or has one too many.
        """
        if isinstance(item, Mapping):
            values = self._values_of(item, place)
        elif isinstance(item, list | tuple):
            values = [*item]
        else:
            values = [item]
            if not isinstance(item, str | bytes):
                raise self._error(f"{place}: {_shown(item)}")
        if len(values) != len(self.is_list_by_name):
            raise self._error(f"{place}: {_shown(item)}")
        row: Row = {}
        for (name, is_list), value in zip(self.is_list_by_name.items(), values, strict=True):
            texts = value if is_list and isinstance(value, list | tuple) else [value]
            are_texts = texts and all(isinstance(text, str | bytes) for text in texts)
            if isinstance(value, str | bytes) == is_list or not are_texts:  # no text for a list
                raise self._error(f"{place}, {name}: {_shown(value)}")
            row[name] = [utf8(text) for text in texts] if is_list else utf8(value)
        return row

    def _values_of(self, item: Mapping[Any, Any], place: str) -> list[Any]:
        """The values of a mapping under the names of the texts; raises `InputError` for others."""
        if missing := [name for name in self.is_list_by_name if name not in item]:
            keys = ", ".join(map(str, item)) or "no key"
            raise self._error(f"{place} without {' and '.join(missing)}, with {keys}")
        further_texts = []
        for key in item.keys() - self.is_list_by_name:
            if isinstance(key, str) and _TEXT_KEY.fullmatch(key.lower()) and item[key]:
                further_texts.append(key)
        if further_texts:
            listed = " and ".join(sorted(further_texts))
            raise self._error(f"{place} with {listed}, another text")
        return [item[name] for name in self.is_list_by_name]

    def empty_row(self) -> Row:
        """A row whose texts are all empty."""
        row: Row = {}
        for name, is_list in self.is_list_by_name.items():
            row[name] = [b"", b""] if is_list else b""  # a list is a pair
        return row

    def _error(self, received: str) -> InputError:
        remedy = "give the model's texts alone, as strings, under these names or in this order"
        if [*self.is_list_by_name] == ["text"]:
            remedy += "; a model of pairs is opened with pairs=True (--pairs)"
        return InputError(received, _object(self.is_list_by_name), remedy)


_TEXT, _LIST = '"..."', '["...", "..."]'  # in messages


def _object(inputs: Mapping[Any, bool]) -> str:
    """The JSON object with these texts, for messages."""
    pairs = (f'"{name}": {_LIST if is_list else _TEXT}' for name, is_list in inputs.items())
    return "{" + ", ".join(pairs) + "}"


def _shown(value: Any) -> str:
    return f"{quoted(value, 60)} ({type(value).__name__})"


def size_of(row: Row) -> int:
    """The number of bytes of a row's texts."""
    size = 0
    for value in row.values():
        size += len(value) if isinstance(value, bytes) else sum(map(len, value))
    return size


def shape_of(row: Row) -> tuple[int, ...]:
    """The lengths of a row's lists, which must be equal within a batch."""
    return tuple(len(value) for value in row.values() if isinstance(value, list))


# ---------------------------------------------------------------------------- answers


def answers_of(outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Arrays [B, ...] -> the answer to each row: plain values without padding.

    A float32 becomes the shortest number that is the same float32.
    """
    columns = zip(*map(plain, outputs.values()), strict=True)
    rows = [dict(zip(outputs, values, strict=True)) for values in columns]
    for row in rows:
        for counter, names in _COUNTED.items():
            if counter in row:
                row |= {name: row[name][: row[counter]] for name in names}
        if _NBEST[0] in row:
            num_answers = _num_answers(row["nbest_answers"], row["nbest_probabilities"])
            row |= {name: row[name][:num_answers] for name in _NBEST}
    return rows


def _num_answers(texts: Sequence[str], probabilities: Sequence[float]) -> int:
    """The number of listed answers without the padding at the end of the row.

    An answer within the row may be empty or have the probability 0.
    """
    number = len(texts)
    while number and not texts[number - 1] and not probabilities[number - 1]:
        number -= 1
    return number


def plain(array: np.ndarray) -> list:
    """An array for JSON; a float32 becomes the shortest number that is the same float32."""
    if array.dtype == object:
        return _decoded(array.tolist())
    if array.dtype == np.float32:
        return array.astype("U").astype(np.float64).tolist()
    return array.tolist()


def _decoded(value: bytes | list) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_decoded(element) for element in value]


# ---------------------------------------------------------------------------- files


def read_questions(
    path: str | None,
    metadata: Mapping[str, Any],
    *,
    input_format: str | None = None,
    given: Sequence[str | None] = (),
    id_column: str = "id",
    sentence_column: str | None = None,
    reading: Reading | None = None,
) -> Questions:
    """The rows of a file or of standard input, each as it is read.

    Args:
      path: the path of the file; None: standard input.
      metadata: the metadata of the model, as in export.json.
      input_format: one of `tables.KINDS`; None: what the content shows.
      given: columns of the model's texts, as for `columns_of`.
      id_column: the column whose cells are passed on as `id`.
      sentence_column: in a table with a word a row, the column that says where
        a sentence begins; None: empty rows separate sentences.
      reading: how its bytes are decoded; None where the user has no such options.

    Raises:
      InputError: the file cannot be read with these options.
    """
    columns = columns_of(metadata, given)
    if any(given) and input_format in (TEXT, CONLL):
        remedy = "add --input_format, or leave out --text_a_column"
        received = f"columns, but {input_format} in {path or STDIN}"
        raise InputError(received, "csv, tsv or jsonl", remedy)
    inputs = text_inputs(metadata)
    tags = metadata["options"]["labels"] if metadata["task"] == "token_labels" else None
    are_tagged = functools.partial(are_words, names=tags) if tags else None
    table_columns = _with_id(columns, id_column)
    if tags:
        table_columns = _with_sentence(table_columns, sentence_column)
    has_columns = any(given) or sentence_column is not None
    texts = Texts(0 if has_columns else len(inputs), are_tagged)
    table = open_table(path, table_columns, reading=reading, form=input_format or "", texts=texts)
    if tags and table.format.is_table:
        table = _by_sentence(table, columns["text"], sentence_column)
    elif sentence_column is not None:
        received = f"--sentence_column={sentence_column} with {table.source}"
        expected = "a table with a word a row, and a model of tags"
        raise InputError(received, expected, "leave it out")
    rows = table.rows
    if table.names and not table_columns.are_names:
        rows = refuse_header(rows, hint=_HINT)
    kind = table.format.kind
    questions = (_question(row, kind, inputs, columns) for row in rows)
    has_header = bool(table.names) and table_columns.are_names
    return Questions(table, questions, has_header)


def _with_id(columns: Mapping[str, str | int], id_column: str) -> Columns:
    """The columns to read; with the column of ids if the table has a header."""
    by_field = dict(columns)
    if all(isinstance(column, str) for column in columns.values()):
        by_field = {"id": id_column, **columns}
    may_lack = {"id"} if id_column == "id" and "id" not in columns.values() else set()
    return Columns(by_field, may_lack, hint=_HINT)


def _with_sentence(columns: Columns, sentence: str | None) -> Columns:
    """The columns to read for a model of words, with the column of sentences if there is one."""
    by_field = dict(columns.by_field)
    if sentence is not None:
        if not columns.are_names and not sentence.isdecimal():
            received = f"--sentence_column={sentence} for a model of files without a header"
            raise InputError(received, "a position from 0", "give the column by its position")
        by_field["sentence"] = sentence if columns.are_names else int(sentence)
    return columns._replace(by_field=by_field, keep_empty=True)


def _question(
    row: TableRow, kind: str, inputs: Mapping[str, bool], columns: Mapping[str, str | int]
) -> Question:
    """The question of a row; one with a flaw if the row cannot be read.

    Args:
      row: the row of a file.
      kind: the kind of the file, one of `tables.KINDS`.
      inputs: the names of the texts, and whether each is a list.
      columns: the column of each text.
    """
    if row.flaw:
        return Question(row.place, None, row.flaw, row.all_cells)
    try:
        item = _item(row, kind, inputs, columns)
        return Question(row.place, item, None, row.all_cells)
    except InputError as flaw:
        return Question(row.place, None, flaw, row.all_cells)


def _item(
    row: TableRow, kind: str, inputs: Mapping[str, bool], columns: Mapping[str, str | int]
) -> Any:
    """The item of a row of a file; arguments as for `_question`."""
    if kind in (JSONL, JSON):
        item = _of_json(columns, row.value)
        return _with_words_joined(item, inputs)
    if kind == CONLL:
        return {"text": " ".join(row.cells["words"])}
    if kind == TEXT:
        return row.value if len(inputs) == 1 else _of_tabs(inputs, row)
    return Item({name: cell for name, cell in row.cells.items() if cell is not None})


def _by_sentence(table: Table, column: str | int, sentence: str | None) -> Table:
    """A table of single words as its sentences; a table of texts without its empty rows."""
    first_rows = list(itertools.islice(table.rows, 2 if table.is_live else MOST_LOOKED_AT))
    rows = itertools.chain(first_rows, table.rows)
    filled = [row for row in first_rows if row.flaw or row.cells]
    if sentence is None and not _are_single_words(filled, "text"):
        return dataclasses.replace(table, rows=(row for row in rows if row.flaw or row.cells))
    logging.info("%s has a word a row: its sentences are answered", table.source)
    file = WordFile(str(column), "", sentence, has_header=isinstance(column, str), hint=_HINT)
    sentences = sentences_of(map(_word, rows), file, table.source)
    return dataclasses.replace(table, format=Format(CONLL), names=(), rows=sentences)


def _word(row: TableRow) -> TableRow:
    """A row of a table with a word, with the cells that rows of files of words have."""
    cells = {"words": row.cells.get("text"), "sentence": row.cells.get("sentence")}
    return dataclasses.replace(row, cells=cells)


def _with_words_joined(item: Any, inputs: Mapping[str, bool]) -> Any:
    """An object of JSON, in which a list of words in the place of a text is joined to the text."""
    if not isinstance(item, dict):
        return item
    joined = {}
    for name, is_list in inputs.items():
        words = item.get(name)
        are_words = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if are_words and not is_list:
            joined[name] = " ".join(words)
    return item | joined


def _are_single_words(rows: Sequence[TableRow], column: str) -> bool:
    """Whether rows of a table have single words rather than texts; `column` has them."""
    texts = [row.cells.get(column) or "" for row in rows]
    return len(texts) > 1 and not any(len(text.split()) > 1 for text in texts)


def columns_of(
    metadata: Mapping[str, Any], given: Sequence[str | None] = ()
) -> dict[str, str | int]:
    """The column of each text of a model: given, else as it was trained, else the text's name.

    Columns of a model that was trained on files without a header are positions from 0.

    Raises:
      InputError: there are more columns than texts, two are the same, or one is given for a list.
    """
    inputs = text_inputs(metadata)
    trained = metadata.get("columns", ())
    defaults = tuple(trained if len(trained) == len(inputs) else inputs)
    are_positions = int in map(type, defaults)
    columns: list[str | int] = []
    for given_column, default in itertools.zip_longest(given, defaults):
        column = given_column or default
        if are_positions and str(column).isdecimal():
            columns.append(int(column))
        elif column is not None:
            columns.append(column)
    if len({*columns}) != len(inputs) or (any(given) and any(inputs.values())):
        received = f"the columns {', '.join(map(str, columns))}"
        expected = f"one of its own for each of the model's texts: {', '.join(inputs)}"
        raise InputError(received, expected, "correct --text_a_column and --text_b_column")
    return dict(zip(inputs, columns, strict=True))


def _of_tabs(inputs: Mapping[str, bool], row: TableRow) -> dict[str, Any]:
    """The single texts of a line, then the list of texts if there is one."""
    names = [name for name, is_list in inputs.items() if not is_list]
    lists = [name for name, is_list in inputs.items() if is_list]
    values = row.value.split("\t")
    rest = values[len(names) :]
    if len(values) < len(names) or bool(rest) != bool(lists):
        received = f"{row.place}: {quoted(row.value, 60)} ({number_of(len(values), 'columns')})"
        expected = f"with tabs between: {', '.join(inputs)}"
        raise InputError(received, expected, "correct the line, or give another --input_format")
    return dict(zip(names, values, strict=False)) | dict.fromkeys(lists, rest)


def _of_json(columns: Mapping[str, str | int], value: Any) -> Any:
    """A value of JSON; in an object with all `columns` they are renamed to the texts' names."""
    if not isinstance(value, dict) or not value.keys() >= {*columns.values()}:
        return value
    others = {key: cell for key, cell in value.items() if key not in columns.values()}
    return others | {name: value[column] for name, column in columns.items()}
