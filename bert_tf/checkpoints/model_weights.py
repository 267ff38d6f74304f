"""The weights of a Keras model by their names in the original's checkpoints."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras

from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.config import HEADS
from bert_tf.errors import InputError
from bert_tf.modeling.layers import Embeddings

_ARCHITECTURES = {  # by the model's name, where no name of a weight shows it
    "multiple_choice": HEADS["multiple_choice"],
    "token_labels": HEADS["token_labels"],
}


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Every weight of a model, trainable or frozen, by its name.

    Raises:
      InputError: layers are quantized or have LoRA: their variables are not the original's.
    """
    _refuse_quantized(model, "a model of floating-point numbers")
    if _layers_with_lora(model):
        raise InputError(
            f"{model.name}, which has LoRA",
            "a model without: its kernels are sums of several weights",
            "load the weights first, then call add_lora",
        )
    return {checkpoint_name(variable): variable for variable in model.weights}


def weights_of(model: keras.Model, *, path: str | None = None, **found: Any) -> Weights:
    """The weights of a model, with the factors of LoRA merged into its kernels.

    Args:
      model: one of `bert_tf.modeling.models`, or any whose layers are named alike. What its
        attributes `tokenizer`, `labels` and `metadata` say, if it has them, belongs to the weights.
      path: the file it is from, for messages.
      **found: what is beside that, as fields of `Weights`; what the model carries takes precedence.

    Raises:
      InputError: it is no model of this package, or is quantized.
    """
    path = path or model.name
    encoder = [layer for layer in model._flatten_layers() if isinstance(layer, Embeddings)]
    if not encoder:
        names = ", ".join(layer.name for layer in model.layers[:5])
        raise InputError(
            f"{path}, a model of the layers {names}",
            "a model of bert_tf.modeling.models",
            "give a checkpoint of another format; other Keras libraries' files are not read",
        )
    _refuse_quantized(model, "its weights as floating-point numbers, as they are trained")
    tensors, config = _tensors(model), encoder[0].config
    own = _belongings(model, path, found, longest=config.max_position_embeddings)
    return Weights(
        path=path,
        format="keras",
        shapes={name: shape for name, (shape, _) in tensors.items()},
        read=lambda name: keras.ops.convert_to_numpy(tensors[name][1]()),
        **own | {"config": config},
    )


def _tensors(model: keras.Model) -> dict[str, tuple[tuple[int, ...], Callable]]:
    """The shape of every weight, and what gives its value, by its name."""
    with_lora = _layers_with_lora(model)
    factors = {id(f) for x in with_lora for f in (x.lora_kernel_a, x.lora_kernel_b)}
    merged = {id(layer._kernel): layer.merged_kernel for layer in with_lora}
    tensors = {}
    for variable in model.weights:
        if id(variable) not in factors:
            value = merged.get(id(variable), functools.partial(_value, variable))
            tensors[checkpoint_name(variable)] = tuple(variable.shape), value
    return tensors


def _value(variable: keras.Variable) -> Any:
    return variable.value


def _belongings(
    model: keras.Model, path: str, found: Mapping[str, Any], *, longest: int
) -> dict[str, Any]:
    """Vocabulary and metadata: what a model carries itself, else what is found beside it."""
    found = {name: value for name, value in found.items() if value is not None}
    beside = found.get("metadata", ModelMetadata())
    labels, tokenizer = getattr(model, "labels", None), getattr(model, "tokenizer", None)
    own = dict(getattr(model, "metadata", {}))
    own |= {"architecture": _ARCHITECTURES.get(model.name), "labels": labels and tuple(labels)}
    if tokenizer is not None:
        own["do_lower_case"] = tokenizer.do_lower_case
        beside = dataclasses.replace(beside, never_split=tokenizer.never_split or None)
        own["max_seq_length"] = None if tokenizer.max_length == longest else tokenizer.max_length
        found |= {"pieces": tokenizer.pieces, "vocab_file": path}
    own = {name: value for name, value in own.items() if value is not None}
    return {**found, "metadata": dataclasses.replace(beside, **own)}


def _layers_with_lora(model: keras.Model) -> list[keras.layers.Dense]:
    return [x for x in model._flatten_layers() if getattr(x, "lora_enabled", False)]


def _refuse_quantized(model: keras.Model, expected: str) -> None:
    quantized = [x for x in model._flatten_layers() if x.quantization_mode is not None]
    if quantized:
        raise InputError(
            f"{model.name}, of which {len(quantized)} layers are quantized",
            expected,
            "use the model as it was before `quantize`; of a quantized one `model.save` alone "
            "writes a file",
        )
