"""What we use of Keras though its name begins with an underscore: all of it, each with its reason.

tests/modeling/test_keras_private.py fails where Keras changes one of them, and where another file
uses one.
"""

import importlib
from typing import Any

import keras


def index_of_variable(optimizer: keras.Optimizer, variable: Any) -> int:
    """The place of a variable among those that an optimizer was built with.

    On TensorFlow Keras calls `update_step` with a tf.Variable, under a strategy with a device's
    part of one, and nothing public says to which of the optimizer's variables it belongs.
    """
    return optimizer._get_variable_index(variable)


class SumsFirst(keras.optimizers.Optimizer):
    """An optimizer that clips the gradients of a whole batch, as a training loop does.

    Keras clips those of each replica, and of an embedding a list of slices in which a row may stand
    several times: both have another norm. Nothing public comes between the mean of accumulated
    gradients and the update.
    """

    def clipped(self, gradients: list[Any]) -> list[Any]:
        """The gradients of the whole batch as they are applied; they are dense."""
        raise NotImplementedError

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        return self.clipped(_summed(grads))

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # they are summed


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
