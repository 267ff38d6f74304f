"""Texts, or pairs of texts -> labels and probabilities, or a score."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving.graph_text import Features
from bert_tf.serving.inference import InferenceModel
from bert_tf.serving.signatures import Answers, ServingTask

SAMPLE_TEXTS = (
    "",
    "A short text.",
    "A text that is somewhat longer than the first one, as they come in practice.",
    "A long text. " * 60,
)


class TextTask(ServingTask):
    """A task of single texts or of pairs, with one vector or score for the whole."""

    text_options = ("pairs",)

    def __init__(self, *args, pairs: bool = False, **kwargs):
        """As for `ServingTask`; `pairs`: the model was trained on pairs of texts."""
        super().__init__(*args, **kwargs)
        self.pairs = pairs
        if pairs:
            self.texts = {"text_a": "the first text", "text_b": "the second text, or empty"}
        else:
            self.texts = {"text": "the text"}

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text, or text_a and text_b, [B] -> the answers [B, ...]."""
        if self.pairs:
            return self.answer_ids(self.sequences.of_pairs(texts["text_a"], texts["text_b"]))
        return self.answer_ids(self.sequences.of_texts(texts["text"]))

    def samples(self) -> list[dict[str, Any]]:
        """Texts from nothing to more than fits."""
        return [dict.fromkeys(self.texts, text) for text in SAMPLE_TEXTS]

    def options(self) -> dict[str, Any]:
        """With or without a second text."""
        return {**super().options(), "pairs": self.pairs}


class ClassifierTask(TextTask):
    """One of several labels."""

    name = "classification"
    title = "Gives each text one of several labels."
    outputs = MappingProxyType(
        {
            "label": "string [B], the likeliest label",
            "probability": "float [B], its probability",
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
        }
    )

    def __init__(self, *args, labels: tuple[str, ...], **kwargs):
        """As for `TextTask`; `labels`: names of the model's classes, in order."""
        super().__init__(*args, **kwargs)
        self.labels = checked_labels(labels, self.model)

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> label, probability [B], labels and probabilities [B, L]."""
        probabilities = tf.nn.softmax(self.outputs_of(features)["logits"])  # [B, L]
        best = tf.argmax(probabilities, axis=-1)
        names = tf.constant(self.labels)
        return {
            "label": tf.gather(names, best),
            "probability": tf.reduce_max(probabilities, axis=-1),
            "labels": in_each_row(names, probabilities),
            "probabilities": probabilities,
        }

    def options(self) -> dict[str, Any]:
        """With the labels."""
        return {**super().options(), "labels": list(self.labels)}


class MultiLabelTask(ClassifierTask):
    """Any number of labels."""

    name = "multi_label"
    title = "Gives each text any number of labels."
    outputs = MappingProxyType(
        {
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
            "applies": "bool [B, L], whether it applies: its probability is one half or more",
        }
    )

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> labels, probabilities, applies [B, L]."""
        probabilities = tf.sigmoid(self.outputs_of(features)["logits"])  # [B, L]
        return {
            "labels": in_each_row(tf.constant(self.labels), probabilities),
            "probabilities": probabilities,
            "applies": probabilities >= 0.5,
        }


class RegressionTask(TextTask):
    """A score."""

    name = "regression"
    title = "Gives each text a score."
    outputs = MappingProxyType({"score": "float [B], which may lie beyond the scores of training"})

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> score [B]."""
        return {"score": self.outputs_of(features)["logits"][:, 0]}


def checked_labels(labels: tuple[str, ...], model: InferenceModel) -> tuple[str, ...]:
    """The labels, if there are as many as the model has classes, each once."""
    if len(set(labels)) < len(labels) or len(labels) != model.num_classes:
        raise InputError(
            received=f"{len(labels)} labels: {', '.join(labels)}",
            expected=f"{model.num_classes}, as many as the model has classes, each once",
            remedy="name them all, in the order of the classes, with --labels",
        )
    return tuple(labels)


def in_each_row(names: tf.Tensor, beside: tf.Tensor) -> tf.Tensor:
    """The names [L] in every row [B, L], so that a row of an answer can be read by itself."""
    return tf.broadcast_to(names[tf.newaxis], tf.shape(beside))
