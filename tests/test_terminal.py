"""bert_tf/terminal.py: log lines, tables, bars on a (pseudo-)terminal, reports of hangs."""

import contextlib
import doctest
import logging
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
import unittest.mock

import pytest

from bert_tf import terminal
from bert_tf.terminal import Watchdog

ROOT = pathlib.Path(__file__).parents[1]


def test_the_drawn_examples():
    assert doctest.testmod(terminal).failed == 0


@pytest.mark.parametrize(
    ("scores", "lines"),
    [
        (
            {"global_step": 10**6, "loss": 0.5, "eval_f1": 0.9, "eval_accuracy": 1.0},
            ["eval_f1        0.9", "eval_accuracy  1", "loss           0.5",
             "global_step    1000000"],
        ),
        ({"f1": 15.66123, "total": 10570, "loss": 2.0, "eval_loss": 2.0},
         ["f1         15.6612", "total      10570", "eval_loss  2"]),
        ({}, []),
    ],
)  # fmt: skip
def test_what_matters_comes_first(scores, lines):
    assert terminal.scores_table(scores) == [f"  {line}" for line in lines]


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


def test_a_bar_is_never_cut_within_a_number(clock):
    text = "train: 30 of 60 steps, 1 a second, 30 s left, loss 0.69"
    with terminal.Progress("train", 60, "steps") as training:
        for clock.now, done in ((101.0, 1), (130.0, 30)):
            training.update(done, ", loss 0.69")
        assert training.bar(79) == f"{'━' * 7}{'─' * 7}  {text}"
        assert [training.bar(width) for width in (60, 50, 30)] == [text, text[:44], text[:21]]


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


# ---------------------------------------------------------------------------- hangs

LIMIT = 0.2


@pytest.fixture
def dog(caplog):
    one = Watchdog()
    one.set_limit(LIMIT)
    with caplog.at_level("WARNING", logger="absl"):
        yield one
    one.set_limit(0)  # which ends its thread


def wait_for_reports(caplog, count: int) -> list[str]:
    """Hangs until so many reports have been logged."""
    deadline = time.monotonic() + 20
    while len(caplog.records) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [record.getMessage() for record in caplog.records]


def test_a_hang_is_reported_at_growing_intervals(dog, caplog, capfd):
    with dog.watched("outer") as outer:
        with dog.watched("train, steps 3 to 4"):
            begun = time.monotonic()
            reports = wait_for_reports(caplog, 3)
            assert time.monotonic() - begun >= 4 * LIMIT
        assert outer.seconds <= LIMIT / 4  # the end of the inner one is progress
    for report in reports:
        lines = report.splitlines()
        process = rf"in process {os.getpid()} on \S+\."
        assert re.fullmatch(rf"No progress for \d+ s: train, steps 3 to 4, {process}", lines[0])
        assert [line.partition(": ")[0] for line in lines[1:3]] == ["Usual causes", "To do"]
        assert "--hang_seconds" in report
    assert capfd.readouterr().err.count("in wait_for_reports") == 3  # the main thread's stack


def test_progress_is_no_hang_nor_is_what_has_ended(dog, caplog):
    """Ended by an error, or within a generator that is not taken to its end."""

    def batches():
        with dog.watched("predict"):
            yield from range(9)

    with pytest.raises(KeyError), dog.watched("train"):
        {}["train"]
    given = batches()
    next(given)
    with dog.watched("wait"):
        del given
    time.sleep(2 * LIMIT)
    with dog.watched("evaluate", compiles=True) as watch:
        assert watch.report_after == terminal.COMPILING * LIMIT
        watch.doing("train", usual=7.0)
        assert watch.report_after == terminal.SLOWER * 7.0
        for number in range(4):
            watch.doing(f"evaluate, batch {number}", usual=LIMIT / 100)
            time.sleep(LIMIT / 2)
        assert not caplog.records
        assert "evaluate, batch 3," in wait_for_reports(caplog, 1)[0]


HANG = """
import ctypes, sys, time
from absl import logging
from bert_tf import terminal
logging.set_verbosity(logging.INFO)
terminal.format_log_lines()
terminal.LONGEST_PAUSE = 0.5
way, seconds, ends, what = sys.argv[1:]
terminal.WATCHDOG.set_limit(float(seconds), ends=ends == "ends")
with getattr(terminal.WATCHDOG, way)("train"):
    if what == "logs":
        while True:
            logging.error("x" * 5000)
    elif what == "sleeps":
        print("begun", file=sys.stderr, flush=True)
        time.sleep(600)
    ctypes.PyDLL(None).usleep(1_000_000)  # it lets no other Python thread run
sys.stderr.write("over\\n")
"""


def start(*words: str) -> subprocess.Popen:
    command = [sys.executable, "-c", HANG, *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


STACKS = r"Timeout (?:.*\n)*  File .* line 17 in <module>\n"
CALLS = {  # that let no Python thread run: how they are watched, what is said
    ("watched", "0.3", "", ""): r"\Aover\n",  # in particular not that it was stopped
    ("without_python", "0.3", "", ""): rf" train.\n{STACKS}over\n",
    ("without_python", "0.3", "ends", ""): rf" train.\n{STACKS}",
}


def test_processes_that_hang():
    """Also where the log is what hangs: a full pipe that nobody reads."""
    silent = start("watched", "0.2", "ends", "sleeps")
    full = start("watched", "0.2", "ends", "logs")
    stopped = start("watched", "2", "goes on", "sleeps")
    calls = [start(*words) for words in CALLS]
    begun = stopped.stderr.readline()
    stopped.send_signal(signal.SIGSTOP)
    since = time.monotonic()
    assert full.wait(timeout=60) == 1
    full.stderr.close()
    _, errors = silent.communicate(timeout=60)
    assert silent.returncode == 1
    assert "WARNING: No progress for 0 s: train" in errors
    assert 'File "<string>", line 16 in <module>' in errors
    assert "The process ends, as --end_when_hung asks." in errors
    for process, (words, expected) in zip(calls, CALLS.items(), strict=True):
        _, errors = process.communicate(timeout=60)
        assert re.search(expected + r"\Z", errors), errors
        assert process.returncode == ("ends" in words)
    time.sleep(max(0, 3 - (time.monotonic() - since)))  # more than the limit
    stopped.send_signal(signal.SIGCONT)
    time.sleep(1)  # a report would follow at once; one of the time from now on in 2
    stopped.kill()
    assert begun == "begun\n"
    assert stopped.communicate() == (None, "")
