"""A grid of trials: several learning rates and seeds, the best by the dev data.

This is the paper's protocol (section 4.1). Each trial is a run in a folder of its own, and is
resumed if it was killed. If it is evaluated during training, its model is that of the evaluation
with the best first metric; otherwise that of its last step.

    trial.json            of each trial: its settings and its results
    trials.tsv            the results of every trial
    trials_summary.tsv    of each learning rate: mean, deviation, best
"""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.declarations import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.tasks.results import write_table
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.terminal import aligned
from bert_tf.training.best import REMEDY
from bert_tf.training.fine_tuning import TrainingConfig
from bert_tf.training.log import with_nan, with_null

Point = tuple[float, int]  # learning rate and seed of a trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialFile:
    """The content of a trial.json."""

    facts: dict[str, Any]  # the settings that affect its weights
    results: dict[str, float | None]  # None: undefined


def train_trials(
    run: TextRun, config: TrainingConfig, train: TextData, dev: TextData, points: Iterable[Point]
) -> None:
    """Trains at every point; then loads the best model, which is also saved in the run's folder.

    Args:
      run: the task, the initial weights and the folder.
      config: the configuration of all trials, except learning rate and seed.
      train: the training data.
      dev: the data that select the best model.
      points: learning rate and seed of each trial.
    """
    run.check_folder(keeps_best=False)
    results = {}
    for learning_rate, seed in points:
        schedule = dataclasses.replace(config.schedule, learning_rate=learning_rate)
        trial = dataclasses.replace(config, schedule=schedule, seed=seed)
        results[learning_rate, seed] = train_or_read(run, trial, train, dev)
    write_sweep(results, run=run)
    keep_best(run, results)
    for learning_rate, seed in results:
        folder = trial_folder(run, learning_rate, seed)
        tf1.CheckpointFolder(folder).clear()
        tf1.CheckpointFolder(f"{folder}/{BEST}").clear()


def trial_folder(run: TextRun, learning_rate: float, seed: int) -> str:
    """The folder of a trial."""
    return f"{run.output_dir}/learning_rate_{learning_rate!r}_seed_{seed}"


def train_or_read(
    run: TextRun, config: TrainingConfig, train: TextData, dev: TextData
) -> dict[str, float]:
    """The results of a trial, which is trained unless it is finished.

    Raises:
      InputError: it was begun with other settings.
    """
    folder = trial_folder(run, config.schedule.learning_rate, config.seed)
    path = f"{folder}/trial.json"
    latest = tf1.CheckpointFolder(folder).latest()
    settings = run.settings_of(config, run.prepare(train), dev)
    is_finished = tf.io.gfile.exists(path)
    settings_before = read_trial(path).facts if is_finished else run_settings_of(latest)
    if changed := tf1.changed_settings(settings_before, settings):
        received = f"{folder}, a trial with another {', '.join(changed)}"
        raise InputError(received, "the trials of this command, or an empty folder", REMEDY)
    if not is_finished:
        logging.info("Trial: learning rate %g, seed %d", config.schedule.learning_rate, config.seed)
        run.train(config, train, dev, folder=folder)
        results = {"global_step": run.step, **run.evaluate(dev)}
        content = {"facts": settings, "results": with_null(results)}
        write_text(path, json.dumps(content, indent=2) + "\n")
        runtime.barrier()
    results = with_nan(read_trial(path).results)
    if run.metric not in results:
        raise InputError(f"{path} without {run.metric}", "the results of a trial", REMEDY)
    return results


def keep_best(run: TextRun, results: Mapping[Point, Mapping[str, float]]) -> None:
    """Copies the best trial's checkpoint into the run's folder, and loads it.

    Of equally good trials, the one whose model is in the folder already is taken, or the first.

    Args:
      run: the run of all trials.
      results: the results of each trial by learning rate and seed.

    Raises:
      InputError: the best trial has no checkpoint any more, and the folder has another one's.
    """
    folder = tf1.CheckpointFolder(run.output_dir)
    saved = folder.latest()
    saved_settings = run_settings_of(saved)
    saved_point = (saved_settings.get("learning_rate"), saved_settings.get("seed"))
    ranks = {point: run.rank(results[point][run.metric]) for point in results}
    best = max(ranks, key=lambda point: (ranks[point], point == saved_point))
    best_folder = trial_folder(run, *best)
    best_checkpoint = tf1.CheckpointFolder(best_folder).latest()
    logging.info("The best trial: learning rate %g, seed %d", *best)
    if saved and best != saved_point and not best_checkpoint:
        # An earlier command finished the grid and removed the trials' checkpoints.
        raise InputError(
            f"{best_folder}, the best trial, whose model was not kept; "
            f"kept was that of {saved_point}",
            "a grid with the trial whose model was kept, as the best one",
            f"give the earlier trials again, or remove {best_folder} to train it again",
        )
    if best != saved_point or best_checkpoint:
        reader = tf1.CheckpointReader(best_folder)
        tensors = {name: reader.read(name) for name in reader.shapes}
        run.write_model_files(folder.path)
        saved = folder.save(tf1.step_of(reader.prefix), tensors)
    run.model = dataclasses.replace(run.model, source=tf1.open_tf1(saved))
    run.restore()


def run_settings_of(prefix: str | None) -> dict[str, Any]:
    """The settings of the run that wrote a checkpoint; none without a checkpoint."""
    return tf1.CheckpointReader(prefix).run_settings() if prefix else {}


def read_trial(path: str) -> TrialFile:
    """The content of a trial.json; raises `InputError` if it is damaged."""
    return typed(TrialFile, read_json(path, remedy=REMEDY), source=path)


def write_sweep(results: Mapping[Point, Mapping[str, float]], *, run: TextRun) -> None:
    """Writes trials.tsv and trials_summary.tsv.

    Args:
      results: the results of every trial, by learning rate and seed.
      run: the run of all trials; the summary is of its metric.
    """
    names = sorted(set.intersection(*map(set, results.values())))
    rows = [["learning_rate", "seed", *names]]
    scores: dict[float, list[float]] = {}  # by learning rate
    for (learning_rate, seed), of_trial in results.items():
        rows.append([f"{learning_rate:g}", seed, *(of_trial[name] for name in names)])
        scores.setdefault(learning_rate, []).append(of_trial[run.metric])
    write_table(f"{run.output_dir}/trials.tsv", rows)

    metric = run.metric.removeprefix("eval_")
    summary = [["learning_rate", "trials", f"mean_{metric}", "deviation", "best"]]
    for learning_rate, values in scores.items():
        mean = statistics.fmean(values)
        best = max(values, key=run.rank)
        numbers = [f"{number:.4f}" for number in (mean, _deviation(values), best)]
        summary.append([f"{learning_rate:g}", len(values), *numbers])
    write_table(f"{run.output_dir}/trials_summary.tsv", summary)
    logging.info("eval_%s over the trials:\n%s", metric, "\n".join(aligned(summary)))


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
