"""Reads weights of every format, and loads them into models.

    open_weights(path)             names, shapes, configuration, vocabulary; tensors when read
    load_weights(model, weights)   puts them into a model; reports every name

In between everything has the original's names and shapes (`metadata.Weights`). What a caller gives
is compared with what belongs to the weights:

    config_of, tokenizer_of   configuration and tokenizer: the caller's, else those of the weights
    classes.py                the classes and the task of a head
    matching.py               all of it, with a model that has labels and a tokenizer

A file with the same content is accepted, and so are the same labels in another order. Anything else
is an `InputError` that names both sides.
"""

import dataclasses
import importlib
import itertools
import os
import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import claims, tf1
from bert_tf.checkpoints.metadata import (
    CONFIG_FILE,
    FORMATS,
    PARTS_INDEX,
    VOCAB_FILE,
    WEIGHT_FILES,
    Weights,
)
from bert_tf.checkpoints.options import ModelFiles
from bert_tf.config import BertConfig
from bert_tf.declarations import names_with
from bert_tf.errors import InputError, quoted
from bert_tf.files import own_path, path_errors
from bert_tf.heads import ENCODER
from bert_tf.modeling.models import config_of_model
from bert_tf.modeling.names import by_name
from bert_tf.modeling.parts import parts_of
from bert_tf.terminal import counted
from bert_tf.tokenization.whole_pieces import kept_whole, without_kept_whole
from bert_tf.tokenization.wordpiece import FullTokenizer, choose_case, read_vocabulary, refuted_case

_UNUSED = re.compile(r"\[unused\d+\]")  # pieces of released vocabularies that users may replace
WEIGHTS_ALONE = ".weights.h5"  # the end of the name of Keras's files without a model
_MOST_SPARE_ROWS = 1023  # of a word table that was padded to a round number
# Folders of the released models by do_lower_case (original: `validate_case_matches_checkpoint`).
_RELEASED = {
    True: r"(?:wwm_)?uncased_L-\d+_H-\d+_A-\d+|(?:multilingual|chinese)_L-12_H-768_A-12",
    False: r"(?:wwm_)?cased_L-\d+_H-\d+_A-\d+|multi_cased_L-12_H-768_A-12",
}


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """Weights with configuration and tokenizer: what fine-tuning and prediction begin with."""

    source: Weights
    config: BertConfig
    tokenizer: FullTokenizer


# ---------------------------------------------------------------------------- opening


def _is_keras(path: str) -> bool:
    return path.endswith((".keras", WEIGHTS_ALONE)) and tf.io.gfile.exists(path)


def _is_hugging_face(path: str) -> bool:
    """Whether a path is a folder of Hugging Face's, or a file of weights in one."""
    is_file = path.removesuffix(PARTS_INDEX).endswith((".safetensors", ".bin"))
    return is_file or any(tf.io.gfile.exists(os.path.join(path, name)) for name in WEIGHT_FILES)


def _is_tf2(path: str) -> bool:
    return "_CHECKPOINTABLE_OBJECT_GRAPH" in tf1.CheckpointReader(path).shapes


# By format, how a path is recognized; other formats are recognized by their `Format.file`.
RECOGNIZED = {
    "hub": lambda path: path.startswith("hf:"),
    "keras": _is_keras,
    "hugging_face": _is_hugging_face,
    "tf2": _is_tf2,
}


def _is_of(name: str, path: str) -> bool:
    """Whether a path is of the format with this name."""
    if name in RECOGNIZED:
        return RECOGNIZED[name](path)
    return tf.io.gfile.exists(os.path.join(_folder_of(name, path), FORMATS[name].file))


def _folder_of(name: str, path: str) -> str:
    """The folder of a path that is the file by which a format is recognized; other paths as is."""
    folder, file = os.path.split(path)
    if name not in RECOGNIZED and file == FORMATS[name].file:
        return folder
    return path


def open_weights(path: str | os.PathLike) -> Weights:
    """Opens weights of any format; tensors are read when they are asked for.

    Args:
      path: a TF1 or TF2 checkpoint (its prefix, a file of it or its folder), a .keras file, a
        folder (or .safetensors or .bin file) of Hugging Face's, or the name of a repository on
        their hub, hf:OWNER/NAME or hf:OWNER/NAME@REVISION.

    Raises:
      InputError: there are no weights, they are damaged, or they are not of a BERT.
    """
    path = own_path(path)
    with path_errors(path):
        name = next((name for name in FORMATS if _is_of(name, path)), "tf1")
        module, _, function = FORMATS[name].reader.partition(":")
        open_format = getattr(importlib.import_module(module), function)
        return open_format(_folder_of(name, path)).in_scores()


def pinned(path: str | None, folder: str) -> str | None:
    """A path; the name of a repository on the hub is completed by a commit.

    Args:
      path: as for `open_weights`, or None.
      folder: the folder of a run. The commit is the one that the run began with, else the newest.

    Raises:
      InputError: the commit cannot be looked up.
    """
    if not path or not _is_of("hub", path):
        return path
    return importlib.import_module(f"{__package__}.hub").pinned(path, folder)


# ---------------------------------------------------------------------------- loading


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The variables that were loaded from a checkpoint, and those that were not.

    Attributes:
      path: the path of the checkpoint.
      matched: original names of the loaded variables.
      missing: names in the model that are not taken from the file; they keep their fresh values.
      unused: names in the file that are not taken.
      slots: names of an optimizer's values in the file, which are never loaded as weights.
    """

    path: str
    matched: Sequence[str]
    missing: Sequence[str]
    unused: Sequence[str]
    slots: Sequence[str]

    def __repr__(self) -> str:
        lines = [f"{self.path}: {len(self.matched)} variables loaded"]
        for label, names in (("missing (kept fresh)", self.missing), ("unused", self.unused)):
            lines.append(f"  {label}: {len(names)}")
            lines += [f"    {name}" for name in names]
        lines.append(f"  optimizer state, not loaded: {len(self.slots)}")
        return "\n".join(lines)


def load_weights(
    model: keras.Model, weights: Weights, *, required: str = ENCODER, skip: str | None = None
) -> LoadReport:
    """Puts weights into a model without labels and a tokenizer of its own, by name.

    Arguments, result and errors as in `matching.load_checkpoint`, which is for models with them.
    """
    return assign(model, weights, report_on(model, weights, required=required, skip=skip))


def assign(model: keras.Model, weights: Weights, report: LoadReport) -> LoadReport:
    """Reads the matched weights of a report and puts them into the model; returns the report.

    Raises:
      InputError: a weight is of no floating-point type. The model is then unchanged.
    """
    names = counted(report.matched, "load the weights", len(report.matched), "variables")
    values = {name: weights.read(name) for name in names}
    for name, value in values.items():
        if not tf.as_dtype(value.dtype).is_floating:
            received = f"{weights.path}, whose {name} has values of the type {value.dtype.name}"
            raise InputError(received, "floating-point numbers", "give one that is not quantized")
    variables = named_variables(model)
    for name, value in values.items():
        variables[name].assign(value)
    return report


def report_on(
    model: keras.Model, weights: Weights, *, required: str, skip: str | None
) -> LoadReport:
    """A report on what `assign` will load; no tensor is read yet.

    Raises:
      InputError: a required weight is missing, one has another shape, or nothing matches; the
        model has another configuration; or it is quantized.
    """
    variables = named_variables(model)
    taken = {name for name in weights.shapes if not (skip and re.match(skip, name))}
    report = LoadReport(
        path=weights.path,
        matched=sorted(variables.keys() & taken),
        missing=sorted(variables.keys() - taken),
        unused=[name for name in weights.names if name not in variables or name not in taken],
        slots=weights.slots,
    )
    if lacking := [name for name in report.missing if re.match(required, name)]:
        raise claims.lacking_weights(report.path, lacking, report.unused)
    if not report.matched:
        raise claims.lacking_weights(report.path, report.missing, report.unused, "all")
    for name in report.matched:
        shape = tuple(variables[name].shape)
        if tuple(weights.shapes[name]) != shape:
            raise claims.other_shape(weights, name, shape)
    if config := config_of_model(model):
        not_shown_by_shapes = names_with(BertConfig, "in_no_shape")
        _refuse_other_config(weights, config, model.name, not_shown_by_shapes)
    return report


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Every weight of a model, trainable or frozen, by its name in the original's checkpoints.

    Raises:
      InputError: two weights have one name, or layers are quantized.
    """
    refuse_quantized(model)
    return by_name(model.weights, model.name)


def refuse_swapped(function: str, model: Any, path: Any) -> None:
    """Raises `InputError` if a path is where a public function takes a model, or the reverse."""
    if isinstance(model, str | os.PathLike) or isinstance(path, keras.Model):
        received = f"{quoted(model)} as a model, {quoted(path)} as a path"
        expected = "the model first, then the path"
        raise InputError(received, expected, f"write bert_tf.{function}(model, path)")


def refuse_quantized(model: keras.Model) -> None:
    """Raises `InputError` if layers of a model are quantized."""
    layers = parts_of(model, keras.layers.Layer)
    if quantized := [layer for layer in layers if layer.quantization_mode is not None]:
        received = f"{model.name}, of which {len(quantized)} layers are quantized"
        remedy = "give the model from before `quantize`"
        raise InputError(received, "a model of floating-point numbers", remedy)


# ---------------------------------------------------------------------------- configuration


def config_of(
    weights: Weights, bert_config_file: str | None = None, *, required: str | None = ENCODER
) -> BertConfig:
    """The configuration of weights: the caller's, else the one beside them; checked with them.

    Args:
      weights: the weights of the model.
      bert_config_file: the caller's configuration; None for the one beside the weights.
      required: a pattern of the encoder's weights that must be there; None if no model is made.

    Raises:
      InputError: there is no configuration, the two differ in more than dropout and initializer, or
        the weights have other shapes or fewer layers.
    """
    config = weights.config
    if bert_config_file is not None:
        config = _given_config(weights, bert_config_file)
    elif config is None:
        raise _not_beside(weights, CONFIG_FILE, "bert_config_file")
    claims.check_encoder(weights, config, required=required)
    return config


def _given_config(weights: Weights, bert_config_file: str) -> BertConfig:
    """The configuration in a file; raises `InputError` if it differs from that of the weights."""
    given = BertConfig.from_json_file(bert_config_file)
    of_training = names_with(BertConfig, "of_training")
    names = [field.name for field in dataclasses.fields(BertConfig)]
    of_weights = [name for name in names if name not in of_training]
    _refuse_other_config(weights, given, bert_config_file, of_weights)
    return given


def _not_beside(weights: Weights, file: str, option: str) -> InputError:
    """The error for a file that lies not beside weights, and can be named by an option."""
    received = f"{weights.path} without a {file} beside it"
    return InputError(received, f"the {file} of the model", f"name it with {option}= (--{option})")


def _refuse_other_config(
    weights: Weights, given: BertConfig, source: str, keys: Sequence[str]
) -> None:
    """Raises `InputError` if a configuration has other values than that of weights.

    Args:
      weights: they may have no configuration.
      given: the configuration to compare.
      source: its file or model, for messages.
      keys: names of the compared values.
    """
    config = weights.config or given
    other = [key for key in keys if getattr(given, key) != getattr(config, key)]
    if other:
        given_values = ", ".join(f"{key} {getattr(given, key)}" for key in other)
        values = ", ".join(f"{key} {getattr(config, key)}" for key in other)
        received = f"{source} with {given_values}"
        expected = f"{values}, as beside {weights.path}"
        remedy = "use the model's own configuration; a command needs no --bert_config_file for it"
        raise InputError(received, expected, remedy)


def complete_model(source: Weights, given: ModelFiles) -> PretrainedModel:
    """Weights with the caller's configuration and tokenizer, else those beside them.

    Raises:
      InputError: configuration or vocabulary is missing, or does not fit.
    """
    config = config_of(source, given.bert_config_file)
    tokenizer = tokenizer_of(source, config, given.vocab_file, given.do_lower_case)
    return PretrainedModel(source, config, tokenizer)


# ---------------------------------------------------------------------------- vocabulary and case


def tokenizer_of(
    weights: Weights,
    config: BertConfig,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> FullTokenizer:
    """The tokenizer of weights: with the caller's vocabulary, else the one beside them.

    Args:
      weights: the weights of the model.
      config: the configuration of the model; the size of its table must fit the vocabulary.
      vocab_file: the vocabulary; None for the one beside the weights.
      do_lower_case: the case that the user chose; None for that of the model, else the one that
        the vocabulary shows.

    Raises:
      InputError: there is no vocabulary; it is not the model's, not of the table's size, or lacks a
        piece that the model never splits; or the case is unknown, or not that of the model or of
        the vocabulary.
    """
    if vocab_file is not None:
        pieces: Sequence[str] = read_vocabulary(vocab_file)
        refuse_other_pieces(weights, pieces, vocab_file)
    elif weights.pieces is not None:
        vocab_file = str(weights.vocab_file)
        pieces = weights.pieces
    else:
        raise _not_beside(weights, VOCAB_FILE, "vocab_file")
    config.check_vocabulary_size(len(pieces), vocab_file=vocab_file)
    refuse_other_case(weights, do_lower_case)
    strip_accents = weights.metadata.strip_accents
    lower, source = _known_case(weights)
    of_case = without_kept_whole(pieces, weights.metadata)
    if lower is None:
        lower = choose_case(vocab_file, of_case, do_lower_case, strip_accents=strip_accents)
    elif reason := refuted_case(vocab_file, of_case, lower):
        says = "%s, %s do_lower_case %s, with %s: check that it is the model's vocabulary."
        logging.warning(says, weights.path, source, lower, reason)
    tokenizer = FullTokenizer(
        vocab_file,
        lower,
        pieces=pieces,
        strip_accents=strip_accents,
        **kept_whole(weights.metadata),
    )
    check_spare_rows(tokenizer, config)
    return tokenizer


def refuse_other_pieces(weights: Weights, pieces: Sequence[str], source: str) -> None:
    """Raises `InputError` if a vocabulary is not that of weights, as far as that is known.

    The user's own words may replace the pieces [unusedN], as the original advises.

    Args:
      weights: they may have no vocabulary.
      pieces: the word pieces of the vocabulary to compare.
      source: its file, for messages.
    """
    given = tuple(pieces)
    known = weights.pieces or given
    pairs = list(itertools.zip_longest(known, given))  # None behind the end of the shorter one
    other = [number for number, pair in enumerate(pairs) if pair[0] != pair[1]]
    if not other:
        return
    is_unused = len(known) == len(given) and all(
        _UNUSED.fullmatch(known[number]) and given.count(given[number]) == 1 for number in other
    )
    if is_unused:
        replaced = "%s replaces %d pieces [unusedN] of %s by other words."
        logging.info(replaced, source, len(other), weights.path)
    else:
        first = other[0]
        known_piece, given_piece = pairs[first]
        known_piece = known_piece or ""
        given_piece = given_piece or ""
        received = f"{source}, a vocabulary of {len(given)} pieces, id {first} {given_piece!r}"
        expected = f"that of {weights.path}: {len(known)} pieces, id {first} {known_piece!r}"
        remedy = "use the model's own vocabulary; only its pieces [unusedN] may be other words"
        raise InputError(received, expected, remedy)


def check_spare_rows(tokenizer: FullTokenizer, config: BertConfig) -> None:
    """Raises `InputError` if the word table is far longer than the vocabulary."""
    if config.vocab_size - tokenizer.vocab_size > _MOST_SPARE_ROWS:
        expected = f"{config.vocab_size}, the rows of the model's table, or a few less"
        received = f"{tokenizer.vocab_file} with {tokenizer.vocab_size} word pieces"
        remedy = "give the model's vocabulary; to a new model give the vocabulary's vocab_size"
        raise InputError(received, expected, remedy)


def _known_case(weights: Weights) -> tuple[bool | None, str]:
    """The do_lower_case of a model, None if it is unknown, and its source, for messages.

    The source is the metadata, else the name of the folder of a released model.
    """
    if weights.metadata.do_lower_case is not None:
        return weights.metadata.do_lower_case, "whose model says"
    folder = os.path.basename(os.path.dirname(weights.path))
    for case, pattern in _RELEASED.items():
        if re.fullmatch(pattern, folder):
            return case, "by its name a model with"
    return None, ""


def refuse_other_case(weights: Weights, given: bool | None) -> None:
    """Raises `InputError` if a case is given that is known not to be the model's.

    Original: `validate_case_matches_checkpoint`, which knows the folder's name only.
    """
    known, source = _known_case(weights)
    if None not in (known, given) and known != given:
        received = f"do_lower_case {given} with {weights.path}, {source} do_lower_case {known}"
        remedy = f"use --{'' if known else 'no'}do_lower_case"
        raise InputError(received, "text in the case that the model was trained with", remedy)
