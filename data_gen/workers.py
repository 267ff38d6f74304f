"""Work done by several processes, with results in order and few pieces of work under way."""

import collections
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bert_tf.errors import InputError

# Under way for each worker: one that it does, and some that wait or are waited for.
TASKS_PER_WORKER = 3
# What a process with TensorFlow and a block of text needs.
WORKER_BYTES = 1 << 30


def end_in_order() -> None:
    """Lets a request to end (SIGTERM) unwind the program, so that it leaves no files behind."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def leave_gpus_alone() -> None:
    """Keeps this process and its workers off the GPUs, where a training may be running.

    It has an effect until TensorFlow first looks for devices.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def choose_num_workers(num_workers: int, *, most: int) -> int:
    """`num_workers`, but not more than `most`; for 0 the cores that there is memory for."""
    return min(num_workers or _default_num_workers(), most)


def _default_num_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not on this system
        return cores or 1
    return max(1, min(cores or 1, memory_bytes // WORKER_BYTES))


class Workers:
    """Processes that make themselves ready once and then do one piece of work after another.

    They are started afresh (TensorFlow cannot be forked) and end with the process that started
    them, even when that one is killed. A single worker is this process itself.
    """

    def __init__(self, num_workers: int, prepare: Callable[..., Any], *arguments: Any):
        """Starts the processes.

        Args:
          num_workers: how many.
          prepare: makes what `map` calls its function with, of `arguments`, in each process.
          *arguments: can be pickled.
        """
        self.num_workers = num_workers
        self._executor = None
        if num_workers == 1:
            self._state = prepare(*arguments)
        else:
            self._executor = concurrent.futures.ProcessPoolExecutor(
                num_workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(prepare, *arguments),
            )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """`function(state, task)` of each task, in order; takes tasks only as they are worked off.

        Raises:
          InputError: a process was ended from outside, most likely for want of memory.
        """
        if self._executor is None:
            for task in tasks:
                yield function(self._state, task)
            return
        under_way: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for task in tasks:
                under_way.append(self._executor.submit(_call, function, task))
                if len(under_way) >= self.num_workers * TASKS_PER_WORKER:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool:
            raise InputError(
                received=f"the end of one of {self.num_workers} worker processes",
                expected="that they live until the work is done",
                remedy="give the machine more memory, or use fewer workers: --num_workers",
            ) from None


_state: Any = None  # of a worker process


def _start(prepare: Callable[..., Any], *arguments: Any) -> None:
    global _state
    # Ctrl-C reaches all processes of a terminal; the first one tells the workers to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _state = prepare(*arguments)


def _end_with_parent() -> None:
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _call(function: Callable[[Any, Any], Any], task: Any) -> Any:
    return function(_state, task)
