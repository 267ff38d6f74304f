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

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.config import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.tasks.best import REMEDY, refuse_changed_settings, run_settings_of
from bert_tf.tasks.outputs import write_sweep
from bert_tf.tasks.run import Run, SplitData, TrainingConfig

RESULTS = "trial.json"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One learning rate with one seed, and its results."""

    config: TrainingConfig
    folder: str
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def point(self) -> tuple[float, int]:
        """Its learning rate and its seed."""
        return self.config.schedule.learning_rate, self.config.seed


def train_trials(
    run: Run,
    config: TrainingConfig,
    train: SplitData,
    dev: SplitData,
    *,
    learning_rates: Sequence[float],
    seeds: Sequence[int],
) -> None:
    """Trains every learning rate with every seed; the best model is then in the run and its folder.

    Args:
      run: the task, the initial weights and the folder.
      config: of all trials, but for learning rate and seed.
      train: the training data.
      dev: what selects the best model.
      learning_rates, seeds: every combination is a trial.
    """
    run.check_training(config, train, keeps_best=False)
    trials = []
    for rate in learning_rates:
        for seed in seeds:
            schedule = dataclasses.replace(config.schedule, learning_rate=rate)
            trial = Trial(
                dataclasses.replace(config, schedule=schedule, seed=seed),
                f"{run.output_dir}/learning_rate_{rate!r}_seed_{seed}",
            )
            trials.append(train_or_read(run, trial, train, dev))
    results = {trial.point: trial.results for trial in trials}
    write_sweep(
        results, task=run.name, metric=run.metric.removeprefix("eval_"), output_dir=run.output_dir
    )
    keep_best(run, find_best(run, trials))
    for trial in trials:
        for folder in (trial.folder, f"{trial.folder}/{BEST}"):
            tf1.CheckpointFolder(folder).clear()


def train_or_read(run: Run, trial: Trial, train: SplitData, dev: SplitData) -> Trial:
    """A trial with its results; one that is finished is not trained again."""
    path = f"{trial.folder}/{RESULTS}"
    settings = run.settings_of(trial.config, run.prepare(train), dev)
    is_finished = tf.io.gfile.exists(path)
    latest = tf1.CheckpointFolder(trial.folder).latest()
    if is_finished or latest:
        old = _read_trial(path).facts if is_finished else run_settings_of(latest)
        refuse_changed_settings(old, settings, trial.folder)
    if not is_finished:
        logging.info("Trial: learning rate %g, seed %d", *trial.point)
        run.train(trial.config, train, dev, folder=trial.folder)
        results = {"global_step": run.step, **run.evaluate(dev)}
        write_text(path, json.dumps({"facts": settings, "results": results}, indent=2) + "\n")
        runtime.barrier()
    found = _read_trial(path).results
    if run.metric not in found:
        raise InputError(f"{path} without {run.metric}", "the results of a trial", REMEDY)
    return dataclasses.replace(trial, results=found)


# ---------------------------------------------------------------------------- the best trial


def find_best(run: Run, trials: Sequence[Trial]) -> Trial:
    """The best trial; of equal ones that whose model is already kept, otherwise the first."""
    greatest = max(trial.results[run.metric] for trial in trials)
    equal = [trial for trial in trials if trial.results[run.metric] == greatest]
    kept = _kept_point(tf1.CheckpointFolder(run.output_dir).latest())
    return next((trial for trial in equal if trial.point == kept), equal[0])


def keep_best(run: Run, best: Trial) -> None:
    """Copies the best trial's checkpoint into the run's folder, and loads it.

    Raises:
      InputError: its checkpoints are gone, and the folder keeps another trial's.
    """
    logging.info("The best trial: learning rate %g, seed %d", *best.point)
    own = tf1.CheckpointFolder(run.output_dir)
    saved = own.latest()
    if saved and tf1.CheckpointFolder(best.folder).latest() is None:  # all was done before
        rate, seed = kept = _kept_point(saved)
        if kept != best.point:
            raise InputError(
                f"{own.path}, which keeps the model of learning rate {rate}, seed {seed}; the best "
                f"of these trials had {best.point[0]} and {best.point[1]}, and its model was not "
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


def _kept_point(prefix: str | None) -> tuple[float | None, int | None]:
    """Learning rate and seed of the trial that a checkpoint is of."""
    settings = run_settings_of(prefix) if prefix else {}
    return settings.get("learning_rate"), settings.get("seed")


# ---------------------------------------------------------------------------- trial.json


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialFile:
    """What a trial.json holds."""

    facts: dict[str, Any]  # the settings that affect its weights
    results: dict[str, float]


def _read_trial(path: str) -> TrialFile:
    return typed(TrialFile, read_json(path, remedy=REMEDY), source=path)
