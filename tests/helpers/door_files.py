"""Files as users have them: many forms, encodings and kinds of labels, and misleading names.

All files of a kind hold the same rows, so that a model trained on one of them answers as a model
trained on any other. Where a form cannot write tabs or line ends, they become spaces, which makes
no difference to a tokenizer.
"""

import codecs
import csv
import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXTS = (
    '"so wrote Ann" she said',
    'Ann said "no", twice; then yes',
    "plain words alone",
    "a comma, and another, here",
    "semicolons; and bars | in one text; twice",
    "tabs\tin\ta text",
    "one line\nand the next",
    "carriage\rreturn here",
    'it ends with a quote "so"',
    "3,50 or 4;20",
    "it's Ann's, 'twice'",
    "naïve café",
    'a single " of her',
)
CLASSES = ('say "no"', "so so", "good: very")
SCORES = ("1.5", "-2", "3", "0.25", "-1e-1")
TOPICS = ("arts, culture", "news", "sport")
SETS = (("news", "sport"), ("arts, culture",), ("sport",), ("arts, culture", "news", "sport"))
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
SENTENCES = (
    (("Ann", "B-PER"), ("wrote", "O"), ("twice", "O")),
    (("here", "O"), ("Ann", "B-PER"), ("café", "I-PER"), ("wrote", "O"), ("words", "O")),
    (("the", "O"), ("next", "B-LOC")),
    (("plain", "B-LOC"), ("then", "O"), ("Ann", "B-PER"), ("so", "I-PER")),
)

Table = list[list[Any]]  # the header, and rows of as many cells


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of labels.

    Attributes:
      head: the name of the head.
      labels: the names of the classes.
      texts: the columns of the texts.
      flags: the flags that training needs.
    """

    head: str
    labels: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("Message",)
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)


KINDS = {
    "classes": Kind("classification", CLASSES),
    "regression": Kind("regression", flags={"label_kind": "regression"}),
    "multi_label": Kind("multi_label", TOPICS, flags={"label_kind": "multi_label"}),
    "pairs": Kind("classification", CLASSES, ("Message", "Answer"), {"text_b_column": "Answer"}),
    "tags": Kind("token_labels", TAGS),
}


def texts_of(kind: str) -> list[tuple[str, ...]]:
    """The texts of each row."""
    if kind == "tags":
        rows = []
        for sentence in SENTENCES:
            text = " ".join(word for word, _ in sentence)
            rows.append((text,))
        return rows
    if kind == "pairs":
        return [*zip(TEXTS, TEXTS[5:] + TEXTS[:5], strict=True)]
    return [(text,) for text in TEXTS]


def labels_of(kind: str) -> list[Any]:
    """The label of each row: a name, a number, a set of names, or a tag for each word."""
    if kind == "tags":
        labels = []
        for sentence in SENTENCES:
            labels.append([tag for _, tag in sentence])
        return labels
    names = {"regression": SCORES, "multi_label": SETS}.get(kind, CLASSES)
    return [names[number % len(names)] for number in range(len(TEXTS))]


def table_of(kind: str, between: str | None) -> Table:
    """A header, and a row for each text.

    A set of labels is one cell with `between` between its names; a list if `between` is None.
    """
    rows = [["Nr", *KINDS[kind].texts, "Class", "Note"]]
    for number, (texts, label) in enumerate(zip(texts_of(kind), labels_of(kind), strict=True)):
        is_joined = between is not None and not isinstance(label, str)
        cell = between.join(label) if is_joined else label
        rows.append([f"n{number}", *texts, cell, "seen" if number % 3 else ""])
    return rows


# ---------------------------------------------------------------------------- forms


def _spaced(rows: Table, pattern: str) -> Table:
    """The rows, with a space in place of each match of the pattern."""
    spaced = []
    for row in rows:
        spaced.append([re.sub(pattern, " ", cell) for cell in row])
    return spaced


def _quoted(rows: Table, separator: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator, quoting=quoting).writerows(rows)
    return stream.getvalue().replace("\r\n", "\n")


def _on_lines(separator: str, quoting: int = csv.QUOTE_MINIMAL) -> Callable[[Table], str]:
    return lambda rows: _quoted(_spaced(rows, "\n"), separator, quoting)


def _unquoted(rows: Table) -> str:
    return "".join("\t".join(row) + "\n" for row in _spaced(rows, "[\t\n]"))


def _objects(rows: Table) -> list[dict[str, Any]]:
    header, *body = rows
    return [dict(zip(header, row, strict=True)) for row in body]


def _json_lines(rows: Table) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _objects(rows))


def _of_excel(rows: Table) -> str:
    """A table as Excel writes it: a line that names the separator, the rows, and empty rows."""
    empty_row = ";" * (len(rows[0]) - 1) + "\n"
    return "sep=;\n" + _quoted(_spaced(rows, "\n"), ";") + empty_row * 3


FORMS: dict[str, Callable[[Table], str]] = {
    "csv": _on_lines(","),
    "csv, all quoted": _on_lines(",", csv.QUOTE_ALL),
    "csv, lines in cells": lambda rows: _quoted(rows, ","),
    "tsv, quoted": _on_lines("\t"),
    "tsv": _unquoted,
    "semicolons": _on_lines(";"),
    "bars": _on_lines("|"),
    "json lines": _json_lines,
    "json array": lambda rows: json.dumps(_objects(rows), ensure_ascii=False, indent=1),
    "excel": _of_excel,
    "csv, no header": lambda rows: _quoted(_spaced(rows[1:], "\n"), ","),
    "tsv, two columns": lambda rows: _unquoted([row[1:3] for row in rows[1:]]),
    "other case": lambda rows: _quoted([[cell.upper() for cell in rows[0]], *rows[1:]], ","),
    "broken": lambda rows: _on_lines(",")([*rows[:4], ["n"], *rows[4:7], ["x"] * 9, *rows[7:]]),
}


BROKEN = (3, 7)  # the numbers of the rows of "broken" that have too few or too many cells
# Files of texts without labels, an item a line: for prediction only.
LINE_FORMS: dict[str, Callable[[Sequence[Sequence[str]]], str]] = {
    "lines": lambda rows: "".join("\t".join(_spaced([row], "[\t\n]")[0]) + "\n" for row in rows),
    "lines of json": lambda rows: "".join(
        json.dumps(row if row[1:] else row[0], ensure_ascii=False) + "\n" for row in rows
    ),
}

# The columns of id, text and label in files without a header.
NO_HEADER = {"csv, no header": ("0", "1", "2"), "tsv, two columns": (None, "0", "1")}
# The first bytes of files that are not text.
BINARY_FORMS = {
    "xlsx": b"PK\x03\x04\x14\x00\x06\x00",
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "parquet": b"PAR1\x15\x04\x15\x80",
}


def _sentences(separator: str) -> str:
    """A word and its tag on each line, and an empty line between sentences."""
    blocks = []
    for sentence in SENTENCES:
        blocks.append("".join(f"{word}{separator}{tag}\n" for word, tag in sentence))
    return "\n".join(blocks)


WORD_FORMS: dict[str, Callable[[], str]] = {
    "conll": lambda: _sentences(" "),
    "conll, tabs": lambda: _sentences("\t"),
}

# ---------------------------------------------------------------------------- the declaration


@dataclasses.dataclass(frozen=True)
class File:
    """A file.

    Attributes:
      kind: a name of `KINDS`.
      form: a name of `FORMS`, `WORD_FORMS`, `LINE_FORMS` or `BINARY_FORMS`.
      name: the name of the file; its extension may be misleading.
      encoding: the encoding; a file in "utf-16" begins with a byte order mark.
      line_end: the end of each line.
      flags: the flags that commands need to read it.
      between: the text between the names of a set of labels; None: they are a list.
      refused: a pattern for the beginning of the message, with FILE for the name; "" for a file
        that commands accept.
    """

    kind: str
    form: str
    name: str
    encoding: str = "utf-8"
    line_end: str = "\n"
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    between: str | None = ";"
    refused: str = ""

    def __str__(self) -> str:
        """A description, for the name of a test."""
        windows = ", crlf" * (self.line_end != "\n")
        return f"{self.kind}: {self.form}, {self.encoding}{windows} as {self.name}"

    @property
    def has_header(self) -> bool:
        """Whether its columns have names."""
        return self.form in FORMS and self.form not in NO_HEADER

    def content(self) -> bytes:
        """The bytes of the file."""
        if self.form in BINARY_FORMS:
            return BINARY_FORMS[self.form]
        if self.kind == "tags":
            text = WORD_FORMS[self.form]()
        elif self.form in LINE_FORMS:
            text = LINE_FORMS[self.form]([[*row] for row in texts_of(self.kind)])
        else:
            text = FORMS[self.form](table_of(self.kind, self.between))
        if self.encoding == "shift_jis":
            text = text.replace("ï", "日").replace("é", "本語")
        mark = codecs.BOM_UTF16_LE if self.encoding == "utf-16" else b""
        encoding = "utf-16-le" if mark else self.encoding
        return mark + text.replace("\n", self.line_end).encode(encoding)

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes the file into a folder; returns its path."""
        path = folder / self.name
        path.write_bytes(self.content())
        return path

    def training_flags(self) -> dict[str, Any]:
        """The flags that name the columns, labels and encoding of the file."""
        columns = {"id_column": "Nr", "text_a_column": "Message", "label_column": "Class"}
        columns |= KINDS[self.kind].flags
        if self.form in NO_HEADER:
            names = ("id_column", "text_a_column", "label_column")
            columns |= dict(zip(names, NO_HEADER[self.form], strict=True), has_header="false")
        return columns | dict(self.flags)


CP1252 = {"encoding": "cp1252"}
NO_UTF8 = "FILE, .*not UTF-8"
FILES = (
    File("classes", "csv", "a.csv"),
    File("classes", "csv, all quoted", "a.txt", "utf-8-sig"),
    File("classes", "csv, lines in cells", "a", line_end="\r\n"),
    File("classes", "tsv, quoted", "a.tsv"),
    File("classes", "tsv, quoted", "a.txt", "utf-16", "\r\n"),
    File("classes", "tsv, quoted", "a.csv", "cp1252", flags=CP1252),
    File("classes", "tsv", "a.txt"),
    File("classes", "tsv", "a.csv", line_end="\r\n"),
    File("classes", "semicolons", "a.csv", "cp1252", "\r\n", flags=CP1252),
    File("classes", "bars", "a.tsv"),
    File("classes", "json lines", "a.jsonl"),
    File("classes", "json lines", "a.txt", "utf-16", "\r\n"),
    File("classes", "json array", "a.json"),
    File("classes", "excel", "a.csv", "utf-8-sig", "\r\n"),
    File("classes", "csv, no header", "a.csv"),
    File("classes", "tsv, two columns", "a.txt", "utf-8-sig"),
    File("classes", "csv", "a.csv", "shift_jis", refused=NO_UTF8),
    File("classes", "csv", "a.csv", "utf-16-le", refused="FILE.*NUL"),
    File("classes", "other case", "a.csv", refused="FILE, line 1: .*MESSAGE"),
    File("classes", "broken", "a.csv", refused="FILE, (.*\n)?line 5: 1 columns: 'n'"),
    File("classes", "xlsx", "a.csv", refused="FILE, a file of another kind .*xlsx"),
    File("classes", "xls", "a.txt", refused="FILE, a .*(spreadsheet|xls)"),
    File("classes", "parquet", "a", refused="FILE, a .*Parquet"),
    File("regression", "semicolons", "a.txt", "utf-8-sig"),
    File("regression", "tsv", "a.data"),
    File("regression", "json lines", "a.ndjson"),
    File("multi_label", "csv, all quoted", "a.csv"),
    File("multi_label", "semicolons", "a.txt", "utf-16", between="|"),
    File("multi_label", "tsv, quoted", "a.tsv", line_end="\r\n"),
    File("multi_label", "json array", "a.jsonl", between=None),
    File("pairs", "csv", "a.tsv", "utf-8-sig", "\r\n"),
    File("pairs", "tsv", "a"),
    File("pairs", "bars", "a.csv"),
    File("pairs", "json lines", "a.json"),
    File("pairs", "excel", "a.txt", "cp1252", "\r\n", flags=CP1252),
    File("tags", "conll", "a.txt"),
    File("tags", "conll, tabs", "a.tsv", "utf-8-sig", "\r\n"),
    File("tags", "conll", "a.csv", "utf-16"),
    File("classes", "lines", "a.csv"),
    File("classes", "lines of json", "a.txt", "utf-8-sig", "\r\n"),
    File("pairs", "lines", "a.csv", "utf-16"),
    File("multi_label", "lines", "a", "cp1252", flags=CP1252),
)


def words_of(texts: Sequence[str]) -> list[str]:
    """All words and punctuation marks of the texts, in lower case, without accents, sorted."""
    text = " ".join(texts).lower().replace("é", "e").replace("ï", "i")
    return sorted({*re.findall(r"\w+|[^\w\s]", text)})
