"""BERT's optimizer and learning rate for `fit`, by their formulas in training/optimization.py."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import check
from bert_tf.training.optimization import Schedule


def make_optimizer(
    num_train_steps: int, *, learning_rate: float = 5e-5, warmup_proportion: float = 0.1
) -> keras.optimizers.Optimizer:
    """The optimizer of `run_classifier.py`, for `compile`.

    Args:
      num_train_steps: of the whole training: `epochs * len(dataset)`.
      learning_rate: the maximum, at the end of the warm-up.
      warmup_proportion: the share of the steps in which it rises; then it falls to 0.

    Raises:
      InputError: one of them is out of range.
    """
    num_train_steps, learning_rate, warmup_proportion = (
        number.item() if isinstance(number, np.generic) else number
        for number in (num_train_steps, learning_rate, warmup_proportion)
    )
    check("num_train_steps", num_train_steps, int, low=1)
    check("warmup_proportion", warmup_proportion, float, low=0, high=1)
    schedule = WarmupSchedule(
        learning_rate=learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=int(num_train_steps * warmup_proportion),
    )
    return AdamWeightDecay(schedule)


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay: `training.optimization.Schedule` for Keras."""

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        end_learning_rate: float = 0.0,
    ):
        """Takes the fields of `Schedule`."""
        self._schedule = Schedule(
            learning_rate=learning_rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            end_learning_rate=end_learning_rate,
        )

    def __call__(self, step: Any) -> Any:
        """The rate of a step, counted from 0."""
        return self._schedule(ops.convert_to_tensor(step))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return dataclasses.asdict(self._schedule)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.AdamW):
    """Adam with decoupled weight decay, as the original has it (`AdamWeightDecayOptimizer`).

    It differs from Keras's AdamW in its defaults and in that there is no bias correction; biases
    and normalizations are not decayed. Keras clips each replica's gradient, not their sum: on
    several devices training differs a little from that on one.
    """

    def __init__(
        self,
        learning_rate: Any,
        *,
        weight_decay: float = 0.01,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ):
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            name=name,
            **kwargs,
        )
        self.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Moves a variable, once Keras has decayed it."""
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign(m, self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        self.assign(v, self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient))
        update = m / (ops.sqrt(v) + self.epsilon)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * update)
