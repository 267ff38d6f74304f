"""The heads that BERT is pre-trained with (paper, section 3.1)."""

from typing import TYPE_CHECKING

from bert_tf.heads.head import ENCODER, Batch, Head, HeadSizes, cross_entropy, is_likeliest

if TYPE_CHECKING:
    import tensorflow as tf


class Pretraining(Head):
    """Masked words, and whether the second text follows the first.

    masked_lm: the mean over the masked positions of the whole batch, sum(w * l) / (sum(w) + 1e-5),
      of masked_lm_losses [B, P], which `tied_cross_entropy` computes in the model.
    next_sentence: the mean over the sequences; 0 = the second text is the next, 1 = random.

    Original: `get_masked_lm_output` and `get_next_sentence_output`.
    """

    name = "pretraining"
    architecture = "BertForPreTraining"
    sizes = ()
    weights = "cls/(predictions|seq_relationship)/"
    required = f"bert/|{weights}"
    outputs = ("masked_lm_logits", "next_sentence_logits")
    terms = ("masked_lm", "next_sentence")
    added_sizes = HeadSizes(classes=2, masked=True)
    title = "Fills in masked words."
    serving = "bert_tf.serving.tasks:MaskedLmTask"

    def model(
        self,
        config,
        *,
        num_classes=2,
        num_choices=1,
        with_losses: bool = False,
        num_sequences: int = 1,
    ):
        """The encoder with masked_lm_logits [B, P, V] and next_sentence_logits [B, 2].

        It has another input, masked_lm_positions int32 [B, P].

        Args:
          config, num_classes, num_choices: as for `Head.model`.
          with_losses: for training: masked_lm_ids int32 [B, P] as another input, and as another
            output masked_lm_losses float32 [B, P], the cross entropy of each prediction.
          num_sequences: K, as for `encode`; above 1 next_sentence_logits are [B, K, 2].
        """
        import keras

        from bert_tf.modeling.heads import MaskedLmHead, NextSentenceHead
        from bert_tf.modeling.models import BertModel, encode, token_inputs

        more = ["masked_lm_ids"] if with_losses else []
        inputs = token_inputs("masked_lm_positions", *more)
        outputs, embeddings = encode(config, inputs, num_sequences=num_sequences)
        hidden, positions = outputs["sequence_output"], inputs["masked_lm_positions"]
        predict = MaskedLmHead.from_bert_config(config, embeddings=embeddings)
        if with_losses:
            logits, losses = predict(hidden, positions, inputs["masked_lm_ids"])
            outputs["masked_lm_losses"] = losses  # [B, P]
        else:
            logits = predict(hidden, positions)
        outputs["masked_lm_logits"] = logits  # [B, P, V]
        if "next_sentence" in self.terms:
            is_next = NextSentenceHead.from_bert_config(config)
            logits = is_next(outputs["pooled_output"])  # [B, 2], or [B * K, 2]
            if num_sequences > 1:
                logits = keras.ops.reshape(logits, (-1, num_sequences, 2))
            outputs["next_sentence_logits"] = logits
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def item_weights(self, batch):
        """masked_lm_weights [B, P], and 1 for each sequence of a row [B, K]."""
        import tensorflow as tf

        real = batch["is_real_example"][:, None]  # [B, 1]
        weights = {"masked_lm": batch["masked_lm_weights"] * real, "next_sentence": real}
        labels = batch.get("next_sentence_labels")
        if labels is not None and labels.shape[1] > 1:  # of packed rows
            in_row = tf.reduce_max(batch["input_mask"], axis=1, keepdims=True)  # [B, 1]
            is_there = tf.range(labels.shape[1]) < in_row
            weights["next_sentence"] = real * tf.cast(is_there, tf.float32)  # [B, K]
        return {t: weights[t] for t in self.terms}

    def losses(self, outputs, batch):
        """Cross entropies of both, [B, P] and [B, K]."""
        losses = {"masked_lm": outputs["masked_lm_losses"]}
        if "next_sentence" in self.terms:
            losses["next_sentence"] = cross_entropy(*_next_sentence(outputs, batch))
        return losses

    def correct(self, outputs, batch):
        """Correct predictions of both, [B, P] and [B, K]."""
        correct = {"masked_lm": is_likeliest(outputs["masked_lm_logits"], batch["masked_lm_ids"])}
        if "next_sentence" in self.terms:
            correct["next_sentence"] = is_likeliest(*_next_sentence(outputs, batch))
        return correct

    def loss(self, loss_sums, denominators):
        """The sum of the terms' means; 1e-5 is the original's, against a division by 0."""
        masked_lm = denominators["masked_lm"] + 1e-5
        return super().loss(loss_sums, {**denominators, "masked_lm": masked_lm})


def _next_sentence(outputs: Batch, batch: Batch) -> "tuple[tf.Tensor, tf.Tensor]":
    """The logits [B, K, 2] and labels [B, K]."""
    import tensorflow as tf

    labels, logits = batch["next_sentence_labels"], outputs["next_sentence_logits"]
    return tf.reshape(logits, [-1, labels.shape[1], 2]), labels


class FillMask(Pretraining):
    """Masked words alone."""

    name = "fill_mask"
    architecture = "BertForMaskedLM"
    weights = "cls/predictions/"
    required = f"{ENCODER}|{weights}"
    outputs = ("masked_lm_logits",)
    terms = ("masked_lm",)
    added_sizes = None
