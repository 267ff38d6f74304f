"""The dense layer of the models, and LoRA, which trains two small matrices beside its kernel.

    x W    becomes    x (W + alpha / rank * A B)

W [in, out] is frozen, A [in, rank] and B [rank, out] are trained. B begins as 0, so that the model
first computes what it did before.
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

# The dense layers of the encoder: the paths that have each.
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

    So its gradient is one product, and no batched ones. Besides, unlike Keras's own: a subclass can
    be quantized, and its policy is found by its path in a layer that is loaded; what LoRA merges is
    not rounded to the compute dtype; and factors that are loaded again can be trained.
    """

    def call(self, x: Any) -> Any:
        """x [..., in] -> [..., units]."""
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(super().call(rows), (*ops.shape(x)[:-1], self.units))

    @property
    def dtype_policy(self) -> Any:
        """As Keras's own; of a layer that was made with policies by path, that of its path."""
        return policy_at(super().dtype_policy, self.path)

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        keras.layers.Dense.dtype_policy.fset(self, value)

    @property
    def kernel(self) -> Any:
        """As Keras's own, with LoRA's product; but what is saved is not rounded as in `call`."""
        if not self.lora_enabled or self.quantization_mode:
            return super().kernel
        factors = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return frozen_kernel(self) + factors * (self.lora_alpha / self.lora_rank)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """As Keras's own, which refuses every subclass."""
        super().quantize(mode, type_check=False, config=config)

    def load_own_variables(self, store: Any) -> None:
        """As Keras's own, which also zeroes LoRA's first factor: no gradient would be left."""
        first = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


def policy_at(policy: Any, path: str | None) -> Any:
    """The policy of the layer at a path, None before it is built; `policy` may be one for all."""
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
    """Freezes the encoder, and trains factors of a low rank beside some of its kernels.

    The heads stay trainable. Call it when the weights are loaded, and before `model.compile`.
    `model.save` and `bert_tf.save_weights` write the merged kernels, W + alpha / rank * A B, under
    their own names: what is saved is a model without LoRA, as large as before.
    Loaded again, all its weights are trainable.

    Args:
      model: a model of this package; it is changed.
      rank: columns of A, at most as many as the kernel's rows and columns.
      alpha: scale of the product, divided by the rank; default: the rank.
      targets: of query, key, value, attention_output, intermediate, output and pooler; by default
        as in the paper.

    Returns:
      The number of weights that are trained now.

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
            layer.trainable = True  # a frozen layer's variables are not trained, whatever they are
    for variable in model.weights:
        if re.match(_ENCODER, variable.path):
            variable.trainable = variable.name.startswith("lora_kernel")
    forget_functions(model)
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    what = f"LoRA of rank {rank} beside {len(chosen)} kernels"
    logging.info("%s: %s of %s weights are trained.", what, trained, model.count_params())
    return trained


def forget_functions(model: keras.Model) -> None:
    """Makes a model and those inside of it trace again what they compute: layers have changed."""
    for part in parts_of(model, keras.Model):
        part.train_function = part.test_function = part.predict_function = None
