"""The processes of a run: who writes, and what must be the same in all."""

import os
import sys
import time

import pytest

from bert_tf import runtime
from bert_tf.errors import InputError


def test_a_process_alone_waits_for_nobody():
    assert runtime.is_chief()
    assert runtime.all_gather(7) == [7]
    assert [runtime.any_process(flag) for flag in (False, True)] == [False, True]
    runtime.barrier()
    runtime.leave()


def test_numbers_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(runtime, "all_gather", lambda number: [number, 7])
    runtime.check_same({"steps": 7})
    with pytest.raises(InputError, match="other records in this process than in another one"):
        runtime.check_same({"steps": 7, "records": 8})


def test_a_process_restarts_so_often_and_no_more(monkeypatch):
    done = []
    monkeypatch.setenv(runtime.RESTARTS, "0")
    monkeypatch.setattr(os, "execv", lambda path, words: done.append([path, *words]))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "run.py", "--a=b c"])
    for _ in range(4):
        runtime.restart("gone", at_most=2)
    assert done == [[sys.executable, sys.executable, "-X", "dev", "run.py", "--a=b c"]] * 2
