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

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h


# Before a first step XLA tries out kernels of its own for each product and each fusion: 86 s of
# BERT-Base's start, for 3.9 % of its speed (docs/accelerators.md).
OF_GPUS = {"xla_gpu_enable_triton_gemm": 0, "xla_gpu_experimental_enable_fusion_autotuner": 0}
_SINCE = "2.21"  # TensorFlow that knows them: a flag that XLA does not know ends the process


def prepare_process() -> None:
    """Makes settings that speed up models, for the whole process.

    Call it before TensorFlow loads. It sets `TF_ENABLE_ONEDNN_OPTS` unless it is set, adds flags to
    `XLA_FLAGS` that are not there, and lets glibc's malloc keep freed memory.

    With 512-bit vectors oneDNN's products are faster than TensorFlow's own kernels, and XLA should
    use the full width; without, oneDNN is up to 1.8 times slower. Measured with
    benchmarks/train_step.py. Where there is a GPU, XLA tries out fewer kernels before a first step.
    """
    wide = "avx512f" in processor.flags()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(wide)))
    flags = {"xla_cpu_prefer_vector_width": 512} if wide else {}
    flags |= OF_GPUS if gpus() and _version() >= _SINCE else {}
    given = os.environ.get("XLA_FLAGS", "").strip()
    if given and not given.startswith("-"):  # the name of a file of flags
        flags = {}
    if new := [f"--{name}={value}" for name, value in flags.items() if name not in given]:
        os.environ["XLA_FLAGS"] = " ".join([*given.split(), *new])
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
    """Gives the freed memory back to the system that `keep_freed_memory` keeps."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def gpus() -> list[str]:
    """What the driver calls each NVIDIA GPU that is not hidden from TensorFlow; loads nothing."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return []
    paths = sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [found[1] for path in paths if (found := re.search("Model: *(.*)", path.read_text()))]


def _version() -> str:
    """TensorFlow's, which is not loaded; "" for a build of another name."""
    from importlib import metadata  # not at the top: every command starts here

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("tensorflow")
    return ""


def keep_programs() -> None:
    """Lets XLA keep the programs that it compiles for GPUs, for the next process.

    They are in the user's cache folder, apart for each TensorFlow, driver, kind of GPU and set of
    flags. Nothing is kept where `TF_XLA_FLAGS` is set, nor with several GPUs, where it has not been
    tried.
    """
    if len(gpus()) != 1 or "TF_XLA_FLAGS" in os.environ:
        return
    driver = pathlib.Path("/proc/driver/nvidia/version")
    of = [_version(), *gpus(), os.environ.get("XLA_FLAGS"), driver.exists() and driver.read_text()]
    with contextlib.suppress(OSError, RuntimeError):  # a home that cannot be written to, or none
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        folder = cache / "bert_tf" / f"xla-{zlib.crc32(repr(of).encode()):08x}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK) and " " not in str(folder):
            name = "--tf_xla_persistent_cache"
            os.environ["TF_XLA_FLAGS"] = f"{name}_directory={folder} {name}_device_types=GPU"


# What XLA compiles between the products of a graph: pointwise operations, sums, and the shapes
# between them; neither products nor transpositions, which oneDNN makes faster. Each shape is
# compiled when it first comes, so that the same step always gives the same bytes.
_CLUSTERED = (
    "PW,RED,PWRED,BroadcastTo,Const,ExpandDims,Fill,Reshape,Shape,Slice,StridedSlice,Tile,ZerosLike"
)
_CLUSTERS = (
    "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_enable_lazy_compilation=false "
    f"--tf_xla_ops_to_cluster={_CLUSTERED}"
)


def cluster_graphs() -> None:
    """Lets XLA compile what stands between the products of graphs on a CPU, for the whole process.

    For training in bfloat16 on a CPU that multiplies it: XLA itself would multiply in float32.
    To be called before TensorFlow loads. Without effect where `TF_XLA_FLAGS` is set, on another
    CPU, and where there is a GPU.
    """
    if processor.bfloat16() and not gpus():
        os.environ.setdefault("TF_XLA_FLAGS", _CLUSTERS)


def clusters_graphs() -> bool:
    """Whether `cluster_graphs` is in effect."""
    return os.environ.get("TF_XLA_FLAGS") == _CLUSTERS


_of_command: list[bool] = []  # whether `prepare_command` was called


def prepare_command() -> None:
    """Prepares the process of a command: `prepare_process`, and TensorFlow logs errors alone.

    Keras computes by TensorFlow, and in float32, whatever is set for other programs.
    """
    _of_command[:] = [True]
    prepare_process()
    keep_programs()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}


# ---------------------------------------------------------------------------- packages


# What TensorFlow writes while it loads, whatever its log level, and what asks nothing of anybody;
# and what does not where there is no driver of NVIDIA's.
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
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # devices; the second one of Windows's Linux
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
    """Keeps `_NOISE` off standard error, whoever writes it; all other lines come through.

    Another process reads them, so that they do when this one is aborted, too. Where the user lets
    TensorFlow log more than errors, nothing is left out.
    """
    import subprocess  # not at the top: a command that only parses flags needs none

    patterns = _NOISE
    if not gpus() and not any(map(os.path.exists, _DRIVERS)):
        patterns += _NOISE_OF_GPUS
    # No library of the user's, no site-packages: it starts in 10 ms. Ctrl-C does not reach it.
    command = [sys.executable, "-I", "-S", "-c", _FILTER, "|".join(patterns)]
    with contextlib.ExitStack() as stack:
        try:
            if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") < "2":
                raise OSError("the user wants to see all")
            standard_error = os.dup(2)
            stack.callback(os.close, standard_error)
            reader = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=standard_error,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:  # or there is no standard error, no further process
            yield
            return
        pipe: Any = reader.stdin
        os.dup2(pipe.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # something else holds the pipe
                reader.wait(5)


def load_tensorflow() -> ModuleType:
    """Imports TensorFlow.

    In the process of a command sklearn, matplotlib and JAX are hidden from Keras and TensorFlow:
    importing them takes a third of the time, and commands do not use what they are imported for.
    """
    if "tensorflow" in sys.modules or not _of_command:
        return importlib.import_module("tensorflow")
    hidden = {"sklearn", "matplotlib", "jax"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # cannot be imported now
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
    """Notes in a new process whether TensorFlow ran in the one that it is a fork of."""
    with contextlib.suppress(AttributeError, KeyError):  # not loaded, or not wholly
        threads = sys.modules["tensorflow"].config.threading
        number = threads.get_inter_op_parallelism_threads()
        try:
            threads.set_inter_op_parallelism_threads(number + 1)  # possible until it runs
        except RuntimeError:
            _forked[:] = [True]
        else:
            threads.set_inter_op_parallelism_threads(number)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)


def is_forked() -> bool:
    """Whether this process is a fork of one in which TensorFlow had run.

    The threads of TensorFlow are not in it: what waits for them, a large operation or a graph,
    waits for ever. A process that was forked before TensorFlow ran has threads of its own.
    """
    return bool(_forked)


def refuse_forked(what: str) -> None:
    """Raises `InputError` in a process for which `is_forked`.

    Args:
      what: cannot be used there, "a tokenizer" for instance.
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
    """Raised by the training loop after a signal, once a checkpoint is saved.

    Attributes:
      code: the exit code, as shells have it: 143 after SIGTERM, 130 after Ctrl-C.
      step: of the checkpoint.
      output_dir: its folder.
      number: of the signal.
    """

    def __init__(self, step: int, output_dir: str, number: int = signal.SIGTERM):
        super().__init__(128 + number)
        self.step, self.output_dir, self.number = step, output_dir, number


_signals: list[int] = []  # those that came, until an `Interrupted` answers them


def note_signal(number: int, _: Any = None) -> None:
    """A handler of signals: `signal_came` tells of it."""
    _signals.append(number)


def signal_came() -> int:
    """The signal that came and has not yet ended a run; 0 for none."""
    return max(_signals, default=0)


def name_of_signal(number: int) -> str:
    """Its name, for users."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


@contextlib.contextmanager
def noticing_signals() -> Iterator[None]:
    """Defers SIGTERM and a command's Ctrl-C: they do not end the process; see `signal_came`.

    A signal stays recorded after the context, unless that ends with `Interrupted`. Ctrl-C that is
    ignored stays so, and elsewhere, in a notebook say, it raises `KeyboardInterrupt` as always.
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
    """A run of one process, which writes all files and waits for nobody.

    Where a run has several, a `training.distribution.OneOfSeveral` takes its place. They run the
    same program, so all must make the same calls here in the same order.

    Attributes:
      has_peers: whether there are other processes.
      is_chief: whether this process writes the files of the run.
    """

    has_peers, is_chief = False, True

    def all_gather(self, number: int) -> list[int]:
        """The numbers of all processes, in their order; waits for all."""
        return [number]

    def check_same(self, numbers: Mapping[str, int]) -> None:
        """Raises InputError in every process if one of the numbers differs between processes."""

    def leave(self) -> None:
        """Waits until all other processes are done, then leaves the run."""

    def tell_failure(self) -> None:
        """Ends what the processes compute together: this one has failed, and would fail again."""

    def ending(self, error: BaseException) -> tuple[int, str] | None:
        """The exit code and message for an error that another process has caused, else None."""


process = Alone()  # `training.distribution` sets another one for a run of several


def signal_of_run() -> int:
    """The signal that came to any process and has not yet ended a run, or 0; waits for all."""
    return max(process.all_gather(signal_came()))


def has_peers() -> bool:
    """Whether there are other processes."""
    return process.has_peers


def is_chief() -> bool:
    """Whether this process writes the files of the run."""
    return process.is_chief


def barrier() -> None:
    """Waits until every process has come here."""
    process.all_gather(0)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; waits for all."""
    return any(process.all_gather(int(flag)))


def check_same(numbers: Mapping[str, int]) -> None:
    """Raises InputError in every process if one of the numbers differs between processes."""
    process.check_same(numbers)
