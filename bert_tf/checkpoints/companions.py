"""Compares what a caller gives with what belongs to weights; the only place that does so.

    config_of, tokenizer_of   configuration and tokenizer: the ones given, else their own
    length_of                 the longest sequence
    in_order_of, with_labels  the classes, in the order of the given labels
    refuse_other_task         a head used for another task than its own
    match_model               all of it, with the model that the weights are loaded into
    refuse_other_model        all of it, between a run and the checkpoints in its folder

The same content is accepted from any file, and the same labels in any order; anything else is an
`InputError` that names both sides.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import (
    CONFIG_FILE,
    VOCAB_FILE,
    ModelMetadata,
    Weights,
    read_model_files,
)
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, OUTPUT, head_named
from bert_tf.modeling.layers import Embeddings
from bert_tf.tokenization.wordpiece import (
    FullTokenizer,
    choose_case,
    read_vocabulary,
    refuted_case,
)

# What no shape shows; with another value the same weights compute something else.
_SILENT = ("num_attention_heads", "hidden_act", "layer_norm_eps")
# What the weights depend on; dropout and the initializer affect training alone.
_OF_WEIGHTS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size", *_SILENT),
)
UNUSED = re.compile(r"\[unused\d+\]")  # pieces of released vocabularies that users may replace
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


# ---------------------------------------------------------------------------- configuration, length


def config_of(weights: Weights, bert_config_file: str | None = None) -> BertConfig:
    """The configuration of weights: the one given, else their own.

    Raises:
      InputError: there is none, or the two differ in more than dropout and initializer.
    """
    if bert_config_file is None:
        if weights.config is None:
            raise _not_beside(weights, CONFIG_FILE, "configuration", "--bert_config_file")
        return weights.config
    given = BertConfig.from_json_file(bert_config_file)
    _refuse_other_config(weights, given, bert_config_file, _OF_WEIGHTS)
    return given


def _refuse_other_config(
    weights: Weights, given: BertConfig, source: str, keys: Sequence[str]
) -> None:
    both = given, weights.config or given
    if other := [key for key in keys if len({getattr(config, key) for config in both}) == 2]:
        mine, theirs = (", ".join(f"{key} {getattr(c, key)}" for key in other) for c in both)
        remedy = "use the model's own configuration; a command needs no --bert_config_file for it"
        raise InputError(f"{source} with {mine}", f"{theirs}, as beside {weights.path}", remedy)


def _configs_of(model: keras.Model) -> Iterator[BertConfig]:
    """The configuration of a model; empty if its layers are not ours."""
    layers = model._flatten_layers()
    return (layer.config for layer in layers if isinstance(layer, Embeddings))


def length_of(weights: Weights, config: BertConfig) -> int:
    """The longest sequence: as the model's files say, else the number of its positions."""
    longest = config.max_position_embeddings
    return min(weights.metadata.max_seq_length or longest, longest)


# ---------------------------------------------------------------------------- vocabulary and case


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
      InputError: there is no vocabulary, it is not the model's or not of the table's size, lacks a
        piece that the model never splits; or the case is unknown, or not that of the model or
        of the vocabulary.
    """
    if vocab_file is not None:
        pieces = read_vocabulary(vocab_file)
        refuse_other_pieces(weights, pieces, vocab_file)
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


def refuse_other_pieces(weights: Weights, pieces: Sequence[str], source: str) -> None:
    """Raises `InputError` if a vocabulary is not that of weights, as far as that is known.

    The user's own words may replace the pieces [unusedN], as the original advises.
    """
    own, given = weights.pieces or tuple(pieces), tuple(pieces)
    pairs = enumerate(itertools.zip_longest(own, given))
    other = [number for number, (theirs, mine) in pairs if theirs != mine]
    if not other:
        return
    if len(own) == len(given) and all(
        UNUSED.fullmatch(own[number]) and given.count(given[number]) == 1 for number in other
    ):
        replaced = "%s replaces %d pieces [unusedN] of %s by other words."
        logging.info(replaced, source, len(other), weights.path)
        return
    at = slice(other[0], other[0] + 1)  # behind the end of the shorter one
    theirs, mine = (f"{len(all_)} pieces, id {other[0]} {''.join(all_[at])!r}"
                    for all_ in (own, given))  # fmt: skip
    received, expected = f"{source}, a vocabulary of {mine}", f"that of {weights.path}: {theirs}"
    remedy = "use the model's own vocabulary; only its pieces [unusedN] may be other words"
    raise InputError(received, expected, remedy)


def refuse_other_tokenizer(
    model: keras.Model, tokenizer: FullTokenizer, *, max_seq_length: int
) -> None:
    """Raises `InputError` if a model carries another tokenizer, or has too small a table for it."""
    for config in _configs_of(model):
        config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
        config.check_sequence_length(max_seq_length)
    own = getattr(model, "tokenizer", None) or tokenizer
    for name in ("pieces", "do_lower_case", "never_split"):
        if getattr(own, name) != getattr(tokenizer, name):
            raise InputError(
                f"{tokenizer.vocab_file}, a tokenizer with other {name} than that of {model.name}",
                f"the tokenizer of {own.vocab_file}, which the model carries",
                "give model.tokenizer",
            )


def _not_beside(weights: Weights, file: str, what: str, flag: str) -> InputError:
    return InputError(
        f"{weights.path} without a {file} beside it", f"the model's {what}", f"name it with {flag}"
    )


def check_spare_rows(tokenizer: FullTokenizer, config: BertConfig) -> None:
    """Warns if the word table is longer than the vocabulary; `InputError` if it is far longer."""
    file, num_pieces, rows = tokenizer.vocab_file, tokenizer.vocab_size, config.vocab_size
    if rows - num_pieces > MOST_SPARE_ROWS:
        raise InputError(
            f"{file} with {num_pieces} word pieces",
            f"{rows}, the rows of the model's table, or a few less",
            f"give the model's vocabulary; to a new model give vocab_size {num_pieces}",
        )
    if rows > num_pieces:
        says = "%s has %d word pieces, the model's table %d rows; the last %d are not used."
        logging.warning(says, file, num_pieces, rows, rows - num_pieces)


def _case_of(weights: Weights, vocab_file: str, pieces: Sequence[str], given: bool | None) -> bool:
    """The do_lower_case of weights: the model's, else as of `choose_case`.

    Raises:
      InputError: the one given is another, or there is none.
    """
    known, source = _known_case(weights)
    if known is None:
        return choose_case(vocab_file, pieces, given)
    refuse_other_case(weights, given)
    if reason := refuted_case(vocab_file, pieces, known):
        says = "%s, %s do_lower_case %s, with %s: check that it is the model's vocabulary."
        logging.warning(says, weights.path, source, known, reason)
    return known


def _known_case(weights: Weights) -> tuple[bool | None, str]:
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
    known, source = _known_case(weights)
    if None not in (known, given) and known != given:
        received = f"do_lower_case {given} with {weights.path}, {source} do_lower_case {known}"
        remedy = f"use --{'' if known else 'no'}do_lower_case"
        raise InputError(received, "text in the case that the model was trained with", remedy)


# ---------------------------------------------------------------------------- task and labels


def other_purpose(weights: Weights, head: str, pairs: bool | None = None) -> tuple[str, str] | None:
    """The trained purpose of a head and the wanted one, if they are known to differ, else None.

    Only heads with the same weights are compared: no shape shows what those were trained for.
    """
    if head_named(head).weights != OUTPUT:
        return None
    alike = {other.architecture for other in map(head_named, NAMES) if other.weights == OUTPUT}
    wanted = {"architecture": head_named(head).architecture, "task": head, "pairs": pairs}
    for name, asked in wanted.items():
        known = getattr(weights.metadata, name)
        # Weights of another architecture, a pre-trained model say, may get any head.
        is_of_head = name != "architecture" or known in alike
        if is_of_head and None not in (known, asked) and known != asked:
            return f"{name} = {known}", f"{name} = {asked}"
    return None


def refuse_other_task(weights: Weights, head: str, pairs: bool | None = None) -> None:
    """Raises `InputError` if a head would answer for another task than it was trained for."""
    if purposes := other_purpose(weights, head, pairs):
        received = f"{weights.path}, a model with {purposes[0]}, as one with {purposes[1]}"
        remedy = "leave out the option that asks for another task, or train a model for it"
        raise InputError(received, "the task that the model was trained for", remedy)


def in_order_of(
    weights: Weights, labels: Sequence[str], own: Sequence[str] | None = None
) -> Weights | None:
    """The weights, their classes in the order of `labels`; None if their labels are others.

    Args:
      weights: of a head of several classes.
      labels: the names of the classes; if the weights have no names, in the order of the classes.
      own: the names of the weights' classes, if spelled differently than in the metadata.
    """
    own = tuple(own or weights.metadata.labels or labels)
    is_each_once = len({*labels}) == len(labels) == weights.num_classes
    if not is_each_once or sorted(own) != sorted(labels):
        return None
    order = [own.index(label) for label in labels]

    def read(name: str) -> Any:
        value = weights.read(name)
        return value[order] if re.match(OUTPUT, name) else value

    metadata = dataclasses.replace(weights.metadata, labels=tuple(labels))
    return dataclasses.replace(weights, read=read, metadata=metadata)


def with_labels(
    weights: Weights, labels: Sequence[str], own: Sequence[str] | None = None
) -> Weights:
    """As `in_order_of`, but raises `InputError` if the labels are others."""
    if "output_weights" not in weights.shapes:
        return weights  # `load_checkpoint` says what is missing
    found = in_order_of(weights, labels, own)
    if found is None:
        received = f"{len(labels)} labels: {', '.join(labels)}, for {weights.path}"
        expected = f"its {classes_of(weights)}, each once, in any order"
        raise InputError(received, expected, "name them all, or none where the model names them")
    return found


def classes_of(weights: Weights) -> str:
    """The classes of a head, for messages: their names, or their number."""
    names = weights.metadata.labels
    return f"labels {', '.join(names)}" if names else f"{weights.num_classes} classes"


# ---------------------------------------------------------------------------- all of it


def match_model(weights: Weights, model: keras.Model, *, with_head: bool) -> Weights:
    """The weights, their classes in the order of the labels of `model`; checks that both match.

    Raises:
      InputError: the model has another configuration, vocabulary or case or, if its classifier is
        loaded too (`with_head`), another task or other labels.
    """
    for config in _configs_of(model):
        _refuse_other_config(weights, config, model.name, _SILENT)
    if tokenizer := getattr(model, "tokenizer", None):
        refuse_other_pieces(weights, tokenizer.pieces, model.name)
        refuse_other_case(weights, tokenizer.do_lower_case)
    head = getattr(model, "metadata", {}).get("task") or model.name
    if not with_head or head not in NAMES or head_named(head).weights != OUTPUT:
        return weights
    refuse_other_task(weights, head)
    labels = getattr(model, "labels", None)
    return with_labels(weights, labels) if labels else weights


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
    saved = read_model_files(folder.path)
    known = saved["metadata"]
    pairs = {
        "configuration": (saved["config"], model.config),
        "vocabulary": (saved["pieces"], model.tokenizer.pieces),
    }
    for name in ("do_lower_case", "architecture", "labels", "task"):
        pairs[name] = (getattr(known, name), getattr(metadata, name))
    if known.do_lower_case is not None:  # else nothing is known of the tokenizer
        pairs["never_split"] = ({*(known.never_split or ())}, {*(metadata.never_split or ())})
    other = [name for name, (old, new) in pairs.items() if None not in (old, new) and old != new]
    if other:
        received = f"{folder.path}, where a model with another {' and '.join(other)} was trained"
        remedy = "choose another --output_dir, or remove the folder to start again"
        raise InputError(received, "the folder of this run, or an empty one", remedy)
