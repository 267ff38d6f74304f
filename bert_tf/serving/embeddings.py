"""Texts -> vectors: of the whole, and of each piece."""

from typing import Any

import tensorflow as tf

from bert_tf.serving.classification import TextTask
from bert_tf.serving.graph_text import Features
from bert_tf.serving.piece_names import piece_names
from bert_tf.serving.signatures import TEXT, Answers, Signature


class EmbeddingTask(TextTask):
    """The encoder's vectors."""

    name = "embeddings"
    title = "Gives each text vectors."

    def __init__(self, *args, **kwargs):
        """As for `TextTask`. Many models have no pooler; then there are no pooled vectors."""
        super().__init__(*args, **kwargs)
        self.outputs = {
            "mean": "float [B, D], the mean of the vectors of all its pieces; not of length 1"
        }
        if self.model.has_pooler:
            self.outputs["pooled"] = "float [B, D], the pooled vector of [CLS]"

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> mean [B, D] over all pieces, [CLS] and [SEP] included; pooled."""
        outputs = self.outputs_of(features)
        vectors = outputs["sequence_output"]  # [B, S, D]
        share = tf.cast(features["input_mask"], vectors.dtype)[:, :, tf.newaxis]  # [B, S, 1]
        pieces = tf.maximum(tf.reduce_sum(share, 1), 1.0)
        answers = {"mean": tf.reduce_sum(vectors * share, 1) / pieces}
        return answers | ({"pooled": outputs["pooled_output"]} if self.model.has_pooler else {})

    def further_signatures(self) -> dict[str, Signature]:
        """tokens: a vector for each piece, which is too much for the default."""

        def tokens(text: tf.Tensor) -> Answers:
            features = self.sequences.of_texts(text)
            names = tf.constant(piece_names(self.sequences.tokenizer, self.sequences.config))
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

    def options(self) -> dict[str, Any]:
        """With the size of the vectors."""
        return {**super().options(), "hidden_size": self.sequences.config.hidden_size}
