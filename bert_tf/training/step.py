"""What the devices compute for a batch: an update, the sums of an evaluation, predictions.

On R replicas that each hold B / R rows of the batch and split them into K parts, an update is

    denominators  summed over replicas             how many masked positions, how many examples
    loss          of a part's rows, divided by the denominators of the whole batch
    gradients     summed over parts and replicas   now those of the whole batch's mean loss
    clip          by their global norm
    update        the same on every replica

So R replicas with K parts each compute what one does at once. The calls, from the outside in:

    Steps.train               num_steps updates in one call
      _update                 one of them, on one replica
        _gradients            model -> losses -> gradients; `_gradients_by_parts` calls it K times
        _apply                optimizer -> weights and moments
"""

import contextlib
import re
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf import runtime
from bert_tf.data import SEQUENCES
from bert_tf.heads import ENCODER
from bert_tf.heads.head import Batch, Head, Sums
from bert_tf.modeling.memory import GOLDEN_RATIO, TrainingStep, mix
from bert_tf.modeling.models import layer_dtype
from bert_tf.modeling.names import ENCODER_PATHS, by_name
from bert_tf.training.compilation import parts_of, program
from bert_tf.training.optimization import AdamWeightDecay, layer_scales, trained_names
from bert_tf.training.options import StepConfig


class Steps:
    """The steps of a model on the devices of a strategy, with the optimizer's moments.

    Attributes:
      weights: the trained weights, by their names in checkpoints.
      frozen: the other weights, likewise.
      slots: the moments, and the state of the loss scale, likewise.
      loss_names: what an update reports: means over its whole batch, and its gradients' norm.
      train: (totals, iterator, first_step, num_steps) -> totals; see `_train`.
      train_on: (totals, batch, step) -> totals; one update.
      evaluate: (batch) -> the sums of the whole batch; see `_sums`.
      predict: (batch, names) -> these outputs of each replica, float32.
      update, sums, outputs: the programs of one replica that XLA compiles; so is `gradients`.
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
        variables = by_name(model.trainable_variables, model.name)
        weights = {name: variable.value for name, variable in variables.items()}
        self._scales = layer_scales(weights, optimizer.layerwise_lr_decay)
        self.weights = {name: weights.pop(name) for name in trained_names(list(weights), freeze)}
        self.frozen = weights
        # Fixed features (section 5.3) are the same in every epoch.
        is_fixed = not any(re.match(ENCODER, name) for name in self.weights)
        self._without_dropout = ENCODER_PATHS if is_fixed else ""
        self.slots = {
            f"{name}/{slot}": tf.Variable(tf.zeros(w.shape, w.dtype), trainable=False)
            for name, w in self.weights.items()
            for slot in ("adam_m", "adam_v")
        }
        self.loss_scale = LossScale() if config.precision == "float16" else None
        self.slots |= self.loss_scale.variables if self.loss_scale else {}
        self.loss_names = ["loss", "gradient_norm", *(f"{t}_loss" for t in objective.terms)]
        self._recompute = "attention" if config.recompute_attention else ""
        if config.recompute:
            self._recompute = "blocks"
        self._compile()

    def _compile(self) -> None:
        """Makes the graphs, and the programs of XLA within them."""
        parts = parts_of(self.config, self.strategy)
        is_whole = self.config.gradient_accumulation_steps == 1
        gradients = self._gradients if is_whole else self._gradients_by_parts
        self.update = program(self._update, is_compiled=parts.update)
        self.gradients = program(gradients, is_compiled=parts.gradients)
        self.sums = program(self._sums, is_compiled=parts.answers)
        self.outputs = program(self._outputs, is_compiled=parts.answers)
        # Traced once for variables of one shape, of which a model has many.
        self._new_values = tf.function(self.optimizer.new_values, autograph=False)
        self.train, self.train_on = tf.function(self._train), tf.function(self._train_on)
        self.evaluate, self.predict = tf.function(self._evaluate), tf.function(self._predict)

    # ------------------------------------------------------------------ training

    def _train(self, totals: tf.Tensor, iterator: Iterator, first_step, num_steps) -> tf.Tensor:
        """Makes `num_steps` updates.

        Args:
          totals: float32 [len(loss_names) + 1], the losses so far and the steps that they are of.
          iterator: of batches, at that of `first_step`.
          first_step: int32 scalar, the number of updates before these.
          num_steps: int32 scalar.

        Returns:
          `totals`, with the losses of these updates added.
        """
        for i in tf.range(num_steps):
            losses = self.strategy.run(self.update, args=(next(iterator), first_step + i))
            totals += first_replica(self.strategy, losses)
        return totals

    def _train_on(self, totals: tf.Tensor, batch: Batch, step: tf.Tensor) -> tf.Tensor:
        """Makes one update; arguments and result as of `_train`."""
        losses = self.strategy.run(self.update, args=(batch, step))
        return totals + first_replica(self.strategy, losses)

    def _update(self, batch: Batch, step: tf.Tensor) -> tf.Tensor:
        """One update; called on every replica.

        Args:
          batch: the replica's rows, each value [B / R, ...].
          step: int32 scalar, the number of updates before this one.

        Returns:
          The losses of the whole batch and the norm of its gradients, and 1; all 0 for a step that
          was skipped. float32 [len(loss_names) + 1].
        """
        context = tf.distribute.get_replica_context()
        denominators = sum_over_replicas(self.objective.denominators(batch))
        scale = None if self.loss_scale is None else tf.convert_to_tensor(self.loss_scale.scale)
        loss_sums, gradients = self.gradients(batch, denominators, step, scale)
        if scale is not None:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        loss_sums = sum_over_replicas(loss_sums)
        gradients = sum_over_replicas(gradients)
        norm = tf.linalg.global_norm(list(gradients.values()))
        if clip := self.optimizer.clip_norm:  # if the norm is not finite, all gradients become NaN
            values, _ = tf.clip_by_global_norm(list(gradients.values()), clip, use_norm=norm)
            gradients = dict(zip(gradients, values, strict=True))
        is_finite = tf.math.is_finite(norm)
        context.merge_call(self._apply, args=(gradients, step, is_finite))
        terms = [tf.math.divide_no_nan(loss_sums[t], denominators[t]) for t in self.objective.terms]
        losses = tf.stack([self.objective.loss(loss_sums, denominators), norm, *terms, 1.0])
        return losses if scale is None else tf.where(is_finite, losses, 0.0)

    def _gradients(self, batch: Batch, denominators: Sums, step, scale):
        """The sums of the rows' losses by term, and the gradients by name."""
        inputs = model_inputs(self.model, batch)
        numbers = batch["input_mask"] if is_packed(batch) else None
        seed, rows = step_seed(self.seed, step), (batch[SEQUENCES], numbers)
        with TrainingStep(
            seed, *rows, recompute=self._recompute, without_dropout=self._without_dropout
        ):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(self.weights.values()))
                outputs = self.model(inputs, training=True)
                loss_sums = self.objective.loss_sums(outputs, batch)
                loss = self.objective.loss(loss_sums, denominators)
                if scale is not None:
                    loss *= scale
            gradients = tape.gradient(loss, self.weights)
        # A weight that the loss does not depend on is left alone: not decayed either.
        given = [(name, g) for name, g in gradients.items() if g is not None]
        return loss_sums, {name: tf.convert_to_tensor(g) for name, g in given}

    def _gradients_by_parts(self, batch: Batch, denominators: Sums, step, scale):
        """As `_gradients`, of K parts of the rows one after the other."""
        num_parts = self.config.gradient_accumulation_steps
        stacked = {
            name: tf.reshape(value, [num_parts, -1, *value.shape[1:]])
            for name, value in batch.items()
        }  # [B / R, ...] -> [K, B / (R K), ...]
        with_gradient: set[str] = set()

        def add_part(number, loss_sums, gradients):
            part = {name: tf.gather(value, number) for name, value in stacked.items()}
            more, new = self._gradients(part, denominators, step, scale)
            with_gradient.update(new)
            added = {n: g + new[n] if n in new else g for n, g in gradients.items()}
            return number + 1, {n: s + more[n] for n, s in loss_sums.items()}, added

        sums = {term: tf.zeros([]) for term in self.objective.terms}
        gradients = {name: tf.zeros(weight.shape) for name, weight in self.weights.items()}
        is_left, first = lambda number, *_: number < num_parts, (tf.constant(0), sums, gradients)
        _, loss_sums, gradients = tf.while_loop(
            is_left, add_part, first, maximum_iterations=num_parts
        )
        return loss_sums, {n: g for n, g in gradients.items() if n in with_gradient}

    def _apply(self, strategy: tf.distribute.Strategy, gradients, step, is_finite) -> None:
        """Updates every weight and its moments, on every device; cross-replica context."""
        skips = self.loss_scale is not None  # otherwise NaN or infinity ends the run
        skipped = self.loss_scale.skipped_steps if skips else 0
        rate, count = self.optimizer.schedule(step), step + 1
        rates = {scale: rate * scale for scale in {*self._scales.values()}}
        for name, gradient in gradients.items():

            def assign(weight, m, v, gradient, rate, count, skipped, is_finite, name=name):
                variables = (weight, m, v)
                new = self._new_values(
                    *map(tf.convert_to_tensor, (*variables, gradient)),
                    rate=rate,
                    count=count - tf.cast(skipped, tf.int32) if skips else count,
                    decays=self.optimizer.decays(name),
                )
                for variable, value in zip(variables, new, strict=True):
                    variable.assign(tf.where(is_finite, value, variable) if skips else value)

            moments = (self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"])
            args = (*moments, gradient, rates[self._scales[name]], count, skipped, is_finite)
            strategy.extended.update(self.weights[name], assign, args=args)
        if skips:
            self.loss_scale.update(strategy, is_finite)

    # ------------------------------------------------------------------ evaluation, prediction

    def _evaluate(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        sums = self.strategy.run(lambda rows: sum_over_replicas(self.sums(rows)), args=(batch,))
        return tf.nest.map_structure(lambda x: first_replica(self.strategy, x), sums)

    def _sums(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        """Of a replica's rows: number of examples, denominators, summed losses, summed metrics."""
        outputs = self.model(model_inputs(self.model, batch), training=False)
        sums = self.objective.loss_sums(outputs, batch), self.objective.metric_sums(outputs, batch)
        return tf.reduce_sum(batch["is_real_example"]), self.objective.denominators(batch), *sums

    def _predict(self, batch: Batch, names: tuple[str, ...]):
        def on_replica(rows):
            outputs = self.outputs(rows, names)
            if not runtime.has_peers():
                return outputs
            gather = tf.distribute.get_replica_context().all_gather
            return {name: gather(value, axis=0) for name, value in outputs.items()}

        return self.strategy.run(on_replica, args=(batch,))

    def _outputs(self, batch: Batch, names: tuple[str, ...]) -> dict[str, tf.Tensor]:
        """These outputs for a replica's rows, float32; and what `in_order` needs of packed ones."""
        outputs = self.model(model_inputs(self.model, batch), training=False)
        packed = ("input_mask", SEQUENCES) if is_packed(batch) else ()
        rows = {n: tf.identity(batch[n]) for n in packed}  # on a device: they may be gathered
        return {name: tf.cast(outputs[name], tf.float32) for name in names} | rows


def is_packed(batch: Batch) -> bool:
    """Whether a batch of fine-tuning has rows of several sequences (data/packing.py).

    Not of packed records of pre-training: there a row counts as one in `SEQUENCES`, [B, 1].
    """
    return batch[SEQUENCES].shape[1] > 1 and len(batch["input_mask"].shape) == 2


class LossScale:
    """The scale of the loss with which float16 can hold gradients (Micikevicius et al., 2018).

    Most gradients are below what float16 resolves, 6e-8; so the loss is multiplied by the scale,
    and the gradients are divided by it in float32. A step whose gradients are beyond float16's
    range is skipped, and the scale halved; after many steps without one it is doubled.
    """

    NAME = "bert_tf/loss_scale"
    FIRST, LEAST = 2.0**15, 1.0
    GROWS_AFTER = 2000  # steps

    def __init__(self):
        """Makes the scale and its counters, on every device; in a strategy's scope."""
        self.scale = tf.Variable(self.FIRST, trainable=False)
        # int64: int32 variables are kept from GPUs.
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # in a row
        self.skipped_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # of the whole run
        self.variables = {  # by their names in checkpoints
            self.NAME: self.scale,
            f"{self.NAME}_good_steps": self.good_steps,
            f"{self.NAME}_skipped_steps": self.skipped_steps,
        }

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


# ------------------------------------------------------------------ functions


def layer_precision(precision: str) -> contextlib.AbstractContextManager[None]:
    """Layers that are made within this context compute in `precision`."""
    return layer_dtype(precision if precision == "float32" else f"mixed_{precision}")


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
