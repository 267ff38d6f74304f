"""What BERT's layers share: their configuration, their inner layers, checks of their arguments."""

import inspect
from typing import Any

import keras
import numpy as np
from keras.initializers import TruncatedNormal

from bert_tf.declarations import check
from bert_tf.modeling.lora import Dense, quantized_dtype  # a Dense that LoRA and int8 can change
from bert_tf.modeling.memory import Dropout  # its masks are the same on any number of devices


class BertLayer(keras.layers.Layer):
    """The base of BERT's layers.

    A subclass stores each argument of its constructor in an attribute of the same name, where
    `get_config` finds it; initializer_range and layer_norm_eps before it makes inner layers, which
    take them from there. The output has the Keras mask of the input.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        for cls in type(self).__mro__:
            if issubclass(cls, BertLayer) and "__init__" in vars(cls):
                for name in inspect.signature(cls.__init__).parameters:
                    # An argument without such an attribute is left to the subclass's get_config.
                    if name not in config and hasattr(self, name):
                        config[name] = getattr(self, name)
        return config | quantized_dtype(self)

    def make_dense(self, units: int, name: str = "dense") -> Dense:
        """A dense layer with BERT's initializer."""
        kernel = TruncatedNormal(stddev=self.initializer_range)
        return Dense(units, kernel_initializer=kernel, name=name, **self.part_arguments())

    def make_layer_norm(self) -> keras.layers.LayerNormalization:
        """Layer normalization with BERT's epsilon (Keras's own default is 1e-3)."""
        return keras.layers.LayerNormalization(
            epsilon=self.layer_norm_eps, name="LayerNorm", **self.part_arguments()
        )

    def make_dropout(self, rate: float) -> Dropout:
        """A dropout layer."""
        return Dropout(rate, name="dropout", **self.part_arguments())

    def part_arguments(self) -> dict[str, Any]:
        """Arguments that inner layers share with this one: dtype policy, and trainable."""
        return {"dtype": self.dtype_policy, "trainable": self.trainable}


def checked_size(name: str, value: Any) -> int:
    """A size, such as a number of heads, as an int; raises `InputError` if it is below 1."""
    value = _number(value)
    remedy = "give a number; sizes of a configuration: from_bert_config(config)"
    check(name, value, int, low=1, high=2**31 - 1, remedy=remedy)
    return value


def checked_rate(name: str, value: Any) -> float:
    """A dropout rate as a float; raises `InputError` unless 0 <= rate < 1."""
    value = _number(value)
    check(name, value, float, low=0, below=1)
    return value


def checked_scale(name: str, value: Any) -> float:
    """A standard deviation or an epsilon as a float; raises `InputError` if it is negative."""
    value = _number(value)
    check(name, value, float, low=0, high=1e6)
    return value


def _number(value: Any) -> Any:
    """A NumPy number as Python's, so that it can be saved as JSON."""
    return value.item() if isinstance(value, np.generic) else value
