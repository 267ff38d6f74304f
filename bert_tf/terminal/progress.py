"""The one way to show that something takes long: a bar on a terminal, lines in a log.

    with Progress("evaluate", 51, "batches") as progress:     share done, rate, time left
        for number, batch in enumerate(batches, 1):
            ...
            progress.update(number)
    with Progress("load TensorFlow"):                         how long it takes is unknown

A bar rewrites the last line of the terminal, and log lines go above it. Where standard error is no
terminal, lines are logged at intervals that grow.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Self

from absl import logging

from bert_tf.terminal.messages import number_of, rounded

SECONDS_TO_BAR = 1  # what is over sooner gets none
SECONDS_TO_REPORT = 2  # what took longer leaves a line
SECONDS_BETWEEN_BARS = 0.25
SECONDS_BETWEEN_LINES = (5, 60)  # at first, and in the end
BAR_WIDTH = 14
CLEAR = b"\r\x1b[K"  # the line


class Progress:
    """Something that takes long, from entering this context to leaving it."""

    def __init__(self, label: str, total: float | None = None, unit: str = "", *, done: float = 0):
        """Nothing is shown before the context is entered.

        Args:
          label: what is done, in the imperative.
          total: how much there is to do, None if that is unknown.
          unit: what is counted, in the plural; "" if nothing is.
          done: how much was done before.
        """
        self._label, self._total, self._unit = label, total, unit
        self._done, self._note = done, ""
        self._updated: float | None = None
        # For the rate. The first item does not count: something may be compiled for it.
        self._seconds, self._items, self._counts = 0.0, 0.0, False

    def __enter__(self) -> Self:
        self._start = self._last_line = time.monotonic()
        if not self._unit and not SCREEN.is_open:
            logging.info("%s ...", self._label)
        SCREEN.shown.append(self)
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        seconds = time.monotonic() - self._start
        with SCREEN.line():
            SCREEN.shown.remove(self)
        if SCREEN.shown and not self._unit:
            SCREEN.shown[-1]._counts = False  # a compilation within it, for example
        if kind is None and seconds >= SECONDS_TO_REPORT:
            what = f"{number_of(self._done, self._unit)} in " * bool(self._unit)
            logging.info("%s: %s%s", self._label, what, duration(seconds))

    def update(self, done: float, note: str = "") -> None:
        """Call it as often as you like; `done` counts up to the total."""
        now = time.monotonic()
        if self._counts:
            self._seconds += now - self._updated
            self._items += done - self._done
        self._updated, self._counts = now, True
        self._done, self._note = done, note
        least, most = SECONDS_BETWEEN_LINES
        pause = min(most, max(least, (self._last_line - self._start) / 2))
        if not SCREEN.is_open and done and now - self._last_line >= pause:
            self._last_line = now
            logging.info("%s", self.text())

    def said(self) -> None:
        """Call it when another log line has reported the progress."""
        self._last_line = time.monotonic()

    def text(self) -> str:
        """The label, how much is done, how fast, and the note."""
        if self._updated is None:
            return f"{self._label}, {duration(time.monotonic() - self._start)}"
        rate = self._items / max(self._seconds, 1e-9)  # 0 until an item counts
        if rate and self._total is not None:
            line = progress_line(self._label, self._done, self._total, self._unit, rate)
            return line + self._note
        total = "" if self._total is None else f" of {rounded(self._total)}"
        speed = f", {rate:.3g} a second" * bool(rate)
        return f"{self._label}: {rounded(self._done)}{total} {self._unit}{speed}{self._note}"

    def bar(self, width: int) -> str:
        """The share that is done as a picture, and the text; parts that do not fit are left out."""
        text = self.text()
        if self._total and self._updated is not None and len(text) + BAR_WIDTH + 2 <= width:
            full = int(BAR_WIDTH * min(1.0, self._done / self._total))
            return "━" * full + "─" * (BAR_WIDTH - full) + "  " + text
        while len(text) > width and ", " in text:
            text = text.rpartition(", ")[0]
        return text[:width]

    @property
    def is_due(self) -> bool:
        """Whether it has taken so long that there should be a bar."""
        return time.monotonic() - self._start >= SECONDS_TO_BAR


def announced(label: str, *, when: bool = True) -> contextlib.AbstractContextManager:
    """A `Progress` of unknown length, or nothing."""
    return Progress(label) if when else contextlib.nullcontext()


def counted(items: Iterable, label: str, total: int | None, unit: str) -> Iterator:
    """The items, with the `Progress` of those that are taken."""
    with Progress(label, total, unit) as progress:
        for number, item in enumerate(items, 1):
            yield item
            progress.update(number)


class Screen:
    """The last line of a terminal, where the bar of the innermost `Progress` is drawn.

    Attributes:
      shown: the `Progress` objects that were entered, the innermost last.
    """

    def __init__(self):
        self.shown: list[Progress] = []
        self._terminal: int | None = None  # its file
        self._is_drawn = False
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether there are bars."""
        return self._terminal is not None

    def open(self, file: int = 2) -> None:
        """Draws bars from now on, if this file is a terminal that can rewrite its line."""
        if not self.is_open and os.isatty(file) and os.environ.get("TERM", "dumb") != "dumb":
            # A copy: messages of TensorFlow's start are caught by redirecting the file.
            self._terminal = os.dup(file)
            threading.Thread(target=self._draw_forever, daemon=True).start()

    @contextlib.contextmanager
    def line(self) -> Iterator[None]:
        """Clears the bar; none is drawn within this context."""
        with self._lock:
            if self._is_drawn:
                self._write(CLEAR)
                self._is_drawn = False
            yield

    def _draw_forever(self) -> None:
        while True:
            time.sleep(SECONDS_BETWEEN_BARS)
            with self._lock:
                if self.shown and self.shown[-1].is_due:
                    self._draw(self.shown[-1])

    def _draw(self, progress: Progress) -> None:
        try:
            width = (os.get_terminal_size(self._terminal).columns or 80) - 1
        except OSError:
            width = 79
        bar = progress.bar(width)
        self._write(CLEAR + bar.encode(sys.stderr.encoding or "ascii", "replace"))
        self._is_drawn = True

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, data)


SCREEN = Screen()

# ---------------------------------------------------------------------------- numbers


def progress_line(label: str, done: float, total: float, unit: str, rate: float) -> str:
    """What is done of how much, how fast, and the time that is left.

    >>> progress_line("tokenize", 12, 59.04, "MB", 1.5)
    'tokenize: 12 of 59 MB, 1.5 a second, 31 s left'
    """
    left = duration(max(0, total - done) / rate)
    return f"{label}: {rounded(done)} of {rounded(total)} {unit}, {rate:.3g} a second, {left} left"


def duration(seconds: float) -> str:
    """The largest two units.

    >>> duration(7.4), duration(200), duration(7500)
    ('7 s', '3 min 20 s', '2 h 5 min')
    """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
