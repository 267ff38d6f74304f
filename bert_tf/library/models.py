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
      path: a checkpoint, a Hugging Face folder, or a .keras file; or hf:OWNER/NAME[@REVISION],
        which is fetched from Hugging Face's hub.
      head: a name in `bert_tf.heads.NAMES`; None: the head of the files. A task's head that the
        files lack is initialised, and this is logged. Outputs are by name, as in `make_model`,
        also for a .keras file of a `classifier`, whose only output has no name. So `compile` takes
        losses by name too, loss={"logits": ...}; to give one loss use `classifier`.
      labels: the names of the classes, in the order of the logits. A head for the same labels is
        loaded, with its classes in this order; for other labels a new head is initialised. None:
        the labels of the files.
      bert_config_file, vocab_file, do_lower_case: for weights whose files do not say them. If the
        files do, these must match; only pieces [unusedN] of the vocabulary may be replaced.
      name: the model's name; None: that of its head.
      dtype: the policy of its layers, such as "mixed_bfloat16"; None: Keras's global one.

    Returns:
      The model and its tokenizer. The model's vectors are those of word pieces; for vectors of
      whole texts use `Predictor(path, task="embeddings")`. A .keras file of the model holds its
      `labels` and `tokenizer`. The tokenizer cuts to the max_seq_length of the model's files, or
      without one to the number of positions.

    Raises:
      InputError: there is no such model; it lacks a head that predicts tokens; a file or the case
        is another model's; or labels are missing or not a list of different names.
    """
    model, tokenizer, new = loaded(
        path,
        head=head,
        labels=labels,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        name=name,
        dtype=dtype,
    )
    log_new(logging.WARNING, path, new)
    return model, tokenizer


def loaded(
    path: str | os.PathLike,
    *,
    head: str | None,
    labels: Sequence[str] | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
    name: str | None,
    dtype: Any,
) -> tuple[BertModel, FullTokenizer, list[str]]:
    """As `load`, and the names of the new weights that the head reads, which it does not log."""
    weights = open_weights(path)
    config = loading.config_of(weights, bert_config_file)
    tokenizer = loading.tokenizer_of(weights, config, vocab_file, do_lower_case)
    tokenizer.max_length = length_of(weights, config)
    first_piece = tokenizer.inv_vocab[0]
    if first_piece != "[PAD]":
        logging.warning("%s: id 0 is %r, not padding: never leave out the mask.", path, first_piece)
    saved_head = weights.metadata.task or shown_head(weights)
    head = head or saved_head
    if head is None:
        known = f"one of {', '.join(NAMES)}"
        received = f"{path}, with another head ({', '.join(head_weights(weights)[:3])})"
        remedy = "choose one of these with head=; keras.models.load_model keeps a head of your own"
        raise InputError(received, known, remedy)
    wanted = head_named(head)
    weights, labels, is_loaded = _match_labels(weights, wanted, saved_head, labels)
    sizes: dict[str, Any] = {
        "num_classes": len(labels) if labels else weights.num_classes,
        "num_choices": weights.metadata.num_choices or DEFAULT_CHOICES,
    }
    sizes_of_head = {size: sizes[size] for size in wanted.sizes}
    model = make_model(wanted.name, config, name=name, dtype=dtype, **sizes_of_head)
    report = _put_weights(model, weights, wanted, is_loaded)
    _log_unused(path, report)
    model.labels = labels
    model.tokenizer = tokenizer
    model.metadata |= _metadata(weights, wanted, same=head == saved_head)
    reads_pooler = re.match(wanted.required, POOLER) or "pooled_output" in wanted.outputs
    new = report.missing
    if not reads_pooler:
        new = [name for name in new if not re.match(_OF_POOLER, name)]
    return model, tokenizer, list(new)


def length_of(weights: Weights, config: BertConfig) -> int:
    """The longest sequence: max_seq_length of the model's files, or the number of positions."""
    longest = config.max_position_embeddings
    return min(weights.metadata.max_seq_length or longest, longest)


def _metadata(weights: Weights, head: Head, *, same: bool) -> dict[str, Any]:
    """The model's metadata besides labels and tokenizer.

    Args:
      weights: the weights that are loaded.
      head: the model's head.
      same: whether it is the head of the files.
    """
    metadata = weights.metadata
    if not head.reads_windows and (metadata.doc_stride or metadata.document_context):
        logging.warning(
            "%s was trained with windows of long texts (--doc_stride) or sentences in their "
            "document (--document_context); here a text is cut, and stands by itself.",
            weights.path,
        )
    known = metadata.known()
    dropped = {
        *names_with(ModelMetadata, "of_part"),
        *names_with(ModelMetadata, "of_weights"),
        *names_with(ModelMetadata, "of_windows"),
    }
    if head.reads_windows:
        dropped -= {"doc_stride"}
    names = [name for name in known if name == "origin" or (same and name not in dropped)]
    values = {name: known[name] for name in names}
    if same and metadata.null_score_diff_threshold:
        logging.warning(
            "%s: the threshold of no answer, %s, is not kept, as the model may be trained further; "
            "give it as null_score_diff_threshold to what answers, or find it by bert-tf squad.",
            weights.path,
            metadata.null_score_diff_threshold,
        )
    if same and metadata.thresholds:
        logging.warning(
            "%s: the thresholds of its labels are not kept, as the model may be trained further; "
            "bert-tf classify --threshold finds them, and Predictor uses those of this folder.",
            weights.path,
        )
    if head.is_ambiguous:
        values["task"] = head.name
    return values


def _put_weights(
    model: BertModel, weights: Weights, head: Head, is_loaded: bool
) -> loading.LoadReport:
    """Loads the encoder, and the head if `is_loaded`; returns what was loaded."""
    required = head.required if is_loaded or isinstance(head, Pretraining) else ENCODER
    skip = None if is_loaded else OUTPUT
    return load_checkpoint(model, weights, required=required, skip=skip)


def _log_unused(path: str | os.PathLike, report: loading.LoadReport) -> None:
    """Logs the weights that the model has no layer for, except a pooler's.

    The weights of a head that a new one replaces are not among them: the new ones are logged.
    """
    replaced = {*report.missing}
    unused = []
    for name in report.unused:
        if name not in replaced and not re.match(_OF_POOLER, name):
            unused.append(name)
    if unused:
        message = "%s: %d weights are not used, such as %s. The model has no layer for them."
        logging.warning(message, path, len(unused), ", ".join(unused[:5]))


def log_new(level: int, path: str | os.PathLike, new: Sequence[str]) -> None:
    """Logs the names of new weights, if there are any."""
    if new:
        message = "%s: these weights are new, train them before you use the model: %s"
        logging.log(level, message, path, ", ".join(new))


def _match_labels(
    weights: Weights, head: Head, saved_head: str | None, labels: Sequence[str] | None
) -> tuple[Weights, tuple[str, ...] | None, bool]:
    """Puts the classes of a saved head into the order of labels.

    Args:
      weights: the weights that are loaded.
      head: the model's head.
      saved_head: the name of the head of the files.
      labels: as in `load`.

    Returns:
      The weights, the labels, and whether the head of the files is loaded.

    Raises:
      InputError: labels are missing, or are not a list of different names.
    """
    is_same = head.name == saved_head
    if saved_head is not None and weights.metadata.task is None and head.has_names:
        # Without a `task` the files do not say which of the heads that look alike it is.
        is_same |= head.is_ambiguous and head_named(saved_head).is_ambiguous
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
    ordered = in_order_of(weights, labels)
    if ordered is None:
        message = "%s has a head for %s, which is not taken."
        logging.warning(message, weights.path, classes_of(weights))
        return weights, labels, False
    return ordered, labels, True


def _checked_names(labels: Any, least: int) -> tuple[str, ...]:
    """The names of classes, in their order.

    Raises:
      InputError: they are not an ordered collection of different texts, or fewer than `least`.
    """
    is_ordered = hasattr(labels, "__getitem__") and not isinstance(labels, str | bytes | Mapping)
    names = tuple(labels) if is_ordered else ()
    are_names = all(isinstance(name, str) and name for name in names)
    are_different = len(names) == len({*names})
    if not are_names or not are_different or len(names) < least:
        wanted = f"{least} or more different names, as a list of strings"
        remedy = "correct labels; sorted(set(column)) lists the names in a column"
        raise InputError(f"labels={quoted(labels, 200)}", wanted, remedy)
    return names
