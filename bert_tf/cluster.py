"""The processes of a run over several hosts: which one writes, where all wait, what they agree on.

A process alone is its own chief and waits for nobody. Several compute the same, each on its part of
every batch; so they must come to the same calls here in the same order.
"""

import functools
import os
import sys
import time
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

RESTARTS = "BERT_TF_RESTARTS"  # environment variable: how often this process has begun again
# What TensorFlow raises in the others when a process is gone.
LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)
_strategies: list[tf.distribute.Strategy] = []  # the one that several processes share, if they do
_expected: list[int] = []  # how many processes there are to be, if several


def expect(number: int) -> None:
    """Says that this process is to be one of so many."""
    _expected[:] = [number]


def are_expected() -> bool:
    """Whether there are, or are to be, other processes."""
    return bool(_expected)


def join(strategy: tf.distribute.Strategy) -> None:
    """Makes this process one of several."""
    _strategies[:] = [strategy]
    files.writes_here = strategy.extended._is_chief
    _gather_function.cache_clear()


def are_several() -> bool:
    """Whether there are other processes."""
    return bool(_strategies)


def is_chief() -> bool:
    """Whether this process writes what is written."""
    return files.writes_here


def gather(number: int) -> list[int]:
    """What each process says, in order; waits until all have said it."""
    if not _strategies:
        return [number]
    gathered = _gather_function()(tf.constant(number, tf.int64))
    return _strategies[0].experimental_local_results(gathered)[0].numpy().tolist()


@functools.cache
def _gather_function():
    def of_replica(number):
        return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

    return tf.function(lambda number: _strategies[0].run(of_replica, args=(number,)))


def wait_for_all() -> None:
    """Returns when every process has come here."""
    gather(0)


def any_of(flag: bool) -> bool:
    """Whether the flag is set in any process; waits until all have come here."""
    return any(gather(int(flag)))


def refuse_differences(numbers: Mapping[str, int]) -> None:
    """Raises InputError in every process where one of these numbers is not the same in all."""
    for name, number in numbers.items():
        if len(set(gather(number))) > 1:
            leave()  # all have seen it, and end
            raise InputError(
                received=f"other {name} in this process than in another one of the run",
                expected="the same in all: each takes its part of the same batches",
                remedy="give all of them the same command and the same files",
            )


def leave() -> None:
    """The end of a run: no process ends while another one still has something to do."""
    if not _strategies:
        return
    try:
        wait_for_all()
    except LOST:
        return  # the others have been here, and are gone
    let_others_read()


def let_others_read() -> None:
    """Before a process ends: others may still be fetching its answer to what all were asked."""
    if _strategies:
        time.sleep(1)


def begin_again_or_end(error: Exception, *, max_restarts: int) -> None:
    """After another process was lost: this one begins again, to wait for it; or it ends.

    The processes cannot go on without it, nor take it in again while they run. What they did
    since the last checkpoint is done again.

    Args:
      error: by which the loss was noticed.
      max_restarts: how often a process begins again.
    """
    done = int(os.environ.get(RESTARTS, "0"))
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    sys.stdout.flush()
    if done >= max_restarts:
        print(
            f"\n{sys.argv[0]}: cannot go on: another process of this run was lost, or does not "
            f"answer ({type(error).__name__}: {reason}).\nStart all processes again with the same "
            "commands: they go on from the last checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)
    logging.warning(
        "Another process of this run was lost, or does not answer (%s: %s). Beginning again, to "
        "go on with it from the last checkpoint (%d of at most %d times).",
        type(error).__name__,
        reason,
        done + 1,
        max_restarts,
    )
    logging.flush()
    time.sleep(2)  # so that the others notice as well
    os.environ[RESTARTS] = str(done + 1)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
