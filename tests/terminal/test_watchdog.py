"""A hang is reported, and nothing else is."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_tf.terminal import watchdog
from bert_tf.terminal.watchdog import Watchdog

LIMIT = 0.2


@pytest.fixture
def dog() -> Watchdog:
    one = Watchdog()
    one.set_limit(LIMIT)
    return one


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "watchdog"]


def assert_no_thread_left() -> None:
    deadline = time.monotonic() + 20
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_reports(caplog, count: int) -> list[str]:
    """Hangs until so many reports have been logged."""
    deadline = time.monotonic() + 20
    while len(caplog.records) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [record.getMessage() for record in caplog.records]


def test_a_hang_is_reported_at_growing_intervals(dog, caplog, capfd):
    with caplog.at_level("WARNING", logger="absl"), dog.watched("train, steps 3 to 4"):
        begun = time.monotonic()
        reports = wait_for_reports(caplog, 3)
        assert time.monotonic() - begun >= 4 * LIMIT
        assert len(threads()) == 1
    assert_no_thread_left()
    for report in reports:
        lines = report.splitlines()
        assert re.fullmatch(
            r"No progress for \d+ s: train, steps 3 to 4, since \d\d-\d\d \d\d:\d\d:\d\d, in this "
            rf"process \(process {os.getpid()} on \S+\)\.",
            lines[0],
        )
        assert [line.partition(": ")[0] for line in lines[1:3]] == ["Usual causes", "To do"]
        assert "--hang_seconds" in lines[2]
    stacks = capfd.readouterr().err
    assert stacks.count("in wait_for_reports") == 3  # of the main thread, which hangs there
    assert stacks.count("in _write_stacks") == 3


def test_progress_is_no_hang(dog, caplog):
    dog.set_limit(3 * LIMIT)
    with caplog.at_level("WARNING", logger="absl"), dog.watched("evaluate") as watch:
        for number in range(8):
            watch.doing(f"evaluate, batch {number}")
            time.sleep(LIMIT / 2)
        assert not caplog.records
        assert "evaluate, batch 7," in wait_for_reports(caplog, 1)[0]


def test_what_is_slow_has_longer(dog):
    with dog.watched("train", compiles=True) as watch:
        assert watch.report_after == watchdog.COMPILING * LIMIT
        watch.doing("train", usual=7.0)
        assert watch.report_after == watchdog.SLOWER * 7.0
        watch.doing("train", usual=LIMIT / 100)
        assert watch.report_after == LIMIT


def test_the_innermost_is_watched_and_its_end_is_progress(dog, caplog):
    with caplog.at_level("WARNING", logger="absl"), dog.watched("outer") as outer:
        with dog.watched("inner"):
            assert all(": inner, " in report for report in wait_for_reports(caplog, 2))
            assert len(threads()) == 1
        assert time.monotonic() - outer.since < LIMIT
        caplog.clear()
        assert ": outer, " in wait_for_reports(caplog, 1)[0]
    assert_no_thread_left()


def test_an_error_ends_the_watch(dog):
    with pytest.raises(KeyError), dog.watched("train"):
        {}["train"]
    assert_no_thread_left()


def test_what_is_left_within_a_generator(dog, caplog):
    def batches():
        with dog.watched("predict"):
            yield from range(9)

    with caplog.at_level("WARNING", logger="absl"):
        given = batches()
        next(given)
        with dog.watched("wait"):
            del given
        assert_no_thread_left()
        time.sleep(2 * LIMIT)
    assert not caplog.records


def test_nothing_is_watched_without_a_limit(caplog):
    with caplog.at_level("WARNING", logger="absl"), Watchdog().watched("train") as watch:
        watch.doing("train, step 1")
        assert not threads()
        time.sleep(2 * LIMIT)
    assert not caplog.records


def test_of_several_processes_it_names_this_one(dog, caplog):
    dog.set_process("worker 1 of 3 processes")
    with caplog.at_level("WARNING", logger="absl"), dog.watched("wait for the other processes"):
        said = wait_for_reports(caplog, 1)[0]
    assert "in worker 1 of 3 processes (process" in said
    assert "another process that hangs" in said


def test_it_costs_nothing_to_speak_of(dog):
    """A call is for a step of milliseconds, or for many steps."""
    with dog.watched("train"):
        begun = time.perf_counter()
        for step in range(1000):
            with dog.watched("train, steps", usual=step) as watch:
                watch.doing("train, step")
        assert (time.perf_counter() - begun) / 1000 < 1e-3  # 4e-6 on a machine at rest


HANG = """
import sys, time
from bert_tf.terminal import messages
from bert_tf.terminal.watchdog import WATCHDOG
messages.format_log_lines()
WATCHDOG.set_limit(float(sys.argv[1]), ends=sys.argv[2] == "ends")
with WATCHDOG.watched("train"):
    print("begun", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def start(*words: str) -> subprocess.Popen:
    command, pipe = [sys.executable, "-c", HANG, *words], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def test_a_process_that_is_to_end_when_it_hangs():
    process = start("0.2", "ends", "600")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "WARNING: No progress for 0 s: train" in errors
    assert 'File "<string>", line 9 in <module>' in errors
    assert errors.rstrip().endswith("ERROR: This process ends, as --end_when_hung asks.")


def test_it_also_ends_when_its_log_is_what_hangs():
    """A full pipe that nobody reads: the main thread waits in its log, and so would the report."""
    program = (
        "from absl import logging\n"
        "from bert_tf.terminal import messages, watchdog\n"
        "messages.format_log_lines()\n"
        "watchdog.LONGEST_PAUSE = 0.5\n"
        "watchdog.WATCHDOG.set_limit(0.2, ends=True)\n"
        "with watchdog.WATCHDOG.watched('train'):\n"
        "    while True:\n"
        "        logging.error('x' * 5000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == 1


def test_the_time_in_which_the_process_is_stopped_does_not_count():
    with start("4", "goes on", "600") as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(6)  # more than the limit and the pause between two looks
        process.send_signal(signal.SIGCONT)
        time.sleep(1.5)  # a report would follow in a second; one of the time from now on in 3
        process.kill()
        assert not process.stderr.read()


C_CALL = """
import ctypes, sys
from absl import logging
from bert_tf.terminal import messages
from bert_tf.terminal.watchdog import WATCHDOG
logging.set_verbosity(logging.INFO)
messages.format_log_lines()
WATCHDOG.set_limit(0.3, ends=sys.argv[2] == "ends")
with getattr(WATCHDOG, sys.argv[1])("wait"):
    ctypes.PyDLL(None).usleep(1_500_000)  # it lets no other Python thread run
sys.stderr.write("over\\n")
"""


@pytest.mark.parametrize(
    ("way", "ends", "said"),
    [
        ("watched", "", r"\Aover\n"),  # in particular not that it was stopped
        ("without_python", "", r"wait; after 0 s the stacks .* follow.\n{stacks}+over\n"),
        ("without_python", "ends", r"wait; .* follow, and it ends.\n{stacks}"),
    ],
)
def test_a_call_that_lets_no_python_thread_run(way, ends, said):
    command = [sys.executable, "-c", C_CALL, way, ends]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    stacks = r"(?:Timeout .*\n(?:\S.*\n)?(?:  File .*\n)*  File .* line 10 in <module>\n)"
    assert re.search(said.format(stacks=stacks) + r"\Z", done.stderr), done.stderr
    assert done.returncode == (1 if ends else 0)
