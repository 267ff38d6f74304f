"""Process settings that must be made before TensorFlow loads.

What is set in the environment already is left as it is. If TensorFlow was imported before
`bert_tf`, everything works but some of the speed is lost.
"""

import ctypes
import os
import sys

# Operations one by one are slower with oneDNN on most CPUs, and differ in the last bits.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Its start-up notices (no GPU found, compiled with AVX2) hide our own lines.
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
