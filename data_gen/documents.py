"""Text files -> documents of lines, streamed: memory does not grow with the input.

    text             one sentence a line, a blank line between documents (the original's format)
    wikiextractor    <doc ...> title, paragraphs </doc>, as WikiExtractor writes Wikipedia; the
                     paragraphs become sentences in `split_sentences`

The end of a file ends a document in both. (In the original a document runs on into the next file
unless the first file ends in a blank line.)
"""

import collections
import dataclasses
import html
import importlib.metadata
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from bert_tf.errors import InputError
from bert_tf.files import check_regular, decoded, gfile, path_errors, read_lines
from bert_tf.runtime import import_extra

# A longer document is cut, so that a corpus without blank lines need not fit into memory.
MAX_DOCUMENT_CHARACTERS = 4 << 20
# A narrower paragraph is a heading, a list item or part of a table. BERT was trained on "text
# passages", without "lists, tables, and headers" (paper, section 3.1).
MIN_PARAGRAPH_WIDTH = 50

Counts = collections.Counter[str]  # of lines, sentences, tokens..., and of what was dropped


@dataclasses.dataclass
class Statistics:
    """What the report is computed from; statistics of parts add up to those of the whole."""

    counts: Counts = dataclasses.field(default_factory=Counts)
    # How often each sampled sentence occurs, by its hash: estimates how many are repeated.
    sampled: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def update(self, other: "Statistics") -> None:
        """Adds those of another part."""
        self.counts.update(other.counts)
        self.sampled.update(other.sampled)


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole documents: the unit of work. Blocks are the same for any number of processes."""

    index: int
    documents: list[list[str]]  # each a list of lines: stripped, none empty


class DocumentReader:
    """The documents of several files, one by one or in blocks."""

    def __init__(self, paths: Sequence[str], *, input_format: str):
        """Opens nothing yet.

        Args:
          paths: the files, local or remote, UTF-8.
          input_format: a key of `INPUT_FORMATS`.

        Raises:
          InputError: one is not a regular file: its size must be known before it is read.
        """
        self._sizes = []
        for path in paths:
            check_regular(path)
            with path_errors(path):
                self._sizes.append(gfile().stat(path).length)
        self.total_bytes = sum(self._sizes)
        self.bytes_read = 0
        self.counts = Counts(files=len(paths))
        self.paths = list(paths)
        self._parse = INPUT_FORMATS[input_format]

    def blocks(self, block_characters: int) -> Iterator[Block]:
        """Blocks of documents, each of at least `block_characters` except the last."""
        index, documents, size = 0, [], 0
        for document in self.documents():
            documents.append(document)
            size += sum(map(len, document))
            if size >= block_characters:
                yield Block(index, documents)
                index, documents, size = index + 1, [], 0
        if documents:
            yield Block(index, documents)

    def documents(self) -> Iterator[list[str]]:
        """All documents that have a line, in order.

        Raises:
          InputError: a file cannot be read, is not UTF-8, has an endless line, another format, or
            changes meanwhile.
        """
        for path, size in zip(self.paths, self._sizes, strict=True):
            before = self.bytes_read
            lines = self._parse(self._lines(path), path, self.counts)
            yield from _gather(lines, self.counts)
            if size != self.bytes_read - before:
                raise changed_text(path, f"{size} bytes, then {self.bytes_read - before}")

    def _lines(self, path: str) -> Iterator[str]:
        """The lines of a file, without a byte-order mark; only the line feed ends a line."""
        for number, line in enumerate(read_lines(path), start=1):
            self.bytes_read += len(line)
            text = decoded(line, path, number)
            yield text.removeprefix("\ufeff") if number == 1 else text


def changed_text(path: str, how: str) -> InputError:
    """The error for a text that another program writes while it is read."""
    return InputError(
        f"{path}, which changed while it was read ({how})",
        "texts that stay as they are until all records are written",
        "wait for the program that writes the file, then run the command again",
    )


def _gather(lines: Iterable[str | None], counts: Counts) -> Iterator[list[str]]:
    """Lines, with None where a document ends -> documents."""
    document, size = [], 0
    for line in lines:
        if document and (line is None or size >= MAX_DOCUMENT_CHARACTERS):
            counts["documents_cut"] += line is not None
            yield document
            document, size = [], 0
        if line is not None:
            counts["lines"] += 1
            document.append(line)
            size += len(line)
    if document:
        yield document


# How WikiExtractor begins an article.
ARTICLE = re.compile(r'<doc id=".*?" .*?\burl=".*?" .*?title=".*">$')


def _parse_text(lines: Iterable[str], path: str, counts: Counts) -> Iterator[str | None]:
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line.startswith("<doc") and ARTICLE.match(line):
            raise InputError(
                f"{path}, line {number}: {line[:60]}, the beginning of a WikiExtractor article",
                "for --input_format=text: one sentence a line. Paragraphs on one line have no next "
                "sentence, so most next segments would be random",
                "use --input_format=wikiextractor; or, if each line is a sentence, empty such "
                "lines: sed -E 's/^<.?doc\\b.*>$//' IN > OUT",
            )
        counts["blank_lines"] += not line
        yield line or None


DOC_START = re.compile(r"<doc\b.*?(?:\btitle=\"(.*)\")?>$")


def _parse_wikiextractor(lines: Iterable[str], path: str, counts: Counts) -> Iterator[str | None]:
    """Paragraphs of articles, without titles, headings and leftover markup."""
    inside, title, found = False, None, False
    for line in map(str.strip, lines):
        if start := DOC_START.match(line):
            inside, title, found = True, start[1], True
            yield None
        elif line == "</doc>":
            inside = False
            yield None
        elif not inside:
            counts["lines_outside_documents"] += bool(line)
        elif title is not None and line in (title, html.unescape(title)):
            title = None  # once: a later line may be the same word
            counts["title_lines"] += 1
        elif paragraph := _clean_paragraph(line, counts):
            yield paragraph
    if not found:
        raise InputError(
            f"{path}, without a line that starts with <doc",
            "for --input_format=wikiextractor: files as WikiExtractor writes them without --json",
            "use --input_format=text for one sentence a line",
        )


TAG = re.compile(
    r"</?(?:br|center|code|d[dlt]|div|includeonly|li|math|noinclude|nowiki|[ou]l|onlyinclude|p|poem"
    r"|pre|r[bpt]|ref|references|ruby|section|small|span|su[bp]|t[dhr]|table)(?=[\s/>])[^<>]{0,200}>",
    re.IGNORECASE,
)
ENTITY = re.compile(r"&#?\w{1,31};")
# Template parameters, parser functions, table rows and links to categories on a line of their own.
LEFT_OVER = re.compile(r"\||\{\{|\}\}|#\w+:|\[\[[^\]]*:[^\]]*\]\]$")


def _clean_paragraph(line: str, counts: Counts) -> str:
    """The text of a paragraph; "" for a line that is none, which is counted."""
    if not line:
        return ""
    text = ENTITY.sub(lambda entity: html.unescape(entity[0]), TAG.sub(" ", line)).strip()
    if not text or LEFT_OVER.match(text):
        kind = "markup"
    elif display_width(text) < MIN_PARAGRAPH_WIDTH:
        kind = "short"
    else:
        return text
    counts[f"{kind}_lines"] += 1
    counts[f"{kind}_characters"] += len(line)
    return ""


def display_width(text: str) -> int:
    """Width in terminal columns: an ideograph takes two, and says about twice as much.

    >>> display_width("word"), display_width("文字")
    (4, 4)
    """
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


# format: a function from (lines, path, counts) to lines of text, with None between documents
INPUT_FORMATS = {"text": _parse_text, "wikiextractor": _parse_wikiextractor}


class Splitter:
    """A line -> its sentences: a line of text is one, sentencex cuts paragraphs.

    Attributes:
      version: of sentencex where it is used, else "". Another one may cut elsewhere.
    """

    def __init__(self, input_format: str, language: str):
        """Loads sentencex if it is needed.

        Args:
          input_format: a key of `INPUT_FORMATS`.
          language: the ISO 639 code of the text ("en"), for its abbreviations and punctuation.

        Raises:
          InputError: sentencex is needed and not installed.
        """
        self._language, self._sentencex, self.version = language, None, ""
        if input_format != "text":
            needed_by = f"--input_format={input_format}"
            self._sentencex = import_extra(
                "sentencex", package="sentencex", extra="wiki", needed_by=needed_by
            )
            self.version = importlib.metadata.version("sentencex")

    def __call__(self, line: str) -> list[str]:
        """The sentences of a line."""
        if self._sentencex is None:
            return [line]
        return join_fragments(self._sentencex.segment(self._language, line))


def join_fragments(pieces: Iterable[str]) -> list[str]:
    """Sentences from consecutive pieces of text; a piece that is no sentence joins the one before.

    No sentence is a piece without letters or digits, and one that was cut off without a space
    (none is needed after an ideographic full stop, which is not ASCII):

    >>> join_fragments(["They use .", "NET. ", "It works", ". ", "Fine. ", '"'])
    ['They use .NET.', 'It works.', 'Fine. "']
    >>> join_fragments(["第一句。", "第二句。"])
    ['第一句。', '第二句。']
    """
    sentences: list[str] = []
    for piece in pieces:
        if sentences and _is_fragment(sentences[-1], piece):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _is_fragment(before: str, piece: str) -> bool:
    cut_in_word = before[-1:].isascii() and not (before[-1:].isspace() or piece[:1].isspace())
    return cut_in_word or not any(map(str.isalnum, piece))
