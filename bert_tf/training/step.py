"""The computation of the devices for a batch: an update, the sums of an evaluation, predictions.

R replicas each have B / R rows of the batch, and split them into K parts. An update:

    denominators  summed over replicas             how many masked positions, how many examples
    loss          of a part's rows, divided by the denominators of the whole batch
    gradients     summed over parts and replicas   now those of the whole batch's mean loss
    clip          by their global norm
    update        the same on every replica

So the result is the same as that of one replica with one part. The calls, from the outside in:

    Steps.train               num_steps updates in one call
      _update                 one of them, on one replica
        _gradients            model -> losses -> gradients; `_gradients_by_parts` calls it K times
        _apply                optimizer -> new weights and moments
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
from bert_tf.training.compilation import compiled_parts, program
from bert_tf.training.optimization import AdamWeightDecay, layer_scales, trained_names
from bert_tf.training.options import StepConfig


class Steps:
    """The steps of a model on the devices of a strategy, with the optimizer's moments.

    Attributes:
      weights: the trained weights, by their names in checkpoints.
      frozen: the other weights, likewise.
      slots: the moments, and the state of the loss scale, likewise.
      loss_names: the names of the values that an update reports: the loss and its terms, means over
        the whole batch, and the norm of the gradients.
      train: (totals, iterator, first_step, num_steps) -> totals; see `_train`.
      train_on: (totals, batch, step) -> totals; one update.
      evaluate: (batch) -> the sums of the whole batch; see `_sums`.
      predict: (batch, names) -> these outputs of each replica, float32.
      update, gradients, sums, outputs: the functions of one replica, which XLA may compile.
    """

    def __init__(
        self,
        model: keras.Model,
        head: Head,
        optimizer: AdamWeightDecay,
        strategy: tf.distribute.Strategy,
        config: StepConfig,
        *,
        seed: int,
        freeze: Sequence[str],
    ):
        """Makes the optimizer's moments; call it in the strategy's scope.

        Args:
          model: the model to train.
          head: the loss to minimise, metrics and predictions.
          optimizer: the update rule.
          strategy: the devices.
          config: how a step is computed.
          seed: the seed of dropout.
          freeze: patterns of the names of weights that are not trained, as for `trained_names`.
        """
        self.model = model
        self.head = head
        self.optimizer = optimizer
        self.strategy = strategy
        self.config = config
        self.seed = seed
        variables = by_name(model.trainable_variables, model.name)
        weights = {name: variable.value for name, variable in variables.items()}
        self._scales = layer_scales(weights, optimizer.layerwise_lr_decay)
        self.weights = {name: weights[name] for name in trained_names(list(weights), freeze)}
        self.frozen = {name: weights[name] for name in weights if name not in self.weights}
        # A frozen encoder gives fixed features (section 5.3), the same in each epoch.
        is_encoder_frozen = not any(re.match(ENCODER, name) for name in self.weights)
        self._without_dropout = ENCODER_PATHS if is_encoder_frozen else ""
        self.slots = self._make_moments()
        self.loss_scale = None
        if config.precision == "float16":
            self.loss_scale = LossScale()
            self.slots |= self.loss_scale.variables
        term_names = [f"{term}_loss" for term in head.terms]
        self.loss_names = ["loss", "gradient_norm", *term_names]
        self._recompute = "attention" if config.recompute_attention else ""
        if config.recompute:
            self._recompute = "blocks"
        self._make_functions()

    def _make_moments(self) -> dict[str, tf.Variable]:
        """The moments of the trained weights, 0 at first, by their names in checkpoints."""
        moments = {}
        for name, weight in self.weights.items():
            for slot in ("adam_m", "adam_v"):
                zeros = tf.zeros(weight.shape, weight.dtype)
                moments[f"{name}/{slot}"] = tf.Variable(zeros, trainable=False)
        return moments

    def _make_functions(self) -> None:
        """Makes the graph functions, and the functions that XLA compiles within them."""
        compiled = compiled_parts(self.config, self.strategy)
        is_whole = self.config.gradient_accumulation_steps == 1
        gradients = self._gradients if is_whole else self._gradients_by_parts
        self.update = program(self._update, is_compiled=compiled.update)
        self.gradients = program(gradients, is_compiled=compiled.gradients)
        self.sums = program(self._sums, is_compiled=compiled.answers)
        self.outputs = program(self._outputs, is_compiled=compiled.answers)
        # As a function it is traced once for all variables of a shape.
        self._new_values = tf.function(self.optimizer.new_values, autograph=False)
        self.train = tf.function(self._train)
        self.train_on = tf.function(self._train_on)
        self.evaluate = tf.function(self._evaluate)
        self.predict = tf.function(self._predict)

    # ------------------------------------------------------------------ training

    def _train(self, totals: tf.Tensor, iterator: Iterator, first_step, num_steps) -> tf.Tensor:
        """Makes `num_steps` updates.

        Args:
          totals: float32 [len(loss_names) + 1], the sums of the losses of all steps so far, and the
            number of these steps.
          iterator: the iterator of batches; the next one is that of `first_step`.
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
        """Makes one update; arguments and result as for `_train`."""
        losses = self.strategy.run(self.update, args=(batch, step))
        return totals + first_replica(self.strategy, losses)

    def _update(self, batch: Batch, step: tf.Tensor) -> tf.Tensor:
        """One update; called on every replica.

        Args:
          batch: the replica's rows, each value [B / R, ...].
          step: int32 scalar, the number of updates before this one.

        Returns:
          float32 [len(loss_names) + 1]: the losses of the whole batch, the norm of its gradients,
          and 1, the number of steps; all 0 if the step was skipped.
        """
        context = tf.distribute.get_replica_context()
        denominators = sum_over_replicas(self.head.denominators(batch))
        scale = None if self.loss_scale is None else tf.convert_to_tensor(self.loss_scale.scale)
        loss_sums, gradients = self.gradients(batch, denominators, step, scale)
        if scale is not None:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        loss_sums = sum_over_replicas(loss_sums)
        gradients = sum_over_replicas(gradients)
        norm = tf.linalg.global_norm(list(gradients.values()))
        clip_norm = self.optimizer.clip_norm
        if clip_norm:  # a norm that is not finite makes all gradients NaN
            values, _ = tf.clip_by_global_norm(list(gradients.values()), clip_norm, use_norm=norm)
            gradients = dict(zip(gradients, values, strict=True))
        is_finite = tf.math.is_finite(norm)
        context.merge_call(self._apply, args=(gradients, step, is_finite))
        loss = self.head.loss(loss_sums, denominators)
        terms = self.head.terms
        means = [tf.math.divide_no_nan(loss_sums[term], denominators[term]) for term in terms]
        losses = tf.stack([loss, norm, *means, 1.0])
        return losses if scale is None else tf.where(is_finite, losses, 0.0)

    def _gradients(self, batch: Batch, denominators: Sums, step, scale):
        """The losses of a replica's rows, and their gradients.

        Args:
          batch: rows.
          denominators: the denominators of the whole batch.
          step: int32 scalar, for dropout.
          scale: float32 scalar by which the loss is multiplied; None: 1.

        Returns:
          The sum of the losses by term; the gradients by name, times the scale.
        """
        inputs = model_inputs(self.model, batch)
        training_step = TrainingStep(
            step_seed(self.seed, step),
            sequences=batch[SEQUENCES],
            sequence_numbers=batch["input_mask"] if is_packed(batch) else None,
            recompute=self._recompute,
            without_dropout=self._without_dropout,
        )
        with training_step:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(self.weights.values()))
                outputs = self.model(inputs, training=True)
                loss_sums = self.head.loss_sums(outputs, batch)
                loss = self.head.loss(loss_sums, denominators)
                if scale is not None:
                    loss *= scale
            gradients = tape.gradient(loss, self.weights)
        # A weight that the loss does not depend on has none: it is not changed, nor decayed.
        dense = {}
        for name, gradient in gradients.items():
            if gradient is not None:
                dense[name] = tf.convert_to_tensor(gradient)
        return loss_sums, dense

    def _gradients_by_parts(self, batch: Batch, denominators: Sums, step, scale):
        """As `_gradients`; computes K parts of the rows one after the other."""
        num_parts = self.config.gradient_accumulation_steps
        stacked = {}
        for name, value in batch.items():  # [B / R, ...] -> [K, B / (R K), ...]
            stacked[name] = tf.reshape(value, [num_parts, -1, *value.shape[1:]])
        with_gradient: set[str] = set()

        def has_more(number, *_):
            return number < num_parts

        def add_part(number, loss_sums, gradients):
            part = {name: tf.gather(value, number) for name, value in stacked.items()}
            part_sums, part_gradients = self._gradients(part, denominators, step, scale)
            with_gradient.update(part_gradients)
            gradients = dict(gradients)
            for name, gradient in part_gradients.items():
                gradients[name] += gradient
            loss_sums = {term: loss_sums[term] + part_sums[term] for term in loss_sums}
            return number + 1, loss_sums, gradients

        no_losses = {term: tf.zeros([]) for term in self.head.terms}
        zeros = {name: tf.zeros(weight.shape) for name, weight in self.weights.items()}
        _, loss_sums, gradients = tf.while_loop(
            has_more, add_part, (tf.constant(0), no_losses, zeros), maximum_iterations=num_parts
        )
        return loss_sums, {name: gradients[name] for name in gradients if name in with_gradient}

    def _apply(self, strategy: tf.distribute.Strategy, gradients, step, is_finite) -> None:
        """Updates every weight and its moments, on every device; in cross-replica context."""
        rate = self.optimizer.schedule(step)
        count = step + 1
        rates = {scale: rate * scale for scale in set(self._scales.values())}
        for name, gradient in gradients.items():
            scaled_rate = rates[self._scales[name]]
            self._apply_gradient(strategy, name, gradient, scaled_rate, count, is_finite)
        if self.loss_scale is not None:
            self.loss_scale.update(strategy, is_finite)

    def _apply_gradient(
        self, strategy: tf.distribute.Strategy, name: str, gradient, rate, count, is_finite
    ) -> None:
        """Updates a weight and its moments; arguments as for `AdamWeightDecay.new_values`."""
        may_skip = self.loss_scale is not None  # without one, NaN or infinity ends the run

        # All tensors are arguments, so that each device has its own.
        def assign(weight, m, v, gradient, rate, count, skipped_steps, is_finite):
            if may_skip:
                count -= tf.cast(skipped_steps, tf.int32)
            new_values = self._new_values(
                tf.convert_to_tensor(weight),
                tf.convert_to_tensor(m),
                tf.convert_to_tensor(v),
                tf.convert_to_tensor(gradient),
                rate=rate,
                count=count,
                decays=self.optimizer.decays(name),
            )
            for variable, value in zip((weight, m, v), new_values, strict=True):
                variable.assign(tf.where(is_finite, value, variable) if may_skip else value)

        m = self.slots[f"{name}/adam_m"]
        v = self.slots[f"{name}/adam_v"]
        skipped_steps = self.loss_scale.skipped_steps if may_skip else 0
        args = (m, v, gradient, rate, count, skipped_steps, is_finite)
        strategy.extended.update(self.weights[name], assign, args=args)

    # ------------------------------------------------------------------ evaluation, prediction

    def _evaluate(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        """The sums of the whole batch; see `_sums`."""
        sums = self.strategy.run(lambda rows: sum_over_replicas(self.sums(rows)), args=(batch,))
        return tf.nest.map_structure(lambda value: first_replica(self.strategy, value), sums)

    def _sums(self, batch: Batch) -> tuple[tf.Tensor, Sums, Sums, Sums]:
        """For a replica's rows: number of examples, denominators, loss sums, metric sums."""
        outputs = self.model(model_inputs(self.model, batch), training=False)
        loss_sums = self.head.loss_sums(outputs, batch)
        metric_sums = self.head.metric_sums(outputs, batch)
        num_examples = tf.reduce_sum(batch["is_real_example"])
        return num_examples, self.head.denominators(batch), loss_sums, metric_sums

    def _predict(self, batch: Batch, names: tuple[str, ...]):
        """These outputs of each replica, float32; with several processes those of all replicas."""

        def on_replica(rows):
            outputs = self.outputs(rows, names)
            if not runtime.has_peers():
                return outputs
            gather = tf.distribute.get_replica_context().all_gather
            return {name: gather(value, axis=0) for name, value in outputs.items()}

        return self.strategy.run(on_replica, args=(batch,))

    def _outputs(self, batch: Batch, names: tuple[str, ...]) -> dict[str, tf.Tensor]:
        """These outputs for a replica's rows, float32; with packed rows also their layout.

        `packing.in_order` needs the layout: input_mask and `SEQUENCES`.
        """
        outputs = self.model(model_inputs(self.model, batch), training=False)
        chosen = {name: tf.cast(outputs[name], tf.float32) for name in names}
        if is_packed(batch):
            for name in ("input_mask", SEQUENCES):
                chosen[name] = tf.identity(batch[name])  # on the device, where it can be gathered
        return chosen


def is_packed(batch: Batch) -> bool:
    """Whether a batch of fine-tuning has rows of several sequences (data/packing.py).

    False for packed records of pre-training, whose rows count as one sequence: [B, 1].
    """
    return batch[SEQUENCES].shape[1] > 1 and len(batch["input_mask"].shape) == 2


class LossScale:
    """The scale of the loss in float16 (Micikevicius et al., 2018).

    Most gradients are below the least number of float16, 6e-8: the loss is multiplied by the scale,
    and the gradients are divided by it in float32. If gradients are beyond the range of float16,
    the step is skipped and the scale halved; after many steps without a skipped one it is doubled.
    """

    NAME = "bert_tf/loss_scale"
    FIRST = 2.0**15
    LEAST = 1.0
    GROWS_AFTER = 2000  # steps

    def __init__(self):
        """Makes the scale and its counters on every device; call it in the strategy's scope."""
        self.scale = tf.Variable(self.FIRST, trainable=False)
        # int64: TensorFlow keeps int32 variables off GPUs.
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # in a row
        self.skipped_steps = tf.Variable(0, dtype=tf.int64, trainable=False)  # of the whole run
        self.variables = {  # by their names in checkpoints
            self.NAME: self.scale,
            f"{self.NAME}_good_steps": self.good_steps,
            f"{self.NAME}_skipped_steps": self.skipped_steps,
        }

    def update(self, strategy: tf.distribute.Strategy, is_finite: tf.Tensor) -> None:
        """Counts a step and adapts the scale; in cross-replica context.

        Args:
          strategy: the devices.
          is_finite: bool scalar, whether the step's gradients were finite.
        """

        def assign(scale, good_steps, skipped_steps, is_finite):
            num_good = good_steps + 1
            grows = num_good >= self.GROWS_AFTER
            after_good_step = tf.where(grows, scale * 2.0, scale)
            after_skipped_step = tf.maximum(scale / 2.0, self.LEAST)
            skipped_steps.assign_add(tf.cast(~is_finite, tf.int64))
            good_steps.assign(num_good * tf.cast(is_finite & ~grows, tf.int64))
            scale.assign(tf.where(is_finite, after_good_step, after_skipped_step))

        args = (self.good_steps, self.skipped_steps, is_finite)
        strategy.extended.update(self.scale, assign, args=args)


# ------------------------------------------------------------------ functions


def layer_precision(precision: str) -> contextlib.AbstractContextManager[None]:
    """Gives layers made in this context the dtype policy of a precision."""
    return layer_dtype(precision if precision == "float32" else f"mixed_{precision}")


def model_inputs(model: keras.Model, batch: Batch) -> Batch:
    """The model's inputs in a batch."""
    return {name: batch[name] for name in model.input}


def first_replica(strategy: tf.distribute.Strategy, value):
    """The value of this process's first replica."""
    return strategy.experimental_local_results(value)[0]


def sum_over_replicas(values):
    """Each of the values, summed over all replicas; in replica context."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def step_seed(seed: int, step: tf.Tensor):
    """The seed of a step's dropout: int32 scalar, different for each (seed, step)."""
    seed = np.array(seed % 2**32, np.uint32).astype(np.int32)
    return mix(tf.cast(step, tf.int32) * GOLDEN_RATIO ^ mix(tf.constant(seed)))
