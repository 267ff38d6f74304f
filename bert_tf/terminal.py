"""Standard error while a command runs: log lines, tables and progress bars."""

import contextlib
import logging as python_logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from absl import logging

_process: list[str] = []  # the name of this process, if a run has several


def name_process(name: str) -> None:
    """Puts the name of this process, one of several, into its log lines."""
    _process[:] = [f"[{name}] "]


class LineFormatter(python_logging.Formatter):
    """Formats log lines as `2026-11-23 08:38:12+0100 text`.

    Before the text comes the level of a warning or an error, and in a run of several processes the
    name of this one: `2026-11-23 08:38:12+0100 [worker 1] WARNING: text`.
    """

    def format(self, record: python_logging.LogRecord) -> str:
        """The line of a record."""
        prefix = time.strftime("%Y-%m-%d %H:%M:%S%z ", time.localtime(record.created))
        level = f"{record.levelname}: " if record.levelno >= python_logging.WARNING else ""
        return "".join([prefix, *_process, level]) + super().format(record)


_has_bars = False


def prepare() -> None:
    """Sets the format of this process's log lines, TensorFlow's too; allows bars on a terminal."""
    global _has_bars
    is_shown = sys.stderr is not None and sys.stderr.isatty()
    _has_bars = is_shown and os.environ.get("TERM", "dumb") != "dumb"
    logging.use_absl_handler()
    handler = logging.get_absl_handler().python_handler
    handler.setFormatter(LineFormatter())
    handler.stream = _AboveBars() if _has_bars else sys.stderr  # as it is now


class _AboveBars:
    """Standard error, for whole lines, which are written above the bars."""

    def write(self, text: str) -> None:
        """Writes whole lines."""
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr, end="")

    def isatty(self) -> bool:
        """True: a handler leaves such a stream open at its end."""
        return True


def rounded(number: float) -> str:
    """A number as text, with at most one decimal."""
    return f"{round(number, 1):.10g}"


def number_of(number: float, things: str) -> str:
    """A number and the counted things, which are given in the plural.

    >>> number_of(1, "batches"), number_of(1, "workers"), number_of(2, "files")
    ('1 batch', '1 worker', '2 files')
    """
    if number == 1:
        things = re.sub("(?<=ch)es$|s$", "", things)
    return f"{rounded(number)} {things}"


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """The rows as lines of text, in aligned columns.

    >>> aligned([["rate", "best"], ["5e-05", 0.5]])
    ['rate   best', '5e-05  0.5']
    """
    texts = [[*map(str, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = map(str.ljust, row, widths)
        lines.append("  ".join(cells).rstrip())
    return lines


# ---------------------------------------------------------------------------- progress

SECONDS_TO_BAR = 1  # shorter work gets no bar
SECONDS_TO_REPORT = 2  # longer work leaves a line
SECONDS_BETWEEN_LINES = 20  # of a log


class Progress:
    """Shows the progress of long work: tqdm's bar on a terminal, lines in a log.

    with Progress("evaluate", 51, "batches") as progress:     share done, rate, time left
        for number, batch in enumerate(batches, 1):
            ...
            progress.update(number)
    with Progress("load TensorFlow"):                         work of unknown length
        ...
    """

    _bar: Any = None

    def __init__(self, label: str, total: float | None = None, unit: str = "", *, done: float = 0):
        """Shows nothing: the work begins when the context is entered.

        Args:
          label: the work, in the imperative.
          total: how much there is to do; None if that is unknown.
          unit: the counted things, in the plural; "" if nothing is counted.
          done: how much was done before.
        """
        self._label = label
        self._total = total
        self._unit = unit
        self._done = done
        self._first_update: tuple[float, float] | None = None  # its time and `done`

    def __enter__(self) -> Self:
        self._start = self._last_line = time.monotonic()
        if _has_bars:
            self._bar = self._make_bar()
        elif not self._unit:
            logging.info("%s ...", self._label)
        return self

    def _make_bar(self) -> Any:
        from tqdm import tqdm  # not at the top: every command starts here

        options = {"desc": self._label, "file": sys.stderr, "leave": False}
        # A terminal that does not know its size would get no bars.
        has_size = all(os.get_terminal_size(2))
        options |= {"dynamic_ncols": True} if has_size else {"ncols": 79, "nrows": 24}
        if not self._unit:
            return tqdm(**options, bar_format="{desc} ...")
        return tqdm(
            **options,
            total=self._total and round(self._total, 1),
            unit=f" {self._unit}",
            initial=round(self._done, 1),
            delay=SECONDS_TO_BAR,
        )

    def __exit__(self, kind: type | None, *_: Any) -> None:
        seconds = time.monotonic() - self._start
        if self._bar is not None:
            self._bar.close()
        if kind is None and seconds >= SECONDS_TO_REPORT:
            count = f"{number_of(self._done, self._unit)} in " if self._unit else ""
            logging.info("%s: %s%s", self._label, count, duration(seconds))

    def update(self, done: float, note: str = "") -> None:
        """Shows that `done` of the total is done; cheap enough for every item."""
        now = time.monotonic()
        self._done = done
        if self._first_update is None:
            self._first_update = (now, done)
        if self._bar is not None:
            self._bar.set_postfix_str(note.lstrip(",; "), refresh=False)
            self._bar.n = round(done, 1)
            self._bar.update(0)
        elif done and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self.said()
            # Without the first item, for which something may be compiled.
            first_time, first_done = self._first_update
            rate = (done - first_done) / max(now - first_time, 1e-9)
            line = progress_line(self._label, done, self._total, self._unit, rate)
            logging.info("%s%s", line, note)

    def said(self) -> None:
        """Notes that another log line has just reported the progress."""
        self._last_line = time.monotonic()


def announced(label: str, *, when: bool = True) -> contextlib.AbstractContextManager:
    """A `Progress` of unknown length, or nothing."""
    return Progress(label) if when else contextlib.nullcontext()


def counted(items: Iterable, label: str, total: int | None, unit: str) -> Iterator:
    """Yields items, and shows the `Progress` of those that are taken."""
    with Progress(label, total, unit) as progress:
        for number, item in enumerate(items, 1):
            yield item
            progress.update(number)


def progress_line(label: str, done: float, total: float | None, unit: str, rate: float) -> str:
    """A line with what is done and, as far as known, the total, the rate and the time left.

    >>> progress_line("tokenize", 12, 59.04, "MB", 1.5)
    'tokenize: 12 of 59 MB, 1.5 a second, 31 s left'
    >>> progress_line("answer", 1, None, "rows", 7543.2)
    'answer: 1 row, 7,540 a second'
    """
    whole = "" if total is None else f" of {rounded(total)}"
    speed = f", {float(f'{rate:.3g}'):,.10g} a second" if rate else ""
    left = f", {duration(max(0, total - done) / rate)} left" if rate and whole else ""
    count = f"{rounded(done)}{whole} {unit}" if whole else number_of(done, unit)
    return f"{label}: {count}{speed}{left}"


def duration(seconds: float) -> str:
    """A time as text, in its two largest units.

    >>> duration(7.4), duration(200), duration(7500)
    ('7 s', '3 min 20 s', '2 h 5 min')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
