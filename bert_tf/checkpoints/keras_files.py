"""Keras models: the weights of one in memory, and those in a .keras file."""

import contextlib
import dataclasses
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.claims import Claim, check_archive, check_tensors
from bert_tf.checkpoints.loading import WEIGHTS_ALONE, refuse_quantized
from bert_tf.checkpoints.metadata import ModelMetadata, Weights, damage_errors, read_model_files
from bert_tf.errors import InputError
from bert_tf.files import check_regular, is_remote
from bert_tf.heads import NAMES, head_named
from bert_tf.modeling.lora import frozen_kernel
from bert_tf.modeling.models import config_of_model
from bert_tf.modeling.names import by_name
from bert_tf.modeling.parts import parts_of
from bert_tf.tokenization.whole_pieces import KEPT_WHOLE, kept_whole
from bert_tf.tokenization.wordpiece import FullTokenizer

WEIGHTS = "model.weights.h5"  # in a .keras file
# A model has at most so many times the numbers of its file: LoRA's factors are merged in the file,
# and have fewer numbers than their kernels.
MOST_VARIABLES = 2


def weights_of(model: keras.Model, *, path: str | None = None, **beside: Any) -> Weights:
    """The weights of a model, with the factors of LoRA merged into its kernels.

    Args:
      model: one of `bert_tf.modeling.models`, or any with the same names of layers. Its attributes
        `tokenizer`, `labels` and `metadata`, if it has them, belong to the weights.
      path: the file of the model, for messages.
      **beside: what lies beside that file, as fields of `Weights`. The model's attributes take
        precedence.

    Raises:
      InputError: it is no model of this package, or is quantized.
    """
    config = config_of_model(model)
    path = path or model.name
    if config is None:
        names = ", ".join(layer.name for layer in model.layers[:5])
        received = f"{path}, a model of the layers {names}"
        remedy = "give a checkpoint of another format; other libraries' Keras files are not read"
        raise InputError(received, "a model of bert_tf", remedy)
    refuse_quantized(model)
    without_factors = [x for x in model.weights if not x.name.startswith("lora_kernel")]
    variables = by_name(without_factors, path)
    dense = parts_of(model, keras.layers.Dense)
    merged = {id(frozen_kernel(layer)): layer for layer in dense if layer.lora_enabled}

    def read(name: str) -> Any:
        variable = variables[name]
        layer = merged.get(id(variable))
        # With LoRA `layer.kernel` is the frozen kernel plus the product of the factors.
        return keras.ops.convert_to_numpy(layer.kernel if layer else variable.value)

    return Weights(
        path=path,
        format="keras",
        shapes={name: tuple(variable.shape) for name, variable in variables.items()},
        read=read,
        config=config,
        file_names={name: variable.path for name, variable in variables.items()},
        **_fields_beside(model, path, beside, positions=config.max_position_embeddings),
    )


def _fields_beside(
    model: keras.Model, path: str, beside: Mapping[str, Any], *, positions: int
) -> dict[str, Any]:
    """Vocabulary and metadata as fields of `Weights`: a model's own, else those beside its file.

    Args:
      model: may have the attributes `tokenizer`, `labels` and `metadata`.
      path: the path of its file, for messages.
      beside: the fields beside the file.
      positions: the positions of the model.
    """
    fields = {
        name: value for name, value in beside.items() if name != "config" and value is not None
    }
    metadata = fields.get("metadata", ModelMetadata())
    facts = dict(getattr(model, "metadata", {}))
    if labels := getattr(model, "labels", None):
        facts["labels"] = tuple(labels)
    task = facts.get("task", model.name)
    if task in NAMES:
        head = head_named(task)
        facts["architecture"] = head.architecture
        if head.is_ambiguous:
            facts["task"] = head.name
    if tokenizer := getattr(model, "tokenizer", None):
        facts |= tokenizer.case
        is_longest = tokenizer.max_length == positions
        facts["max_seq_length"] = None if is_longest else tokenizer.max_length
        whole_pieces = dict.fromkeys(KEPT_WHOLE) | kept_whole(tokenizer)
        metadata = dataclasses.replace(metadata, **whole_pieces)
        fields |= {"pieces": tokenizer.pieces, "vocab_file": path}
    facts = {name: value for name, value in facts.items() if value is not None}
    return fields | {"metadata": dataclasses.replace(metadata, **facts)}


def refuse_other_tokenizer(
    model: keras.Model, tokenizer: FullTokenizer, *, max_seq_length: int
) -> None:
    """Raises `InputError` if a model carries another tokenizer, or has too small a table for it."""
    if config := config_of_model(model):
        config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
        config.check_sequence_length(max_seq_length)
    carried = getattr(model, "tokenizer", None) or tokenizer
    names = ("pieces", "case", *KEPT_WHOLE)
    if any(getattr(carried, name) != getattr(tokenizer, name) for name in names):
        received = f"{tokenizer.vocab_file}, another tokenizer than that of {model.name}"
        expected = f"the tokenizer of {carried.vocab_file}, which the model carries"
        raise InputError(received, expected, "give model.tokenizer")


# ---------------------------------------------------------------------------- files


def open_keras(path: str) -> Weights:
    """Opens a model saved by `Model.save`.

    Raises:
      InputError: the file cannot be read, claims more than it holds, or was saved by
        `Model.save_weights`; or its model is quantized or not of this package.
    """
    if path.endswith(WEIGHTS_ALONE):
        remedy = "load it by Keras, model.load_weights(path), and save it by model.save(new_path)"
        raise InputError(f"{path}, without the model of the weights", "a .keras file", remedy)
    check_regular(path)
    beside = read_model_files(os.path.dirname(path))
    with contextlib.ExitStack() as stack:
        local = path
        if is_remote(path):  # Keras reads local files only
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            local = os.path.join(folder, os.path.basename(path))
            tf.io.gfile.copy(path, local)
        expected = "a whole file of a model of this version of bert_tf, saved by Keras"
        stack.enter_context(damage_errors(path, expected))
        num_stored = _num_stored(path, local)
        with tf.variable_creator_scope(_limited_to(MOST_VARIABLES * num_stored, path)):
            model = _model_in(local, path)
    return weights_of(model, path=path, **beside)


def _model_in(local: str, path: str) -> keras.Model:
    """The model of a file; errors of its configuration name the file.

    Args:
      local: where Keras reads it.
      path: the file, for messages.
    """
    try:
        return keras.models.load_model(local, compile=False)
    except InputError as error:
        if path in str(error):
            raise
        received = f"{path}, its config.json: {error.received}"
        raise InputError(received, error.expected, "give the file as it was saved") from None


def _num_stored(path: str, local: str) -> int:
    """The number of numbers in the weights of a .keras file; none of them is read.

    Args:
      path: the file, for messages.
      local: where Keras reads it.

    Raises:
      InputError: it has no weights as Keras writes them, or claims more than it holds.
    """
    size = os.path.getsize(local)
    with zipfile.ZipFile(local) as archive, tempfile.TemporaryFile() as unpacked:
        check_archive(path, archive, size=size)
        if WEIGHTS not in archive.namelist():
            remedy = "save the model again by model.save(new_path)"
            raise InputError(f"{path} without {WEIGHTS}", "the weights of a model", remedy)
        # Unpacked first: each seek in a member of a zip file would read it from its beginning.
        with archive.open(WEIGHTS) as member:
            shutil.copyfileobj(member, unpacked)
        stored = unpacked.tell()
        with h5py.File(unpacked, "r") as file:
            tensors = _tensors_of(f"{path}, {WEIGHTS}", file)
        check_tensors(f"{path}, {WEIGHTS}", tensors, stored=stored)
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def _tensors_of(path: str, file: h5py.File) -> dict[str, Claim]:
    """The datasets of an HDF5 file; `path` names it in messages.

    Raises:
      InputError: a dataset lies elsewhere, is stored in chunks (as compressed ones are), is not
        fully written, or has two names.
    """
    tensors: dict[str, Claim] = {}
    addresses: set[int] = set()
    groups: list[h5py.Group] = [file]
    while groups:  # no recursion: groups may be nested deeply
        group = groups.pop()
        for name in group:
            place = f"{group.name.rstrip('/')}/{name}"
            link = group.get(name, getlink=True)
            item = group[name] if isinstance(link, h5py.HardLink) else None
            address = None if item is None else h5py.h5o.get_info(item.id).addr
            if item is None or address in addresses:
                raise _not_as_saved(path, place, "is a link")
            addresses.add(address)
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif isinstance(item, h5py.Dataset):
                tensors[place] = _tensor_of(path, place, item)
    return tensors


def _tensor_of(path: str, place: str, dataset: h5py.Dataset) -> Claim:
    """The claim of a dataset; raises `InputError` unless all of it is stored in one piece."""
    if dataset.shape is None or dataset.external or dataset.is_virtual:
        raise _not_as_saved(path, place, "has no numbers of its own")
    tensor = Claim(dataset.shape, 8 * dataset.dtype.itemsize)
    stored = dataset.id.get_storage_size()
    if dataset.chunks or stored < tensor.bytes:
        how = "in chunks, as of compressed ones" if dataset.chunks else "stored"
        raise _not_as_saved(path, place, f"has {tensor.bytes:,} bytes, {stored:,} of them {how}")
    return tensor


def _not_as_saved(path: str, place: str, what: str) -> InputError:
    """The error for a dataset that Keras would not have written."""
    expected = "datasets that hold all of their bytes, each in one piece, as Keras writes them"
    return InputError(f"{path}, whose {place} {what}", expected, "give the file as it was saved")


def _limited_to(most: int, path: str) -> Callable[..., tf.Variable]:
    """A function for `tf.variable_creator_scope` that refuses more than `most` numbers in all."""
    num_created = 0

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        nonlocal num_created
        value = options["initial_value"]
        if callable(value):
            with tf.Graph().as_default():  # gives the shape without computing anything
                value = value()
        shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        num_created += math.prod(shape)
        if num_created > most:
            received = f"{path}, whose config.json asks for {options.get('name')} of {shape}"
            expected = f"a model of at most {most:,} numbers, by the datasets of its {WEIGHTS}"
            raise InputError(received, expected, "give the file as it was saved")
        return next_creator(**options)

    return create
