"""Texts, or pairs of texts -> the answers of a head."""

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
    """Single texts or pairs; the head says what is answered for each."""

    own_options = text_options = ("pairs",)

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        self.texts = {"text": "the text"}
        if self.options.pairs:
            self.texts = {"text_a": "the first text", "text_b": "the second text, or empty"}
        self.outputs = self.head.answer_meanings

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text, or text_a and text_b, [B] -> the answers [B, ...]."""
        make = self.sequences.of_pairs if self.options.pairs else self.sequences.of_texts
        return self.answer_ids(make(*(texts[name] for name in self.texts)))

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> the answers of the head [B, ...]."""
        return self.head.answers(self.outputs_of(features), self.options.labels)

    def samples(self) -> list[dict[str, Any]]:
        """Texts from empty to longer than the maximum."""
        return [dict.fromkeys(self.texts, text) for text in SAMPLE_TEXTS]
