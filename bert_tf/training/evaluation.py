"""Evaluation and prediction: batches -> the devices -> losses, metrics, outputs.

Evaluator     of a model on the devices, whenever it is asked
Evaluations   those that are due during a training
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.data.batches import Batches
from bert_tf.heads.head import Head
from bert_tf.terminal import Progress, announced
from bert_tf.training import distribution
from bert_tf.training.compilation import Programs
from bert_tf.training.distribution import HANGS
from bert_tf.training.log import TrainingLog
from bert_tf.training.plan import RunPlan
from bert_tf.training.step import Steps, first_replica

# With the step, and what writes its checkpoint: the results.
Evaluate = Callable[[int, Callable[[], None]], Mapping[str, float]]


class StopTraining(Exception):  # noqa: N818  (not an error)
    """Raised by an evaluation to end training; its message is the reason.

    Attributes:
      results: of that evaluation.
    """

    def __init__(self, reason: str, results: Mapping[str, float]):
        super().__init__(reason)
        self.results = results


class Evaluator:
    """Evaluates a model, and predicts with it, under a `tf.distribute` strategy.

    Attributes:
      strategy: the devices.
      objective: loss and metrics.
      model: with its weights on the devices.
      steps: what the devices compute.
      programs: what is compiled.
    """

    strategy: tf.distribute.Strategy
    objective: Head
    model: keras.Model
    steps: Steps
    programs: Programs

    def evaluate(self, batches: Batches) -> dict[str, float]:
        """Loss and metrics over all examples of finite `batches`; fine-tuning scores predictions.

        Returns:
          loss, the mean over batches of the whole loss as in the original (a last, short batch
          counts for its examples), and for each term <term>_loss and <term>_accuracy, means over
          all its items.
        """
        totals: dict[str, float] = collections.defaultdict(float)
        for examples, denominators, loss_sums, metrics in self._results("evaluate", batches):
            loss = float(self.objective.loss(loss_sums, denominators))
            sums = denominators | metrics | {f"{t}_loss": value for t, value in loss_sums.items()}
            sums |= {"examples": examples, "loss": float(examples) * loss}
            for name, value in sums.items():
                totals[name] += float(value)
        results = {"loss": totals.pop("loss") / totals.pop("examples")}
        for term in self.objective.terms:
            for name in (n for n in totals if n.startswith(f"{term}_")):
                results[name] = totals[name] / totals[term] if totals[term] else 0.0
        return results

    def predict(self, batches: Batches, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Outputs of the model for the rows of finite `batches`.

        Args:
          batches: in any order.
          names: of the outputs.

        Yields:
          For each batch the outputs float32 [B, ...] by name, of packed ones those of rows, for
          `packing.in_order`.
        """
        local = self.strategy.experimental_local_results
        number = 1 if runtime.has_peers() else None  # they are gathered: each replica has all rows
        for outputs in self._results("predict", batches, tuple(names)):
            yield {name: np.concatenate(local(rows)[:number]) for name, rows in outputs.items()}

    def _results(self, label: str, batches: Batches, *args: Any) -> Iterator[Any]:
        """Yields what `Steps.evaluate` or `Steps.predict`, the label, gives for each batch."""
        compute, last = getattr(self.steps, label), batches.num_batches
        if runtime.has_peers():
            same = {f"batches to {label}": last, f"records to {label}": batches.fingerprint()}
            runtime.check_same(same)
        iterator = distribution.distributed_batches(self.strategy, batches)
        with Progress(label, last, "batches") as progress, HANGS.progress() as doing:
            for number in range(last):
                doing(what := f"{label}, batch {number + 1} of {last}")
                with batches.record_errors():
                    batch = next(iterator)
                inputs = first_replica(self.strategy, batch)
                is_new = self.programs.is_new(label, *(value.shape for value in inputs.values()))
                if is_new:
                    doing(what, compiles=True)
                with (
                    announced(f"compile: {label} (may take a minute)", when=is_new),
                    distribution.on_remote_host(self.strategy),
                ):
                    result = compute(batch, *args)
                yield result
                progress.update(number + 1)


@dataclasses.dataclass
class Evaluations:
    """The evaluations during a training.

    Attributes:
      plan: when they are due.
      log: where their results are shown.
      save: writes the checkpoint of a step.
      evaluate: as of `Trainer.train`.
    """

    plan: RunPlan
    log: TrainingLog
    save: Callable[..., None]
    evaluate: Evaluate | None

    def end_at(self, step: int) -> bool:
        """Evaluates where that is due; returns whether training ends there."""
        if not self.evaluate or not self.plan.is_to_evaluate(step):
            return False
        try:
            save = functools.partial(self.save, step, whole=True)
            self.log.write_evaluation(step, self.evaluate(step, save))
        except StopTraining as reason:
            self.log.write_evaluation(step, reason.results)
            logging.info("Training stops at step %d: %s", step, reason)
            return True
        return False
