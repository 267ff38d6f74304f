"""What XLA makes of a training step: its memory and its products. A process of its own, see `run`.

XLA writes what it compiles to a folder if it is told so before TensorFlow loads:

    ...buffer-assignment.txt       how many bytes it takes for what comes and goes
    ...after_optimizations.txt     the compiled step (HLO)

The memory of the process is the most that it had at any time (VmHWM), the compiler's included; the
difference between two batch sizes is that of the steps.
"""

import collections
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]


def run(workload, *, steps: int = 1) -> dict[str, float]:
    """Compiles the step of a `bert_tf.planning.workload.Workload` and takes it, in another process.

    Args:
      workload: of one replica.
      steps: how many are timed.

    Returns:
      temporary_bytes: that XLA takes for what comes and goes; sums of gradients are there too.
      constant_bytes: of its arguments: weights, moments, batch.
      product_flops: of all products in the compiled step.
      peak_bytes: the most that the process had.
      seconds: of a step, the least.
    """
    if workload.num_replicas > 1:
        raise ValueError(f"received {workload.num_replicas} replicas, expected 1")
    values = {**workload.__dict__, "config": workload.config.to_dict()}
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}"
        ended = subprocess.run(
            [sys.executable, __file__, json.dumps(values), str(steps)],
            capture_output=True,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        )
        if ended.returncode:
            raise RuntimeError(f"the step could not be taken:\n{ended.stderr[-3000:]}")
        told = read_dump(pathlib.Path(folder), parts=workload.gradient_accumulation_steps)
        return {**json.loads(ended.stdout.splitlines()[-1]), **told}


def read_dump(folder: pathlib.Path, *, parts: int) -> dict[str, float]:
    """What XLA tells of the largest thing it compiled, a step in so many parts."""
    path = max(folder.glob("*buffer-assignment.txt"), key=lambda path: path.stat().st_size)
    buffers = path.read_text()
    total = int(re.search(r"Total bytes used: (\d+)", buffers)[1])
    temporary = sum(map(int, re.findall(r"size (\d+), preallocated-temp", buffers)))
    hlo = pathlib.Path(str(path).replace("-buffer-assignment", "")).read_text()
    return {
        "temporary_bytes": temporary,
        "constant_bytes": total - temporary,
        "product_flops": product_flops(hlo, trips=parts),
    }


COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = \w+\[([\d,]*)\]\S* (\S*?)\((.*)$")
CALLED = re.compile(r"(calls|to_apply|body)=%?([\w.\-]+)")


def product_flops(hlo: str, *, trips: int = 1) -> int:
    """2 * elements * contracted size of every `dot`, as often as its computation is called.

    Args:
      hlo: a compiled step.
      trips: how often the body of a loop is; the only loop with products is that over parts.
    """
    own: dict[str, int] = collections.defaultdict(int)
    called = collections.defaultdict(list)
    shapes: dict[str, list[int]] = {}
    current = entry = ""
    for line in hlo.splitlines():
        if found := COMPUTATION.match(line):
            current, shapes = found[2], {}
            entry = current if found[1] else entry
        for kind, name in CALLED.findall(line):
            called[current] += [name] * (trips if kind == "body" else 1)
        if found := INSTRUCTION.match(line):
            name, dimensions, kind, rest = found.groups()
            shapes[name] = [int(d) for d in dimensions.split(",") if d]
            if kind == "dot":
                own[current] += _dot_flops(shapes, name, rest)

    def total(computation: str) -> int:
        return own[computation] + sum(map(total, called[computation]))

    return total(entry)


def _dot_flops(shapes: dict[str, list[int]], name: str, rest: str) -> int:
    left = shapes[re.search(r"%([\w.\-]+)", rest)[1]]
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", rest)[1].split(",")
    return 2 * math.prod(shapes[name]) * math.prod(left[int(d)] for d in contracted)


# ------------------------------------------------------------------- in the other process


def take_steps(values: dict, steps: int) -> dict[str, float]:
    """Takes steps; tells seconds and bytes."""
    run_steps = make_step(values)
    run_steps(1)  # compiles
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        run_steps(1)
        seconds.append(time.perf_counter() - started)
    return {"peak_bytes": peak_bytes(), "seconds": min(seconds)}


def peak_bytes() -> int:
    """VmHWM of this process."""
    text = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text)[1])


def make_step(values: dict):
    """A function that takes so many steps of the shipped training loop."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import tensorflow as tf

    import bert_tf
    from bert_tf.planning import programs
    from bert_tf.planning.workload import Workload

    work = Workload(**{**values, "config": bert_tf.BertConfig(**values["config"])})
    trainer = programs.make_trainer(work, recompute_attention=False)
    iterator = iter(tf.data.Dataset.from_tensors(programs.random_batch(work)).repeat())
    state = {"step": 0}

    def run_steps(number: int) -> None:
        trainer.run_steps(iterator, state["step"], state["step"] + number)
        state["step"] += number

    return run_steps


if __name__ == "__main__":
    print(json.dumps(take_steps(json.loads(sys.argv[1]), int(sys.argv[2]))))
