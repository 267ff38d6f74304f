"""The loop: batches -> steps -> losses, checkpoints, evaluations; and prediction.

Data position, dropout and learning rate are pure functions of the step, so a resumed run ends
exactly as an undisturbed one. Of several processes each does all of this on its part of every
batch, and only the chief writes.
"""

import collections
import contextlib
import dataclasses
import json
import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import load_weights
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError
from bert_tf.heads.head import Head
from bert_tf.terminal import Progress, announced, progress_line
from bert_tf.training import distribution
from bert_tf.training.distribution import HANGS
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.options import Intervals, StepConfig
from bert_tf.training.step import LossScale, Steps, first_replica, layer_precision


class StopTraining(Exception):  # noqa: N818  (not an error)
    """Raised by an evaluation to end training; its message is the reason."""


class Trainer:
    """Trains and evaluates a model under a `tf.distribute` strategy."""

    def __init__(
        self,
        model_fn: Callable[[], keras.Model],
        objective: Head,
        optimizer: AdamWeightDecay,
        *,
        strategy: tf.distribute.Strategy,
        seed: int,
        freeze: Sequence[str] = (),
        step_config: StepConfig | None = None,
    ):
        """Builds the model and the optimizer's moments on the strategy's devices.

        Args:
          model_fn: builds the model; its first weights are drawn from `seed`.
          objective: loss and metrics.
          optimizer: the update rule.
          strategy: the devices.
          seed: of first weights and dropout.
          freeze: patterns of the names of weights that are not trained, as for `trained_names`.
            These have no moments, and no gradients are computed for them.
          step_config: precision, micro-batches, compilation.
        """
        self.strategy, self.objective, self.optimizer = strategy, objective, optimizer
        self.step_config = config = step_config or StepConfig()
        with strategy.scope(), layer_precision(config.precision):
            keras.utils.set_random_seed(seed % 2**32)
            self.model = model_fn()
            self.steps = Steps(
                self.model, objective, optimizer, strategy, config, seed=seed, freeze=freeze
            )
        self.pace = Pace()
        self._compiled: set[tuple] = set()  # what, for shapes of batches

    # ------------------------------------------------------------------ training

    def train(
        self,
        batches: Batches,
        *,
        num_train_steps: int,
        folder: tf1.CheckpointFolder,
        intervals: Intervals,
        run_settings: Mapping[str, Any],
        on_begin: Callable[[], None] | None = None,
        evaluate: Callable[[int], Mapping[str, float]] | None = None,
    ) -> None:
        """Trains up to `num_train_steps`, from the last checkpoint of the folder if there is one.

        Args:
          batches: at least `num_train_steps` of them; batch t is that of step t.
          num_train_steps: updates in all, those before a resume included.
          folder: where checkpoints are written, each while the next steps are computed.
          intervals: how often to log, save and evaluate.
          run_settings: the settings that affect the trained weights; recorded in checkpoints, and
            compared on resume.
          on_begin: called before the first step, unless the run has ended already.
          evaluate: called with the step every `intervals.eval_steps`, also before the first step;
            returns what is logged. Raises `StopTraining` to make that step the last one.

        Raises:
          InputError: loss, gradients or initial weights are not finite, a record is invalid, or a
            checkpoint could not be written; the last checkpoint is kept. Or the folder has a
            finished run with other settings.
          Interrupted: SIGTERM or Ctrl-C came to one of the processes; a checkpoint is written.
        """
        intervals = intervals.of_run(num_train_steps)
        step = self._begin(batches, num_train_steps, folder, intervals, run_settings)
        if step >= num_train_steps:
            return
        if on_begin:
            on_begin()
        log = TrainingLog(folder.path, batches.batch_size, num_train_steps)
        save = Saver(self, folder, run_settings)
        evaluation = Evaluation(evaluate, intervals.eval_steps, log)
        # Also after a resume: the run may have been killed meanwhile.
        stops = () if evaluation.ends_at(step) else intervals.stops(step, num_train_steps)
        iterator = distribution.distributed_batches(self.strategy, batches, start=step)
        with self._running(step, num_train_steps, folder) as progress:
            for stop in stops:
                first = step
                with batches.record_errors():
                    step, losses = self.run_steps(iterator, first, stop, progress)
                log.add(*self._checked(losses, first, step, folder))
                if intervals.is_due(step, intervals.log_steps, num_train_steps):
                    log.write(step, self.optimizer.schedule.rate(step - 1), self.pace.timed)
                if intervals.is_due(step, intervals.save_checkpoints_steps, num_train_steps):
                    save(step)
                ends = not runtime.signal_of_run() and evaluation.ends_at(step)
                if signal := runtime.signal_of_run():  # the resumed run evaluates
                    name = runtime.name_of_signal(signal)
                    logging.info("%s: this ends with a checkpoint of step %d.", name, step)
                    save(step, whole=True)
                    raise runtime.Interrupted(step, folder.path, signal)
                if ends:
                    save(step)
                    break

    def _begin(
        self,
        batches: Batches,
        num_train_steps: int,
        folder: tf1.CheckpointFolder,
        intervals: Intervals,
        run_settings: Mapping[str, Any],
    ) -> int:
        """Restores the last checkpoint, and checks what is given; returns the step."""
        self.step_config.check_batch_size(batches.batch_size, self.strategy.num_replicas_in_sync)
        step = self.restore(folder, run_settings)
        if runtime.has_peers():
            self._check_same_everywhere(batches, {**run_settings, **dataclasses.asdict(intervals)})
        if step >= num_train_steps:
            tf1.check_finished_run(folder.latest(), run_settings)
            logging.info("Already trained for %d steps of %d.", step, num_train_steps)
        else:
            self._check_beginning()
        self.pace.firsts = batches.firsts if self.step_config.xla else {}
        return step

    @contextlib.contextmanager
    def _running(
        self, step: int, num_train_steps: int, folder: tf1.CheckpointFolder
    ) -> Iterator[Progress]:
        """What a run of steps is watched by; at its end its last checkpoint is whole."""
        with (
            runtime.noticing_signals(),
            Progress("train", num_train_steps, "steps", done=step) as progress,
            folder.whole_at_end(),
        ):
            yield progress

    def run_steps(
        self, iterator: Iterator, step: int, stop: int, progress: Progress | None = None
    ) -> tuple[int, dict[str, float]]:
        """Makes the updates of steps `step` to `stop` - 1.

        Args:
          iterator: of `distributed_batches`, at the batch of `step`.
          step: number of updates made before.
          stop: number of updates made afterwards.
          progress: is updated about every second; then a process without peers also looks for
            signals, and stops early.

        Returns:
          The number of updates made afterwards; and the mean of each loss over the steps that were
          not skipped, and their number, kept_steps.
        """
        steps, is_local = self.steps, not distribution.remote_hosts(self.strategy)
        totals = np.zeros(len(steps.loss_names) + 1, np.float32)
        # Processes must make the same calls: collective operations are numbered within a call.
        whole = progress is None or runtime.has_peers()
        while step < stop:
            number = self.pace.steps_of_call(step, stop, whole=whole)
            with self.pace.call(step, number):
                if is_local:
                    totals = steps.train(totals, iterator, tf.constant(step), tf.constant(number))
                else:
                    for at in range(step, step + number):
                        batch = next(iterator)  # made in this process
                        with distribution.on_remote_host(self.strategy):
                            so_far = tf.convert_to_tensor(totals)
                            totals = steps.train_on(so_far, batch, tf.constant(at))
                totals = totals.numpy()  # waits for the device
            step += number
            means = totals[:-1] / max(totals[-1], np.float32(1))
            if progress:
                if step == stop:
                    progress.said()  # mostly a log line follows
                progress.update(step, f", loss {means[0]:.4f}")
            if not whole and runtime.signal_came():
                break
        losses = dict(zip(steps.loss_names, means.tolist(), strict=True))
        return step, losses | {"kept_steps": float(totals[-1])}

    def _checked(
        self, losses: dict[str, float], first: int, step: int, folder: tf1.CheckpointFolder
    ) -> tuple[dict[str, float], int]:
        """The losses of steps `first` to `step` - 1 and the number of those not skipped.

        Raises:
          InputError: they are not finite, or a checkpoint could not be written.
        """
        folder.raise_error()
        kept_steps, scale = round(losses.pop("kept_steps")), self.steps.loss_scale
        if not kept_steps and scale.scale.numpy() > scale.LEAST:
            losses = {}
        elif not kept_steps or not np.isfinite(list(losses.values())).all():
            received = "a loss of {loss} with gradients of norm {gradient_norm}".format(**losses)
            if not kept_steps:  # only with a scale are steps skipped
                received = "gradients beyond float16 in every step, with the least loss scale,"
            rate = max(map(self.optimizer.schedule.rate, (first, step - 1)))
            raise InputError(
                f"{received} between steps {first} and {step}, at a learning rate of {rate:g}",
                "finite numbers; the learning rate is most likely too high",
                f"start again with {'--precision=bfloat16, or ' if scale else ''}a lower "
                f"--learning_rate or a longer warm-up; last saved: {folder.latest() or 'none'}",
            )
        if skipped := step - first - kept_steps:
            logging.warning(
                "%d of %d steps up to %d were skipped, beyond float16. The loss scale is now %g.",
                *(skipped, step - first, step, scale.scale.numpy()),
            )
        return losses, kept_steps

    def _check_beginning(self) -> None:
        """Refuses weights of which every loss would be NaN; logs warnings and sizes."""
        for name, weight in (self.steps.weights | self.steps.frozen).items():
            if not np.isfinite(weight.numpy()).all():
                received = f"initial weights with NaN or infinity in {name}"
                raise InputError(received, "finite numbers", "give an earlier checkpoint")
        if warning := self.optimizer.schedule.warning():
            logging.warning("%s", warning)
        trained = sum(weight.shape.num_elements() for weight in self.steps.weights.values())
        logging.info("%d of %d parameters are trained.", trained, self.model.count_params())

    def _check_same_everywhere(self, batches: Batches, settings: Mapping[str, Any]) -> None:
        """Raises InputError if processes of the run differ in settings, data or weights."""
        # The same weights may have another path on another host.
        settings = {name: value for name, value in settings.items() if name != "init_checkpoint"}
        weights = 0
        for weight in (self.steps.weights | self.steps.frozen).values():
            weights = zlib.crc32(weight.numpy().tobytes(), weights)
        flags = zlib.crc32(json.dumps(settings, sort_keys=True).encode())
        records = batches.fingerprint()  # first: it is one of the settings, too
        runtime.check_same({"records": records, "flags": flags, "first weights": weights})

    # ------------------------------------------------------------------ evaluation, prediction

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
                program = (label, *(value.shape for value in inputs.values()))
                is_new = program not in self._compiled
                self._compiled.add(program)
                if is_new:
                    doing(what, compiles=True)
                with (
                    announced(f"compile: {label} (may take a minute)", when=is_new),
                    distribution.on_remote_host(self.strategy),
                ):
                    result = compute(batch, *args)
                yield result
                progress.update(number + 1)

    # ------------------------------------------------------------------ checkpoints

    def state(self, step: int, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """All that a run needs to go on: weights, moments, step, and settings to compare.

        The values are in this host's memory, and later steps do not change them: TensorFlow copies
        a weight of a CPU when a step updates it while its value is still in use.
        """
        variables = self.steps.weights | self.steps.frozen | self.steps.slots
        return {
            tf1.GLOBAL_STEP: np.int64(step),
            tf1.RUN_SETTINGS: json.dumps(dict(run_settings), sort_keys=True),
            **{name: distribution.on_this_host(variable) for name, variable in variables.items()},
        }

    def restore(self, folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> int:
        """Loads the folder's latest checkpoint into model and moments; returns its step, or 0.

        Raises:
          InputError: the checkpoint is damaged, is of another model, or is not that of a run.
        """
        prefix = folder.latest()
        runtime.check_same({"latest checkpoint in --output_dir": tf1.step_of(prefix or "")})
        if prefix is None:
            return 0
        reader = tf1.CheckpointReader(prefix)
        tf1.check_of_run(reader)
        tf1.warn_of_changed_settings(reader.run_settings(), run_settings)
        load_weights(self.model, tf1.open_tf1(prefix), required="")  # as they are saved in a run
        for name, slot in self.steps.slots.items():
            if name in reader.shapes:
                slot.assign(reader.read(name))
            else:
                first = LossScale.FIRST if name == LossScale.NAME else 0
                logging.warning("%s has no %s; it starts at %g.", prefix, name, first)
                slot.assign(tf.cast(tf.fill(slot.shape, first), slot.dtype))
        step = int(reader.read(tf1.GLOBAL_STEP))
        logging.info("Loaded checkpoint %s, step %d.", prefix, step)
        return step


class TrainingLog:
    """Log lines and TensorBoard summaries of a run.

    train: 400 of 4000 steps, 5.1 a second, 11 min 46 s left; 163.2 examples a second, loss 7.1873
    (masked_lm 6.5102, next_sentence 0.6771), learning rate 4.5e-05
    """

    def __init__(self, output_dir: str, batch_size: int, num_train_steps: int):
        self._writer = _summary_writer(output_dir)
        self._eval_writer = _summary_writer(tf.io.gfile.join(output_dir, "eval"))
        self._batch_size, self._num_train_steps = batch_size, num_train_steps
        self._totals: dict[str, float] = {}
        self._num_steps = 0  # of which they are totals
        self._timed = np.zeros(2)

    def add(self, losses: Mapping[str, float], num_steps: int) -> None:
        """Adds the mean losses of `num_steps` steps; skipped steps do not count."""
        self._num_steps += num_steps
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * num_steps

    def write(self, step: int, learning_rate: float, timed: np.ndarray) -> None:
        """Logs rate, time left and mean losses of the steps since the last call.

        `timed` is a number of steps so far, not those that were compiled, and their seconds.
        """
        number, seconds = timed - self._timed
        rate = number / max(seconds, 1e-9)
        means = {name: total / self._num_steps for name, total in self._totals.items()}
        loss = means.get("loss", math.nan)
        terms = {n[:-5]: v for n, v in means.items() if n.endswith("_loss") and v != loss}
        logging.info(
            "%s;%s loss %.4f%s, learning rate %.3g",
            progress_line("train", step, self._num_train_steps, "steps", rate),
            f" {rate * self._batch_size:.1f} examples a second," if rate else "",
            *(loss, f" ({_listed(terms)})" if terms else "", learning_rate),
        )
        speed = {"examples_per_second": rate * self._batch_size} if rate else {}
        _write_scalars(self._writer, step, means | {"learning_rate": learning_rate} | speed)
        self._totals, self._num_steps, self._timed = {}, 0, timed

    def write_evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Logs the results of an evaluation, whose time does not count as training."""
        logging.info("evaluation at step %d: %s", step, _listed(dict(sorted(results.items()))))
        _write_scalars(self._eval_writer, step, results)


class Pace:
    """How many steps are made in one call, and how long steps take.

    A step that compiles something is a call of its own; of others one call makes as many as take
    about a second.

    Attributes:
      firsts: steps at which XLA compiles, besides the first one, as `Batches` notes them.
      timed: how many steps so far compiled nothing, and their seconds.
    """

    def __init__(self):
        self.firsts: Mapping[Any, int] = {}
        self.timed = np.zeros(2)
        self._seconds: float | None = None  # of a step; None: not compiled; 0: not known yet

    def steps_of_call(self, step: int, stop: int, *, whole: bool) -> int:
        """How many of the steps from `step` to `stop` - 1 to make; `whole`: all, once compiled."""
        if whole:  # processes may have read batches ahead to a different step
            return 1 if self._seconds is None else stop - step
        firsts = [*self.firsts.values()]  # other threads add to them
        if not self._seconds or step in firsts:
            return 1
        of_a_second = max(1, int(1 / self._seconds))
        return min([stop - step, of_a_second, *(n - step for n in firsts if n > step)])

    @contextlib.contextmanager
    def call(self, step: int, number: int) -> Iterator[None]:
        """Measures and watches what makes `number` steps from `step` on."""
        compiles = self._seconds is None or step in [*self.firsts.values()]
        seconds = self._seconds or 0.0
        what, start = f"train, steps {step + 1} to {step + number}", time.monotonic()
        with (
            announced("compile: train (may take a minute)", when=compiles),
            HANGS.watched(what, usual=number * seconds, compiles=compiles),
        ):
            yield
        took = time.monotonic() - start
        self._seconds = seconds if compiles else took / number
        self.timed = self.timed + np.array([number, took]) * (not compiles)


@dataclasses.dataclass
class Saver:
    """Saves a trainer's state in a folder, each step once."""

    trainer: Trainer
    folder: tf1.CheckpointFolder
    run_settings: Mapping[str, Any]
    last: int = -1  # the step that was saved last

    def __call__(self, step: int, *, whole: bool = False) -> None:
        """Begins to write the checkpoint of a step; returns when it is whole, if asked to."""
        with HANGS.watched(f"save the checkpoint of step {step}"):
            if step != self.last:
                self.folder.wait()  # before the state is copied: there is one copy at a time
                self.folder.start_saving(step, self.trainer.state(step, self.run_settings))
                self.last = step
            if whole:
                self.folder.wait()


@dataclasses.dataclass
class Evaluation:
    """The evaluations of a run, as of `Trainer.train`."""

    evaluate: Callable[[int], Mapping[str, float]] | None
    steps: int  # between two
    log: TrainingLog

    def ends_at(self, step: int) -> bool:
        """Evaluates where that is due; returns whether training ends there."""
        if self.evaluate and Intervals.is_due(step, self.steps):
            try:
                self.log.write_evaluation(step, self.evaluate(step))
            except StopTraining as reason:
                logging.info("Training stops at step %d: %s", step, reason)
                return True
        return False


def write_eval_results(
    folder: str, results: Mapping[str, float], name: str = files.EVAL_RESULTS
) -> None:
    """Writes and logs eval_results.txt, lines `key = value` as the original writes it."""
    path = tf.io.gfile.join(folder, name)
    text = "".join(f"{key} = {results[key]}\n" for key in sorted(results))
    logging.info("%s:\n%s", path, text.rstrip())
    files.write_text(path, text)


def write_final_evaluation(output_dir: str, results: Mapping[str, float]) -> None:
    """Writes the scores after training as summaries beside those of evaluations on the way.

    Args:
      output_dir: the folder of the run.
      results: as in eval_results.txt, with the global_step at which they belong.

    Raises:
      InputError: the folder cannot be written to.
    """
    folder = tf.io.gfile.join(output_dir, "eval")
    scores = {name: value for name, value in results.items() if name != "global_step"}
    with files.path_errors(folder, "written"):
        writer = _summary_writer(folder)
        _write_scalars(writer, int(results["global_step"]), scores)
        writer.close()


def _summary_writer(folder: str) -> tf.summary.SummaryWriter:
    writes = runtime.is_chief()
    return tf.summary.create_file_writer(folder) if writes else tf.summary.create_noop_writer()


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _write_scalars(writer: Any, step: int, values: Mapping[str, float]) -> None:
    # As tf.summary.scalar does, which needs TensorBoard; only looking at summaries should.
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
    writer.flush()
