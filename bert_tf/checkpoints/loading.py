"""Weights in, from every format that a BERT comes in.

    open_weights(path)             names, shapes, configuration, vocabulary; tensors when read
    load_checkpoint(model, path)   into a model, with a report of every name
    config_of, tokenizer_of        what belongs to weights, checked against what the user gives

Everything has the original's names and shapes in between (`metadata.Weights`).
"""

import dataclasses
import importlib
import os
import re
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import (
    CONFIG_FILE,
    PARTS_INDEX,
    VOCAB_FILE,
    WEIGHT_FILES,
    ModelMetadata,
    Weights,
    read_model_files,
)
from bert_tf.checkpoints.model_weights import named_variables
from bert_tf.config import HEADS, BertConfig
from bert_tf.errors import InputError
from bert_tf.files import path_errors
from bert_tf.terminal.progress import counted
from bert_tf.tokenization.case import choose_case, refuted_case
from bert_tf.tokenization.wordpiece import FullTokenizer, read_vocabulary

ENCODER = r"bert/(?!pooler/)"  # what must be in a checkpoint; some models have no pooler
HEAD = r"output_(weights|bias)"  # of every kind of fine-tuned model

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
      InputError: a required weight is missing, one has another shape, or nothing matches; or the
        model is quantized or has LoRA. The model is then unchanged.
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


# ---------------------------------------------------------------------------- what belongs to them

# What no shape shows; with another value the same weights compute something else.
_SILENT = ("num_attention_heads", "hidden_act", "layer_norm_eps")
MOST_SPARE_ROWS = 1023  # of a word table that was padded to a round number
# The released models by the case of their text, as the original knows them.
_RELEASED = {
    True: r"(?:wwm_)?uncased_L-\d+_H-\d+_A-\d+|(?:multilingual|chinese)_L-12_H-768_A-12",
    False: r"(?:wwm_)?cased_L-\d+_H-\d+_A-\d+|multi_cased_L-12_H-768_A-12",
}


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """What fine-tuning and prediction begin with.

    Attributes:
      source: the checkpoint.
      config: of its model.
      tokenizer: with its vocabulary.
    """

    source: Weights
    config: BertConfig
    tokenizer: FullTokenizer


def head_of(weights: Weights) -> str | None:
    """The head that weights look like, by their architecture and names: one of `HEADS`.

    None: they have a head of another architecture. Heads for one label, a score and any number of
    labels look alike; which it is may be in the metadata's `task`.
    """
    architecture, shapes = weights.metadata.architecture, weights.shapes
    heads = [name for name, known in HEADS.items() if known == architecture]
    if len(heads) == 1:
        return heads[0]
    if not heads and architecture and any(re.match(f"{HEAD}|cls/", name) for name in shapes):
        return None
    if heads or "output_weights" in shapes:
        return "regression" if num_classes_of(weights) == 1 else "classification"
    if "cls/squad/output_weights" in shapes:
        return "question_answering"
    if "cls/predictions/output_bias" in shapes:
        return "pretraining" if "cls/seq_relationship/output_weights" in shapes else "fill_mask"
    return "embeddings"


def num_classes_of(weights: Weights) -> int:
    """The classes of a classifier's head; 2 if there is none."""
    return weights.shapes.get("output_weights", (2,))[0]


def config_of(weights: Weights, bert_config_file: str | None = None) -> BertConfig:
    """The configuration of weights: the one given, else their own.

    Raises:
      InputError: there is none, or the two differ in what would silently change the results.
    """
    if bert_config_file is None:
        if weights.config is None:
            raise _not_beside(weights, CONFIG_FILE, "configuration", "--bert_config_file")
        return weights.config
    given = BertConfig.from_json_file(bert_config_file)
    own = weights.config or given
    other = [key for key in _SILENT if getattr(own, key) != getattr(given, key)]
    if other:
        mine, theirs = (
            ", ".join(f"{key} {getattr(config, key)}" for key in other) for config in (given, own)
        )
        raise InputError(
            f"{bert_config_file} with {mine}",
            f"{theirs}, as beside {weights.path}",
            "leave out --bert_config_file, or correct it",
        )
    return given


def tokenizer_of(
    weights: Weights,
    config: BertConfig,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> FullTokenizer:
    """The tokenizer of weights: with the vocabulary given, else their own.

    Args:
      weights: whose it is.
      config: their configuration; its table must fit the vocabulary.
      vocab_file: the vocabulary, or None for the one beside the weights.
      do_lower_case: the case that the user chose; None for that of the model, else the one that
        the vocabulary shows.

    Raises:
      InputError: there is no vocabulary, it is not of the table's size or lacks a piece that the
        model never splits, or the case is unknown or not that of the model or of the vocabulary.
    """
    if vocab_file is not None:
        pieces = read_vocabulary(vocab_file)
    elif weights.pieces is not None:
        vocab_file, pieces = weights.vocab_file, weights.pieces
    else:
        raise _not_beside(weights, VOCAB_FILE, "vocabulary", "--vocab_file")
    config.check_vocabulary_size(len(pieces), vocab_file=vocab_file)
    lower = _case_of(weights, vocab_file, pieces, do_lower_case)
    never_split = weights.metadata.never_split or ()
    tokenizer = FullTokenizer(vocab_file, lower, pieces=pieces, never_split=never_split)
    check_spare_rows(tokenizer, config)
    return tokenizer


def _not_beside(weights: Weights, file: str, what: str, flag: str) -> InputError:
    return InputError(
        f"{weights.path} without a {file} beside it", f"the model's {what}", f"name it with {flag}"
    )


def check_spare_rows(tokenizer: FullTokenizer, config: BertConfig) -> None:
    """Warns if the word table is longer than the vocabulary; `InputError` if it is far longer."""
    num_pieces, rows = tokenizer.vocab_size, config.vocab_size
    if rows - num_pieces > MOST_SPARE_ROWS:
        raise InputError(
            f"{tokenizer.vocab_file} with {num_pieces} word pieces",
            f"{rows}, the rows of the model's table, or a few less",
            f"give the model's vocabulary; to a new model give vocab_size {num_pieces}",
        )
    if rows > num_pieces:
        logging.warning(
            "%s has %d word pieces, the model's table %d rows; the last %d are not used.",
            *(tokenizer.vocab_file, num_pieces, rows, rows - num_pieces),
        )


def _case_of(weights: Weights, vocab_file: str, pieces: Sequence[str], given: bool | None) -> bool:
    """The do_lower_case of weights: the model's, else as of `choose_case`.

    Raises:
      InputError: the one given is another, or there is none.
    """
    known, source = known_case(weights)
    if known is None:
        return choose_case(vocab_file, pieces, given)
    refuse_other_case(weights, given)
    if reason := refuted_case(vocab_file, pieces, known):
        logging.warning(
            "%s, %s do_lower_case %s, with %s: check that it is the model's vocabulary.",
            *(weights.path, source, known, reason),
        )
    return known


def known_case(weights: Weights) -> tuple[bool | None, str]:
    """The do_lower_case of a model, as recorded or by its folder's name, and which of the two."""
    if weights.metadata.do_lower_case is not None:
        return weights.metadata.do_lower_case, "whose model says"
    folder = os.path.basename(os.path.dirname(weights.path))
    named = next((case for case in _RELEASED if re.fullmatch(_RELEASED[case], folder)), None)
    return named, "by its name a model with"


def refuse_other_case(weights: Weights, given: bool | None) -> None:
    """Raises `InputError` if a case is given that is known not to be the model's.

    Original: `validate_case_matches_checkpoint`, which knows the folder's name only.
    """
    known, source = known_case(weights)
    if None not in (known, given) and known != given:
        raise InputError(
            f"do_lower_case {given} with {weights.path}, {source} do_lower_case {known}",
            "text in the case that the model was trained with",
            f"use --{'' if known else 'no'}do_lower_case",
        )


def refuse_other_model(
    folder: tf1.CheckpointFolder, model: PretrainedModel, metadata: ModelMetadata
) -> None:
    """Raises `InputError` if the checkpoints of a folder are of another model or other labels.

    Args:
      folder: of the run; one without checkpoints is right for any. Nothing is written.
      model: what training begins with.
      metadata: of the model that it will write.
    """
    if folder.latest() is None:
        return
    saved, tokenizer = read_model_files(folder.path), model.tokenizer
    pieces = tuple(tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size))
    pairs = {
        "configuration": (saved["config"], model.config),
        "vocabulary": (saved["pieces"], pieces),
    }
    for name in ("do_lower_case", "architecture", "labels", "task"):
        pairs[name] = (getattr(saved["metadata"], name), getattr(metadata, name))
    if saved["metadata"].do_lower_case is not None:  # else nothing is known of the tokenizer
        kept = (saved["metadata"].never_split, metadata.never_split)
        pairs["never_split"] = tuple(frozenset(pieces or ()) for pieces in kept)
    other = [name for name, (old, new) in pairs.items() if None not in (old, new) and old != new]
    if other:
        raise InputError(
            f"{folder.path}, where a model with another {' and '.join(other)} was trained",
            "the folder of this run, or an empty one",
            "choose another --output_dir, or remove the folder to start again",
        )
