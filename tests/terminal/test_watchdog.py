"""A hang is reported, and nothing else is."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from bert_tf import terminal
from bert_tf.terminal import Watchdog

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
    dog.set_process("worker 1 of 3 processes")
    with dog.watched("train, steps 3 to 4"):
        begun = time.monotonic()
        reports = wait_for_reports(caplog, 3)
        assert time.monotonic() - begun >= 4 * LIMIT
    for report in reports:
        lines = report.splitlines()
        assert re.fullmatch(
            r"No progress for \d+ s: train, steps 3 to 4, since \d\d-\d\d \d\d:\d\d:\d\d, in "
            rf"worker 1 of 3 processes \(process {os.getpid()} on \S+\)\.",
            lines[0],
        )
        assert [line.partition(": ")[0] for line in lines[1:3]] == ["Usual causes", "To do"]
        assert "--hang_seconds" in report
    assert capfd.readouterr().err.count("in wait_for_reports") == 3  # the main thread's stack


def test_progress_is_no_hang(dog, caplog):
    dog.set_limit(3 * LIMIT)
    with dog.watched("evaluate") as watch:
        for number in range(8):
            watch.doing(f"evaluate, batch {number}")
            time.sleep(LIMIT / 2)
        assert not caplog.records
        assert "evaluate, batch 7," in wait_for_reports(caplog, 1)[0]


def test_what_is_slow_has_longer(dog):
    with dog.watched("train", compiles=True) as watch:
        assert watch.report_after == terminal.COMPILING * LIMIT
        watch.doing("train", usual=7.0)
        assert watch.report_after == terminal.SLOWER * 7.0
        watch.doing("train", usual=LIMIT / 100)
        assert watch.report_after == LIMIT


def test_the_innermost_is_watched_and_its_end_is_progress(dog, caplog):
    with dog.watched("outer") as outer:
        with dog.watched("inner"):
            assert all(": inner, " in report for report in wait_for_reports(caplog, 2))
        assert outer.seconds <= LIMIT / 4
        caplog.clear()
        assert ": outer, " in wait_for_reports(caplog, 1)[0]


def test_what_has_ended_is_no_longer_watched(dog, caplog):
    """By an error, or within a generator that is not taken to its end."""

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
    assert not caplog.records


def test_nothing_is_watched_without_a_limit(caplog):
    with caplog.at_level("WARNING", logger="absl"), Watchdog().watched("train") as watch:
        watch.doing("train, step 1")
        time.sleep(LIMIT)
    assert not caplog.records


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


def test_the_end_of_a_process_that_hangs():
    """Also where its log is what hangs: a full pipe that nobody reads."""
    silent, full = (
        start("watched", "0.2", "ends", "sleeps"),
        start("watched", "0.2", "ends", "logs"),
    )
    assert full.wait(timeout=60) == 1
    _, errors = silent.communicate(timeout=60)
    full.stderr.close()
    assert silent.returncode == 1
    assert "WARNING: No progress for 0 s: train" in errors
    assert 'File "<string>", line 16 in <module>' in errors
    assert errors.rstrip().endswith("ERROR: This process ends, as --end_when_hung asks.")


def test_the_time_in_which_the_process_is_stopped_does_not_count():
    process = start("watched", "2", "goes on", "sleeps")
    begun = process.stderr.readline()
    process.send_signal(signal.SIGSTOP)
    time.sleep(3)  # more than the limit
    process.send_signal(signal.SIGCONT)
    time.sleep(1)  # a report would follow at once; one of the time from now on in 2
    process.kill()
    assert begun == "begun\n"
    assert process.communicate() == (None, "")


STACKS = r"Timeout (?:.*\n)*  File .* line 17 in <module>\n"


@pytest.mark.parametrize(
    ("way", "ends", "said"),
    [
        ("watched", "", r"\Aover\n"),  # in particular not that it was stopped
        ("without_python", "", rf"train; after 0 s the stacks .* follow.\n{STACKS}over\n"),
        ("without_python", "ends", rf"train; .* follow, and it ends.\n{STACKS}"),
    ],
)
def test_a_call_that_lets_no_python_thread_run(way, ends, said):
    process = start(way, "0.3", ends, "")
    _, errors = process.communicate(timeout=60)
    assert re.search(said + r"\Z", errors), errors
    assert process.returncode == (1 if ends else 0)
