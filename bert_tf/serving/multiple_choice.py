"""A context and several endings -> which ending continues it best."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_text import FEATURE_NAMES, Features, checked, parse_records
from bert_tf.serving.signatures import TEXT, Answers, ServingTask

ENDINGS = tf.TensorSpec([None, None], tf.string)
CHOICE_IDS = tf.TensorSpec([None, None, None], tf.int32)


class MultipleChoiceTask(ServingTask):
    """Any number C of endings: a model of one class scores each with its context.

    Records, unlike texts, need their C at export: the option num_choices.
    """

    own_options = ("num_choices",)
    texts = MappingProxyType(
        {
            "context": "what goes before, a sentence to itself (SWAG's sent1)",
            "endings": "the endings, equally many of each, with the words that they go on from "
            "(SWAG's sent2 and ending)",
        }
    )
    outputs = MappingProxyType(
        {
            "choice": "int32 [B], the number of the likeliest ending, from 0",
            "probabilities": "float [B, C], of each ending",
        }
    )

    def text_specs(self) -> dict[str, tf.TensorSpec]:
        """context [B], endings [B, C]."""
        return {"context": TEXT, "endings": ENDINGS}

    def id_specs(self) -> dict[str, tf.TensorSpec]:
        """[B, C, S] each."""
        return dict.fromkeys(FEATURE_NAMES, CHOICE_IDS)

    def answer(self, **texts: tf.Tensor) -> Answers:
        """context [B], endings [B, C] -> choice [B], probabilities [B, C]."""
        endings = texts["endings"]
        contexts = tf.broadcast_to(texts["context"][:, tf.newaxis], tf.shape(endings))
        flat = self.sequences.of_pairs(tf.reshape(contexts, [-1]), tf.reshape(endings, [-1]))
        return self._choose(flat, num_choices=tf.shape(endings)[1])

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, C, S] -> the same."""
        _, num_choices, length = tf.unstack(tf.shape(features["input_ids"]))
        flat = {name: _in_rows(value, length) for name, value in features.items()}
        return self._choose(flat, num_choices=num_choices)

    def _choose(self, features: Features, *, num_choices: tf.Tensor) -> Answers:
        scores = self.outputs_of(features)["logits"]  # [B * C, 1]
        probabilities = tf.nn.softmax(_in_rows(scores, num_choices))  # [B, C]
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"choice": choice, "probabilities": probabilities}

    def parse(self, serialized: tf.Tensor) -> Features:
        """Serialized tf.Examples [B] -> features [B, C, S].

        A record holds its C sequences one after the other, equally long. Records may differ in
        length; shorter ones are padded with 0.

        Raises (at run time):
          InvalidArgumentError: a record's length is no multiple of C; or as for `parse_records`.
        """
        count = self.options.num_choices
        records = parse_records(serialized)
        lengths = records["input_ids"].row_lengths()  # [B]
        records = checked(
            records,
            tf.reduce_all(lengths % count == 0),
            f"the length of a record must be a multiple of {count}, its number of sequences",
        )
        each = tf.repeat(lengths // count, count)  # [B * C]
        longest = tf.reduce_max(tf.concat([each, [1]], 0))  # S

        def in_sequences(record: tf.RaggedTensor) -> tf.Tensor:
            rows = tf.RaggedTensor.from_row_lengths(record.values, each, validate=False)
            dense = tf.cast(rows.to_tensor(shape=tf.stack([-1, longest])), tf.int32)
            return tf.reshape(dense, [-1, count, tf.cast(longest, tf.int32)])

        return {name: in_sequences(record) for name, record in records.items()}

    def samples(self) -> list[dict[str, Any]]:
        """Endings of different lengths."""
        endings = ["he slept.", "they ate bread until it was dark.", "", "it rained."]
        contexts = ("In the evening", "In the evening of a long day " * 8)
        counts = (self.options.num_choices, 2)
        return [
            {"context": c, "endings": endings[:n]} for c, n in zip(contexts, counts, strict=True)
        ]


def _in_rows(x: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """[..., width] as [rows, width], also where there are no rows."""
    return tf.reshape(x, [tf.size(x) // tf.maximum(width, 1), width])
