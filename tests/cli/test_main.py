"""How a command ends: exit codes and messages, with other processes or without."""

import functools
import signal
import threading
import types

import pytest
import tensorflow as tf

from bert_tf import cluster, runtime
from bert_tf.cli import main as command


class Ended(BaseException):
    """In the place of a process's end: its exit code and what it says."""


@pytest.fixture
def one_of_several(monkeypatch) -> list[str]:
    """As if there were other processes; gives what is done with them, in order."""
    done: list[str] = []

    def end(code, message=""):
        raise Ended(code, message)

    def restart_or_exit(error, *, max_restarts):
        raise Ended("begins again", max_restarts)

    for name in ("barrier", "leave"):
        monkeypatch.setattr(cluster, name, functools.partial(done.append, name))
    for name in ("has_peers", "expects_peers"):
        monkeypatch.setattr(cluster, name, lambda: True)
    monkeypatch.setattr(cluster, "restart_or_exit", restart_or_exit)
    monkeypatch.setattr(command, "end", end)
    monkeypatch.setattr(command.flags, "FLAGS", types.SimpleNamespace(max_restarts=3))
    monkeypatch.setattr(runtime, "_sigterm", threading.Event())
    return done


def lose(*_) -> None:
    raise tf.errors.UnavailableError(None, None, "gone")


def how_it_ends(main) -> tuple:
    with pytest.raises(Ended) as caught:
        command.main_or_message(main, ["script"])
    return caught.value.args


def test_all_have_done_their_work_before_one_leaves(one_of_several):
    assert how_it_ends(lambda argv: one_of_several.append(argv[0])) == (0, "")
    assert one_of_several == ["script", "barrier", "leave"]


def test_what_to_do_where_memory_runs_out(one_of_several):
    def main(_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [8,12,512,512]")

    code, said = how_it_ends(main)
    assert code == 1
    for part in (
        "OOM when allocating [8,12,512,512]",
        "--gradient_accumulation_steps=2",
        "plan",
    ):
        assert part in said


def test_a_process_that_is_lost_at_the_very_end_is_waited_for(one_of_several, monkeypatch):
    """It will be started again, and do what it had to do with the others."""
    assert how_it_ends(lose) == ("begins again", 3)
    monkeypatch.setattr(cluster, "barrier", lose)
    assert how_it_ends(lambda argv: None) == ("begins again", 3)
    assert one_of_several == []


def test_who_was_asked_to_end_does_not_begin_again(one_of_several):
    """The loss of another process is noticed first; the SIGTERM is remembered."""

    def main(argv):
        with runtime.noticing_sigterm() as sigterm_came:
            assert not sigterm_came()
            signal.raise_signal(signal.SIGTERM)
            lose()

    code, message = how_it_ends(main)
    assert code == 0
    assert "ended by SIGTERM" in message


def test_who_has_ended_as_asked_may_train_again(one_of_several):
    def main(argv):
        with runtime.noticing_sigterm() as sigterm_came:
            signal.raise_signal(signal.SIGTERM)
            assert sigterm_came()
            raise runtime.Interrupted(7, "run")

    code, message = how_it_ends(main)
    assert (code, one_of_several) == (0, ["leave"])
    assert "a checkpoint of step 7 in run" in message
    assert not runtime.sigterm_came()
