"""Weights in and out, of every format that a BERT comes in.

    open_weights(path)             what is there: names, shapes, configuration, vocabulary
    load_checkpoint(model, path)   into a model, with a report of every name
    save_weights(path, weights)    as an original checkpoint, ours, or Hugging Face's folder

Everything has the original's names and shapes in between (`formats.base.Weights`).
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import hugging_face, keras_files, tf1, tf2
from bert_tf.checkpoints.metadata import (
    CONFIG_FILE,
    VOCAB_FILE,
    ModelMetadata,
    Weights,
    read_model_files,
)
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import path_errors
from bert_tf.tokenization.wordpiece import FullTokenizer

ENCODER = r"bert/(?!pooler/)"  # what must be in a checkpoint; some models have no pooler
HEAD = r"output_(weights|bias)"  # of every kind of fine-tuned model
SAME_FACTS = ("do_lower_case", "architecture", "labels", "task")  # as long as a run goes on

# ---------------------------------------------------------------------------- opening


def open_weights(path: str) -> Weights:
    """Opens weights of any format; tensors are read when they are asked for.

    Args:
      path: a TF1 or TF2 checkpoint (its prefix, a file of it or its folder), a .keras or
        .weights.h5 file, or a folder (or .safetensors or .bin file) of Hugging Face's.

    Raises:
      InputError: there is nothing, it is damaged, or it is not of a BERT.
    """
    path = str(path)
    with path_errors(path):
        if path.endswith(keras_files.ENDINGS) and tf.io.gfile.exists(path):
            return keras_files.open_keras_file(path)
        if hugging_face.is_hugging_face(path):
            return hugging_face.open_hugging_face(path)
        if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
            _refuse_archive(path)
    weights = tf1.open_weights(path)
    if tf2.is_object_graph(weights.shapes):
        return tf2.open_object_graph(path)
    return weights


def _refuse_archive(path: str) -> None:
    with tf.io.gfile.GFile(path, "rb") as file:
        start = file.read(4)
    if start[:2] in (b"PK", b"\x1f\x8b"):
        raise InputError(
            received=f"{path}, an archive",
            expected="the folder or checkpoint that is in it",
            remedy="unpack it, and give the path of what was in it",
        )


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
    path: "str | Weights",
    *,
    required: str = ENCODER,
    skip: str | None = None,
) -> LoadReport:
    """Puts weights into a model, by name.

    Args:
      model: one of `bert_tf.models`, or any whose layers are named alike.
      path: as for `open_weights`, or what that gave.
      required: a pattern of the names that must be there; by default the encoder's, without its
        pooler, which many models leave out.
      skip: a pattern of the names that are not taken though they may be there.

    Returns:
      The variables matched, missing and unused. What is missing keeps its fresh weights.

    Raises:
      InputError: a required weight is missing, one has another shape, or nothing matches.
        The model is then unchanged.
    """
    weights = path if isinstance(path, Weights) else open_weights(path)
    variables = {tf1.checkpoint_name(v): v for v in model.trainable_variables}
    taken = {name for name in weights.shapes if not (skip and re.match(skip, name))}
    report = LoadReport(
        path=weights.path,
        matched=sorted(variables.keys() & taken),
        missing=sorted(variables.keys() - taken),
        unused=[name for name in weights.names if name not in variables or name not in taken],
        slots=weights.slots,
    )
    _check_report(report, variables, weights.shapes, required)
    values = {name: weights.read(name) for name in report.matched}
    for name, value in values.items():
        variables[name].assign(value)
    return report


def _check_report(
    report: LoadReport,
    variables: Mapping[str, keras.Variable],
    shapes: Mapping[str, Sequence[int]],
    required: str,
) -> None:
    lacking = [name for name in report.missing if re.match(required, name)]
    if lacking or not report.matched:
        raise InputError(
            received=f"{report.path}, which lacks {len(lacking)} of the model's weights, such as "
            f"{', '.join(lacking[:3])}; it has {len(report.unused)} others, such as "
            f"{', '.join(report.unused[:3]) or 'none'}",
            expected=f"a checkpoint with every weight whose name begins with {required}",
            remedy="check that the checkpoint and --bert_config_file belong together",
        )
    for name in report.matched:
        if tuple(shapes[name]) != tuple(variables[name].shape):
            raise InputError(
                received=f"{report.path}, whose {name} has the shape {tuple(shapes[name])}",
                expected=f"{tuple(variables[name].shape)}, as the configuration says",
                remedy="check that the checkpoint and --bert_config_file belong together",
            )


# ---------------------------------------------------------------------------- what belongs to them

# What no shape shows; with another value the same weights compute something else.
_SILENT = ("num_attention_heads", "hidden_act", "layer_norm_eps")


def config_of(weights: Weights, bert_config_file: str | None = None) -> BertConfig:
    """The configuration of weights: that given, else their own.

    Raises:
      InputError: there is none, or the two differ in what would silently change the results.
    """
    if bert_config_file is None:
        if weights.config is None:
            raise InputError(
                received=f"{weights.path} without a {CONFIG_FILE} beside it",
                expected="the configuration of the model",
                remedy="name it with --bert_config_file",
            )
        return weights.config
    given = BertConfig.from_json_file(bert_config_file)
    own = weights.config or given
    other = [key for key in _SILENT if getattr(own, key) != getattr(given, key)]
    if other:
        raise InputError(
            received=f"{bert_config_file} with "
            + ", ".join(f"{key} {getattr(given, key)}" for key in other),
            expected=", ".join(f"{key} {getattr(own, key)}" for key in other)
            + f", as beside {weights.path}",
            remedy="leave out --bert_config_file, or correct it",
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
      do_lower_case: as the user said, or None for what the model says, else true.

    Raises:
      InputError: there is no vocabulary, it is not of the table's size, or the case is not that of
        the model or of the vocabulary.
    """
    if vocab_file is None and weights.pieces is None:
        raise InputError(
            received=f"{weights.path} without a {VOCAB_FILE} beside it",
            expected="the vocabulary of the model",
            remedy="name it with --vocab_file",
        )
    lower = do_lower_case
    if lower is None:
        lower = True if weights.metadata.do_lower_case is None else weights.metadata.do_lower_case
    if vocab_file is None:
        tokenizer = FullTokenizer(weights.vocab_file, lower, pieces=weights.pieces)
    else:
        tokenizer = FullTokenizer(vocab_file, lower)
    config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
    check_spare_rows(tokenizer, config)
    check_case(weights, tokenizer)
    return tokenizer


MOST_SPARE_ROWS = 1023  # of a table that was padded to a round number


def check_spare_rows(tokenizer: FullTokenizer, config: BertConfig) -> None:
    """Raises `InputError` where the table has far more rows than there are pieces; warns of few."""
    spare = config.vocab_size - tokenizer.vocab_size
    if spare > MOST_SPARE_ROWS:
        raise InputError(
            received=f"{tokenizer.vocab_file} with {tokenizer.vocab_size} pieces",
            expected=f"{config.vocab_size}, the rows of the model's table, or a few less",
            remedy="give the vocabulary that belongs to the model",
        )
    if spare:
        logging.warning(
            "%s has %d pieces, the model's table %d rows; the last %d are not used.",
            tokenizer.vocab_file,
            tokenizer.vocab_size,
            config.vocab_size,
            spare,
        )


# The released models by the case of their text, as the original knows them.
_RELEASED = {
    True: r"(?:wwm_)?uncased_L-\d+_H-\d+_A-\d+|(?:multilingual|chinese)_L-12_H-768_A-12",
    False: r"(?:wwm_)?cased_L-\d+_H-\d+_A-\d+|multi_cased_L-12_H-768_A-12",
}


def check_case(weights: Weights, tokenizer: FullTokenizer) -> None:
    """Raises `InputError` where metadata, folder or vocabulary say another do_lower_case.

    Original: `validate_case_matches_checkpoint`, which knows the folder's name only.
    """
    lower = tokenizer.do_lower_case
    folder = weights.path.rpartition("/")[0].rpartition("/")[2]
    says = None
    if weights.metadata.do_lower_case not in (None, lower):
        says = f"{weights.path}, whose model says do_lower_case {weights.metadata.do_lower_case}"
    elif re.fullmatch(_RELEASED[not lower], folder):
        says = f"{weights.path}, by its name a model with do_lower_case {not lower}"
    elif (cased := is_cased(tokenizer.vocab)) not in (None, not lower):
        kind = "with capital letters" if cased else "without one capital letter"
        says = f"{tokenizer.vocab_file}, a vocabulary {kind}"
    if says:
        raise InputError(
            received=f"do_lower_case {lower} with {says}",
            expected="text in the case that the model was trained with",
            remedy=f"use --{'no' if lower else ''}do_lower_case",
        )


def is_cased(vocab: Mapping[str, int]) -> bool | None:
    """Whether a vocabulary has capital letters; None if it is too small to say."""
    pieces = [piece for piece in vocab if not re.fullmatch(r"\[.*\]|<.*>", piece)]
    capital = sum(piece != piece.lower() for piece in pieces)
    small = sum(piece != piece.upper() for piece in pieces)
    if small < 1000:
        return None
    if capital == 0:
        return False
    return True if capital > small / 50 else None


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """What fine-tuning and answering begin with.

    Attributes:
      source: the checkpoint.
      config: of its model.
      tokenizer: with its vocabulary.
    """

    source: Weights
    config: BertConfig
    tokenizer: FullTokenizer


# ---------------------------------------------------------------------------- saving


def refuse_other_model(
    folder: tf1.CheckpointFolder, model: PretrainedModel, metadata: ModelMetadata
) -> None:
    """Refuses to train on in a folder whose checkpoints are of another model or other labels.

    Args:
      folder: of the run; one without checkpoints is right for any.
      model: what training begins with.
      metadata: what is to be noted of what it makes.

    Raises:
      InputError: naming what differs. Nothing has been written.
    """
    if folder.latest() is None:
        return
    found, tokenizer = read_model_files(folder.path), model.tokenizer
    pieces = tuple(tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size))
    old = {"configuration": found["config"], "vocabulary": found["pieces"]}
    new = {"configuration": model.config, "vocabulary": pieces}
    old |= {name: getattr(found["metadata"], name) for name in SAME_FACTS}
    new |= {name: getattr(metadata, name) for name in SAME_FACTS}
    other = [n for n, value in new.items() if None not in (old[n], value) and old[n] != value]
    if other:
        raise InputError(
            received=f"{folder.path}, where a model with another {' and '.join(other)} was trained",
            expected="the folder of this run, or an empty one",
            remedy="choose another --output_dir, or remove the folder to start again",
        )
