"""Compiles one program for a device that need not be here. A process of its own.

    python device_compiler.py REQUEST.json      # prints "ready", then one line of JSON

JAX and TensorFlow each bring an XLA, and a compiler that fails may end its process; so nothing else
runs here, and nobody imports this file. What is used of JAX is private: the extra `compile-check`
names the one version that it was tested with.

The request has `hlo`, the path of a serialized HloModuleProto, and for a TPU `topology`, for a GPU
`gpu`, its description as text; `as_is`: the compiler must not recompute parts of the program to
save memory. The answer has bytes and FLOPs; or `error`, what the compiler says of the program, and
the bytes of its arguments; or `unavailable`, why there is no compiler.
"""

import json
import math
import os
import pathlib
import re
import sys

# TensorFlow's copies of values; the compilers know StableHLO, where a copy is nothing of its own.
COPY = re.compile(r"mhlo\.copy (%\S+) : (\S+)")
AS_RESHAPE = r"stablehlo.reshape \1 : (\2) -> \2"
# Of what a TPU's compiler recomputes. It does not know the pass by the name that GPUs' has.
NOTHING_IS_SO_LARGE = ("xla_tpu_rematerialization_min_size_in_bytes", 1 << 50)


def main(request: dict) -> dict:
    """Request -> answer."""
    try:
        from jax.errors import JaxRuntimeError
        from jaxlib import xla_client

        device = topology(request).devices[0]
        print("ready", flush=True)
        program = xla_client.XlaComputation(pathlib.Path(request["hlo"]).read_bytes())
        try:
            return compile_for(device, program, as_is=request["as_is"])
        except JaxRuntimeError as error:
            return {"error": str(error), "arguments": bytes_of_arguments(program)}
    except MemoryError:
        raise
    except Exception as error:  # of the plugin, or of a version that lacks what is used here
        return {"unavailable": f"{type(error).__name__}: {error}"}


def bytes_of_arguments(program) -> int:
    """Of weights, moments and batch."""
    shapes = program.program_shape().parameter_shapes()
    return sum(math.prod(one.dimensions()) * one.numpy_dtype().itemsize for one in shapes)


def topology(request: dict):
    """The devices to compile for."""
    from jax.experimental import topologies

    if "gpu" not in request:
        return topologies.get_topology_desc(request["topology"], platform="tpu")
    from jax._src import xla_bridge

    xla_bridge.discover_pjrt_plugins()
    return topologies.get_topology_desc(
        "gpu", platform="cuda", target_config=request["gpu"], topology="1x1x1"
    )


def compile_for(device, program, *, as_is: bool) -> dict:
    """Bytes and FLOPs of the compiled program."""
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
    found = compiled.get_compiled_memory_stats()
    return {
        "arguments": found.argument_size_in_bytes,
        "temporary": found.temp_size_in_bytes,
        "output": found.output_size_in_bytes - found.alias_size_in_bytes,
        "code": found.generated_code_size_in_bytes,
        "flops": flops(compiled, program),
    }


def flops(compiled, program) -> float:
    """Of the compiled program; if its compiler does not count them, of the program before."""
    import jax
    from jax.errors import JaxRuntimeError
    from jaxlib import _jax

    try:
        return compiled.cost_analysis()["flops"]
    except JaxRuntimeError:  # GPUs
        module = program.get_hlo_module()
        return _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)["flops"]


if __name__ == "__main__":
    asked = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ["JAX_PLATFORMS"] = "cpu"
    as_is = "--xla_disable_hlo_passes=rematerialization"
    os.environ["XLA_FLAGS"] = as_is if asked["as_is"] else ""
    os.environ.pop("TPU_LIBRARY_PATH", None)  # it may name TensorFlow's
    # No TPU is looked for, neither in this machine nor at the cloud's metadata server.
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # several may compile at once
    os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
    os.environ["TPU_ACCELERATOR_TYPE"] = asked.get("slice_type", "")
    print(json.dumps(main(asked)), flush=True)
    os._exit(0)  # the plugins' threads may not end
