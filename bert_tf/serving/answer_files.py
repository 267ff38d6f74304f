"""Inputs of a model -> its answers -> JSON lines, or a table with further columns.

read_texts    the texts of a file or standard input
num_rows      the number of rows of a file, for progress
answered      the answer to each row, with its `id`
open_output   the file or standard output for the answers
write_lines   writes a line of JSON for each answer
write_table   writes the columns that were read, and columns of answers after them
"""

import codecs
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from absl import logging

from bert_tf import files
from bert_tf.checkpoints.metadata import model_files
from bert_tf.errors import InputError, quoted
from bert_tf.options import Reading
from bert_tf.serving.options import MASK
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import Item, Question, Questions, Row, RowReader
from bert_tf.tables import (
    CONLL,
    JSON,
    JSONL,
    TEXT,
    Columns,
    Format,
    Texts,
    open_table,
    refuse_rows,
)
from bert_tf.tables import Row as TableRow
from bert_tf.terminal import number_of

CELLS = ("label", "applies", "score")  # answers that a cell of a table can hold
UNSURE = "unsure"

# ---------------------------------------------------------------------------- in


def read_texts(
    path: str | None = None,
    *,
    column: str | None = None,
    input_format: str | None = None,
    reading: Reading | None = None,
    skip_bad_rows: bool = False,
) -> Iterator[str]:
    """The texts of a file, or of standard input; an empty line is an empty text.

    Args:
      path: the path of the file, a text a line, or a table or JSON lines; None: standard input.
      column: the column of the texts; None: "text", if the file has such a column.
      input_format: one of `tables.KINDS`; None: what the content shows.
      reading: how its bytes are decoded; None where the user has no such options.
      skip_bad_rows: whether rows that cannot be read are empty texts, with a warning.

    Raises:
      InputError: the file cannot be read, or some rows; the message names all of these.
    """
    columns = Columns({"text": column or "text"}, hint="; --text_a_column names the column")
    texts = Texts(0 if column else 1)
    table = open_table(path, columns, reading=reading, form=input_format or "", texts=texts)
    flaws: list[InputError] = []
    for row in table.rows:
        text = _text_of(row, table.format.kind, columns)
        if isinstance(text, str):
            if skip_bad_rows or not flaws:
                yield text
            continue
        if table.is_live and not skip_bad_rows:
            raise text
        flaws.append(text)
        if skip_bad_rows:
            yield ""
    skipped = "empty texts here"
    refuse_rows(table.source, flaws, skip=skip_bad_rows, hint=columns.hint, skipped=skipped)


def _text_of(row: TableRow, kind: str, columns: Columns) -> str | InputError:
    """The text of a row, or why there is none."""
    if row.flaw:
        return row.flaw
    if kind == TEXT:
        return row.value
    text = row.cells.get("text")
    if kind in (JSONL, JSON):
        column = columns.by_field["text"]
        text = row.value.get(column) if isinstance(row.value, dict) else row.value
    if isinstance(text, str):
        return text
    received = f"{row.place}: {quoted(text)} as the text"
    return InputError(received, "a text", "correct or delete the row")


def num_rows(questions: Questions, path: str | None, reading: Reading | None = None) -> int | None:
    """The number of rows of a local file; None for sentences, remote files and pipes."""
    form = questions.table.format
    if not path or not os.path.isfile(path) or form.kind == CONLL:
        return None
    count = open_table(path, Columns({}), reading=reading, form=form, texts=Texts(1))
    return sum(1 for _ in count.rows) - questions.has_header


# ---------------------------------------------------------------------------- answers


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A question whose texts were read; `is_bad` if they cannot be read, and are empty here."""

    question: Question
    row: Row
    is_bad: bool = False


def answered(
    predictor: Predictor,
    questions: Questions,
    *,
    min_probability: float = 0.0,
    id_key: str = "id",
    skip_bad_rows: bool = False,
) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Yields each row with its answer, and the row's `id` if it has one.

    All values of the answer are None for empty texts, and for bad rows that are skipped.

    Args:
      predictor: the model.
      questions: the rows of a file.
      min_probability: the label of an answer with a lower probability is UNSURE.
      id_key: the key of the id in objects that are not rows of a table.
      skip_bad_rows: whether rows that cannot be read have an empty answer, with a warning.

    Raises:
      InputError: some rows cannot be read (the message names all of them, of a pipe the first); an
        object lacks an `id_key` that is not "id"; the model's answers have no single probability;
        or as from `Predictor.stream`.
    """
    if min_probability and predictor.task != "classification":
        received = f"--min_probability={min_probability} for a model of {predictor.task}"
        raise InputError(received, "a model of one of several labels", "leave it out")
    reader = RowReader(predictor.model.metadata)
    all_asked, to_answer = itertools.tee(_read(reader, questions, skip_bad_rows))
    answers = predictor.stream(asked.row for asked in to_answer)
    num_unmasked = 0
    for asked, answer in zip(all_asked, answers, strict=True):
        is_empty = asked.is_bad or (has_cells(predictor) and _is_empty(asked.row))
        if predictor.task == "fill_mask" and not answer["num_masks"] and not asked.is_bad:
            num_unmasked += 1
        if is_empty:
            answer = dict.fromkeys(answer)
        elif min_probability and answer["probability"] < min_probability:
            answer = answer | {"label": UNSURE}
        yield asked.question, _id_of(asked, id_key) | answer
    if num_unmasked:
        says = "%s without %s: no answer. For vectors of texts give --task=embeddings."
        logging.warning(says, number_of(num_unmasked, "texts"), MASK)


def _read(reader: RowReader, questions: Questions, skip_bad_rows: bool) -> Iterator[Asked]:
    """Yields each question's texts; bad ones are skipped, or the file is refused at its end."""
    table = questions.table
    flaws: list[InputError] = []
    for question in questions.rows:
        try:
            if question.flaw:
                raise question.flaw
            row = reader.read(question.item, question.place)
        except InputError as flaw:
            if table.is_live and not skip_bad_rows:
                raise
            flaws.append(flaw)
            if skip_bad_rows:
                yield Asked(question, reader.empty_row(), is_bad=True)
            continue
        if skip_bad_rows or not flaws:  # after a flaw, rows are only read for the message
            yield Asked(question, row)
    hint = "; --text_a_column and --text_b_column name the columns of the texts"
    skipped = "answered by empty values"
    refuse_rows(table.source, flaws, skip=skip_bad_rows, hint=hint, skipped=skipped)


def has_cells(predictor: Predictor) -> bool:
    """Whether a model's answers fit into cells of a table; empty texts then have empty cells."""
    return not predictor.outputs.keys().isdisjoint(CELLS)


def _is_empty(row: Row) -> bool:
    """Whether no text of a row has a word."""
    return not any(text.strip() for text in row.values())


def _id_of(asked: Asked, id_key: str) -> dict[str, Any]:
    """{"id": ...} for a question that has one, else {}."""
    item = asked.question.item
    key = "id" if isinstance(item, Item) else id_key
    if isinstance(item, Mapping) and key in item:
        return {"id": item[key]}
    if key != "id" and not asked.is_bad:
        received = f"{asked.question.place} without {key!r}"
        raise InputError(received, "an object with this key", "correct --id_column")
    return {}


# ---------------------------------------------------------------------------- out


@contextlib.contextmanager
def open_output(path: str | None, source: str | None, model: str) -> Iterator[BinaryIO]:
    """Opens a file that appears when it is complete; without a path, standard output.

    Args:
      path: the path of the file.
      source: the file that is read; None: standard input, which may be a file too.
      model: the path of the model.

    Raises:
      InputError: the path is that of an input or of the model, no file can be made there, or
        another process is writing it.
    """
    if not path:
        yield sys.stdout.buffer
        return
    path = files.output(path, [source or "/dev/stdin", *model_files(model)])
    with files.published(path) as temporary, files.gfile(temporary).GFile(temporary, "wb") as file:
        yield file


def write_lines(file: BinaryIO, answers: Iterable[Mapping[str, Any]]) -> int:
    """Writes answers as they come, a line of JSON each; returns their number."""
    count = 0
    # Whoever reads standard output waits for each line. (A notebook's has no buffer.)
    is_awaited = file is getattr(sys.stdout, "buffer", None)
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
    questions: Questions,
    answers: Iterable[tuple[Question, Mapping[str, Any]]],
    *,
    kind: str,
    output_file: str,
    encoding: str = "",
    probabilities: bool = False,
) -> int:
    """Writes a table's columns, and columns of answers after them; returns the number of rows.

    Args:
      file: where it is written.
      predictor: the model.
      questions: the rows of the table.
      answers: as from `answered`.
      kind: csv or tsv. Line ends are those of the input; so are the separator of a csv and the
        quotes of a tsv. A csv has a mark of UTF-8 unless the input was plain UTF-8.
      output_file: names the output in messages.
      encoding: the one that was given for the input.
      probabilities: whether to add a column for the probability of each label.

    Raises:
      InputError: the input is no table or has no row; the answers do not fit into cells; or a cell
        of a tsv without quotes has a tab or a line end.
    """
    table = questions.table
    received = f"{output_file} for answers of {predictor.task} to {table.source}"
    expected = "a table with columns and rows, and a model that labels or scores its texts"
    refused = InputError(received, expected, "write JSON lines: name the output .jsonl")
    if not has_cells(predictor) or not table.names:
        raise refused
    labels = predictor.model.metadata["options"].get("labels") or ()
    line_of = _line_writer(table.format, kind, output_file)
    if kind == "csv" and (encoding or files.is_marked(table.source)):
        file.write(codecs.BOM_UTF8)
    count = 0
    for count, (question, answer) in enumerate(answers, 1):
        cells = cells_of(answer, labels, probabilities=probabilities)
        if count == 1:
            added = [_new_name(name, table.names) for name in cells]
            file.write(line_of([*table.names, *added]))
        cells_of_input = question.cells or [""] * len(table.names)
        file.write(line_of([*cells_of_input, *cells.values()]))
    if count == 0:
        raise refused
    return count


def _line_writer(form: Format, kind: str, path: str) -> Callable[[Iterable[Any]], bytes]:
    """A function from cells to a line of the output, with the input's separator and quotes."""
    is_quoted_tsv = form.kind == "tsv" and form.quoted and form.is_sure
    if kind == "csv" or is_quoted_tsv:
        return functools.partial(
            csv_line,
            separator="\t" if kind == "tsv" else form.separator,
            line_end=form.line_end,
            quoting=csv.QUOTE_ALL if form.are_all_quoted else csv.QUOTE_MINIMAL,
        )
    # In a tsv without quotes a carriage return may be part of a cell.
    no_cell = "\t\n" if form.kind == "tsv" else "\t\r\n"
    return functools.partial(tsv_line, path=path, line_end=form.line_end, no_cell=no_cell)


def cells_of(
    answer: Mapping[str, Any], labels: Sequence[str], *, probabilities: bool = False
) -> dict[str, Any]:
    """The cells of an answer by name: label, labels or score; None where there is none.

    Args:
      answer: to one item.
      labels: the model's.
      probabilities: whether to add the probability of each label.
    """
    cells = {name: answer[name] for name in ("label", "probability", "score") if name in answer}
    if "applies" in answer:
        cells = {"labels": ";".join(itertools.compress(labels, answer["applies"] or ()))}
    if probabilities:
        values = answer.get("probabilities") or [None] * len(labels)
        for label, value in zip(labels, values, strict=True):
            cells[f"probability_{label}"] = value
    return cells


def _new_name(name: str, columns: Collection[str]) -> str:
    """The name of a column of answers: `name`, else predicted_`name`, else that with a number."""
    if name not in columns:
        return name
    predicted = f"predicted_{name}"
    new_name = predicted
    number = 1
    while new_name in columns:
        number += 1
        new_name = f"{predicted}_{number}"
    return new_name


def csv_line(
    cells: Iterable[Any], *, separator: str, line_end: str, quoting: int = csv.QUOTE_MINIMAL
) -> bytes:
    """A line of a table with quotes where they are needed; None is an empty cell."""
    line = io.StringIO(newline="")
    # The writer quotes cells with a character of its line end: here both that may end a line.
    writer = csv.writer(line, delimiter=separator, lineterminator="\r\n", quoting=quoting)
    writer.writerow(_texts(cells))
    return (line.getvalue().removesuffix("\r\n") + line_end).encode()


def tsv_line(cells: Iterable[Any], *, path: str, line_end: str, no_cell: str = "\t\r\n") -> bytes:
    """A line of a .tsv, where quotes are text; None is an empty cell.

    Raises:
      InputError: a cell has a character of `no_cell`; `path` names the file.
    """
    texts = _texts(cells)
    for text in texts:
        if re.search(f"[{no_cell}]", text):
            received = f"{quoted(text)} as a cell of {path}"
            raise InputError(received, "cells without tabs and line ends", "name it .csv")
    return ("\t".join(texts) + line_end).encode()


def _texts(cells: Iterable[Any]) -> list[str]:
    return ["" if cell is None else str(cell) for cell in cells]
