"""Loads weights into a model with labels, a tokenizer and a task, which must be the weights'."""

import os
import re

import keras

from bert_tf.checkpoints import loading
from bert_tf.checkpoints.classes import other_purpose, with_labels
from bert_tf.checkpoints.metadata import Weights
from bert_tf.errors import InputError
from bert_tf.heads import ENCODER, NAMES, OUTPUT
from bert_tf.modeling.models import config_of_model


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike | Weights,
    *,
    required: str = ENCODER,
    skip: str | None = None,
) -> loading.LoadReport:
    """Puts weights into a model, by name.

    Args:
      model: one of `bert_tf.modeling.models`, or any with the same names of layers.
      path: as for `open_weights`, or `Weights`.
      required: a pattern of the names that must be there; by default the encoder's, without its
        pooler, which many models leave out.
      skip: a pattern of names that are not loaded.

    Returns:
      The variables matched, missing and unused. Missing ones keep their fresh values.

    Raises:
      InputError: it is no Keras model; a required weight is missing, one has another shape, or
        nothing matches; the model's configuration, labels or tokenizer are not those of the
        weights; it is quantized; or model and path are swapped. The model is then unchanged.
    """
    loading.refuse_swapped("load_checkpoint", model, path)
    config_of_model(model)  # refuses what is no model
    weights = path if isinstance(path, Weights) else loading.open_weights(path)
    report = loading.report_on(model, weights, required=required, skip=skip)
    if tokenizer := getattr(model, "tokenizer", None):
        loading.refuse_other_pieces(weights, tokenizer.pieces, model.name)
        loading.refuse_other_case(weights, tokenizer.do_lower_case)
    head = getattr(model, "metadata", {}).get("task") or model.name
    if head in NAMES and any(re.match(OUTPUT, name) for name in report.matched):
        refuse_other_task(weights, head)
        if labels := getattr(model, "labels", None):
            weights = with_labels(weights, labels)
    return loading.assign(model, weights, report)


def refuse_other_task(weights: Weights, head: str, pairs: bool | None = None) -> None:
    """Raises `InputError` if a head would answer for another task than it was trained for."""
    if purposes := other_purpose(weights, head, pairs):
        received = f"{weights.path}, a model with {purposes[0]}, as one with {purposes[1]}"
        remedy = "leave out the option that asks for another task, or train a model for it"
        raise InputError(received, "the task that the model was trained for", remedy)
