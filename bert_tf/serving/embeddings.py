"""Texts -> vectors: of the whole text, and of each token."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.heads import ENCODER
from bert_tf.serving.classification import TextTask
from bert_tf.serving.graph_text import Features
from bert_tf.serving.signatures import TEXT, Answers, Signature


class EmbeddingTask(TextTask):
    """The encoder's vectors. Many models have no pooler, and then no pooled vector."""

    name = "embeddings"
    title = "Gives each text vectors."
    required = ENCODER
    outputs = MappingProxyType(
        {"mean": "float [B, D], the mean of the vectors of all its pieces; not of length 1"}
    )

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        if self.model.has_pooler:
            pooled = {"pooled": "float [B, D], the pooled vector of [CLS]"}
            self.outputs = {**self.outputs, **pooled}

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> mean [B, D] over all tokens, [CLS] and [SEP] included; pooled."""
        outputs = self.outputs_of(features)
        vectors = outputs["sequence_output"]  # [B, S, D]
        mask = tf.cast(features["input_mask"], vectors.dtype)[:, :, tf.newaxis]  # [B, S, 1]
        count = tf.maximum(tf.reduce_sum(mask, 1), 1.0)  # [B, 1]
        answers = {"mean": tf.reduce_sum(vectors * mask, 1) / count}
        return answers | ({"pooled": outputs["pooled_output"]} if self.model.has_pooler else {})

    def further_signatures(self) -> dict[str, Signature]:
        """tokens: a vector for each token, which is too much for the default."""

        def tokens(text: tf.Tensor) -> Answers:
            features = self.sequences.of_texts(text)
            names = tf.constant(self.sequences.piece_names())
            mask = features["input_mask"]
            return {
                "pieces": tf.where(mask != 0, tf.gather(names, features["input_ids"]), ""),
                "vectors": self.outputs_of(features)["sequence_output"]
                * tf.cast(mask, tf.float32)[:, :, tf.newaxis],
                "num_pieces": tf.reduce_sum(mask, 1),
            }

        outputs = {
            "pieces": "string [B, S], [CLS] and [SEP] included; empty beyond num_pieces",
            "vectors": "float [B, S, D]; 0 beyond num_pieces",
            "num_pieces": "int32 [B]",
        }
        return {"tokens": Signature({"text": TEXT}, tokens, outputs)}

    def listed_options(self) -> dict[str, Any]:
        """The options, and the size of the vectors."""
        return {**super().listed_options(), "hidden_size": self.sequences.config.hidden_size}
