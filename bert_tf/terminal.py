"""What a command shows while it runs: log lines, tables and bars.

All on standard error.
"""

import contextlib
import logging as python_logging
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from absl import logging

_process: list[str] = []  # which of several this one is


def name_process(name: str) -> None:
    """Puts the name of this process, one of several, into its log lines."""
    _process[:] = [f"[{name}] "]


class LineFormatter(python_logging.Formatter):
    """`11-23 08:38:12 text`, with the level before the text where it is a warning or worse.

    In a run of several processes: `11-23 08:38:12 [worker 1] text`.
    """

    def format(self, record: python_logging.LogRecord) -> str:
        """The line of a record."""
        prefix = time.strftime("%m-%d %H:%M:%S ", time.localtime(record.created))
        level = f"{record.levelname}: " if record.levelno >= python_logging.WARNING else ""
        return "".join([prefix, *_process, level]) + super().format(record)


def format_log_lines() -> None:
    """Formats all log lines of this process, TensorFlow's too, with `LineFormatter`."""
    logging.use_absl_handler()
    handler = logging.get_absl_handler().python_handler
    handler.setFormatter(LineFormatter())
    handler.stream = sys.stderr  # as it is now


def log_end(results: str, verb: str, *words: str, **flags: object) -> None:
    """Logs the last line of a command: where its results are, and the command to type next.

    `verb="export", init_checkpoint="my model", do_train=True, labels=None` is the command
    `bert-tf export --init_checkpoint='my model' --do_train`.
    """
    given = [(name, value) for name, value in flags.items() if value not in (None, False)]
    listed = [f"--{n}" if v is True else f"--{n}={shlex.quote(str(v))}" for n, v in given]
    path = [*sys.orig_argv, ""][1]  # of a program with these verbs: they know its heads
    is_own = path.endswith(".py") and sys.argv[0].startswith("bert-tf ")
    program = f"python {shlex.quote(path)}" if is_own else "bert-tf"
    command = " ".join([program, verb, *map(shlex.quote, words), *listed])
    logging.info("%s. Next: %s", results, command)


def rounded(number: float) -> str:
    """The number as text, with at most one decimal."""
    return f"{round(number, 1):.10g}"


def number_of(number: float, things: str) -> str:
    """A number and what is counted, which is given in the plural.

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
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


# ---------------------------------------------------------------------------- progress

# The one way to show that something takes long: a bar on a terminal, lines in a log.
#
#     with Progress("evaluate", 51, "batches") as progress:     share done, rate, time left
#         for number, batch in enumerate(batches, 1):
#             ...
#             progress.update(number)
#     with Progress("load TensorFlow"):                         how long it takes is unknown
#
# A bar rewrites the last line of the terminal, and log lines go above it. Where standard error is
# no terminal, lines are logged at intervals that grow.

SECONDS_TO_BAR = 1  # what is over sooner gets none
SECONDS_TO_REPORT = 2  # what took longer leaves a line
SECONDS_BETWEEN_BARS = 0.25
SECONDS_BETWEEN_LINES = (5, 60)  # at first, and in the end
BAR_WIDTH = 14
# Parts of a line that is too long, as patterns of which the group is kept: the rate, what is done
# of how much, the label but for its first word, the time left.
LEAST_IMPORTANT = (r"(), [^,]* a second", r"(): [^,]+", r"^(\w+)[^,]*", r"(), [^,]* left")
CLEAR = b"\r\x1b[K"  # the line


class Progress:
    """Something that takes long, from entering this context to leaving it.

    What is of unknown length within something counted, compilation say, is left out of its rate.
    """

    def __init__(self, label: str, total: float | None = None, unit: str = "", *, done: float = 0):
        """Nothing is shown before the context is entered.

        Args:
          label: what is done, in the imperative.
          total: how much there is to do, None if that is unknown.
          unit: what is counted, in the plural; "" if nothing is.
          done: how much was done before.
        """
        self._label, self._total, self._unit = label, total, unit
        self._done, self._note, self._interrupted, self._compiling = done, "", False, 0.0
        self._updates: list[tuple[float, float]] = []  # time and number of the first, of the last

    def __enter__(self) -> Self:
        self._start = self._last_line = time.monotonic()
        if not self._unit and not SCREEN.is_open:
            logging.info("%s ...", self._label)
        SCREEN.shown.append(self)
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        seconds = self.seconds
        with SCREEN.line():
            SCREEN.shown.remove(self)
            for around in () if self._unit else SCREEN.shown:
                around._interrupted = True
                around._compiling += seconds  # only that is within something counted
        if kind is None and seconds >= SECONDS_TO_REPORT:
            what = f"{number_of(self._done, self._unit)} in " * bool(self._unit)
            within = f" ({duration(self._compiling)} of them compiling)" * (self._compiling >= 1)
            logging.info("%s: %s%s%s", self._label, what, duration(seconds), within)

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._start

    def update(self, done: float, note: str = "") -> None:
        """Call it as often as you like; `done` counts up to the total."""
        now = time.monotonic()
        if self._interrupted and self._updates:  # the rate is that of the rest
            (begun, first), (last, before) = self._updates[0], self._updates[-1]
            self._updates[0] = begun + now - last, first + done - before
        self._updates[1:] = [(now, done)]
        self._done, self._note, self._interrupted = done, note, False
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
        if not self._updates:
            return f"{self._label}, {duration(self.seconds)}"
        # The rate after the first item, for which something may be compiled.
        (begun, first), (now, last) = self._updates[0], self._updates[-1]
        rate = (last - first) / max(now - begun, 1e-9)
        line = progress_line(self._label, self._done, self._total, self._unit, rate)
        return line + self._note

    def bar(self, width: int) -> str:
        """The share that is done as a picture, and the text; whole parts that do not fit go.

        First the rate, then the picture, and the rest as in `LEAST_IMPORTANT`; the note stays.
        """
        text, room = self.text(), width - BAR_WIDTH - 2
        if self._total and self._updates:
            text = text if len(text) <= room else re.sub(LEAST_IMPORTANT[0], "", text)
            if len(text) <= room:
                full = int(BAR_WIDTH * min(1.0, self._done / self._total))
                return "━" * full + "─" * (BAR_WIDTH - full) + "  " + text
        for part in LEAST_IMPORTANT:
            text = re.sub(part, r"\1", text, count=1) if len(text) > width else text
        return text if len(text) <= width else text[:width].rpartition(" ")[0]


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
      is_open: whether there are bars.
    """

    def __init__(self):
        self.shown: list[Progress] = []
        self.is_open = False
        self._is_drawn = False
        self._lock = threading.RLock()

    def open(self) -> None:
        """Draws bars from now on, if standard error is a terminal that can rewrite its line."""
        if not self.is_open and os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb":
            # A copy: messages of TensorFlow's start are caught by redirecting the file.
            self._terminal, self.is_open = os.dup(2), True
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
                if self.shown and self.shown[-1].seconds >= SECONDS_TO_BAR:
                    width = (os.get_terminal_size(self._terminal).columns or 80) - 1
                    bar = self.shown[-1].bar(width)
                    self._write(CLEAR + bar.encode(sys.stderr.encoding or "ascii", "replace"))
                    self._is_drawn = True

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, data)


SCREEN = Screen()


def progress_line(label: str, done: float, total: float | None, unit: str, rate: float) -> str:
    """What is done of how much, how fast, and the time that is left, where these are known.

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
    """The largest two units.

    >>> duration(7.4), duration(200), duration(7500)
    ('7 s', '3 min 20 s', '2 h 5 min')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
