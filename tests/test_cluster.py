"""The processes of a run: who writes, and what must be the same in all."""

import json
import os
import sys
import time

import pytest
import tensorflow as tf

from bert_tf import cluster
from bert_tf.errors import InputError


def test_a_process_alone_waits_for_nobody():
    assert cluster.is_chief()
    assert cluster.all_gather(7) == [7]
    assert [cluster.any_process(flag) for flag in (False, True)] == [False, True]
    cluster.barrier()
    cluster.leave()


def test_numbers_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(cluster, "all_gather", lambda number: [number, 7])
    cluster.check_same({"steps": 7})
    with pytest.raises(InputError, match="other records in this process than in another one"):
        cluster.check_same({"steps": 7, "records": 8})


def test_why_another_process_failed():
    """As TensorFlow passes it on, which says it again and again."""
    received = 'a "b", record 3, with the input_ids 4\\n'
    told = f"{cluster.FAILURE}{json.dumps(received)}\nThe error could be from a previous operation."
    again = told.replace('"', r"\"")
    message = f'Collective ops is aborted by: {told}\n:UNKNOWN:Error {{grpc_message:"{again}"}}'
    error = tf.errors.FailedPreconditionError(None, None, message)
    assert cluster.failure_of_peer(error) == received
    cut = tf.errors.FailedPreconditionError(None, None, message[: message.index("record")])
    assert cluster.failure_of_peer(cut) == "see what it logged"
    assert cluster.failure_of_peer(tf.errors.UnavailableError(None, None, "gone")) is None


def test_a_process_restarts_so_often_and_no_more(monkeypatch):
    done = []
    monkeypatch.setenv(cluster.RESTARTS, "0")
    monkeypatch.setattr(os, "execv", lambda path, words: done.append([path, *words]))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "run.py", "--a=b c"])
    for _ in range(4):
        cluster.restart("gone", at_most=2)
    assert done == [[sys.executable, sys.executable, "-X", "dev", "run.py", "--a=b c"]] * 2
