"""Weights in, from every format that a BERT comes in, and of Keras models.

    open_weights(path)             names, shapes, configuration, vocabulary; tensors when read
    weights_of(model)              the same of a model
    load_checkpoint(model, path)   into a model, with a report of every name

Everything has the original's names and shapes in between (`metadata.Weights`). companions.py checks
what else belongs to weights: configuration, vocabulary, labels.
"""

import dataclasses
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.companions import match_model
from bert_tf.checkpoints.metadata import PARTS_INDEX, WEIGHT_FILES, ModelMetadata, Weights
from bert_tf.errors import InputError
from bert_tf.files import path_errors
from bert_tf.heads import ENCODER, NAMES, OUTPUT, head_named
from bert_tf.modeling.layers import Embeddings
from bert_tf.terminal import counted

_PARTS = {  # of a model, by the names of its weights
    "BERT encoder": ENCODER,
    "pooler": "bert/pooler/",
    "masked-LM head": "cls/predictions/",
    "next-sentence head": "cls/seq_relationship/",
    "question-answering head": "cls/squad/",
    "classifier": OUTPUT,
}
# ---------------------------------------------------------------------------- opening


def _is_keras(path: str) -> bool:
    return path.endswith((".keras", ".weights.h5")) and tf.io.gfile.exists(path)


def _is_hugging_face(path: str) -> bool:
    """Whether it is one of their folders, or a file of weights in one."""
    if path.removesuffix(PARTS_INDEX).endswith((".safetensors", ".bin")):
        return True
    return any(tf.io.gfile.exists(os.path.join(path, name)) for name in WEIGHT_FILES)


def _is_tf2(path: str) -> bool:
    return "_CHECKPOINTABLE_OBJECT_GRAPH" in tf1.CheckpointReader(path).shapes


# The formats beside TF1: whether a path is of one; the module, imported only then, and the function
# that opens it.
READERS = {
    "keras": (_is_keras, "bert_tf.checkpoints.keras_files", "open_keras"),
    "hugging_face": (_is_hugging_face, "bert_tf.checkpoints.hugging_face", "open_hugging_face"),
    "tf2": (_is_tf2, "bert_tf.checkpoints.tf2", "open_tf2"),
}


def open_weights(path: str | os.PathLike) -> Weights:
    """Opens weights of any format; tensors are read when they are asked for.

    Args:
      path: a TF1 or TF2 checkpoint (its prefix, a file of it or its folder), a .keras or
        .weights.h5 file, or a folder (or .safetensors or .bin file) of Hugging Face's.

    Raises:
      InputError: there is nothing, it is damaged, or it is not of a BERT.
    """
    path = str(path)
    with path_errors(path):
        for is_format, module, function in READERS.values():
            if is_format(path):
                return getattr(importlib.import_module(module), function)(path)
        return tf1.open_tf1(path)


# ---------------------------------------------------------------------------- of a model


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Every weight of a model, trainable or frozen, by its name in the original's checkpoints.

    Raises:
      InputError: layers are quantized or have LoRA: their variables are not the original's.
    """
    _refuse_quantized(model, "a model of floating-point numbers")
    if _layers_with_lora(model):
        expected = "a model without: its kernels are sums of several weights"
        remedy = "load the weights first, then call add_lora"
        raise InputError(f"{model.name}, which has LoRA", expected, remedy)
    return {tf1.checkpoint_name(variable): variable for variable in model.weights}


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
        received, expected = f"{path}, a model of the layers {names}", "a model of bert_tf"
        remedy = "give a checkpoint of another format; other libraries' Keras files are not read"
        raise InputError(received, expected, remedy)
    _refuse_quantized(model, "its weights as floating-point numbers, as they are trained")
    with_lora, config = _layers_with_lora(model), encoder[0].config
    factors = {id(f) for x in with_lora for f in (x.lora_kernel_a, x.lora_kernel_b)}
    merged = {id(layer._kernel): layer.merged_kernel for layer in with_lora}
    variables = {tf1.checkpoint_name(v): v for v in model.weights if id(v) not in factors}

    def read(name: str) -> Any:
        variable = variables[name]
        value = merged[id(variable)]() if id(variable) in merged else variable.value
        return keras.ops.convert_to_numpy(value)

    return Weights(
        path=path,
        format="keras",
        shapes={name: tuple(variable.shape) for name, variable in variables.items()},
        read=read,
        config=config,
        **_belongings(model, path, found, longest=config.max_position_embeddings),
    )


def _belongings(
    model: keras.Model, path: str, found: Mapping[str, Any], *, longest: int
) -> dict[str, Any]:
    """Vocabulary and metadata: what a model carries itself, else what is found beside it."""
    found = {name: value for name, value in found.items() if name != "config" and value is not None}
    beside = found.get("metadata", ModelMetadata())
    labels, tokenizer = getattr(model, "labels", None), getattr(model, "tokenizer", None)
    own = dict(getattr(model, "metadata", {}))
    own["labels"] = labels and tuple(labels)
    own["architecture"] = head_named(model.name).architecture if model.name in NAMES else None
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
        received = f"{model.name}, of which {len(quantized)} layers are quantized"
        remedy = "use the model as it was before `quantize`, which `model.save` alone can write"
        raise InputError(received, expected, remedy)


# ---------------------------------------------------------------------------- loading


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Which variables were loaded from a checkpoint, by the original's names."""

    path: str
    matched: Sequence[str]
    missing: Sequence[str]  # in the model, not taken from the file: they keep their fresh values
    unused: Sequence[str]  # in the file, not taken
    slots: Sequence[str]  # of an optimizer; never loaded as weights

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.matched)} variables loaded"]
        for label, names in (("missing (kept fresh)", self.missing), ("unused", self.unused)):
            lines.append(f"  {label}: {len(names)}" + "".join(f"\n    {name}" for name in names))
        lines.append(f"  optimizer state, not loaded: {len(self.slots)}")
        return "\n".join(lines)


def load_checkpoint(
    model: keras.Model,
    path: "str | os.PathLike | Weights",
    *,
    required: str = ENCODER,
    skip: str | None = None,
) -> LoadReport:
    """Puts weights into a model, by name.

    Args:
      model: one of `bert_tf.modeling.models`, or any whose layers are named alike.
      path: as for `open_weights`, or what that gave.
      required: a pattern of the names that must be there; by default the encoder's, without its
        pooler, which many models leave out.
      skip: a pattern of the names that are not taken though they may be there.

    Returns:
      The variables matched, missing and unused. What is missing keeps its fresh weights.

    Raises:
      InputError: a required weight is missing, one has another shape, or nothing matches; what
        the model carries (configuration, labels, tokenizer) is not that of the weights; or it is
        quantized or has LoRA. The model is then unchanged.
    """
    weights = path if isinstance(path, Weights) else open_weights(path)
    variables = named_variables(model)
    taken = {name for name in weights.shapes if not (skip and re.match(skip, name))}
    report = LoadReport(
        path=weights.path,
        matched=sorted(variables.keys() & taken),
        missing=sorted(variables.keys() - taken),
        unused=[name for name in weights.names if name not in variables or name not in taken],
        slots=weights.slots,
    )
    _check_report(report, variables, weights.shapes, required)
    with_head = any(re.match(OUTPUT, name) for name in report.matched)
    weights = match_model(weights, model, with_head=with_head)
    names = counted(report.matched, "load the weights", len(report.matched), "variables")
    values = {name: weights.read(name) for name in names}
    for name, value in values.items():
        if not tf.as_dtype(value.dtype).is_floating:
            received = f"{weights.path}, whose {name} has values of the type {value.dtype.name}"
            remedy = "give a checkpoint that is not quantized"
            raise InputError(received, "floating-point numbers", remedy)
    for name, value in values.items():
        variables[name].assign(value)
    return report


def _check_report(
    report: LoadReport,
    variables: Mapping[str, keras.Variable],
    shapes: Mapping[str, Sequence[int]],
    required: str,
) -> None:
    lacking = {name for name in report.missing if re.match(required, name)}
    for part, pattern in _PARTS.items():
        needed = {name for name in variables if re.match(pattern, name)}
        if needed and needed <= lacking:
            unused = f"; it has {', '.join(report.unused[:3])}" if report.unused else ""
            received = f"{report.path}, a model without a {part}{unused}"
            raise InputError(received, f"a model with a {part}", "give such a checkpoint")
    remedy = "check that the checkpoint and --bert_config_file belong together"
    if lacking or not report.matched:
        such = ", ".join(sorted(lacking or report.missing)[:3])
        lacks = f"lacks {len(lacking) or 'all'} of the model's weights, such as {such}"
        raise InputError(f"{report.path}, which {lacks}", "the weights of this model", remedy)
    for name in report.matched:
        theirs, own = tuple(shapes[name]), tuple(variables[name].shape)
        if theirs != own:
            received = f"{report.path}, whose {name} has the shape {theirs}"
            raise InputError(received, f"{own}, as the configuration says", remedy)
