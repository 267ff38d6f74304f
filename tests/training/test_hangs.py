"""Reports of what hangs: when, what they say, and how processes end that hang."""

import os
import re
import subprocess
import sys
import time

import pytest

from bert_tf.training import distribution

LIMIT = 0.3


@pytest.fixture
def hangs(monkeypatch):
    monkeypatch.setattr(distribution, "SECONDS_TO_LOG", LIMIT / 3)
    one = distribution.Hangs()
    one.limit = LIMIT
    return one


def hang(capfd, caplog) -> str:
    """Hangs until it is reported; what the log says."""
    deadline, stacks = time.monotonic() + 20, ""
    while "in hang" not in stacks:  # this function, the last of the main thread's stack
        assert time.monotonic() < deadline
        time.sleep(0.01)
        stacks += capfd.readouterr().err
    (record,) = caplog.records
    caplog.clear()
    return record.getMessage()


def test_a_hang_is_reported_and_progress_is_none(hangs, caplog, capfd):
    for number in range(4):
        with hangs.watched(f"evaluate, batch {number}"):
            time.sleep(LIMIT / 2)
    for longer in ({"usual": LIMIT}, {"compiles": True}):
        with hangs.watched("train", **longer):
            time.sleep(2 * LIMIT)
    time.sleep(2 * LIMIT)  # nothing is watched
    assert not caplog.records
    with hangs.watched("train, steps 3 to 4"):
        lines = hang(capfd, caplog).splitlines()
    assert re.fullmatch(rf"No progress for 0 s: train, .* 4, in process {os.getpid()} .*", lines[0])
    assert [line.partition(": ")[0] for line in lines[1:3]] == ["Usual causes", "To do"]
    assert "--hang_seconds" in lines[-1]


# Without TensorFlow, which takes seconds to load.
HANG = """
import ctypes, sys
from unittest import mock
names = ["tensorflow", "tensorflow.python.eager", "bert_tf.data.batches"]
sys.modules.update(dict.fromkeys(names, mock.MagicMock()))
from bert_tf import terminal
from bert_tf.training import distribution
terminal.prepare()
distribution.SECONDS_TO_LOG = 0.5
hangs = distribution.Hangs()
hangs.limit = 0.3
with hangs.watched("train"):
    ctypes.PyDLL(None).usleep(1_500_000)  # it lets no other Python thread run
sys.stderr.write("over\\n")
"""


def test_a_process_that_hangs():
    ended = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    stacks = r"Timeout (?:.*\n)*  File .* line 13 in <module>\n(?:.*\n)*over\n"
    assert re.search(stacks, ended.stderr)
    assert "WARNING: No progress for 0 s: train, " in ended.stderr
