"""The process: its settings, TensorFlow, optional packages, signals, its place in a run.

Commands make the settings; a program that uses the library may call `prepare_process`.
"""

import contextlib
import ctypes
import importlib
import os
import pathlib
import re
import signal
import sys
import zlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from bert_tf import processor
from bert_tf.errors import InputError, first_line
from bert_tf.terminal import Progress

# ---------------------------------------------------------------------------- settings

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

# Without these flags XLA tries out kernels of its own for each product and each fusion before a
# first step: 86 s of BERT-Base's start, for 3.9 % of its speed (docs/accelerators.md).
OF_GPUS = {"xla_gpu_enable_triton_gemm": 0, "xla_gpu_experimental_enable_fusion_autotuner": 0}
_SINCE = "2.21"  # the first TensorFlow that has them: XLA aborts the process at unknown flags


def prepare_process() -> None:
    """Makes settings that speed up models, for the whole process.

    Call it before TensorFlow loads. It sets `TF_ENABLE_ONEDNN_OPTS` unless it is set, adds missing
    flags to `XLA_FLAGS`, and lets glibc's malloc keep freed memory.

    With 512-bit vectors oneDNN's products are faster than TensorFlow's own kernels, and XLA should
    use the full width; without them oneDNN is up to 1.8 times slower (benchmarks/train_step.py).
    With a GPU, XLA tries out fewer kernels before a first step.
    """
    is_wide = "avx512f" in processor.flags()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(is_wide)))
    flags = {}
    if is_wide:
        flags["xla_cpu_prefer_vector_width"] = 512
    if gpus() and _version() >= _SINCE:
        flags |= OF_GPUS
    users_flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file = users_flags and not users_flags.startswith("-")
    new = [f"--{name}={value}" for name, value in flags.items() if name not in users_flags]
    if new and not is_file:
        os.environ["XLA_FLAGS"] = " ".join([*users_flags.split(), *new])
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


def release_memory() -> None:
    """Returns to the system the freed memory that malloc keeps after `keep_freed_memory`."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def gpus() -> list[str]:
    """The driver's names of the NVIDIA GPUs, unless they are hidden; loads nothing."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return []
    names = []
    for path in sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information")):
        if model := re.search("Model: *(.*)", path.read_text()):
            names.append(model[1])
    return names


def _version() -> str:
    """TensorFlow's version, without loading it; "" for a build of another name."""
    from importlib import metadata  # not at the top: every command starts here

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("tensorflow")
    return ""


def keep_programs() -> None:
    """Lets XLA keep the programs that it compiles for GPUs, for later processes.

    They are in the user's cache folder, in a folder for each TensorFlow, driver, kind of GPU and
    set of flags. Does nothing if `TF_XLA_FLAGS` is set, or with several GPUs, which is untested.
    """
    if len(gpus()) != 1 or "TF_XLA_FLAGS" in os.environ:
        return
    driver = pathlib.Path("/proc/driver/nvidia/version")
    driver_version = driver.exists() and driver.read_text()
    made_by = [_version(), *gpus(), os.environ.get("XLA_FLAGS"), driver_version]
    with contextlib.suppress(OSError, RuntimeError):  # a home that cannot be written to, or none
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        folder = cache / "bert_tf" / f"xla-{zlib.crc32(repr(made_by).encode()):08x}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK) and " " not in str(folder):
            name = "--tf_xla_persistent_cache"
            os.environ["TF_XLA_FLAGS"] = f"{name}_directory={folder} {name}_device_types=GPU"


# The operations that XLA compiles between the products of a graph: pointwise operations, sums, and
# their shapes; not products and transpositions, which are faster in oneDNN. Each shape is compiled
# when it first comes, so that the same step always gives the same bytes.
_CLUSTERED = (
    "PW,RED,PWRED,BroadcastTo,Const,ExpandDims,Fill,Reshape,Shape,Slice,StridedSlice,Tile,ZerosLike"
)
_CLUSTERS = (
    "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_enable_lazy_compilation=false "
    f"--tf_xla_ops_to_cluster={_CLUSTERED}"
)


def cluster_graphs() -> None:
    """Lets XLA compile the operations between the products of graphs, for the whole process.

    This is for training in bfloat16 on a CPU that multiplies it: XLA's own products would be in
    float32. Call it before TensorFlow loads. Does nothing if `TF_XLA_FLAGS` is set, on another CPU,
    and with a GPU.
    """
    if processor.bfloat16() and not gpus():
        os.environ.setdefault("TF_XLA_FLAGS", _CLUSTERS)


def clusters_graphs() -> bool:
    """Whether `cluster_graphs` is in effect."""
    return os.environ.get("TF_XLA_FLAGS") == _CLUSTERS


_of_command: list[bool] = []  # whether `prepare_command` was called


def prepare_command() -> None:
    """Prepares the process of a command: `prepare_process`, and TensorFlow logs only errors.

    Keras uses TensorFlow and float32, whatever is set for other programs.
    """
    _of_command[:] = [True]
    prepare_process()
    keep_programs()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}


# ---------------------------------------------------------------------------- packages


# Lines that TensorFlow writes while it loads, at any log level, and that nobody can act on; some of
# them only without a driver of NVIDIA's.
_NOISE = (
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR",
    r"\bport\.cc:\d+\] oneDNN custom operations are on",
    r"\bcpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized",
    r"^To enable the following instructions:",
)
_NOISE_OF_GPUS = (
    r"\bcudart_stub\.cc:\d+\] Could not find cuda drivers",
    r"\bcuda_platform\.cc:\d+\] failed call to cuInit",
)
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # devices; the second one is that of WSL
_FILTER = """
import re, sys
is_noise = re.compile(sys.argv[1].encode()).search
for line in sys.stdin.buffer:
    if not is_noise(line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Filters the lines of `_NOISE` from standard error, also those that C++ writes.

    Another process filters: so the other lines appear even if this process is aborted. Nothing is
    filtered if the user lets TensorFlow log more than errors.
    """
    import subprocess  # not at the top: a command that only parses flags needs none

    patterns = _NOISE
    if not gpus() and not any(map(os.path.exists, _DRIVERS)):
        patterns += _NOISE_OF_GPUS
    # Without site-packages it starts in 10 ms. Ctrl-C does not reach it.
    command = [sys.executable, "-I", "-S", "-c", _FILTER, "|".join(patterns)]
    with contextlib.ExitStack() as stack:
        try:
            if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") < "2":
                raise OSError("the user wants to see everything")
            standard_error = os.dup(2)
            stack.callback(os.close, standard_error)
            reader = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=standard_error,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:  # or there is no standard error, or no process can be started
            yield
            return
        pipe: Any = reader.stdin
        os.dup2(pipe.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # another process holds the pipe
                reader.wait(5)


def load_tensorflow() -> ModuleType:
    """Imports TensorFlow.

    In the process of a command sklearn, matplotlib and JAX are hidden from Keras and TensorFlow:
    importing them takes a third of the time, and commands do not need them there.
    """
    if "tensorflow" in sys.modules or not _of_command:
        return importlib.import_module("tensorflow")
    hidden = {"sklearn", "matplotlib", "jax"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # None: importing them fails
    try:
        with Progress("load TensorFlow"), _without_noise():
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()
        importlib.import_module("keras").config.set_floatx("float32")
        return tensorflow
    finally:
        for name in hidden:
            del sys.modules[name]


_forked: list[bool] = []  # whether TensorFlow had run before this process was forked


def _note_fork() -> None:
    """Notes in a forked process whether TensorFlow had run in its parent."""
    with contextlib.suppress(AttributeError, KeyError):  # not loaded, or not completely
        threads = sys.modules["tensorflow"].config.threading
        number = threads.get_inter_op_parallelism_threads()
        try:
            threads.set_inter_op_parallelism_threads(number + 1)  # fails once it has run
        except RuntimeError:
            _forked[:] = [True]
        else:
            threads.set_inter_op_parallelism_threads(number)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)


def is_forked() -> bool:
    """Whether this process is a fork of one in which TensorFlow had run.

    It lacks TensorFlow's threads: a large operation or a graph waits for them for ever. A process
    that was forked before TensorFlow ran starts threads of its own.
    """
    return bool(_forked)


def refuse_forked(what: str) -> None:
    """Raises `InputError` in a process for which `is_forked`.

    Args:
      what: what cannot be used there, such as "a tokenizer".
    """
    if is_forked():
        received = f"{what} in a process that was forked after TensorFlow had run"
        expected = "a process that starts TensorFlow itself: its threads do not survive a fork"
        remedy = """start processes by "spawn" (multiprocessing.get_context("spawn")), load the \
model in the child of a process that has not used TensorFlow, or use one process, without num_proc \
in `map` of datasets: TensorFlow uses all cores"""
        raise InputError(received, expected, remedy)


def import_extra(
    module: str, *, package: str, extra: str, needed_by: str, otherwise: str = ""
) -> Any:
    """The module of an optional package.

    Args:
      module: its name, such as "sklearn.metrics".
      package: the name of the package, for pip.
      extra: our extra that installs the package.
      needed_by: what the user asked for. The message begins with it.
      otherwise: what the user can do instead of installing it.

    Raises:
      InputError: the module cannot be imported.
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
      InputError: it is missing, damaged, or built for another TensorFlow.
    """
    try:
        return importlib.import_module("tensorflow_text")
    except Exception as error:  # of another version: NotFoundError, ImportError, AttributeError
        if isinstance(error, (OSError, MemoryError)) or "Too many open files" in str(error):
            raise
        version = load_tensorflow().__version__
        received = f"TensorFlow {version}, and a tensorflow-text that fails ({first_line(error)})"
        # Its dependencies would install `tensorflow` beside a build of another name.
        fitting = f"'tensorflow-text=={version.rpartition('.')[0]}.*'"
        remedy = f"pip install --force-reinstall --no-deps {fitting}"
        raise InputError(received, "tensorflow-text of the same version", remedy) from error


# ---------------------------------------------------------------------------- signals


class Interrupted(SystemExit):
    """Raised by the training loop after a signal, once a checkpoint is saved.

    Attributes:
      code: the exit code, as shells have it: 143 after SIGTERM, 130 after Ctrl-C.
      step: the step of the checkpoint.
      output_dir: its folder.
      number: the number of the signal.
    """

    def __init__(self, step: int, output_dir: str, number: int = signal.SIGTERM):
        super().__init__(128 + number)
        self.step = step
        self.output_dir = output_dir
        self.number = number


_signals: list[int] = []  # those that came, until an `Interrupted` answers them


def note_signal(number: int, _: Any = None) -> None:
    """A handler of signals, which records them for `signal_came`."""
    _signals.append(number)


def signal_came() -> int:
    """The signal that came and has not ended a run yet; 0 without one."""
    return max(_signals, default=0)


def name_of_signal(number: int) -> str:
    """The name of a signal, for users."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


@contextlib.contextmanager
def noticing_signals() -> Iterator[None]:
    """Records SIGTERM and a command's Ctrl-C, which then do not end the process: `signal_came`.

    A signal stays recorded after the context, unless `Interrupted` ends the context. Outside
    commands, in a notebook for instance, Ctrl-C raises `KeyboardInterrupt` as always; where it is
    ignored it stays ignored.
    """
    of_command = signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.default_int_handler)
    numbers = (signal.SIGTERM, signal.SIGINT)[: 1 + of_command]
    before = {number: signal.signal(number, note_signal) for number in numbers}
    try:
        yield
    except Interrupted:
        _signals.clear()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------------- processes of a run


class Alone:
    """The process of a run that has only this one: it writes all files and waits for nobody.

    In a run of several processes `training.distribution.OneOfSeveral` takes its place. All of them
    run the same program, and must make the same calls here in the same order.

    Attributes:
      has_peers: whether there are other processes.
      is_chief: whether this process writes the files of the run.
    """

    has_peers = False
    is_chief = True

    def all_gather(self, number: int) -> list[int]:
        """The numbers of all processes, in their order; waits for all."""
        return [number]

    def check_same(self, numbers: Mapping[str, int]) -> None:
        """Raises InputError in every process if one of the numbers differs between processes."""

    def leave(self) -> None:
        """Waits until all other processes are done, then leaves the run."""

    def tell_failure(self) -> None:
        """Tells the other processes that this one has failed, which ends their computation."""

    def ending(self, error: BaseException) -> tuple[int, str] | None:
        """The exit code and message of an error that another process has caused; else None."""


process = Alone()  # `training.distribution` replaces it in a run of several processes


def signal_of_run() -> int:
    """The signal that came to any process and has not ended a run yet, or 0; waits for all."""
    return max(process.all_gather(signal_came()))


def has_peers() -> bool:
    """Whether there are other processes."""
    return process.has_peers


def is_chief() -> bool:
    """Whether this process writes the files of the run."""
    return process.is_chief


def barrier() -> None:
    """Waits until every process has called it."""
    process.all_gather(0)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; waits for all."""
    return any(process.all_gather(int(flag)))


def check_same(numbers: Mapping[str, int]) -> None:
    """Raises InputError in every process if one of the numbers differs between processes."""
    process.check_same(numbers)
