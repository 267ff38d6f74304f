"""The best checkpoint of a fine-tuning run by evaluations during training; early stopping.

    OUTPUT_DIR/model.ckpt-300            of the run
    OUTPUT_DIR/best/                     the best checkpoint, a whole model
    OUTPUT_DIR/best/evaluations.json     {"100": 0.71, "200": 0.84}, the metric after each step

The run's checkpoint of a step is written before the best checkpoint of that step. So a killed run
resumes at that step or later, and never has a best checkpoint of a step that it has not made.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.companions import refuse_other_model
from bert_tf.checkpoints.loading import PretrainedModel
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.declarations import typed
from bert_tf.errors import InputError, quoted
from bert_tf.files import BEST, read_json, write_text
from bert_tf.training.evaluation import StopTraining
from bert_tf.training.log import with_nan, with_null
from bert_tf.training.trainer import Trainer

REMEDY = "remove its folder to train or evaluate again, or choose another --output_dir"


class BestOf(Protocol):
    """What `BestCheckpoint` uses of a run."""

    metric: str
    model: PretrainedModel
    trainer: Trainer

    def evaluate(self, data: Any) -> Mapping[str, float]:
        """The scores of the model as it is now."""

    def rank(self, score: float) -> float:
        """The score for comparisons: the greatest is best."""

    def metadata(self) -> ModelMetadata:
        """The metadata of the run's model."""

    def write_model_files(self, folder: str) -> None:
        """Makes a folder of checkpoints a whole model."""


@dataclasses.dataclass(eq=False)
class BestCheckpoint:
    """Evaluates during training, and keeps the best checkpoint; called by the training loop.

    Attributes:
      run: the run that is trained.
      dev: the data that it is evaluated on.
      checkpoints: the checkpoints of the run, which may be resumed: evaluations after the last one
        are repeated.
      run_settings: recorded in the checkpoint.
      early_stopping: training stops after so many evaluations without a better one; 0: never.
      folder: the folder of the best checkpoint.
      values: `run.metric` of the evaluations so far, by step; NaN if undefined. While all are NaN,
        the last one counts as the best, and training does not stop.
    """

    run: BestOf
    dev: Any
    checkpoints: tf1.CheckpointFolder
    run_settings: Mapping[str, Any]
    early_stopping: int = 0

    def __post_init__(self):
        """Reads the evaluations of a run that is resumed.

        Raises:
          InputError: its best checkpoint is of another model, dev data or metric.
        """
        latest = self.checkpoints.latest()
        latest_step = tf1.step_of(latest) if latest else 0
        self.folder = tf1.CheckpointFolder(f"{self.checkpoints.path}/{BEST}", keep_max=1)
        self._path = f"{self.folder.path}/evaluations.json"
        self.values = {}
        if tf.io.gfile.exists(self._path):
            for step, value in read_evaluations(self._path).items():
                if step <= latest_step:
                    self.values[step] = value
        best_step = tf1.step_of(self.folder.latest() or "")
        if best_step > latest_step and self.values:  # later checkpoints of the run were removed
            message = (
                "%s is of step %d, after the run's last checkpoint, of step %d: the search for the "
                "best starts again."
            )
            logging.warning(message, self.folder.path, best_step, latest_step)
            self.values = {}
        if self.values:  # otherwise the first evaluation replaces the best checkpoint
            model = self.run.model
            refuse_other_model(
                self.folder, model.config, model.tokenizer.pieces, self.run.metadata()
            )
        # Values of earlier steps are kept, so they need the same dev data and metric. That of the
        # latest step is computed again.
        if any(step < latest_step for step in self.values):
            self._check_settings(tf1.CheckpointReader(latest).run_settings())

    def _check_settings(self, saved: Mapping[str, Any]) -> None:
        """Refuses other dev data, and another metric, than those of the resumed run."""
        if tf1.changed_settings(saved, {"dev_data": self.run_settings["dev_data"]}):
            received = f"{self.folder.path}, the best checkpoint by other dev data"
            raise InputError(received, "the dev data that the run began with", REMEDY)
        metric = saved.get("best_metric")
        if metric != self.run_settings.get("best_metric"):
            received = f"{self.folder.path}, the best checkpoint by another metric"
            expected = f"--best_metric={metric or '(not given)'}, as the run began"
            raise InputError(received, expected, REMEDY)

    def __call__(self, step: int, save: Callable[[], None]) -> Mapping[str, float]:
        """As `evaluate`; raises `StopTraining` if training has to end."""
        results = self.evaluate(step, save)
        if self.has_stopped:
            reason = f"{self.early_stopping} evaluations without a better {self.run.metric}"
            raise StopTraining(reason, results)
        return results

    def evaluate(self, step: int, save: Callable[[], None]) -> Mapping[str, float]:
        """Evaluates the model, and saves the best checkpoint if it is the best so far.

        That of step 0 is never saved.

        Args:
          step: the step of the model.
          save: writes the run's checkpoint of the step, before the best one.
        """
        run = self.run
        results = run.evaluate(self.dev)
        if step == 0:
            return results
        earlier = {at: value for at, value in self.values.items() if at < step}
        value = results[run.metric]
        best = max(map(run.rank, earlier.values()), default=-math.inf)
        is_best = best == -math.inf or run.rank(value) > best
        # Sums may differ in the last bit between machines, but all processes must agree.
        if runtime.any_process(is_best):
            save()
            run.write_model_files(self.folder.path)
            self.folder.save(step, run.trainer.state(step, self.run_settings))
        self.values = earlier | {step: value}
        write_text(self._path, json.dumps(with_null(self.values), indent=2) + "\n")
        return results

    @property
    def has_stopped(self) -> bool:
        """Whether none of the last `early_stopping` evaluations was better than all before."""
        patience = self.early_stopping
        ranks = [*map(self.run.rank, self.values.values())]
        if not patience or len(ranks) <= patience:
            return False
        best = max(ranks[:-patience])
        return runtime.any_process(-math.inf < best >= max(ranks[-patience:]))

    def restore(self, last: int) -> int:
        """Loads the best checkpoint into the run's trainer; returns its step.

        Args:
          last: the last step, whose model the trainer has; it is evaluated first unless it was.
        """
        if last not in self.values:
            self.evaluate(last, lambda: None)  # its checkpoint is already saved
        step = self.run.trainer.restore(self.folder, {})
        logging.info(
            "The best checkpoint by %s is that of step %d: %.4f; the last one, of step %d: %.4f.",
            self.run.metric,
            step,
            self.values.get(step, np.nan),
            last,
            self.values[last],
        )
        return step


def read_evaluations(path: str) -> dict[int, float]:
    """The metric by step, from an evaluations.json."""
    values = typed(dict[str, float | None], read_json(path, remedy=REMEDY), source=path)
    for step in values:
        if not (step.isdecimal() and len(step) < 19):
            expected = 'a number for each step, "100"'
            raise InputError(f"{path} with {quoted(step)}", expected, REMEDY)
    return {int(step): value for step, value in with_nan(values).items()}
