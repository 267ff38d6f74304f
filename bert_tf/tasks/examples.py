"""Rows -> examples: which columns of a file, or features of a dataset, hold texts and labels.

    TextColumns     a text or a pair             -> Example
    ChoiceColumns   a beginning, several endings -> ChoiceExample
    WordColumns     the words of a sentence      -> WordsExample

Each layout reads a file of its format, or the dicts of a dataset with the same names. What it
cannot use is an `InputError` with file and line.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from absl import logging

from bert_tf.data.tfds import plain
from bert_tf.errors import InputError
from bert_tf.heads.labels import Label, Labels, TagError, text_of
from bert_tf.tasks.tables import Column, Columns, Row, pick, read_conll, read_rows, refuse_header

# Whether the examples of a split have labels: all, some, or none (a label column is then ignored).
REQUIRED, OPTIONAL, NONE = "required", "optional", "none"


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair. guid is the id in the file, or the number of the example from 0."""

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label | None = None

    @property
    def pairs(self) -> tuple[tuple[str, str | None]]:
        """Its texts as a `ChoiceExample` has them."""
        return ((self.text_a, self.text_b),)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A beginning and several endings, as the pairs (beginning, ending) that are scored."""

    guid: str
    pairs: tuple[tuple[str, str], ...]
    label: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WordsExample:
    """A sentence in words, a tag for each; `document` is the number of its text, 0: unknown."""

    guid: str
    words: tuple[str, ...]
    document: int = 0
    label: tuple[str, ...] | None = None


AnyExample = Example | ChoiceExample | WordsExample
Texts = Iterator[tuple[Row, tuple]]  # rows with what their examples have between guid and label

# ---------------------------------------------------------------------------- layouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What all layouts share.

    Attributes:
      label, id: columns: names, or positions in a file without a header; None for no such column.
      id_required: whether the file must have the column of the ids.
      file_format: tsv, csv or jsonl.
    """

    label: Column | None = None
    id: Column | None = None
    id_required: bool = False
    file_format: str = "tsv"
    example: ClassVar[type]

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[AnyExample]:
        """The examples of a file.

        Raises:
          InputError: the file has no example, or one that cannot be used.
        """
        return self._examples(path, self._rows(path, labels, labelled), labels, labelled)

    def from_dicts(
        self,
        source: str,
        dicts: Iterable[Mapping],
        labels: Labels,
        *,
        labelled: str = REQUIRED,
        label_names: Sequence[str] | None = None,
    ) -> list[AnyExample]:
        """The examples of a dataset of dicts, whose keys are the columns; `source` for messages.

        Numbers are labels by their number in `label_names`; -1 stands for no label there.
        """
        if label_names and not labels.are_fixed and not labels.head.is_per_word:
            labels = dataclasses.replace(labels, names=tuple(label_names))  # refuses others
        rows = _rows_of(
            source, dicts, self._columns(labelled), self._optional(labelled), label_names or ()
        )
        return self._examples(source, rows, labels, labelled)

    def _columns(self, labelled: str) -> Columns:
        """The columns to be read, by what is in them."""
        label = None if labelled == NONE else self.label
        columns = self._text_columns() | {"id": self.id, "label": label}
        return {part: column for part, column in columns.items() if column is not None}

    def _text_columns(self) -> dict[str, Column | None]:
        raise NotImplementedError

    def _optional(self, labelled: str) -> set[str]:
        """The parts that the file may lack."""
        may_lack = {"id": not self.id_required, "label": labelled == OPTIONAL}
        return {part for part, may in may_lack.items() if may}

    def _rows(self, path: str, _: Labels, labelled: str) -> Iterator[Row]:
        columns, optional = self._columns(labelled), self._optional(labelled)
        return read_rows(path, self.file_format, columns, optional=optional)

    def _examples(self, source: str, rows: Iterable[Row], labels: Labels, labelled: str) -> list:
        examples = []
        places: dict[str, str] = {}  # of the ids in the file
        for row, texts in self._texts(source, rows, labelled):
            label, guid = _label(row, labels, labelled), str(len(examples))
            if "id" in row.cells and (self.id_required or row.cells["id"] is not None):
                guid = _id(row)
                if guid in places:
                    raise InputError(
                        f"{row.place}: the id {guid!r}, which {places[guid]} has too",
                        *_OF_IDS,
                    )
                places[guid] = row.place
            examples.append(self.example(guid, *texts, label))
        if not examples:
            _refuse_nothing(source)
        return examples

    def _texts(self, source: str, rows: Iterable[Row], labelled: str) -> Texts:
        """The rows that become examples, with their texts."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns(Layout):
    """A text or a pair in columns.

    Attributes:
      text_a, text_b: columns, as label and id; text_b is None for single texts.
      only: a column, and the value that it must have; other rows are ignored.
      positions: of text_a, text_b and label: where the original reads them, for files whose
        header has other names.
      skip_flawed: leave out, with a warning, labelled rows with an empty text or another number
        of columns than the header, for published files that have such rows. Every row without
        label must be predicted: there an empty text is kept.
    """

    text_a: Column
    text_b: Column | None = None
    only: tuple[Column, str] | None = None
    skip_flawed: bool = False
    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    example: ClassVar[type] = Example

    def _text_columns(self) -> dict[str, Column | None]:
        only = self.only[0] if self.only else None
        return {"text_a": self.text_a, "text_b": self.text_b, "only": only}

    def _rows(self, path: str, labels: Labels, labelled: str) -> Iterator[Row]:
        rows = read_rows(
            path,
            self.file_format,
            self._columns(labelled),
            optional=self._optional(labelled),
            skip_broken=self.skip_flawed and labelled == REQUIRED,
            positions=self.positions,
        )
        if self.file_format != "jsonl" and isinstance(self.text_a, int):
            first = next(rows, None)
            if first is not None:
                if first.cells.get("label") not in labels.names:
                    refuse_header(first)
                rows = itertools.chain([first], rows)
        return rows

    def _texts(self, source: str, rows: Iterable[Row], labelled: str) -> Texts:
        others, flawed, is_empty = set(), [], True
        for row in rows:
            if self.only and row.cells["only"] != self.only[1]:
                others.add(row.cells["only"])
                continue
            is_empty = False
            names = [name for name in ("text_a", "text_b") if name in row.cells]
            texts = [_text(row, name, may_be_empty=self.skip_flawed) for name in names]
            if labelled == REQUIRED and not all(text.strip() for text in texts):
                flawed.append(row.place)
            else:
                yield row, (texts[0], texts[1] if len(texts) > 1 else None)
        if flawed:
            logging.warning("%d rows with an empty text are left out: %s", len(flawed), flawed[0])
        if is_empty:
            _refuse_nothing(source, self.only, others)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceColumns(Layout):
    """A beginning and its endings in columns.

    Each ending is scored as the pair ([CLS] text_a [SEP] start ending [SEP]).

    Attributes:
      text_a: the context.
      start: the words with which every ending begins; its cells may be empty.
      endings: a column for each.
      label: the number of the right ending, from 0.
    """

    text_a: str
    start: str
    endings: tuple[str, ...]
    file_format: str = "csv"
    example: ClassVar[type] = ChoiceExample

    def _text_columns(self) -> dict[str, Column | None]:
        endings = {f"ending{i}": ending for i, ending in enumerate(self.endings)}
        return {"text_a": self.text_a, "start": self.start, **endings}

    def _texts(self, _source: str, rows: Iterable[Row], _labelled: str) -> Texts:
        for row in rows:
            text_a, start = _text(row, "text_a"), _text(row, "start", may_be_empty=True)
            endings = [_text(row, f"ending{i}") for i in range(len(self.endings))]
            yield row, (tuple((text_a, f"{start} {ending}".strip()) for ending in endings),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns(Layout):
    """Sentences in words: CoNLL's format, or two lists of a dataset."""

    words: str = "tokens"
    label: str = "ner"
    example: ClassVar[type] = WordsExample

    def _text_columns(self) -> dict[str, Column | None]:
        return {"words": self.words}

    def _rows(self, path: str, _labels: Labels, _labelled: str) -> Iterator[Row]:
        return read_conll(path)

    def _texts(self, source: str, rows: Iterable[Row], _labelled: str) -> Texts:
        num_empty = 0
        for row in rows:
            words, tags = row.cells["words"], row.cells.get("label")
            if words == []:  # conll2003 of tensorflow-datasets ends with such a sentence
                num_empty += 1
                continue
            if not isinstance(words, list) or not all(
                isinstance(word, str) and word.strip() for word in words
            ):
                _refuse_empty(row, "one of the words")
            if tags is not None and not (isinstance(tags, list) and len(tags) == len(words)):
                raise InputError(
                    f"{row.place}: {len(words)} words with the tags {tags!r:.80}",
                    "a list with a tag for each word",
                    "correct the data",
                )
            yield row, (tuple(words), row.cells.get("document", 0))
        if num_empty:
            logging.warning("%s: %d sentences without a word", source, num_empty)


# ---------------------------------------------------------------------------- parts of a row

_OF_IDS = (
    "in every row an id of its own, a text or a number",
    "correct the row, or leave the column of the ids out",
)


def _text(row: Row, part: str, *, may_be_empty: bool = False) -> str:
    text = row.cells[part]
    if not isinstance(text, str):
        raise InputError(f"{row.place}: {text!r} for {part}", "a text", "correct the row")
    if not may_be_empty and not text.strip():
        _refuse_empty(row, part)
    return text


def _id(row: Row) -> str:
    guid = text_of(row.cells["id"])
    if not guid:
        raise InputError(f"{row.place}: {row.cells['id']!r:.80} for the id", *_OF_IDS)
    return guid


def _label(row: Row, labels: Labels, labelled: str) -> Label | None:
    cell = row.cells.get("label")
    is_empty = cell is None or (cell == "" and not labels.head.may_be_empty)
    if labelled == NONE or (labelled == OPTIONAL and labels.is_missing(cell)):
        return None
    try:
        return labels.parse(cell)
    except TagError as error:
        at, expected = error.number, str(error)
        place = row.word_places[at] if row.word_places else f"{row.place}, word {at}"
        received = f"{place}: the tag {cell[at]!r}"
    except ValueError as error:
        received = f"{row.place}: " + ("no label" if is_empty else f"the label {cell!r}")
        expected = str(error)
    raise InputError(
        received,
        expected,
        "correct the row; of your own files --label_column says where the labels are, and "
        "--labels which there are, if the training data have not all",
    )


def _refuse_empty(row: Row, part: str) -> None:
    raise InputError(
        f"{row.place}: an empty text ({part})",
        "a text with a word in it",
        "delete the row or fill it in",
    )


def _refuse_nothing(source: str, only: tuple | None = None, others: Iterable = ()) -> None:
    where = f" with {only[0]} {only[1]!r}" if only else ""
    found = f"; there are {', '.join(sorted(map(repr, others)))}" if others else ""
    raise InputError(
        f"{source}, line 1 to its end: no example{where}{found}",
        "at least one",
        "check that it is the right file",
    )


# ---------------------------------------------------------------------------- datasets


def _rows_of(
    source: str,
    dicts: Iterable[Mapping],
    columns: Columns,
    optional: set[str],
    label_names: Sequence[str],
) -> Iterator[Row]:
    """Dicts of a dataset -> rows; bytes become text, arrays lists, numbers of labels names."""

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return list(map(named, label))
        if label == -1 and label_names and "label" in optional:
            return None
        is_number = isinstance(label, int) and 0 <= label < len(label_names)
        return label_names[label] if is_number else label

    for number, values in enumerate(dicts):
        place = f"{source}, example {number}"
        try:
            values = _with_translations(values, columns, place)
        except (TypeError, ValueError):
            raise InputError(
                f"{place}: {values!r:.80}",
                "features by name, as many translations as languages",
                "correct the data",
            ) from None
        row = pick(place, values, columns, optional, kind="feature")
        cells = {part: plain(value, place) for part, value in row.cells.items()}
        yield Row(place, cells | {"label": named(cells.get("label"))})


def _with_translations(values: Mapping, columns: Columns, place: str) -> Mapping:
    """Where premise/de is a column: premise becomes premise/ar, premise/bg, ..., a text each.

    A feature of translations is a dict of texts by language, or of all languages and all texts.
    """
    found = dict(values)
    for name in {str(c).partition("/")[0] for c in columns.values() if "/" in str(c)}:
        texts = found.get(name)
        if not isinstance(texts, Mapping):
            continue
        if texts.keys() == {"language", "translation"}:
            languages, translations = (plain(texts[key], place) for key in sorted(texts))
            texts = dict(zip(languages, translations, strict=True))
        del found[name]
        found |= {f"{name}/{language}": text for language, text in texts.items()}
    return found
