"""The loop: batches -> loss -> gradients -> one update of the whole batch; and evaluation.

One step, on R replicas that each hold B / R rows:

    weights    summed over replicas             how many masked positions, how many examples
    loss       of the replica's rows, divided by the weights of all
    gradients  summed over replicas             now those of the whole batch's mean loss
    clip       by their global norm
    update     the same on every replica

So R replicas compute what one does. Data position, dropout and learning rate are pure functions of
the step: a run that is resumed ends as one that was never stopped.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.dropout import GOLDEN_RATIO, dropout_key, mix
from bert_tf.errors import InputError
from bert_tf.losses import Batch, Objective, Sums
from bert_tf.optimization import (
    AdamWeightDecay,
    clip_by_global_norm,
    layer_scales,
    trained_names,
)
from bert_tf.pace import Pace, StopTraining
from bert_tf.progress import Progress
from bert_tf.records import RecordBatches
from bert_tf.weights import load_checkpoint


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
        compiled: bool = True,
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
          compiled: compile with XLA.
        """
        self.strategy = strategy
        self.objective = objective
        self.optimizer = optimizer
        self.seed = seed
        self._compiled = compiled
        with strategy.scope():
            keras.utils.set_random_seed(seed % 2**32)
            self.model = model_fn()
            every = {
                checkpoints.checkpoint_name(v): v.value for v in self.model.trainable_variables
            }
            self._names = trained_names(list(every), freeze)
            self._weights = [every.pop(name) for name in self._names]
            self._frozen = every
            self._moments_m = [_zeros_like(w) for w in self._weights]
            self._moments_v = [_zeros_like(w) for w in self._weights]
        self._scales = layer_scales([*self._names, *self._frozen], optimizer.layerwise_lr_decay)
        one_replica = strategy.num_replicas_in_sync == 1
        # On one replica all of the step is one XLA program. On several only the part between two
        # all-reduces can be: XLA on CPU and GPU does not know the other replicas.
        self._step_fn = self._jit(self._replica_step) if one_replica else self._replica_step
        self._train_loop = tf.function(self._train_loop_fn)
        self._eval_step = tf.function(self._eval_step_fn)
        self._predict_steps: dict[tuple[str, ...], Callable] = {}

    def _jit(self, function: Callable) -> Callable:
        return (
            tf.function(function, jit_compile=True, autograph=False) if self._compiled else function
        )

    # ------------------------------------------------------------------ one training step

    def _replica_step(self, batch: Batch, step: tf.Tensor) -> Sums:
        """One update; returns the losses of the whole batch and the norm of its gradients."""
        context = tf.distribute.get_replica_context()
        weights = _sum_over_replicas(self.objective.weights(batch))
        loss_sums, gradients = self._loss_and_gradients(batch, weights, step, context)
        loss_sums = _sum_over_replicas(loss_sums)
        gradients = _sum_over_replicas(gradients)
        clipped, norm = clip_by_global_norm(list(gradients.values()), self.optimizer.clip_norm)
        context.merge_call(self._update, args=(dict(zip(gradients, clipped, strict=True)), step))
        losses = {"loss": self.objective.loss(loss_sums, weights), "gradient_norm": norm}
        for term in self.objective.terms:
            one_term = {t: s if t == term else tf.zeros_like(s) for t, s in loss_sums.items()}
            losses[f"{term}_loss"] = self.objective.loss(one_term, weights)
        return losses

    def _loss_and_gradients(self, batch: Batch, weights: Sums, step: tf.Tensor, context):
        rows = batch["is_real_example"].shape[0]
        first_row = tf.cast(context.replica_id_in_sync_group, tf.int32) * rows

        def compute(batch, weights, step, first_row):
            with dropout_key(_step_seed(self.seed, step), first_row):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(self._weights)
                    outputs = self.model(self._inputs(batch), training=True)
                    loss_sums = self.objective.loss_sums(outputs, batch)
                    loss = self.objective.loss(loss_sums, weights)
                gradients = tape.gradient(loss, self._weights)
            # A weight that the loss does not depend on is left alone: not decayed either.
            named = zip(self._names, gradients, strict=True)
            return loss_sums, {n: tf.convert_to_tensor(g) for n, g in named if g is not None}

        if self.strategy.num_replicas_in_sync > 1:
            compute = self._jit(compute)
        return compute(batch, weights, step, first_row)

    def _update(self, strategy: tf.distribute.Strategy, gradients, step: tf.Tensor) -> None:
        """Updates every weight and its moments, on every device; cross-replica context."""
        for name, weight, m, v in self._named_variables():
            if name not in gradients:
                continue
            options = {"decays": self.optimizer.decays(name), "scale": self._scales[name]}

            def update(weight, m, v, gradient, step, options=options):
                new = self.optimizer.updated(weight, m, v, gradient, step=step, **options)
                for variable, value in zip((weight, m, v), new, strict=True):
                    variable.assign(value)

            strategy.extended.update(weight, update, args=(m, v, gradients[name], step))

    def _train_loop_fn(self, iterator, first_step: tf.Tensor, num_steps: tf.Tensor) -> Sums:
        """`num_steps` updates; returns the mean of each loss over them."""
        names = ["loss", "gradient_norm", *(f"{term}_loss" for term in self.objective.terms)]
        totals = tf.zeros([len(names)])
        for i in tf.range(num_steps):
            losses = self.strategy.run(self._step_fn, args=(next(iterator), first_step + i))
            totals += tf.stack([_first_replica(self.strategy, losses[name]) for name in names])
        means = tf.unstack(totals / tf.cast(num_steps, tf.float32))
        return dict(zip(names, means, strict=True))

    def _inputs(self, batch: Batch) -> Batch:
        return {name: batch[name] for name in self.model.input}

    # ------------------------------------------------------------------ evaluation

    def _eval_step_fn(self, batch: Batch) -> Sums:
        def compute(batch):
            outputs = self.model(self._inputs(batch), training=False)
            weights = self.objective.weights(batch)
            losses = self.objective.loss_sums(outputs, batch)
            metrics = self.objective.metric_sums(outputs, batch)
            return tf.reduce_sum(batch["is_real_example"]), weights, losses, metrics

        def replica_step(batch):
            return _sum_over_replicas(self._jit(compute)(batch))

        results = self.strategy.run(replica_step, args=(batch,))
        return tf.nest.map_structure(lambda x: _first_replica(self.strategy, x), results)

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

        step = self._predict_step(tuple(names))
        iterator = iter(self._distributed(batches, start=0))
        for number in range(batches.num_batches):
            with _record_errors(batches):
                outputs = step(next(iterator))
            rows = batches.batch_rows(number)
            local = {n: self.strategy.experimental_local_results(v) for n, v in outputs.items()}
            yield rows, {n: np.concatenate(v)[: len(rows)] for n, v in local.items()}

    def _predict_step(self, names: tuple[str, ...]) -> Callable:
        """Kept, so that what was compiled for one evaluation serves the next."""

        def compute(batch):
            outputs = self.model(self._inputs(batch), training=False)
            return {name: tf.cast(outputs[name], tf.float32) for name in names}

        def step(batch):
            return self.strategy.run(lambda part: self._jit(compute)(part), args=(batch,))

        return self._predict_steps.setdefault(names, tf.function(step))

    # ------------------------------------------------------------------ the outer loop

    def _distributed(self, batches: RecordBatches, *, start: int):
        replicas = self.strategy.num_replicas_in_sync

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            here = replicas // context.num_input_pipelines
            return batches.dataset(
                start=start,
                num_parts=replicas,
                first_part=context.input_pipeline_id * here,
                parts_here=here,
            )

        return self.strategy.distribute_datasets_from_function(dataset)

    def train(
        self,
        batches: RecordBatches,
        *,
        num_train_steps: int,
        folder: checkpoints.CheckpointFolder,
        pace: Pace,
        run_facts: Mapping[str, Any],
        evaluate: Callable[[int], Mapping[str, float]] | None = None,
        on_stop: Callable[[int, Mapping[str, float]], None] | None = None,
    ) -> None:
        """Trains up to `num_train_steps`, from the last checkpoint of the folder if there is one.

        Args:
          batches: endless; batch t is that of step t.
          num_train_steps: updates in all, those before a resume included.
          folder: where checkpoints are written.
          pace: how often to log, save and evaluate.
          run_facts: what decides the run's result; noted in checkpoints, compared on resume.
          evaluate: called with the step every `pace.eval_steps`, before the first step too; gives
            what is reported. It raises `StopTraining` if that is to be the last step.
          on_stop: called at each stop with the step and the mean losses since the last stop.

        Raises:
          InputError: the loss or the gradients are not finite, or a record cannot be used. The
            last checkpoint stays.
        """
        step = self.restore(folder, run_facts)
        if step >= num_train_steps:
            logging.info("Already trained for %d steps of %d.", step, num_train_steps)
            return
        self._report_size()
        progress = Progress(folder.path, batches.batch_size, num_train_steps, step)
        # Again after a resume: the run may have been killed in the middle of it.
        self._evaluate_on_the_way(progress, step, evaluate, pace)
        iterator = iter(self._distributed(batches, start=step))
        while step < num_train_steps:
            stop = pace.next_stop(step, num_train_steps)
            losses = self._checked_steps(iterator, step, stop, batches, folder)
            progress.add(losses, stop - step)
            step = stop
            if on_stop:
                on_stop(step, losses)
            if pace.is_due(step, pace.log_steps) or step == num_train_steps:
                rate = float(self.optimizer.schedule(tf.constant(step - 1)))
                progress.report(step, rate)
            if pace.is_due(step, pace.save_checkpoints_steps) or step == num_train_steps:
                folder.save(step, self.state(step, run_facts))
            try:
                self._evaluate_on_the_way(progress, step, evaluate, pace)
            except StopTraining as reason:
                logging.info("Training stops at step %d: %s", step, reason)
                if not pace.is_due(step, pace.save_checkpoints_steps):
                    folder.save(step, self.state(step, run_facts))
                return

    def _report_size(self) -> None:
        trained = sum(weight.shape.num_elements() for weight in self._weights)
        frozen = sum(weight.shape.num_elements() for weight in self._frozen.values())
        logging.info("%d of %d parameters are trained.", trained, trained + frozen)

    def run_steps(self, iterator, step: int, stop: int) -> dict[str, float]:
        """The updates of steps `step` to `stop` - 1; the mean of each loss over them.

        Args:
          iterator: of a distributed dataset, at the batch of `step`.
          step: number of updates made.
          stop: number of updates afterwards.
        """
        losses = self._train_loop(iterator, tf.constant(step), tf.constant(stop - step))
        return {name: float(value) for name, value in losses.items()}

    def _checked_steps(self, iterator, step: int, stop: int, batches, folder) -> dict[str, float]:
        with _record_errors(batches):
            losses = self.run_steps(iterator, step, stop)
        if not np.isfinite(list(losses.values())).all():
            raise InputError(
                received=f"a loss of {losses['loss']} with gradients of norm "
                f"{losses['gradient_norm']} between steps {step} and {stop}",
                expected="finite numbers",
                remedy="start again with a lower --learning_rate or more --num_warmup_steps; the "
                f"last checkpoint before it is {folder.latest() or 'none'}",
            )
        return losses

    def _evaluate_on_the_way(self, progress, step: int, evaluate, pace: Pace) -> None:
        if evaluate is not None and pace.is_due(step, pace.eval_steps):
            progress.report_evaluation(step, evaluate(step))

    # ------------------------------------------------------------------ checkpoints

    def state(self, step: int, run_facts: Mapping[str, Any]) -> dict[str, Any]:
        """All that a run needs to go on: weights, moments, step, and facts to compare."""
        tensors: dict[str, Any] = {
            checkpoints.GLOBAL_STEP: np.int64(step),
            checkpoints.RUN_FACTS: json.dumps(dict(run_facts), sort_keys=True),
            **self._frozen,
        }
        for name, weight, m, v in self._named_variables():
            tensors |= {name: weight, f"{name}/adam_m": m, f"{name}/adam_v": v}
        return {k: v.numpy() if isinstance(v, tf.Variable) else v for k, v in tensors.items()}

    def restore(self, folder: checkpoints.CheckpointFolder, run_facts: Mapping[str, Any]) -> int:
        """Puts the folder's latest checkpoint into model and moments; returns its step, or 0.

        Raises:
          InputError: the checkpoint is damaged, or is of another model.
        """
        prefix = folder.latest()
        if prefix is None:
            return 0
        reader = checkpoints.open_checkpoint(prefix)
        checkpoints.warn_of_other_facts(
            checkpoints.read_run_facts(reader, prefix=prefix), run_facts
        )
        load_checkpoint(self.model, prefix, required="")
        for name, _, m, v in self._named_variables():
            for moment, slot in ((m, f"{name}/adam_m"), (v, f"{name}/adam_v")):
                if reader.has_tensor(slot):
                    moment.assign(checkpoints.read_tensor(reader, slot, prefix=prefix))
                else:
                    logging.warning("%s has no %s; it starts at 0.", prefix, slot)
                    moment.assign(tf.zeros_like(moment))
        step = int(checkpoints.read_tensor(reader, checkpoints.GLOBAL_STEP, prefix=prefix))
        logging.info("Going on from %s, step %d.", prefix, step)
        return step

    def _named_variables(self):
        """Name, weight and both moments of whatever is trained."""
        return zip(self._names, self._weights, self._moments_m, self._moments_v, strict=True)


def _zeros_like(weight: tf.Variable) -> tf.Variable:
    return tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)


@contextlib.contextmanager
def _record_errors(batches: RecordBatches) -> Iterator[None]:
    """Raises what is wrong with a record in the place of what tf.data makes of it."""
    try:
        yield
    except tf.errors.OpError:
        if batches.error:
            raise batches.error from None
        raise


def _first_replica(strategy: tf.distribute.Strategy, value):
    return strategy.experimental_local_results(value)[0]


def _sum_over_replicas(values):
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _step_seed(seed: int, step: tf.Tensor):
    """int32 scalar: another one for each (seed, step)."""
    seed = np.array(seed % 2**32, np.uint32).astype(np.int32)
    return mix(tf.cast(step, tf.int32) * GOLDEN_RATIO ^ mix(tf.constant(seed)))
