"""Keras models: the weights of one in memory, and those in a .keras file."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints.loading import WEIGHTS_ALONE, refuse_quantized
from bert_tf.checkpoints.metadata import ModelMetadata, Weights, damage_errors, read_model_files
from bert_tf.errors import InputError
from bert_tf.files import check_regular, is_remote
from bert_tf.heads import NAMES, head_named
from bert_tf.modeling.lora import frozen_kernel
from bert_tf.modeling.models import config_of_model
from bert_tf.modeling.names import by_name
from bert_tf.modeling.parts import parts_of
from bert_tf.tokenization.wordpiece import FullTokenizer


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
    config, path = config_of_model(model), path or model.name
    if config is None:
        names = ", ".join(layer.name for layer in model.layers[:5])
        received, expected = f"{path}, a model of the layers {names}", "a model of bert_tf"
        remedy = "give a checkpoint of another format; other libraries' Keras files are not read"
        raise InputError(received, expected, remedy)
    refuse_quantized(model)
    own = [x for x in model.weights if not x.name.startswith("lora_kernel")]
    variables = by_name(own, path)
    dense = parts_of(model, keras.layers.Dense)
    merged = {id(frozen_kernel(layer)): layer for layer in dense if layer.lora_enabled}

    def read(name: str) -> Any:
        variable = variables[name]
        layer = merged.get(id(variable))
        return keras.ops.convert_to_numpy(layer.kernel if layer else variable.value)

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
    own = dict(getattr(model, "metadata", {}))
    if labels := getattr(model, "labels", None):
        own["labels"] = tuple(labels)
    task = own.get("task", model.name)
    if task in NAMES:
        head = head_named(task)
        own["architecture"] = head.architecture
        if head.is_ambiguous:
            own["task"] = head.name
    if tokenizer := getattr(model, "tokenizer", None):
        own |= tokenizer.case
        own["max_seq_length"] = None if tokenizer.max_length == longest else tokenizer.max_length
        beside = dataclasses.replace(beside, never_split=tokenizer.never_split or None)
        found |= {"pieces": tokenizer.pieces, "vocab_file": path}
    own = {name: value for name, value in own.items() if value is not None}
    return found | {"metadata": dataclasses.replace(beside, **own)}


def refuse_other_tokenizer(
    model: keras.Model, tokenizer: FullTokenizer, *, max_seq_length: int
) -> None:
    """Raises `InputError` if a model carries another tokenizer, or has too small a table for it."""
    if config := config_of_model(model):
        config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
        config.check_sequence_length(max_seq_length)
    own = getattr(model, "tokenizer", None) or tokenizer
    names = ("pieces", "case", "never_split")
    if any(getattr(own, name) != getattr(tokenizer, name) for name in names):
        received = f"{tokenizer.vocab_file}, another tokenizer than that of {model.name}"
        expected = f"the tokenizer of {own.vocab_file}, which the model carries"
        raise InputError(received, expected, "give model.tokenizer")


# ---------------------------------------------------------------------------- files


def open_keras(path: str) -> Weights:
    """Opens a model saved by `Model.save`.

    Raises:
      InputError: the file cannot be read, or is of a model that is quantized, or not of this
        package; or it was saved by `Model.save_weights`.
    """
    if path.endswith(WEIGHTS_ALONE):
        remedy = "load it by Keras, model.load_weights(path), and save it by model.save(new_path)"
        raise InputError(f"{path}, without the model of the weights", "a .keras file", remedy)
    check_regular(path)
    found = read_model_files(os.path.dirname(path))
    with contextlib.ExitStack() as at_end:
        local = path
        if is_remote(path):  # Keras reads local files
            folder = at_end.enter_context(tempfile.TemporaryDirectory())
            local = os.path.join(folder, os.path.basename(path))
            tf.io.gfile.copy(path, local)
        expected = "a whole file of a model of this version of bert_tf, saved by Keras"
        at_end.enter_context(damage_errors(path, expected))
        model = keras.models.load_model(local, compile=False)
    return weights_of(model, path=path, **found)
