"""The paper's protocol: several learning rates and seeds, the best by the dev data (section 4.1).

Each trial is a run of its own, in a folder of its own if there are several, and goes on where it
was killed. Its best checkpoint is that of the evaluation with the best first metric, or its last
one if there are no evaluations on the way.
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
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.tasks.reports import Trial, write_reports
from bert_tf.tasks.run import Run, SplitData
from bert_tf.training.fine_tuning import make_optimizer, refuse_other_settings
from bert_tf.training.intervals import Intervals, StopTraining
from bert_tf.training.settings import FineTuningSchedule

RESULTS = "trial.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What all trials share, and the grid of what differs."""

    schedule: FineTuningSchedule  # its learning rate is that of each trial
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    freeze: Sequence[str] = ()
    intervals: Intervals
    keep_checkpoint_max: int = 5
    run_settings: Mapping[str, Any]  # of the flags that decide the result
    early_stopping: int = 0  # ends after so many evaluations without a better one; 0: never
    eval_batch_size: int = 8

    @property
    def chooses(self) -> bool:
        """Whether the dev data decide which model is kept."""
        return bool(self.intervals.eval_steps) or self.is_grid

    @property
    def is_grid(self) -> bool:
        """Whether there are several trials."""
        return len(self.learning_rates) * len(self.seeds) > 1


def run_all(run: Run, settings: Settings, dev: Sequence[SplitData]) -> None:
    """Trains every combination and leaves the best model in the run and its folder.

    Args:
      run: with its training records.
      settings: of all trials.
      dev: by the first of these the best is chosen; may be empty if there is one trial.
    """
    grid = [(rate, seed) for rate in settings.learning_rates for seed in settings.seeds]
    if not settings.is_grid:
        _refuse_best_of_others(run.output_dir, is_kept=settings.intervals.eval_steps > 0)
        _train(run, settings, Trial(*grid[0], run.output_dir), dev)
        return
    _refuse_best_of_others(run.output_dir, is_kept=False)
    trials = []
    for rate, seed in grid:
        folder = tf.io.gfile.join(run.output_dir, f"learning_rate_{rate!r}_seed_{seed}")
        trials.append(_run_or_read(run, settings, Trial(rate, seed, folder), dev))
    metric = run.task.metrics[0]
    write_reports(trials, task=run.task.name, metric=metric, output_dir=run.output_dir)
    _keep(run, _winner(run, trials, f"eval_{metric}"))
    for trial in trials:
        for folder in (trial.folder, tf.io.gfile.join(trial.folder, BEST)):
            tf1.CheckpointFolder(folder).clear()


def _refuse_best_of_others(folder: str, *, is_kept: bool) -> None:
    """A best checkpoint that this run does not look after would be taken for its own."""
    path = tf.io.gfile.join(folder, BEST)
    if not is_kept and tf.io.gfile.exists(tf.io.gfile.join(path, "checkpoint")):
        raise InputError(
            received=f"{path}, the best checkpoint of a single run with --eval_steps",
            expected="that run, going on with --eval_steps, or a folder without it",
            remedy=f"choose another --output_dir, or remove {path}; for that run add --eval_steps",
        )


def _run_or_read(run: Run, settings: Settings, trial: Trial, dev: Sequence[SplitData]) -> Trial:
    """A trial that is finished is not run again."""
    path = tf.io.gfile.join(trial.folder, RESULTS)
    schedule = dataclasses.replace(settings.schedule, learning_rate=trial.learning_rate)
    facts = _facts(run, settings, schedule, trial, dev)
    is_finished = tf.io.gfile.exists(path)
    latest = tf1.CheckpointFolder(trial.folder).latest()
    if is_finished or latest:
        old = read_json(path)["facts"] if is_finished else _run_settings_of(latest)
        _refuse_changed_settings(old, facts, trial.folder)
    if not is_finished:
        logging.info("Trial: learning rate %g, seed %d", trial.learning_rate, trial.seed)
        _train(run, settings, trial, dev)
        found = run.evaluate(dev[0], batch_size=settings.eval_batch_size)
        results = {"global_step": run.step, **found}
        both = {"facts": facts, "results": results}
        write_text(path, json.dumps(both, indent=2) + "\n")
        cluster.barrier()
    return dataclasses.replace(trial, results=read_json(path)["results"])


def _run_settings_of(prefix: str) -> dict:
    return tf1.CheckpointReader(prefix).run_settings()


def _refuse_changed_settings(old: Mapping, new: Mapping, folder: str) -> None:
    if other := tf1.changed_settings(old, new):
        raise InputError(
            received=f"{folder}, a trial with another {', '.join(other)}",
            expected="the trials of this command, or an empty folder",
            remedy="choose another --output_dir, or remove the folder to train again",
        )


def _train(run: Run, settings: Settings, trial: Trial, dev: Sequence[SplitData]) -> None:
    """One trial; the run's model is then its best."""
    schedule = dataclasses.replace(settings.schedule, learning_rate=trial.learning_rate)
    num_train_steps = schedule.num_train_steps(run.num_train_examples)
    optimizer = make_optimizer(schedule, num_train_steps)
    trainer = run.make_trainer(optimizer, seed=trial.seed, freeze=settings.freeze)
    folder = tf1.CheckpointFolder(trial.folder, keep_max=settings.keep_checkpoint_max)
    if folder.latest() is None:
        run.load_pretrained()
    batches = run.batching.training(
        run.train_files,
        batch_size=schedule.train_batch_size,
        num_train_steps=num_train_steps,
        seed=trial.seed,
    )
    facts = _facts(run, settings, schedule, trial, dev)
    refuse_other_settings(folder, facts)
    best = None
    if dev and settings.intervals.eval_steps:
        best = _Best(run, settings, trial, dev, facts)
        best.go_on_after(folder.latest())
    if best is not None and best.has_stopped:
        # Patience that was given later would have ended it here as well.
        tf1.check_finished_run(folder.latest(), facts, besides=("early_stopping",))
        trainer.restore(folder, facts)
    else:
        trainer.train(
            batches,
            num_train_steps=num_train_steps,
            folder=folder,
            intervals=settings.intervals,
            run_settings=facts,
            on_begin=None if settings.is_grid else lambda: run.write_model_files(trial.folder),
            evaluate=best,
        )
    run.step = tf1.step_of(folder.latest())
    if best is not None:
        if run.step not in best.values:
            best.look(run.step)
        run.step = trainer.restore(best.folder, {})
        logging.info("The best checkpoint is that of step %d.", run.step)


class _Best:
    """Evaluates on the way, and keeps the best checkpoint; called by the training loop."""

    def __init__(self, run: Run, settings: Settings, trial: Trial, dev, facts: Mapping):
        self._run, self._settings, self._data = run, settings, dev[0]
        self._metric = f"eval_{run.task.metrics[0]}"
        self.folder = tf1.CheckpointFolder(tf.io.gfile.join(trial.folder, BEST), keep_max=1)
        self._path = tf.io.gfile.join(trial.folder, BEST, "evaluations.json")
        there = tf.io.gfile.exists(self._path)
        self.values = {int(k): v for k, v in read_json(self._path).items()} if there else {}
        self._facts = facts

    def go_on_after(self, prefix: str | None) -> None:
        """Of a run that was killed: what was seen beyond its last checkpoint is seen again.

        Args:
          prefix: of that checkpoint, None if there is none yet.

        Raises:
          InputError: what was seen before it are scores of other data.
        """
        last = tf1.step_of(prefix or "")
        self.values = {at: value for at, value in self.values.items() if at <= last}
        if any(at < last for at in self.values):  # at the last one all looks again
            dev_data = {"dev_data": self._facts["dev_data"]}
            _refuse_changed_settings(_run_settings_of(prefix), dev_data, self.folder.path)

    def __call__(self, step: int) -> dict[str, float]:
        results = self.look(step)
        if self.has_stopped:
            patience = self._settings.early_stopping
            raise StopTraining(f"{patience} evaluations without a better {self._metric}")
        return results

    def look(self, step: int) -> dict[str, float]:
        """Evaluates; the checkpoint is kept if it is the best so far."""
        results = self._run.evaluate(self._data, batch_size=self._settings.eval_batch_size)
        earlier = [value for at, value in self.values.items() if at < step]
        value = results[self._metric]
        # Agreed on: sums may differ in the last bit from one machine to another.
        if step and cluster.any_process(not earlier or value > max(earlier)):
            self._run.write_model_files(self.folder.path)
            self.folder.save(step, self._run.trainer.state(step, self._facts))
        if step:
            self.values = {at: v for at, v in self.values.items() if at < step} | {step: value}
            write_text(self._path, json.dumps(self.values, indent=2) + "\n")
        return results

    @property
    def has_stopped(self) -> bool:
        """Whether the last evaluations were all worse than one before them."""
        patience, values = self._settings.early_stopping, list(self.values.values())
        if not patience or len(values) <= patience:
            return False
        return cluster.any_process(max(values[-patience:]) <= max(values[:-patience]))


def _facts(
    run: Run,
    settings: Settings,
    schedule: FineTuningSchedule,
    trial: Trial,
    dev: Sequence[SplitData],
) -> dict:
    """What decides the result of a trial: the settings of its run, and its data."""
    return {
        **settings.run_settings,
        "train_data": run.train_digest,
        "dev_data": run.digest_of(dev[0]) if dev and settings.chooses else None,
        "labels": list(run.task.labels.names),
        "learning_rate": trial.learning_rate,
        "num_train_steps": schedule.num_train_steps(run.num_train_examples),
        "task_name": run.task.name,
        "init_checkpoint": run.model.source.path,
        "seed": trial.seed,
        "num_records": len(run.train_files),
    }


def _winner(run: Run, trials: Sequence[Trial], metric: str) -> Trial:
    """The best trial; of equal ones that whose model is kept already, else the first."""
    greatest = max(trial.results[metric] for trial in trials)
    equal = [trial for trial in trials if trial.results[metric] == greatest]
    latest = tf1.CheckpointFolder(run.output_dir).latest()
    kept = _kept_trial(latest) if latest else None
    return next((one for one in equal if (one.learning_rate, one.seed) == kept), equal[0])


def _kept_trial(prefix: str) -> tuple[float | None, int | None]:
    """Learning rate and seed of the trial that a checkpoint is of."""
    facts = _run_settings_of(prefix)
    return facts.get("learning_rate"), facts.get("seed")


def _keep(run: Run, best: Trial) -> None:
    """The winner's checkpoint into the run's folder and model."""
    logging.info("The best trial: learning rate %g, seed %d", best.learning_rate, best.seed)
    own = tf1.CheckpointFolder(run.output_dir)
    if own.latest() and tf1.CheckpointFolder(best.folder).latest() is None:
        _refuse_other_winner(own, best)
        run.model = dataclasses.replace(run.model, source=open_weights(own.latest()))
        run.restore()  # all was done before
        return
    reader = tf1.CheckpointReader(best.folder)
    tensors = {name: reader.read(name) for name in reader.shapes}
    run.write_model_files(own.path)
    saved = own.save(tf1.step_of(reader.prefix), tensors)
    run.model = dataclasses.replace(run.model, source=open_weights(saved))
    run.restore()


def _refuse_other_winner(own: tf1.CheckpointFolder, best: Trial) -> None:
    """A grid without the trial that won an earlier one has a best whose weights are gone."""
    kept = _kept_trial(own.latest())
    if kept != (best.learning_rate, best.seed):
        raise InputError(
            received=f"{own.path}, which keeps the model of learning rate {kept[0]}, seed "
            f"{kept[1]}; the best of these trials had {best.learning_rate} and {best.seed}, and "
            "its model was not kept",
            expected="trials of which that one is the best, as its model is the one that is there",
            remedy=f"give the earlier trials again, or remove {best.folder} to train it again",
        )
