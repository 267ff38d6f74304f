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


def prepare_script() -> None:
    """What a script does first that has workers.

    A request to end (SIGTERM) unwinds the program, so that it leaves no files behind. Process and
    workers stay off the GPUs, where a training may be running. NumPy starts no threads of its own
    in them: a process with threads is not to be forked.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


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

    They end with the process that started them, even when that one is killed. A single worker is
    this process itself.
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
            return
        context = _process_context()
        # When this end is closed, by hand or by the end of this process, the workers end.
        workers_end, self._lifeline = context.Pipe(duplex=False)
        self._executor = concurrent.futures.ProcessPoolExecutor(
            num_workers,
            mp_context=context,
            initializer=_start,
            initargs=(workers_end, prepare, *arguments),
        )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, exception_type: type | None, *exception: object) -> None:
        if self._executor is None:
            return
        if exception_type is not None and not issubclass(exception_type, Exception):
            self._lifeline.close()  # asked to end: what they are at is not needed any more
        # After an error they finish what they are at: one that ended in the middle of a result
        # would leave half a message, for whose end the executor waits for ever.
        self._executor.shutdown(cancel_futures=True)
        self._lifeline.close()

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


def _process_context() -> multiprocessing.context.BaseContext:
    """How processes are made: TensorFlow cannot be forked once it has run something.

    On Linux they are forked from one that has imported it and done nothing else, which saves each
    the seconds that the import takes.
    """
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_gen.blocks"])
    return context


_state: Any = None  # of a worker process


def _start(
    lifeline: multiprocessing.connection.Connection, prepare: Callable[..., Any], *arguments: Any
) -> None:
    global _state
    # Ctrl-C reaches all processes of a terminal; the first one tells the workers to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    _state = prepare(*arguments)


def _end_with(lifeline: multiprocessing.connection.Connection) -> None:
    multiprocessing.connection.wait([lifeline])
    os._exit(1)


def _call(function: Callable[[Any, Any], Any], task: Any) -> Any:
    return function(_state, task)
