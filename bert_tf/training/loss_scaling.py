"""The scale of the loss with which float16 can hold gradients (Micikevicius et al., 2018).

Most gradients are below what float16 resolves, 6e-8; the loss is multiplied by a scale before they
are computed and they are divided by it after, in float32. The scale looks after itself: it is
halved when a step's gradients are beyond float16's range, and that step left out; and it is doubled
after many steps without one.
"""

from collections.abc import Mapping

import tensorflow as tf

FIRST, LEAST = 2.0**15, 1.0
GROWS_AFTER = 2000  # steps


class LossScale:
    """The scale, and the counts that it depends on; variables on every device."""

    def __init__(self):
        """Makes the variables; in a strategy's scope."""
        self.scale = tf.Variable(FIRST, trainable=False)
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
        return float(self.scale.numpy()) <= LEAST

    def update(self, strategy: tf.distribute.Strategy, is_finite: tf.Tensor) -> None:
        """After a step whose gradients were finite or not; in cross-replica context."""

        def assign(scale, good_steps, skipped_steps, is_finite):
            good = good_steps + 1
            grows = good >= GROWS_AFTER
            kept = tf.where(grows, scale * 2.0, scale)
            skipped_steps.assign_add(tf.cast(~is_finite, tf.int64))
            good_steps.assign(good * tf.cast(is_finite & ~grows, tf.int64))
            scale.assign(tf.where(is_finite, kept, tf.maximum(scale / 2.0, LEAST)))

        args = (self.good_steps, self.skipped_steps, is_finite)
        strategy.extended.update(self.scale, assign, args=args)

    def restore(self, values: Mapping[str, object]) -> None:
        """Puts back what a checkpoint has of `variables`; the others begin anew."""
        for name, variable in self.variables.items():
            first = FIRST if variable is self.scale else 0
            variable.assign(values.get(name, first))
