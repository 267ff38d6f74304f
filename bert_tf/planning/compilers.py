"""The compilers of TPUs and GPUs, asked what they make of a program; no device is needed.

Each compilation is a process of its own (`device_compiler.py`): JAX and TensorFlow each bring an
XLA, and a compiler that fails may end its process.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection

from bert_tf.errors import InputError
from bert_tf.planning.devices import DEVICES, Accelerator

CHILD = pathlib.Path(__file__).parent / "device_compiler.py"
JAX = "0.10.2"  # that of the extras: what is used of it is private
PACKAGES = {  # by kind of device: the compiler's module, the extra that brings it
    "tpu": ("libtpu", "compile-check"),
    "gpu": ("jax_plugins.xla_cuda12", "compile-check-gpu"),
}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What a compiler says of a program that is too large for the memory of a device, with the bytes
# that it would need. Other memories (vmem, shared memory) run out where an operation is at fault.
TOO_LARGE = re.compile(r"(memory space hbm\. Used|on HBM,.*?\()\s*([\d.]+)([KMGT]?)")
READY = "ready"  # a line of the other process: its compiler has started
NO_MEMORY = re.compile("bad_alloc|MemoryError|Cannot allocate memory")  # of this machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compiler made of a program, or why it did not; bytes are those of one device."""

    arguments: int = 0  # weights, moments, batch: during the whole program
    temporary: int = 0
    output: int = 0  # not counting what takes the place of an argument
    code: int = 0  # of the program itself, in a TPU's memory
    flops: float = 0.0
    seconds: float = 0.0  # that the compilation took
    needed: int = 0  # of a program that is too large for the device
    refused: str = ""  # the compiler's message, if it refuses the program for another reason

    @property
    def peak(self) -> int:
        """The most bytes at any time, as far as the compiler says."""
        return self.needed or self.arguments + self.temporary + self.output + self.code

    def bytes_on(self, device: Accelerator) -> float:
        """What to compare with the device's memory; infinity if the program is refused.

        The compilers of TPUs refuse what does not fit, with a rounded number; their sums for what
        fits count gaps that they can use.
        """
        if self.refused:
            return math.inf
        if self.needed:
            return max(self.needed, device.memory_bytes + 1)
        return min(self.peak, device.memory_bytes) if device.kind == "tpu" else self.peak


def check_packages(names: Collection[str]) -> None:
    """Raises InputError unless the compilers of these devices are installed; imports nothing."""
    for name in names:
        module, extra = PACKAGES[DEVICES[name].kind]
        try:
            version = importlib.metadata.version("jax")
            found = version == JAX and importlib.util.find_spec(module)
        except (importlib.metadata.PackageNotFoundError, ModuleNotFoundError):
            version = found = None
        if not found:
            raise InputError(
                f"--for={name}, whose compiler needs jax {JAX} (found: {version}) and {module}",
                f"the extra `{extra}`",
                f"pip install 'bert-tf[{extra}]'",
            )


def compile_program(device: Accelerator, hlo: bytes, *, as_is: bool = False) -> Compiled:
    """Compiles a program for a device; takes seconds to minutes.

    Args:
      device: the device.
      hlo: a serialized HloModuleProto.
      as_is: nothing in it is recomputed to save memory, as compilers do when it is scarce.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = {"hlo": f"{folder}/program.pb", "as_is": as_is}
        if device.kind == "gpu":
            request["gpu"] = device.description
        else:
            request |= {"topology": device.topology, "slice_type": device.slice_type}
        pathlib.Path(request["hlo"]).write_bytes(hlo)
        path = pathlib.Path(folder, "request.json")
        path.write_text(json.dumps(request), encoding="utf-8")
        started = time.monotonic()
        ended = subprocess.run(
            [sys.executable, str(CHILD), str(path)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    return answer(ended, time.monotonic() - started)


def answer(ended: subprocess.CompletedProcess, seconds: float) -> Compiled:
    """What the other process found.

    Raises:
      InputError: it says nothing of the program: the compiler does not start, or too little memory
        is left to it.
    """
    code, lines = ended.returncode, ended.stdout.splitlines()
    found = json.loads(lines[-1]) if lines and not code else {}
    if found and "error" not in found and "unavailable" not in found:
        return Compiled(**found, seconds=seconds)
    if "error" in found:
        if needed := bytes_needed(found["error"], found["arguments"]):
            return Compiled(needed=needed, seconds=seconds)
        return Compiled(refused=first_sentence(found["error"]), seconds=seconds)
    how = f"{signal.Signals(-code).name}" if code < 0 else f"code {code}"
    last = "".join(f": {line}" for line in ended.stderr.strip().splitlines()[-1:])
    says = found.get("unavailable", f"it ended with {how}{last}")
    if code == -signal.SIGKILL or NO_MEMORY.search(ended.stderr):
        raise InputError(
            f"a compiler that ended with {how}{last}",
            "memory for it: several GB for BERT-Base, twice as much for BERT-Large",
            "free memory, or compile on a machine with more",
        )
    if READY in lines and not found:
        return Compiled(refused=f"the compiler ended with {how}{last}", seconds=seconds)
    raise InputError(
        f"a compiler that does not start ({first_sentence(says)})",
        "one that works as it was installed",
        "install the extra again: pip install 'bert-tf[compile-check]', for GPUs "
        "'bert-tf[compile-check-gpu]'",
    )


def bytes_needed(message: str, arguments: int) -> int:
    """Of a program that is too large for a device; 0 if the message says something else.

    >>> bytes_needed("Ran out of memory in memory space hbm. Used 24.5G of 15.75G hbm.", 1000)
    26306674688
    >>> bytes_needed("Ran out of memory on HBM, ... HLO temporaries (18.43G) exceeds ...", 1000)
    19789062816
    """
    found = TOO_LARGE.search(message)
    if not found:
        return 0
    bytes_named = int(float(found[2]) * UNITS[found[3]])
    return bytes_named + (arguments if "temporaries" in found[1] else 0)


def first_sentence(message: str) -> str:
    """
    >>> first_sentence("UNIMPLEMENTED: No such operation: foo \\nwhile compiling ...")
    'UNIMPLEMENTED: No such operation: foo'
    """
    return message.strip().partition("\n")[0].strip()[:300] or "no reason given"


MOST_TRIES = 6  # of batch sizes, those that are known included
CLOSE = 0.02  # a gain that is not worth a compilation


def largest_batch(
    peak: Callable[[int], float],
    available: int,
    tried: tuple[int, float],
    *,
    unit: int,
    guess: int,
) -> int:
    """The largest batch whose step fits, or nearly, found with few compilations; 0 if none does.

    Memory is nearly a straight line in the size of the batch: two sizes show where it meets what is
    available. That size is tried as well, and again the crossing of the line through the two sizes
    that are closest to it, until a try could gain less than 2 %. Where a compiler refuses a size,
    the middle between it and what fits is tried instead.

    Args:
      peak: compiles the step for a batch; bytes, infinity if it is refused.
      available: bytes of the device.
      tried: a batch size and its bytes, known already.
      unit: sizes are multiples of it.
      guess: the second size to try, unless it is too close to the first.
    """
    first = tried[0]
    points = {first: tried[1]}
    while True:
        low = max((size for size in points if points[size] <= available), default=0)
        high = min((size for size in points if points[size] > available), default=None)
        if len(points) > 1:
            size = crossing(points, available)
        else:
            size = guess if abs(guess - first) > first / 8 else 2 * first if low else first // 2
        if high is not None and points[high] == math.inf:
            size = min(size, (low + high) // 2)
        if low and len(points) > 1 and size - low < max(unit, CLOSE * low):
            return low
        size = max(low + unit, size // unit * unit)
        size = size if high is None else min(size, high - unit)
        if size <= low or len(points) == MOST_TRIES:
            return low
        points[size] = peak(size)


def crossing(points: dict[int, float], available: int) -> int:
    """Where the line through the two points that are closest to `available` meets it."""
    known = [size for size in points if points[size] < math.inf]
    if len(known) < 2:
        return 2 * max(points)
    first, second = sorted(known, key=lambda size: abs(points[size] - available))[:2]
    slope = (points[second] - points[first]) / (second - first)
    if slope <= 0:
        return 2 * max(points)
    return int(first + (available - points[first]) / slope)
