"""Reports a hang: something that is watched makes no progress.

    with WATCHDOG.watched("evaluate") as watch:
        for number in range(51):
            watch.doing(f"evaluate, batch {number + 1} of 51")      this is progress
            ...

The log then says what hangs, since when, in which process, and what to do; the stacks of all Python
threads follow. Nothing is watched before `set_limit`. A thread looks at times; it ends with the
outermost `watched`.
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
_CAUSES = "a device or its driver that hangs; a file system that does not answer; slow steps."
_OF_ONE = (
    f"Usual causes: {_CAUSES}",
    "To do: see below where it waits; check the devices (dmesg, nvidia-smi) and the file systems. "
    "Then end it, and give the same command again: it resumes from the last checkpoint. If it is "
    "only slow, raise --hang_seconds.",
)
_OF_SEVERAL = (
    f"Usual causes: another process that hangs or is much slower; {_CAUSES}",
    "To do: compare the logs of all processes. The one that is silent, or waits elsewhere, is the "
    "cause: end it, and start it again; the others then resume from the last checkpoint with it. "
    "If it is only slow, raise --hang_seconds.",
)


class Watch:
    """Something that is to make progress: what it does now, since when, how long it may take."""

    def __init__(self, limit: float):
        self._limit = limit
        self.what, self.since, self.report_after = "", time.monotonic(), limit

    def doing(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> None:
        """Call it at each progress.

        Args:
          what: is done from now on.
          usual: seconds that it takes, if known.
          compiles: whether it compiles something first.
        """
        self.report_after = max(self._limit * (COMPILING if compiles else 1), SLOWER * usual)
        self.what, self.since = what, time.monotonic()


class Watchdog:
    """Watches this process; there is one, `WATCHDOG`."""

    def __init__(self):
        self._seconds, self._ends = 0.0, False
        self._process, self._advice = "this process", _OF_ONE
        self._watches: list[Watch] = []  # the innermost last
        self._over: threading.Event | None = None  # set to end the thread

    def set_limit(self, seconds: float, *, ends: bool = False) -> None:
        """Sets what counts as a hang.

        Args:
          seconds: without progress; 0 watches nothing.
          ends: whether the process ends then, with exit code 1.
        """
        self._seconds, self._ends = seconds, ends

    def set_process(self, name: str) -> None:
        """Tells which of several processes this is."""
        self._process, self._advice = name, _OF_SEVERAL

    @contextlib.contextmanager
    def watched(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> Iterator[Watch]:
        """Watches what is done within this context; of nested ones only the innermost.

        Args:
          what: as for `Watch.doing`, here and below.
          usual: see there.
          compiles: see there.
        """
        watch = Watch(self._seconds)
        watch.doing(what, usual=usual, compiles=compiles)
        if not self._seconds:
            yield watch
            return
        self._watches.append(watch)
        if self._over is None:
            self._over = threading.Event()
            args = (self._over, self._seconds)
            threading.Thread(target=self._look, args=args, name="watchdog", daemon=True).start()
        try:
            yield watch
        finally:
            self._watches.remove(watch)
            if self._watches:
                self._watches[-1].since = time.monotonic()  # the end of `watch` is progress
            else:
                self._over.set()
                self._over = None

    @contextlib.contextmanager
    def without_python(self, what: str) -> Iterator[None]:
        """Watches a call into C during which no Python thread runs, so `watched` would not see it.

        Logs `what` before the call; if that hangs, only the stacks can be written.

        Args:
          what: what the process is doing, for the log.
        """
        then = ""
        if self._seconds:
            end = ", and it ends" if self._ends else ""
            then = f"; after {duration(self._seconds)} the stacks of this process follow{end}"
        logging.info("%s%s.", what, then)
        if self._seconds:
            faulthandler.dump_traceback_later(
                self._seconds, repeat=True, file=_error_stream(), exit=self._ends
            )
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _look(self, over: threading.Event, seconds: float) -> None:
        pause = min(seconds / 4, LONGEST_PAUSE)
        last = time.monotonic()
        while not over.wait(pause):
            now = time.monotonic()
            late, last = now - last - pause, now
            watches = self._watches[-1:]
            if late > pause:  # no Python ran, as in a stopped process: not a hang
                for watch in watches:
                    watch.since = min(now, watch.since + late)
            for watch in watches:
                if now - watch.since >= watch.report_after:
                    watch.report_after = 2 * (now - watch.since)
                    self._report(watch.what, now - watch.since)

    def _report(self, what: str, seconds: float) -> None:
        if self._ends:  # also where the log itself is what hangs
            end = threading.Timer(LONGEST_PAUSE, os._exit, [1])
            end.daemon = True
            end.start()
        logging.warning(
            "No progress for %s: %s, since %s, in %s (process %d on %s).\n%s\n%s\n"
            "Where its threads are (the main one comes last):",
            *(duration(seconds), what),
            time.strftime("%m-%d %H:%M:%S", time.localtime(time.time() - seconds)),
            *(self._process, os.getpid(), socket.gethostname(), *self._advice),
        )
        logging.flush()
        _write_stacks()
        if self._ends:
            logging.error("This process ends, as --end_when_hung asks.")
            logging.flush()
            os._exit(1)


def _write_stacks() -> None:
    """Writes the stacks of all Python threads to standard error."""
    with SCREEN.line():
        sys.stderr.flush()
        faulthandler.dump_traceback(_error_stream())


def _error_stream() -> int:
    """The file descriptor of standard error."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook's stream
        return 2


WATCHDOG = Watchdog()
