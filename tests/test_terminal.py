"""bert_tf/terminal.py: log lines, tables, bars on a (pseudo-)terminal."""

import contextlib
import doctest
import logging
import os
import pathlib
import pty
import re
import subprocess
import sys
import termios

import pytest

from bert_tf import terminal

ROOT = pathlib.Path(__file__).parents[1]


def test_the_drawn_examples():
    assert doctest.testmod(terminal).failed == 0


@pytest.mark.parametrize(("level", "shown"), [("INFO", ""), ("WARNING", "WARNING: ")])
@pytest.mark.parametrize("process", ["", "[worker 1] "])
def test_a_line_has_a_short_prefix(monkeypatch, level, shown, process):
    monkeypatch.setattr(terminal, "_process", [])
    if process:
        terminal.name_process("worker 0")  # of a run before
        terminal.name_process("worker 1")
    values = ("absl", getattr(logging, level), "file.py", 7, "%d of %s", (3, "x"), None)
    line = terminal.LineFormatter().format(logging.LogRecord(*values))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} ", line[:25])
    assert line[25:] == f"{process}{shown}3 of x"


# ---------------------------------------------------------------------------- progress

BAR_SCRIPT = """
import sys, time
from absl import logging
from bert_tf import terminal
from bert_tf.cli.main import run
from bert_tf.options import Options
from bert_tf.terminal import Progress
LOADS_TENSORFLOW = False

def main(options: Options):
    with Progress("load"):
        time.sleep(0.2)
    with Progress("read", 8, "files") as files:
        files.update(2)
        time.sleep(0.1)
        files.update(4, ", loss 0.5")
        time.sleep(0.2)
        logging.warning("look out")
        time.sleep(0.2)
    print("a result")

terminal.SECONDS_TO_BAR, terminal.SECONDS_TO_REPORT = 0.05, 0.3
terminal.SECONDS_BETWEEN_LINES = 0.05
run(main)
"""
READ = r"read: 4 of 8 files, [0-9.]+ a second, 0 s left, loss 0\.5"


def test_a_bar_is_drawn_below_what_is_logged_and_a_log_gets_lines():
    words = [sys.executable, "-c", BAR_SCRIPT]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    dumb = {**environment, "TERM": "dumb"}
    with (
        subprocess.Popen(words, stderr=theirs, env=environment, **options) as process,
        subprocess.Popen(words, stderr=subprocess.PIPE, env=dumb, **options) as logs,
    ):
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while True:
                written += os.read(ours, 1 << 16)
        os.close(ours)
        assert process.stdout.read() == logs.stdout.read() == b"a result\n"
        said = logs.stderr.read().decode()
    shown = re.split(r"[\r\n]+", written.decode())
    assert "load ..." in shown
    (bar, *_) = [line for line in shown if "4/8" in line]
    assert "_AboveBars" not in written.decode()
    assert re.fullmatch(r"read:  50%\|█+ +\| 4/8 \[.* files/s, loss 0.5\]", bar.strip())
    kept = [re.sub("^[0-9-]{10} [0-9:]{8}[+-][0-9]{4} ", "# ", line) for line in shown]
    assert "# WARNING: look out" in kept  # a line of its own
    assert any(re.fullmatch("# read: 4 files in [01] s", line) for line in kept)
    lines = [line.partition(" ")[2].partition(" ")[2] for line in said.splitlines()]
    assert lines[0] == "load ..."
    assert re.fullmatch(READ, lines[1])
    assert lines[2] == "WARNING: look out"
    assert re.fullmatch("read: 4 files in [01] s", lines[3])


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(terminal, "time", clock)
    return clock


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines = []
    monkeypatch.setattr(terminal.logging, "info", lambda text, *values: lines.append(text % values))
    return lines


def test_a_line_says_how_long_it_will_take(said, clock):
    """The rate is that of what comes after the first item, for which something was compiled."""
    with terminal.Progress("read", 60, "MB", done=4) as reading:
        for clock.now, done in ((104.0, 10), (120.0, 14), (121.0, 15), (130.0, 36)):
            reading.update(done, note="; all well")
        clock.now = 300.0
        reading.update(60, note="; all well")
        clock.now = 316.0
        reading.said()  # by another line
        clock.now = 320.0
        reading.update(60)
    with terminal.Progress("answer", None, "lines") as answering:
        for clock.now, done in ((321.0, 32), (331.0, 64), (341.0, 96)):
            answering.update(done)
    with contextlib.suppress(OSError), terminal.Progress("read", 9, "MB"):
        clock.now += 100
        raise OSError("gone")  # of what fails nothing is said
    assert said == [
        "read: 14 of 60 MB, 0.25 a second, 3 min 4 s left; all well",
        "read: 60 of 60 MB, 0.255 a second, 0 s left; all well",
        "read: 60 MB in 3 min 40 s",
        "answer: 96 lines, 3.2 a second",
        "answer: 96 lines in 21 s",
    ]
