"""Settings and intervals of training, named as the flags. Loads no TensorFlow: flags come first."""

import dataclasses

from bert_tf.config import check_fields, declared
from bert_tf.errors import InputError

PRECISIONS = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("adamw", "lamb")
STRATEGIES = ("auto", "one", "mirrored", "multiworker", "tpu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepConfig:
    """How a training step is computed.

    Only `precision` and `clip_per_replica` change the result by more than rounding.
    """

    # Of layers; weights, moments, norms, soft-max, losses: float32.
    precision: str = declared("float32", choices=PRECISIONS)
    gradient_accumulation_steps: int = 1  # K, parts into which each replica splits its rows
    recompute: bool = False  # recompute encoder blocks in the backward pass: less memory
    recompute_attention: bool = False  # recompute attention's probabilities there
    clip_per_replica: bool = False  # as the original on a TPU: see `Steps`
    xla: bool = True  # compile with XLA

    def __post_init__(self):
        check_fields(self)

    def check_batch_size(self, size: int, num_replicas: int, *, name: str = "batch_size") -> None:
        """Raises InputError unless `size` is a multiple of replicas times accumulation steps."""
        unit = num_replicas * self.gradient_accumulation_steps
        if size % unit:
            parts = f"--gradient_accumulation_steps={self.gradient_accumulation_steps}"
            received = f"{name}={size} for {num_replicas} replicas with {parts}"
            raise InputError(received, "a multiple of their product", f"use a multiple of {unit}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervals:
    """Steps between logging, saving and evaluation."""

    iterations_per_loop: int = declared(1000, low=1)  # at most, in one call of the compiled loop
    log_steps: int = declared(100, low=0)  # 0, here and below: only at the end
    save_checkpoints_steps: int = declared(1000, low=0)
    eval_steps: int = declared(0, low=0)

    def __post_init__(self):
        check_fields(self)

    def next_stop(self, step: int, last: int) -> int:
        """The next step after `step` at which something is due."""
        intervals = (self.log_steps, self.save_checkpoints_steps, self.eval_steps)
        due = [(step // every + 1) * every for every in intervals if every]
        return min(last, step + self.iterations_per_loop, *due)

    @staticmethod
    def is_due(step: int, every: int) -> bool:
        """Whether something done every so many steps is due after `step`."""
        return every > 0 and step % every == 0
