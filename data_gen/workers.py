"""Worker processes with results in order."""

import collections
import concurrent.futures
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bert_tf.errors import InputError

BLOCK_CHARACTERS = 1 << 20  # of text, the unit of work
# Submitted at a time for each worker: the one it works on, and some before and after.
TASKS_PER_WORKER = 3


def prepare_script() -> None:
    """Prepares the process of a command that has workers. Call it before TensorFlow computes.

    The process and its workers do not use the GPUs, where a training may be running. NumPy starts
    no threads in them: a process with threads must not be forked.
    """
    import tensorflow as tf  # not above: flags are parsed first

    tf.config.set_visible_devices([], "GPU")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "OPENBLAS_NUM_THREADS": "1"}
    gc.freeze()  # a full collection looks at all of TensorFlow's objects: 0.2 s, and often


def choose_num_workers(num_workers: int, *, most: int) -> int:
    """`num_workers`, or for 0 the number of cores; at most `most`."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    return min(num_workers or num_cores, most)


class Workers(contextlib.AbstractContextManager):
    """Processes that prepare once, then work on one task after another.

    They end with the process that started them, even when it is killed. With one worker this
    process does the work itself.
    """

    def __init__(self, num_workers: int, prepare: Callable[..., Any], *arguments: Any):
        """Starts the processes.

        Args:
          num_workers: the number of processes.
          prepare: called with `arguments` in each process; returns the state that `map` hands to
            its function.
          *arguments: its arguments, which can be pickled.
        """
        self.num_workers = num_workers
        self._executor = None
        if num_workers == 1:
            self._state = prepare(*arguments)
        else:
            self._executor = concurrent.futures.ProcessPoolExecutor(
                num_workers, _process_context(), initializer=_start, initargs=(prepare, *arguments)
            )

    def __exit__(self, exception_type: type | None, *exception: object) -> None:
        if self._executor is None:
            return
        if exception_type is not None and not issubclass(exception_type, Exception):
            for process in multiprocessing.active_children():
                process.kill()  # on SIGTERM or Ctrl-C the workers stop at once
        # After an error they finish their tasks: a worker that ends while it sends a result leaves
        # half a message, and the executor waits for the rest for ever.
        self._executor.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields `function(state, task)` of each task, in order; takes tasks as workers are free.

        Raises:
          InputError: a process was killed, most likely because the system ran out of memory.
        """
        if self._executor is None:
            yield from (function(self._state, task) for task in tasks)
            return
        running: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for task in tasks:
                running.append(self._executor.submit(_call, function, task))
                if len(running) >= self.num_workers * TASKS_PER_WORKER:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool:
            received = f"one of {self.num_workers} worker processes was killed"
            remedy = "free memory, or use fewer workers: --num_workers"
            raise InputError(received, "workers that live until the end", remedy) from None


def _process_context() -> multiprocessing.context.BaseContext:
    """The way to start processes: once TensorFlow has run something it cannot be forked.

    On Linux they are forked from a process that has only imported it, which saves each of them the
    seconds of the import.
    """
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_gen.worker_process"])
    return context


_state: Any = None  # of a worker process


def _start(prepare: Callable[..., Any], *arguments: Any) -> None:
    """Prepares a worker process."""
    global _state
    # A full collection writes to every object, and so copies all memory that the processes share.
    gc.freeze()
    # Ctrl-C reaches all processes of a terminal; the main process stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _state = prepare(*arguments)
    except Exception as error:  # raised by the first task: here it would only break the pool
        _state = error


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function: Callable[[Any, Any], Any], task: Any) -> Any:
    if isinstance(_state, Exception):
        raise _state
    return function(_state, task)
