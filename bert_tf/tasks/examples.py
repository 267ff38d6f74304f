"""Rows -> examples: which columns of a file, or features of a dataset, hold texts and labels.

    TextColumns     a text or a pair             -> Example
    ChoiceColumns   a beginning, several endings -> ChoiceExample
    WordColumns     the words of a sentence      -> WordsExample

Each layout reads a file of its format, or the dicts of a dataset under the same names. What it
cannot use it refuses, naming file and line.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.tasks.labels import Label, Labels
from bert_tf.tasks.tables import Column, Row, read_conll, read_rows, refuse_header

# Whether the examples of a file have labels: they must, they may, or what stands there is none.
REQUIRED, OPTIONAL, NONE = "required", "optional", "none"


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair. guid is the id in the file, or the number of the example from 0."""

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A beginning and several endings, as the pairs (beginning, ending) that are scored."""

    guid: str
    pairs: tuple[tuple[str, str], ...]
    label: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WordsExample:
    """A sentence in words, with a tag for each."""

    guid: str
    words: tuple[str, ...]
    label: tuple[str, ...] | None = None


AnyExample = Example | ChoiceExample | WordsExample


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns:
    """Texts in columns.

    Attributes:
      text_a, text_b, label, id: columns: names, or positions in a file without a header. text_b
        is None for single texts, label and id where there is none.
      file_format: tsv, csv or jsonl.
      only: a column, and the value that it must have; other rows are passed over.
      id_required: whether the column of the ids must be there.
      positions: of text_a, text_b and label: where the original reads them, for files whose
        header has other names.
      skip_flawed: leave out, with a warning, labelled rows with an empty text or another number
        of columns than the header, for published files that have such. Rows without labels are
        to be predicted, and none may be lost: there an empty text is kept.
    """

    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    id: Column | None = None
    file_format: str = "tsv"
    only: tuple[Column, str] | None = None
    id_required: bool = False
    skip_flawed: bool = False
    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[Example]:
        """The examples of a file.

        Raises:
          InputError: there is none, or one that cannot be used.
        """
        columns = self._columns(labelled)
        rows = read_rows(
            path,
            self.file_format,
            list(columns.values()),
            optional=self._optional(labelled),
            skip_broken=self.skip_flawed and labelled == REQUIRED,
            positions={columns[role]: at for role, at in self.positions.items() if role in columns},
        )
        if self.file_format != "jsonl" and isinstance(self.text_a, int):
            rows = _without_header(rows, list(columns), labels)
        return self._examples(path, rows, labels, labelled)

    def from_dicts(
        self, source: str, dicts: Iterable[Mapping], labels: Labels, *, labelled: str = REQUIRED
    ) -> list[Example]:
        """The examples of a dataset of dicts, whose keys are the columns; `source` for messages."""
        columns = list(self._columns(labelled).values())
        rows = _rows_of(source, dicts, columns, self._optional(labelled))
        return self._examples(source, rows, labels, labelled)

    def _columns(self, labelled: str) -> dict[str, Column]:
        """The columns to be read, by what is in them."""
        columns = {"text_a": self.text_a, "text_b": self.text_b, "id": self.id}
        columns["label"] = None if labelled == NONE else self.label
        columns["only"] = self.only[0] if self.only else None
        return {role: column for role, column in columns.items() if column is not None}

    def _optional(self, labelled: str) -> set[Column]:
        optional = set() if self.id is None or self.id_required else {self.id}
        return optional | (
            {self.label} if labelled == OPTIONAL and self.label is not None else set()
        )

    def _examples(self, source: str, rows: Iterable[Row], labels: Labels, labelled: str) -> list:
        roles, ids, seen = list(self._columns(labelled)), _Ids(), set()
        keep_empty = self.skip_flawed and labelled != REQUIRED
        examples, flawed = [], []
        for row in rows:
            cells = dict(zip(roles, row.cells, strict=True))
            if self.only and cells["only"] != self.only[1]:
                seen.add(cells["only"])
                continue
            names = [name for name in ("text_a", "text_b") if name in cells]
            texts = [_text(cells[name], row, name, keep_empty=True) for name in names]
            if not all(text.strip() for text in texts) and not keep_empty:
                if self.skip_flawed:
                    flawed.append(row.place)
                    continue
                _refuse_empty(row, names[next(i for i, t in enumerate(texts) if not t.strip())])
            label = _label(cells.get("label"), row, labels, labelled)
            examples.append(Example(ids.of(cells.get("id"), row), *_pair(texts), label))
        if flawed:
            logging.warning("%d rows with an empty text are left out: %s", len(flawed), flawed[0])
        if not examples:
            _refuse_nothing(source, self.only, seen)
        return examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """A beginning and its endings in columns.

    Each ending is scored as the pair ([CLS] text_a [SEP] start ending [SEP]).

    Attributes:
      text_a: the context.
      start: the words that every ending goes on from; its cells may be empty.
      endings: a column for each.
      label: the number of the right ending, from 0.
      id: of the example.
      file_format: tsv, csv or jsonl.
    """

    text_a: str
    start: str
    endings: tuple[str, ...]
    label: str
    id: str | None = None
    file_format: str = "csv"

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[ChoiceExample]:
        """The examples of a file.

        Raises:
          InputError: there is none, or one that cannot be used.
        """
        rows = read_rows(
            path, self.file_format, self._columns(labelled), optional=self._optional(labelled)
        )
        return self._examples(path, rows, labels, labelled)

    def from_dicts(
        self, source: str, dicts: Iterable[Mapping], labels: Labels, *, labelled: str = REQUIRED
    ) -> list[ChoiceExample]:
        """The examples of a dataset of dicts, whose keys are the columns; `source` for messages."""
        rows = _rows_of(source, dicts, self._columns(labelled), self._optional(labelled))
        return self._examples(source, rows, labels, labelled)

    def _columns(self, labelled: str) -> list[str]:
        label = [] if labelled == NONE else [self.label]
        return [
            self.text_a,
            self.start,
            *self.endings,
            *([] if self.id is None else [self.id]),
            *label,
        ]

    def _optional(self, labelled: str) -> set[str]:
        return {self.id} | ({self.label} if labelled == OPTIONAL else set())

    def _examples(self, source: str, rows: Iterable[Row], labels: Labels, labelled: str) -> list:
        columns, ids, examples = self._columns(labelled), _Ids(), []
        for row in rows:
            cells = dict(zip(columns, row.cells, strict=True))
            text_a = _text(cells[self.text_a], row, self.text_a)
            start = _text(cells[self.start], row, self.start, keep_empty=True)
            endings = [_text(cells[name], row, name) for name in self.endings]
            label = _label(cells.get(self.label), row, labels, labelled)
            pairs = tuple((text_a, f"{start} {ending}".strip()) for ending in endings)
            examples.append(ChoiceExample(ids.of(cells.get(self.id), row), pairs, label))
        if not examples:
            _refuse_nothing(source, None, set())
        return examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns:
    """Sentences in words: CoNLL's format, or the lists of a dataset under two names."""

    words: str = "tokens"
    label: str = "ner"

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[WordsExample]:
        """The sentences of a file, a word a line.

        Raises:
          InputError: there is none, or a tag is none.
        """
        return self._examples(path, read_conll(path), labels, labelled)

    def from_dicts(
        self, source: str, dicts: Iterable[Mapping], labels: Labels, *, labelled: str = REQUIRED
    ) -> list[WordsExample]:
        """The sentences of a dataset of dicts; `source` for messages."""
        columns = [self.words] if labelled == NONE else [self.words, self.label]
        optional = {self.label} if labelled == OPTIONAL else set()
        rows = [
            Row(row.place, [*row.cells, None][:2])
            for row in _rows_of(source, dicts, columns, optional)
        ]
        sentences = [row for row in rows if row.cells[0] != []]  # conll2003 ends with an empty one
        if len(sentences) < len(rows):
            logging.warning("%s: %d sentences without a word", source, len(rows) - len(sentences))
        return self._examples(source, sentences, labels, labelled)

    def _examples(self, source: str, rows: Iterable[Row], labels: Labels, labelled: str) -> list:
        examples = []
        for row in rows:
            words, tags = row.cells
            if not words or not all(isinstance(word, str) and word.strip() for word in words):
                _refuse_empty(row, "one of the words")
            if tags is not None and len(tags) != len(words):
                raise ValueError(f"{row.place}: {len(words)} words, {len(tags)} tags")
            tags = _label(tags, row, labels, labelled)
            examples.append(WordsExample(str(len(examples)), tuple(words), tags))
        if not examples:
            _refuse_nothing(source, None, set())
        return examples


Layout = TextColumns | ChoiceColumns | WordColumns


# ------------------------------------------------------------------------------ parts of a row


class _Ids:
    """The ids of examples, each once; the number of the example where there is none."""

    def __init__(self):
        self._places: dict[str, str] = {}
        self._count = 0

    def of(self, cell: Any, row: Row) -> str:
        guid = str(self._count) if cell is None else str(cell).strip()
        self._count += 1
        if cell is not None:
            if guid in self._places:
                raise InputError(
                    received=f"{row.place}: the id {guid!r}, which {self._places[guid]} has too",
                    expected="ids that are all different",
                    remedy="correct one of them, or leave the column of the ids out",
                )
            self._places[guid] = row.place
        return guid


def _text(cell: Any, row: Row, name: Any, *, keep_empty: bool = False) -> str:
    if not isinstance(cell, str):
        raise InputError(
            received=f"{row.place}: {cell!r} for {name}",
            expected="a text",
            remedy="correct the row",
        )
    if not keep_empty and not cell.strip():
        _refuse_empty(row, name)
    return cell


def _pair(texts: Sequence[str]) -> tuple[str, str | None]:
    return texts[0], texts[1] if len(texts) > 1 else None


def _label(cell: Any, row: Row, labels: Labels, labelled: str) -> Label | None:
    empty = cell is None or (cell == "" and labels.head != "multi_label")
    if labelled == NONE or (labelled == OPTIONAL and empty):
        return None
    parse = labels.parse_tags if labels.head == "token_labels" else labels.parse
    try:
        return labels.parse(cell) if empty else parse(cell)
    except ValueError as error:
        place, given = row.place, "no label" if empty else f"the label {cell!r}"
        if labels.head == "token_labels" and not empty:
            number = _number_of_wrong_tag(cell, labels)
            place = row.word_places[number] if row.word_places else f"{place}, word {number}"
            given = f"the tag {cell[number]!r}"
        raise InputError(
            received=f"{place}: {given}",
            expected=str(error),
            remedy="correct the row; of your own files --label_column says where the labels are, "
            "and --labels which there are, if the training data have not all",
        ) from None


def _number_of_wrong_tag(tags: Sequence, labels: Labels) -> int:
    """The place in a sentence of the first tag that is none."""
    for number in range(len(tags)):
        try:
            labels.parse_tags(tags[: number + 1])
        except ValueError:
            return number
    raise ValueError(f"received {tags}, all of which are tags")


def _refuse_empty(row: Row, name: Any) -> None:
    raise InputError(
        received=f"{row.place}: an empty text ({name})",
        expected="a text with a word in it",
        remedy="delete the row or fill it in",
    )


def _refuse_nothing(source: str, only: tuple | None, seen: set) -> None:
    where = f" with {only[0]} {only[1]!r}" if only else ""
    found = f"; there are {', '.join(sorted(map(repr, seen)))}" if seen else ""
    raise InputError(
        received=f"{source}, line 1 to its end: no example{where}{found}",
        expected="at least one",
        remedy="check that it is the right file",
    )


def _without_header(rows: Iterator[Row], roles: Sequence[str], labels: Labels) -> Iterator[Row]:
    """The same rows; the first must be no header, which has none of the labels."""
    first = next(rows, None)
    if first is not None:
        if dict(zip(roles, first.cells, strict=True)).get("label") not in labels.names:
            refuse_header(first)
        rows = itertools.chain([first], rows)
    return rows


# ------------------------------------------------------------------------------ datasets


def _rows_of(
    source: str, dicts: Iterable[Mapping], columns: Sequence[Column], optional: set
) -> Iterator[Row]:
    """Dicts of a dataset -> rows; bytes become text, arrays lists."""
    for number, values in enumerate(dicts):
        place = f"{source}, example {number}"
        values = _with_translations(values, columns, place)
        missing = [c for c in columns if c not in values and c not in optional]
        if missing:
            raise InputError(
                received=f"{place}, with the features {', '.join(map(str, values))}",
                expected=f"a feature {missing[0]!r}",
                remedy="give another dataset, or name the features with the flags",
            )
        yield Row(place, [_plain(values.get(c), place) for c in columns])


def _with_translations(values: Mapping, columns: Sequence[Column], place: str) -> Mapping:
    """Where premise/de is asked for, premise becomes premise/ar, premise/bg, ..., a text each.

    A feature of translations is a dict of texts by language, or of all languages and all texts.
    """
    found = dict(values)
    for name in {str(column).partition("/")[0] for column in columns if "/" in str(column)}:
        texts = found.get(name)
        if not isinstance(texts, Mapping):
            continue
        if texts.keys() == {"language", "translation"}:
            languages, translations = (_plain(texts[key], place) for key in sorted(texts))
            texts = dict(zip(languages, translations, strict=True))
        del found[name]
        found |= {f"{name}/{language}": text for language, text in texts.items()}
    return found


def _plain(value: Any, place: str) -> Any:
    """A value of a dataset as a value of Python."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one, place) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(
                received=f"{place}: bytes that are not UTF-8 ({value[:40]!r})",
                expected="text in UTF-8",
                remedy="make the dataset again",
            ) from None
    return value
