"""A path -> a Keras model with its weights, labels and tokenizer.

model, tokenizer = bert_tf.load("uncased_L-12_H-768_A-12")
outputs = model(tokenizer(["a text"], ["a second one"]))
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.checkpoints import loading
from bert_tf.checkpoints.classes import classes_of, in_order_of
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.matching import load_checkpoint
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.shown_heads import POOLER, head_weights, shown_head
from bert_tf.config import BertConfig
from bert_tf.declarations import names_with
from bert_tf.errors import InputError, quoted
from bert_tf.heads import ENCODER, NAMES, OUTPUT, head_named, make_model
from bert_tf.heads.head import Head
from bert_tf.heads.pretraining import Pretraining
from bert_tf.modeling.models import BertModel
from bert_tf.tokenization.wordpiece import FullTokenizer

DEFAULT_CHOICES = 4  # of multiple choice, as in SWAG
_OF_POOLER = "bert/pooler/"


def load(
    path: str | os.PathLike,
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    name: str | None = None,
    dtype: Any = None,
) -> tuple[BertModel, FullTokenizer]:
    """A model and its tokenizer, from any format that `open_weights` reads.

    Args:
      path: of a checkpoint, a folder of Hugging Face's, or a .keras file; or hf:OWNER/NAME, with
        @REVISION behind it if need be, which is fetched from Hugging Face's hub.
      head: a name in `bert_tf.heads.NAMES`; None: the one that is found. A task's head that is
        not found is initialised, and this is logged. Outputs are those of `make_model`'s models,
        by name, also of a .keras file of a `classifier`, whose only output has no name. So
        `compile` takes losses by name too, loss={"logits": ...}; with one loss use `classifier`.
      labels: the names of the classes, in the order of the logits. A head for the same labels is
        kept, its classes in this order; for others a new one is initialised. None: its own.
      bert_config_file, vocab_file, do_lower_case: for weights whose files do not say them. If they
        do, these must match; only pieces [unusedN] of the vocabulary may be replaced.
      name: of the model; None: that of its head.
      dtype: of its layers, a policy of Keras such as "mixed_bfloat16"; None: the global one.

    Returns:
      The model, whose vectors are those of word pieces; vectors of whole texts are what
      `Predictor(path, task="embeddings")` gives. Its `labels` and `tokenizer` are saved with it in
      a .keras file. The tokenizer cuts to the length that the model's files name
      (max_seq_length), else to the model's positions.

    Raises:
      InputError: there is no such model, it lacks a head that predicts tokens, what is given is
        another model's, or labels are missing or no list of different names.
    """
    options = bert_config_file, vocab_file, do_lower_case, name, dtype
    model, tokenizer, new = loaded(path, head, labels, *options)
    log_new(logging.WARNING, path, new)
    return model, tokenizer


def loaded(
    path: str | os.PathLike,
    head: str | None,
    labels: Sequence[str] | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
    name: str | None,
    dtype: Any,
) -> tuple[BertModel, FullTokenizer, list[str]]:
    """As `load`, with the names of new weights that the head reads, which are not logged."""
    weights = open_weights(path)
    config = loading.config_of(weights, bert_config_file)
    tokenizer = loading.tokenizer_of(weights, config, vocab_file, do_lower_case)
    tokenizer.max_length = length_of(weights, config)
    if (first := tokenizer.inv_vocab[0]) != "[PAD]":
        logging.warning("%s: id 0 is %r, not padding: never leave out the mask.", path, first)
    found = weights.metadata.task or shown_head(weights)
    head = head or found
    if head is None:
        known = f"one of {', '.join(NAMES)}"
        received = f"{path}, with another head ({', '.join(head_weights(weights)[:3])})"
        remedy = "choose one of these with head=; keras.models.load_model keeps a head of your own"
        raise InputError(received, known, remedy)
    wanted = head_named(head)
    weights, labels, is_kept = _match_labels(weights, wanted, found, labels)
    sizes: dict[str, Any] = {
        "num_classes": len(labels) if labels else weights.num_classes,
        "num_choices": weights.metadata.num_choices or DEFAULT_CHOICES,
    }
    taken = {size: sizes[size] for size in wanted.sizes}
    model = make_model(wanted.name, config, name=name, dtype=dtype, **taken)
    report = _put_weights(model, weights, wanted, is_kept)
    _log_unused(path, report)
    model.labels = labels
    model.tokenizer = tokenizer
    model.metadata |= _metadata(weights, wanted, same=head == found)
    reads_pooler = re.match(wanted.required, POOLER) or "pooled_output" in wanted.outputs
    new = [name for name in report.missing if reads_pooler or not re.match(_OF_POOLER, name)]
    return model, tokenizer, new


def length_of(weights: Weights, config: BertConfig) -> int:
    """The longest sequence: as the model's files say, else the number of its positions."""
    longest = config.max_position_embeddings
    return min(weights.metadata.max_seq_length or longest, longest)


def _metadata(weights: Weights, head: Head, *, same: bool) -> dict[str, Any]:
    """What belongs to the model besides labels and tokenizer; `same`: with the head it had."""
    metadata = weights.metadata
    if not head.reads_windows and (metadata.doc_stride or metadata.document_context):
        logging.warning(
            "%s was trained with windows of long texts (--doc_stride) or sentences in their "
            "document (--document_context); here a text is cut, and stands by itself.",
            weights.path,
        )
    known = metadata.known()
    of_others = {
        *names_with(ModelMetadata, "of_part"),
        *names_with(ModelMetadata, "of_weights"),
        *names_with(ModelMetadata, "of_windows"),
    }
    if head.reads_windows:
        of_others -= {"doc_stride"}
    known = {n: known[n] for n in known if n == "origin" or (same and n not in of_others)}
    if same and metadata.null_score_diff_threshold:
        logging.warning(
            "%s: the threshold of no answer, %s, is not kept, as the model may be trained further; "
            "give it as null_score_diff_threshold to what answers, or find it by bert-tf squad.",
            *(weights.path, metadata.null_score_diff_threshold),
        )
    if same and metadata.thresholds:
        logging.warning(
            "%s: the thresholds of its labels are not kept, as the model may be trained further; "
            "bert-tf classify --threshold finds them, and Predictor uses those of this folder.",
            weights.path,
        )
    return known | ({"task": head.name} if head.is_ambiguous else {})


def _put_weights(
    model: BertModel, weights: Weights, head: Head, is_kept: bool
) -> loading.LoadReport:
    """Loads the encoder, and the head if that is kept; returns what was loaded."""
    required = head.required if is_kept or isinstance(head, Pretraining) else ENCODER
    skip = None if is_kept else OUTPUT
    return load_checkpoint(model, weights, required=required, skip=skip)


def _log_unused(path: str | os.PathLike, report: loading.LoadReport) -> None:
    """Logs weights that the model has no place for; a pooler that is not wanted is no loss.

    Of a head in whose place there is a new one, the new weights are logged.
    """
    new = {*report.missing}
    unused = [x for x in report.unused if x not in new and not re.match(_OF_POOLER, x)]
    if unused:
        text = "%s: %d weights are not used, such as %s. The model has no layer for them."
        logging.warning(text, path, len(unused), ", ".join(unused[:5]))


def log_new(level: int, path: str | os.PathLike, new: Sequence[str]) -> None:
    """Logs that weights are new; nothing if none is."""
    if new:
        text = "%s: these weights are new, train them before you use the model: %s"
        logging.log(level, text, path, ", ".join(new))


def _match_labels(
    weights: Weights, head: Head, found: str | None, labels: Sequence[str] | None
) -> tuple[Weights, tuple[str, ...] | None, bool]:
    """The weights with their classes in the order of the labels, the labels, is the head kept."""
    # Without a `task` the files do not say which of the heads that look alike it is.
    are_alike = found is not None and head.is_ambiguous and head_named(found).is_ambiguous
    is_same = head.name == found or (are_alike and head.has_names and weights.metadata.task is None)
    if not head.has_names:
        return weights, None, is_same
    if labels is None:
        if not is_same:
            received = f"{weights.path} with head={head.name!r}, of which it has none"
            raise InputError(received, "the names of the classes", "add labels=[...]")
        return weights, weights.metadata.labels, is_same
    labels = _checked_names(labels, getattr(head, "least_names", 1))
    if not is_same or "output_weights" not in weights.shapes:
        return weights, labels, False
    kept = in_order_of(weights, labels)
    if kept is None:
        says = "%s has a head for %s, which is not taken."
        logging.warning(says, weights.path, classes_of(weights))
    return kept or weights, labels, kept is not None


def _checked_names(labels: Any, least: int) -> tuple[str, ...]:
    """The names of classes, in their order.

    Raises:
      InputError: they are no ordered collection of different texts, or fewer than `least`.
    """
    is_ordered = hasattr(labels, "__getitem__") and not isinstance(labels, str | bytes | Mapping)
    names = tuple(labels) if is_ordered else ()
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or not least <= len(names) == len({*names}):
        wanted = f"{least} or more different names, as a list of strings"
        remedy = "correct labels; sorted(set(column)) lists the names in a column"
        raise InputError(f"labels={quoted(labels, 200)}", wanted, remedy)
    return names
