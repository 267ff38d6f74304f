"""Files and datasets -> rows -> examples; an `InputError` names the place of an unusable row.

    Layout          file or dataset                 its rows become
    TextColumns     a text or a pair                Example
    ChoiceColumns   a beginning, several endings    ChoiceExample
    WordColumns     the words of a sentence         WordsExample

A layout names the columns of a file (TSV, CSV, JSON lines, CoNLL) or the features of a dataset, by
the fields of an example. A row has the cells of these columns, by field:

    index  sentence    gold_label
    0      It rains.   neutral        ->  Row("train.tsv, line 2",
                                              {"text_a": "It rains.", "label": "neutral"})
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from absl import logging

from bert_tf.data.tfds import plain
from bert_tf.errors import InputError, quoted
from bert_tf.heads import Labels
from bert_tf.heads.labels import Label, text_of
from bert_tf.heads.schemes import OUTSIDE, outside_of, scheme_of
from bert_tf.heads.tags import TagError
from bert_tf.options import Reading
from bert_tf.tables import (
    NO_TEXTS,
    PUBLISHED_TSV,
    Column,
    Columns,
    Format,
    Row,
    Texts,
    find_format,
    first_cells,
    open_table,
    pick,
    refuse_header,
    refuse_rows,
)
from bert_tf.tables.rows import CORRECT
from bert_tf.tasks.word_files import WordFile, read_conll, read_words

OWN_FORMATS = ("tsv", "csv", "jsonl")  # of a user's own files
# Whether the examples of a split have labels:
REQUIRED = "required"  # all of them
OPTIONAL = "optional"  # some of them
NONE = "none"  # none; a column of labels is ignored


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair.

    Attributes:
      guid: the id in the file, or the number of the example from 0.
      text_a, text_b: the texts; text_b is None for a single text.
      label: None if it has none.
      place: where its row is, for messages.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label | None = None
    place: str = dataclasses.field(default="", compare=False, repr=False)

    @property
    def pairs(self) -> tuple[tuple[str, str | None]]:
        """Its texts as the only pair, in the form of a `ChoiceExample`."""
        return ((self.text_a, self.text_b),)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A beginning and several endings, as the pairs (beginning, ending) that the model scores."""

    guid: str
    pairs: tuple[tuple[str, str], ...]
    label: str | None = None
    place: str = dataclasses.field(default="", compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class WordsExample:
    """A sentence in words, with a tag for each.

    Attributes:
      words: the words.
      document: the number of the document that the sentence is from; 0: unknown.
      label: the tags; None if it has none.
      guid, place: as in `Example`.
    """

    guid: str
    words: tuple[str, ...]
    document: int = 0
    label: tuple[str, ...] | None = None
    place: str = dataclasses.field(default="", compare=False, repr=False)


AnyExample = Example | ChoiceExample | WordsExample


def texts_of(example: AnyExample) -> Iterable[str]:
    """The texts of an example that are not empty, or its words."""
    if isinstance(example, WordsExample):
        return example.words
    return filter(None, itertools.chain(*example.pairs))


# ---------------------------------------------------------------------------- layouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Which columns of a file hold what. A subclass adds those of the texts.

    Attributes:
      label, id: columns: names, or positions in a file without a header; None for no such column.
      id_required: whether the file must have the column of the ids.
      file_format: "": the file's content decides. Of published files tsv, where quotes are text
        (original: `_read_tsv`), csv or conll.
      only: a column and the value that it must have; other rows are ignored.
      positions: the positions at which the original reads text_a, text_b and label, for files whose
        header has other names.
      headless: the same for published files without a header.
      disputed: the label of rows to leave out, those on which the annotators did not agree.
      hint: the end of a remedy: flags that name columns and labels, if the task takes any.
      skip_flawed: whether labelled rows are left out, with a warning, if a text is empty or the
        number of columns differs from the header; for published files that have such rows. Rows
        without labels must all be predicted, so their empty texts are allowed.
      skip_bad_rows: whether all unusable rows are left out, with a warning.
      reading: how the bytes of files are decoded; None where the user has no such options.
      example: the class of the examples.
    """

    label: Column | None = None
    id: Column | None = None
    id_required: bool = False
    file_format: str = "tsv"
    only: tuple[Column, str] | None = None
    positions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    headless: Mapping[str, int] | None = None
    disputed: str | None = None
    hint: str = ""
    skip_flawed: bool = False
    skip_bad_rows: bool = False
    reading: Reading | None = None
    example: ClassVar[type]

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[AnyExample]:
        """The examples of a file.

        Raises:
          InputError: the file has no example, or one that cannot be used.
        """
        columns = self._columns(labelled)
        rows = open_table(path, columns, reading=self.reading, form=self.form).rows
        if not columns.are_names:
            rows = refuse_header(rows, labels.names, hint=self.hint)
        return self._examples(path, rows, labels, labelled)

    @property
    def form(self) -> Format | str:
        """The format of the files, or its kind; "": their content decides."""
        return PUBLISHED_TSV if self.file_format == "tsv" else self.file_format

    def kind_of(self, path: str, texts: Texts = NO_TEXTS) -> str:
        """The kind of a file by its content: csv, tsv, jsonl or json; with `texts` also conll.

        Raises:
          InputError: it cannot be read.
        """
        return find_format(path, self._columns(OPTIONAL), reading=self.reading, texts=texts).kind

    def from_dicts(
        self, source: str, dicts: Iterable[Mapping], labels: Labels, labelled: str, names: Sequence
    ) -> list[AnyExample]:
        """The examples of a dataset, whose dicts have the columns as keys.

        Args:
          source: the name of the dataset, for messages.
          dicts: the rows.
          labels: the labels of the task.
          labelled: `REQUIRED`, `OPTIONAL` or `NONE`.
          names: the names of labels that are numbers in the dataset, where -1 is no label.
        """
        if names and not labels.are_fixed and not labels.is_per_word:
            labels = dataclasses.replace(labels, names=tuple(names))  # so that others are refused
        rows = _rows_of(source, dicts, self._columns(labelled), names)
        return self._examples(source, rows, labels, labelled)

    def _columns(self, labelled: str) -> Columns:
        """All columns of the layout by field."""
        by_field = self._text_columns()
        if self.only:
            by_field["only"] = self.only[0]
        by_field["id"] = self.id
        if labelled != NONE:
            by_field["label"] = self.label
        by_field = {field: column for field, column in by_field.items() if column is not None}
        optional = set()
        if not self.id_required:
            optional.add("id")
        if labelled == OPTIONAL:
            optional.add("label")
        return Columns(by_field, optional, self.positions, self.headless, self.hint)

    def _text_columns(self) -> dict[str, Column | None]:
        """The columns of the texts by field."""
        raise NotImplementedError

    def _texts(self, row: Row, labelled: str) -> Sequence | None:
        """The fields of an example between guid and label; None for a row to leave out."""
        raise NotImplementedError

    def _text(self, row: Row, field: str, *, may_be_empty: bool = False) -> str:
        """The text in a cell; raises `InputError` if it is none, or empty."""
        text = row.cells[field]
        if not isinstance(text, str) or not (may_be_empty or text.strip()):
            what = "an empty text" if isinstance(text, str) else f"{quoted(text)}"
            received = f"{row.place}: {what} in the column {self._text_columns()[field]!r}"
            raise InputError(received, "a text with a word in it", CORRECT)
        return text

    def _label(self, row: Row, labels: Labels, labelled: str) -> Label | None:
        """The label in a row's cell; None if the row needs none; raises `InputError` otherwise."""
        cell = row.cells.get("label")
        if labelled == NONE or (labelled == OPTIONAL and labels.is_missing(cell)):
            return None
        try:
            return labels.parse(cell)
        except TagError as error:
            word = error.number
            place = row.word_places[word] if row.word_places else f"{row.place}, word {word}"
            received = f"{place}: the tag {cell[word]!r}"
            expected = str(error)
        except ValueError as error:
            what = "no label" if cell in (None, "") else f"the label {cell!r}"
            received = f"{row.place}: {what}"
            expected = str(error)
        raise InputError(received, expected, f"correct the row{self.hint}")

    def _examples(
        self, source: str, rows: Iterable[Row], labels: Labels, labelled: str
    ) -> list[AnyExample]:
        """The examples of rows; raises `InputError` with all flaws unless rows may be skipped."""
        rows = [*rows]
        labels = labels.of_column(row.cells.get("label") for row in rows)
        examples: list[AnyExample] = []
        left_out: list[str] = []  # places of rows without text or agreed label
        broken: list[str] = []  # places of rows with another number of columns
        flaws: list[InputError] = []
        values_of_ignored: set[str] = set()  # in the column `only`
        places_of_ids: dict[str, str] = {}
        skip_broken = self.skip_flawed and labelled == REQUIRED
        for number, row in enumerate(rows):
            try:
                if row.flaw:
                    raise row.flaw
                if self.only and row.cells["only"] != self.only[1]:
                    values_of_ignored.add(str(row.cells["only"]))
                    continue
                is_disputed = self.disputed and row.cells.get("label") == self.disputed
                texts = None if is_disputed else self._texts(row, labelled)
                if texts is None:
                    left_out.append(row.place)
                    continue
                label = self._label(row, labels, labelled)
                guid = str(number if self.skip_bad_rows else len(examples))
                if "id" in row.cells and (self.id_required or row.cells["id"] is not None):
                    guid = self._id_in_file(row, places_of_ids)
                examples.append(self.example(guid, *texts, label=label, place=row.place))
            except InputError as flaw:
                if flaw is row.flaw and skip_broken:
                    broken.append(row.place)
                else:
                    flaws.append(flaw)
        refuse_rows(source, flaws, skip=self.skip_bad_rows, hint=self.hint)
        if broken:
            text = "%d broken rows are left out, the first: %s"
            logging.warning(text, len(broken), broken[0])
        if left_out:
            text = "%d rows without text or agreed label left out: %s"
            logging.warning(text, len(left_out), left_out[0])
        if not examples:
            raise self._no_example(source, values_of_ignored)
        return examples

    def _no_example(self, source: str, values_of_ignored: Collection[str]) -> InputError:
        """The error of a file without a usable row."""
        received = f"{source}: no example"
        if self.only:
            received += f" with {self.only[0]} {self.only[1]!r}"
        if values_of_ignored:
            received += f"; there are {', '.join(sorted(values_of_ignored))}"
        return InputError(received, "at least one", "check that it is the right file")

    def _id_in_file(self, row: Row, places: dict[str, str]) -> str:
        """The id in a row's cell, noted in `places`; raises `InputError` if another row has it."""
        guid = text_of(row.cells["id"])
        if not guid or guid in places:
            where = f", which {places[guid]} has too" if guid else ""
            received = f"{row.place}: the id {quoted(row.cells['id'])}{where}"
            raise InputError(received, "a text or number of its own in every row", CORRECT)
        places[guid] = row.place
        return guid


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns(Layout):
    """A text or a pair; text_b is None for single texts."""

    text_a: Column
    text_b: Column | None = None
    example: ClassVar[type] = Example

    def _text_columns(self) -> dict[str, Column | None]:
        return {"text_a": self.text_a, "text_b": self.text_b}

    def _texts(self, row: Row, labelled: str) -> Sequence | None:
        fields = ("text_a",) if self.text_b is None else ("text_a", "text_b")
        texts = [self._text(row, field, may_be_empty=self.skip_flawed) for field in fields]
        is_flawed = labelled == REQUIRED and not all(text.strip() for text in texts)
        return None if is_flawed else texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceColumns(Layout):
    """A beginning and its endings, each scored as the pair [CLS] text_a [SEP] start ending [SEP].

    Attributes:
      text_a: the column of the context.
      start: the column of the words with which every ending begins; its cells may be empty.
      endings: a column for each ending; a csv file may have more or fewer if they are numbered from
        0 (`fitted`).
      label: the column of the right ending's number, from 0.
    """

    text_a: str
    start: str
    endings: tuple[str, ...]
    file_format: str = "csv"
    example: ClassVar[type] = ChoiceExample

    def fitted(self, path: str) -> "ChoiceColumns":
        """This layout with as many numbered endings as the header of a csv file has."""
        first = str(self.endings[0])
        if self.file_format != "csv" or not first.endswith("0") or first.isdecimal():
            return self
        header = first_cells(path, Columns({"ending": first}), reading=self.reading)
        stem = first[:-1]
        numbered = re.compile(rf"{re.escape(stem)}\d+")
        in_header = [name for name in header if numbered.fullmatch(name.strip())]
        least = len(self.endings[:2])
        endings = tuple(f"{stem}{number}" for number in range(max(len(in_header), least)))
        return dataclasses.replace(self, endings=endings)

    def read(self, path, labels, *, labelled=REQUIRED):
        """As in `Layout`; refuses a file with further endings."""
        if more := self.fitted(path).endings[len(self.endings) :]:
            expected = f"{len(self.endings)} endings, as in the first file of the task"
            raise InputError(f"{path} with the column {more[0]!r}", expected, "leave it out")
        return super().read(path, labels, labelled=labelled)

    def _text_columns(self) -> dict[str, Column | None]:
        endings = {f"ending{number}": ending for number, ending in enumerate(self.endings)}
        return {"text_a": self.text_a, "start": self.start, **endings}

    def _texts(self, row: Row, _: str) -> tuple:
        text_a = self._text(row, "text_a")
        start = self._text(row, "start", may_be_empty=True)
        pairs = []
        for number in range(len(self.endings)):
            ending = self._text(row, f"ending{number}")
            pairs.append((text_a, f"{start} {ending}".strip()))
        return (tuple(pairs),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns(Layout):
    """Sentences in words: CoNLL's format, two lists of a dataset, or a user's own files.

    Attributes:
      words: the column of a dataset's words.
      file: where words and tags are in files; None: where CoNLL-2003 or CoNLL-U has them.
    """

    words: str = "tokens"
    label: str = "ner"
    file_format: str = "conll"
    file: WordFile | None = None
    example: ClassVar[type] = WordsExample

    def read(self, path, labels, *, labelled=REQUIRED):
        """As in `Layout`."""
        rows: Iterable[Row]
        if self.file is None:
            rows = read_conll(path, self.reading)
        else:
            may_lack = labelled != REQUIRED
            rows = read_words(path, self.file, self.reading, may_lack_tags=may_lack)
        if labelled == NONE:
            rows = [dataclasses.replace(row, cells={**row.cells, "label": None}) for row in rows]
        return self._examples(path, rows, labels, labelled)

    def _text_columns(self) -> dict[str, Column | None]:
        return {"words": self.words}

    def _texts(self, row: Row, _: str) -> tuple | None:
        words = row.cells["words"]
        tags = row.cells.get("label")
        if words == []:  # the last sentence of conll2003 in tensorflow-datasets
            return None
        are_words = isinstance(words, list) and all(
            isinstance(word, str) and word.strip(" \t\r\n") for word in words
        )
        has_tags = isinstance(tags, list)
        if not are_words or not (len(tags) == len(words) if has_tags else tags is None):
            received = f"{row.place}: the words {quoted(words)} with the tags {quoted(tags)}"
            raise InputError(received, "a list of words, a tag for each", CORRECT)
        return tuple(words), row.cells.get("document", 0)

    def _examples(
        self, source: str, rows: Iterable[Row], labels: Labels, labelled: str
    ) -> list[AnyExample]:
        """As in `Layout`; labels without names get those of the tags in the rows.

        Raises:
          InputError: as in `Layout`; or the tags are of no scheme, or none is one of the names.
        """
        rows = [*rows]
        if labelled != NONE:
            rows = _with_outside(source, rows, labels.names)
            sentences = [_tags_of(row) for row in rows]
            scheme = scheme_of(source, sentences)
            if not labels.names:
                tags = {*itertools.chain(*sentences)} - {""}
                labels = labels.with_names_in(tags)
                message = "%s: the tags %s (%s), read as %s"
                in_file = ", ".join(sorted(tags)[:20])
                read_as = ", ".join(labels.names[:20])
                logging.info(message, source, in_file, scheme or "classes", read_as)
        examples = super()._examples(source, rows, labels, labelled)
        names = labels.names_in(example.label for example in examples if example.label)
        if unknown := ", ".join(sorted(names.difference(labels.names))):
            if names.isdisjoint(labels.names):
                remedy = "give data with tags of the model, or a model of these tags"
                raise InputError(f"{source} with the tags {unknown}", labels.describe(), remedy)
            message = "%s: tags that the model does not have, which count as missed: %s"
            logging.warning(message, source, unknown)
        return examples


def _tags_of(row: Row) -> list[str]:
    """The tags of a sentence, without white space around; "" for what is no text."""
    cell = row.cells.get("label")
    tags = cell if isinstance(cell, list) else []
    return [tag.strip() if isinstance(tag, str) else "" for tag in tags]


def _with_outside(source: str, rows: Sequence[Row], names: Collection[str]) -> Sequence[Row]:
    """The rows with O instead of the tag that their file has for it, such as 0; logs that tag."""
    tags = [tag for row in rows for tag in _tags_of(row)]
    outside = outside_of(tags, names)
    if outside == OUTSIDE:
        if OUTSIDE in tags and "0" in tags:
            logging.info("%s: 0 is a tag like others, as there is O, too", source)
        return rows
    message = "%s: no tag is O; %r, of %d of the %d words, is read as O, outside of entities"
    logging.info(message, source, outside, tags.count(outside), len(tags))
    rows_with_outside = []
    for row in rows:
        if tags_of_row := _tags_of(row):
            label = [OUTSIDE if tag == outside else tag for tag in tags_of_row]
            row = dataclasses.replace(row, cells={**row.cells, "label": label})
        rows_with_outside.append(row)
    return rows_with_outside


# ---------------------------------------------------------------------------- datasets


def _rows_of(
    source: str, dicts: Iterable[Mapping], columns: Columns, names: Sequence
) -> Iterator[Row]:
    """The rows of a dataset's dicts: bytes as text, arrays as lists, labels' numbers as names."""

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return list(map(named, label))
        is_number = isinstance(label, int) and 0 <= label < len(names)
        return names[label] if is_number else label

    for number, values in enumerate(dicts):
        place = f"{source}, example {number}"
        row = pick(place, _with_translations(values, columns, place), columns)
        cells = {field: plain(value, place) for field, value in row.cells.items()}
        yield Row(place, cells | {"label": named(cells.get("label"))})


def _with_translations(values: Mapping, columns: Columns, place: str) -> Mapping:
    """Adds premise/ar, premise/bg, ..., a text each, if a column such as premise/de is asked for.

    A feature of translations is a dict of texts by language, or of all languages and all texts.
    """
    values = dict(values)
    parts = [str(column).partition("/") for column in columns.by_field.values()]
    for feature in {feature for feature, slash, _ in parts if slash}:
        texts = values.get(feature)
        if not isinstance(texts, Mapping):
            continue
        if texts.keys() == {"language", "translation"}:
            languages = [plain(language, feature) for language in texts["language"]]
            if not len({*languages}) == len(languages) == len(texts["translation"]):
                received = f"{place}: the {feature} with {quoted(texts)}"
                raise InputError(received, "a text for each language", "correct the example")
            texts = dict(zip(languages, texts["translation"], strict=True))
        values |= {f"{feature}/{language}": text for language, text in texts.items()}
    return values
