"""The compilers of TPUs and GPUs, asked what they make of a program; no device is needed.

    python -m bert_tf.planning.compilers REQUEST.json    # prints "ready", then one line of JSON

Each compilation is such a process: JAX and TensorFlow each bring an XLA, and a compiler that fails
may end its process. What is used of JAX is private: the extra `compile-check` names the one version
that it was tested with.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from typing import Any

from bert_tf.errors import InputError
from bert_tf.planning.workload import DEVICES, Accelerator
from bert_tf.runtime import OF_GPUS

JAX = "0.10.2"  # that of the extras
PACKAGES = {  # by kind of device: the compiler's module, the extra that brings it
    "tpu": ("libtpu", "compile-check"),
    "gpu": ("jax_plugins.xla_cuda12", "compile-check-gpu"),
}
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
            received = f"--for={name}, whose compiler needs jax {JAX} (found: {version})"
            remedy = f"pip install 'bert-tf[{extra}]'"
            raise InputError(f"{received} and {module}", f"the extra `{extra}`", remedy)


def compile_program(device: Accelerator, hlo: bytes, *, as_is: bool = False) -> Compiled:
    """Compiles a program for a device; takes seconds to minutes.

    Args:
      device: the device.
      hlo: a serialized HloModuleProto.
      as_is: nothing in it is recomputed to save memory, as compilers do when it is scarce.

    Raises:
      InputError: the compiler does not start, or too little memory is left to it.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, path = pathlib.Path(folder, "program.pb"), pathlib.Path(folder, "request.json")
        request = {"hlo": str(program), "as_is": as_is}
        request |= {"topology": device.topology, "slice_type": device.slice_type}
        request["gpu"] = device.description if device.kind == "gpu" else ""
        program.write_bytes(hlo)
        path.write_text(json.dumps(request), encoding="utf-8")
        started = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", __name__, str(path)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    return answer(ended, time.monotonic() - started)


def answer(ended: subprocess.CompletedProcess, seconds: float) -> Compiled:
    """What the other process found.

    Raises:
      InputError: it says nothing of the program.
    """
    code, lines = ended.returncode, ended.stdout.splitlines()
    found = json.loads(lines[-1]) if lines and not code else {}
    if "error" in found:
        if needed := bytes_needed(found["error"], found["arguments"]):
            return Compiled(needed=needed, seconds=seconds)
        return Compiled(refused=first_line(found["error"]), seconds=seconds)
    if found and "unavailable" not in found:
        return Compiled(**found, seconds=seconds)
    how = f"{signal.Signals(-code).name}" if code < 0 else f"code {code}"
    how += "".join(f": {line}" for line in ended.stderr.strip().splitlines()[-1:])
    is_starved = code == -signal.SIGKILL or NO_MEMORY.search(ended.stderr)
    if READY in lines and not found and not is_starved:
        return Compiled(refused=f"the compiler ended with {how}", seconds=seconds)
    raise InputError(
        f"a compiler that does not work ({found.get('unavailable', f'it ended with {how}')[:300]})",
        "one as it was installed, with memory: several GB for BERT-Base, twice that for BERT-Large",
        "free memory, or install it again: pip install 'bert-tf[compile-check]' "
        "(for GPUs: compile-check-gpu)",
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
    bytes_named = int(float(found[2]) * 1024 ** " KMGT".index(found[3] or " "))
    return bytes_named + (arguments if "temporaries" in found[1] else 0)


def first_line(message: str) -> str:
    """Of a compiler's message."""
    return message.strip().partition("\n")[0].strip()[:300] or "no reason given"


MOST_TRIES = 6  # of batch sizes, those that are known included
CLOSE = 0.02  # a gain that is not worth a compilation


def largest_batch(
    peak: Callable[[int], float], available: int, tried: tuple[int, float], *, unit: int, guess: int
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
    known.sort(key=lambda size: abs(points[size] - available))
    first, second = (*known, *known)[:2] if known else (0, 0)
    rise = points[second] - points[first] if first != second else 0
    if rise * (second - first) <= 0:
        return 2 * max(points)
    return int(first + (available - points[first]) * (second - first) / rise)


# ---------------------------------------------------------------------------- the other process

# TensorFlow's copies of values; the compilers know StableHLO, where a copy is nothing of its own.
COPY = re.compile(r"mhlo\.copy (%\S+) : (\S+)")
AS_RESHAPE = r"stablehlo.reshape \1 : (\2) -> \2"
# Of what a TPU's compiler recomputes. It does not know the pass by the name that GPUs' has.
NOTHING_IS_SO_LARGE = ("xla_tpu_rematerialization_min_size_in_bytes", 1 << 50)


def compile_here(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles the program of a request in this process.

    Args:
      request: `hlo`, the path of the program; `topology` and `slice_type` of a TPU, or `gpu`,
        its description; and `as_is`, as for `compile_program`.

    Returns:
      Bytes and FLOPs, the fields of `Compiled`; or `error`, what the compiler says of the program,
      with the bytes of its arguments; or `unavailable`, why there is no compiler.
    """
    try:
        from jax._src import xla_bridge
        from jax.errors import JaxRuntimeError
        from jax.experimental import topologies
        from jaxlib import xla_client

        name, given = request["topology"], {"platform": "tpu"}
        if request["gpu"]:
            xla_bridge.discover_pjrt_plugins()
            name, given = "gpu", {"platform": "cuda", "topology": "1x1x1"}
            given["target_config"] = request["gpu"]
        device = topologies.get_topology_desc(name, **given).devices[0]
        print(READY, flush=True)
        program = xla_client.XlaComputation(pathlib.Path(request["hlo"]).read_bytes())
        try:
            return _compile_for(device, program, as_is=request["as_is"])
        except JaxRuntimeError as error:
            shapes = program.program_shape().parameter_shapes()
            sizes = (math.prod(one.dimensions()) * one.numpy_dtype().itemsize for one in shapes)
            return {"error": str(error), "arguments": sum(sizes)}
    except MemoryError:
        raise
    except Exception as error:  # of the plugin, or of a version that lacks what is used here
        return {"unavailable": f"{type(error).__name__}: {error}"}


def _compile_for(device: Any, program: Any, *, as_is: bool) -> dict[str, Any]:
    import jax
    import numpy as np
    from jax._src.interpreters import mlir
    from jaxlib import _jax, xla_client

    text = _jax.mlir.xla_computation_to_mlir_module(program)
    text = COPY.sub(AS_RESHAPE, text if isinstance(text, str) else text.decode())
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[device.id]])
    )
    if as_is and device.platform == "tpu":
        options.env_option_overrides = [NOTHING_IS_SO_LARGE]
    with mlir.make_ir_context():
        module = mlir.ir.Module.parse(text)
        compiled = device.client.compile(module, _jax.DeviceList((device,)), options)
    try:
        flops = compiled.cost_analysis()["flops"]
    except jax.errors.JaxRuntimeError:  # GPUs: of the program before it was compiled
        module, client = program.get_hlo_module(), jax.devices("cpu")[0].client
        flops = _jax.hlo_module_cost_analysis(client, module)["flops"]
    found = compiled.get_compiled_memory_stats()
    return {
        "arguments": found.argument_size_in_bytes,
        "temporary": found.temp_size_in_bytes,
        "output": found.output_size_in_bytes - found.alias_size_in_bytes,
        "code": found.generated_code_size_in_bytes,
        "flops": flops,
    }


if __name__ == "__main__":
    asked = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    given = {f"--{name}={value}" for name, value in OF_GPUS.items()}  # as commands do
    given |= {"--xla_disable_hlo_passes=rematerialization"} if asked["as_is"] else set()
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join(sorted(given)),
        # No TPU is looked for, neither in this machine nor at the cloud's metadata server.
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": asked["slice_type"],
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several may compile at once
    }
    os.environ.pop("TPU_LIBRARY_PATH", None)  # it may name TensorFlow's
    print(json.dumps(compile_here(asked)), flush=True)
    os._exit(0)  # the plugins' threads may not end
