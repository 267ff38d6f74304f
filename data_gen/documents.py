"""Text files -> documents of lines -> sentences -> ids, streamed: memory does not grow with text.

    text             one sentence a line, a blank line between documents (the original's format)
    paragraphs       the same with a paragraph a line
    wikiextractor    <doc ...> title, paragraphs </doc>, as WikiExtractor writes Wikipedia
    jsonl            {"text": "..."}, a document a line; a paragraph a line in its text

Paragraphs become sentences in `sentence_splitter`.

The end of a file ends a document. (In the original a document continues in the next file
unless a blank line ends the first.)

The random next segments of the next-sentence task come from anywhere in the corpus. It is therefore
kept in three files, which a process maps:

    tokens       int32   the ids of all sentences, one after the other; with --words_from_spaces
                         a bit of each marks that it continues a word
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends

With --words_from_spaces the text was cut into words by a segmenter such as jieba:

    text        使用 GPT2 模型。很快
    tokens      使 用 gp ##t ##2 模 型 。 很 快
    continues   0  1  0  1   1   0  1  0  0  1

The tokenizer makes each Chinese character and each punctuation mark a token of its own. Characters
without white space between them form one word here, with the letters and digits beside them. A
punctuation mark, or a piece that is never split, remains a word, and the next word begins after it:
"don't" is three words, as it is without --words_from_spaces. Text without Chinese characters gives
the same words with and without it.
"""

import bisect
import collections
import contextlib
import functools
import hashlib
import html
import importlib.metadata
import itertools
import json
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bert_tf.decoding import text_lines_of
from bert_tf.errors import InputError, shortened
from bert_tf.files import check_regular, gfile, path_errors, read_blocks
from bert_tf.options import PLAIN_READING, Reading
from bert_tf.runtime import import_extra
from bert_tf.tokenization import basic
from bert_tf.tokenization.wordpiece import SPECIAL_TOKEN, FullTokenizer, batches, utf8

# A longer document is cut, so that a corpus without blank lines need not fit into memory.
MAX_DOCUMENT_CHARACTERS = 4 << 20
# A narrower paragraph is a heading, a list item or part of a table. BERT was trained on "text
# passages", without "lists, tables, and headers" (paper, section 3.1).
MIN_PARAGRAPH_WIDTH = 50

# Where a text has one, the tokenizer cuts it up: [CLS] becomes [ cl ##s ].

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
          reading: how they are decoded.

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
        self._digests = bytearray()  # of the documents
        self._parse = INPUT_FORMATS[input_format]
        self._reading = reading

    def blocks(self, block_characters: int) -> Iterator[Block]:
        """Blocks of documents, each of at least `block_characters` except the last.

        They are the same for any number of processes.
        """
        block, size = [], 0
        for document in self.documents():
            block.append(document)
            size += sum(map(len, document))
            if size >= block_characters:
                yield block
                block, size = [], 0
        if block:
            yield block

    def documents(self) -> Iterator[list[str]]:
        """All documents that have a line, in order; at the end, those that repeat one are counted.

        Raises:
          InputError: a file cannot be read or decoded, has an endless line, line ends of an old
            Macintosh, another format, or changes meanwhile.
        """
        for path, size in zip(self.paths, self._sizes, strict=True):
            before = self.bytes_read
            lines = self._parse(self._lines(path), path, self.counts)
            for document in _gather(lines, self.counts):
                self._digests += _digest(document)
                yield document
            if size != (now := self.bytes_read - before):
                received = f"{path}, which changed while it was read ({size} bytes, then {now})"
                expected = "texts that stay as they are until all records are written"
                remedy = "wait until the file is complete, then run the command again"
                raise InputError(received, expected, remedy)
        digests = np.frombuffer(bytes(self._digests), np.uint64)
        self.counts["repeated_documents"] = len(digests) - len(np.unique(digests))

    def _lines(self, path: str) -> Iterator[str]:
        """The lines of a file, as of `text_lines_of`.

        Counts the bytes that are read for them, what is replaced, and the lines with a carriage
        return inside, which is white space to the original.

        Raises:
          InputError: a carriage return ends the lines, and no line feed.
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


# How an article of WikiExtractor's begins, and a file of JSON: an object a line, or an array.
NO_SENTENCE = re.compile(
    r'<doc id=".*?" .*?\burl=".*?" .*?title=".*">$|[\[{]$|(\[\s*)?\{\s*("\w+"\s*:|$)'
)


def _parse_text(lines: Iterable[str], path: str, _: Counts) -> Iterator[str | None]:
    is_begun = False
    for number, line in enumerate(map(str.strip, lines), start=1):
        # Articles may follow blank lines or other text where files were put together.
        if (not is_begun or line.startswith("<doc")) and NO_SENTENCE.match(line):
            received = f"{path}, line {number}, which begins with {shortened(line, 60)}"
            expected = "for --input_format=text: a sentence a line, a blank line between documents"
            remedy = "use --input_format=jsonl for JSON with a document a line, "
            remedy += "--input_format=wikiextractor for articles, or write such a file"
            raise InputError(received, expected, remedy)
        is_begun = is_begun or bool(line)
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
    """Width in terminal columns: an ideograph takes two, and says about twice as much.

    >>> display_width("word"), display_width("文字")
    (4, 4)
    """
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def _parse_jsonl(lines: Iterable[str], path: str, _: Counts) -> Iterator[str | None]:
    """The paragraphs of the texts, each text a document."""
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
        yield from filter(None, map(str.strip, re.split("[\r\n]", text)))
        yield None


# format: a function from (lines, path, counts) to lines of text, with None between documents
INPUT_FORMATS = {
    "text": _parse_text,
    "paragraphs": _parse_text,
    "wikiextractor": _parse_wikiextractor,
    "jsonl": _parse_jsonl,
}

# Those that sentencex 1.0 has rules for. Chinese needs none: it has no abbreviations.
LANGUAGES = (
    "am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it",
    "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk", "zh",
)  # fmt: skip
# Letters of Thai, Lao, Tibetan, Khmer, Tai Le and New Tai Lue: spaces end their sentences, or marks
# that sentencex does not know.
UNMARKED_LETTER = re.compile("[\u0e01-\u0fff\u1780-\u17ff\u1950-\u19df]")


def sentence_splitter(input_format: str, language: str) -> Callable[[str], list[str]]:
    """A function from a line to its sentences: a line of text is one, sentencex cuts paragraphs.

    Args:
      input_format: a key of `INPUT_FORMATS`.
      language: as of `language_code`, for its abbreviations and punctuation.

    Raises:
      InputError: sentencex is needed and not installed, or the language is no code.
    """
    if input_format == "text":
        return lambda line: [line]
    names = {"package": "sentencex", "extra": "wiki", "needed_by": f"--input_format={input_format}"}
    sentencex = import_extra("sentencex", **names)
    code = language_code(language)
    return lambda line: join_fragments(sentencex.segment(code, line))


def language_code(language: str) -> str:
    """The code of a language as sentencex knows it; with any other it has no rules.

    >>> [language_code(language) for language in ("en", "DE", "pt-BR", "yue")]
    ['en', 'de', 'pt', 'yue']

    Raises:
      InputError: it is no code.
    """
    code, *_ = re.split("[-_]", language.lower())
    if not re.fullmatch("[a-z]{2,3}", code):
        expected = (
            "an ISO 639 code of two letters, such as en or de, or of three if it has no other"
        )
        raise InputError(f"--language={language}", expected, "correct it")
    return code


def splitter_warnings(input_format: str, language: str, counts: Counts) -> Iterator[str]:
    """Yields what `sentence_splitter` did not know of the text.

    Args:
      input_format: a key of `INPUT_FORMATS`.
      language: as for `sentence_splitter`.
      counts: of the whole corpus.
    """
    if input_format == "text":
        return
    if language_code(language) not in LANGUAGES:
        yield (
            f"There are no rules for --language={language}: sentences were split as in English or "
            "a related language, and may end at abbreviations. There are rules for "
            f"{', '.join(LANGUAGES)}."
        )
    if number := counts["unsplit_paragraphs"]:
        yield (
            f"{number} of {counts['lines']} paragraphs in Thai, Lao, Khmer, Tibetan or the like "
            "stayed whole, for their sentences end without a mark that is known: split them "
            "yourself, and use --input_format=text."
        )


def count_unsplit(block: Block, split_sentences: Callable[[str], list[str]]) -> int:
    """How many paragraphs stay whole in scripts whose ends of sentences sentencex does not know."""
    lines = itertools.chain.from_iterable(block)
    return sum(_is_unmarked(line) and len(split_sentences(line)) == 1 for line in lines)


def _is_unmarked(line: str) -> bool:
    """Whether more than half of a line is letters of such a script.

    >>> _is_unmarked("วันนี้อากาศดี ผมไปตลาด"), _is_unmarked("Thai: วันนี้"), _is_unmarked("今天。")
    (True, False, False)
    """
    return not line.isascii() and 2 * len(UNMARKED_LETTER.findall(line)) > len(line)


def splitter_version(input_format: str) -> str:
    """The version of sentencex where it is used, else "". Another one may cut elsewhere."""
    return "" if input_format == "text" else importlib.metadata.version("sentencex")


def join_fragments(pieces: Iterable[str]) -> list[str]:
    """Sentences from consecutive pieces of text; a piece that is no sentence joins the one before.

    No sentence is a piece without letters or digits, and one that was cut off in a word:

    >>> join_fragments(["They use .", "NET. ", "It works", ". ", "Fine. ", '"'])
    ['They use .NET.', 'It works.', 'Fine. "']
    >>> join_fragments(["第一句。", "第二句!", "J.", "K.", "罗琳?", "是的"])
    ['第一句。', '第二句!', 'J.K.罗琳?', '是的']
    """
    sentences: list[str] = []
    for piece in pieces:
        is_sentence = any(map(str.isalnum, piece))
        if sentences and (not is_sentence or _is_cut_in_word(sentences[-1], piece)):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _is_cut_in_word(before: str, after: str) -> bool:
    """Whether an ASCII mark between two pieces of text, without a space, ends no sentence.

    East Asian text needs none. There a question mark ends a sentence, an exclamation mark does if
    such text is before it, and a full stop if it is on both sides: "J.K.罗琳", "Yahoo!奇摩",
    "1.介绍" and "例子.com" stay whole.
    """
    if not before[-1:].isascii() or before[-1:].isspace() or after[:1].isspace():
        return False
    first = next(filter(str.isalnum, after), " ")
    last = next(filter(str.isalnum, reversed(before)), " ")
    marks = before[before.rfind(last) + 1 :]
    sides = [unicodedata.east_asian_width(character) == "W" for character in (last, first)]
    if "?" in marks:
        return not any(sides)
    if "!" in marks:
        return not sides[0]
    return not all(sides)


# ------------------------------------------------------------------------- the corpus

Sentence = list[int]  # the ids of one sentence, never empty
TOKEN_TYPE, TOKEN_BYTES = np.int32, 4
CONTINUES_WORD = 1 << 30  # set in a token that continues the word before it; ids are below 2^24
ID_BITS = CONTINUES_WORD - 1


class Corpus:
    """Tokenized documents; sentences and tokens are numbered throughout.

    Attributes:
      arrays: tokens, sentences and documents, as above.
      num_documents: how many.
      token_bounds: where each sentence begins in tokens, and where the last one ends.
    """

    FILES = ("tokens", "sentences", "documents")

    def __init__(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray):
        self.arrays = tokens, sentences, documents
        self.num_documents = len(documents) - 1
        self._tokens = memoryview(tokens.view(np.uint8))
        self.token_bounds, self._sentence_bounds = memoryview(sentences), memoryview(documents)

    def __reduce__(self) -> tuple:
        return Corpus, self.arrays

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sentence]]) -> "Corpus":
        """From lists."""
        sentences = list(itertools.chain.from_iterable(documents))
        tokens = np.fromiter(itertools.chain.from_iterable(sentences), TOKEN_TYPE)
        return cls(tokens, bounds_of(map(len, sentences)), bounds_of(map(len, documents)))

    @classmethod
    def open(cls, folder: pathlib.Path) -> "Corpus":
        """The files that `write_corpus` has completed."""
        paths, types = (folder / name for name in cls.FILES), (TOKEN_TYPE, np.int64, np.int64)
        files = (np.memmap(path, dtype, "r") for path, dtype in zip(paths, types, strict=True))
        return cls(*map(np.asarray, files))

    def lists(self) -> list[list[Sentence]]:
        """The documents as lists."""
        tokens, sentences, documents = (array.tolist() for array in self.arrays)
        cut = [tokens[begin:end] for begin, end in itertools.pairwise(sentences)]
        return [cut[begin:end] for begin, end in itertools.pairwise(documents)]

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""
        return range(self._sentence_bounds[document], self._sentence_bounds[document + 1])

    def sentences_end(self, sentences: range, min_tokens: int) -> int:
        """Where to cut `sentences` so that the first part is the shortest one with `min_tokens`.

        It has at least one sentence, and all if they have fewer tokens. Sentences 0 to 3 of 4, 3, 5
        and 2 tokens are cut before sentence 2 for 7 tokens, before 3 for 8, and at 4 for 99.
        """
        bounds, first = self.token_bounds, sentences.start
        enough = bounds[first] + min_tokens
        return bisect.bisect_left(bounds, enough, lo=first + 1, hi=sentences.stop)

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The first token of that part of the sentences, and how many tokens it has."""
        first = self.token_bounds[sentences.start]
        return first, self.token_bounds[self.sentences_end(sentences, min_tokens)] - first

    def tokens(self, first: int, length: int) -> bytes:
        """Tokens as int32."""
        return bytes(self._tokens[TOKEN_BYTES * first : TOKEN_BYTES * (first + length)])


def bounds_of(lengths: Iterable[int]) -> np.ndarray:
    """Where each of some parts begins, and where the last one ends: 2 3 4 -> 0 2 5 9."""
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)


def write_corpus(folder: pathlib.Path, blocks: Iterable[Corpus]) -> Iterator[range]:
    """Writes the files of a `Corpus`; yields the numbers of each block's documents in it."""
    folder.mkdir(parents=True)
    ends = [0, 0, 0]  # of tokens, sentences and documents
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in Corpus.FILES]
        for file in files[1:]:
            file.write(np.int64(0).tobytes())
        for block in blocks:
            tokens, sentences, documents = block.arrays
            first = ends[2]
            added = tokens, sentences[1:] + ends[0], documents[1:] + ends[1]
            for number, (file, array) in enumerate(zip(files, added, strict=True)):
                file.write(array.tobytes())
                ends[number] += len(array)
            yield range(first, ends[2])


# ------------------------------------------------------------------------- text -> ids


def tokenize_block(
    block: Block,
    tokenizer: FullTokenizer,
    split_sentences: Callable[[str], list[str]],
    words_from_spaces: bool,
) -> tuple[Corpus, Counts]:
    """Text -> ids, and what the report counts; parts without a token are left out.

    Args:
      block: its lines are split into sentences.
      tokenizer: has [UNK].
      split_sentences: see `sentence_splitter`.
      words_from_spaces: whether to set CONTINUES_WORD in the tokens.
    """
    texts = [[*itertools.chain.from_iterable(map(split_sentences, lines))] for lines in block]
    sentences = list(itertools.chain.from_iterable(texts))
    marked = iter_marked_batches(tokenizer, sentences)
    tokenized = marked if words_from_spaces else tokenizer.iter_batches(sentences)
    parts = [(np.empty(0, TOKEN_TYPE), np.empty(0, np.int64)), *tokenized]
    tokens = np.concatenate([ids for ids, _ in parts])
    lengths = np.concatenate([np.diff(splits) for _, splits in parts])
    # How many sentences with a token stand before each document. One without a token repeats the
    # number of the one before it, and `np.unique` leaves it out.
    before = bounds_of(lengths > 0)[bounds_of(map(len, texts))]
    found = Corpus(tokens, bounds_of(lengths[lengths > 0]), np.unique(before))
    num_sentences = len(found.token_bounds) - 1
    counts = Counts(
        documents=found.num_documents,
        documents_without_tokens=len(texts) - found.num_documents,
        documents_of_one_sentence=int(np.count_nonzero(np.diff(before) == 1)),
        sentences=num_sentences,
        sentences_without_tokens=len(sentences) - num_sentences,
        tokens=len(tokens),
        unknown_tokens=int(np.count_nonzero(tokens & ID_BITS == tokenizer.vocab["[UNK]"])),
    )
    lines = itertools.chain.from_iterable(block)
    counts["lines_with_special_tokens"] = sum(map(bool, map(SPECIAL_TOKEN.search, lines)))
    if words_from_spaces:
        counts["words"] = int(np.count_nonzero(tokens < CONTINUES_WORD))
    return found, counts


def iter_marked_batches(
    tokenizer: FullTokenizer, texts: Iterable[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What `FullTokenizer.iter_batches` gives, with CONTINUES_WORD set in the ids."""
    kept_whole = [tokenizer.vocab[piece] for piece in tokenizer.never_split]
    separates = _separates(**tokenizer.case)
    for batch in batches(map(utf8, texts)):
        ids, starts, _ = tokenizer.tokenize_with_offsets(batch)
        values = ids.values.numpy()  # [pieces]
        # All texts as one, each on a line: a line feed separates, too.
        points = np.frombuffer(b"\n".join(batch).decode().encode("utf-32-le"), "<u4")
        separators = bounds_of(separates[points])  # how many before each code point
        lines = bounds_of(1 + len(text.decode()) for text in batch)  # where they begin
        place = starts.values.numpy() + lines[ids.value_rowids().numpy()]  # [pieces]
        continues = np.zeros(len(place), bool)
        # From the first character of a token to that of the next, both included, nothing separates.
        continues[1:] = separators[place[:-1]] == separators[place[1:] + 1]
        is_kept = np.isin(values, kept_whole)
        continues[1:] &= ~is_kept[:-1]
        continues &= ~is_kept
        yield values | continues * np.int32(CONTINUES_WORD), ids.row_splits.numpy()


@functools.cache
def _separates(do_lower_case: bool, strip_accents: bool | None) -> np.ndarray:
    """Whether a code point is white space or a punctuation mark: bool [code points]."""
    table = basic.load_unicode_table(do_lower_case=do_lower_case, strip_accents=strip_accents)
    flags = table.flags[table.rows[table.pages].ravel()]
    is_ideograph = (flags & basic.BREAK_AFTER != 0) & basic.is_ideograph(np.arange(len(flags)))
    return (flags & basic.BREAK_BEFORE != 0) & ~is_ideograph
