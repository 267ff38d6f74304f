"""The paper's protocol: several learning rates and seeds, the best by the dev data (section 4.1).

Each trial is a run of its own, in a folder of its own if there are several, and is resumed if it
was killed. Its best checkpoint is that of the evaluation with the best first metric, or its last
one if it has no evaluations during training.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.config import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.tasks.outputs import write_sweep
from bert_tf.tasks.run import Run, SplitData
from bert_tf.training.best import (
    REMEDY,
    BestCheckpoint,
    refuse_best_of_others,
    refuse_changed_settings,
    run_settings_of,
    train_keeping_best,
)
from bert_tf.training.fine_tuning import make_optimizer, refuse_other_settings, with_run_ends
from bert_tf.training.settings import FineTuningSchedule, Intervals

RESULTS = "trial.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What all trials share, and the grid of what differs.

    Attributes:
      schedule: its learning rate is replaced by that of each trial.
      learning_rates, seeds: every combination is a trial.
      run_settings: the settings of the command that affect the trained weights, as recorded in
        checkpoints; a sweep adds task, initial weights, and what the data and the trial decide.
      freeze: parts of names of weights that are not trained.
      intervals: steps between logging, saving and evaluation.
      keep_checkpoint_max: checkpoints that a trial keeps.
      early_stopping: evaluations without a better one after which a trial ends; 0: never.
      eval_batch_size: of evaluations.
    """

    schedule: FineTuningSchedule
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    run_settings: Mapping[str, Any]
    freeze: Sequence[str] = ()
    intervals: Intervals
    keep_checkpoint_max: int = 5
    early_stopping: int = 0
    eval_batch_size: int = 8

    @property
    def is_grid(self) -> bool:
        """Whether there are several trials."""
        return len(self.learning_rates) * len(self.seeds) > 1


@dataclasses.dataclass(frozen=True)
class Trial:
    """One learning rate with one seed, and its results."""

    learning_rate: float
    seed: int
    folder: str
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Sweep:
    """Trains every learning rate with every seed, and keeps the best model."""

    def __init__(
        self, run: Run, config: SweepConfig, train: SplitData, dev: Sequence[SplitData] = ()
    ):
        """Writes the training records.

        Args:
          run: the task, the initial weights and the folder.
          config: of all trials.
          train: the training data.
          dev: the first of these selects the best model; may be empty for a single trial.
        """
        self.run, self.config, self.train, self.dev = run, config, run.prepare(train), dev

    def run_all(self) -> None:
        """Trains every trial; the best model is then in the run and its folder."""
        run, config = self.run, self.config
        grid = [(rate, seed) for rate in config.learning_rates for seed in config.seeds]
        refuse_best_of_others(
            run.output_dir, is_kept=config.intervals.eval_steps > 0 and not config.is_grid
        )
        if not config.is_grid:
            self.train_trial(Trial(*grid[0], run.output_dir))
            return
        trials = []
        for rate, seed in grid:
            folder = tf.io.gfile.join(run.output_dir, f"learning_rate_{rate!r}_seed_{seed}")
            trials.append(self.train_or_read(Trial(rate, seed, folder)))
        results = {(trial.learning_rate, trial.seed): trial.results for trial in trials}
        metric = run.task.metrics[0]
        write_sweep(results, task=run.task.name, metric=metric, output_dir=run.output_dir)
        keep_best(run, find_best(run, trials, f"eval_{metric}"))
        for trial in trials:
            for folder in (trial.folder, tf.io.gfile.join(trial.folder, BEST)):
                tf1.CheckpointFolder(folder).clear()

    def settings_of(self, trial: Trial) -> dict[str, Any]:
        """The settings that affect a trial's weights: the command's, the data's and its own."""
        selects = self.config.intervals.eval_steps or self.config.is_grid
        examples = self.train.files if self.run.doc_stride else self.train.examples
        steps = self.config.schedule.num_train_steps(len(examples))
        return {
            **self.config.run_settings,
            "task_name": self.run.task.name,
            "init_checkpoint": self.run.model.source.path,
            "train_data": self.train.digest,
            "dev_data": self.run.prepare(self.dev[0]).digest if self.dev and selects else None,
            "labels": list(self.run.task.labels.names),
            "num_records": len(self.train.files),
            "num_train_steps": steps,
            "learning_rate": trial.learning_rate,
            "seed": trial.seed,
        }

    def train_or_read(self, trial: Trial) -> Trial:
        """A trial with its results; one that is finished is not trained again."""
        path = tf.io.gfile.join(trial.folder, RESULTS)
        settings = self.settings_of(trial)
        is_finished = tf.io.gfile.exists(path)
        latest = tf1.CheckpointFolder(trial.folder).latest()
        if is_finished or latest:
            old = _read_trial(path).facts if is_finished else run_settings_of(latest)
            refuse_changed_settings(old, settings, trial.folder)
        if not is_finished:
            logging.info("Trial: learning rate %g, seed %d", trial.learning_rate, trial.seed)
            self.train_trial(trial)
            found = self.run.evaluate(self.dev[0], batch_size=self.config.eval_batch_size)
            results = {"global_step": self.run.step, **found}
            write_text(path, json.dumps({"facts": settings, "results": results}, indent=2) + "\n")
            cluster.barrier()
        found = _read_trial(path).results
        if (metric := f"eval_{self.run.task.metrics[0]}") not in found:
            raise InputError(f"{path} without {metric}", "the results of a trial", REMEDY)
        return dataclasses.replace(trial, results=found)

    def train_trial(self, trial: Trial) -> None:
        """Trains one trial; the run's model is then its best."""
        run, config, settings = self.run, self.config, self.settings_of(trial)
        schedule = dataclasses.replace(config.schedule, learning_rate=trial.learning_rate)
        num_train_steps = settings["num_train_steps"]
        optimizer = make_optimizer(schedule, num_train_steps)
        trainer = run.make_trainer(optimizer, seed=trial.seed, freeze=config.freeze)
        folder = tf1.CheckpointFolder(trial.folder, keep_max=config.keep_checkpoint_max)
        if folder.latest() is None:
            run.load_pretrained()
        settings = with_run_ends(folder, settings)
        batches = run.batching.training(
            self.train.files,
            batch_size=schedule.train_batch_size,
            num_train_steps=num_train_steps,
            seed=trial.seed,
            run_ends=settings.get(tf1.RUN_ENDS, ()),
        )
        refuse_other_settings(folder, settings)
        best = None
        if self.dev and config.intervals.eval_steps:
            best = self.best_checkpoint(trial, settings)
        run.step = train_keeping_best(
            trainer,
            batches,
            best,
            num_train_steps=num_train_steps,
            folder=folder,
            intervals=config.intervals,
            run_settings=settings,
            on_begin=None if config.is_grid else lambda: run.write_model_files(trial.folder),
        )

    def best_checkpoint(self, trial: Trial, run_settings: Mapping[str, Any]) -> BestCheckpoint:
        """Keeps the best of a trial's checkpoints by the task's first metric on the dev data."""
        run, config = self.run, self.config
        return BestCheckpoint(
            trial.folder,
            run_settings,
            metric=f"eval_{run.task.metrics[0]}",
            early_stopping=config.early_stopping,
            evaluate=lambda: run.evaluate(self.dev[0], batch_size=config.eval_batch_size),
            state=lambda step, settings: run.trainer.state(step, settings),
            write_model_files=run.write_model_files,
        )


# ---------------------------------------------------------------------------- the best trial


def find_best(run: Run, trials: Sequence[Trial], metric: str) -> Trial:
    """The best trial; of equal ones that whose model is already kept, otherwise the first."""
    greatest = max(trial.results[metric] for trial in trials)
    equal = [trial for trial in trials if trial.results[metric] == greatest]
    kept = _kept_trial(tf1.CheckpointFolder(run.output_dir).latest())
    return next((one for one in equal if (one.learning_rate, one.seed) == kept), equal[0])


def keep_best(run: Run, best: Trial) -> None:
    """Copies the best trial's checkpoint into the run's folder, and loads it.

    Raises:
      InputError: its checkpoints are gone, and the folder keeps another trial's.
    """
    logging.info("The best trial: learning rate %g, seed %d", best.learning_rate, best.seed)
    own = tf1.CheckpointFolder(run.output_dir)
    saved = own.latest()
    if saved and tf1.CheckpointFolder(best.folder).latest() is None:  # all was done before
        rate, seed = _kept_trial(saved)
        if (rate, seed) != (best.learning_rate, best.seed):
            raise InputError(
                f"{own.path}, which keeps the model of learning rate {rate}, seed {seed}; the best "
                f"of these trials had {best.learning_rate} and {best.seed}, and its model was not "
                "kept",
                "a grid with the trial whose model was kept, as the best one",
                f"give the earlier trials again, or remove {best.folder} to train it again",
            )
    else:
        reader = tf1.CheckpointReader(best.folder)
        tensors = {name: reader.read(name) for name in reader.shapes}
        run.write_model_files(own.path)
        saved = own.save(tf1.step_of(reader.prefix), tensors)
    run.model = dataclasses.replace(run.model, source=open_weights(saved))
    run.restore()


def _kept_trial(prefix: str | None) -> tuple[float | None, int | None]:
    """Learning rate and seed of the trial that a checkpoint is of."""
    settings = run_settings_of(prefix) if prefix else {}
    return settings.get("learning_rate"), settings.get("seed")


# ---------------------------------------------------------------------------- other runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialFile:
    """What a trial.json holds."""

    facts: dict[str, Any]  # the settings that affect its weights
    results: dict[str, float]


def _read_trial(path: str) -> TrialFile:
    return typed(TrialFile, read_json(path, remedy=REMEDY), source=path)
