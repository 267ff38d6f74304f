"""The best checkpoint of a fine-tuning, by evaluations during training; early stopping.

    OUTPUT_DIR/model.ckpt-300            of the run
    OUTPUT_DIR/best/                     the best checkpoint, a whole model
    OUTPUT_DIR/best/evaluations.json     {"100": 0.71, "200": 0.84}, the metric after each step

Before a checkpoint becomes the best one, the run's own of that step is written: so a run that is
killed goes on at that step or later, and has made the step of its best checkpoint.
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
    """A run whose best checkpoint is kept."""

    metric: str
    model: PretrainedModel
    trainer: Trainer

    def evaluate(self, data: Any) -> Mapping[str, float]:
        """The scores of the model as it is now."""

    def rank(self, score: float) -> float:
        """The metric for comparisons: the greatest is best."""

    def metadata(self) -> ModelMetadata:
        """The metadata of the run's model."""

    def write_model_files(self, folder: str) -> None:
        """Makes a folder of checkpoints a whole model."""


@dataclasses.dataclass(eq=False)
class BestCheckpoint:
    """Evaluates during training, and keeps the best checkpoint; called by the training loop.

    Attributes:
      run: what is trained; its `metric` is to be greatest.
      dev: what it is evaluated on.
      checkpoints: of the run, which may be resumed: what came after the last one will come again.
      run_settings: recorded in the checkpoint.
      early_stopping: evaluations without a better one after which training stops; 0: never.
      folder: of the best checkpoint.
      values: the metric of the evaluations so far, by step; NaN where it is undefined. As long as
        all are, the last one counts as the best, and nothing stops.
    """

    run: BestOf
    dev: Any
    checkpoints: tf1.CheckpointFolder
    run_settings: Mapping[str, Any]
    early_stopping: int = 0

    def __post_init__(self):
        """Raises `InputError` if the best checkpoint so far is of another model or dev data."""
        latest = self.checkpoints.latest()
        last = tf1.step_of(latest or "")
        self.folder = tf1.CheckpointFolder(f"{self.checkpoints.path}/{BEST}", keep_max=1)
        self._path = f"{self.folder.path}/evaluations.json"
        found = read_evaluations(self._path) if tf.io.gfile.exists(self._path) else {}
        self.values = {step: value for step, value in found.items() if step <= last}
        kept = tf1.step_of(self.folder.latest() or "")
        if kept > last and self.values:  # later checkpoints of the run were removed
            says = "%s is of step %d, which this run has not made: the best is looked for anew."
            logging.warning(says, self.folder.path, kept)
            self.values = {}
        if self.values:  # else the first evaluation replaces whatever is there
            model = self.run.model
            refuse_other_model(
                self.folder, model.config, model.tokenizer.pieces, self.run.metadata()
            )
        # A run that goes on at the step of its last checkpoint evaluates it again.
        if any(step < last for step in self.values):
            saved = tf1.CheckpointReader(latest).run_settings()
            if tf1.changed_settings(saved, {"dev_data": self.run_settings["dev_data"]}):
                received = f"{self.folder.path}, the best checkpoint by other dev data"
                raise InputError(received, "the dev data that the run began with", REMEDY)
            metrics = [one.get("best_metric") for one in (saved, self.run_settings)]
            if metrics[0] != metrics[1]:
                received = f"{self.folder.path}, the best checkpoint by another metric"
                expected = f"--best_metric={metrics[0] or '(not given)'}, as the run began"
                raise InputError(received, expected, REMEDY)

    def __call__(self, step: int, save: Callable[[], None]) -> Mapping[str, float]:
        """As `evaluate`; raises `StopTraining` if training is to end."""
        results = self.evaluate(step, save)
        if self.has_stopped:
            reason = f"{self.early_stopping} evaluations without a better {self.run.metric}"
            raise StopTraining(reason, results)
        return results

    def evaluate(self, step: int, save: Callable[[], None]) -> Mapping[str, float]:
        """Evaluates; the checkpoint is kept if it is the best so far, that of step 0 never.

        Args:
          step: of the model.
          save: writes the run's own checkpoint of the step, before the best one.
        """
        run = self.run
        results = run.evaluate(self.dev)
        if not step:
            return results
        earlier = {at: value for at, value in self.values.items() if at < step}
        value = results[run.metric]
        ranked = run.rank
        best = max(map(ranked, earlier.values()), default=-math.inf)
        # All processes agree: sums may differ in the last bit from one machine to another.
        if runtime.any_process(best == -math.inf or ranked(value) > best):
            save()
            run.write_model_files(self.folder.path)
            self.folder.save(step, run.trainer.state(step, self.run_settings))
        self.values = earlier | {step: value}
        write_text(self._path, json.dumps(with_null(self.values), indent=2) + "\n")
        return results

    @property
    def has_stopped(self) -> bool:
        """Whether none of the last `early_stopping` evaluations was better than all before."""
        patience, values = self.early_stopping, [*map(self.run.rank, self.values.values())]
        if not patience or len(values) <= patience:
            return False
        best = max(values[:-patience])
        return runtime.any_process(-math.inf < best >= max(values[-patience:]))

    def restore(self, last: int) -> int:
        """Loads the best checkpoint into the run's trainer; returns its step.

        The model of the last step, which the trainer has, is evaluated first unless it was.
        """
        if last not in self.values:
            self.evaluate(last, lambda: None)  # its checkpoint is there
        step = self.run.trainer.restore(self.folder, {})
        says = "The best checkpoint by %s is that of step %d: %.4f; the last one, of step %d: %.4f."
        scores = (step, self.values.get(step, np.nan), last, self.values[last])
        logging.info(says, self.run.metric, *scores)
        return step


def read_evaluations(path: str) -> dict[int, float]:
    """The metric by step, from an evaluations.json."""
    values = typed(dict[str, float | None], read_json(path, remedy=REMEDY), source=path)
    if wrong := [step for step in values if not (step.isdecimal() and len(step) < 19)]:
        raise InputError(f"{path} with {quoted(wrong[0])}", 'a number for each step, "100"', REMEDY)
    return {int(step): value for step, value in with_nan(values).items()}
