"""Texts -> vectors: of the whole text, and of each token."""

import tensorflow as tf

from bert_tf.serving.classification import TextTask
from bert_tf.serving.graph_text import Features
from bert_tf.serving.signatures import TEXT, Answers, Signature


class EmbeddingTask(TextTask):
    """The encoder's vectors. Many models have no pooler, and then no pooled vector."""

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        self.outputs = {
            "mean": "float [B, D], the mean of the vectors of all its pieces; not of length 1"
        }
        if "pooled_output" in self.model.outputs:
            self.outputs["pooled"] = "float [B, D], the pooled vector of [CLS]"

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> mean [B, D] over all tokens, [CLS] and [SEP] included; pooled."""
        outputs = self.outputs_of(features)
        vectors = outputs["sequence_output"]  # [B, S, D]
        mask = tf.cast(features["input_mask"], vectors.dtype)[:, :, tf.newaxis]  # [B, S, 1]
        count = tf.maximum(tf.reduce_sum(mask, 1), 1.0)  # [B, 1]
        answers = {"mean": tf.reduce_sum(vectors * mask, 1) / count}
        return answers | ({"pooled": outputs["pooled_output"]} if "pooled" in self.outputs else {})

    def further_signatures(self) -> dict[str, Signature]:
        """tokens: a vector for each token, which is too much for the default."""

        def tokens(text: tf.Tensor) -> Answers:
            features = self.sequences.of_texts(text)
            names, mask = tf.constant(self.sequences.piece_names()), features["input_mask"]
            vectors = self.outputs_of(features)["sequence_output"]  # [B, S, D]
            return {
                "pieces": tf.where(mask != 0, tf.gather(names, features["input_ids"]), ""),
                "vectors": vectors * tf.cast(mask, tf.float32)[:, :, tf.newaxis],
                "num_pieces": tf.reduce_sum(mask, 1),
            }

        outputs = {
            "pieces": "string [B, S], [CLS] and [SEP] included; empty beyond num_pieces",
            "vectors": "float [B, S, D]; 0 beyond num_pieces",
            "num_pieces": "int32 [B]",
        }
        return {"tokens": Signature({"text": TEXT}, tokens, outputs)}
