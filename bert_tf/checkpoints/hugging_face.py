"""Hugging Face's folders: config.json, model.safetensors or pytorch_model.bin, the tokenizer.

What is named differently there:

    bert.encoder.layer.3.output.dense.weight [out, in]    bert/encoder/layer_3/output/dense/kernel
    ...LayerNorm.weight and .bias                         .../LayerNorm/gamma and /beta
    classifier.weight [classes, D]                        output_weights
    qa_outputs.weight [2, D]                              cls/squad/output_weights
    "hidden_act": "gelu"                                  "hidden_act": "gelu_erf"
    "hidden_act": "gelu_new"                              "hidden_act": "gelu"
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.companions import tokenizer_of
from bert_tf.checkpoints.hugging_face_tokenizer import (
    Tokenizer,
    read_object,
    read_tokenizer,
    write_tokenizer,
)
from bert_tf.checkpoints.metadata import (
    SAFETENSORS,
    WEIGHT_FILES,
    ModelMetadata,
    Weights,
    head_of,
    json_text,
    refused_model,
)
from bert_tf.checkpoints.tensor_files import open_tensors
from bert_tf.config import HUGGING_FACE_ACTIVATIONS, BertConfig, OtherKeys, size, typed
from bert_tf.errors import InputError
from bert_tf.files import read_json
from bert_tf.heads import head_named

CONFIG = "config.json"
SENTENCE_CONFIG = "sentence_bert_config.json"  # of a folder of sentence-transformers
NULL_THRESHOLD = "null_score_diff_threshold"
# transformers keeps what it does not know, so metadata that it has no name for are in a config.json
# under this key.
OWN_KEY = "bert_tf"
OWN_METADATA = ("task", "pairs", "num_choices", "max_seq_length", "doc_stride", "document_context",
                "max_query_length", "version_2_with_negative")  # fmt: skip
MODEL_KEY = "of"  # under it: the architecture and problem type that the metadata belong to
# Heads for one label, a score and any number of labels have one class, and this beside it.
PROBLEM_TYPE = "problem_type"
PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}

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
# Copies: of the word table and of the output bias; and a constant.
TIED = {
    "cls.predictions.decoder.weight": "bert/embeddings/word_embeddings",
    "cls.predictions.decoder.bias": "cls/predictions/output_bias",
}
_POSITIONS = re.compile(r"^(bert\.)?embeddings\.position_ids$")
_PLACES = r"(embeddings\.|encoder\.layer\.\d+\.(?:attention|intermediate|output)\.|pooler\.)"


def original_name(name: str) -> str | None:
    """The original's name for one of Hugging Face's; None for one that BERT does not have."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    inside = name.removeprefix("bert.")
    if not re.match(rf"{_PLACES}|cls\.predictions\.transform\.", inside):
        return None
    scope = "" if inside.startswith("cls.") else "bert/"
    path = re.sub(r"^encoder/layer/(\d+)", r"encoder/layer_\1", inside.replace(".", "/"))
    path = re.sub(r"LayerNorm/(weight|gamma)$", "LayerNorm/gamma", path)
    path = re.sub(r"LayerNorm/(bias|beta)$", "LayerNorm/beta", path)
    path = re.sub(r"_embeddings/weight$", "_embeddings", path)
    return scope + re.sub(r"/weight$", "/kernel", path)


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name for one of the original's; None for one that is not there."""
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

# Ours -> theirs; of several of theirs the last.
_ACTIVATIONS = {ours: theirs for theirs, ours in HUGGING_FACE_ACTIVATIONS.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(OtherKeys):
    """A config.json, without what `BertConfig.from_hugging_face` reads of it."""

    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    id2label: Any = None
    tokenizer_class: str | None = None
    null_score_diff_threshold: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceConfig(OtherKeys):
    """A sentence_bert_config.json."""

    max_seq_length: int | None = size(None)  # most word pieces of a text
    do_lower_case: bool | None = None  # of a text before the tokenizer has it


def architecture_of(names: Iterable[str]) -> str:
    """The class that has just the heads among these original names."""
    names = set(names)
    if head_of(names) == "embeddings" and "cls/seq_relationship/output_weights" in names:
        return "BertForNextSentencePrediction"
    return head_named(head_of(names)).architecture


def write_config(
    config: BertConfig, metadata: ModelMetadata, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Our configuration as the values of a config.json; shapes of the weights by original name."""
    values = config.to_dict() | {
        "architectures": [metadata.architecture or architecture_of(shapes)],
        "model_type": "bert",
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    labels = metadata.labels
    if "output_weights" in shapes:  # transformers counts the labels to make the head
        num_classes = shapes["output_weights"][0]
        if labels is None or len(labels) != num_classes:
            labels = _nameless(num_classes)
    if labels:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if metadata.null_score_diff_threshold is not None:
        values[NULL_THRESHOLD] = metadata.null_score_diff_threshold
    if metadata.task in PROBLEM_TYPES:
        values[PROBLEM_TYPE] = PROBLEM_TYPES[metadata.task]
    if own := {n: value for n, value in metadata.known().items() if n in OWN_METADATA}:
        values[OWN_KEY] = own | {MODEL_KEY: _model(values)}
    return values


def _model(values: Mapping[str, Any]) -> list[str | None]:
    """Architecture and problem type, which tell models apart in transformers."""
    return [(values.get("architectures") or [None])[0], values.get(PROBLEM_TYPE)]


def _nameless(num_labels: int) -> tuple[str, ...]:
    """What transformers calls labels that nobody named."""
    return tuple(f"LABEL_{i}" for i in range(num_labels))


def _read_metadata(
    values: Mapping[str, Any], config: Config, source: str, tokenizer: Tokenizer, positions: int
) -> ModelMetadata:
    path = os.path.join(os.path.dirname(source), SENTENCE_CONFIG)
    sentence = read_object(SentenceConfig, path) or SentenceConfig()
    if sentence.do_lower_case and tokenizer.do_lower_case is False:
        raise refused_model(path, "do_lower_case true before a cased tokenizer", "false")
    architecture, problem_type = _model(values)
    longest = tokenizer.max_length or positions
    bound = int(longest) if longest < positions else None  # a greater one does not matter
    tasks = {problem: task for task, problem in PROBLEM_TYPES.items()}
    is_classifier = architecture in (None, head_named("classification").architecture)
    found = {
        "do_lower_case": tokenizer.do_lower_case,
        "never_split": tokenizer.never_split or None,
        "architecture": architecture,
        "labels": _read_labels(config.id2label, source),
        "task": tasks.get(problem_type) if is_classifier else None,
        "max_seq_length": sentence.max_seq_length or bound,
        NULL_THRESHOLD: config.null_score_diff_threshold,
    }
    return typed(ModelMetadata, found | _read_own_metadata(values, source), source=source)


def _read_labels(by_id: Any, source: str) -> tuple[str, ...] | None:
    by_id = {} if by_id is None else by_id
    if (
        not isinstance(by_id, dict)
        or by_id.keys() != {str(i) for i in range(len(by_id))}
        or not all(isinstance(label, str | int | float) for label in by_id.values())
    ):
        received = f"{source} with id2label {by_id!r:.80}"
        raise InputError(received, "names for 0, 1, 2, ...", "correct id2label")
    labels = tuple(str(by_id[str(i)]) for i in range(len(by_id)))
    return None if labels == _nameless(len(labels)) else labels


def _read_own_metadata(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What `write_config` has stored for this model."""
    own = values.get(OWN_KEY, {})
    if not isinstance(own, dict) or not own.keys() <= {MODEL_KEY, *OWN_METADATA}:
        received = f"{source} with {OWN_KEY} {own!r:.80}"
        expected = f"an object with no other keys than {', '.join(OWN_METADATA)}"
        raise InputError(received, expected, f"correct {OWN_KEY}, or take it out")
    if own.get(MODEL_KEY) != _model(values):
        return {}  # transformers has made another model of it since
    return {name: value for name, value in own.items() if name != MODEL_KEY}


# ---------------------------------------------------------------------------- reading


def open_hugging_face(path: str) -> Weights:
    """Opens a folder, or a file of weights in one.

    Raises:
      InputError: a file is missing or damaged, would run code, or is not of a BERT.
    """
    folder, weight_file = os.path.dirname(path), path
    if tf.io.gfile.isdir(path):
        files = (os.path.join(path, name) for name in WEIGHT_FILES)
        folder, weight_file = path, next(filter(tf.io.gfile.exists, files))
    if not tf.io.gfile.exists(weight_file):
        raise InputError(f"{weight_file}, which is not there", "weights", "check the path")
    config_file = os.path.join(folder, CONFIG)
    if not tf.io.gfile.exists(config_file):
        received = f"{weight_file} without a {CONFIG} beside it"
        raise InputError(received, config_file, "copy the whole folder")
    values = read_json(config_file)
    config = BertConfig.from_hugging_face(values, source=config_file)
    shapes, read = open_tensors(weight_file)
    names, ignored = _names(shapes, read, weight_file)
    theirs = typed(Config, values, source=config_file)
    tokenizer = read_tokenizer(folder, model_class=theirs.tokenizer_class)

    def read_original(name: str) -> np.ndarray:
        value = read(names[name])
        if value.dtype != np.float32 and original_name(names[name]):
            raise refused_model(weight_file, f"{names[name]} of {value.dtype.name}", "float32")
        return np.ascontiguousarray(value.T) if is_transposed(name) else value

    return Weights(
        path=weight_file,
        format="hugging_face",
        shapes={
            ours: shapes[theirs][::-1] if is_transposed(ours) else shapes[theirs]
            for ours, theirs in names.items()
        },
        read=read_original,
        config=config,
        pieces=tokenizer.pieces,
        vocab_file=tokenizer.vocab_file,
        metadata=_read_metadata(
            values, theirs, config_file, tokenizer, config.max_position_embeddings
        ),
        ignored=ignored,
    )


def _names(
    shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], np.ndarray], path: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Original name -> name in the file; and the names that are copies of another."""
    copies = [name for name in shapes if name in TIED or _POSITIONS.match(name)]
    names: dict[str, str] = {}
    for theirs in shapes:
        if theirs in copies:
            continue
        ours = original_name(theirs) or theirs.replace(".", "/")
        if ours in names:
            received = f"{path} with both {names[ours]} and {theirs}"
            expected = "one of them: both are names of the same weight"
            raise InputError(received, expected, "take out the one that is not the model's")
        names[ours] = theirs
    newer_bias = "cls.predictions.decoder.bias"
    if newer_bias in copies and TIED[newer_bias] not in names:
        names[TIED[newer_bias]] = newer_bias
        copies.remove(newer_bias)
    for copy, ours in TIED.items():
        if copy in copies and ours in names and not np.array_equal(read(copy), read(names[ours])):
            received = f"{path}, whose {copy} differs from {names[ours]}"
            expected = "one table for input and output, as BERT has"
            raise InputError(received, expected, "give a model with tied embeddings")
    return names, tuple(copies)


# ---------------------------------------------------------------------------- writing


def texts_of(weights: Weights) -> dict[str, str]:
    """The files beside the weights, text by name.

    Raises:
      InputError: vocabulary and configuration do not fit, or the vocabulary is no text.
    """
    config = weights.config
    texts = {CONFIG: json_text(write_config(config, weights.metadata, weights.shapes))}
    if weights.pieces is not None:
        texts |= write_tokenizer(tokenizer_of(weights, config), config.max_position_embeddings)
    return texts


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes the model.safetensors, with the weights that have a name there."""
    tensors = {}
    for name in weights.names:
        if theirs := hugging_face_name(name):
            value = weights.read(name)
            tensors[theirs] = np.ascontiguousarray(value.T if is_transposed(name) else value)
    with tf.io.gfile.GFile(os.path.join(folder, SAFETENSORS), "wb") as file:
        file.write(safetensors.numpy.save(tensors, metadata={"format": "pt"}))
