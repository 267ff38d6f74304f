"""What of a training is compiled, on which devices, and when.

described   what computes the products of bfloat16 on a CPU, in words
parts_of    which functions of a step XLA compiles, by devices and options
program     a function as XLA's program, or as it is
Programs    what this process has compiled so far, and so how many steps a call makes
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

SECONDS_OF_A_CALL = 1.0  # of steps that compile nothing; between calls the host looks for signals


class Parts(NamedTuple):
    """Which functions XLA compiles."""

    update: bool  # the whole update of a replica
    gradients: bool  # loss and gradients of a replica
    answers: bool  # evaluation and prediction


def parts_of(config: StepConfig, strategy: tf.distribute.Strategy) -> Parts:
    """What XLA compiles on the devices of a strategy.

    Nothing in bfloat16 on CPUs that multiply it: XLA would turn the products into float32. There a
    step is a graph with oneDNN's products, and with what stands between them compiled by XLA if
    the process is told so (`runtime.cluster_graphs`).

    The whole update of a single replica. With several replicas only loss and gradients: XLA on CPU
    and GPU cannot reduce over replicas. Nor does it compile a `merge_call` of MirroredStrategy on
    GPUs, whose replicas are threads.
    """
    if config.precision == "bfloat16" and on_cpus(strategy) and processor.bfloat16():
        return Parts(update=False, gradients=False, answers=False)
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    is_single = strategy.num_replicas_in_sync == 1 and not mirrored
    return Parts(config.xla and is_single, config.xla and not is_single, config.xla)


def on_cpus(strategy: tf.distribute.Strategy) -> bool:
    """Whether the devices of a strategy are CPUs."""
    try:
        names = strategy.extended.worker_devices
    except RuntimeError:  # the default strategy has no such list
        names = [tf.constant(0.0).device]
    return {tf.DeviceSpec.from_string(name).device_type for name in names} == {"CPU"}


def described(config: StepConfig, strategy: tf.distribute.Strategy) -> str:
    """How CPUs compute a step in bfloat16, for the log; "" of other devices and precisions."""
    if config.precision != "bfloat16" or not on_cpus(strategy):
        return ""
    if not (instructions := processor.bfloat16()):
        return f"{processor.without_bfloat16()}--precision=bfloat16 is not faster than float32."
    between = "XLA compiles what stands between them."
    if not config.xla:
        between = "XLA compiles nothing, as --noxla says."
    elif "TF_XLA_FLAGS" not in os.environ:
        between = (
            "XLA compiles nothing: call bert_tf.runtime.cluster_graphs() before TensorFlow loads."
        )
    elif not runtime.clusters_graphs():
        between = (
            "What stands between them is left to the TF_XLA_FLAGS that are set; unset is faster."
        )
    return f"oneDNN multiplies in bfloat16 on this CPU ({instructions}). {between}"


def program(function: Callable, *, is_compiled: bool) -> Callable:
    """The function as a program of XLA, or as it is."""
    if not is_compiled:
        return function
    return tf.function(function, jit_compile=True, autograph=False)


class Programs:
    """What this process has compiled, and how long steps take.

    A step that compiles something is a call of its own; of others one call makes as many as take
    about a second.

    Attributes:
      timed: how many steps so far compiled nothing, and their seconds.
    """

    def __init__(self, *, by_shape: bool):
        """`by_shape`: whether each shape of batches is compiled anew, as by XLA."""
        self.timed = np.zeros(2)
        self._by_shape = by_shape
        self._known: set[Any] = set()
        self._seconds: float | None = None  # of a step; None: not compiled; 0: not known yet
        self._shape_of: Callable[[int], Any] = lambda _: None

    def begin(self, shape_of: Callable[[int], Any]) -> None:
        """For batches whose shapes a function gives, by their numbers."""
        self._shape_of = shape_of

    def is_new(self, *key: Any) -> bool:
        """Whether a program has not been asked for before; it is known from now on."""
        is_new = key not in self._known
        self._known.add(key)
        return is_new

    def steps_of_call(self, step: int, stop: int, *, whole: bool) -> int:
        """How many of the steps from `step` to `stop` - 1 to make; `whole`: all, once compiled."""
        if whole:  # of several processes all make the same calls
            return 1 if self._seconds is None else stop - step
        if not self._seconds or self._compiles(step):
            return 1
        end = min(stop, step + max(1, int(SECONDS_OF_A_CALL / self._seconds)))
        return next((n - step for n in range(step + 1, end) if self._compiles(n)), end - step)

    @contextlib.contextmanager
    def call(self, step: int, number: int) -> Iterator[None]:
        """Measures and watches what makes `number` steps from `step` on."""
        compiles = self._compiles(step)
        seconds = self._seconds or 0.0
        what = f"train, steps {step + 1} to {step + number}"
        start = time.monotonic()
        with (
            announced("compile: train (may take a minute)", when=compiles),
            HANGS.watched(what, usual=number * seconds, compiles=compiles),
        ):
            yield
        took = time.monotonic() - start
        self._known.add(self._key(step))
        self._seconds = seconds if compiles else took / number
        if not compiles:
            self.timed = self.timed + np.array([number, took])

    def _compiles(self, step: int) -> bool:
        return self._key(step) not in self._known

    def _key(self, step: int) -> tuple[str, Any]:
        return "train", self._shape_of(step) if self._by_shape else None
