"""Files and datasets -> rows -> examples; what cannot be used is an `InputError` with its place.

    Layout          file or dataset                 its rows become
    TextColumns     a text or a pair                Example
    ChoiceColumns   a beginning, several endings    ChoiceExample
    WordColumns     the words of a sentence         WordsExample

A layout names the columns of a file (TSV, CSV, JSON lines, CoNLL) or the features of a dataset,
each by the field of an example that it holds. A row has the cells of these columns, by field:

    index  sentence    gold_label
    0      It rains.   neutral        ->  Row("train.tsv, line 2",
                                              {"text_a": "It rains.", "label": "neutral"})
"""

import csv
import dataclasses
import io
import itertools
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.data.tfds import plain
from bert_tf.errors import InputError, shortened
from bert_tf.heads import Labels
from bert_tf.heads.labels import DECIMAL, Label, text_of
from bert_tf.heads.schemes import OUTSIDE, outside_of, scheme_of
from bert_tf.heads.tags import TagError
from bert_tf.tasks.conll import read_sentences

OWN_FORMATS = ("tsv", "csv", "jsonl")  # of a user's own files
# Whether the examples of a split have labels: all, some, or none (a label column is then ignored).
REQUIRED, OPTIONAL, NONE = "required", "optional", "none"
LONGEST_NAME = 40  # of a column
# Names of columns of texts in published files.
TEXT_NAME = r"hypothesis|premise|question[12]?|sentence[12]?|text(?:[12]|_[ab])?"
# A cell of the first line that is one of these is the header of a column, not data.
HEADER_WORD = (
    rf"{TEXT_NAME}|category|class|comment|content|gold_label|id|idx|index|labels?|quality|rating|"
    "review|score|sentiment|target|title|tweet"
)
CORRECT = "correct or delete the row"
MOST_SHOWN, MOST_OF_A_ROW = 20, 88  # rows of a message, and characters: all have room in it
DELIMITERS, ROWS_TRIED = ",;\t|", 20  # of csv files: what parts cells, and where it is looked for

Column = str | int  # the name in the header, or the position from 0 in a file without one


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text or a pair.

    guid is the id in the file, or the number of the example from 0; place says where its row is.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: Label | None = None
    place: str = dataclasses.field(default="", compare=False, repr=False)

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
    place: str = dataclasses.field(default="", compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class WordsExample:
    """A sentence in words, a tag for each; `document` is the number of its text, 0: unknown."""

    guid: str
    words: tuple[str, ...]
    document: int = 0
    label: tuple[str, ...] | None = None
    place: str = dataclasses.field(default="", compare=False, repr=False)


AnyExample = Example | ChoiceExample | WordsExample


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Some cells of a row by field, and where the row is ("train.tsv, line 7").

    A sentence in words has a line for each word: `word_places` are the places of these lines. A row
    that cannot be read has the error in place of its cells. A table's row has the names of all its
    columns, or their numbers if there is no header, and as many cells; of csv also what parts them.
    """

    place: str
    cells: Mapping[str, Any]
    word_places: tuple[str, ...] = ()
    flaw: InputError | None = None
    names: Sequence[str] = ()
    all_cells: Sequence[str] = ()
    separator: str = ","


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
    """

    by_field: Mapping[str, Column]
    optional: Collection[str]
    positions: Mapping[str, int]
    headless: Mapping[str, int] | None = None
    hint: str = ""


# ---------------------------------------------------------------------------- layouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """What all layouts share.

    Attributes:
      label, id: columns: names, or positions in a file without a header; None for no such column.
      id_required: whether the file must have the column of the ids.
      file_format: tsv, csv, jsonl or conll.
      only: a column, and the value that it must have; other rows are ignored.
      positions: of text_a, text_b and label: where the original reads them, for files whose header
        has other names.
      headless: likewise, for published files without a header.
      disputed: the label of rows to leave out: those on which the annotators did not agree.
      hint: the end of a remedy: flags that name columns and labels, if the task takes any.
      skip_flawed: leave out, with a warning, labelled rows with an empty text or another number
        of columns than the header, for published files that have such rows. Every row without
        label must be predicted: there an empty text is kept.
      skip_bad_rows: leave out all rows that cannot be used, with a warning.
      encoding: of the file; "" for UTF-8, or UTF-16 with its mark.
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
    encoding: str = ""
    example: ClassVar[type]

    def read(self, path: str, labels: Labels, *, labelled: str = REQUIRED) -> list[AnyExample]:
        """The examples of a file.

        Raises:
          InputError: the file has no example, or one that cannot be used.
        """
        columns = self._columns(labelled)
        rows = read_rows(path, self.file_format, columns, encoding=self.encoding)
        if any(isinstance(column, int) for column in columns.by_field.values()):
            rows = refuse_header(rows, labels.names, hint=self.hint)
        return self._examples(path, rows, labels, labelled)

    def from_dicts(
        self, source: str, dicts: Iterable[Mapping], labels: Labels, labelled: str, names: Sequence
    ) -> list[AnyExample]:
        """The examples of a dataset of dicts, whose keys are the columns; `source` for messages.

        Numbers are labels by their number in `names`; -1 stands for no label there.
        """
        if names and not labels.are_fixed and not labels.is_per_word:
            labels = dataclasses.replace(labels, names=tuple(names))  # refuses others
        rows = _rows_of(source, dicts, self._columns(labelled), names)
        return self._examples(source, rows, labels, labelled)

    def _columns(self, labelled: str) -> Columns:
        by_field = self._text_columns() | {
            "only": self.only and self.only[0],
            "id": self.id,
            "label": None if labelled == NONE else self.label,
        }
        may_lack = {"id": not self.id_required, "label": labelled == OPTIONAL}
        by_field = {field: column for field, column in by_field.items() if column is not None}
        optional = {field for field in may_lack if may_lack[field]}
        return Columns(by_field, optional, self.positions, self.headless, self.hint)

    def _text_columns(self) -> dict[str, Column | None]:
        raise NotImplementedError

    def _texts(self, row: Row, labelled: str) -> Sequence | None:
        """What an example has besides guid and label; None for a row to be left out."""
        raise NotImplementedError

    def _text(self, row: Row, field: str, *, may_be_empty: bool = False) -> str:
        text = row.cells[field]
        if not isinstance(text, str) or not (may_be_empty or text.strip()):
            what = "an empty text" if isinstance(text, str) else f"{text!r:.80}"
            received = f"{row.place}: {what} in the column {self._text_columns()[field]!r}"
            raise InputError(received, "a text with a word in it", CORRECT)
        return text

    def _label(self, row: Row, labels: Labels, labelled: str) -> Label | None:
        cell = row.cells.get("label")
        if labelled == NONE or (labelled == OPTIONAL and labels.is_missing(cell)):
            return None
        try:
            return labels.parse(cell)
        except TagError as error:
            at, expected = error.number, str(error)
            place = row.word_places[at] if row.word_places else f"{row.place}, word {at}"
            received = f"{place}: the tag {cell[at]!r}"
        except ValueError as error:
            what = "no label" if cell in (None, "") else f"the label {cell!r}"
            received, expected = f"{row.place}: {what}", str(error)
        raise InputError(received, expected, f"correct the row{self.hint}")

    def _examples(
        self, source: str, rows: Iterable[Row], labels: Labels, labelled: str
    ) -> list[AnyExample]:
        examples, left_out, broken, flaws = [], [], [], []
        others: set[str] = set()  # the values of `only` in other rows
        places: dict[str, str] = {}  # of the ids in the file
        skip_broken = self.skip_flawed and labelled == REQUIRED
        for number, row in enumerate(rows):
            try:
                if row.flaw:
                    raise row.flaw
                if self.only and row.cells["only"] != self.only[1]:
                    others.add(str(row.cells["only"]))
                    continue
                is_disputed = self.disputed and row.cells.get("label") == self.disputed
                texts = None if is_disputed else self._texts(row, labelled)
                if texts is None:
                    left_out.append(row.place)
                    continue
                label = self._label(row, labels, labelled)
                guid = str(number if self.skip_bad_rows else len(examples))
                if "id" in row.cells and (self.id_required or row.cells["id"] is not None):
                    guid = self._own_id(row, places)
                examples.append(self.example(guid, *texts, label=label, place=row.place))
            except InputError as flaw:
                if flaw is row.flaw and skip_broken:
                    broken.append(row.place)
                else:
                    flaws.append(flaw)
        self._refuse(source, flaws)
        if broken:
            text = "%d broken rows are left out, the first: %s"
            logging.warning(text, len(broken), broken[0])
        if left_out:
            text = "%d rows without text or agreed label left out: %s"
            logging.warning(text, len(left_out), left_out[0])
        if not examples:
            where = f" with {self.only[0]} {self.only[1]!r}" if self.only else ""
            found = f"; there are {', '.join(sorted(others))}" if others else ""
            received = f"{source}: no example{where}{found}"
            raise InputError(received, "at least one", "check that it is the right file")
        return examples

    def _own_id(self, row: Row, places: dict[str, str]) -> str:
        """The id in a row's cell; its place is noted."""
        guid = text_of(row.cells["id"])
        if not guid or guid in places:
            where = f", which {places[guid]} has too" if guid else ""
            received = f"{row.place}: the id {row.cells['id']!r:.80}{where}"
            raise InputError(received, "a text or number of its own in every row", CORRECT)
        places[guid] = row.place
        return guid

    def _refuse(self, source: str, flaws: Sequence[InputError]) -> None:
        """Raises `InputError` for all rows that cannot be used, or warns that they are left out."""
        shown = []
        for flaw in flaws[:MOST_SHOWN]:
            what, end = flaw.received.removeprefix(f"{source}, "), f"; expected: {flaw.expected}"
            room = max(MOST_OF_A_ROW - len(end), MOST_OF_A_ROW // 2)
            shown.append(shortened(f"{shortened(what, room)}{end}", MOST_OF_A_ROW))
        shown += [f"and {len(flaws) - MOST_SHOWN} more"] if len(flaws) > MOST_SHOWN else []
        if self.skip_bad_rows and flaws:
            says = "%s: %d rows that cannot be used are left out:\n%s"
            logging.warning(says, source, len(flaws), "\n".join(shown))
        elif len(flaws) == 1:
            raise flaws[0]
        elif flaws:
            received = f"{source}, with {len(flaws)} rows that cannot be used:\n" + "\n".join(shown)
            remedy = f"correct or delete the rows{self.hint}"
            remedy += "; --skip_bad_rows goes on without them" if self.hint else ""
            raise InputError(received, "rows of texts and labels", remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextColumns(Layout):
    """A text or a pair in columns; text_b is None for single texts."""

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
    """A beginning and its endings in columns.

    Each ending is scored as the pair ([CLS] text_a [SEP] start ending [SEP]).

    Attributes:
      text_a: the context.
      start: the words with which every ending begins; its cells may be empty.
      endings: a column for each; a csv file may have more or fewer, numbered alike from 0.
      label: the number of the right ending, from 0.
    """

    text_a: str
    start: str
    endings: tuple[str, ...]
    file_format: str = "csv"
    example: ClassVar[type] = ChoiceExample

    def fitted(self, path: str) -> "ChoiceColumns":
        """This layout with as many endings as the header of a csv file has, if it numbers them."""
        first = str(self.endings[0])
        if self.file_format != "csv" or not first.endswith("0") or first.isdecimal():
            return self
        _, lines = _csv_table(path, (first,), self.encoding)
        stem, (_, header) = first[:-1], next(lines, ("", ()))
        count = len([x for x in header if re.fullmatch(rf"{re.escape(stem)}\d+", x.strip())])
        endings = tuple(f"{stem}{number}" for number in range(max(count, len(self.endings[:2]))))
        return dataclasses.replace(self, endings=endings)

    def read(self, path, labels, *, labelled=REQUIRED):
        """As of `Layout`; refuses a file with further endings."""
        if more := self.fitted(path).endings[len(self.endings) :]:
            expected = f"{len(self.endings)} endings, as in the first file of the task"
            raise InputError(f"{path} with the column {more[0]!r}", expected, "leave it out")
        return super().read(path, labels, labelled=labelled)

    def _text_columns(self) -> dict[str, Column | None]:
        endings = {f"ending{i}": ending for i, ending in enumerate(self.endings)}
        return {"text_a": self.text_a, "start": self.start, **endings}

    def _texts(self, row: Row, _: str) -> tuple:
        text_a, start = self._text(row, "text_a"), self._text(row, "start", may_be_empty=True)
        endings = [self._text(row, f"ending{i}") for i in range(len(self.endings))]
        return (tuple((text_a, f"{start} {ending}".strip()) for ending in endings),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordColumns(Layout):
    """Sentences in words: CoNLL's format, or two lists of a dataset."""

    words: str = "tokens"
    label: str = "ner"
    file_format: str = "conll"
    example: ClassVar[type] = WordsExample

    def _text_columns(self) -> dict[str, Column | None]:
        return {"words": self.words}

    def _texts(self, row: Row, _: str) -> tuple | None:
        words, tags = row.cells["words"], row.cells.get("label")
        if words == []:  # conll2003 of tensorflow-datasets ends with such a sentence
            return None
        are_words = isinstance(words, list) and all(
            isinstance(word, str) and word.strip(" \t\r\n") for word in words
        )
        has_tags = isinstance(tags, list)
        if not are_words or not (len(tags) == len(words) if has_tags else tags is None):
            received = f"{row.place}: the words {words!r:.80} with the tags {tags!r:.80}"
            raise InputError(received, "a list of words, a tag for each", CORRECT)
        return tuple(words), row.cells.get("document", 0)

    def _examples(
        self, source: str, rows: Iterable[Row], labels: Labels, labelled: str
    ) -> list[AnyExample]:
        """As of `Layout`; where the labels have no names, those in all rows are of one scheme.

        Raises:
          InputError: as of `Layout`, the tags are of no scheme, or none is one of the names.
        """
        rows = [*rows]
        if labelled != NONE:
            rows = _with_outside(source, rows, labels.names)
            sentences = [_tags_of(row) for row in rows]
            scheme = scheme_of(source, sentences)
            if not labels.names:
                tags = {*itertools.chain(*sentences)} - {""}
                labels = labels.with_names_in(tags)
                shown = ", ".join(sorted(tags)[:20]), ", ".join(labels.names[:20])
                says = "%s: the tags %s (%s), read as %s"
                logging.info(says, source, shown[0], scheme or "classes", shown[1])
        examples = super()._examples(source, rows, labels, labelled)
        own = labels.names_in(example.label for example in examples if example.label)
        if others := ", ".join(sorted(own.difference(labels.names))):
            if own.isdisjoint(labels.names):
                remedy = "give data with tags of the model, or a model of these tags"
                raise InputError(f"{source} with the tags {others}", labels.describe(), remedy)
            says = "%s: tags that the model does not have, which count as missed: %s"
            logging.warning(says, source, others)
        return examples


def _tags_of(row: Row) -> list[str]:
    """The tags of a row of words, without white space around; those that are no text as ""."""
    cell = row.cells.get("label")
    tags = cell if isinstance(cell, list) else []
    return [tag.strip() if isinstance(tag, str) else "" for tag in tags]


def _with_outside(source: str, rows: Sequence[Row], names: Collection[str]) -> Sequence[Row]:
    """The rows with O in the place of what their file writes for it; the log says which."""
    tags = [tag for row in rows for tag in _tags_of(row)]
    outside = outside_of(tags, names)
    if outside == OUTSIDE:
        if OUTSIDE in tags and "0" in tags:
            logging.info("%s: 0 is a tag like others, as there is O, too", source)
        return rows
    says = "%s: no tag is O; %r, of %d of the %d words, is read as O, outside of entities"
    logging.info(says, source, outside, tags.count(outside), len(tags))
    changed = []
    for row in rows:
        if own := _tags_of(row):
            label = [OUTSIDE if tag == outside else tag for tag in own]
            row = dataclasses.replace(row, cells={**row.cells, "label": label})
        changed.append(row)
    return changed


# ---------------------------------------------------------------------------- files


def read_rows(
    path: str, file_format: str, columns: Columns, *, encoding: str = ""
) -> Iterator[Row]:
    """Yields the rows of a file with the cells of `columns`; broken ones with their flaw.

    Windows line ends, a byte order mark and empty lines at the end are accepted, in csv everywhere.

    Args:
      path: of the file.
      file_format: tsv, where quotes are text (original: `_read_tsv`); csv, where they enclose
        cells; jsonl, an object a line; or conll, see `bert_tf.tasks.conll`.
      columns: names, if the file has a header or is jsonl; or positions, if it has no header.
      encoding: of the file; "" for UTF-8, or UTF-16 with its mark.

    Raises:
      InputError: a column is missing, or the file is no text or no csv.
    """
    if file_format == "conll":
        for cells, places in read_sentences(path, _lines(path, encoding)):
            yield Row(places[0], cells, places)
        return
    if file_format == "jsonl":
        yield from _json_rows(path, columns, encoding)
        return
    # TSV not by the csv module: there a carriage return inside a cell ends the row, and a cell of
    # more than 131,072 characters is an error.
    lines = ((place, line.split("\t")) for place, line in _lines(path, encoding))
    separator = DELIMITERS[0]
    if file_format == "csv":
        needed = columns.by_field.keys() - {*columns.optional}
        wanted = {columns.by_field[field] for field in needed}
        separator, lines = _csv_table(path, wanted, encoding)
    first = next(lines, (f"{path}, line 1", [""]))
    header, positions, least, most = _places(*first, columns)
    names = [str(at) for at in range(len(first[1]))]
    names = [name.strip() for name in header] if header else names
    for place, cells in lines if header else itertools.chain([first], lines):
        is_whole = least <= len(cells) and not any(cells[most:])
        if is_whole and cells != header:
            found = {field: _cell(cells, at) for field, at in positions.items()}
            padded = [*cells, *[""] * len(names)][: len(names)]
            yield Row(place, found, names=names, all_cells=padded, separator=separator)
            continue
        expected = f"{least} columns" if least == most else f"{least} to {most} columns"
        flaw = InputError(
            f"{place}: {len(cells)} columns: {_preview(cells)}",
            "the header only in the first line" if is_whole else expected,
            f"{CORRECT}; a line end or a tab inside a text makes such rows",
        )
        yield Row(place, {}, flaw=flaw)


def _places(
    place: str, first: list[str], columns: Columns
) -> tuple[list[str] | None, Mapping[str, int | None], int, int]:
    """By the first row of a table: its header, the position of each field, how many columns."""
    positions, published = columns.by_field, columns.headless
    if published and DECIMAL.fullmatch("".join(first[published["label"] :][:1])):
        least = 1 + max(published.values())
        own = {field: at for field, at in published.items() if field in positions}
        return None, own, least, least + 2
    if any(isinstance(column, str) for column in positions.values()):
        return first, _find_columns(place, first, columns), len(first), len(first)
    least = 1 + max(at for field, at in positions.items() if field not in columns.optional)
    most = 1 + max(positions.values())
    filled = max((1 + at for at, cell in enumerate(first) if cell), default=0)
    if filled > most:  # the first row has columns that are not read
        least = most = filled
    return None, positions, least, most


def format_of(path: str, encoding: str = "") -> str:
    """The format of a user's own file, by its content: jsonl, tsv or csv.

    Raises:
      InputError: it cannot be read.
    """
    first = next(filter(str.strip, files.read_text_lines(path, encoding=encoding)), "")
    if first.lstrip().startswith("{"):
        return "jsonl"
    is_of_excel = next(files.read_blocks(path), b"").startswith(files.UTF_16)  # quotes its cells
    return "tsv" if "\t" in first and '"' not in first and not is_of_excel else "csv"


def refuse_header(
    rows: Iterable[Row], labels: Collection[str] = (), *, hint: str = ""
) -> Iterator[Row]:
    """The rows of a file without header; unless it has one of `labels`, the first must be data.

    The `hint` is the end of the remedy.
    """
    for number, row in enumerate(rows):
        cells = [str(cell) for cell in row.cells.values()]
        may_be = not number and row.cells.get("label") not in labels
        if may_be and any(re.fullmatch(HEADER_WORD, cell.strip().lower()) for cell in cells):
            received = f"{row.place}: {_preview(cells)}, a header"
            remedy = f"delete the line; if it is data, move it{hint}"
            raise InputError(received, "data in the first line of this file", remedy)
        yield row


def _cell(cells: list[str], position: int | None) -> str | None:
    return cells[position] if position is not None and position < len(cells) else None


def _find_columns(place: str, header: list[str], columns: Columns) -> dict[str, int | None]:
    """The position of each column; None for an optional one that is missing."""
    names, wanted = [name.strip() for name in header], columns.by_field
    if columns.positions and len(names) > max(columns.positions.values()):
        positions = {field: at % len(names) for field, at in columns.positions.items()}
        # Data have numbers, as ids or labels, or long texts; these are a header of other names. A
        # text's name in another column is that of another task's file.
        are_names = not any(name.isdigit() or len(name) > LONGEST_NAME for name in names)
        others = [name for at, name in enumerate(names) if at not in positions.values()]
        is_of_others = any(re.fullmatch(TEXT_NAME, name.lower()) for name in others)
        has_all = positions.keys() >= wanted.keys() - {*columns.optional}
        has_none = {*wanted.values()}.isdisjoint(names)
        if are_names and has_all and has_none and not is_of_others:
            logging.warning("%s: the columns %s, read by position as in the original", place, names)
            return {field: at for field, at in positions.items() if field in wanted}
    for field, column in wanted.items():
        count = names.count(column)
        if count > 1 or (count == 0 and field not in columns.optional):
            received = (
                f"{place}: the columns {_preview(header)}" if any(header) else f"{place}: empty"
            )
            expected = f"a header with one column {column!r} (there is {count or 'no such column'})"
            remedy = f"check the file, its header, and what separates its columns{columns.hint}"
            raise InputError(received, expected, remedy)
    return {field: names.index(c) if c in names else None for field, c in wanted.items()}


def _lines(path: str, encoding: str) -> Iterator[tuple[str, str]]:
    """Place and text of each line of a file in UTF-8; at least one.

    Only the line feed ends one: U+2028 and others are text.
    """
    for number, line in enumerate(_text_of(path, encoding).split("\n"), 1):
        yield f"{path}, line {number}", line.removesuffix("\r")


def _text_of(path: str, encoding: str) -> str:
    """A file's text, without empty lines at its end."""
    return "".join(files.read_text_lines(path, encoding=encoding)).rstrip("\r\n")


def _csv_table(
    path: str, wanted: Collection[Column], encoding: str
) -> tuple[str, Iterator[tuple[str, list[str]]]]:
    """What parts the cells of a csv file with these columns; place and cells of each row."""
    csv.field_size_limit(sys.maxsize)  # the module's own limit is 131,072 characters
    text = _text_of(path, encoding)
    separator = _separator_of(path, text, wanted)
    return separator, _csv_lines(path, text, separator)


def _csv_lines(path: str, text: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Place and cells of each row of a csv text."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    for row in itertools.count(1):  # as a spreadsheet counts
        line = reader.line_num + 1
        place = f"{path}, line {line}" + (f" (row {row})" if row != line else "")
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            received = f"{place}: no row of a CSV file ({error})"
            expected = 'quotes around cells with a comma, quote or line end, and "" for a quote'
            remedy = "correct the row, or use tsv or jsonl, where quotes mean nothing"
            raise InputError(received, expected, remedy) from None
        if cells:  # else an empty line: Windows has them between rows; an empty cell is ""
            yield place, cells


def _separator_of(path: str, text: str, wanted: Collection[Column]) -> str:
    """What parts the cells of a csv text: the first that gives these columns, else the most.

    Where another one would give columns in all rows, too, a warning says so.
    """
    found = [_columns_by(text, one, wanted) for one in DELIMITERS]
    chosen = next((at for at, by in enumerate(found) if by >= 1), found.index(max(found)))
    others = [DELIMITERS[at] for at, by in enumerate(found) if by == 2 and at != chosen]
    if others:
        says = "%s is read with %r between cells; with %r all rows have columns, too. If these are "
        logging.warning(says + "meant, add a header.", path, DELIMITERS[chosen], others[0])
    elif chosen:
        logging.info("%s is read as csv with %r between cells", path, DELIMITERS[chosen])
    return DELIMITERS[chosen]


def _columns_by(text: str, delimiter: str, wanted: Collection[Column]) -> float:
    """1 if a csv text's first row has cells of these names, or at these places; else less.

    2 if it has several cells, and some rows behind it as many.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        first, *others = itertools.islice(filter(None, rows), ROWS_TRIED)
    except (csv.Error, ValueError):
        return 0
    has_all = {*wanted} <= {*range(len(first)), *(cell.strip() for cell in first)}
    if not has_all:
        return 1 - 1 / len(first)
    return 1 + (len(first) > 1 and bool(others) and {*map(len, others)} == {len(first)})


def _json_rows(path: str, columns: Columns, encoding: str) -> Iterator[Row]:
    for place, line in _lines(path, encoding):
        try:
            values = json.loads(line, object_pairs_hook=files.each_key_once)
        except (ValueError, RecursionError) as error:
            values = error
        if not isinstance(values, dict):
            received = f"{place}: {_preview([line])} ({type(values).__name__}: {values!s:.80})"
            expected = 'a JSON object with each key once, such as {"text_a": "...", "label": "..."}'
            yield Row(place, {}, flaw=InputError(received, expected, CORRECT))
            continue
        try:
            yield _pick(place, values, columns)
        except InputError as flaw:
            yield Row(place, {}, flaw=flaw)


def _pick(place: str, values: Mapping, columns: Columns) -> Row:
    """The row of a JSON object or of an example of a dataset."""
    for field, column in columns.by_field.items():
        if column not in values and field not in columns.optional:
            received = f"{place}: only {', '.join(map(str, values)) or 'an empty object'}"
            raise InputError(received, f"a value for {column!r}", "correct the data or the flags")
    return Row(place, {field: values.get(column) for field, column in columns.by_field.items()})


def _preview(cells: list[str]) -> str:
    return repr(" | ".join(cells)[:80])


# ---------------------------------------------------------------------------- datasets


def _rows_of(
    source: str, dicts: Iterable[Mapping], columns: Columns, names: Sequence
) -> Iterator[Row]:
    """Dicts of a dataset -> rows; bytes become text, arrays lists, numbers of labels names."""

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return list(map(named, label))
        is_number = isinstance(label, int) and 0 <= label < len(names)
        return names[label] if is_number else label

    for number, values in enumerate(dicts):
        place = f"{source}, example {number}"
        row = _pick(place, _with_translations(values, columns, place), columns)
        cells = {field: plain(value, place) for field, value in row.cells.items()}
        yield Row(place, cells | {"label": named(cells.get("label"))})


def _with_translations(values: Mapping, columns: Columns, place: str) -> Mapping:
    """Where premise/de is a column: premise becomes premise/ar, premise/bg, ..., a text each.

    A feature of translations is a dict of texts by language, or of all languages and all texts.
    """
    found = dict(values)
    for name in {str(c).partition("/")[0] for c in columns.by_field.values() if "/" in str(c)}:
        texts = found.get(name)
        if not isinstance(texts, Mapping):
            continue
        if texts.keys() == {"language", "translation"}:
            languages = [plain(language, name) for language in texts["language"]]
            if not len({*languages}) == len(languages) == len(texts["translation"]):
                received = f"{place}: the {name} with {texts!r:.80}"
                raise InputError(received, "a text for each language", "correct the example")
            texts = dict(zip(languages, texts["translation"], strict=True))
        found |= {f"{name}/{language}": text for language, text in texts.items()}
    return found
