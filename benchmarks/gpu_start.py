"""Where the time before a first training step goes, and how fast and large the steps are then.

    python benchmarks/gpu_start.py                              BERT-Base, 128 tokens, on a GPU
    python benchmarks/gpu_start.py --batch=64 --length=512 --predictions=76 --profile
    python benchmarks/gpu_start.py --size=2x128 --batch=8 --precision=float32     on a CPU
    python benchmarks/gpu_start.py --program                    without a step, anywhere

A start as `bert-tf pretrain` makes it, on random ids. Columns are seconds:

    python      until this program's first line
    tensorflow  importing it
    ours        importing bert_tf
    device      the first product on the device
    build       the model, its weights and moments
    trace       from Python to TensorFlow's graph
    first step  lowering, XLA, or loading what XLA has kept; and the step
    second      the second step

Then examples/s (the median of three measurements), and the peak of memory. With TF_XLA_FLAGS=
before the command no program is kept or loaded. --profile prints the milliseconds of each kernel in
a step, those of one name together. --program ends after the lowering, and prints its seconds, the
operations of the step's graph and the size of the program for XLA.
"""

import collections
import os
import pathlib
import re
import resource
import statistics
import tempfile
import time

from measuring import parse_options

BEGUN = time.time()
PROFILED = 3  # steps
MOST = 30  # kernels that are printed


def main() -> None:
    """Starts, times the parts and the steps, and prints all."""
    options = parse_options(
        __doc__,
        size="12x768",  # layers x hidden size
        batch=256,
        length=128,  # tokens
        predictions=20,  # masked tokens of a sequence
        precision="bfloat16",
        recompute=False,
        gradient_accumulation_steps=1,
        seconds=2.0,  # of each measurement
        program=False,  # print the program's size
        profile=False,  # print the kernels of a step
    )
    clock = Clock()
    from bert_tf import runtime

    runtime.prepare_command()
    tf = runtime.load_tensorflow()
    clock.end("tensorflow")
    from bert_tf.planning import steps

    work = workload(options)
    clock.end("ours")
    gpus = tf.config.list_physical_devices("GPU")
    float(tf.reduce_sum(tf.matmul(tf.zeros([8, 8]), tf.zeros([8, 8]))))
    clock.end("device")
    trainer = steps.make_trainer(work, recompute_attention=bool(gpus))
    batch = steps.random_batch(work)
    clock.end("build")
    if options.program:
        lower(trainer.steps.update, batch, clock)
    else:
        measure(trainer, batch, clock, options)


def measure(trainer, batch: dict, clock: "Clock", options) -> None:
    """The first steps, then rates and memory."""
    import tensorflow as tf

    start = peak_bytes()
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))
    totals = tf.zeros(len(trainer.steps.loss_names) + 1).numpy()
    trainer.steps.train.get_concrete_function(totals, iterator, tf.constant(0), tf.constant(1))
    clock.end("trace")
    trainer.run_steps(iterator, 0, 1)
    clock.end("first step")
    trainer.run_steps(iterator, 1, 2)
    clock.end("second")
    print_start(clock.seconds)
    rates, done = time_steps(trainer, iterator, options)
    spread = f"{min(rates):,.1f} to {max(rates):,.1f}"
    print(f"{statistics.median(rates):,.1f} examples/s ({spread})")
    print(f"process: {peak_bytes() / 1e9:.2f} GB at most, {start / 1e9:.2f} before the first step")
    if tf.config.list_physical_devices("GPU"):
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        print(f"GPU: {peak / 1e9:.2f} GB at most")
    if options.profile:
        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            trainer.run_steps(iterator, done, done + PROFILED)
            tf.profiler.experimental.stop()
            print_kernels(pathlib.Path(folder))


def peak_bytes() -> int:
    """Of this process's memory, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Clock:
    """Seconds by part, from the start of the process on."""

    def __init__(self):
        self.seconds = {"python": BEGUN - started()}
        self._last = BEGUN

    def end(self, part: str) -> None:
        """A part is done."""
        now = time.time()
        self.seconds[part], self._last = now - self._last, now


def started() -> float:
    """When this process was started: field 22 of Linux's /proc/self/stat, in ticks after boot."""
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.time() - uptime + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def workload(options):
    """A BERT of that size and its batches."""
    from bert_tf.config import BertConfig
    from bert_tf.planning.workload import Workload

    num_layers, hidden_size = map(int, options.size.split("x"))
    config = BertConfig(
        vocab_size=30522,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )
    return Workload(
        config=config,
        max_seq_length=options.length,
        train_batch_size=options.batch,
        max_predictions_per_seq=options.predictions,
        precision=options.precision,
        recompute=options.recompute,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
    )


def time_steps(trainer, iterator, options) -> tuple[list[float], int]:
    """Examples/s of three measurements, and the number of steps made so far."""
    start = time.monotonic()
    trainer.run_steps(iterator, 2, 5)
    number = max(3, int(options.seconds / (time.monotonic() - start) * 3))
    rates, done = [], 5
    for _ in range(3):
        start = time.monotonic()
        trainer.run_steps(iterator, done, done + number)
        rates.append(options.batch * number / (time.monotonic() - start))
        done += number
    return rates, done


def print_start(seconds: dict[str, float]) -> None:
    """The parts of the start, and their sum."""
    parts = seconds | {"in all": sum(seconds.values())}
    print("".join(f"{name:>12}" for name in parts))
    print("".join(f"{value:12.1f}" for value in parts.values()), flush=True)


def lower(update, batch: dict, clock: Clock) -> None:
    """Traces and lowers a step; prints seconds and sizes, as TensorFlow and as XLA have it."""
    import tensorflow as tf

    args = {name: tf.constant(value) for name, value in batch.items()}, tf.constant(0)
    operations = update.get_concrete_function(*args).graph.get_operations()
    clock.end("trace")
    program = update.experimental_get_compiler_ir(*args)("hlo_serialized")
    clock.end("lowering")
    print_start(clock.seconds)
    print(f"{len(operations):,} operations; {len(program) / 1e6:.1f} MB for XLA")


def print_kernels(folder: pathlib.Path) -> None:
    """Milliseconds of a step by kernel, from the profiler's files; numbers at a name's end go."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    total, count = collections.Counter(), collections.Counter()
    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in (p for p in space.planes if "/device:GPU" in p.name):
            for line in (x for x in plane.lines if "Stream" in x.name):
                for event in line.events:
                    name = plane.event_metadata[event.metadata_id].name
                    kind = re.sub(r"([._]\d+)+$", "", name)
                    total[kind] += event.duration_ps / 1e9 / PROFILED
                    count[kind] += 1 / PROFILED
    if not total:
        print("no kernels: the profiler has seen no GPU")
        return
    print(f"{total.total():9.2f} ms a step in all")
    for kind, milliseconds in total.most_common(MOST):
        print(f"{milliseconds:9.3f} ms {count[kind]:7.1f} x {kind[:80]}")


if __name__ == "__main__":
    main()
