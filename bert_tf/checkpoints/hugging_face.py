"""Hugging Face's folders: config.json, the tokenizer, and weights in `tensor_files`.

Names and values that differ from ours:

    bert.encoder.layer.3.output.dense.weight [out, in]    bert/encoder/layer_3/output/dense/kernel
    ...LayerNorm.weight and .bias                         .../LayerNorm/gamma and /beta
    ...intermediate.dense_act.weight, of NVIDIA           .../intermediate/dense/kernel
    classifier.weight [classes, D]                        output_weights
    qa_outputs.weight [2, D]                              cls/squad/output_weights
    "hidden_act": "gelu"                                  "hidden_act": "gelu_erf"
    "hidden_act": "gelu_new"                              "hidden_act": "gelu"
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.hugging_face_tokenizer import (
    Tokenizer,
    read_object,
    read_tokenizer,
    refused_model,
    write_tokenizer,
)
from bert_tf.checkpoints.loading import tokenizer_of
from bert_tf.checkpoints.metadata import (
    METADATA_FILE,
    SAFETENSORS,
    WEIGHT_FILES,
    ModelMetadata,
    Weights,
    damage_errors,
    json_text,
)
from bert_tf.checkpoints.scopes import unwrapped
from bert_tf.checkpoints.shown_heads import OUTPUT_BIAS, heads_of
from bert_tf.checkpoints.tensor_files import Tensors, open_tensors
from bert_tf.config import HUGGING_FACE_ACTIVATIONS, BertConfig
from bert_tf.declarations import OtherKeys, size, typed
from bert_tf.errors import InputError, quoted
from bert_tf.files import read_json, read_text_lines
from bert_tf.heads import SHIPPED, Head, head_named
from bert_tf.tokenization.whole_pieces import kept_whole

CONFIG = "config.json"
# In a folder of sentence-transformers.
SENTENCE_CONFIG = "sentence_bert_config.json"
MODULES = "modules.json"
POOLING = "1_Pooling"
# Modules of sentence-transformers whose vectors we compute, but not their length. "BERT" is what
# its old versions call a Transformer.
_COMPUTED = ("Transformer", "BERT", "Pooling", "Normalize", "Dropout")

# ---------------------------------------------------------------------------- names

_OTHER_NAMES = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}
_THEIR_NAMES = {ours: theirs for theirs, ours in _OTHER_NAMES.items()}
# Copies of the word table and of the output bias; a file may also have the copy alone.
TIED = {
    "cls.predictions.decoder.weight": "bert/embeddings/word_embeddings",
    "cls.predictions.decoder.bias": "cls/predictions/output_bias",
}
_POSITIONS = "bert.embeddings.position_ids"  # a constant
_PARTS = (
    r"bert\.(embeddings\.|encoder\.layer\.\d+\.(?:attention|intermediate|output)\.|pooler\.)"
    r"|cls\.predictions\.transform\."
)


def original_name(name: str) -> str | None:
    """The original's name of a weight that Hugging Face calls `name`; None if BERT has none.

    The name has no wrapper before it, such as `module.`.
    """
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    if not re.match(_PARTS, name):
        return None
    path = re.sub(r"^bert/encoder/layer/(\d+)", r"bert/encoder/layer_\1", name.replace(".", "/"))
    path = path.replace("/dense_act/", "/dense/")  # NVIDIA's name: a layer with its activation
    path = re.sub(r"LayerNorm/(weight|gamma)$", "LayerNorm/gamma", path)
    path = re.sub(r"LayerNorm/(bias|beta)$", "LayerNorm/beta", path)
    path = re.sub(r"_embeddings/weight$", "_embeddings", path)
    return re.sub(r"/weight$", "/kernel", path)


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name of a weight that the original calls `name`; None if it has none there."""
    if name in _THEIR_NAMES or not re.match(r"bert/|cls/predictions/transform/", name):
        return _THEIR_NAMES.get(name)
    path = re.sub(r"/encoder/layer_(\d+)/", r"/encoder/layer/\1/", name)
    path = re.sub(r"/(kernel|gamma)$", "/weight", re.sub(r"/beta$", "/bias", path))
    path = re.sub(r"_embeddings$", "_embeddings/weight", path)
    return path.replace("/", ".")


def is_transposed(name: str) -> bool:
    """Whether PyTorch keeps a weight of this original name as [out, in]."""
    return name.endswith("/kernel")


# ---------------------------------------------------------------------------- configuration

# Ours -> theirs; the last one where several of theirs mean the same.
_ACTIVATIONS = {ours: theirs for theirs, ours in HUGGING_FACE_ACTIVATIONS.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(OtherKeys):
    """The fields of a config.json that `BertConfig.from_hugging_face` does not read."""

    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None
    tokenizer_class: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceConfig(OtherKeys):
    """A sentence_bert_config.json."""

    max_seq_length: int | None = size(None)  # maximum number of word pieces of a text
    do_lower_case: bool | None = None  # whether a text is lower-cased before it is tokenized


def architecture_of(names: Iterable[str]) -> str:
    """The transformers class with exactly the heads that these original names show."""
    names = {*names}
    if OUTPUT_BIAS not in names and "cls/seq_relationship/output_weights" in names:
        return "BertForNextSentencePrediction"
    return head_named(heads_of(names)[0]).architecture


def write_config(
    config: BertConfig, metadata: ModelMetadata, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The values of a config.json.

    Args:
      config: the configuration of the model.
      metadata: its architecture, labels and task.
      shapes: the shapes of the weights, by original name.
    """
    values = config.to_dict() | {
        "architectures": [metadata.architecture],
        "model_type": "bert",
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    labels = metadata.labels or ()
    # By the number of labels transformers makes the head.
    num_classes = shapes.get("output_weights", (len(labels),))[0]
    if len(labels) != num_classes:
        labels = _nameless(num_classes)
    if labels:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    for head in _heads_of_problems():
        if head.name == metadata.task:
            values["problem_type"] = head.problem_type
    return values


def _heads_of_problems() -> list[Head]:
    """The heads of one architecture that problem_type distinguishes."""
    return [head for head in SHIPPED if head.problem_type]


def _nameless(num_labels: int) -> tuple[str, ...]:
    """The names that transformers gives to labels without names."""
    return tuple(f"LABEL_{i}" for i in range(num_labels))


def _read_metadata(
    config: Config, source: str, tokenizer: Tokenizer, positions: int
) -> ModelMetadata:
    """The metadata in their files, completed by our file if it is of the same architecture.

    Args:
      config: their config.json.
      source: its path.
      tokenizer: the one in the folder.
      positions: the positions of the model.

    Raises:
      InputError: a file is damaged, or they contradict each other.
    """
    folder = os.path.dirname(source)
    sentence_file = os.path.join(folder, SENTENCE_CONFIG)
    sentence = read_object(SentenceConfig, sentence_file) or SentenceConfig()
    if sentence.do_lower_case and tokenizer.do_lower_case is False:
        raise refused_model(sentence_file, "do_lower_case true before a cased tokenizer", "false")
    architecture = config.architectures[0] if config.architectures else None
    max_seq_length = sentence.max_seq_length
    if not max_seq_length and tokenizer.max_length and tokenizer.max_length < positions:
        max_seq_length = int(tokenizer.max_length)
    task = None
    if architecture in (None, head_named("classification").architecture):
        tasks = {head.problem_type: head.name for head in _heads_of_problems()}
        task = tasks.get(config.problem_type)
    labels = _read_labels(config.id2label or {}, source)
    theirs = {
        "do_lower_case": tokenizer.do_lower_case,
        "strip_accents": tokenizer.strip_accents,
        **kept_whole(tokenizer),
        "architecture": architecture,
        "task": task,
        "max_seq_length": max_seq_length,
    }
    ours = ModelMetadata.from_json_file(os.path.join(folder, METADATA_FILE)).known()
    known = ours if ours.get("architecture") == architecture else {}
    known |= {name: value for name, value in theirs.items() if value is not None}
    return typed(ModelMetadata, known | {"labels": labels}, source=source)


def _check_modules(folder: str, weight_file: str) -> None:
    """Checks that we compute the vectors of a folder of sentence-transformers.

    Warns if its vectors are those of [CLS].

    Args:
      folder: the folder of any model; one of sentence-transformers has a modules.json or a pooling.
      weight_file: the weight file of the encoder, for messages.

    Raises:
      InputError: there is a module that we do not compute.
    """
    path = os.path.join(folder, MODULES)
    modules = []
    with damage_errors(path, "a list of modules, each with its type and path"):
        if tf.io.gfile.exists(path):
            for module in json.loads("".join(read_text_lines(path))):
                module_folder = os.path.join(folder, module["path"])
                modules.append((module["type"].split(".")[-1], module_folder))
        elif tf.io.gfile.exists(os.path.join(folder, POOLING, CONFIG)):
            modules.append(("Pooling", os.path.join(folder, POOLING)))
    for kind, module_folder in modules:
        source = os.path.join(module_folder, CONFIG)
        description = kind
        is_computed = kind in _COMPUTED
        if kind == "Pooling":
            modes = _pooling_modes(source)
            description = f"{kind} of {' and '.join(modes) or 'none'}"
            is_computed = modes in (["mean"], ["cls"])
            if modes == ["cls"]:
                says = "%s: its vectors are those of [CLS]: features --pooling=cls."
                logging.warning(says, source)
        if not is_computed:
            received = f"{source} with the module {description}"
            expected = "a Transformer with one Pooling, mean or cls, and no layers behind it"
            remedy = f"give {weight_file} for the encoder alone, without what makes its vectors"
            raise InputError(received, expected, remedy)


def _pooling_modes(path: str) -> list[str]:
    """The poolings in a module's file: mean, cls, max, ...; a vector may consist of several."""
    values = {"pooling_mode_mean_tokens": True} | read_json(path)
    switches = [name for name, value in values.items() if value and "pooling_mode_" in name]
    modes = values.get("pooling_mode") or switches  # in new files, and in old ones
    modes = modes if isinstance(modes, list) else [modes]
    return [re.sub("^pooling_mode_|_tokens?$", "", str(mode)) for mode in modes]


def _read_labels(by_id: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    """The labels in an id2label; None if they have no names.

    Raises:
      InputError: its keys are not 0, 1, 2, ..., or a label is no name.
    """
    numbers = [*map(str, range(len(by_id)))]
    are_names = all(isinstance(label, str | int | float) for label in by_id.values())
    if by_id.keys() != {*numbers} or not are_names:
        received = f"{source} with id2label {quoted(by_id)}"
        raise InputError(received, "names for 0, 1, 2, ...", "correct id2label")
    labels = tuple(str(by_id[number]) for number in numbers)
    return None if labels == _nameless(len(labels)) else labels


# ---------------------------------------------------------------------------- reading


def open_hugging_face(path: str) -> Weights:
    """Opens a folder, or a file of weights in one.

    Raises:
      InputError: a file is missing or damaged, would run code, or is not of a BERT.
    """
    folder = os.path.dirname(path)
    weight_file = path
    if tf.io.gfile.isdir(path):
        folder = path
        weight_files = (os.path.join(folder, name) for name in WEIGHT_FILES)
        weight_file = next(filter(tf.io.gfile.exists, weight_files))
        _check_modules(folder, weight_file)
    config_file = os.path.join(folder, CONFIG)
    values = read_json(config_file, remedy="copy the whole folder")
    config = BertConfig.from_hugging_face(values, source=config_file)
    tensors = open_tensors(weight_file, copies=TIED)
    names, ignored = _names(tensors, weight_file)
    further_config = typed(Config, values, source=config_file)
    tokenizer = read_tokenizer(folder, model_class=further_config.tokenizer_class)
    positions = config.max_position_embeddings
    shapes = {}
    for ours, theirs in names.items():
        shape = tensors.shapes[theirs]
        shapes[ours] = shape[::-1] if is_transposed(ours) else shape

    def read(name: str) -> np.ndarray:
        value = tensors.read(names[name])
        return np.ascontiguousarray(value.T) if is_transposed(name) else value

    return Weights(
        path=weight_file,
        format="hugging_face",
        shapes=shapes,
        read=read,
        config=config,
        pieces=tokenizer.pieces,
        vocab_file=tokenizer.vocab_file,
        metadata=_read_metadata(further_config, config_file, tokenizer, positions),
        ignored=ignored,
        file_names=names,
    )


def _names(tensors: Tensors, path: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The name in the file for each original name; and the names in the file that are ignored.

    Args:
      tensors: the tensors of the file.
      path: the path of the file, for messages.

    Raises:
      InputError: two tensors have one original name, or a copy differs.
    """
    ignored: dict[str, str] = {}  # name without a wrapper -> name in the file
    names: dict[str, str] = {}
    for theirs, plain in unwrapped(tensors.shapes, path, separator=".").items():
        if plain in TIED or plain == _POSITIONS:
            ignored[plain] = theirs
            continue
        ours = original_name(plain) or plain.replace(".", "/")
        if ours in names:
            raise refused_model(path, f"both {names[ours]} and {theirs}", "one: they are the same")
        names[ours] = theirs
    for tied, ours in TIED.items():
        if tied not in ignored:
            continue
        if ours not in names:  # a file may store tied tensors once, under either name
            names[ours] = ignored.pop(tied)
        elif not np.array_equal(tensors.read(ignored[tied]), tensors.read(names[ours])):
            differs = f"a {ignored[tied]} that differs from {names[ours]}"
            raise refused_model(path, differs, "one for both")
    return names, tuple(ignored.values())


# ---------------------------------------------------------------------------- writing


def texts_of(weights: Weights) -> dict[str, str]:
    """The files beside the weights, text by name.

    Raises:
      InputError: vocabulary and configuration do not fit each other, a word piece cannot be written
        on a line, or the model is more than a BERT.
    """
    config = weights.config
    if config.is_causal:
        received = f"{weights.path} with attention {config.attention}"
        expected = "a BERT, as which transformers would read the weights"
        raise InputError(received, expected, "use another format")
    architecture = weights.metadata.architecture or architecture_of(weights.shapes)
    metadata = dataclasses.replace(weights.metadata, architecture=architecture)
    texts = {
        CONFIG: json_text(write_config(config, metadata, weights.shapes)),
        METADATA_FILE: metadata.to_json_string(),
    }
    if weights.pieces is not None:
        texts |= write_tokenizer(tokenizer_of(weights, config), config.max_position_embeddings)
    return texts


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes the model.safetensors with the weights that have a name there."""
    tensors = {}
    for name in weights.names:
        if theirs := hugging_face_name(name):
            value = weights.read(name)
            tensors[theirs] = np.ascontiguousarray(value.T if is_transposed(name) else value)
    with tf.io.gfile.GFile(os.path.join(folder, SAFETENSORS), "wb") as file:
        file.write(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
