"""All private names of Keras that we use, each with its reason.

tests/modeling/test_keras_private.py fails if Keras changes one, or if another file uses one.
"""

import importlib
from typing import Any

import keras


def index_of_variable(optimizer: keras.Optimizer, variable: Any) -> int:
    """The index of a variable among those that an optimizer was built with.

    On TensorFlow, Keras calls `update_step` with a tf.Variable, under a strategy with one device's
    copy of it. No public function finds the Keras variable that it belongs to.
    """
    return optimizer._get_variable_index(variable)


class SumsFirst(keras.optimizers.Optimizer):
    """An optimizer that sums gradients over replicas before it clips them, as our loop does.

    Keras clips on each replica, and an embedding's gradient as slices, in which a row may occur
    several times; the norm is another one in both cases. No public method is called between the
    mean of accumulated gradients and the update.
    """

    def clipped(self, gradients: list[Any]) -> list[Any]:
        """Clips the gradients of the whole batch, which are dense."""
        raise NotImplementedError

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        return self.clipped(_summed(grads))

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # `_clip_gradients` has summed them


def _summed(gradients: list[Any]) -> list[Any]:
    """Dense gradients, on TensorFlow summed over the replicas."""
    if keras.backend.backend() != "tensorflow":
        return gradients
    tf: Any = importlib.import_module("tensorflow")
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return dense
    return context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
