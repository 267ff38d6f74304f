"""The loop: batches -> steps -> lines of progress and checkpoints; evaluation and prediction.

Data position, dropout and learning rate are pure functions of the step: a run that is resumed ends
as one that was never stopped. Several processes do all of it alike, each with its own part of every
batch, and the chief alone writes.
"""

import contextlib
import dataclasses
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
from bert_tf.data.batches import RecordBatches
from bert_tf.errors import InputError
from bert_tf.modeling.losses import Batch, Objective, Sums
from bert_tf.training import distribution
from bert_tf.training.intervals import Interrupted, Intervals, StopTraining, noticing_sigterm
from bert_tf.training.logging import TrainingLog
from bert_tf.training.optimization import AdamWeightDecay, trained_names
from bert_tf.training.settings import StepConfig
from bert_tf.training.step import (
    TrainingStep,
    compiled,
    first_replica,
    layer_precision,
    model_inputs,
    sum_over_replicas,
)


class Trainer:
    """Trains and evaluates a model under a `tf.distribute` strategy."""

    def __init__(
        self,
        model_fn: Callable[[], keras.Model],
        objective: Objective,
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
          objective: what is minimised and measured.
          optimizer: how weights are updated.
          strategy: what the model runs on.
          seed: of first weights and dropout.
          freeze: patterns of the names of weights that are left as they are, as for
            `trained_names`. They have no moments, and no gradients are computed for them.
          step_config: precision, micro-batches, compilation; by default those of `StepConfig`.
        """
        self.strategy = strategy
        self.objective = objective
        self.optimizer = optimizer
        self.step_config = step_config or StepConfig()
        self._hosts = distribution.remote_hosts(strategy)
        with strategy.scope(), layer_precision(self.step_config.precision):
            keras.utils.set_random_seed(seed % 2**32)
            self.model = model_fn()
            frozen = {tf1.checkpoint_name(v): v.value for v in self.model.trainable_variables}
            trained = {name: frozen.pop(name) for name in trained_names(list(frozen), freeze)}
            self.step = TrainingStep(
                self.model,
                objective,
                optimizer,
                strategy=strategy,
                config=self.step_config,
                seed=seed,
                weights=trained,
                frozen=frozen,
            )
        self._frozen = frozen
        self._eval_part = (
            compiled(self._sums_of_part) if self.step_config.xla else self._sums_of_part
        )
        self._eval_step = self._there(tf.function(self._eval_step_fn))
        self._predict_steps: dict[tuple[str, ...], Callable] = {}

    # ------------------------------------------------------------------ evaluation

    def _sums_of_part(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        outputs = self.model(model_inputs(self.model, batch), training=False)
        weights = self.objective.denominators(batch)
        losses = self.objective.loss_sums(outputs, batch)
        metrics = self.objective.metric_sums(outputs, batch)
        return tf.reduce_sum(batch["is_real_example"]), weights, losses, metrics

    def _eval_step_fn(self, batch: Batch):
        def on_replica(part):
            return sum_over_replicas(self._eval_part(part))

        results = self.strategy.run(on_replica, args=(batch,))
        return tf.nest.map_structure(lambda x: first_replica(self.strategy, x), results)

    def evaluate(self, batches: RecordBatches) -> dict[str, float]:
        """Loss and metrics over all examples of finite `batches`.

        Returns:
          loss, the mean over batches of the whole loss as in the original (a last, short batch
          counts for its examples), and for each term
          <term>_loss and <term>_accuracy, means over all its items.
        """
        totals: dict[str, float] = {}
        batch_losses, num_examples = [], []
        for sums in self._evaluated(batches):
            examples, weights, loss_sums, metric_sums = sums
            batch_losses.append(float(self.objective.loss(loss_sums, weights)))
            num_examples.append(float(examples))
            named = {f"{term}_loss": value for term, value in loss_sums.items()}
            named |= {f"{term}_weight": value for term, value in weights.items()}
            for name, value in (named | metric_sums).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        results = {"loss": float(np.average(batch_losses, weights=num_examples))}
        for term in self.objective.terms:
            weight = totals.pop(f"{term}_weight")
            for name in (n for n in totals if n.startswith(f"{term}_")):
                results[name] = totals[name] / weight if weight else 0.0
        return results

    def _evaluated(self, batches: RecordBatches):
        """What `_eval_step` gives for each batch."""
        cluster.check_same({"batches of evaluation": batches.num_batches})
        iterator = iter(self._distributed(batches, start=0))
        for _ in range(batches.num_batches):
            with _record_errors(batches):
                sums = self._eval_step(next(iterator))
            yield sums

    def predict(
        self, batches: RecordBatches, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """What the model gives for every example of finite `batches`, each once.

        Args:
          batches: in any order.
          names: which outputs of the model.

        Yields:
          For each batch the rows of its real examples [R], and the outputs [R, ...] by name.
        """
        cluster.check_same({"batches of prediction": batches.num_batches})
        step = self._predict_step(tuple(names))
        iterator = iter(self._distributed(batches, start=0))
        for number in range(batches.num_batches):
            with _record_errors(batches):
                outputs = step(next(iterator))
            rows = batches.batch_rows(number)
            yield rows, {n: self._whole(value)[: len(rows)] for n, value in outputs.items()}

    def _whole(self, value) -> np.ndarray:
        """The rows of all replicas, in order."""
        if cluster.has_peers():  # they were gathered: every replica has them all
            return first_replica(self.strategy, value).numpy()
        return np.concatenate(self.strategy.experimental_local_results(value))

    def _predict_step(self, names: tuple[str, ...]) -> Callable:
        """Kept, so that what was compiled for one evaluation serves the next."""

        def on_replica(part):
            outputs = self._predict_part(names)(part)
            if not cluster.has_peers():
                return outputs
            context = tf.distribute.get_replica_context()
            return {name: context.all_gather(value, axis=0) for name, value in outputs.items()}

        def step(batch):
            return self.strategy.run(on_replica, args=(batch,))

        return self._predict_steps.setdefault(names, self._there(tf.function(step)))

    def _predict_part(self, names: Sequence[str]) -> Callable:
        """Those outputs of a replica's rows."""

        def compute(batch):
            outputs = self.model(model_inputs(self.model, batch), training=False)
            return {name: tf.cast(outputs[name], tf.float32) for name in names}

        return compiled(compute) if self.step_config.xla else compute

    # ------------------------------------------------------------------ the outer loop

    def _distributed(self, batches: RecordBatches, *, start: int):
        replicas = self.strategy.num_replicas_in_sync
        if self._hosts:
            here = batches.dataset(start=start, num_parts=replicas, parts_here=replicas)
            return self._sent(iter(here))

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = replicas // context.num_input_pipelines
            parts = batches.dataset(
                start=start,
                num_parts=replicas,
                first_part=context.input_pipeline_id * here,
                parts_here=here,
            )
            # Else, for several hosts, TensorFlow forgets the number of rows, as the last part could
            # be short. None is, and nobody asks for one beyond the last.
            endless = tf.data.experimental.INFINITE_CARDINALITY
            return parts.apply(tf.data.experimental.assert_cardinality(endless))

        return self.strategy.distribute_datasets_from_function(dataset)

    def _sent(self, parts: Iterator[Batch]) -> Iterator[Batch]:
        """Batches of parts that are made here, each sent to the machine of its replica."""

        def send(context: tf.distribute.experimental.ValueContext) -> Batch:
            part = next(parts)
            with tf.device(self._hosts[context.replica_id_in_sync_group]):
                return {name: tf.identity(value) for name, value in part.items()}

        while True:
            yield self.strategy.experimental_distribute_values_from_function(send)

    def _there(self, function: Callable) -> Callable:
        """The function, run on the machine of the devices, where its tensors must be.

        Not here: that machine answers this one, but may have no way to ask it for a value.
        """
        if not self._hosts:
            return function

        def run(*args):
            with tf.device(self._hosts[0]):
                return function(*args)

        return run

    def train(
        self,
        batches: RecordBatches,
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
          batches: endless; batch t is that of step t.
          num_train_steps: updates in all, those before a resume included.
          folder: where checkpoints are written.
          intervals: how often to log, save and evaluate.
          run_settings: what decides the run's result; noted in checkpoints, compared on resume.
          on_begin: called before the first step, if there are any to be done.
          evaluate: called with the step every `intervals.eval_steps`, before the first step too;
            returns what is logged. It raises `StopTraining` if that is to be the last step.
          on_stop: called at each stop with the step and the mean losses since the last stop.

        Raises:
          InputError: the loss or the gradients are not finite, or a record cannot be used; the last
            checkpoint stays. Or the folder has the end of a run with other facts.
        """
        self.step_config.check_batch_size(batches.batch_size, self.strategy.num_replicas_in_sync)
        step = self.restore(folder, run_settings)
        if cluster.has_peers():
            self._check_same_everywhere(batches, {**run_settings, **dataclasses.asdict(intervals)})
        if step >= num_train_steps:
            tf1.check_finished_run(folder.latest(), run_settings)
            logging.info("Already trained for %d steps of %d.", step, num_train_steps)
            return
        if on_begin:
            on_begin()
        self._report_size()
        progress = TrainingLog(folder.path, batches.batch_size, num_train_steps, step)
        # Again after a resume: the run may have been killed in the middle of it.
        if reason := self._evaluate_on_the_way(progress, step, evaluate, intervals):
            logging.info("Training stops at step %d: %s", step, reason)
            return
        iterator = iter(self._distributed(batches, start=step))
        with noticing_sigterm() as sigterm_came:
            while step < num_train_steps:
                stop = intervals.next_stop(step, num_train_steps)
                losses, kept_steps = self._checked_steps(iterator, step, stop, batches, folder)
                progress.add(losses, kept_steps)
                step = stop
                if on_stop:
                    on_stop(step, losses)
                if intervals.is_due(step, intervals.log_steps) or step == num_train_steps:
                    rate = float(self.optimizer.schedule(tf.constant(step - 1)))
                    progress.report(step, rate)
                saves = (
                    intervals.is_due(step, intervals.save_checkpoints_steps)
                    or step == num_train_steps
                )
                if saves:
                    folder.save(step, self.state(step, run_settings))
                reason, interrupted = None, cluster.any_process(sigterm_came())
                if not interrupted:  # else the run that goes on evaluates here
                    reason = self._evaluate_on_the_way(progress, step, evaluate, intervals)
                    interrupted = cluster.any_process(sigterm_came())
                if (reason or interrupted) and not saves:
                    folder.save(step, self.state(step, run_settings))
                if interrupted:
                    raise Interrupted(step, folder.path)
                if reason:
                    logging.info("Training stops at step %d: %s", step, reason)
                    return

    def _check_same_everywhere(self, batches: RecordBatches, facts: Mapping[str, Any]) -> None:
        """Refuses processes that train otherwise, or meet elsewhere, than others of the run."""
        # The same weights may lie at different places.
        facts = {name: fact for name, fact in facts.items() if name != "init_checkpoint"}
        weights = 0
        for variable in [*self.step.weights, *self._frozen.values()]:
            weights = zlib.crc32(variable.numpy().tobytes(), weights)
        cluster.check_same(
            {
                "flags": zlib.crc32(json.dumps(facts, sort_keys=True).encode()),
                "records": batches.fingerprint(),
                "first weights": weights,
            }
        )

    def _report_size(self) -> None:
        trained = sum(weight.shape.num_elements() for weight in self.step.weights)
        frozen = sum(weight.shape.num_elements() for weight in self._frozen.values())
        logging.info("%d of %d parameters are trained.", trained, trained + frozen)

    def run_steps(self, iterator, step: int, stop: int) -> dict[str, float]:
        """The updates of steps `step` to `stop` - 1; the mean of each loss over them.

        Args:
          iterator: of what `_distributed` gives, at the batch of `step`.
          step: number of updates made.
          stop: number of updates afterwards.
        """
        if self._hosts:
            losses = self._run_each(iterator, step, stop)
        else:
            losses = self.step.run(iterator, tf.constant(step), tf.constant(stop - step))
        return {name: float(value) for name, value in losses.items()}

    def _run_each(self, iterator, step: int, stop: int) -> Sums:
        """As `TrainingStep.run`, by a call for each batch."""
        totals = self._there(self.step.no_losses)()
        for number in range(step, stop):
            batch = next(iterator)  # made here
            with tf.device(self._hosts[0]):
                totals = self.step.add_losses(totals, batch, tf.constant(number))
        return self._there(self.step.means)(totals, stop - step)

    def _checked_steps(self, iterator, step: int, stop: int, batches, folder):
        """The mean losses of steps that were not skipped, and how many those are."""
        with _record_errors(batches):
            losses = self.run_steps(iterator, step, stop)
        kept_steps = round(losses.pop("kept_steps", stop - step))
        if not kept_steps and not self.step.loss_scale.is_least:
            losses = {}
        elif not kept_steps or not np.isfinite(list(losses.values())).all():
            raise self._not_finite(losses, step, stop, folder)
        if kept_steps < stop - step:
            logging.warning(
                "%d of %d steps up to %d were skipped: their gradients were beyond float16. The "
                "loss scale is %g now.",
                stop - step - kept_steps,
                stop - step,
                stop,
                self.step.loss_scale.scale.numpy(),
            )
        return losses, kept_steps

    def _not_finite(self, losses, step: int, stop: int, folder) -> InputError:
        if self.step.loss_scale is None:
            received = (
                f"a loss of {losses['loss']} with gradients of norm {losses['gradient_norm']}"
            )
        else:
            received = "gradients beyond float16 in every step, with the least loss scale,"
        other = "" if self.step.loss_scale is None else "--precision=bfloat16, or "
        return InputError(
            received=f"{received} between steps {step} and {stop}",
            expected="finite numbers",
            remedy=f"start again with {other}a lower --learning_rate or a longer warm-up; "
            f"the last checkpoint before it is {folder.latest() or 'none'}",
        )

    def _evaluate_on_the_way(self, progress, step: int, evaluate, intervals: Intervals):
        """Evaluates if it is time; gives the reason to stop if the evaluation has one."""
        if evaluate is None or not intervals.is_due(step, intervals.eval_steps):
            return None
        try:
            progress.report_evaluation(step, evaluate(step))
        except StopTraining as reason:
            return reason
        return None

    # ------------------------------------------------------------------ checkpoints

    def state(self, step: int, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """All that a run needs to go on: weights, moments, step, and facts to compare."""
        tensors: dict[str, Any] = {
            tf1.GLOBAL_STEP: np.int64(step),
            tf1.RUN_SETTINGS: json.dumps(dict(run_settings), sort_keys=True),
            **self._frozen,
        }
        for name, weight, m, v in self.step.named_variables():
            tensors |= {name: weight, f"{name}/adam_m": m, f"{name}/adam_v": v}
        if self.step.loss_scale:
            tensors |= self.step.loss_scale.variables
        return {k: v.numpy() if isinstance(v, tf.Variable) else v for k, v in tensors.items()}

    def restore(self, folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> int:
        """Puts the folder's latest checkpoint into model and moments; returns its step, or 0.

        Raises:
          InputError: the checkpoint is damaged, or is of another model.
        """
        prefix = folder.latest()
        _check_same_step(folder, tf1.step_of(prefix or ""))
        if prefix is None:
            return 0
        reader = tf1.CheckpointReader(prefix)
        tf1.warn_of_changed_settings(reader.run_settings(), run_settings)
        load_checkpoint(self.model, prefix, required="")
        for name, _, m, v in self.step.named_variables():
            for moment, slot in ((m, f"{name}/adam_m"), (v, f"{name}/adam_v")):
                if slot in reader.shapes:
                    moment.assign(reader.read(slot))
                else:
                    logging.warning("%s has no %s; it starts at 0.", prefix, slot)
                    moment.assign(tf.zeros_like(moment))
        if scale := self.step.loss_scale:
            there = [name for name in scale.variables if name in reader.shapes]
            scale.restore({n: reader.read(n) for n in there})
        step = int(reader.read(tf1.GLOBAL_STEP))
        logging.info("Going on from %s, step %d.", prefix, step)
        return step


@contextlib.contextmanager
def _record_errors(batches: RecordBatches) -> Iterator[None]:
    """Raises what is wrong with a record in the place of what tf.data makes of it."""
    try:
        yield
    except tf.errors.OpError:
        if batches.error:
            raise batches.error from None
        raise


def _check_same_step(folder: tf1.CheckpointFolder, step: int) -> None:
    """Refuses folders that are not the same for all processes."""
    steps = cluster.all_gather(step)
    if len(set(steps)) > 1:
        raise InputError(
            received=f"{folder.path}, whose latest checkpoint is of step {step} here; the "
            f"processes of this run see those of steps {', '.join(map(str, steps))}",
            expected="one folder, which all processes see",
            remedy="let --output_dir be on a file system that they share, or gs://",
        )
