"""One step: batch -> loss -> gradients -> one update of the whole batch.

On R replicas that each hold B / R rows, which they take in K parts:

    weights    summed over replicas             how many masked positions, how many examples
    loss       of a part's rows, divided by the weights of all
    gradients  summed over parts and replicas   now those of the whole batch's mean loss
    clip       by their global norm
    update     the same on every replica

So R replicas with K parts each compute what one does at once.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.dropout import GOLDEN_RATIO, dropout_key, mix
from bert_tf.modeling.layers import EncoderBlock
from bert_tf.modeling.losses import Batch, Objective, Sums
from bert_tf.training.loss_scaling import LossScale
from bert_tf.training.optimization import AdamWeightDecay, clip_by_global_norm, layer_scales
from bert_tf.training.settings import StepConfig


class TrainingStep:
    """The update of a model, its optimizer's moments with it, under a strategy.

    With `clip_per_replica` it is the original's on a TPU (run_pretraining.py there, and TF1's
    CrossShardOptimizer): every replica computes the mean loss of its own rows, clips the gradients
    of it by their norm, and what is applied is the sum of that over replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        optimizer: AdamWeightDecay,
        *,
        strategy: tf.distribute.Strategy,
        config: StepConfig,
        seed: int,
        weights: Mapping[str, tf.Variable],
        frozen: Mapping[str, tf.Variable],
    ):
        """Makes the optimizer's moments; in the strategy's scope.

        Args:
          model: whose weights are trained.
          objective: what is minimised.
          optimizer: how weights are updated.
          strategy: what it runs on.
          config: how a step is computed.
          seed: of dropout.
          weights: of the model, by their names in checkpoints, that are trained.
          frozen: likewise, that are not.
        """
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.strategy, self.config, self.seed = strategy, config, seed
        for layer in model.layers:
            if isinstance(layer, EncoderBlock):
                layer.recompute = config.recompute
        self.names, self.weights = list(weights), list(weights.values())
        self._moments_m = [_zeros_like(w) for w in self.weights]
        self._moments_v = [_zeros_like(w) for w in self.weights]
        self.loss_scale = LossScale() if config.precision == "float16" else None
        self._scales = layer_scales([*weights, *frozen], optimizer.layerwise_lr_decay)
        one_replica = strategy.num_replicas_in_sync == 1
        # On one replica all of the step is one XLA program. On several only the part between two
        # all-reduces can be: XLA on CPU and GPU does not know the other replicas.
        compile_all, compile_part = config.xla and one_replica, config.xla and not one_replica
        self._replica_fn = compiled(self._on_replica) if compile_all else self._on_replica
        self._jit_inner = compiled if compile_part else (lambda function: function)
        self.run = tf.function(self._run)
        self.add_losses = tf.function(self._add_losses)

    @property
    def loss_names(self) -> list[str]:
        """What a step tells: means over its whole batch, and the norm of its gradients."""
        return ["loss", "gradient_norm", *(f"{term}_loss" for term in self.objective.terms)]

    def named_variables(self) -> Iterator[tuple[str, tf.Variable, tf.Variable, tf.Variable]]:
        """Name, weight and both moments of whatever is trained."""
        return zip(self.names, self.weights, self._moments_m, self._moments_v, strict=True)

    def _run(self, iterator, first_step: tf.Tensor, num_steps: tf.Tensor) -> Sums:
        """`num_steps` updates; the mean of each loss over them."""
        totals = self.no_losses()
        for i in tf.range(num_steps):
            totals = self._add_losses(totals, next(iterator), first_step + i)
        return self.means(totals, num_steps)

    def no_losses(self) -> tf.Tensor:
        """Totals of no steps: of each loss and, with float16, of steps that were not skipped."""
        return tf.zeros([len(self.loss_names) + (self.loss_scale is not None)])

    def _add_losses(self, totals: tf.Tensor, batch: Batch, step: tf.Tensor) -> tf.Tensor:
        """One update; `totals` with its losses."""
        names = self.loss_names + (["kept_steps"] if self.loss_scale else [])
        losses = self.strategy.run(self._replica_fn, args=(batch, step))
        return totals + tf.stack([first_replica(self.strategy, losses[name]) for name in names])

    def means(self, totals: tf.Tensor, num_steps: tf.Tensor) -> Sums:
        """The mean of each loss over steps.

        With float16 that is over the steps that were not skipped, whose number is `kept_steps`.
        """
        if self.loss_scale is None:
            means = tf.unstack(totals / tf.cast(num_steps, tf.float32))
            return dict(zip(self.loss_names, means, strict=True))
        means = tf.unstack(totals / tf.maximum(totals[-1], 1.0))
        return dict(zip(self.loss_names, means[:-1], strict=True)) | {"kept_steps": totals[-1]}

    def _on_replica(self, batch: Batch, step: tf.Tensor) -> Sums:
        """One update; returns the losses of the whole batch and the norm of its gradients."""
        context = tf.distribute.get_replica_context()
        own_weights = self.objective.denominators(batch)
        weights = sum_over_replicas(own_weights)
        per_replica = self.config.clip_per_replica
        loss_sums, gradients = self._loss_and_gradients(
            batch, own_weights if per_replica else weights, step, context
        )
        loss_sums = sum_over_replicas(loss_sums)
        if not per_replica:
            gradients = sum_over_replicas(gradients)
        clipped, norm = clip_by_global_norm(list(gradients.values()), self.optimizer.clip_norm)
        clipped = dict(zip(gradients, clipped, strict=True))
        if per_replica:  # the norm that is told is the mean of theirs
            clipped, norm = sum_over_replicas((clipped, norm))
            norm /= self.strategy.num_replicas_in_sync
        is_finite = tf.math.is_finite(norm)
        context.merge_call(self._update, args=(clipped, step, is_finite))
        losses = {"loss": self.objective.loss(loss_sums, weights), "gradient_norm": norm}
        for term in self.objective.terms:
            one_term = {t: s if t == term else tf.zeros_like(s) for t, s in loss_sums.items()}
            losses[f"{term}_loss"] = self.objective.loss(one_term, weights)
        if self.loss_scale is None:
            return losses
        losses = {name: tf.where(is_finite, value, 0.0) for name, value in losses.items()}
        return losses | {"kept_steps": tf.cast(is_finite, tf.float32)}

    # ------------------------------------------------------------------ loss and gradients

    def _loss_and_gradients(self, batch: Batch, weights: Sums, step: tf.Tensor, context):
        """Of the replica's rows: sums of losses, and gradients by name."""
        rows = batch["is_real_example"].shape[0]
        first_row = tf.cast(context.replica_id_in_sync_group, tf.int32) * rows
        scale = None if self.loss_scale is None else tf.convert_to_tensor(self.loss_scale.scale)
        parts = self.config.gradient_accumulation_steps
        compute = self._gradients_of_parts if parts > 1 else self._gradients
        loss_sums, gradients = self._jit_inner(compute)(batch, weights, step, first_row, scale)
        if scale is not None:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        return loss_sums, gradients

    def _gradients(self, batch: Batch, weights: Sums, step, first_row, scale):
        """Of rows that are taken at once."""
        rows = batch["is_real_example"].shape[0]
        with dropout_key(step_seed(self.seed, step), first_row, rows):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.weights)
                outputs = self.model(model_inputs(self.model, batch), training=True)
                loss_sums = self.objective.loss_sums(outputs, batch)
                loss = self.objective.loss(loss_sums, weights)
                if scale is not None:
                    loss *= scale
            gradients = tape.gradient(loss, self.weights)
        # A weight that the loss does not depend on is left alone: not decayed either.
        named = zip(self.names, gradients, strict=True)
        return loss_sums, {n: tf.convert_to_tensor(g) for n, g in named if g is not None}

    def _gradients_of_parts(self, batch: Batch, weights: Sums, step, first_row, scale):
        """Of rows that are taken in parts, one after the other, and added up."""
        num_parts = self.config.gradient_accumulation_steps
        rows = batch["is_real_example"].shape[0] // num_parts
        stacked = {
            name: tf.reshape(value, tf.concat([[num_parts, rows], tf.shape(value)[1:]], axis=0))
            for name, value in batch.items()
        }
        with_gradient: set[str] = set()

        def add_part(number, loss_sums, gradients):
            part = {name: tf.gather(value, number) for name, value in stacked.items()}
            for name, value in part.items():
                value.set_shape([rows, *batch[name].shape[1:]])
            more, new = self._gradients(part, weights, step, first_row + number * rows, scale)
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

    def _update(self, strategy: tf.distribute.Strategy, gradients, step, is_finite) -> None:
        """Updates every weight and its moments, on every device; cross-replica context."""
        skips = self.loss_scale is not None  # else what is not finite ends the run
        skipped = self.loss_scale.skipped_steps if skips else 0
        for name, weight, m, v in self.named_variables():
            if name not in gradients:
                continue
            options = {"decays": self.optimizer.decays(name), "scale": self._scales[name]}

            def update(weight, m, v, gradient, step, is_finite, skipped, options=options):
                variables, skipped = (weight, m, v), tf.cast(skipped, tf.int32)
                new = self.optimizer.updated(
                    *variables, gradient, step=step, skipped=skipped, **options
                )
                for variable, value in zip(variables, new, strict=True):
                    variable.assign(tf.where(is_finite, value, variable) if skips else value)

            args = (m, v, gradients[name], step, is_finite, skipped)
            strategy.extended.update(weight, update, args=args)
        if skips:
            self.loss_scale.update(strategy, is_finite)


@contextlib.contextmanager
def layer_precision(precision: str) -> Iterator[None]:
    """Layers that are made within this context compute in `precision`."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def compiled(function: Callable) -> Callable:
    """The function as one XLA program."""
    return tf.function(function, jit_compile=True, autograph=False)


def model_inputs(model: keras.Model, batch: Batch) -> Batch:
    """What of a batch the model takes."""
    return {name: batch[name] for name in model.input}


def first_replica(strategy: tf.distribute.Strategy, value):
    """What the first replica of this process has."""
    return strategy.experimental_local_results(value)[0]


def sum_over_replicas(values):
    """The sum of what every replica has; in replica context."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def step_seed(seed: int, step: tf.Tensor):
    """int32 scalar: another one for each (seed, step)."""
    seed = np.array(seed % 2**32, np.uint32).astype(np.int32)
    return mix(tf.cast(step, tf.int32) * GOLDEN_RATIO ^ mix(tf.constant(seed)))


def _zeros_like(weight: tf.Variable) -> tf.Variable:
    return tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False)
