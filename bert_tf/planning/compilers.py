"""The compilers of TPUs and GPUs, asked what they make of a program; no device is needed.

Each compilation is a process of its own (`device_compiler.py`): JAX and TensorFlow each bring an
XLA, and a compiler that fails may end its process.
"""

import dataclasses
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection

from bert_tf.errors import InputError
from bert_tf.planning.devices import DEVICES, Accelerator

CHILD = pathlib.Path(__file__).parent / "device_compiler.py"
PACKAGES = {  # by kind of device: modules that must be there, the extra that brings them
    "tpu": (("jax", "libtpu"), "compile-check"),
    "gpu": (("jax", "jax_plugins.xla_cuda12"), "compile-check-gpu"),
}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What a compiler says of a program that is too large, with the bytes that it would need.
TOO_LARGE = re.compile(r"(?:Used|temporaries \(|required[^.]*?\()\s*([\d.]+)([KMGT]?)")


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

    def bytes_on(self, device: Accelerator) -> int:
        """The same, at most what the device has if its compiler has found room for it.

        The compilers of TPUs refuse what does not fit; their sums count gaps that they can use.
        """
        fits = device.kind == "tpu" and not self.needed
        return min(self.peak, device.memory_bytes) if fits else self.peak


def check_packages(names: Collection[str]) -> None:
    """Raises InputError unless the compilers of these devices are installed; imports nothing."""
    for name in names:
        modules, extra = PACKAGES[DEVICES[name].kind]
        for module in modules:
            if not _is_installed(module):
                raise InputError(
                    f"--for={name}, whose compiler needs {module}, which is not installed",
                    f"the extra `{extra}`",
                    f"pip install 'bert-tf[{extra}]'",
                )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


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
            [sys.executable, str(CHILD), str(path)], capture_output=True, text=True, check=False
        )
    return answer(ended, time.monotonic() - started)


def answer(ended: subprocess.CompletedProcess, seconds: float) -> Compiled:
    """What the other process found."""
    lines = ended.stdout.splitlines()
    if ended.returncode or not lines:
        why = [line for line in ended.stderr.splitlines() if line.strip()]
        return Compiled(
            refused=f"the compiler ended with code {ended.returncode}: {' '.join(why[-1:])}",
            seconds=seconds,
        )
    found = json.loads(lines[-1])
    if "unavailable" in found:
        raise InputError(
            f"a compiler that does not start ({first_sentence(found['unavailable'])})",
            "one that works as it was installed",
            "install the extra again: pip install 'bert-tf[compile-check]', for GPUs "
            "'bert-tf[compile-check-gpu]'",
        )
    error = found.get("error", "")
    if not error:
        return Compiled(**found, seconds=seconds)
    if error.startswith("RESOURCE_EXHAUSTED"):
        return Compiled(needed=bytes_needed(error), seconds=seconds)
    return Compiled(refused=first_sentence(error), seconds=seconds)


def bytes_needed(message: str) -> int:
    """
    >>> bytes_needed("Ran out of memory in memory space hbm. Used 24.5G of 15.75G hbm.")
    26306674688
    """
    found = TOO_LARGE.search(message)
    return int(float(found[1]) * UNITS[found[2]]) if found else sys.maxsize


def first_sentence(message: str) -> str:
    """
    >>> first_sentence("UNIMPLEMENTED: No such operation: foo \\nwhile compiling ...")
    'UNIMPLEMENTED: No such operation: foo'
    """
    return message.strip().splitlines()[0].strip()[:300]


MOST_TRIES = 6  # of batch sizes, those that are known included
CLOSE = 0.02  # a gain that is not worth a compilation


def largest_batch(
    peak: Callable[[int], int], available: int, tried: tuple[int, int], *, unit: int, guess: int
) -> int:
    """The largest batch whose step fits, or nearly, found with few compilations; 0 if none does.

    Memory is nearly a straight line in the size of the batch: two sizes show where it meets what is
    available. That size is tried as well, and again the crossing of the line through the two sizes
    that are closest to it, until a try could gain less than 2 %.

    Args:
      peak: compiles the step for a batch; bytes.
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
        if low and len(points) > 1 and size - low < max(unit, CLOSE * low):
            return low
        size = max(low + unit, size // unit * unit)
        size = size if high is None else min(size, high - unit)
        if size <= low or len(points) == MOST_TRIES:
            return low
        points[size] = peak(size)


def crossing(points: dict[int, int], available: int) -> int:
    """Where the line through the two points that are closest to `available` meets it."""
    first, second = sorted(points, key=lambda size: abs(points[size] - available))[:2]
    slope = (points[second] - points[first]) / (second - first)
    if slope <= 0:
        return 2 * max(points)
    return int(first + (available - points[first]) / slope)
