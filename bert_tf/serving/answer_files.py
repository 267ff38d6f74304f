"""Inputs of a model -> its answers -> JSON lines, or the columns of a table and more.

read_texts    lines of text, of a file or standard input
num_items     how many items there are, for progress
answered      the answer to each item, with its `id`
open_output   where the answers go
write_lines   a line of JSON for each answer
write_table   the columns that were read, and behind them what is answered
"""

import codecs
import contextlib
import csv
import functools
import io
import itertools
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from absl import logging

from bert_tf import files
from bert_tf.checkpoints.metadata import model_files
from bert_tf.errors import InputError
from bert_tf.options import Reading
from bert_tf.serving.options import MASK, STDIN
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import Item, Row, RowReader, lines_of, num_lines
from bert_tf.terminal import number_of

ANSWERED = ("classification", "multi_label", "regression")  # with a cell or some, unless empty
UNSURE = "unsure"

# ---------------------------------------------------------------------------- in


def read_texts(path: str | None, reading: Reading) -> Iterator[str]:
    """The lines of a file, else of standard input; an empty line is an empty text.

    Raises:
      InputError: the file cannot be read or decoded.
    """
    encoding, errors = reading.encoding, reading.encoding_errors
    if path:
        return files.read_text_lines(path, encoding=encoding, encoding_errors=errors)
    return lines_of(sys.stdin.buffer, STDIN, encoding, errors)


def num_items(items: Iterable[Any], path: str | None) -> int | None:
    """How many items were read from a file, or are to be; None where nothing but reading tells."""
    if isinstance(items, list):
        return len(items)
    return num_lines(path) if path else None


# ---------------------------------------------------------------------------- answers


def answered(
    predictor: Predictor,
    items: Iterable[tuple[str, Any]],
    *,
    min_probability: float = 0.0,
    id_key: str = "id",
) -> Iterator[dict[str, Any]]:
    """The answer to each item, with its `id` if it has one.

    Empty texts have no answer: all values are None.

    Args:
      predictor: the model.
      items: the place of each, for messages, and the item, as of `rows.read_inputs`.
      min_probability: the label of a less probable answer is UNSURE.
      id_key: of the id in objects that are not rows of a table.

    Raises:
      InputError: an object lacks an `id_key` that is not "id", the model's answers have no single
        probability, or as of `Predictor.stream`.
    """
    if min_probability and predictor.task != "classification":
        received = f"--min_probability={min_probability} for a model of {predictor.task}"
        raise InputError(received, "a model of one of several labels", "leave it out")
    reader = RowReader(predictor.model.metadata)
    items, items_to_read = itertools.tee(items)
    read = (reader.read(item, place) for place, item in items_to_read)
    rows, rows_to_answer = itertools.tee(read)
    answers = predictor.stream(rows_to_answer)
    num_unmasked = 0
    for (place, item), row, answer in zip(items, rows, answers, strict=True):
        if predictor.task in ANSWERED and _is_empty(row):
            answer = dict.fromkeys(answer)
        elif min_probability and answer["probability"] < min_probability:
            answer = answer | {"label": UNSURE}
        num_unmasked += predictor.task == "fill_mask" and not answer["num_masks"]
        yield _id_of(item, place, id_key) | answer
    if num_unmasked:
        says = "%s without %s: no answer. For vectors of texts give --task=embeddings."
        logging.warning(says, number_of(num_unmasked, "texts"), MASK)


def _is_empty(row: Row) -> bool:
    """Whether no text of a row has a word."""
    return not any(text.strip() for text in row.values())


def _id_of(item: Any, place: str, id_key: str) -> dict[str, Any]:
    """{"id": ...} for an item that has one, else {}."""
    key = "id" if isinstance(item, Item) else id_key
    if isinstance(item, Mapping) and key in item:
        return {"id": item[key]}
    if key != "id":
        raise InputError(
            f"{place} without {key!r}", "an object with this key", "correct --id_column"
        )
    return {}


# ---------------------------------------------------------------------------- out


@contextlib.contextmanager
def open_output(path: str | None, source: str | None, model: str) -> Iterator[BinaryIO]:
    """Gives a file that appears when it is whole; without a path, standard output.

    Args:
      path: of the file.
      source: the file that is read; None: standard input, which may be a file too.
      model: the path of the model.

    Raises:
      InputError: it is one that is read, no file can be made there, or another process is writing
        it.
    """
    if not path:
        yield sys.stdout.buffer
        return
    path = files.output(path, [source or "/dev/stdin", *model_files(model)])
    with files.published(path) as temporary, files.gfile(temporary).GFile(temporary, "wb") as file:
        yield file


def write_lines(file: BinaryIO, answers: Iterable[Mapping[str, Any]]) -> int:
    """Writes answers as they come, a line of JSON each; returns how many there were."""
    count = 0
    is_awaited = file is getattr(sys.stdout, "buffer", None)  # none in a notebook
    for count, answer in enumerate(answers, 1):  # noqa: B007
        line = json.dumps(answer, ensure_ascii=False) + "\n"
        # A lone surrogate, which JSON may hold and UTF-8 may not, becomes its JSON escape.
        file.write(line.encode("utf-8", "backslashreplace"))
        if is_awaited:
            file.flush()
    return count


def write_table(
    file: BinaryIO,
    predictor: Predictor,
    items: Iterable[tuple[str, Any]],
    answers: Iterable[Mapping[str, Any]],
    *,
    kind: str,
    input_file: str | None,
    output_file: str,
    encoding: str = "",
    probabilities: bool = False,
) -> int:
    """Writes the columns of a table, and behind them what is answered; returns the rows.

    Args:
      file: where it is written.
      predictor: the model.
      items: places and items of the table's rows, as of `rows.read_inputs`.
      answers: one to each.
      kind: csv, with the separator that was read, and a mark of UTF-8 unless the input was plain
        UTF-8; or tsv, without quotes.
      input_file: what was read.
      output_file: names the output in messages.
      encoding: that was given for the input.
      probabilities: also write a column for the probability of each label.

    Raises:
      InputError: the items are no rows of a table, or the answers no cells; or a cell of a tsv has
        a tab or a line end.
    """
    if predictor.task not in ANSWERED or not isinstance(items, list) or not items:
        received = f"{output_file} for answers of {predictor.task} to {input_file}"
        expected = "a table with columns and rows, and a model that labels or scores its texts"
        raise InputError(received, expected, "write JSON lines: name the output .jsonl")
    first: Item = items[0][1]
    labels = predictor.model.metadata["options"].get("labels") or ()
    if kind == "tsv":
        line_of = functools.partial(tsv_line, path=output_file)
    else:
        line_of = functools.partial(csv_line, separator=first.separator)
        if encoding or (input_file and files.is_marked(input_file)):
            file.write(codecs.BOM_UTF8)
    header: list[str] = []
    for (_, item), answer in zip(items, answers, strict=True):
        cells = cells_of(answer, labels, probabilities=probabilities)
        if not header:
            header = [*first.names, *(_new_name(name, first.names) for name in cells)]
            file.write(line_of(header))
        file.write(line_of([*item.cells, *cells.values()]))
    return len(items)


def cells_of(
    answer: Mapping[str, Any], labels: Sequence[str], *, probabilities: bool = False
) -> dict[str, Any]:
    """The cells of an answer by name: label, labels or score; None where there is none.

    Args:
      answer: to one item.
      labels: the model's.
      probabilities: also give the probability of each label.
    """
    cells = {name: answer[name] for name in ("label", "probability", "score") if name in answer}
    if "applies" in answer:
        cells = {"labels": ";".join(itertools.compress(labels, answer["applies"] or ()))}
    if probabilities:
        shares = answer.get("probabilities") or [None] * len(labels)
        cells |= {f"probability_{name}": share for name, share in zip(labels, shares, strict=True)}
    return cells


def _new_name(name: str, columns: Collection[str]) -> str:
    """The name of a column of answers; another one where the table has a column of this name."""
    if name not in columns:
        return name
    name = f"predicted_{name}"
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(new for new in itertools.chain([name], numbered) if new not in columns)


def csv_line(cells: Iterable[Any], *, separator: str) -> bytes:
    """A line of a .csv; None is an empty cell."""
    line = io.StringIO(newline="")
    csv.writer(line, delimiter=separator).writerow(_texts(cells))
    return line.getvalue().encode()


def tsv_line(cells: Iterable[Any], *, path: str) -> bytes:
    """A line of a .tsv, where quotes are text; None is an empty cell.

    Raises:
      InputError: a cell has a tab or a line end; `path` names the file.
    """
    texts = _texts(cells)
    for text in texts:
        if re.search(r"[\t\r\n]", text):
            received = f"{text!r:.80} as a cell of {path}"
            raise InputError(received, "cells without tabs and line ends", "name it .csv")
    return "\t".join(texts).encode() + b"\n"


def _texts(cells: Iterable[Any]) -> list[str]:
    return ["" if cell is None else str(cell) for cell in cells]
