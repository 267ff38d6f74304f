"""Text files -> documents of lines, streamed: memory does not grow with the text.

    text             a sentence a line, a blank line between documents (the original's format)
    paragraphs       a paragraph a line, a blank line between documents
    wikiextractor    <doc ...> title, paragraphs </doc>, as WikiExtractor writes Wikipedia
    jsonl            {"text": "..."}, a document a line, with a paragraph a line in its text

The end of a file ends a document. (In the original a document continues in the next file
unless a blank line ends the first.)
"""

import collections
import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.decoding import text_lines_of
from bert_tf.errors import InputError, shortened
from bert_tf.files import check_regular, gfile, path_errors, read_blocks
from bert_tf.options import PLAIN_READING, Reading
from bert_tf.tokenization.wordpiece import utf8

# A longer document is cut, so that a corpus without blank lines need not fit into memory.
MAX_DOCUMENT_CHARACTERS = 4 << 20
# A narrower paragraph is a heading, a list item or a part of a table. BERT was trained on "text
# passages", without "lists, tables, and headers" (paper, section 3.1).
MIN_PARAGRAPH_WIDTH = 50

# Whole documents, the unit of work: lists of lines, stripped, none of them empty.
Block = list[list[str]]
Counts = collections.Counter[str]  # of lines, sentences, tokens..., and of what was dropped


class DocumentReader:
    """The documents of several files, one by one or in blocks."""

    def __init__(
        self, paths: Sequence[str], *, input_format: str, reading: Reading = PLAIN_READING
    ):
        """Opens nothing yet.

        Args:
          paths: the files, local or remote.
          input_format: a key of `INPUT_FORMATS`.
          reading: how the files are decoded.

        Raises:
          InputError: a path is not a regular file, whose size is known before it is read.
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
        self._digests = bytearray()  # of the documents
        self._parse = INPUT_FORMATS[input_format]
        self._reading = reading

    def blocks(self, block_characters: int) -> Iterator[Block]:
        """Yields blocks of documents, each of at least `block_characters` except the last.

        They are the same for any number of processes.
        """
        block: Block = []
        size = 0
        for document in self.documents():
            block.append(document)
            size += sum(map(len, document))
            if size >= block_characters:
                yield block
                block = []
                size = 0
        if block:
            yield block

    def documents(self) -> Iterator[list[str]]:
        """Yields all documents that have a line, in order; then counts those that repeat one.

        Raises:
          InputError: a file cannot be read or decoded, has a line that is too long, line ends of
            an old Macintosh, or another format; or it changes while it is read.
        """
        for path, size in zip(self.paths, self._sizes, strict=True):
            before = self.bytes_read
            lines = self._parse(self._lines(path), path, self.counts)
            for document in _gather(lines, self.counts):
                self._digests += _digest(document)
                yield document
            bytes_read = self.bytes_read - before
            if bytes_read != size:
                changed = f"{size} bytes, then {bytes_read}"
                received = f"{path}, which changed while it was read ({changed})"
                expected = "texts that stay as they are until all records are written"
                remedy = "wait until the file is complete, then run the command again"
                raise InputError(received, expected, remedy)
        digests = np.frombuffer(bytes(self._digests), np.uint64)
        self.counts["repeated_documents"] = len(digests) - len(np.unique(digests))

    def _lines(self, path: str) -> Iterator[str]:
        """Yields the lines of a file, as `text_lines_of`.

        Counts the bytes that are read, the characters that are replaced, and the lines with a
        carriage return inside, which is white space to the original.

        Raises:
          InputError: the lines end with a carriage return and no line feed.
        """
        blocks = self._counted(read_blocks(path))
        lines = text_lines_of(
            blocks,
            path,
            encoding=self._reading.encoding,
            encoding_errors=self._reading.encoding_errors,
            counts=self.counts,
        )
        for number, line in enumerate(lines, start=1):
            if "\r" in line and "\r" in line.strip():
                if number == 1 and not line.endswith("\n"):
                    received = f"{path}, a text whose lines end with a carriage return alone"
                    remedy = "convert it from an old Macintosh's: tr '\\r' '\\n' < IN > OUT"
                    raise InputError(received, "lines that end with a line feed", remedy)
                self.counts["lines_with_carriage_returns"] += 1
            yield line

    def _counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.bytes_read += len(block)
            yield block


def _digest(document: Sequence[str]) -> bytes:
    """A hash of the lines, 8 bytes, so that memory hardly grows with the text."""
    return hashlib.blake2b("\n".join(document).encode("utf-8"), digest_size=8).digest()


def _gather(lines: Iterable[str | None], counts: Counts) -> Iterator[list[str]]:
    """Yields the documents of some lines, in which None ends a document."""
    document: list[str] = []
    size = 0
    for line in lines:
        if document and (line is None or size >= MAX_DOCUMENT_CHARACTERS):
            counts["documents_cut"] += line is not None
            yield document
            document = []
            size = 0
        if line is not None:
            counts["lines"] += 1
            document.append(line)
            size += len(line)
    if document:
        yield document


# How a file begins that is no plain text: with an article of WikiExtractor's, or with JSON, an
# object a line or an array.
NO_SENTENCE = re.compile(
    r'<doc id=".*?" .*?\burl=".*?" .*?title=".*">$|[\[{]$|(\[\s*)?\{\s*("\w+"\s*:|$)'
)


def _parse_text(lines: Iterable[str], path: str, _: Counts) -> Iterator[str | None]:
    """The lines of plain text, stripped; None for a blank one, which ends a document."""
    has_begun = False
    for number, line in enumerate(map(str.strip, lines), start=1):
        # Articles may follow other text where files were put together.
        if (not has_begun or line.startswith("<doc")) and NO_SENTENCE.match(line):
            received = f"{path}, line {number}, which begins with {shortened(line, 60)}"
            expected = "for --input_format=text: a sentence a line, a blank line between documents"
            remedy = "use --input_format=jsonl for JSON with a document a line, "
            remedy += "--input_format=wikiextractor for articles, or write such a file"
            raise InputError(received, expected, remedy)
        has_begun = has_begun or bool(line)
        yield line or None


DOC_START = re.compile(r"<doc\b.*?(?:\btitle=\"(.*)\")?>$")


def _parse_wikiextractor(lines: Iterable[str], path: str, counts: Counts) -> Iterator[str | None]:
    """Paragraphs of articles, without titles, headings and leftover markup."""
    has_articles = False
    is_inside = False  # an article
    title = None  # of the article, until a line repeats it
    for line in map(str.strip, lines):
        if start := DOC_START.match(line):
            has_articles = True
            is_inside = True
            title = start[1]
            yield None
        elif line == "</doc>":
            is_inside = False
            yield None
        elif not is_inside:
            counts["lines_outside_documents"] += bool(line)
        elif title is not None and line in (title, html.unescape(title)):
            title = None  # a later line may be the same word
            counts["title_lines"] += 1
        elif paragraph := _clean_paragraph(line, counts):
            yield paragraph
    if not has_articles:
        received = f"{path}, without a line that starts with <doc"
        expected = "for --input_format=wikiextractor: what WikiExtractor writes without --json"
        raise InputError(received, expected, "use --input_format=text for one sentence a line")


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
    text = ENTITY.sub(lambda entity: html.unescape(entity[0]), line)
    text = TAG.sub(" ", text).strip()  # also tags that WikiExtractor 3.1 and later escape
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
    """The width in terminal columns. An ideograph takes two, and means as much as two letters.

    >>> display_width("word"), display_width("文字")
    (4, 4)
    """
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def _parse_jsonl(lines: Iterable[str], path: str, _: Counts) -> Iterator[str | None]:
    """The paragraphs of the texts; each text is a document."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            received = f"{path}, line {number}, which begins with {shortened(line.strip(), 60)}"
            expected = 'for --input_format=jsonl: a document a line, such as {"text": "One. Two."}'
            raise InputError(received, expected, 'write each document under the key "text"')
        text = utf8(text).decode("utf-8")  # without lone surrogates, which JSON may have
        for paragraph in re.split("[\r\n]", text):
            if stripped := paragraph.strip():
                yield stripped
        yield None


# format: its parser, a function from (lines, path, counts) to lines, with None between documents
INPUT_FORMATS = {
    "text": _parse_text,
    "paragraphs": _parse_text,
    "wikiextractor": _parse_wikiextractor,
    "jsonl": _parse_jsonl,
}
