"""The lines of a file or a stream; the first ones can be looked at before they are read."""

import itertools
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator

from bert_tf import decoding, files
from bert_tf.options import Reading

STDIN = "standard input"
HEAD = 1 << 20  # characters of a file that are looked at
# The end of a line, and the beginning of the next one, in files of old Macs.
AFTER_RETURN = re.compile(r"(?<=\r)(?!\n)")


# The first line by which Excel knows the separator.
EXCEL = re.compile(r'"?sep=(.)"?')


class Lines:
    """Lines with their ends.

    Attributes:
      name: of the file, or `STDIN`; in messages.
      is_live: whether lines are to be answered as they come, as those of a pipe are: then no
        more than the first of them is waited for.
    """

    def __init__(self, lines: Iterable[str], name: str, *, is_live: bool = False):
        """Reads nothing yet."""
        self.name = name
        self.is_live = is_live
        self._lines = iter(lines)
        self._head: list[str] = []

    def head(self) -> list[str]:
        """The first lines, up to `HEAD` characters; of a live stream the first with a text."""
        size = 0
        if not self._head:
            for line in self._lines:
                self._head.append(line)
                size += len(line)
                if size > HEAD or (self.is_live and _is_telling(line)):
                    break
        return self._head

    def one_more(self) -> list[str]:
        """The head with the next line of a live stream, which is waited for."""
        if self.is_live:
            self._head.extend(itertools.islice(self._lines, 1))
        return self._head

    def __iter__(self) -> Iterator[str]:
        """All lines, those of the head too."""
        yield from self._head
        yield from self._lines

    def from_here(self, line: str, rest: Iterator[str]) -> "Lines":
        """The line and those behind it, which may be looked at as these could."""
        return Lines(itertools.chain([line], rest), self.name, is_live=self.is_live)

    def place(self, number: int) -> str:
        """Names a line, numbered from 1, in messages."""
        return f"{self.name}, line {number}"


def lines_in(path: str | None, reading: Reading | None = None) -> Lines:
    """The lines of a file, or of standard input.

    Args:
      path: of the file; None: standard input.
      reading: how its bytes are decoded; None where the user has no such options.

    Raises:
      InputError: as they are read, as of `decoding.text_lines_of`.
    """
    given = {}
    if reading is not None:
        given = {"encoding": reading.encoding, "encoding_errors": reading.encoding_errors}
    if path:
        return Lines(files.read_text_lines(path, **given), path)
    stream = sys.stdin.buffer
    blocks = iter(lambda: stream.readline(files.READ_BYTES), b"")
    lines = decoding.text_lines_of(blocks, STDIN, **given)
    return Lines(lines, STDIN, is_live=not _is_file(stream))


def _is_telling(line: str) -> bool:
    """Whether a line is a row, rather than empty or what Excel writes before the header."""
    return bool(line.strip()) and not EXCEL.fullmatch(without_end(line))


def _is_file(stream: object) -> bool:
    """Whether a stream reads a regular file, whose end is sure to come."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # none of the system's
        return False


def without_end(line: str) -> str:
    """A line without the end of Unix or Windows."""
    return line.removesuffix("\n").removesuffix("\r")


def at_returns(lines: Iterable[str]) -> Iterator[str]:
    """The lines, which a carriage return alone ends too, as in files of old Macs."""
    for line in lines:
        yield from filter(None, AFTER_RETURN.split(line))
