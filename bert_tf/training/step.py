"""One training step: batch -> loss -> gradients -> one update of the whole batch.

On R replicas that each hold B / R rows of the batch and split them into K parts:

    denominators  summed over replicas             how many masked positions, how many examples
    loss          of a part's rows, divided by the denominators of the whole batch
    gradients     summed over parts and replicas   now those of the whole batch's mean loss
    clip          by their global norm
    update        the same on every replica

So R replicas with K parts each compute what one does at once. The calls, from the outside in:

    TrainingStep.run              num_steps steps in one call
      _add_step                   on all replicas
        _on_replica               on one of them; `_replica_fn` is its compiled form
          _gradients              model -> losses -> gradients; `_sum_of_parts` calls it for each
                                  part; `_gradients_fn` is one of the two, compiled
          _apply                  optimizer -> weights and moments
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.heads.head import Batch, Head, Sums
from bert_tf.modeling.dropout import GOLDEN_RATIO, dropout_key, mix
from bert_tf.modeling.layers import EncoderBlock
from bert_tf.runtime import check_model_memory
from bert_tf.training.optimization import (
    AdamWeightDecay,
    clip_by_global_norm,
    layer_scales,
    trained_names,
)
from bert_tf.training.settings import StepConfig


class TrainingStep:
    """Updates a model's weights and the optimizer's moments, under a strategy.

    `clip_per_replica` is what the original does on a TPU (its run_pretraining.py with TF1's
    CrossShardOptimizer): every replica computes the mean loss of its own rows and clips the
    gradients of that, and the update is made with the sum of the clipped gradients.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Head,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        config: StepConfig,
        *,
        seed: int,
        freeze: Sequence[str],
    ):
        """Makes the optimizer's moments; to be called in the strategy's scope.

        Args:
          model: the model to train.
          objective: the loss to minimise.
          optimizer: the update rule.
          strategy: the devices.
          config: how a step is computed.
          seed: of dropout.
          freeze: patterns of the names of weights that are not trained, as for `trained_names`.
        """
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.strategy, self.config, self.seed = strategy, config, seed
        weights = {tf1.checkpoint_name(v): v.value for v in model.trainable_variables}
        self.names = trained_names(list(weights), freeze)
        self._scales = layer_scales(weights, optimizer.layerwise_lr_decay)
        self.weights = [weights.pop(name) for name in self.names]
        self.frozen = weights  # the others, by name
        check_model_memory(sum(w.shape.num_elements() for w in self.weights), moments=2)
        self._m, self._v = (
            [tf.Variable(tf.zeros(w.shape, w.dtype), trainable=False) for w in self.weights]
            for _ in range(2)
        )
        # Traced once for variables of one shape, of which a model has many.
        self._updated = tf.function(optimizer.updated, autograph=False)
        self.loss_scale = LossScale() if config.precision == "float16" else None
        for layer in model.layers:
            if isinstance(layer, EncoderBlock):
                layer.recompute = config.recompute
                attention = layer.attention.self_attention
                attention.recompute = config.recompute_attention and not config.recompute
        self.run = tf.function(self._run)
        self.add_step = tf.function(self._add_step)
        # XLA compiles the whole step of a single replica. With several replicas it compiles only
        # loss and gradients: XLA on CPU and GPU cannot reduce over replicas.
        is_single = strategy.num_replicas_in_sync == 1
        self._replica_fn = with_xla(self._on_replica, config.xla and is_single)
        compute = self._gradients if config.gradient_accumulation_steps == 1 else self._sum_of_parts
        self._gradients_fn = with_xla(compute, config.xla and not is_single)

    @property
    def loss_names(self) -> list[str]:
        """What a step reports: means over its whole batch, and the norm of its gradients."""
        return ["loss", "gradient_norm", *(f"{term}_loss" for term in self.objective.terms)]

    def named_variables(self) -> Iterator[tuple[str, tf.Variable, tf.Variable, tf.Variable]]:
        """Name, weight and both moments of every trained weight."""
        return zip(self.names, self.weights, self._m, self._v, strict=True)

    def check_weights(self) -> None:
        """Raises InputError if a weight is NaN or infinite, as every loss would be."""
        for name, weight in (*zip(self.names, self.weights, strict=True), *self.frozen.items()):
            if not np.isfinite(weight.numpy()).all():
                raise InputError(
                    f"initial weights with NaN or infinity in {name}",
                    "finite numbers",
                    "give another --init_checkpoint, or an earlier checkpoint of the run",
                )

    def not_finite(
        self, losses: Mapping[str, float], step: int, stop: int, checkpoint: str | None
    ) -> InputError:
        """The error for losses that are not finite, of steps after the last checkpoint."""
        if self.loss_scale is None:
            received, other = "a loss of {loss} with gradients of norm {gradient_norm}", ""
        else:
            received = "gradients beyond float16 in every step, with the least loss scale,"
            other = "--precision=bfloat16, or "
        return InputError(
            f"{received.format(**losses)} between steps {step} and {stop}, at a learning rate of "
            f"{max(map(self.optimizer.schedule.rate, (step, stop - 1))):g}",
            "finite numbers; the records and the weights at the start are sound, so the learning "
            "rate is most likely too high",
            f"start again with {other}a lower --learning_rate or a longer warm-up; the last "
            f"checkpoint before it is {checkpoint or 'none'}",
        )

    def _run(self, totals: tf.Tensor, iterator, first_step: tf.Tensor, num_steps: tf.Tensor):
        """`num_steps` updates; `totals` with their losses added."""
        for i in tf.range(num_steps):
            totals = self._add_step(totals, next(iterator), first_step + i)
        return totals

    def no_steps(self) -> tf.Tensor:
        """Totals of no steps: a 0 for each loss, and for the number of steps."""
        return tf.zeros([len(self.loss_names) + 1])

    def _add_step(self, totals: tf.Tensor, batch: Batch, step: tf.Tensor) -> tf.Tensor:
        """One update on all replicas; `totals` with its losses added."""
        losses = self.strategy.run(self._replica_fn, args=(batch, step))
        names = [*self.loss_names, "kept_steps"]
        return totals + tf.stack([first_replica(self.strategy, losses[name]) for name in names])

    def means(self, totals: tf.Tensor) -> Sums:
        """The mean of each loss over the steps that were not skipped, and their number."""
        *sums, kept_steps = tf.unstack(totals)
        means = [total / tf.maximum(kept_steps, 1.0) for total in sums]
        return dict(zip(self.loss_names, means, strict=True)) | {"kept_steps": kept_steps}

    def _on_replica(self, batch: Batch, step: tf.Tensor) -> Sums:
        """One update; returns the losses of the whole batch and the norm of its gradients.

        Args:
          batch: the replica's rows, each value [B / R, ...].
          step: int32 scalar, the number of updates before this one.
        """
        own_denominators = self.objective.denominators(batch)
        denominators = sum_over_replicas(own_denominators)
        per_replica = self.config.clip_per_replica
        loss_sums, gradients = self._loss_and_gradients(
            batch, own_denominators if per_replica else denominators, step
        )
        loss_sums = sum_over_replicas(loss_sums)
        if not per_replica:
            gradients = sum_over_replicas(gradients)
        clipped, norm = clip_by_global_norm(list(gradients.values()), self.optimizer.clip_norm)
        gradients = dict(zip(gradients, clipped, strict=True))
        if per_replica:  # the norm that is reported is the mean of theirs
            gradients, norm = sum_over_replicas((gradients, norm))
            norm /= self.strategy.num_replicas_in_sync
        is_finite = tf.math.is_finite(norm)
        context = tf.distribute.get_replica_context()
        context.merge_call(self._apply, args=(gradients, step, is_finite))
        losses = {"loss": self.objective.loss(loss_sums, denominators), "gradient_norm": norm}
        for term in self.objective.terms:
            one_term = {t: s if t == term else tf.zeros_like(s) for t, s in loss_sums.items()}
            losses[f"{term}_loss"] = self.objective.loss(one_term, denominators)
        if self.loss_scale is None:
            return losses | {"kept_steps": tf.constant(1.0)}
        losses = {name: tf.where(is_finite, value, 0.0) for name, value in losses.items()}
        return losses | {"kept_steps": tf.cast(is_finite, tf.float32)}

    # ------------------------------------------------------------------ loss and gradients

    def _loss_and_gradients(self, batch: Batch, denominators: Sums, step: tf.Tensor):
        """Of the replica's rows: sums of losses by term, and gradients by name."""
        context = tf.distribute.get_replica_context()
        rows = batch["is_real_example"].shape[0]
        first_row = tf.cast(context.replica_id_in_sync_group, tf.int32) * rows
        scale = None if self.loss_scale is None else tf.convert_to_tensor(self.loss_scale.scale)
        loss_sums, gradients = self._gradients_fn(batch, denominators, step, first_row, scale)
        if scale is not None:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        return loss_sums, gradients

    def _gradients(self, batch: Batch, denominators: Sums, step, first_row, scale):
        """Of all rows at once."""
        rows = batch["is_real_example"].shape[0]
        with dropout_key(step_seed(self.seed, step), first_row, rows):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.weights)
                outputs = self.model(model_inputs(self.model, batch), training=True)
                loss_sums = self.objective.loss_sums(outputs, batch)
                loss = self.objective.loss(loss_sums, denominators)
                if scale is not None:
                    loss *= scale
            gradients = tape.gradient(loss, self.weights)
        # A weight that the loss does not depend on is left alone: not decayed either.
        named = zip(self.names, gradients, strict=True)
        return loss_sums, {n: tf.convert_to_tensor(g) for n, g in named if g is not None}

    def _sum_of_parts(self, batch: Batch, denominators: Sums, step, first_row, scale):
        """Of K parts of the rows, one after the other."""
        num_parts = self.config.gradient_accumulation_steps
        rows = batch["is_real_example"].shape[0] // num_parts
        stacked = {
            name: tf.reshape(value, tf.concat([[num_parts, rows], tf.shape(value)[1:]], axis=0))
            for name, value in batch.items()
        }  # [B / R, ...] -> [K, B / (R K), ...]
        with_gradient: set[str] = set()

        def add_part(number, loss_sums, gradients):
            part = {name: tf.gather(value, number) for name, value in stacked.items()}
            for name, value in part.items():
                value.set_shape([rows, *batch[name].shape[1:]])
            more, new = self._gradients(part, denominators, step, first_row + number * rows, scale)
            with_gradient.update(new)
            added = {n: g + new[n] if n in new else g for n, g in gradients.items()}
            return number + 1, {n: s + more[n] for n, s in loss_sums.items()}, added

        _, loss_sums, gradients = tf.while_loop(
            lambda number, *_: number < num_parts,
            add_part,
            (
                tf.constant(0),
                {term: tf.zeros([]) for term in self.objective.terms},
                {n: tf.zeros(w.shape) for n, w in zip(self.names, self.weights, strict=True)},
            ),
            maximum_iterations=num_parts,
        )
        return loss_sums, {n: g for n, g in gradients.items() if n in with_gradient}

    # ------------------------------------------------------------------ update

    def _apply(self, strategy: tf.distribute.Strategy, gradients, step, is_finite) -> None:
        """Updates every weight and its moments, on every device; cross-replica context."""
        skips = self.loss_scale is not None  # otherwise NaN or infinity ends the run
        skipped = self.loss_scale.skipped_steps if skips else 0
        rate = self.optimizer.schedule(step)
        for name, weight, m, v in self.named_variables():
            if name not in gradients:
                continue
            options = {"decays": self.optimizer.decays(name), "scale": self._scales[name]}

            def update(weight, m, v, gradient, step, rate, is_finite, skipped, options=options):
                variables, skipped = (weight, m, v), tf.cast(skipped, tf.int32)
                values = map(tf.convert_to_tensor, (*variables, gradient))
                new = self._updated(*values, step=step, rate=rate, skipped=skipped, **options)
                for variable, value in zip(variables, new, strict=True):
                    variable.assign(tf.where(is_finite, value, variable) if skips else value)

            args = (m, v, gradients[name], step, rate, is_finite, skipped)
            strategy.extended.update(weight, update, args=args)
        if skips:
            self.loss_scale.update(strategy, is_finite)


class LossScale:
    """The scale of the loss with which float16 can hold gradients (Micikevicius et al., 2018).

    Most gradients are below what float16 resolves, 6e-8; so the loss is multiplied by the scale,
    and the gradients are divided by it in float32. A step whose gradients are beyond float16's
    range is skipped, and the scale halved; after many steps without one it is doubled.
    """

    FIRST, LEAST = 2.0**15, 1.0
    GROWS_AFTER = 2000  # steps

    def __init__(self):
        """Makes the scale and its counters, on every device; in a strategy's scope."""
        self.scale = tf.Variable(self.FIRST, trainable=False)
        # int64: int32 variables are kept from GPUs.
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # in a row
        self.skipped_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # of the whole run

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The variables by their names in checkpoints."""
        return {
            "bert_tf/loss_scale": self.scale,
            "bert_tf/loss_scale_good_steps": self.good_steps,
            "bert_tf/loss_scale_skipped_steps": self.skipped_steps,
        }

    @property
    def is_least(self) -> bool:
        """Whether it cannot be made smaller."""
        return float(self.scale.numpy()) <= self.LEAST

    def update(self, strategy: tf.distribute.Strategy, is_finite: tf.Tensor) -> None:
        """After a step whose gradients were finite or not; in cross-replica context."""

        def assign(scale, good_steps, skipped_steps, is_finite):
            good = good_steps + 1
            grows = good >= self.GROWS_AFTER
            kept = tf.where(grows, scale * 2.0, scale)
            skipped_steps.assign_add(tf.cast(~is_finite, tf.int64))
            good_steps.assign(good * tf.cast(is_finite & ~grows, tf.int64))
            scale.assign(tf.where(is_finite, kept, tf.maximum(scale / 2.0, self.LEAST)))

        args = (self.good_steps, self.skipped_steps, is_finite)
        strategy.extended.update(self.scale, assign, args=args)

    def restore(self, values: Mapping[str, object]) -> None:
        """Restores the saved variables; resets the others."""
        for name, variable in self.variables.items():
            variable.assign(values.get(name, self.FIRST if variable is self.scale else 0))


# ------------------------------------------------------------------ functions


@contextlib.contextmanager
def layer_precision(precision: str) -> Iterator[None]:
    """Layers that are made within this context compute in `precision`."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_xla(function: Callable, compiles: bool) -> Callable:
    """The function as one XLA program if `compiles`, otherwise as it is."""
    if not compiles:
        return function
    return tf.function(function, jit_compile=True, autograph=False)


def model_inputs(model: keras.Model, batch: Batch) -> Batch:
    """The model's inputs in a batch."""
    return {name: batch[name] for name in model.input}


def first_replica(strategy: tf.distribute.Strategy, value):
    """The value of this process's first replica."""
    return strategy.experimental_local_results(value)[0]


def sum_over_replicas(values):
    """The values, each summed over all replicas; in replica context."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def step_seed(seed: int, step: tf.Tensor):
    """int32 scalar, different for each (seed, step)."""
    seed = np.array(seed % 2**32, np.uint32).astype(np.int32)
    return mix(tf.cast(step, tf.int32) * GOLDEN_RATIO ^ mix(tf.constant(seed)))
