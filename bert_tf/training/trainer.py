"""The loop: batches -> steps -> logged losses and checkpoints; evaluation and prediction.

Data position, dropout and learning rate are pure functions of the step, so a resumed run ends
exactly as an undisturbed one. Of several processes each does all of this on its part of every
batch, and only the chief writes.
"""

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import load_checkpoint
from bert_tf.checkpoints.run_settings import check_finished_run, warn_of_changed_settings
from bert_tf.data.batches import Batches
from bert_tf.heads.head import Batch, Head, Sums
from bert_tf.runtime import noticing_sigterm, sigterm_came
from bert_tf.terminal.progress import Progress, announced
from bert_tf.terminal.watchdog import WATCHDOG
from bert_tf.training.distribution import (
    check_same_step,
    distributed_batches,
    on_remote_host,
    on_this_host,
    remote_hosts,
)
from bert_tf.training.logging import Pace, TrainingLog
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.step import (
    TrainingStep,
    first_replica,
    layer_precision,
    model_inputs,
    sum_over_replicas,
    with_xla,
)
from bert_tf.training.stops import Stops


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
            self.training_step = TrainingStep(
                self.model, objective, optimizer, strategy, config, seed=seed, freeze=freeze
            )
        self._eval_part = with_xla(self._sums_of_part, config.xla)
        self._eval_step = tf.function(self._eval_step_fn)
        self._predict_steps: dict[tuple[str, ...], Callable] = {}
        self._compiled: set[tuple[Callable, tf.TensorShape]] = set()  # steps for shapes of batches
        self._pace = Pace()

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
        on_stop: Callable[[int, Mapping[str, float]], None] | None = None,
    ) -> None:
        """Trains up to `num_train_steps`, from the last checkpoint of the folder if there is one.

        Args:
          batches: at least `num_train_steps` of them; batch t is that of step t.
          num_train_steps: updates in all, those before a resume included.
          folder: where checkpoints are written.
          intervals: how often to log, save and evaluate.
          run_settings: what decides the run's result; recorded in checkpoints, compared on resume.
          on_begin: called before the first step, unless the run has ended already.
          evaluate: called with the step every `intervals.eval_steps`, also before the first step;
            returns what is logged. Raises `StopTraining` to make that step the last one.
          on_stop: called at each stop with the step and the mean losses since the last stop.

        Raises:
          InputError: loss, gradients or initial weights are not finite, or a record is invalid;
            the last checkpoint is kept. Or the folder has a finished run with other settings.
          Interrupted: a SIGTERM came; a checkpoint has been written.
        """
        self.step_config.check_batch_size(batches.batch_size, self.strategy.num_replicas_in_sync)
        step = self.restore(folder, run_settings)
        if cluster.has_peers():
            self._check_same_everywhere(batches, {**run_settings, **dataclasses.asdict(intervals)})
        if step >= num_train_steps:
            check_finished_run(folder.latest(), run_settings)
            logging.info("Already trained for %d steps of %d.", step, num_train_steps)
            return
        if on_begin:
            on_begin()
        self._check_beginning()
        log = TrainingLog(folder.path, batches.batch_size, num_train_steps, step)
        state = functools.partial(self.state, run_settings=run_settings)
        stops = Stops(folder, log, intervals, num_train_steps, state=state, evaluate=evaluate)
        stops.evaluate(step)  # also after a resume: the run may have been killed meanwhile
        iterator = distributed_batches(self.strategy, batches, start=step)
        with (
            noticing_sigterm() as sigterm_came,
            Progress("train", num_train_steps, "steps", done=step) as progress,
            WATCHDOG.watched("train"),
            folder.whole_at_end(),
        ):
            while step < num_train_steps and not stops.is_last:
                stop = intervals.next_stop(step, num_train_steps)
                step, losses, kept_steps = self._checked_steps(
                    iterator, step, stop, batches, folder, progress
                )
                log.add(losses, kept_steps)
                if on_stop:
                    on_stop(step, losses)
                folder.raise_error()
                if stops.is_due(step, intervals.log_steps):
                    log.write(step, self.optimizer.schedule.rate(step - 1))
                    progress.said()
                stops.at(step, sigterm_came)

    def _check_beginning(self) -> None:
        """Checks the weights, and logs what there is to know before the first step."""
        self.training_step.check_weights()
        if warning := self.optimizer.schedule.warning():
            logging.warning("%s", warning)
        trained = sum(weight.shape.num_elements() for weight in self.training_step.weights)
        logging.info("%d of %d parameters are trained.", trained, self.model.count_params())

    def run_steps(self, iterator: Iterator, step: int, stop: int) -> dict[str, float]:
        """Makes the updates of steps `step` to `stop` - 1.

        Args:
          iterator: of `distributed_batches`, at the batch of `step`.
          step: number of updates made before.
          stop: number of updates made afterwards.

        Returns:
          The mean of each loss over the steps that were not skipped, and their number, kept_steps.
        """
        return self._run_steps(iterator, step, stop)[1]

    def _run_steps(
        self, iterator: Iterator, step: int, stop: int, progress: Progress | None = None
    ) -> tuple[int, dict[str, float]]:
        """The number of updates made afterwards, and what `run_steps` gives.

        A progress is updated about every second, after calls that hand on their totals. Then a
        process without peers also looks for a SIGTERM, and stops early.
        """
        with on_remote_host(self.strategy):
            totals = self.training_step.no_steps()
        while step < stop:
            whole = progress is None or cluster.has_peers()
            with self._pace.call(step, stop, whole=whole) as number:
                totals = self._add_steps(totals, iterator, step, number)
                loss, *_, kept_steps = totals.numpy()  # waits for the device
            step += number
            if progress:
                progress.update(step, f", loss {loss / max(1.0, kept_steps):.4f}")
            if not whole and sigterm_came():
                break
        with on_remote_host(self.strategy):
            losses = self.training_step.means(totals)
        return step, {name: float(value) for name, value in losses.items()}

    def _add_steps(self, totals: tf.Tensor, iterator: Iterator, step: int, number: int):
        """`totals` with the losses of `number` updates from `step` on."""
        if not remote_hosts(self.strategy):
            return self.training_step.run(totals, iterator, tf.constant(step), tf.constant(number))
        for one in range(step, step + number):  # batches are made in this process
            batch = next(iterator)
            with on_remote_host(self.strategy):
                totals = self.training_step.add_step(totals, batch, tf.constant(one))
        return totals

    def _checked_steps(self, iterator, step: int, stop: int, batches, folder, progress):
        """The updates made, the mean losses of steps that were not skipped, and their number."""
        first = step
        with batches.record_errors():
            step, losses = self._run_steps(iterator, first, stop, progress)
        kept_steps = round(losses.pop("kept_steps"))
        if not kept_steps and not self.training_step.loss_scale.is_least:
            losses = {}
        elif not kept_steps or not np.isfinite(list(losses.values())).all():
            raise self.training_step.not_finite(losses, first, step, folder.latest())
        if skipped := step - first - kept_steps:
            logging.warning(
                "%d of %d steps up to %d were skipped: their gradients were beyond float16. The "
                "loss scale is %g now.",
                *(skipped, step - first, step),
                self.training_step.loss_scale.scale.numpy(),
            )
        return step, losses, kept_steps

    def _check_same_everywhere(self, batches: Batches, settings: Mapping[str, Any]) -> None:
        """Raises InputError if processes of the run differ in settings, data or weights."""
        # The same weights may have another path on another host.
        settings = {name: value for name, value in settings.items() if name != "init_checkpoint"}
        weights = 0
        for variable in [*self.training_step.weights, *self.training_step.frozen.values()]:
            weights = zlib.crc32(variable.numpy().tobytes(), weights)
        cluster.check_same(
            {
                "records": batches.fingerprint(),  # first: it is one of the settings, too
                "flags": zlib.crc32(json.dumps(settings, sort_keys=True).encode()),
                "first weights": weights,
            }
        )

    # ------------------------------------------------------------------ evaluation

    def evaluate(self, batches: Batches) -> dict[str, float]:
        """Loss and metrics over all examples of finite `batches`.

        Returns:
          loss, the mean over batches of the whole loss as in the original (a last, short batch
          counts for its examples), and for each term <term>_loss and <term>_accuracy, means over
          all its items.
        """
        totals: dict[str, float] = {}
        batch_losses, num_examples = [], []
        for result in self._results("evaluate", self._eval_step, batches):
            examples, denominators, loss_sums, metric_sums = result
            batch_losses.append(float(self.objective.loss(loss_sums, denominators)))
            num_examples.append(float(examples))
            named = {f"{term}_loss": value for term, value in loss_sums.items()}
            for name, value in (named | metric_sums | denominators).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        results = {"loss": float(np.average(batch_losses, weights=num_examples))}
        for term in self.objective.terms:
            denominator = totals.pop(term)
            for name in (n for n in totals if n.startswith(f"{term}_")):
                results[name] = totals[name] / denominator if denominator else 0.0
        return results

    def _eval_step_fn(self, batch: Batch):
        def on_replica(part):
            return sum_over_replicas(self._eval_part(part))

        results = self.strategy.run(on_replica, args=(batch,))
        return tf.nest.map_structure(lambda x: first_replica(self.strategy, x), results)

    def _sums_of_part(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        """Of a replica's rows: number of examples, denominators, summed losses, summed metrics."""
        outputs = self.model(model_inputs(self.model, batch), training=False)
        return (
            tf.reduce_sum(batch["is_real_example"]),
            self.objective.denominators(batch),
            self.objective.loss_sums(outputs, batch),
            self.objective.metric_sums(outputs, batch),
        )

    # ------------------------------------------------------------------ prediction

    def predict(self, batches: Batches, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Outputs of the model for the rows of finite `batches`.

        Args:
          batches: in any order.
          names: of the outputs.

        Yields:
          For each batch the outputs float32 [B, ...] by name.
        """
        step_fn = self._predict_step(tuple(names))
        for outputs in self._results("predict", step_fn, batches):
            yield {name: self._all_rows(value) for name, value in outputs.items()}

    def _predict_step(self, names: tuple[str, ...]) -> Callable:
        """Kept, so that one compilation serves all evaluations of a run."""
        part_fn = self._predict_part(names)

        def on_replica(part):
            outputs = part_fn(part)
            if not cluster.has_peers():
                return outputs
            context = tf.distribute.get_replica_context()
            return {name: context.all_gather(value, axis=0) for name, value in outputs.items()}

        def step_fn(batch):
            return self.strategy.run(on_replica, args=(batch,))

        return self._predict_steps.setdefault(names, tf.function(step_fn))

    def _predict_part(self, names: Sequence[str]) -> Callable:
        """A function of a replica's rows that gives these outputs."""

        def compute(batch):
            outputs = self.model(model_inputs(self.model, batch), training=False)
            return {name: tf.cast(outputs[name], tf.float32) for name in names}

        return with_xla(compute, self.step_config.xla)

    def _all_rows(self, value) -> np.ndarray:
        """The rows of all replicas, in order."""
        if cluster.has_peers():  # they were gathered: every replica has them all
            return first_replica(self.strategy, value).numpy()
        return np.concatenate(self.strategy.experimental_local_results(value))

    def _results(self, label: str, step_fn: Callable, batches: Batches) -> Iterator[Any]:
        """Yields `step_fn(batch)` for each of finite `batches`."""
        if cluster.has_peers():
            same = {"batches": batches.num_batches, "records": batches.fingerprint()}
            cluster.check_same({f"{name} to {label}": number for name, number in same.items()})
        iterator = distributed_batches(self.strategy, batches)
        last = batches.num_batches
        with Progress(label, last, "batches") as progress, WATCHDOG.watched(label) as watch:
            for number in range(last):
                watch.doing(what := f"{label}, batch {number + 1} of {last}")
                with batches.record_errors():
                    batch = next(iterator)
                shape = first_replica(self.strategy, batch["input_ids"]).shape
                is_new = (step_fn, shape) not in self._compiled
                self._compiled.add((step_fn, shape))
                watch.doing(what, compiles=is_new)
                with announced(f"compile: {label}", when=is_new), on_remote_host(self.strategy):
                    result = step_fn(batch)
                yield result
                progress.update(number + 1)

    # ------------------------------------------------------------------ checkpoints

    def state(self, step: int, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """All that a run needs to go on: weights, moments, step, and settings to compare.

        The values are in this host's memory, and later steps do not change them: TensorFlow copies
        a weight of a CPU when a step updates it while its value is still in use.
        """
        tensors: dict[str, Any] = {
            tf1.GLOBAL_STEP: np.int64(step),
            tf1.RUN_SETTINGS: json.dumps(dict(run_settings), sort_keys=True),
            **self.training_step.frozen,
        }
        for name, weight, m, v in self.training_step.named_variables():
            tensors |= {name: weight, f"{name}/adam_m": m, f"{name}/adam_v": v}
        if self.training_step.loss_scale:
            tensors |= self.training_step.loss_scale.variables
        return {n: on_this_host(v) if isinstance(v, tf.Variable) else v for n, v in tensors.items()}

    def restore(self, folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> int:
        """Loads the folder's latest checkpoint into model and moments; returns its step, or 0.

        Raises:
          InputError: the checkpoint is damaged, or is of another model.
        """
        prefix = folder.latest()
        check_same_step(folder, tf1.step_of(prefix or ""))
        if prefix is None:
            return 0
        reader = tf1.CheckpointReader(prefix)
        warn_of_changed_settings(reader.run_settings(), run_settings)
        load_checkpoint(self.model, prefix, required="")
        for name, _, m, v in self.training_step.named_variables():
            for moment, slot in ((m, f"{name}/adam_m"), (v, f"{name}/adam_v")):
                if slot in reader.shapes:
                    moment.assign(reader.read(slot))
                else:
                    logging.warning("%s has no %s; it starts at 0.", prefix, slot)
                    moment.assign(tf.zeros_like(moment))
        if scale := self.training_step.loss_scale:
            saved = [name for name in scale.variables if name in reader.shapes]
            scale.restore({name: reader.read(name) for name in saved})
        step = int(reader.read(tf1.GLOBAL_STEP))
        logging.info("Loaded checkpoint %s, step %d.", prefix, step)
        return step
