"""Texts, or pairs of texts -> labels and probabilities, or a score."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_text import Features
from bert_tf.serving.signatures import Answers, ServingTask

SAMPLE_TEXTS = (
    "",
    "A short text.",
    "A text that is somewhat longer than the first one, as they come in practice.",
    "A long text. " * 60,
)


class TextTask(ServingTask):
    """A task of single texts or of pairs, with one vector or score for the whole."""

    own_options = text_options = ("pairs",)

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        if self.options.pairs:
            self.texts = {"text_a": "the first text", "text_b": "the second text, or empty"}
        else:
            self.texts = {"text": "the text"}

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text, or text_a and text_b, [B] -> the answers [B, ...]."""
        if self.options.pairs:
            return self.answer_ids(self.sequences.of_pairs(texts["text_a"], texts["text_b"]))
        return self.answer_ids(self.sequences.of_texts(texts["text"]))

    def samples(self) -> list[dict[str, Any]]:
        """Texts from empty to longer than the maximum."""
        return [dict.fromkeys(self.texts, text) for text in SAMPLE_TEXTS]


class ClassifierTask(TextTask):
    """One of several labels. L is the number of labels."""

    name = "classification"
    title = "Gives each text one of several labels."
    own_options = ("pairs", "labels")
    outputs = MappingProxyType(
        {
            "label": "string [B], the likeliest label",
            "probability": "float [B], its probability",
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
        }
    )

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> label, probability [B], labels and probabilities [B, L]."""
        probabilities = tf.nn.softmax(self.outputs_of(features)["logits"])  # [B, L]
        best = tf.argmax(probabilities, axis=-1)
        return {
            "label": tf.gather(tf.constant(self.options.labels), best),
            "probability": tf.reduce_max(probabilities, axis=-1),
            **self._all_labels(probabilities),
        }

    def _all_labels(self, probabilities: tf.Tensor) -> Answers:
        """The names in every row, so that a row of an answer can be read by itself."""
        names = tf.constant(self.options.labels)[tf.newaxis]
        labels = tf.broadcast_to(names, tf.shape(probabilities))
        return {"labels": labels, "probabilities": probabilities}


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
        return {**self._all_labels(probabilities), "applies": probabilities >= 0.5}


class RegressionTask(TextTask):
    """A score."""

    name = "regression"
    title = "Gives each text a score."
    outputs = MappingProxyType({"score": "float [B], which may lie beyond the scores of training"})

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> score [B]."""
        return {"score": self.outputs_of(features)["logits"][:, 0]}
