"""The dense layer of the models, and LoRA, which trains two small matrices beside its kernel.

    x W    becomes    x (W + alpha / rank * A B)

W [in, out] is frozen, A [in, rank] and B [rank, out] are trained. B begins as 0, so that at first
the model computes the same as without LoRA.
Source: Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", section 4.
"""

import math
import re
from typing import Any

import keras
from absl import logging
from keras import ops

from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.modeling.parts import parts_of

# Patterns of the paths of the encoder's dense layers, by the names of `targets`.
TARGETS = {
    "query": r"layer_\d+/attention/self/query",
    "key": r"layer_\d+/attention/self/key",
    "value": r"layer_\d+/attention/self/value",
    "attention_output": r"layer_\d+/attention/output/dense",
    "intermediate": r"layer_\d+/intermediate/dense",
    "output": r"layer_\d+/output/dense",
    "pooler": r"pooler/dense",
}
_ENCODER = r"(embeddings|layer_\d+|pooler)/"


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(keras.layers.Dense):
    """A dense layer that takes all rows as one matrix, [..., in] -> [..., units].

    Its gradient is one product instead of a batch of them. Other differences from Keras's layer: a
    subclass can be quantized, and finds its dtype policy by its path when it is loaded; the kernel
    with LoRA's product is not rounded to the compute dtype; loaded LoRA factors can be trained.
    """

    def call(self, x: Any) -> Any:
        """x [..., in] -> [..., units]."""
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(super().call(rows), (*ops.shape(x)[:-1], self.units))

    @property
    def dtype_policy(self) -> Any:
        """Like Keras's; if the layer was made with policies by path, the one of its path."""
        return policy_at(super().dtype_policy, self.path)

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        keras.layers.Dense.dtype_policy.fset(self, value)

    @property
    def kernel(self) -> Any:
        """Like Keras's, with LoRA's product; but a saved kernel is not rounded as in `call`."""
        if not self.lora_enabled or self.quantization_mode:
            return super().kernel
        factors = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return frozen_kernel(self) + factors * (self.lora_alpha / self.lora_rank)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """Like Keras's, which refuses subclasses."""
        super().quantize(mode, type_check=False, config=config)

    def load_own_variables(self, store: Any) -> None:
        """Like Keras's, which also sets A to 0; with A and B both 0, neither has a gradient."""
        lora_a = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if lora_a is not None:
            self.lora_kernel_a.assign(lora_a)


def policy_at(policy: Any, path: str | None) -> Any:
    """The dtype policy of the layer at a path, from one policy for all or a map by path.

    The path is None before the layer is built.
    """
    by_path = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
    return policy[f"{path}"] if by_path else policy


def quantized_dtype(layer: keras.layers.Layer) -> dict[str, Any]:
    """`dtype` for `get_config`: the policies of quantized parts by path; {} if there are none."""
    policies = keras.dtype_policies.DTypePolicyMap(policy_at(layer.dtype_policy, layer.path))
    for part in parts_of(layer, keras.layers.Layer):
        if part is not layer and part.quantization_mode is not None:
            inside = f"{layer.name}/{part.path.removeprefix(f'{layer.path}/')}"
            policies[f"(.*/)?{re.escape(inside)}"] = part.dtype_policy  # wherever the layer is
    return {"dtype": keras.dtype_policies.serialize(policies)} if len(policies) else {}


def frozen_kernel(layer: keras.layers.Dense) -> keras.Variable:
    """The variable W of a dense layer, without what LoRA adds to it."""
    return next(variable for variable in layer.weights if variable.name == "kernel")


def add_lora(
    model: keras.Model,
    rank: int = 8,
    *,
    alpha: float | None = None,
    targets: list[str] | tuple[str, ...] = ("query", "value"),
) -> int:
    """Freezes the encoder, and trains low-rank factors beside some of its kernels.

    The heads stay trainable. Call it after loading weights, and before `model.compile`.
    `model.save` and `bert_tf.save_weights` write the merged kernels, W + alpha / rank * A B, under
    the usual names: the saved model has no LoRA, is as large as before, and all its weights are
    trainable when it is loaded.

    Args:
      model: a model of this package; it is changed.
      rank: columns of A, at most as many as the kernel's rows and columns.
      alpha: the scale of the product is alpha / rank; default: alpha = rank.
      targets: some of query, key, value, attention_output, intermediate, output and pooler; the
        default is that of the paper.

    Returns:
      The number of trained weights.

    Raises:
      InputError: the rank is invalid, or the model has no encoder of ours.
      KeyError: there is no such target.
      ValueError: the model has LoRA already.
    """
    patterns = "|".join(TARGETS[name] for name in targets)
    layers = parts_of(model, keras.layers.Dense)
    chosen = [layer for layer in layers if re.fullmatch(patterns, f"{layer.path}")]
    if not chosen:
        received = f"{model.name}, a model without a BERT encoder: no layer is named layer_0/..."
        remedy = "make it with bert_tf.load, or name the blocks as BertModel does: layer_0, layer_1"
        raise InputError(received, "a model of bert_tf", remedy)
    check("rank", rank, int, low=1, high=min(min(layer.kernel.shape) for layer in chosen))
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha=alpha)
    for layer in parts_of(model, keras.layers.Layer):
        if re.match(_ENCODER, f"{layer.path}/"):
            layer.trainable = True  # variables of a frozen layer are never trained
    for variable in model.weights:
        if re.match(_ENCODER, variable.path):
            variable.trainable = variable.name.startswith("lora_kernel")
    forget_functions(model)
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    kernels = f"LoRA of rank {rank} beside {len(chosen)} kernels"
    logging.info("%s: %s of %s weights are trained.", kernels, trained, model.count_params())
    return trained


def forget_functions(model: keras.Model) -> None:
    """Makes a model and its inner models trace their functions anew, as layers have changed."""
    for part in parts_of(model, keras.Model):
        part.train_function = None
        part.test_function = None
        part.predict_function = None
