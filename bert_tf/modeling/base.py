"""The base of BERT's layers: sizes from a `BertConfig`, and the parts that most of them have."""

from typing import Any

import keras
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import BertConfig
from bert_tf.modeling.dense import Dense, quantization_of, restore_quantization
from bert_tf.modeling.dropout import Dropout


def activation(name: str):
    """The function behind a `hidden_act`: gelu is the tanh form, gelu_erf the exact one."""
    return {
        "gelu": lambda x: ops.gelu(x, approximate=True),
        "gelu_erf": lambda x: ops.gelu(x, approximate=False),
        "relu": ops.relu,
        "tanh": ops.tanh,
        "linear": lambda x: x,
    }[name]


class BertLayer(keras.layers.Layer):
    """A layer with the sizes of a `BertConfig`, which is serialized with it."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)

    def dense(self, units: int, name: str = "dense") -> Dense:
        """A dense layer with BERT's initializer, of this layer's dtype."""
        kernel = TruncatedNormal(stddev=self.config.initializer_range)
        return Dense(units, kernel_initializer=kernel, dtype=self.dtype_policy, name=name)

    def layer_norm(self) -> keras.layers.LayerNormalization:
        """Layer normalization with BERT's epsilon (Keras's own default is 1e-3)."""
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    def dropout_layer(self, rate: float) -> Dropout:
        """Dropout of this layer's dtype."""
        return Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def get_config(self):
        """The constructor's arguments, and how the dense layers inside are quantized.

        A layer in which only LoRA's factors are trained is saved as frozen, because the factors
        are merged.
        """
        config = {**super().get_config(), "config": self.config.to_dict()}
        own = [v for v in self.weights if not v.name.startswith("lora_kernel")]
        config["trainable"] = self.trainable and (not own or any(v.trainable for v in own))
        if kinds := quantization_of(self):
            config["dense"] = kinds
        return config

    @classmethod
    def from_config(cls, config):
        """The layer of what `get_config` gave."""
        config = dict(config)
        kinds = config.pop("dense", None)
        layer = super().from_config(config)
        for inner in layer._flatten_layers(include_self=False):
            inner.trainable = layer.trainable
        restore_quantization(layer, kinds)
        return layer

    def compute_output_shape(self, x_shape, *_):
        """The shape of the first input, with D at its end."""
        return (*x_shape[:-1], self.config.hidden_size)
