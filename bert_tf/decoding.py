"""Bytes -> lines of text: byte order marks, encodings, and bytes that cannot be decoded.

A line is decoded when its end arrives, so a text of any size takes little memory. An error names
the line, and the encodings in which it would read well.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

from absl import logging

from bert_tf.errors import InputError, shortened
from bert_tf.terminal import number_of

LONGEST_LINE = 16 << 20  # bytes; a long novel has up to 6 MB
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot
# Byte order marks, and the encoding of the text behind each. UTF-32's comes before UTF-16's, which
# it begins with.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# How files begin that hold no text: what they are, and what to do. UTF-16's mark is not among
# them: the first two bytes of a file of records, which are a length, may equal it.
_BINARY = {
    b"\x1f\x8b\x08": ("compressed with gzip", "uncompress it with gunzip"),
    b"BZh9": ("compressed with bzip2", "uncompress it with bunzip2"),
    b"\xfd7zXZ": ("compressed with xz", "uncompress it with unxz"),
    b"PK\x03\x04": ("a zip archive, such as xlsx", "unpack it; save a spreadsheet as csv"),
    b"\x80\x02\x8a": ("a pickle, such as pytorch_model.bin", "name the file of text"),
    b"\x89HDF": ("an HDF5 file of weights", "name the file of text"),
    b"\xd0\xcf\x11\xe0": ("a document of old Office, such as xls", "save a spreadsheet as csv"),
    b"PAR1\x15": ("a Parquet file", "save its rows as jsonl"),
    b"%PDF-": ("a PDF", "save its text"),
}


# ---------------------------------------------------------------------------- lines


def text_lines_of(
    blocks: Iterable[bytes],
    name: str,
    *,
    limit: int = LONGEST_LINE,
    encoding: str | None = None,
    encoding_errors: str = "strict",
    counts: MutableMapping[str, int] | None = None,
) -> Iterator[str]:
    """Yields the lines of a text with their ends, each as soon as it arrives.

    Only a line feed ends a line. The encoding is that of the byte order mark, which is left out;
    without a mark it is `encoding`; without that it is UTF-8. No more than a line and a block are
    in memory.

    Args:
      blocks: the bytes of the text.
      name: the text's name, for messages.
      limit: the most bytes of a line.
      encoding: see `bert_tf.options.Reading`. With "" NUL bytes are refused, for the text may be in
        UTF-16: the user has the option, and has not set it. None: there is no such option.
      encoding_errors: see `Reading`.
      counts: gets the numbers of `replaced_characters` and `lines_with_replaced_characters`.
        Without it a warning after the last line gives them.

    Raises:
      InputError: the file is a binary one, the encoding is unknown, or a line is longer than
        `limit`, cannot be decoded, or has a control character that is typical of another encoding.
    """
    blocks = iter(blocks)
    beginning = _beginning(blocks)
    refuse_binary(name, beginning)
    decoder = _Decoder(name, beginning, encoding, encoding_errors, {} if counts is None else counts)
    blocks = itertools.chain([beginning.removeprefix(decoder.mark)], blocks)
    parts: list[bytes] = []  # of a line whose end has not arrived
    number = 1
    for block in decoder.with_plain_line_feeds(blocks):
        segments = block.split(b"\n")
        num_ended = len(segments) - 1  # the last segment is the beginning of a line
        for index, segment in enumerate(segments):
            parts.append(segment)
            if sum(map(len, parts)) > limit:
                received = f"{name}, line {number}, which is longer than {limit} bytes"
                raise InputError(received, "lines of text", "split the line, or correct the path")
            if index < num_ended:
                line = b"".join([*parts, b"\n"])
                following = itertools.islice(segments, index + 1, num_ended)  # for an error
                yield decoder.decode(line, number, following)
                parts.clear()
                number += 1
    if any(parts):
        yield decoder.decode(b"".join(parts), number, is_last=True)
    if counts is None:
        decoder.warn()


def replacement_warning(counts: Mapping[str, int]) -> str:
    """A sentence about the counts of `text_lines_of`; "" if nothing was replaced.

    >>> replacement_warning({"replaced_characters": 3, "lines_with_replaced_characters": 1})
    'U+FFFD stands in 3 places of 1 line, for bytes that are not in the encoding.'
    """
    if not counts.get("replaced_characters"):
        return ""
    places = number_of(counts["replaced_characters"], "places")
    lines = number_of(counts["lines_with_replaced_characters"], "lines")
    return f"U+FFFD stands in {places} of {lines}, for bytes that are not in the encoding."


def refuse_binary(name: str, content: bytes) -> None:
    """Raises `InputError` if bytes begin like an archive, an office document or the like."""
    for beginning, (kind, remedy) in _BINARY.items():
        if content.startswith(beginning):
            received = f"{name}, a file of another kind ({kind})"
            raise InputError(received, "an uncompressed, plain file", remedy)


# ---------------------------------------------------------------------------- byte order marks


def has_mark(blocks: Iterable[bytes]) -> bool:
    """Whether a text begins with a byte order mark."""
    return bool(_mark_of(_beginning(iter(blocks))))


def _beginning(blocks: Iterator[bytes]) -> bytes:
    """The first blocks: enough bytes to tell whether there is a byte order mark."""
    beginning = b""
    while any(mark.startswith(beginning) and mark != beginning for mark in _MARKS):
        block = next(blocks, b"")
        if not block:
            break
        beginning += block
    return beginning


def _mark_of(beginning: bytes) -> bytes:
    """The byte order mark with which a text begins, or b""."""
    return next(filter(beginning.startswith, _MARKS), b"")


# ---------------------------------------------------------------------------- the decoder

# The error handler gives this lone surrogate for wrong bytes. `surrogateescape` encodes it as the
# byte 0xFF, which is wrong in UTF-8 too: so `decode` finds again what `_as_utf_8` has met.
_WRONG_BYTE = "\udcff"
_MARK_WRONG_BYTES = "bert_tf.mark_wrong_bytes"
codecs.register_error(_MARK_WRONG_BYTES, lambda error: (_WRONG_BYTE, error.end))


class _Decoder:
    """Decodes the lines of a text; refuses or replaces bytes that cannot be decoded.

    Attributes:
      mark: the byte order mark with which the text begins, or b"".
    """

    def __init__(
        self,
        name: str,
        beginning: bytes,
        encoding: str | None,
        errors: str,
        counts: MutableMapping[str, int],
    ):
        """Chooses the encoding.

        Args:
          name: the text's name, for messages.
          beginning: its first bytes, from which the mark is read.
          encoding, errors, counts: as for `text_lines_of`.

        Raises:
          InputError: the encoding is unknown.
        """
        self.mark = _mark_of(beginning)
        self._name = name
        self._errors = errors
        self._counts = counts
        self._has_options = encoding is not None
        self._encoding = _MARKS.get(self.mark) or encoding or "utf-8"
        self._is_default = not self.mark and not encoding
        # A vocabulary may have NULs in its pieces; a user's text with NULs is in UTF-16.
        self._refuses_nuls = self._is_default and self._has_options
        try:
            has_plain_line_feeds = b"\n".decode(self._encoding, "replace") == "\n"
        except (LookupError, ValueError) as error:  # unknown, or a codec that is not for text
            expected = "the name of an encoding of text, such as cp1252"
            raise InputError(f"--encoding={encoding} ({error})", expected, "correct it") from None
        self._codec_name = codecs.lookup(self._encoding).name
        self._is_unicode = self._codec_name.startswith(("utf", "gb18030"))
        # In UTF-16 and UTF-32 a byte 0x0A may be a part of any character.
        self._is_wide = not has_plain_line_feeds
        byte_encoding = "utf-8" if self._is_wide else self._encoding
        self._decoder = codecs.getincrementaldecoder(byte_encoding)()

    def with_plain_line_feeds(self, blocks: Iterable[bytes]) -> Iterable[bytes]:
        """The text in an encoding in which each byte 0x0A is a line feed: UTF-16 as UTF-8."""
        if not self._is_wide:
            return blocks
        return self._as_utf_8(blocks)

    def _as_utf_8(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        texts = codecs.iterdecode(blocks, self._encoding, _MARK_WRONG_BYTES)
        try:
            yield from codecs.iterencode(texts, "utf-8", "surrogateescape")
        except UnicodeError as error:  # without a mark the order of bytes is unknown
            kind = self._encoding.upper()
            expected = f"text in {kind}, as --encoding says"
            remedy = f"give {kind}-LE or {kind}-BE, or another encoding"
            raise InputError(f"{self._name}: {error}", expected, remedy) from None

    def decode(
        self, line: bytes, number: int, following: Iterable[bytes] = (), *, is_last: bool = False
    ) -> str:
        """Decodes a line.

        Args:
          line: its bytes, with its end.
          number: the number of the line, from 1.
          following: lines after it that are in memory; an error tries encodings on them.
          is_last: whether it ends the text.

        Raises:
          InputError: as for `text_lines_of`.
        """
        if self._refuses_nuls and b"\0" in line:
            first = line.index(b"\0")
            raise self._refusal(f"NUL bytes ({line[first:][:8]!r})", line, number, following)
        self._decoder.errors = "strict"
        try:
            text = self._decoder.decode(line, is_last)
        except UnicodeError as error:
            if self._errors != "replace":
                received = f"bytes that are not {self._encoding.upper()}"
                if not self._is_wide:
                    first = getattr(error, "start", 0)
                    received += f" ({line[first:][:8]!r})"
                raise self._refusal(received, line, number, following) from None
            text = self._replaced(line, is_last)
        if not self._is_unicode and (control := re.search("[\x80-\x9f]", text)):
            # In the right encoding the byte is a letter.
            received = f"the control character {control[0]!r} in {self._encoding.upper()}"
            raise self._refusal(received, line, number, following)
        return text

    def _replaced(self, line: bytes, is_last: bool) -> str:
        """Decodes a line with U+FFFD in the place of wrong bytes, and counts them."""
        self._decoder.reset()
        self._decoder.errors = _MARK_WRONG_BYTES
        text = self._decoder.decode(line, is_last)
        self._count("replaced_characters", text.count(_WRONG_BYTE))
        self._count("lines_with_replaced_characters", 1)
        return text.replace(_WRONG_BYTE, "\ufffd")

    def _count(self, name: str, number: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + number

    def warn(self) -> None:
        """Logs how much was replaced."""
        if self._counts:
            logging.warning("%s: %s", self._name, replacement_warning(self._counts))

    # ------------------------------------------------------------------------ errors

    def _refusal(
        self, received: str, line: bytes, number: int, following: Iterable[bytes]
    ) -> InputError:
        """The error of a line, with the encodings that the text may be in."""
        candidates: Sequence[tuple[str, str]] = ()
        if self._codec_name == "iso8859-1":  # a text said to be in it is mostly cp1252 (WHATWG)
            candidates = [("cp1252", _first_line(line, "cp1252"))]
        elif not self._is_wide:
            candidates = _candidates(line, following, is_first=number == 1)
        remedy = self._remedy(candidates)
        if self._refuses_nuls and b"\0" in line:
            remedy += "; or --encoding=utf-8, if these bytes belong to the text"
        elif self._has_options and self._errors != "replace":
            remedy += "; or --encoding_errors=replace, which makes U+FFFD of such bytes"
        return InputError(f"{self._name}, line {number}: {received}", self._expected(), remedy)

    def _expected(self) -> str:
        """What the error of a line expects."""
        if self._is_default:
            return "text in UTF-8, or in UTF-16 with its mark"
        source = "its byte order mark" if self.mark else "--encoding"
        return f"text in {self._encoding.upper()}, as {source} says"

    def _remedy(self, candidates: Sequence[tuple[str, str]]) -> str:
        """What to do: choose one of some encodings, given with the line as it reads in each."""
        if not candidates:
            return "convert the file to UTF-8 from its encoding"
        flag = "--encoding=" if self._has_options else ""
        readings = " or ".join(f"{flag}{name} ({text!r})" for name, text in candidates)
        if self._has_options:
            return f"give the encoding in which this line reads well: {readings}"
        return (
            f"convert the file to UTF-8 from the encoding in which this line reads well: {readings}"
        )


# ---------------------------------------------------------------------------- candidates

# The encodings that an error may name: the most used of those that browsers know (WHATWG, Encoding
# Standard). Of several in which a text reads alike it names the first.
_LIKELY = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp874", "koi8_r", "koi8_u", "cp866",
    "iso8859_2", "iso8859_15", "mac_roman", "mac_cyrillic",
]  # fmt: skip
MOST_CANDIDATES = 3
SAMPLE_BYTES = 1 << 14  # of a text, to find them
MOST_OF_LINE = 60  # characters of a line that an error shows


def _candidates(
    line: bytes, following: Iterable[bytes], *, is_first: bool
) -> list[tuple[str, str]]:
    """The encodings that a text may be in, likeliest first, and how a line would read in each.

    Args:
      line: a line that is not in the expected encoding.
      following: the lines after it.
      is_first: whether it is the first line of the text. Only there is it known where the
        characters of UTF-16 begin.
    """
    sample = line + b"\n".join(_up_to(SAMPLE_BYTES, following))
    if b"\0" in sample:
        names = _utf_16_of(sample) if is_first else []
        return [(name, _first_line(sample, name)) for name in names]
    names = _encodings_of(sample) if _is_wrong(sample, "utf-8") else ["utf-8"]
    return [(name, _first_line(line, name)) for name in names]


def _utf_16_of(sample: bytes) -> list[str]:
    """Both orders of bytes, likeliest first: most NULs are the high bytes of ASCII characters."""
    nuls_in_first_bytes = sample[0::2].count(0)
    nuls_in_second_bytes = sample[1::2].count(0)
    if nuls_in_second_bytes >= nuls_in_first_bytes:
        return ["utf-16-le", "utf-16-be"]
    return ["utf-16-be", "utf-16-le"]


def _encodings_of(sample: bytes) -> list[str]:
    """The encodings of one byte or more that bytes may be in, likeliest first."""
    from charset_normalizer import from_bytes  # not at the top: errors alone need it

    wrong_lines = [part for part in sample.splitlines() if _is_wrong(part, "utf-8")]
    matches = from_bytes(b"\n".join(wrong_lines), cp_isolation=_LIKELY)
    alike = [match.could_be_from_charset for match in matches]
    return [min(names, key=_LIKELY.index) for names in alike[:MOST_CANDIDATES]]


def _first_line(content: bytes, encoding: str) -> str:
    """The first line of bytes in an encoding, for messages."""
    text, _, _ = content.decode(encoding, "replace").partition("\n")
    return shortened(text.strip(), MOST_OF_LINE)


def _up_to(num_bytes: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines until they have more than `num_bytes` together."""
    for line in lines:
        yield line
        num_bytes -= len(line)
        if num_bytes < 0:
            return


def _is_wrong(content: bytes, encoding: str) -> bool:
    """Whether bytes cannot be decoded by an encoding."""
    try:
        content.decode(encoding)
    except UnicodeError:
        return True
    return False
