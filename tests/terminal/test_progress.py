"""Bars on a terminal, which is a pseudo-terminal here; lines in a log."""

import contextlib
import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest.mock

import pytest

from bert_tf import terminal

ROOT = pathlib.Path(__file__).parents[2]
BAR_SCRIPT = """
import sys, time
from absl import logging
from bert_tf.cli import main as cli
from bert_tf import terminal
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


def run_bars(**options) -> subprocess.Popen:
    words = [sys.executable, "-c", BAR_SCRIPT]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, **options)


def what_a_terminal_gets() -> tuple[str, str]:
    """What the script writes to a terminal on standard error, and its results."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    with run_bars(stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while True:
                written += os.read(ours, 1 << 16)
        os.close(ours)
        return written.decode(), process.stdout.read().decode()


def test_a_bar_rewrites_its_line_below_what_is_logged():
    written, results = what_a_terminal_gets()
    shown = [line.replace("\r", "") for line in re.split(r"\x1b\[K|\n", written)]
    bars = [line for line in shown if "read: 4 of 8 files" in line]
    assert len(bars) > 5
    assert re.fullmatch(r"━{7}─{7}  read: 4 of 8 files, [0-9.]+ a second, 0 s left, loss 0\.5",
                        bars[0])  # fmt: skip
    assert "load, 0 s" in shown
    kept = [line.split("\x1b[K")[-1] for line in written.split("\r\n")]
    kept = [re.sub("^[0-9-]{5} [0-9:]{8} ", "# ", line) for line in kept]
    assert kept[:2] == ["# WARNING: look out", "a message"]
    assert re.fullmatch("# read: 4 files in [01] s", kept[2])  # what took no time says nothing
    assert kept[3:] == [""]
    assert results == "a result\n"


@pytest.mark.parametrize(("term", "is_open"), [("xterm", True), ("dumb", False), (None, False)])
def test_only_a_terminal_that_can_rewrite_gets_bars(monkeypatch, term, is_open):
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(terminal.threading, "Thread", unittest.mock.MagicMock())
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM", raising=False)
    screen = terminal.Screen()
    screen.open()
    assert screen.is_open is is_open


@pytest.mark.parametrize(
    ("width", "bar"),
    [
        (79, "━" * 7 + "─" * 7 + "  train: 30 of 60 steps, 1 a second, 30 s left, loss 0.69"),
        (60, "train: 30 of 60 steps, 1 a second, 30 s left, loss 0.69"),
        (50, "train: 30 of 60 steps, 1 a second, 30 s left"),
        (30, "train: 30 of 60 steps"),
    ],
)
def test_a_bar_is_never_cut_within_a_number(clock, width, bar):
    with terminal.Progress("train", 60, "steps") as training:
        for clock.now, done in ((101.0, 1), (130.0, 30)):
            training.update(done, ", loss 0.69")
        assert training.bar(width) == bar


def test_a_log_gets_lines():
    with run_bars(stderr=subprocess.PIPE) as process:
        said = process.stderr.read().decode()
    lines = [line.partition(" ")[2].partition(" ")[2] for line in said.splitlines()]
    assert lines[0] == "load ..."
    assert re.fullmatch(r"read: 4 of 8 files, [0-9.]+ a second, 0 s left, loss 0\.5", lines[1])
    assert lines[2] == "WARNING: look out"
    assert re.fullmatch("read: 4 files in [01] s", lines[4])


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines = []
    monkeypatch.setattr(terminal.logging, "info", lambda text, *values: lines.append(text % values))
    return lines


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(terminal, "time", clock)
    return clock


def test_a_line_says_how_long_it_will_take(said, clock):
    """The rate is that of what comes after the first item, for which something was compiled."""
    with terminal.Progress("read", 60, "MB", done=4) as reading:
        for clock.now, done in ((104.0, 10), (120.0, 14), (121.0, 15), (130.0, 36)):
            reading.update(done, note="; all well")
        clock.now = 300.0
        reading.update(60)
    assert said == [
        "read: 14 of 60 MB, 0.25 a second, 3 min 4 s left; all well",
        "read: 36 of 60 MB, 1 a second, 24 s left; all well",
        "read: 60 of 60 MB, 0.255 a second, 0 s left",
        "read: 60 MB in 3 min 20 s",
    ]


def test_a_compilation_within_it_does_not_count(said, clock):
    with terminal.Progress("predict", 5, "batches") as predicting:
        for number, seconds in ((1, 9), (2, 4), (3, 30), (4, 4)):
            with terminal.announced("compile: predict", when=seconds > 4):
                clock.now += seconds
            predicting.update(number)
    assert said == [
        "compile: predict ...",
        "compile: predict: 9 s",
        "predict: 1 of 5 batches",
        "compile: predict ...",
        "compile: predict: 30 s",
        "predict: 3 of 5 batches, 0.25 a second, 8 s left",
        "predict: 4 batches in 47 s",
    ]


def test_lines_become_rare(said, clock):
    with terminal.Progress("read", 10**6, "MB") as reading:
        for done in range(1, 3600):
            clock.now += 1
            reading.update(done)
    assert 60 < len(said) < 80


def test_what_another_line_has_said_is_not_said_again(said, clock):
    with terminal.Progress("read", 60, "MB") as reading:
        clock.now += 4
        reading.said()
        clock.now += 4
        reading.update(30)
    assert said == ["read: 30 MB in 8 s"]


def test_of_what_fails_nothing_is_said(said, clock):
    def fail() -> None:
        with terminal.Progress("read", 60, "MB"):
            clock.now += 40
            raise OSError("no longer there")

    with pytest.raises(OSError, match="no longer there"):
        fail()
    assert said == []


def test_without_a_total_there_is_only_a_rate(said, clock):
    with terminal.Progress("answer", None, "lines") as answering:
        for clock.now, done in ((101.0, 32), (111.0, 64)):
            answering.update(done)
    assert said == ["answer: 64 lines, 3.2 a second", "answer: 64 lines in 11 s"]
