"""Files of sentences in words, of any form -> a row for each sentence.

    CoNLL    EU B-ORG              a word a line, an empty line between sentences
    a table  word,tag / EU,B-ORG   a word a row; empty rows or a column part sentences
    JSON     {"text_a": ["EU"], "label": ["B-ORG"]}
             {"text_a": "EU.", "spans": [{"start": 0, "end": 2, "label": "ORG"}]}

A row has the cells `words`, `label` (the tags, or None) and `document`, as in `tables.conll`.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from bert_tf.errors import InputError
from bert_tf.heads.schemes import OUTSIDE, OUTSIDE_ELSEWHERE, TAG
from bert_tf.options import Reading
from bert_tf.tables import CONLL, CSV, JSON, JSONL, Columns, Format, Row, table_of
from bert_tf.tables.conll import DOCUMENT_MARK, Choice, read_sentences
from bert_tf.tables.formats import format_of
from bert_tf.tables.lines import Lines, lines_in, without_end
from bert_tf.tables.rows import CORRECT
from bert_tf.tasks import spans
from bert_tf.tasks.tag_columns import CONLL_U, chosen_column, find_tags

SPANS = "spans"  # the key of annotations by characters
MOST_WORDS = 100  # a file without sentence borders with more words is refused
ENOUGH = 0.9  # the share of lines with a separator that makes a file a table


@dataclasses.dataclass(frozen=True)
class WordFile:
    """Where the words and tags of a file are.

    Attributes:
      words, label: the columns; in CoNLL's format their numbers, or their names in CoNLL-U.
      sentence: a column that numbers sentences, or is not empty at the first word of each; None:
        empty rows separate sentences.
      id: the column of ids in JSON; None: there are none.
      are_chosen: whether the user named words, and label; otherwise CoNLL's columns are found by
        their content.
      has_header: whether a table's first row names the columns.
      hint: the end of a remedy.
    """

    words: str
    label: str
    sentence: str | None = None
    id: str | None = None
    are_chosen: tuple[bool, bool] = (False, False)
    has_header: bool = True
    hint: str = ""

    def columns(self, *, may_lack_tags: bool) -> Columns:
        """The columns to read from a table or JSON."""
        names = {"words": self.words, "label": self.label, "sentence": self.sentence, "id": self.id}
        by_field: dict[str, Any] = {}
        for field, name in names.items():
            if name is not None:
                by_field[field] = name if self.has_header else int(name)
        optional = {"label"} if may_lack_tags else set()
        return Columns(by_field, optional, hint=self.hint, keep_empty=True)


def read_words(
    path: str, file: WordFile, reading: Reading | None = None, *, may_lack_tags: bool = True
) -> Iterator[Row]:
    """The sentences of a file, whose form is found by its content.

    Args:
      path: the path of the file.
      file: where words and tags are in it.
      reading: how its bytes are decoded; None where the user has no such options.
      may_lack_tags: whether a table may have no column of tags.

    Yields:
      A row for each sentence; one that cannot be read has a `flaw`.

    Raises:
      InputError: a column is missing, or nothing separates sentences.
    """
    lines = lines_in(path, reading)
    form = _form_of(lines, file)
    if form.kind == CONLL:
        yield from _of_conll(lines, file)
        return
    may_lack_tags = may_lack_tags or not form.is_table  # JSON may have spans
    rows = table_of(lines, file.columns(may_lack_tags=may_lack_tags), form).rows
    if form.kind in (JSON, JSONL):
        yield from _of_json(rows)
    else:
        yield from sentences_of(rows, file, path)


def read_conll(path: str, reading: Reading | None = None) -> Iterator[Row]:
    """The sentences of a file in CoNLL's format."""
    return _of_conll(lines_in(path, reading), WordFile("0", "-1"))


def _form_of(lines: Lines, file: WordFile) -> Format:
    """The form of a file: JSON, a table, or CoNLL's format.

    A file is a table if its header has the columns, or if nearly all lines have a separator that is
    no tab. Tabs alone also separate the columns of CoNLL's format.
    """
    columns = file.columns(may_lack_tags=True)
    can_find_columns = file.has_header or file.sentence is not None
    form = format_of(lines, columns if can_find_columns else Columns({}))
    if not form.is_table or file.sentence is not None:
        return form
    head = [without_end(line) for line in lines.head() if line.strip()]
    header: set[str] = set()
    if head:
        header = {cell.strip().strip('"') for cell in head[0].split(form.separator)}
    has_columns = file.has_header and {*map(str, columns.needed)} <= header
    num_separated = sum(form.separator in line for line in head)
    is_separated = form.kind == CSV and num_separated >= ENOUGH * max(len(head), 1)
    return form if has_columns or is_separated else Format(CONLL)


def are_words(lines: Sequence[str], names: Collection[str] = ()) -> bool:
    """Whether a file's first lines are words with tags, in CoNLL's format.

    They are if all have the same number of columns, which are those of CoNLL-U, or of which the
    last or the last but one has tags: tags of a scheme, tags for words outside of entities, or a
    model's.

    Args:
      lines: without empty ones.
      names: the names of a model's tags; then a column of these alone is enough.
    """
    rows = [line.split() for line in lines if not line.startswith(("#", DOCUMENT_MARK))]
    widths = {len(cells) for cells in rows}
    if len(widths) != 1 or widths == {1} or (names and len(rows) < 2):
        return False
    if widths == {len(CONLL_U)}:
        return all(cells[0][0].isdecimal() for cells in rows)
    columns = (-1, -2) if min(widths) > 2 else (-1,)
    for column in columns:
        cells = {row[column] for row in rows}
        if _are_tags(cells, names):
            return True
    return False


def _are_tags(cells: Collection[str], names: Collection[str]) -> bool:
    """Whether the cells of a column are tags of words; those in `names` are."""
    outside = {OUTSIDE, *OUTSIDE_ELSEWHERE}
    entities = {*cells} - outside - {*names}
    for tag in entities:
        match = TAG.fullmatch(tag)
        if not match or not match[2]:  # without B- or I- and a class
            return False
    return bool(names) or (bool(entities) and not outside.isdisjoint(cells))


# ---------------------------------------------------------------------------- forms


def _of_conll(lines: Lines, file: WordFile) -> Iterator[Row]:
    """The sentences of CoNLL's format, in columns that are named or found by their content."""
    numbered = ((lines.place(number), without_end(line)) for number, line in enumerate(lines, 1))
    choose = functools.partial(choice_of, lines.name, file)
    for cells, places in read_sentences(lines.name, numbered, choose):
        yield Row(places[0], cells, places)


def choice_of(
    source: str, file: WordFile, rows: Sequence[Sequence[str]], are_counted: bool
) -> Choice:
    """Which columns of CoNLL's format have the words and the tags.

    Args:
      source: the file, for messages.
      file: the columns that the user named.
      rows: the columns of each word.
      are_counted: whether the first column counts words.
    """
    width = len(rows[0])
    words_are_chosen, tags_are_chosen = file.are_chosen
    first = 1 if are_counted else 0
    words = first
    if words_are_chosen:
        words = chosen_column(source, file.words, width, flag="text_a_column").position
    if tags_are_chosen:
        column = chosen_column(source, file.label, width)
    elif width - first == 1:
        return Choice(words, None)
    else:
        column = find_tags(source, rows, are_counted=are_counted)
    return Choice(words, lambda cells: column.tag(cells[column.position]))


def sentences_of(rows: Iterable[Row], file: WordFile, path: str) -> Iterator[Row]:
    """The sentences of a table with a word a row."""
    words: list[Row] = []
    sentence = ""  # the last value in the column of sentences
    are_parted = file.sentence is not None
    for row in rows:
        cells = row.cells
        is_empty = row.flaw is None and not any(cell for cell in cells.values() if cell)
        begins = bool(cells.get("sentence")) and cells["sentence"] != sentence
        if (is_empty and file.sentence is None) or begins:
            are_parted = True
            yield from _sentence(words)
            words = []
        if begins:
            sentence = cells["sentence"]
        if row.flaw or not is_empty:
            words.append(row)
    if not are_parted and len(words) > MOST_WORDS:
        received = f"{path}, with {len(words)} words and nothing that parts sentences"
        expected = "an empty row between sentences, or a column that numbers them"
        raise InputError(received, expected, f"add --sentence_column with its name{file.hint}")
    yield from _sentence(words)


def _sentence(rows: Sequence[Row]) -> Iterator[Row]:
    """The row of a sentence, from the rows of its words; or those of them that have a flaw."""
    flaws = [row for row in rows if row.flaw]
    if flaws or not rows:
        yield from flaws
        return
    tags = [row.cells.get("label") for row in rows]
    cells = {
        "words": [row.cells["words"] for row in rows],
        "label": None if all(tag is None for tag in tags) else tags,
        "document": 0,
    }
    yield Row(rows[0].place, cells, tuple(row.place for row in rows))


def _of_json(rows: Iterable[Row]) -> Iterator[Row]:
    """The sentences of JSON: words with tags, or texts with spans."""
    all_rows = list(rows)
    texts = [row.cells["words"] for row in all_rows if isinstance(row.cells.get("words"), str)]
    words_of_texts = iter(spans.words_of(texts) if texts else ())
    for row in all_rows:
        text = row.cells.get("words")
        if row.flaw or not isinstance(text, str):
            yield row
            continue
        yield _of_text(row, text, next(words_of_texts))


def _of_text(row: Row, text: str, words: Sequence[spans.PlacedWord]) -> Row:
    """The row of a text with spans: its words and tags; without spans, the words alone."""
    value = row.value.get(SPANS, row.cells.get("label"))
    tags = None
    if value is not None:
        try:
            tags = spans.tags_of(words, spans.spans_of(value), len(text))
        except ValueError as error:
            received = f"{row.place}: {error}"
            expected = "spans of whole words, each with start, end and label, none in another"
            return Row(row.place, {}, flaw=InputError(received, expected, CORRECT))
    cells = {**row.cells, "words": [word.text for word in words], "label": tags}
    return Row(row.place, cells)
