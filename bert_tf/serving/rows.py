"""What a caller gives and gets: items or lines -> arrays for the model, its arrays -> answers.

    "a text"                                  {"text": "a text"}
    ("who?", "It was Ann.")                   {"question": "who?", "context": "It was Ann."}
    ("She", ["left.", "slept."])              {"context": "She", "endings": ["left.", "slept."]}

A line of a file is one item, even if it is empty, so that answers and lines correspond:

    text     the line is the text
    tsv      texts with tabs between; a list of texts takes all columns that are left
    jsonl    a JSON string, list or object

A csv or tsv file may have the texts in columns: those that the model was trained on, or other ones
that the caller names. So may a JSON object. The words of a file in CoNLL's format are joined.

Shapes: B rows, C texts of a list.
"""

import functools
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError, shortened
from bert_tf.heads.tags import normal_tags, tags_in
from bert_tf.serving.options import DEFAULT, STDIN
from bert_tf.tasks import examples
from bert_tf.terminal import number_of
from bert_tf.tokenization.wordpiece import utf8

Row = dict[str, bytes | list[bytes]]  # the texts of one request, in UTF-8


class Item(dict[str, Any]):
    """The texts of a table's row by their names; and all of the row, as of `examples.Row`."""

    names: Sequence[str]
    cells: Sequence[str]
    separator: str


# The output that counts a row's real columns: the outputs with such columns.
_COUNTED = {
    "num_words": ("words", "labels", "probabilities", "starts", "ends"),
    "num_masks": ("pieces", "probabilities"),
}
_NBEST = ("nbest_answers", "nbest_probabilities", "nbest_starts", "nbest_ends")
_HINT = "; --text_a_column and --text_b_column name the columns of the texts"
# Keys that hold a text in this or another model. Other keys are ignored: id, label, title, ...
_TEXT_KEY = re.compile(rf"{examples.TEXT_NAME}|text_pair|context|endings")


def text_inputs(metadata: Mapping[str, Any]) -> dict[str, bool]:
    """The names of a model's texts, in order, and whether each is a list of texts.

    Args:
      metadata: of the model, as in export.json.
    """
    specs = metadata["signatures"][DEFAULT]
    return {name: len(specs[name]["shape"]) > 1 for name in metadata["texts"]}


class RowReader:
    """Reads what callers give to one model.

    Attributes:
      is_list: the names of the texts, in order, and whether each is a list of texts.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        """Takes the names and shapes of the texts from `metadata`, as in export.json."""
        self.is_list = text_inputs(metadata)

    def read(self, item: Any, place: str) -> Row:
        """Reads the texts of an item.

        Args:
          item: a text for a model of single texts; otherwise texts in the order of `is_list`, or a
            mapping with these names. Its other keys are ignored, but another text is refused.
          place: names the item in messages.

        Raises:
          InputError: it is something else.
        """
        values = item if isinstance(item, list | tuple) else [item]
        if isinstance(item, Mapping):
            if missing := [name for name in self.is_list if name not in item]:
                found = ", ".join(map(str, item)) or "no key"
                raise self._error(f"{place} without {' and '.join(missing)}, with {found}")
            others = {k for k in item.keys() - self.is_list if isinstance(k, str) and item[k]}
            if more := sorted(k for k in others if _TEXT_KEY.fullmatch(k.lower())):
                raise self._error(f"{place} with {' and '.join(more)}, another text")
            values = [item[name] for name in self.is_list]
        elif len(values) != len(self.is_list) or not isinstance(item, str | bytes | list | tuple):
            raise self._error(f"{place}: {_shown(item)}")
        row: Row = {}
        for (name, is_list), value in zip(self.is_list.items(), values, strict=True):
            texts = value if is_list and isinstance(value, list | tuple) else [value]
            are_texts = texts and all(isinstance(text, str | bytes) for text in texts)
            if isinstance(value, str | bytes) == is_list or not are_texts:
                raise self._error(f"{place}, {name}: {_shown(value)}")
            row[name] = [utf8(text) for text in texts] if is_list else utf8(value)
        return row

    def _error(self, received: str) -> InputError:
        remedy = "give the model's texts alone, as strings, under these names or in this order"
        if [*self.is_list] == ["text"]:
            remedy += "; a model of pairs is opened with pairs=True (--pairs)"
        return InputError(received, _object(self.is_list), remedy)


_TEXT, _LIST = '"..."', '["...", "..."]'  # in messages


def _object(inputs: Mapping[Any, bool]) -> str:
    """The JSON object with these texts."""
    pairs = (f'"{name}": {_LIST if is_list else _TEXT}' for name, is_list in inputs.items())
    return "{" + ", ".join(pairs) + "}"


def _shown(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


def size_of(row: Row) -> int:
    """The number of bytes of a row's texts."""
    return sum(len(v) if isinstance(v, bytes) else sum(map(len, v)) for v in row.values())


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
            # A probability of 0 may be a real answer's: only the end of the row is padding.
            both = zip(row[_NBEST[0]], row[_NBEST[1]], strict=True)
            used = [number for number, (text, share) in enumerate(both, 1) if text or share]
            row |= {name: row[name][: max(used, default=0)] for name in _NBEST}
    return rows


def plain(array: np.ndarray) -> list:
    """Values for JSON; of float32 the shortest numbers that are the same."""
    if array.dtype == object:
        return _decoded(array.tolist())
    if array.dtype == np.float32:
        return array.astype("U").astype(np.float64).tolist()
    return array.tolist()


def _decoded(value: bytes | list) -> Any:
    return value.decode() if isinstance(value, bytes) else [_decoded(one) for one in value]


# ---------------------------------------------------------------------------- files


def read_inputs(
    path: str | None,
    metadata: Mapping[str, Any],
    *,
    input_format: str | None = None,
    given: Sequence[str | None] = (),
    id_column: str = "id",
    encoding: str = "",
) -> Iterable[tuple[str, Any]]:
    """The place and the item of each row of a file, a list, or line of it, as they are read.

    Args:
      path: of the file; None: standard input.
      metadata: of the model, as in export.json.
      input_format: one of INPUT_FORMATS; None: see `format_of`.
      given: columns of the model's texts, as for `columns_of`.
      id_column: of a table, whose cells are passed on as `id`.
      encoding: of a file; "" for UTF-8, or UTF-16 with its mark.

    Raises:
      InputError: the file cannot be read so.
    """
    kind, columns = input_format or format_of(path, metadata), columns_of(metadata, given)
    if any(given) and kind in ("text", "conll"):
        remedy = "add --input_format, or leave out --text_a_column"
        raise InputError(f"columns, but {kind} in {path or STDIN}", "csv, tsv or jsonl", remedy)
    has_columns = any(given) or bool(path and kind == "tsv" and is_table(path, columns))
    if kind in ("csv", "conll") or (kind == "tsv" and has_columns):
        if not path:
            remedy = "name it with --input_file, or give JSON lines"
            raise InputError(f"{kind} with columns on {STDIN}", "a file", remedy)
        logging.info("%s is read as %s with columns", path, kind)
        return [*read_table(path, columns, kind, id_column=id_column, encoding=encoding)]
    stream = lines_of(sys.stdin.buffer, STDIN, encoding)
    lines = files.read_text_lines(path, encoding=encoding) if path else stream
    told = {"input_format": kind, "name": path or STDIN, "columns": columns}
    return read_items(lines, metadata, **told, has_columns=has_columns)


def format_of(path: str | None, metadata: Mapping[str, Any]) -> str:
    """The format of a file: by its ending, otherwise by its tags, or the texts of the model."""
    ending = os.path.splitext(path or "")[1].lower()
    known = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".conll": "conll"}
    if ending not in known and path and metadata["task"] == "token_labels":
        return "conll" if _has_tags(path, metadata["options"]["labels"]) else "text"
    return known.get(ending, "text" if len(metadata["texts"]) == 1 else "tsv")


def _has_tags(path: str, labels: Sequence[str]) -> bool:
    """Whether the first two lines of a file are words with tags of a model, in any scheme."""
    lines = (line.split() for line in files.read_text_lines(path))
    first = [words for words in itertools.islice(filter(None, lines), 2) if len(words) > 1]
    tags = itertools.chain(*(tags_in(labels, normal_tags(one[-1:])) for one in first))
    return len(first) == 2 and {*tags} <= {*labels}


def columns_of(
    metadata: Mapping[str, Any], given: Sequence[str | None] = ()
) -> dict[str, str | int]:
    """The column of each text of a model: given, else as it was trained, else its own name.

    Those of a model that was trained on files without a header are positions from 0.

    Raises:
      InputError: there are more than texts, two are the same, or one is given for a list.
    """
    inputs = text_inputs(metadata)
    trained = metadata.get("columns", ())
    own = tuple(trained if len(trained) == len(inputs) else inputs)
    chosen = [one or column for one, column in itertools.zip_longest(given, own)]
    is_place = str.isdecimal if int in map(type, own) else lambda _: False
    columns = [int(c) if is_place(str(c)) else c for c in chosen if c is not None]
    if len({*columns}) != len(inputs) or (any(given) and any(inputs.values())):
        received = f"the columns {', '.join(map(str, columns))}"
        expected = f"one of its own for each of the model's texts: {', '.join(inputs)}"
        raise InputError(received, expected, "correct --text_a_column and --text_b_column")
    return dict(zip(inputs, columns, strict=True))


def is_table(path: str, columns: Mapping[str, str | int]) -> bool:
    """Whether a tsv file has these columns, rather than the texts alone.

    Raises:
      InputError: its first line is a header with other names.
    """
    first = next(files.read_text_lines(path), "")
    cells = [cell.strip() for cell in first.split("\t")]
    known = range(len(cells)) if _are_positions(columns) else cells
    if {*columns.values()} <= {*known}:
        return True
    row = examples.Row(place(path, 1), dict(enumerate(cells)))
    return not [*examples.refuse_header([row], hint=_HINT)]


def _are_positions(columns: Mapping[str, str | int]) -> bool:
    return any(isinstance(column, int) for column in columns.values())


def read_table(
    path: str,
    columns: Mapping[str, str | int],
    file_format: str,
    *,
    id_column: str = "id",
    encoding: str = "",
) -> Iterator[tuple[str, Item]]:
    """The place and the item of each row, or in CoNLL's format of each sentence.

    The cells of `id_column` are passed on as `id`.

    Raises:
      InputError: the file lacks a column, or has a broken row.
    """
    by_field = {**({} if _are_positions(columns) else {"id": id_column}), **columns}
    may_lack = {"id"} if id_column == "id" and "id" not in columns.values() else ()
    wanted = examples.Columns(by_field, may_lack, {}, hint=_HINT)
    rows = examples.read_rows(path, file_format, wanted, encoding=encoding)
    for row in examples.refuse_header(rows, hint=_HINT) if _are_positions(columns) else rows:
        if row.flaw:
            raise row.flaw
        cells = row.cells
        if file_format == "conll":
            cells = {"text": " ".join(cells["words"])}
        item = Item({name: cell for name, cell in cells.items() if cell is not None})
        item.names, item.cells, item.separator = row.names, row.all_cells, row.separator
        yield row.place, item


def lines_of(
    stream: BinaryIO, name: str, encoding: str = "", encoding_errors: str = "strict"
) -> Iterator[str]:
    """The lines of a stream, each as soon as it arrives; see `files.text_lines_of`."""
    blocks = iter(lambda: stream.readline(files.READ_BYTES), b"")
    return files.text_lines_of(blocks, name, encoding=encoding, encoding_errors=encoding_errors)


def read_items(
    lines: Iterable[str],
    metadata: Mapping[str, Any],
    *,
    input_format: str,
    name: str,
    columns: Mapping[str, str | int] = MappingProxyType({}),
    has_columns: bool = False,
) -> Iterator[tuple[str, Any]]:
    """The place and the item of each line.

    Args:
      lines: with their line ends.
      metadata: of the model, as in export.json.
      input_format: text, tsv or jsonl.
      name: of the file, for messages.
      columns: other keys of the texts in JSON objects, as of `columns_of`.
      has_columns: whether every line must be an object with these keys.

    Raises:
      InputError: a line cannot be parsed; the message names it.
    """
    inputs = text_inputs(metadata)
    keys = dict(zip(columns.values(), inputs.values(), strict=True)) if has_columns else inputs
    of_json = functools.partial(_of_json, columns, has_columns)
    parse, expected = {
        "text": (str, ""),
        "tsv": (functools.partial(_of_tsv, inputs), f"with tabs between: {', '.join(inputs)}"),
        "jsonl": (of_json, f"JSON with each key once, such as {_object(keys)}"),
    }[input_format]
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        try:
            item = parse(text)
        except (ValueError, RecursionError) as error:
            shown = f"{shortened(repr(text), 60)} ({error})"
            remedy = "correct the line, or give another --input_format"
            raise InputError(f"{place(name, number)}: {shown}", expected, remedy) from None
        yield place(name, number), item


def _of_tsv(inputs: Mapping[str, bool], text: str) -> dict[str, Any]:
    """The single texts of a line, then the list of texts if there is one."""
    names = [name for name, is_list in inputs.items() if not is_list]
    lists = [name for name, is_list in inputs.items() if is_list]
    values = text.split("\t")
    rest = values[len(names) :]
    if len(values) < len(names) or bool(rest) != bool(lists):
        raise ValueError(number_of(len(values), "columns"))
    return dict(zip(names, values, strict=False)) | dict.fromkeys(lists, rest)


def _of_json(columns: Mapping[str, str | int], has_columns: bool, text: str) -> Any:
    """The value of a line; of an object with all `columns` these are under the texts' names."""
    item = json.loads(text, object_pairs_hook=files.each_key_once)
    if isinstance(item, dict) and item.keys() >= {*columns.values()}:
        others = {key: value for key, value in item.items() if key not in columns.values()}
        return others | {name: item[column] for name, column in columns.items()}
    if has_columns:
        raise ValueError(f"without {' and '.join(map(str, columns.values()))}")
    return item


def num_lines(path: str) -> int | None:
    """How many lines a local file has; None for a pipe, which is read once, or a remote file."""
    if not os.path.isfile(path):
        return None
    count, last = 0, b"\n"
    for last in files.read_blocks(path):
        count += last.count(b"\n")
    return count + (not last.endswith((b"\n", b"\n\0")))  # "\n\0" of UTF-16


def place(name: str, number: int) -> str:
    """Names a line in messages."""
    return f"{name}, line {number}"
