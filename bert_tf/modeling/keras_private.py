"""What we use of Keras though its name begins with an underscore: all of it, each with its reason.

tests/modeling/test_keras_private.py fails where Keras changes one of them, and where another file
uses one.
"""

from typing import Any

import keras


def index_of_variable(optimizer: keras.Optimizer, variable: Any) -> int:
    """The place of a variable among those that an optimizer was built with.

    On TensorFlow Keras calls `update_step` with a tf.Variable, under a strategy with a device's
    part of one, and nothing public says to which of the optimizer's variables it belongs.
    """
    return optimizer._get_variable_index(variable)
