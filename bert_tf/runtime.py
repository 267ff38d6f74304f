"""Process settings that must be made before TensorFlow loads.

What is set in the environment already is left as it is. If TensorFlow was imported before
`bert_tf`, everything works but some of the speed is lost.
"""

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator


def choose_cpu_kernels() -> None:
    """Chooses between TensorFlow's two sets of CPU kernels, and the width of XLA's vectors.

    With 512-bit vectors oneDNN's products are faster and XLA should use the full width; without,
    oneDNN is up to 1.8 times slower than TensorFlow's own kernels. Measured with
    benchmarks/train_step.py.
    """
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="ignore") as file:
            wide = " avx512f" in file.read()
    except OSError:  # not Linux
        wide = False
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(wide)))
    flag = "--xla_cpu_prefer_vector_width"
    if wide and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}=512".strip()


NOTICES = re.compile(
    r"All log messages before absl::InitializeLog|oneDNN custom operations are on"
    r"|Could not find cuda drivers|failed call to cuInit|optimized to use available CPU instr"
    r"|To enable the following instructions"
)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Leaves out what TensorFlow says of the machine when it starts; no setting of its own does.

    What else is written to the error stream meanwhile comes through afterwards.
    """
    try:
        sys.stderr.flush()
        stream = os.dup(2)
    except (OSError, AttributeError):  # no such stream
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stream, 2)
            os.close(stream)
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines(keepends=True)
            sys.stderr.write("".join(line for line in lines if not NOTICES.search(line)))


choose_cpu_kernels()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h


def keep_freed_memory() -> None:
    """Tells glibc's malloc to keep freed memory: a training step takes and frees the same blocks.

    Without it every large tensor is mapped, zeroed and unmapped by the kernel in each step.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(M_MMAP_THRESHOLD, 1 << 30)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_TOP_PAD, 256 << 20)


keep_freed_memory()

if "tensorflow" not in sys.modules:
    with without_notices():
        import tensorflow  # noqa: F401
