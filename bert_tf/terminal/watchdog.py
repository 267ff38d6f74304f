"""Reports a hang: something that is watched makes no progress.

    with WATCHDOG.watched("evaluate") as watch:
        for number in range(51):
            watch.doing(f"evaluate, batch {number + 1} of 51")      this is progress
            ...

The log then says what hangs, since when, in which process, and what to do; the stacks of all Python
threads follow. Nothing is watched before `set_limit`.
"""

import contextlib
import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from absl import logging

from bert_tf.terminal.progress import SCREEN, duration

COMPILING = 3  # times the limit, for what compiles something first
SLOWER = 5  # times the usual duration, where that is known, are no hang
LONGEST_PAUSE = 10.0  # seconds between two looks
_ADVICE = """\
Usual causes: a device, a file system or another process of the run that hangs; or slow steps.
To do: see below where it waits; check the devices (dmesg, nvidia-smi) and the file systems. Of
several processes the one whose log is silent, or tells of another place, is the cause. End it, and
give the same command again: it resumes from the last checkpoint. For slow steps raise
--hang_seconds."""


class Watch:
    """Something that is to make progress: what it does now, for how long, how long it may take."""

    def __init__(self, limit: float):
        self._limit = limit
        # The seconds are those of the looks at it: none while this process is stopped.
        self.what, self.seconds, self.report_after = "", 0.0, limit

    def doing(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> None:
        """Call it at each progress.

        Args:
          what: is done from now on.
          usual: seconds that it takes, if known.
          compiles: whether it compiles something first.
        """
        self.report_after = max(self._limit * (COMPILING if compiles else 1), SLOWER * usual)
        self.what, self.seconds = what, 0.0


class Watchdog:
    """Watches this process; there is one, `WATCHDOG`."""

    def __init__(self):
        self._limit, self._ends, self._process = 0.0, False, "this process"
        self._watches: list[Watch] = []  # the innermost last
        self._thread: threading.Thread | None = None

    def set_limit(self, seconds: float, *, ends: bool = False) -> None:
        """Sets what counts as a hang, and starts the thread that looks.

        Args:
          seconds: without progress; 0 watches nothing.
          ends: whether the process ends then, with exit code 1.
        """
        self._limit, self._ends = seconds, ends
        if seconds and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
            self._thread.start()

    def set_process(self, name: str) -> None:
        """Tells which of several processes this is."""
        self._process = name

    @contextlib.contextmanager
    def watched(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> Iterator[Watch]:
        """Watches what is done within this context; of nested ones only the innermost.

        Args:
          what: as for `Watch.doing`, here and below.
          usual: see there.
          compiles: see there.
        """
        watch = Watch(self._limit)
        watch.doing(what, usual=usual, compiles=compiles)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
            for around in self._watches[-1:]:
                around.seconds = 0.0  # the end of `watch` is progress

    @contextlib.contextmanager
    def without_python(self, what: str) -> Iterator[None]:
        """Watches a call into C during which no Python thread runs, so `watched` would not see it.

        Logs `what` before the call; if that hangs, only the stacks can be written.

        Args:
          what: what the process is doing, for the log.
        """
        then = ""
        if self._limit:
            end = ", and it ends" if self._ends else ""
            then = f"; after {duration(self._limit)} the stacks of this process follow{end}"
            faulthandler.dump_traceback_later(
                self._limit, repeat=True, file=_error_stream(), exit=self._ends
            )
        logging.info("%s%s.", what, then)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _look(self) -> None:
        while self._limit:
            time.sleep(pause := min(self._limit / 4, LONGEST_PAUSE))
            for watch in self._watches[-1:]:
                watch.seconds += pause
                if watch.seconds >= watch.report_after:
                    watch.report_after = 2 * watch.seconds
                    self._report(watch.what, watch.seconds)

    def _report(self, what: str, seconds: float) -> None:
        if self._ends:  # also where the log itself is what hangs
            threading.Timer(LONGEST_PAUSE, os._exit, [1]).start()
        logging.warning(
            "No progress for %s: %s, since %s, in %s (process %d on %s).\n%s\n"
            "Where its threads are (the main one comes last):",
            *(duration(seconds), what),
            time.strftime("%m-%d %H:%M:%S", time.localtime(time.time() - seconds)),
            *(self._process, os.getpid(), socket.gethostname(), _ADVICE),
        )
        logging.flush()
        with SCREEN.line():
            faulthandler.dump_traceback(_error_stream())
        if self._ends:
            logging.error("This process ends, as --end_when_hung asks.")
            logging.flush()
            os._exit(1)


def _error_stream() -> int:
    """The file descriptor of standard error."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook's stream
        return 2


WATCHDOG = Watchdog()
