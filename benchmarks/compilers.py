"""Training steps given to the compilers of TPUs and GPUs, beside the planner; no device is needed.

    python benchmarks/compilers.py --for=v5e,h100 --models=BERT-Base
    python benchmarks/compilers.py --for=v5e,h100 --programs --heads=pretraining

The planned batch is within 10 % of the largest that the device's compiler accepts, if that accepts
planned / 1.1 and refuses planned / 0.9: both are compiled, in bfloat16, with and without
--recompute. Exit code 1 if one is not. With --programs the steps of training, evaluation and
prediction are compiled instead, and their memory and FLOPs printed. A program of BERT-Base takes a
minute or two.

Needs jax 0.10.2, whose private parts are used: `pip install 'jax[tpu]==0.10.2'`, and for GPUs
`'jax[cuda12]==0.10.2'` (6 GB). Each compilation is a process of its own, as JAX and TensorFlow each
bring an XLA, and a compiler that fails may end its process.
"""

import argparse
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

from bert_tf.planning.memory import amount, largest_batch
from bert_tf.planning.workload import DEVICES, PLANNED, PUBLISHED, Accelerator, Workload

LENGTHS = ((128, 20), (512, 77))  # tokens, predictions
STEPS = {"train": 32, "evaluate": 8, "predict": 8}  # batches of --programs
SLICES = {  # of TPUs, the smallest: as libtpu calls it, as the cloud calls it
    "v4": ("v4:2x2x1", "v4-8"),
    "v5e": ("v5e:2x2", "v5litepod-4"),
    "v6e": ("v6e:2x2", "v6e-4"),
}
# What a compiler says of a program that is too large for the memory of a device, with the bytes
# that it would need. Other memories (vmem, shared memory) run out where an operation is at fault.
TOO_LARGE = re.compile(r"(memory space hbm\. Used|on HBM,.*?\()\s*([\d.]+)([KMGT]?)")
# TensorFlow's copies of values; the compilers know StableHLO, where a copy is nothing of its own.
COPY = re.compile(r"mhlo\.copy (%\S+) : (\S+)")
AS_RESHAPE = r"stablehlo.reshape \1 : (\2) -> \2"
# Of what a TPU's compiler recomputes. It does not know the pass by the name that GPUs' has.
NOTHING_IS_SO_LARGE = ("xla_tpu_rematerialization_min_size_in_bytes", 1 << 50)
ROW = "{:8} {:11} {:>6} {:10} {:>8} {:>9} {:>8} {:>9} {:>8}  {}"
PROGRAM_ROW = "{:8} {:11} {:19} {:9} {:>9} {:>9} {:>9}"


def main() -> None:
    """Planned batches or programs, a line each."""
    options = parse_options()
    if options.request:
        print(json.dumps(compile_here(json.loads(pathlib.Path(options.request).read_text()))))
        sys.stdout.flush()
        os._exit(0)  # the plugins' threads may not end
    if options.programs:
        print_programs(options)
        return
    cases = itertools.product(options.models, LENGTHS, (False, True))
    within = [check_batches(options, *case) for case in cases]
    sys.exit(0 if all(within) else 1)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = {"type": lambda text: text.split(",")}
    parser.add_argument("--for", dest="devices", default=["v5e", "h100"], **words)
    parser.add_argument("--models", default=[*PUBLISHED], **words)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--heads", default=[*PLANNED], help="of --programs", **words)
    parser.add_argument("--length", type=int, default=128, help="of --programs")
    parser.add_argument("--pack", action="store_true", help="rows of --programs")
    parser.add_argument("--request", help=argparse.SUPPRESS)
    return parser.parse_args()


def check_batches(
    options: argparse.Namespace, model: str, sizes: tuple[int, int], recompute: bool
) -> bool:
    """Prints a line for each device; returns whether all planned batches are within 10 %."""
    work = Workload(
        config=PUBLISHED[model],
        max_seq_length=sizes[0],
        max_predictions_per_seq=sizes[1],
        precision="bfloat16",
        recompute=recompute,
    )
    all_within = True
    for name in options.devices:
        device = DEVICES[name]
        planned = largest_batch(work, device.memory_bytes, device.kind)
        batches = math.ceil(planned / 1.1), int(planned / 0.9) + 1
        needed = [
            compile_program(name, lowered(work, "train", batch), as_is=True).bytes_on(device)
            for batch in batches
        ]
        within = needed[0] <= device.memory_bytes < needed[1]
        all_within &= within
        words = [name, model, sizes[0], "recompute" if recompute else "", planned]
        for batch, size in zip(batches, needed, strict=True):
            words += [batch, amount(size) if size < math.inf else "refused"]
        print(ROW.format(*words, "within 10 %" if within else "NOT within 10 %"), flush=True)
    return all_within


def print_programs(options: argparse.Namespace) -> None:
    """Batch, memory and FLOPs of each program on each device."""
    predictions = dict(LENGTHS).get(options.length, options.length // 6)
    for model, head in itertools.product(options.models, options.heads):
        work = Workload(
            config=PUBLISHED[model],
            head=head,
            max_seq_length=options.length,
            max_predictions_per_seq=predictions,
            precision="bfloat16",
            pack=options.pack,
        )
        for step, batch in STEPS.items():
            hlo = lowered(work, step, batch)
            for name in options.devices:
                found = compile_program(name, hlo)
                cells = [batch, found.refused or amount(found.peak), f"{found.flops:.3g}"]
                print(PROGRAM_ROW.format(name, model, head, step, *cells), flush=True)


def lowered(work: Workload, step: str, batch_size: int) -> bytes:
    """The HLO of a step of `STEPS` on one device, a serialized HloModuleProto."""
    import tensorflow as tf
    from bert_tf.planning.steps import make_trainer, random_batch

    work = dataclasses.replace(work, train_batch_size=batch_size)
    trainer = make_trainer(work)
    batch = {name: tf.constant(value) for name, value in random_batch(work).items()}
    function, args = {
        "train": (trainer.steps.update, (batch, tf.constant(0))),
        "evaluate": (trainer.steps.sums, (batch,)),
        "predict": (trainer.steps.outputs, (batch, trainer.head.outputs)),
    }[step]
    return function.experimental_get_compiler_ir(*args)("hlo_serialized")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compiler made of a program, or why it did not; bytes are those of one device."""

    arguments: int = 0  # weights, moments, batch: during the whole program
    temporary: int = 0
    output: int = 0  # not counting what takes the place of an argument
    code: int = 0  # of the program itself, in a TPU's memory
    flops: float = 0.0
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


def compile_program(name: str, hlo: bytes, *, as_is: bool = False) -> Compiled:
    """Compiles a program for a device of `DEVICES`, in another process.

    With `as_is` nothing is computed again to save memory, as compilers do when it is scarce.
    """
    xla_flags = {f"--{flag}={value}" for flag, value in runtime.OF_GPUS.items()}  # as commands do
    xla_flags |= {"--xla_disable_hlo_passes=rematerialization"} if as_is else set()
    topology, slice_type = SLICES.get(name, ("", ""))
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join(sorted(xla_flags)),
        # No TPU is looked for, neither in this machine nor at the cloud's metadata server.
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": slice_type,
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    environment.pop("TPU_LIBRARY_PATH", None)  # it may name TensorFlow's
    with tempfile.TemporaryDirectory() as folder:
        program, request = pathlib.Path(folder, "program.pb"), pathlib.Path(folder, "request.json")
        program.write_bytes(hlo)
        request.write_text(
            json.dumps({"hlo": str(program), "as_is": as_is, "topology": topology, "device": name})
        )
        words = [sys.executable, __file__, f"--request={request}"]
        ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment)
    if ended.returncode:
        return Compiled(refused=f"the compiler ended with code {ended.returncode}")
    return answer(json.loads(ended.stdout.splitlines()[-1]))


def answer(found: dict) -> Compiled:
    """What `compile_here` found."""
    if "error" not in found:
        return Compiled(**found)
    if needed := bytes_needed(found["error"], found["arguments"]):
        return Compiled(needed=needed)
    return Compiled(refused=found["error"].strip().partition("\n")[0][:300] or "no reason given")


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


# ---------------------------------------------------------------------------- the other process


def compile_here(request: dict) -> dict:
    """Compiles the program of a request in this process.

    Returns:
      Bytes and FLOPs, the fields of `Compiled`; or `error`, what the compiler says of the program,
      with the bytes of its arguments.
    """
    from jax._src import xla_bridge
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies
    from jaxlib import xla_client

    name, given = request["topology"], {"platform": "tpu"}
    if not name:
        xla_bridge.discover_pjrt_plugins()
        description = pathlib.Path(__file__).parent / f"gpus/{request['device']}.txtpb"
        name, given = "gpu", {"platform": "cuda", "topology": "1x1x1"}
        given["target_config"] = description.read_text(encoding="utf-8")
    device = topologies.get_topology_desc(name, **given).devices[0]
    program = xla_client.XlaComputation(pathlib.Path(request["hlo"]).read_bytes())
    try:
        return compile_for(device, program, as_is=request["as_is"])
    except JaxRuntimeError as error:
        shapes = program.program_shape().parameter_shapes()
        sizes = (math.prod(one.dimensions()) * one.numpy_dtype().itemsize for one in shapes)
        return {"error": str(error), "arguments": sum(sizes)}


def compile_for(device, program, *, as_is: bool) -> dict:
    """Bytes and FLOPs of the program on the device."""
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
    main()
