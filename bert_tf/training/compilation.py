"""Compilation of training steps.

compiled_parts   which functions of a step XLA compiles, by devices and options
program          a function compiled by XLA, or as it is
described        how a CPU multiplies bfloat16, for the log
Programs         what this process has compiled so far; from this, how many steps a call makes
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import processor, runtime
from bert_tf.terminal import announced
from bert_tf.training.distribution import HANGS
from bert_tf.training.options import StepConfig

SECONDS_OF_A_CALL = 1.0  # of steps that compile nothing; the host checks for signals between calls


class CompiledParts(NamedTuple):
    """Which functions of a step XLA compiles."""

    update: bool  # the whole update of a replica
    gradients: bool  # loss and gradients of a replica
    answers: bool  # evaluation and prediction


def compiled_parts(config: StepConfig, strategy: tf.distribute.Strategy) -> CompiledParts:
    """Which functions XLA compiles on the devices of a strategy.

    - None in bfloat16 on CPUs that multiply it, as XLA would compute these products in float32. A
      step is then a graph with oneDNN's products. XLA compiles the operations between them if
      `runtime.cluster_graphs` was called.
    - The whole update of a single replica.
    - Only loss and gradients of several replicas: XLA on CPUs and GPUs cannot reduce over replicas,
      nor compile the `merge_call` of MirroredStrategy on GPUs, whose replicas are threads.
    """
    if config.precision == "bfloat16" and on_cpus(strategy) and processor.bfloat16():
        return CompiledParts(update=False, gradients=False, answers=False)
    is_mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    is_single = strategy.num_replicas_in_sync == 1 and not is_mirrored
    return CompiledParts(
        update=config.xla and is_single,
        gradients=config.xla and not is_single,
        answers=config.xla,
    )


def on_cpus(strategy: tf.distribute.Strategy) -> bool:
    """Whether the devices of a strategy are CPUs."""
    try:
        names = strategy.extended.worker_devices
    except RuntimeError:  # the default strategy has no such list
        names = [tf.constant(0.0).device]
    return {tf.DeviceSpec.from_string(name).device_type for name in names} == {"CPU"}


def described(config: StepConfig, strategy: tf.distribute.Strategy) -> str:
    """How CPUs compute a step in bfloat16, for the log; "" for other devices and precisions."""
    if config.precision != "bfloat16" or not on_cpus(strategy):
        return ""
    instructions = processor.bfloat16()
    if not instructions:
        return f"{processor.without_bfloat16()}--precision=bfloat16 is not faster than float32."
    if not config.xla:
        rest = "XLA compiles nothing, as --noxla says."
    elif "TF_XLA_FLAGS" not in os.environ:
        rest = (
            "XLA compiles nothing: call bert_tf.runtime.cluster_graphs() before TensorFlow loads."
        )
    elif not runtime.clusters_graphs():
        rest = "What stands between them is left to the TF_XLA_FLAGS that are set; unset is faster."
    else:
        rest = "XLA compiles what stands between them."
    return f"oneDNN multiplies in bfloat16 on this CPU ({instructions}). {rest}"


def program(function: Callable, *, is_compiled: bool) -> Callable:
    """The function, compiled by XLA or as it is."""
    if not is_compiled:
        return function
    return tf.function(function, jit_compile=True, autograph=False)


class Programs:
    """The programs that this process has compiled, and the seconds that a step takes.

    A step that compiles is a call by itself; otherwise a call makes as many steps as take about a
    second.

    Attributes:
      timed: the number of steps so far that compiled nothing, and their seconds.
    """

    def __init__(self, *, by_shape: bool):
        """Begins without programs.

        Args:
          by_shape: whether each shape of batches needs a program, as with XLA.
        """
        self.timed = np.zeros(2)
        self._by_shape = by_shape
        self._known: set[Any] = set()
        self._seconds: float | None = None  # of a step; None: not compiled; 0: not measured yet
        self._shape_of: Callable[[int], Any] = lambda _: None

    def begin(self, shape_of: Callable[[int], Any]) -> None:
        """Begins a training; `shape_of` gives the shape of a step's batch."""
        self._shape_of = shape_of

    def is_new(self, *key: Any) -> bool:
        """Whether this is the first call with a key, which stands for a program."""
        is_new = key not in self._known
        self._known.add(key)
        return is_new

    def steps_of_call(self, step: int, stop: int, *, whole: bool) -> int:
        """The number of steps of the next call.

        Args:
          step: the first one.
          stop: the step before which the call has to end.
          whole: whether to make all steps at once, after a first one that compiles: several
            processes must make the same calls.
        """
        if whole:
            return 1 if self._seconds is None else stop - step
        if not self._seconds or self._compiles(step):
            return 1
        end = min(stop, step + max(1, int(SECONDS_OF_A_CALL / self._seconds)))
        for later in range(step + 1, end):
            if self._compiles(later):
                return later - step
        return end - step

    @contextlib.contextmanager
    def call(self, step: int, num_steps: int) -> Iterator[None]:
        """Measures a call of steps from `step` on, and reports if it hangs."""
        compiles = self._compiles(step)
        usual_seconds = self._seconds or 0.0
        label = f"train, steps {step + 1} to {step + num_steps}"
        start = time.monotonic()
        with (
            announced("compile: train (may take a minute)", when=compiles),
            HANGS.watched(label, usual=num_steps * usual_seconds, compiles=compiles),
        ):
            yield
        seconds = time.monotonic() - start
        self._known.add(self._key(step))
        self._seconds = usual_seconds if compiles else seconds / num_steps
        if not compiles:
            self.timed = self.timed + np.array([num_steps, seconds])

    def _compiles(self, step: int) -> bool:
        """Whether a step needs a program that is not compiled yet."""
        return self._key(step) not in self._known

    def _key(self, step: int) -> tuple[str, Any]:
        """The key of a step's program."""
        return "train", self._shape_of(step) if self._by_shape else None
