"""The process: its settings, TensorFlow, optional packages, SIGTERM, other processes of a run.

Commands make the settings; a program that uses the library may call `prepare_process`.
"""

import contextlib
import ctypes
import importlib
import os
import pathlib
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from absl import logging

from bert_tf.errors import InputError, first_line
from bert_tf.terminal import WATCHDOG, Progress

# ---------------------------------------------------------------------------- settings

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h


def prepare_process() -> None:
    """Makes settings that speed up models on CPUs, for the whole process.

    Call it before TensorFlow loads. It sets `TF_ENABLE_ONEDNN_OPTS` unless it is set, adds the
    width of vectors to `XLA_FLAGS` unless it is there, and lets glibc's malloc keep freed memory.

    With 512-bit vectors oneDNN's products are faster than TensorFlow's own kernels, and XLA should
    use the full width; without, oneDNN is up to 1.8 times slower. Measured with
    benchmarks/train_step.py.
    """
    cpus = pathlib.Path("/proc/cpuinfo")  # of Linux
    wide = cpus.exists() and b" avx512f" in cpus.read_bytes()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(wide)))
    flag, flags = "--xla_cpu_prefer_vector_width", os.environ.get("XLA_FLAGS", "")
    if wide and flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}=512".strip()
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tells glibc's malloc to keep freed memory: a training step takes and frees the same blocks.

    Without it every large tensor is mapped, zeroed and unmapped by the kernel in each step.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 256 << 20)


_of_command: list[bool] = []  # whether `prepare_command` was called


def prepare_command() -> None:
    """Prepares the process of a command: `prepare_process`, and TensorFlow logs errors alone."""
    _of_command[:] = [True]
    prepare_process()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def command_line() -> str:
    """The command that runs in this process, as it can be typed again."""
    program = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
    return " ".join([program, *map(shlex.quote, sys.argv[1:])])


# ---------------------------------------------------------------------------- packages

_NOTICES = re.compile(
    "All log messages before absl::InitializeLog|oneDNN custom operations are on|failed call to cuI"
    "|Could not find cuda drivers|optimized to use available CPU instr|To enable the following inst"
)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Hides what TensorFlow logs about the machine when it starts; none of its settings can.

    What else is written to the error stream meanwhile comes through afterwards.
    """
    sys.stderr.flush()
    stream = os.dup(2)
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stream, 2)
            os.close(stream)
            file.seek(0)
            sys.stderr.write("".join(line for line in file if not _NOTICES.search(line)))


def load_tensorflow() -> ModuleType:
    """Imports TensorFlow; in the process of a command without its start-up notices.

    There sklearn and matplotlib are hidden from Keras: importing them takes a third of the time,
    and commands do not use what Keras does with them.
    """
    if "tensorflow" in sys.modules or not _of_command:
        return importlib.import_module("tensorflow")
    hidden = {"sklearn", "matplotlib"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # cannot be imported now
    try:
        with Progress("load TensorFlow"), without_notices():
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()
            return tensorflow
    finally:
        for name in hidden:
            del sys.modules[name]


def import_extra(
    module: str, *, package: str, extra: str, needed_by: str, otherwise: str = ""
) -> Any:
    """The module of a package that need not be installed.

    Args:
      module: its name, "sklearn.metrics" for instance.
      package: what pip calls the package.
      extra: of bert-tf, the one that brings the package.
      needed_by: what the user asked for, with which the message begins.
      otherwise: what the user can do in place of installing it.

    Raises:
      InputError: it is not there, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        received = f"{needed_by}, but {package} is not installed ({error})"
        remedy = f"pip install 'bert-tf[{extra}]'" + (otherwise and f", or {otherwise}")
        raise InputError(received, f"the extra `{extra}`", remedy) from error


def import_tensorflow_text() -> ModuleType:
    """The module tensorflow_text, which must be built for the TensorFlow that is installed.

    Raises:
      InputError: it is missing, damaged, or was built for another one.
    """
    try:
        return importlib.import_module("tensorflow_text")
    except Exception as error:  # of another version: NotFoundError, ImportError, AttributeError
        if isinstance(error, (OSError, MemoryError)) or "Too many open files" in str(error):
            raise
        version = load_tensorflow().__version__
        received = f"TensorFlow {version}, and a tensorflow-text that fails ({first_line(error)})"
        # Without its dependencies: they would bring `tensorflow` beside a build of another name.
        fitting = f"'tensorflow-text=={version.rpartition('.')[0]}.*'"
        remedy = f"pip install --force-reinstall --no-deps {fitting}"
        raise InputError(received, "tensorflow-text of the same version", remedy) from error


# ---------------------------------------------------------------------------- signals


class Interrupted(SystemExit):
    """Raised by the training loop after a SIGTERM, once a checkpoint is saved; exit code 0."""

    def __init__(self, step: int, output_dir: str):
        super().__init__(0)
        self.step, self.output_dir = step, output_dir


_sigterm = threading.Event()  # set from a SIGTERM to the `Interrupted` that answers it


def sigterm_came() -> bool:
    """Whether a SIGTERM came within `noticing_sigterm` and has not yet ended a run."""
    return _sigterm.is_set()


@contextlib.contextmanager
def noticing_sigterm() -> Iterator[Callable[[], bool]]:
    """Defers SIGTERM: within this context it does not end the process. Gives `sigterm_came`.

    The signal stays recorded after the context, unless that ends with `Interrupted`.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: _sigterm.set())
    try:
        yield sigterm_came
    except Interrupted:
        _sigterm.clear()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------------------- several processes

# The processes of a run on several hosts: which one writes, where all wait, what must be the same.
# A process alone is its own chief and waits for nobody. Several processes run the same program,
# each on its part of every batch, so they must make the same calls here in the same order.

RESTARTS = "BERT_TF_RESTARTS"  # environment variable: how often this process has restarted
FAILURE = "bert_tf: a process has failed"  # the text of the error that `tell_peers` causes
# What TensorFlow raises in the others when a process is gone.
_OF_LOSS = re.compile(
    "(Unavailable|Aborted|Cancelled|DeadlineExceeded|FailedPrecondition|Internal|Unknown)Error"
)
_shared: list[Any] = []  # with other processes, if any: the strategy, and what gathers numbers
_expects_peers = threading.Event()


def expect_peers() -> None:
    """Records that other processes will join; from now on errors may come from losing one."""
    _expects_peers.set()


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error may come from another process of the run that is gone or has failed."""
    return _expects_peers.is_set() and bool(_OF_LOSS.fullmatch(type(error).__name__))


def join(strategy: Any) -> None:
    """Makes this process one of several, which share the `tf.distribute.Strategy`."""
    tf = load_tensorflow()

    def on_replica(number):
        return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

    gather = tf.function(lambda number: strategy.run(on_replica, args=(number,)))
    _shared[:] = [strategy, gather]


def has_peers() -> bool:
    """Whether there are other processes."""
    return bool(_shared)


def is_chief() -> bool:
    """Whether this process writes the files of the run."""
    return not _shared or _shared[0].extended._is_chief


def all_gather(number: int) -> list[int]:
    """The numbers of all processes, in their order; waits for all."""
    if not _shared:
        return [number]
    strategy, gather = _shared
    with WATCHDOG.watched("wait for the other processes"):
        gathered = gather(load_tensorflow().constant(number, "int64"))
        return strategy.experimental_local_results(gathered)[0].numpy().tolist()


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
            received = f"other {name} in this process than in another one of the run"
            remedy = "give all of them the same command and the same files"
            raise InputError(received, "the same in all processes", remedy)


def leave() -> None:
    """Waits until all other processes are done, then leaves the run."""
    with contextlib.suppress(load_tensorflow().errors.OpError):  # they have passed it, and ended
        barrier()
    let_peers_read()


def let_peers_read() -> None:
    """Waits before the process ends: peers may still be fetching its part of a collective."""
    if _shared:
        time.sleep(1)


def tell_peers() -> None:
    """Ends what the processes compute together: this one has failed, and would fail again.

    The others would wait for it otherwise, as for one that was lost. TensorFlow exports no function
    for this; test_multiworker.py covers the one that is used.
    """
    if not _shared:
        return
    let_peers_read()
    context = importlib.import_module("tensorflow.python.eager.context").context()
    errors = load_tensorflow().errors
    with contextlib.suppress(errors.OpError):  # they have failed as well
        context.report_error_to_cluster(errors.FAILED_PRECONDITION, FAILURE)
    let_peers_read()


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
    logging.warning("Restart %d of at most %d: %s", number, at_most, reason)
    logging.flush()
    sys.stdout.flush()
    time.sleep(2)  # so that the others notice as well
    os.environ[RESTARTS] = str(number)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
