"""The lines of a file or a stream, the first of which can be looked at before they are read."""

import itertools
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator

from bert_tf import decoding, files
from bert_tf.options import Reading

STDIN = "standard input"
HEAD = 1 << 20  # characters at the beginning of a file that are looked at
# Between a carriage return and the next line, in files of old Macs.
AFTER_RETURN = re.compile(r"(?<=\r)(?!\n)")
# A first line that tells Excel the separator.
EXCEL = re.compile(r'"?sep=(.)"?')


class Lines:
    """Lines with their ends.

    Attributes:
      name: the name of the file, or `STDIN`; for messages.
      is_live: whether each line is answered as it comes, as from a pipe: then only the first is
        waited for.
    """

    def __init__(self, lines: Iterable[str], name: str, *, is_live: bool = False):
        """Reads nothing yet."""
        self.name = name
        self.is_live = is_live
        self._lines = iter(lines)
        self._head: list[str] = []

    def head(self) -> list[str]:
        """The first lines, some `HEAD` characters; of a live stream those up to the first row."""
        size = 0
        if not self._head:
            for line in self._lines:
                self._head.append(line)
                size += len(line)
                if size > HEAD or (self.is_live and _is_telling(line)):
                    break
        return self._head

    def one_more(self) -> list[str]:
        """The head, extended by the next line of a live stream, for which it waits."""
        if self.is_live:
            self._head.extend(itertools.islice(self._lines, 1))
        return self._head

    def __iter__(self) -> Iterator[str]:
        """All lines, including the head."""
        yield from self._head
        yield from self._lines

    def from_here(self, line: str, rest: Iterator[str]) -> "Lines":
        """The line and the rest of the lines, as `Lines` of the same file."""
        return Lines(itertools.chain([line], rest), self.name, is_live=self.is_live)

    def place(self, number: int) -> str:
        """The place of a line, numbered from 1, for messages."""
        return f"{self.name}, line {number}"


def lines_in(path: str | None, reading: Reading | None = None) -> Lines:
    """The lines of a file, or of standard input.

    Args:
      path: the path of the file; None: standard input.
      reading: how its bytes are decoded; None where the user has no such options.

    Raises:
      InputError: while lines are read, as in `decoding.text_lines_of`.
    """
    how = {}
    if reading is not None:
        how = {"encoding": reading.encoding, "encoding_errors": reading.encoding_errors}
    if path:
        return Lines(files.read_text_lines(path, **how), path)
    stream = sys.stdin.buffer
    blocks = iter(lambda: stream.readline(files.READ_BYTES), b"")
    lines = decoding.text_lines_of(blocks, STDIN, **how)
    return Lines(lines, STDIN, is_live=not _is_file(stream))


def _is_telling(line: str) -> bool:
    """Whether a line is a row, neither empty nor Excel's line with the separator."""
    return bool(line.strip()) and not EXCEL.fullmatch(without_end(line))


def _is_file(stream: object) -> bool:
    """Whether a stream reads a regular file."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # no stream of the operating system
        return False


def without_end(line: str) -> str:
    """A line without its end, of Unix or Windows."""
    return line.removesuffix("\n").removesuffix("\r")


def at_returns(lines: Iterable[str]) -> Iterator[str]:
    """The lines, cut after carriage returns as well, as in files of old Macs."""
    for line in lines:
        yield from filter(None, AFTER_RETURN.split(line))
