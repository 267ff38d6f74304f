"""data_gen/workers.py: results in order, few tasks at a time, and no process left behind."""

import multiprocessing
import os
import signal
import time

import pytest

from bert_tf.errors import InputError
from data_gen.workers import TASKS_PER_WORKER, Workers, choose_num_workers


def prepare(base: int) -> tuple[int, int]:
    return base, os.getpid()


def add(state: tuple[int, int], task: int) -> tuple[int, int]:
    base, process = state
    assert process == os.getpid()  # prepared here
    return base + task, process


def kill_itself(state: tuple[int, int], task: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(state: tuple[int, int], task: int) -> None:
    raise OSError(28, "No space left on device", "a file")


def stay(state: tuple[int, int], task: int) -> None:
    time.sleep(100)


def cannot_prepare() -> None:
    raise InputError("a vocabulary that has vanished", "a file", "restore it")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_why_a_process_cannot_begin(num_workers, capfd):
    with (
        pytest.raises(InputError, match="a vocabulary that has vanished"),
        Workers(num_workers, cannot_prepare) as workers,
    ):
        list(workers.map(add, [1, 2, 3]))
    assert "Traceback" not in capfd.readouterr().err


def test_several_processes_give_results_in_order_and_take_tasks_as_they_go():
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield number

    with Workers(2, prepare, 1000) as workers:
        for done, (result, process) in enumerate(workers.map(add, tasks()), start=1):
            assert result == 1000 + done - 1
            assert len(taken) - done < 2 * TASKS_PER_WORKER
            assert process != os.getpid()
        # The same processes do the next kind of work; errors come through.
        with pytest.raises(OSError, match="No space left"):
            list(workers.map(fail, range(9)))
        with pytest.raises(InputError, match="one of 2 worker processes"):
            list(workers.map(kill_itself, range(2)))
    with Workers(1, prepare, 7) as workers:
        assert list(workers.map(add, range(3))) == [(7 + n, os.getpid()) for n in range(3)]


def test_a_request_to_end_is_not_kept_waiting():
    """SIGTERM or Ctrl-C: the processes stop where they are."""

    def tasks():
        yield from range(2)
        raise SystemExit(143)

    begin = time.monotonic()
    with pytest.raises(SystemExit), Workers(2, prepare, 0) as workers:
        list(workers.map(stay, tasks()))
    assert time.monotonic() - begin < 80
    assert not multiprocessing.active_children()


def test_number_of_workers():
    assert [choose_num_workers(3, most=most) for most in (9, 2)] == [3, 2]
    assert 1 <= choose_num_workers(0, most=1000) <= (os.cpu_count() or 1)
