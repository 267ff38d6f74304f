"""Checks that this machine computes what BERT's original code computes. Run it first on a new one.

    bert-tf check

Prints versions and devices. For the CPU and each GPU, in each precision, it compares a small BERT
with the figures of google-research/bert that come with this package: vectors, gradients, losses,
and weights after twelve updates. Then it checks that a training that is killed and resumed ends as
an undisturbed one, and measures speed and memory of a training step; on a CPU that multiplies
bfloat16 also in that, with advice. The last line is the verdict; the exit code is 1 if something is
wrong. It takes a few minutes; other programs that run meanwhile falsify the speeds. A TPU is not
checked. Put everything that it prints into a bug report.
"""

import dataclasses
import importlib.metadata
import math
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import bert_tf
from bert_tf import processor, runtime
from bert_tf.errors import InputError
from bert_tf.options import Options
from bert_tf.planning.memory import amount, step_memory
from bert_tf.planning.workload import PUBLISHED, Workload

PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy", "protobuf", "nvidia-cudnn-cu12")


class Limits(NamedTuple):
    """How far the figures may be from the original's, some ten times what was seen, and why."""

    vectors: float
    gradients: float
    losses: float
    weights: float
    why: str


LIMITS = {  # by precision
    "float32": Limits(1e-5, 1e-5, 1e-5, 1e-5, "sums in another order"),
    "TF32": Limits(2e-2, 1e-2, 5e-3, 1e-3, "products of 11 bits"),
    "bfloat16": Limits(3e-1, 4e-2, 2e-2, 1e-2, "8 bits between layers"),
    "float16": Limits(4e-2, 1e-2, 5e-3, 2e-3, "11 bits between layers"),
}
SIZES = PUBLISHED["BERT-Base"]
BASE = Workload(config=SIZES, train_batch_size=64, precision="bfloat16")  # on a GPU
MINI = Workload(  # on a CPU
    config=dataclasses.replace(
        SIZES, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    ),
    train_batch_size=16,
)
SECONDS = 6  # of timed steps
TURNS = 3  # that two precisions take in these seconds
ADVISABLE = 1.1  # bfloat16 is advisable above this multiple of float32's speed
STEPS = 6000  # of the run that is killed
EVERY = 500  # steps between its checkpoints


class Check(Options):
    """This command has no options."""

    def prepare(self) -> None:
        """As training in bfloat16 does; float32's steps are compiled whole, with or without."""
        runtime.cluster_graphs()


def main(options: Check) -> None:  # noqa: ARG001
    """Figures, a resumed training, speed -> report on standard output."""
    # Otherwise TensorFlow takes all of a GPU's memory, and leaves none for the two runs.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    devices = say_versions()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        resume = Resume(pathlib.Path(folder))
        try:
            resumed = pool.submit(resume.run)  # meanwhile: it mostly compiles
            wrong = [*check_figures(devices)]
            problem = resumed.result()
        finally:
            resume.end()
    say(f"\nA killed and resumed training ends {'otherwise' if problem else 'the same'}.{problem}")
    if problem:
        wrong.append("a training that is killed and resumed")
    say_speed(devices)
    if wrong:
        raise InputError(
            "; ".join(wrong),
            "figures within their limits of the original's, and runs that go on as they began",
            "try another version of TensorFlow or of the driver; report it with these lines",
        )
    say("\nAll is as it should be.")


def say(text: str) -> None:
    """Prints a line of the report."""
    print(text, flush=True)


def say_versions() -> dict[str, str]:
    """Prints versions and devices; returns a description of the CPU and of each GPU."""
    import tensorflow as tf  # here and below: `run` has loaded it

    distributions = importlib.metadata.distributions()
    versions = {package.name: package.version for package in distributions}
    listed = [f"{name} {versions[name]}" for name in PACKAGES if name in versions]
    say(", ".join([f"bert-tf {bert_tf.__version__}", *listed]))
    say(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    build = tf.sysconfig.get_build_info()
    say(", ".join(f"{key} {build[key]}" for key in sorted(build) if key.endswith("_version")))
    of_user = {"XLA_FLAGS"} if runtime.clusters_graphs() else {"XLA_FLAGS", "TF_XLA_FLAGS"}
    for name in of_user & os.environ.keys():
        say(f"{name}={os.environ[name]}")
    devices = {"CPU:0": "the CPU"}
    for number, device in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(device)
        capability = ".".join(map(str, details.get("compute_capability", "?")))
        devices[f"GPU:{number}"] = f"{details.get('device_name')}, compute capability {capability}"
    for name, description in devices.items():
        say(f"{name}: {description}")
    return devices


def check_figures(devices: dict[str, str]) -> Iterator[str]:
    """Prints the largest differences of each device and precision; yields those above a limit."""
    import tensorflow as tf

    from bert_tf.training import parity

    say("\nLargest difference from the original, and its limit:")
    for device in devices:
        for precision, limits in LIMITS.items():
            if precision == "TF32" and not re.search(r"capability ([89]|\d\d)\.", devices[device]):
                continue
            cells = []
            differences = parity.differences(device, precision, parity.GOLDENS)
            for kind, difference_of in differences.items():
                name, largest = max(difference_of.items(), key=_size)
                limit = getattr(limits, kind)
                is_right = largest <= limit  # false for NaN
                sign = "<" if is_right else "NOT <"
                cells.append(f"{kind} {largest:.1e} {sign} {limit:.0e}")
                if not is_right:
                    distance = f"{name} is {largest:.1e} from the original's"
                    yield f"{device}, {precision}: {kind}, {distance}"
            say(f"  {device} {precision:<9}{', '.join(cells)} ({limits.why})")
    tf.config.experimental.enable_tensor_float_32_execution(True)  # TensorFlow's default


def _size(item: tuple[str, float]) -> tuple[bool, float]:
    """The sort key of a named difference: NaN is larger than any number."""
    _, number = item
    return math.isnan(number), number


def say_speed(devices: dict[str, str]) -> None:
    """Prints speed and memory of a training step on each device, and the memory of `plan`."""
    say("\nTraining steps:")
    for device in devices:
        if device != "CPU:0":
            timed = TimedSteps(device, BASE)
            timed.say("BERT-Base", timed.rate(SECONDS))
            continue
        works = [MINI]
        if processor.bfloat16():
            works.append(dataclasses.replace(MINI, precision="bfloat16"))
        precisions = [TimedSteps(device, work) for work in works]
        # In turn: other programs on the machine then slow both.
        rates: list[list[float]] = [[] for _ in precisions]
        for _ in range(TURNS):
            for timed, rates_of_turns in zip(precisions, rates, strict=True):
                rates_of_turns.append(timed.rate(SECONDS / TURNS))
        for timed, rates_of_turns in zip(precisions, rates, strict=True):
            timed.say("BERT-Mini", statistics.median(rates_of_turns))
        if not processor.bfloat16():
            say(f"  {processor.without_bfloat16()}float32 is advisable.")
            continue
        exact_rates, coarse_rates = rates
        ratios = [coarse / exact for exact, coarse in zip(exact_rates, coarse_rates, strict=True)]
        ratio = statistics.median(ratios)
        advice = "is advisable" if ratio > ADVISABLE else "does not pay"
        advice = f"  --precision=bfloat16 {advice} on this CPU, which multiplies it"
        say(f"{advice} ({processor.bfloat16()}): {ratio:.2f} times the speed of float32.")


class TimedSteps:
    """The training steps of a workload on a device."""

    def __init__(self, device: str, work: Workload):
        """Makes a model, and trains it for two steps, which compiles the step."""
        import tensorflow as tf

        from bert_tf.planning import steps

        self._device = device
        self._work = work
        start = time.monotonic()
        with tf.device(device):
            self._trainer = steps.make_trainer(work)
            self._iterator = iter(tf.data.Dataset.from_tensors(steps.random_batch(work)).repeat())
            self._trainer.run_steps(self._iterator, 0, 2)
        self._step = 2
        self._first = time.monotonic() - start

    def rate(self, seconds: float) -> float:
        """Examples a second, over steps that take so many seconds or more."""
        import tensorflow as tf

        first = self._step
        start = time.monotonic()
        with tf.device(self._device):
            while (took := time.monotonic() - start) < seconds:
                target = max(2 * self._step - first, self._step + 1)
                self._step, _ = self._trainer.run_steps(self._iterator, self._step, target)
        return (self._step - first) * self._work.train_batch_size / took

    def say(self, name: str, rate: float) -> None:
        """Prints a rate, under the name of the model, and the memory."""
        import tensorflow as tf

        work = self._work
        memory = f"planned for GPUs: {amount(step_memory(work).total)}"
        if self._device != "CPU:0":
            peak = tf.config.experimental.get_memory_info(self._device)["peak"]
            memory = f"{amount(peak)} of memory, {memory}"
        say(
            f"  {self._device} {name}, {work.max_seq_length} tokens, batch "
            f"{work.train_batch_size}, {work.precision}: {rate:,.0f} examples/s; {memory}; first "
            f"two steps {self._first:.0f} s"
        )


class Resume:
    """A training that is killed and resumed, and the same training undisturbed, by the commands."""

    def __init__(self, folder: pathlib.Path):
        """Takes the folder of both runs."""
        self._folder = folder
        self._started: list[subprocess.Popen] = []
        self._log = open(folder / "log", "w+", encoding="utf-8")  # noqa: SIM115 (closed by `end`)

    def run(self) -> str:
        """A sentence on how the weights of the two runs differ, or ""."""
        import numpy as np

        from bert_tf.checkpoints.tf1 import CheckpointReader
        from bert_tf.training import parity

        flags = parity.write_golden_records(self._folder) | {
            "do_train": True,
            "train_batch_size": 4,
            "num_train_steps": STEPS,
            "save_checkpoints_steps": EVERY,
            "learning_rate": 1e-4,
        }
        whole = self._start("whole", flags)
        killed = self._start("killed", flags)
        saved = self._folder / "killed" / "checkpoint"  # names the last checkpoint; written last
        while killed.poll() is None and not saved.exists():
            time.sleep(0.01)
        killed.kill()
        code = killed.wait() + signal.SIGKILL or int(not saved.exists())  # 0 if the kill ended it
        code = code or whole.wait() or self._start("killed", flags).wait()
        if code:
            self._log.seek(0)
            return f"\nOne ended with code {code}:\n{self._log.read()}"
        weights = CheckpointReader(f"{self._folder}/whole/model.ckpt-{STEPS}")
        resumed = CheckpointReader(f"{self._folder}/killed/model.ckpt-{STEPS}")
        different = []
        for name in weights.shapes:
            if not np.array_equal(weights.read(name), resumed.read(name)):
                different.append(name)
        return f" These differ: {', '.join(different)}." if different else ""

    def _start(self, folder: str, flags: dict[str, object]) -> subprocess.Popen:
        words = [f"--{name}={value}" for name, value in flags.items()]
        command = [sys.executable, "-m", "bert_tf", "pretrain", *words]
        command.append(f"--output_dir={self._folder / folder}")
        # Otherwise GPUs add in any order, by the kernels that were fastest when they started.
        flags_of_xla = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
        environment = os.environ | {"XLA_FLAGS": flags_of_xla.strip()}
        if runtime.clusters_graphs():  # as a training in float32 does not
            del environment["TF_XLA_FLAGS"]
        out = {"stdout": self._log, "stderr": self._log}
        self._started.append(subprocess.Popen(command, env=environment, **out))
        return self._started[-1]

    def end(self) -> None:
        """Ends the commands that still run."""
        for process in self._started:
            process.kill()
        self._log.close()
