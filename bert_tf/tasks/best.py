"""The best checkpoint of a run, by evaluations during training; early stopping.

OUTPUT_DIR/best/                    the best checkpoint, a whole model
OUTPUT_DIR/best/evaluations.json    {"100": 0.71, "200": 0.84}, the metric after each step
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import changed_settings
from bert_tf.config import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.training.trainer import StopTraining

if TYPE_CHECKING:
    from bert_tf.tasks.run import Run, SplitData

REMEDY = "remove its folder to train or evaluate again, or choose another --output_dir"


class BestCheckpoint:
    """Evaluates during training, and keeps the best checkpoint; called by the training loop.

    Attributes:
      folder: of the best checkpoint.
      values: the metric of the evaluations so far, by step.
    """

    def __init__(
        self,
        run: "Run",
        dev: "SplitData",
        run_dir: str,
        run_settings: Mapping[str, Any],
        early_stopping: int,
    ):
        """Reads the earlier evaluations of a resumed run.

        Args:
          run: what is trained; its `metric` is to be greatest.
          dev: what it is evaluated on.
          run_dir: the folder of its checkpoints.
          run_settings: recorded in the checkpoint; `dev_data` stands for `dev`.
          early_stopping: evaluations without a better one after which training stops; 0: never.
        """
        self._run, self._dev, self._run_settings = run, dev, run_settings
        self._patience = early_stopping
        self.folder = tf1.CheckpointFolder(f"{run_dir}/{BEST}", keep_max=1)
        self._path = f"{self.folder.path}/evaluations.json"
        self.values = read_evaluations(self._path) if tf.io.gfile.exists(self._path) else {}

    def resume_after(self, prefix: str | None) -> None:
        """Drops evaluations beyond the last checkpoint of a killed run: they will come again.

        Args:
          prefix: of that checkpoint, None if there is none yet.

        Raises:
          InputError: the earlier evaluations were on other data.
        """
        last = tf1.step_of(prefix or "")
        self.values = {step: value for step, value in self.values.items() if step <= last}
        if any(step < last for step in self.values):  # at the last one all evaluate again
            dev_data = {"dev_data": self._run_settings["dev_data"]}
            refuse_changed_settings(run_settings_of(prefix), dev_data, self.folder.path)

    def __call__(self, step: int) -> Mapping[str, float]:
        """As `evaluate`; raises `StopTraining` if training is to end."""
        results = self.evaluate(step)
        if self.has_stopped:
            raise StopTraining(f"{self._patience} evaluations without a better {self._run.metric}")
        return results

    def evaluate(self, step: int) -> Mapping[str, float]:
        """Evaluates; the checkpoint is kept if it is the best so far. Before step 1 none is."""
        run, results = self._run, self._run.evaluate(self._dev)
        if not step:
            return results
        earlier = {at: value for at, value in self.values.items() if at < step}
        value = results[run.metric]
        # All processes agree: sums may differ in the last bit from one machine to another.
        if cluster.any_process(not earlier or value > max(earlier.values())):
            run.write_model_files(self.folder.path)
            self.folder.save(step, run.trainer.state(step, self._run_settings))
        self.values = earlier | {step: value}
        write_text(self._path, json.dumps(self.values, indent=2) + "\n")
        return results

    @property
    def has_stopped(self) -> bool:
        """Whether none of the last `early_stopping` evaluations was better than all before."""
        patience, values = self._patience, list(self.values.values())
        if not patience or len(values) <= patience:
            return False
        return cluster.any_process(max(values[-patience:]) <= max(values[:-patience]))

    def restore(self, last: int) -> int:
        """Loads the best checkpoint into the run's trainer; returns its step.

        The model of the last step, which the trainer has, is evaluated first unless it was.
        """
        if last not in self.values:
            self.evaluate(last)
        step = self._run.trainer.restore(self.folder, {})
        logging.info("The best checkpoint is that of step %d.", step)
        return step


def read_evaluations(path: str) -> dict[int, float]:
    """The metric by step, from an evaluations.json."""
    values = typed(dict[str, float], read_json(path, remedy=REMEDY), source=path)
    for step in values:
        if not re.fullmatch("[0-9]{1,18}", step):
            received = f"{path} with {step!r:.80}"
            raise InputError(received, 'a number for each step, {"100": 0.9}', REMEDY)
    return {int(step): value for step, value in values.items()}


def run_settings_of(prefix: str) -> dict[str, Any]:
    """The settings of the run that wrote a checkpoint."""
    return tf1.CheckpointReader(prefix).run_settings()


def refuse_changed_settings(old: Mapping, new: Mapping, folder: str) -> None:
    """Raises `InputError` if a trial was begun with other settings."""
    if other := changed_settings(old, new):
        raise InputError(
            f"{folder}, a trial with another {', '.join(other)}",
            "the trials of this command, or an empty folder",
            "choose another --output_dir, or remove the folder to train again",
        )


def refuse_best_of_others(folder: str, *, is_kept: bool) -> None:
    """Refuses a best/ of another run, which this run might later load as its own."""
    path = f"{folder}/{BEST}"
    if not is_kept and tf.io.gfile.exists(f"{path}/checkpoint"):
        raise InputError(
            f"{path}, the best checkpoint of a single run with --eval_steps",
            "that run, going on with --eval_steps, or a folder without it",
            f"choose another --output_dir, or remove {path}; for that run add --eval_steps",
        )
