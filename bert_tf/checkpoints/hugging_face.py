"""Hugging Face's folders: config.json, model.safetensors or pytorch_model.bin, the tokenizer.

What is named differently there:

    bert.encoder.layer.3.output.dense.weight [out, in]    bert/encoder/layer_3/output/dense/kernel
    ...LayerNorm.weight and .bias                         .../LayerNorm/gamma and /beta
    classifier.weight [classes, D]                        output_weights
    qa_outputs.weight [2, D]                              cls/squad/output_weights
    "hidden_act": "gelu"                                  "hidden_act": "gelu_erf"
    "hidden_act": "gelu_new"                              "hidden_act": "gelu"
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.hugging_face_tokenizer import read_case, read_pieces
from bert_tf.checkpoints.metadata import (
    ModelMetadata,
    Weights,
    first_of,
    folder_of,
    join,
    refused_model,
)
from bert_tf.checkpoints.tensor_files import INDEX, PICKLE, SAFETENSORS, open_tensors
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import read_json

CONFIG = "config.json"
NULL_THRESHOLD = "null_score_diff_threshold"
# transformers keeps what it does not know, so what only we know is in a config.json under this key.
OWN_FACTS_KEY = "bert_tf"
SENTENCE_CONFIG = "sentence_bert_config.json"  # of a folder of sentence-transformers
KIND_KEY = "of"  # in it: the kind of model that it was said of
OWN_FACTS = ("task", "pairs", "num_choices", "max_seq_length", "doc_stride", "max_query_length",
             "version_2_with_negative")  # fmt: skip
# Heads for one label, a score and any number of labels have one class, and this beside it.
SEQUENCE_CLASSIFIER = "BertForSequenceClassification"
PROBLEM_TYPE = "problem_type"
PROBLEM_TYPES = {  # of our tasks
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}{INDEX}", PICKLE, f"{PICKLE}{INDEX}")

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
# Copies: of the word table, of the output bias, and a constant.
TIED_TABLE, TIED_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_POSITIONS = re.compile(r"^(bert\.)?embeddings\.position_ids$")
_PLACES = r"(embeddings\.|encoder\.layer\.\d+\.(?:attention|intermediate|output)\.|pooler\.)"


def original_name(name: str) -> str | None:
    """The original's name for one of Hugging Face's; None for one that BERT does not have."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    inside = name.removeprefix("bert.")
    if not re.match(_PLACES, inside) and not inside.startswith("cls.predictions.transform."):
        return None
    scope = "" if inside.startswith("cls.") else "bert/"
    path = re.sub(r"^encoder/layer/(\d+)", r"encoder/layer_\1", inside.replace(".", "/"))
    path = re.sub(r"LayerNorm/(weight|gamma)$", "LayerNorm/gamma", path)
    path = re.sub(r"LayerNorm/(bias|beta)$", "LayerNorm/beta", path)
    path = re.sub(r"_embeddings/weight$", "_embeddings", path)
    return scope + re.sub(r"/weight$", "/kernel", path)


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name for one of the original's; None for one that is not there."""
    for theirs, ours in _OTHER_NAMES.items():
        if name == ours:
            return theirs
    if not re.match(r"bert/|cls/predictions/transform/", name):
        return None
    path = re.sub(r"/encoder/layer_(\d+)/", r"/encoder/layer/\1/", name)
    path = re.sub(r"/(kernel|gamma)$", "/weight", re.sub(r"/beta$", "/bias", path))
    path = re.sub(r"_embeddings$", "_embeddings/weight", path)
    return path.replace("/", ".")


def is_transposed(name: str) -> bool:
    """Whether PyTorch keeps a weight of this original name as [out, in]."""
    return name.endswith("/kernel")


# ---------------------------------------------------------------------------- configuration

_ACTIVATIONS = {  # theirs -> ours
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_ACTIVATION = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu", "tanh": "tanh",
                     "linear": "linear"}  # fmt: skip
_DEFAULTS = {  # of a BertConfig in transformers, for files that leave them out
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02, "layer_norm_eps": 1e-12,
}  # fmt: skip
_ONLY = {  # keys that change what is computed, and the one value that BERT has
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def read_config(values: Mapping[str, Any], *, source: str) -> BertConfig:
    """A config.json as our configuration.

    Raises:
      InputError: it is of another architecture, or has what BERT does not have.
    """
    for key, only in _ONLY.items():
        value = values.get(key, only)
        if value is not None and value != only:
            raise refused_model(source, f"{key} {value!r}", f"{key} {only!r}")
    act = values.get("hidden_act", _DEFAULTS["hidden_act"])
    if act not in _ACTIVATIONS:
        raise refused_model(source, f"hidden_act {act!r}", f"one of {', '.join(_ACTIVATIONS)}")
    sizes = {key: values.get(key, default) for key, default in _DEFAULTS.items()}
    return BertConfig.from_dict(sizes | {"hidden_act": _ACTIVATIONS[act]}, source=source)


def architecture_of(names: Iterable[str]) -> str:
    """The class that has just the heads among these original names."""
    names = set(names)
    if "cls/squad/output_weights" in names:
        return "BertForQuestionAnswering"
    if "output_weights" in names:
        return SEQUENCE_CLASSIFIER
    if "cls/predictions/output_bias" in names:
        both = "cls/seq_relationship/output_weights" in names
        return "BertForPreTraining" if both else "BertForMaskedLM"
    if "cls/seq_relationship/output_weights" in names:
        return "BertForNextSentencePrediction"
    return "BertModel"


def write_config(
    config: BertConfig, metadata: ModelMetadata, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Our configuration as the values of a config.json; shapes of the weights by original name."""
    values = config.to_dict() | {
        "architectures": [metadata.architecture or architecture_of(shapes)],
        "model_type": "bert",
        "hidden_act": _THEIR_ACTIVATION[config.hidden_act],
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
    if metadata.null_score_diff_threshold is not None:  # ours; transformers keeps what it knows not
        values[NULL_THRESHOLD] = metadata.null_score_diff_threshold
    if metadata.task in PROBLEM_TYPES:
        values[PROBLEM_TYPE] = PROBLEM_TYPES[metadata.task]
    own = {name: getattr(metadata, name) for name in OWN_FACTS}
    if known := {name: value for name, value in own.items() if value is not None}:
        values[OWN_FACTS_KEY] = known | {KIND_KEY: _kind(values)}
    return values


def _kind(values: Mapping[str, Any]) -> list[str | None]:
    """What a model is, as transformers says it."""
    return [(values.get("architectures") or [None])[0], values.get(PROBLEM_TYPE)]


def _nameless(num_labels: int) -> tuple[str, ...]:
    """What transformers calls labels that nobody named."""
    return tuple(f"LABEL_{i}" for i in range(num_labels))


def _read_facts(values: Mapping[str, Any], folder: str, source: str) -> ModelMetadata:
    by_id = values.get("id2label") or {}
    if not isinstance(by_id, dict) or sorted(by_id, key=_number) != [
        str(i) for i in range(len(by_id))
    ]:
        raise InputError(
            received=f"{source} with id2label {by_id!r:.80}",
            expected='a name for each label from "0" on, without gaps',
            remedy="correct id2label",
        )
    labels = tuple(str(by_id[str(i)]) for i in range(len(by_id)))
    if labels == _nameless(len(labels)):
        labels = ()
    architecture = (values.get("architectures") or [None])[0]
    own = _read_own_facts(values, source)
    tasks = {problem: task for task, problem in PROBLEM_TYPES.items()}
    if architecture in (None, SEQUENCE_CLASSIFIER) and (
        task := tasks.get(values.get(PROBLEM_TYPE))
    ):
        own = {"task": task} | own
    length = _sentence_length(folder)
    own = ({} if length is None else {"max_seq_length": length}) | own
    return ModelMetadata(
        do_lower_case=read_case(folder),
        architecture=architecture,
        labels=labels or None,
        null_score_diff_threshold=_read_threshold(values, source),
        **own,
    )


def _sentence_length(folder: str) -> int | None:
    """Most pieces of a text, as sentence-transformers notes it."""
    path = join(folder, SENTENCE_CONFIG)
    values = read_json(path) if tf.io.gfile.exists(path) else {}
    found = values.get("max_seq_length")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _read_own_facts(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What `write_config` has put there."""
    own = values.get(OWN_FACTS_KEY, {})
    if not isinstance(own, dict) or not own.keys() <= {KIND_KEY, *OWN_FACTS}:
        raise InputError(
            received=f"{source} with {OWN_FACTS_KEY} {own!r:.80}",
            expected=f"an object with no other keys than {', '.join(OWN_FACTS)}",
            remedy=f"correct {OWN_FACTS_KEY}, or take it out",
        )
    if own.get(KIND_KEY) != _kind(values):
        return {}  # transformers has made another model of it since
    return {name: value for name, value in own.items() if name != KIND_KEY}


def _read_threshold(values: Mapping[str, Any], source: str) -> float | None:
    threshold = values.get(NULL_THRESHOLD)
    if threshold is not None and not isinstance(threshold, (int, float)):
        raise InputError(
            received=f"{source} with {NULL_THRESHOLD} {threshold!r:.80}",
            expected="a number",
            remedy="correct it, or take it out",
        )
    return threshold


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1


# ---------------------------------------------------------------------------- files


def is_hugging_face(path: str) -> bool:
    """Whether a path is one of these folders, or a file of weights in one."""
    if path.endswith((".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")):
        return True
    return any(tf.io.gfile.exists(join(path, name)) for name in WEIGHT_FILES)


def open_hugging_face(path: str) -> Weights:
    """Opens a folder, or a file of weights in one.

    Raises:
      InputError: a file is missing or damaged, would run code, or is not of a BERT.
    """
    folder = path if tf.io.gfile.isdir(path) else folder_of(path)
    weight_file = path if path != folder else first_of(*(join(folder, n) for n in WEIGHT_FILES))
    if not tf.io.gfile.exists(weight_file):
        raise InputError(
            received=f"{weight_file}, which is not there",
            expected="a file of weights",
            remedy="check the path",
        )
    config_file = join(folder, CONFIG)
    if not tf.io.gfile.exists(config_file):
        raise InputError(
            received=f"{weight_file} without a {CONFIG} beside it",
            expected=f"{config_file}, which says what kind of model it is",
            remedy="copy the whole folder",
        )
    values = read_json(config_file)
    config = read_config(values, source=config_file)
    shapes, read = open_tensors(weight_file)
    names, ignored = _names(shapes, read, weight_file)
    pieces, vocab_file = read_pieces(folder)

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
        pieces=pieces,
        vocab_file=vocab_file,
        metadata=_read_facts(values, folder, config_file),
        ignored=ignored,
    )


def _names(shapes, read, path: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Original name -> name in the file; and the names that are copies of another."""
    copies = [name for name in shapes if name in (TIED_TABLE, TIED_BIAS) or _POSITIONS.match(name)]
    names: dict[str, str] = {}
    for theirs in shapes:
        if theirs in copies:
            continue
        ours = original_name(theirs) or theirs.replace(".", "/")
        if ours in names:
            raise InputError(
                received=f"{path} with both {names[ours]} and {theirs}",
                expected="one of them: both are names of the same weight",
                remedy="take out the one that is not the model's",
            )
        names[ours] = theirs
    if TIED_BIAS in copies and "cls/predictions/output_bias" not in names:  # newer files
        names["cls/predictions/output_bias"] = TIED_BIAS
        copies.remove(TIED_BIAS)
    for copy, ours in ((TIED_TABLE, "bert/embeddings/word_embeddings"),
                       (TIED_BIAS, "cls/predictions/output_bias")):  # fmt: skip
        if copy in copies and ours in names and not np.array_equal(read(copy), read(names[ours])):
            raise InputError(
                received=f"{path}, whose {copy} differs from {names[ours]}",
                expected="one table for input and output, as BERT has",
                remedy="give a model with tied embeddings; this one cannot be represented",
            )
    return names, tuple(copies)


def write_tensors(weights: Weights, names: Iterable[str]) -> bytes:
    """The bytes of a model.safetensors with these weights."""
    tensors = {}
    for name in names:
        value = weights.read(name)
        tensors[hugging_face_name(name)] = np.ascontiguousarray(
            value.T if is_transposed(name) else value
        )
    return safetensors.numpy.save(tensors, metadata={"format": "pt"})
