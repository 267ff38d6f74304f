"""Weights in, from every format that a BERT comes in.

    open_weights(path)             names, shapes, configuration, vocabulary; tensors when read
    load_checkpoint(model, path)   into a model, with a report of every name

Everything has the original's names and shapes in between (`metadata.Weights`). companions.py checks
what else belongs to weights: configuration, vocabulary, labels.
"""

import dataclasses
import importlib
import os
import re
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.companions import match_model
from bert_tf.checkpoints.metadata import HEAD, PARTS_INDEX, WEIGHT_FILES, Weights
from bert_tf.checkpoints.model_weights import named_variables
from bert_tf.errors import InputError
from bert_tf.files import path_errors
from bert_tf.terminal.progress import counted

ENCODER = r"bert/(?!pooler/)"  # what must be in a checkpoint; some models have no pooler

# ---------------------------------------------------------------------------- opening


def _is_keras_file(path: str) -> bool:
    return path.endswith((".keras", ".weights.h5")) and tf.io.gfile.exists(path)


def _is_hugging_face(path: str) -> bool:
    """Whether it is one of their folders, or a file of weights in one."""
    if path.removesuffix(PARTS_INDEX).endswith((".safetensors", ".bin")):
        return True
    return any(tf.io.gfile.exists(os.path.join(path, name)) for name in WEIGHT_FILES)


def _is_object_graph(path: str) -> bool:
    return "_CHECKPOINTABLE_OBJECT_GRAPH" in tf1.CheckpointReader(path).shapes


# The formats beside TF1: how a path of one is recognised, and the module whose `open_weights` reads
# it. It is imported only then.
READERS = {
    "keras": (_is_keras_file, "bert_tf.checkpoints.keras_files"),
    "hugging_face": (_is_hugging_face, "bert_tf.checkpoints.hugging_face"),
    "tf2": (_is_object_graph, "bert_tf.checkpoints.tf2"),
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
        for is_format, module in READERS.values():
            if is_format(path):
                return importlib.import_module(module).open_weights(path)
        return tf1.open_weights(path)


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
    with_head = any(re.match(HEAD, name) for name in report.matched)
    weights = match_model(weights, model, with_head=with_head)
    names = counted(report.matched, "load the weights", len(report.matched), "variables")
    values = {name: weights.read(name) for name in names}
    for name, value in values.items():
        if not tf.as_dtype(value.dtype).is_floating:
            raise InputError(
                f"{weights.path}, whose {name} has values of the type {value.dtype.name}",
                "floating-point numbers",
                "give a checkpoint that is not quantized",
            )
    for name, value in values.items():
        variables[name].assign(value)
    return report


_PARTS = {  # of a model, by the names of its weights
    "BERT encoder": ENCODER,
    "pooler": "bert/pooler/",
    "masked-LM head": "cls/predictions/",
    "next-sentence head": "cls/seq_relationship/",
    "question-answering head": "cls/squad/",
    "classifier": HEAD,
}


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
            raise InputError(
                f"{report.path}, a model without a {part}{unused}",
                f"a model with a {part}",
                "give the checkpoint of such a model",
            )
    remedy = "check that the checkpoint and --bert_config_file belong together"
    if lacking or not report.matched:
        raise InputError(
            f"{report.path}, which lacks {len(lacking) or 'all'} of the model's weights, such as "
            + ", ".join(sorted(lacking or report.missing)[:3]),
            "a checkpoint with the weights of this model",
            remedy,
        )
    for name in report.matched:
        if tuple(shapes[name]) != tuple(variables[name].shape):
            raise InputError(
                f"{report.path}, whose {name} has the shape {tuple(shapes[name])}",
                f"{tuple(variables[name].shape)}, as the configuration says",
                remedy,
            )
