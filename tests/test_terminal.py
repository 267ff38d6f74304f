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
import unittest.mock

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
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", line[:14])
    assert line[15:] == f"{process}{shown}3 of x"


# ---------------------------------------------------------------------------- progress

BAR_SCRIPT = """
import sys, time
from absl import logging
from bert_tf import terminal
from bert_tf.cli import main as cli
from bert_tf.terminal import Progress

def main(_):
    with Progress("load"):
        time.sleep(0.2)
    with Progress("read", 8, "files") as files:
        files.update(2)
        time.sleep(0.1)
        files.update(4, ", loss 0.5")
        time.sleep(0.2)
        logging.warning("look out")
        print("a message", file=sys.stderr)
        time.sleep(0.2)
    print("a result")

terminal.SECONDS_TO_BAR, terminal.SECONDS_BETWEEN_BARS = 0.05, 0.02
terminal.SECONDS_TO_REPORT, terminal.SECONDS_BETWEEN_LINES = 0.3, (0.05, 0.05)
cli.parse(lambda: None, needs_tensorflow=False)
cli.run(main)
"""
READ = r"read: 4 of 8 files, [0-9.]+ a second, 0 s left, loss 0\.5"


def test_a_bar_rewrites_its_line_below_what_is_logged_and_a_log_gets_lines():
    words = [sys.executable, "-c", BAR_SCRIPT]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE}
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    with (
        subprocess.Popen(words, stderr=theirs, env=environment, **options) as process,
        subprocess.Popen(words, stderr=subprocess.PIPE, **options) as logs,
    ):
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while True:
                written += os.read(ours, 1 << 16)
        os.close(ours)
        assert process.stdout.read() == logs.stdout.read() == b"a result\n"
        said = logs.stderr.read().decode()
    shown = [line.replace("\r", "") for line in re.split(r"\x1b\[K|\n", written.decode())]
    bars = [line for line in shown if "read: 4 of 8 files" in line]
    assert len(bars) > 5
    assert re.fullmatch(rf"━{{7}}─{{7}}  {READ}", bars[0])
    assert "load, 0 s" in shown
    kept = [line.split("\x1b[K")[-1] for line in written.decode().split("\r\n")]
    kept = [re.sub("^[0-9-]{5} [0-9:]{8} ", "# ", line) for line in kept]
    assert kept[:2] == ["# WARNING: look out", "a message"]
    assert re.fullmatch("# read: 4 files in [01] s", kept[2])  # what took no time says nothing
    lines = [line.partition(" ")[2].partition(" ")[2] for line in said.splitlines()]
    assert lines[0] == "load ..."
    assert re.fullmatch(READ, lines[1])
    assert lines[2] == "WARNING: look out"
    assert re.fullmatch("read: 4 files in [01] s", lines[4])


@pytest.mark.parametrize(("term", "is_open"), [("xterm", True), ("dumb", False), (None, False)])
def test_only_a_terminal_that_can_rewrite_gets_bars(monkeypatch, term, is_open):
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(terminal.threading, "Thread", unittest.mock.MagicMock())
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM", raising=False)
    screen = terminal.Screen()
    screen.open()
    assert screen.is_open is is_open


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


def test_a_bar_is_cut_by_parts_and_keeps_the_loss(clock):
    left, picture = "2 h 46 min left, loss 0.6931", f"{'━' * 7}{'─' * 7}  "
    with terminal.Progress("train the model", 20000, "steps") as training:
        for clock.now, done in ((101.0, 1), (10100.0, 10000)):
            training.update(done, ", loss 0.6931")
        whole = f"train the model: 10000 of 20000 steps, {left}"
        bars = [training.bar(width) for width in (100, 85, 79, 60, 40, 30, 20, 8)]
        assert bars == [
            f"{picture}{whole.replace('s, 2', 's, 1 a second, 2')}",
            picture + whole,
            whole,
            f"train the model, {left}",
            f"train, {left}",
            "train, loss 0.6931",
            "train, loss 0.6931",
            "train,",
        ]


def test_what_compiles_is_in_no_rate(said, clock):
    """Steps of a second, of which the first, the second and the tenth compile for a minute."""
    with terminal.Progress("train", 100, "steps") as training:
        for step in range(1, 13):
            with terminal.announced("compile: train", when=step in (1, 2, 10)):
                clock.now += 60 if step in (1, 2, 10) else 1
            training.update(step)
            if step == 2:
                assert training.text() == "train: 2 of 100 steps"
            elif step > 2:
                left = terminal.duration(100 - step)
                assert training.text() == f"train: {step} of 100 steps, 1 a second, {left} left"
    assert said[-1] == "train: 12 steps in 3 min 9 s (3 min 0 s of them compiling)"


def test_a_line_says_how_long_it_will_take(said, clock):
    """The rate is that of what comes after the first item, for which something was compiled."""
    with terminal.Progress("read", 60, "MB", done=4) as reading:
        for clock.now, done in ((104.0, 10), (120.0, 14), (121.0, 15), (130.0, 36)):
            reading.update(done, note="; all well")
        clock.now = 300.0
        reading.update(60)
        reading.said()  # by another line
        clock.now = 304.0
        reading.update(60)
    with terminal.Progress("answer", None, "lines") as answering:
        for clock.now, done in ((305.0, 32), (315.0, 64)):
            answering.update(done)
    assert said == [
        "read: 14 of 60 MB, 0.25 a second, 3 min 4 s left; all well",
        "read: 36 of 60 MB, 1 a second, 24 s left; all well",
        "read: 60 of 60 MB, 0.255 a second, 0 s left",
        "read: 60 MB in 3 min 24 s",
        "answer: 64 lines, 3.2 a second",
        "answer: 64 lines in 11 s",
    ]


def test_lines_become_rare_and_of_what_fails_nothing_is_said(said, clock):
    def fail() -> None:
        with terminal.Progress("read", 10**6, "MB") as reading:
            for done in range(1, 3600):
                clock.now += 1
                reading.update(done)
            raise OSError("no longer there")

    with pytest.raises(OSError, match="no longer there"):
        fail()
    assert 60 < len(said) < 80
    assert "MB in " not in said[-1]
