"""The processes of a run on several hosts: which one writes, where all wait, what must be the same.

A process alone is its own chief and waits for nobody. Several processes run the same program, each
on its part of every batch, so they must make the same calls to this module in the same order.
"""

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

# Errors of one process for the others: TensorFlow does not export it; test_multiworker.py
# covers what we use of it.
from tensorflow.python.eager import context

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.terminal.watchdog import WATCHDOG

RESTARTS = "BERT_TF_RESTARTS"  # environment variable: how often this process has restarted
# What TensorFlow raises in the others when a process is gone.
LOST_PEER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)
FAILURE = "bert_tf: a process has failed: "  # precedes the text of `tell_peers`, which is JSON
MOST_CHARACTERS = 300  # of that text: gRPC passes it on in the trailer of a message, which is short
_strategies: list[tf.distribute.Strategy] = []  # the one shared with other processes, if any
_expects_peers = threading.Event()


def expect_peers() -> None:
    """Records that other processes will join; from now on errors may come from losing one."""
    _expects_peers.set()


def expects_peers() -> bool:
    """Whether other processes have joined or are still to join."""
    return _expects_peers.is_set()


def join(strategy: tf.distribute.Strategy) -> None:
    """Makes this process one of several, which share the strategy."""
    _strategies[:] = [strategy]
    files.writes_here = strategy.extended._is_chief
    _all_gather_function.cache_clear()


def has_peers() -> bool:
    """Whether there are other processes."""
    return bool(_strategies)


def is_chief() -> bool:
    """Whether this process writes the files of the run."""
    return files.writes_here


def all_gather(number: int) -> list[int]:
    """The numbers of all processes, in their order; waits for all."""
    if not _strategies:
        return [number]
    with WATCHDOG.watched("wait for the other processes"):
        gathered = _all_gather_function()(tf.constant(number, tf.int64))
        return _strategies[0].experimental_local_results(gathered)[0].numpy().tolist()


@functools.cache
def _all_gather_function():
    def on_replica(number):
        return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

    return tf.function(lambda number: _strategies[0].run(on_replica, args=(number,)))


def barrier() -> None:
    """Waits until every process has come here."""
    all_gather(0)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; waits for all."""
    return any(all_gather(int(flag)))


def check_same(numbers: Mapping[str, int]) -> None:
    """Raises InputError in every process if one of the numbers differs between processes."""
    for name, number in numbers.items():
        if len(set(all_gather(number))) > 1:
            leave()
            raise InputError(
                f"other {name} in this process than in another one of the run",
                "the same in all: each takes its part of the same batches",
                "give all of them the same command and the same files",
            )


def leave() -> None:
    """Waits until all other processes are done, then leaves the run."""
    if not _strategies:
        return
    try:
        barrier()
    except LOST_PEER:
        return  # the others passed the barrier and have ended
    let_peers_read()


def let_peers_read() -> None:
    """Waits before the process ends: peers may still be fetching its part of a collective."""
    if _strategies:
        time.sleep(1)


def tell_peers(failure: str) -> None:
    """Ends what this process and the others compute together: it has failed, and will again.

    They would wait for it otherwise, as for a process that was lost. `failure_of_peer` gives the
    text to them.
    """
    if not _strategies:
        return
    let_peers_read()
    told = FAILURE + json.dumps(failure[:MOST_CHARACTERS])
    with contextlib.suppress(tf.errors.OpError):  # they have failed as well
        context.context().report_error_to_cluster(tf.errors.FAILED_PRECONDITION, told)
    let_peers_read()


def failure_of_peer(error: Exception) -> str | None:
    """The text that another process gave to `tell_peers`; None if it was lost instead."""
    _, told, rest = str(error).partition(FAILURE)
    with contextlib.suppress(ValueError):  # of a part of the text
        return json.JSONDecoder().raw_decode(rest)[0] if told else None
    return "see what it logged"


def restart(reason: str, *, at_most: int) -> None:
    """Restarts this process after another one was lost; returns if it has done so too often.

    The processes cannot go on without the lost one, nor take it in again while they run. So each
    restarts, waits for all, and resumes from the last checkpoint.

    Args:
      reason: how the loss was noticed, for the log.
      at_most: how often a process may restart.
    """
    number = int(os.environ.get(RESTARTS, "0")) + 1
    if number > at_most:
        return
    again = "to resume from the last checkpoint"
    logging.warning("Restart %d of at most %d, %s: %s", number, at_most, again, reason)
    logging.flush()
    sys.stdout.flush()
    time.sleep(2)  # so that the others notice as well
    os.environ[RESTARTS] = str(number)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
