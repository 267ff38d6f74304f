"""The processes of a run: who writes, and what must be the same in all."""

import json

import pytest
import tensorflow as tf

from bert_tf import cluster, files
from bert_tf.errors import InputError
from bert_tf.files import whole_file


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


def test_only_the_chief_leaves_files(monkeypatch, tmp_path):
    for is_chief in (False, True):
        monkeypatch.setattr(files, "writes_here", is_chief)
        with whole_file(str(tmp_path / "a.txt")) as temporary, open(temporary, "w") as file:
            file.write("whole")
        assert [path.name for path in tmp_path.iterdir()] == (["a.txt"] if is_chief else [])
