"""Evaluation and prediction: batches -> losses and metrics, or outputs of the model.

Evaluator     evaluates a model and predicts with it
Evaluations   runs the evaluations during a training
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

# (step, a function that writes its checkpoint) -> results.
Evaluate = Callable[[int, Callable[[], None]], Mapping[str, float]]


class StopTraining(Exception):  # noqa: N818  (not an error)
    """Raised by an evaluation to end training; its message is the reason.

    Attributes:
      results: the results of that evaluation.
    """

    def __init__(self, reason: str, results: Mapping[str, float]):
        super().__init__(reason)
        self.results = results


class Evaluator:
    """Evaluates a model, and predicts with it, under a `tf.distribute` strategy.

    Attributes:
      strategy: the devices.
      head: loss, metrics and predictions.
      model: with its weights on the devices.
      steps: the computation on the devices.
      programs: the programs that are compiled so far.
    """

    strategy: tf.distribute.Strategy
    head: Head
    model: keras.Model
    steps: Steps
    programs: Programs

    def evaluate(self, batches: Batches) -> dict[str, float]:
        """Loss and metrics over all examples of finite `batches`, for pre-training.

        Returns:
          loss, the mean over batches of the whole loss as in the original, weighted by their number
          of examples; and for each term <term>_loss and <term>_accuracy, means over all its items.
        """
        total_loss = 0.0
        num_examples = 0.0
        denominators: dict[str, float] = collections.defaultdict(float)  # by term
        sums: dict[str, float] = collections.defaultdict(float)  # by <term>_loss, <term>_accuracy
        for batch_sums in self._results("evaluate", batches):
            examples, batch_denominators, loss_sums, metric_sums = batch_sums  # of `Steps._sums`
            loss = float(self.head.loss(loss_sums, batch_denominators))
            total_loss += float(examples) * loss
            num_examples += float(examples)
            for term, value in batch_denominators.items():
                denominators[term] += float(value)
            for name, value in metric_sums.items():
                sums[name] += float(value)
            for term, value in loss_sums.items():
                sums[f"{term}_loss"] += float(value)
        results = {"loss": total_loss / num_examples}
        for term in self.head.terms:
            for name in sums:
                if name.startswith(f"{term}_"):
                    results[name] = sums[name] / denominators[term] if denominators[term] else 0.0
        return results

    def predict(self, batches: Batches, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Outputs of the model for the rows of finite `batches`.

        Args:
          batches: batches, in any order.
          names: the names of the outputs.

        Yields:
          For each batch the outputs by name, float32 [B, ...]; of packed batches also what
          `packing.in_order` needs.
        """
        local_results = self.strategy.experimental_local_results
        for outputs in self._results("predict", batches, tuple(names)):
            arrays = {}
            for name, value in outputs.items():
                parts = local_results(value)
                # With several processes the parts are gathered: each replica has all rows.
                arrays[name] = np.concatenate(parts[:1] if runtime.has_peers() else parts)
            yield arrays

    def _results(self, label: str, batches: Batches, *args: Any) -> Iterator[Any]:
        """The results of `Steps.evaluate` or `Steps.predict`, as the label says, for each batch."""
        compute = getattr(self.steps, label)
        num_batches = batches.num_batches
        if runtime.has_peers():
            records = batches.fingerprint()
            runtime.check_same({f"batches to {label}": num_batches, f"records to {label}": records})
        iterator = distribution.distributed_batches(self.strategy, batches)
        with Progress(label, num_batches, "batches") as progress, HANGS.progress() as doing:
            for number in range(num_batches):
                task = f"{label}, batch {number + 1} of {num_batches}"
                doing(task)
                with batches.record_errors():
                    batch = next(iterator)
                inputs = first_replica(self.strategy, batch)
                shapes = [value.shape for value in inputs.values()]
                is_new = self.programs.is_new(label, *shapes)
                if is_new:
                    doing(task, compiles=True)
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
      plan: the steps at which they are due.
      log: gets their results.
      save: writes the checkpoint of a step.
      evaluate: as for `Trainer.train`.
    """

    plan: RunPlan
    log: TrainingLog
    save: Callable[..., None]
    evaluate: Evaluate | None

    def end_at(self, step: int) -> bool:
        """Evaluates the model of a step if that is due; returns whether training ends there."""
        if not self.evaluate or not self.plan.is_to_evaluate(step):
            return False
        save = functools.partial(self.save, step, whole=True)
        try:
            self.log.write_evaluation(step, self.evaluate(step, save))
        except StopTraining as reason:
            self.log.write_evaluation(step, reason.results)
            logging.info("Training stops at step %d: %s", step, reason)
            return True
        return False
