"""Reports of what hangs: when, what they say, and how processes end that hang."""

import os
import re
import subprocess
import sys
import time

import pytest

from bert_tf.training import distribution

LIMIT = 0.2


@pytest.fixture
def dog(caplog):
    one = distribution.Watchdog()
    one.set_limit(LIMIT)
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
        assert watch.report_after == distribution.COMPILING * LIMIT
        watch.doing("train", usual=7.0)
        assert watch.report_after == distribution.SLOWER * 7.0
        for number in range(4):
            watch.doing(f"evaluate, batch {number}", usual=LIMIT / 100)
            time.sleep(LIMIT / 2)
        assert not caplog.records
        assert "evaluate, batch 3," in wait_for_reports(caplog, 1)[0]


# Without TensorFlow, which takes seconds to load.
HANG = """
import ctypes, sys, time
from unittest import mock
names = ["tensorflow", "tensorflow.python.eager", "bert_tf.data.batches"]
sys.modules.update(dict.fromkeys(names, mock.MagicMock()))
from absl import logging
from bert_tf import terminal
from bert_tf.training import distribution
logging.set_verbosity(logging.INFO)
terminal.format_log_lines()
distribution.LONGEST_PAUSE = 0.5
way, seconds, ends, what = sys.argv[1:]
distribution.WATCHDOG.set_limit(float(seconds), ends=ends == "ends")
with getattr(distribution.WATCHDOG, way)("train"):
    if what == "logs":
        while True:
            logging.error("x" * 5000)
    elif what == "sleeps":
        time.sleep(600)
    ctypes.PyDLL(None).usleep(1_000_000)  # it lets no other Python thread run
sys.stderr.write("over\\n")
"""


def start(*words: str) -> subprocess.Popen:
    command = [sys.executable, "-c", HANG, *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


STACKS = r"Timeout (?:.*\n)*  File .* line 20 in <module>\n"
CALLS = {  # that let no Python thread run: how they are watched, what is said
    ("watched", "0.3", "", ""): r"\Aover\n",
    ("without_python", "0.3", "", ""): rf" train.\n{STACKS}over\n",
    ("without_python", "0.3", "ends", ""): rf" train.\n{STACKS}",
}


def test_processes_that_hang():
    """Also where the log is what hangs: a full pipe that nobody reads."""
    silent = start("watched", "0.2", "ends", "sleeps")
    full = start("watched", "0.2", "ends", "logs")
    calls = [start(*words) for words in CALLS]
    assert full.wait(timeout=60) == 1
    full.stderr.close()
    _, errors = silent.communicate(timeout=60)
    assert silent.returncode == 1
    assert "WARNING: No progress for 0 s: train" in errors
    assert 'File "<string>", line 19 in <module>' in errors
    assert "The process ends, as --end_when_hung asks." in errors
    for process, (words, expected) in zip(calls, CALLS.items(), strict=True):
        _, errors = process.communicate(timeout=60)
        assert re.search(expected + r"\Z", errors), errors
        assert process.returncode == ("ends" in words)
