"""The heads that BERT is pre-trained with (section 3.1): masked words, and next sentences."""

from typing import TYPE_CHECKING

from bert_tf.heads.head import ENCODER, Batch, Head, HeadSizes, cross_entropy, is_likeliest

if TYPE_CHECKING:
    import tensorflow as tf


class Pretraining(Head):
    """Masked words, and whether the second text follows the first.

    The loss is the sum of two means over the whole batch:

    masked_lm: of the masked positions, sum(w * l) / (sum(w) + 1e-5), with l the masked_lm_losses
      [B, P], which the model computes by `tied_cross_entropy`.
    next_sentence: of the sequences; label 0: the second text is the next, 1: a random one.

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
          with_losses: for training: another input, masked_lm_ids int32 [B, P], and another output,
            masked_lm_losses float32 [B, P], the cross entropy of each prediction.
          num_sequences: K, as for `encode`; above 1 next_sentence_logits are [B, K, 2].
        """
        import keras

        from bert_tf.modeling.heads import MaskedLmHead, NextSentenceHead
        from bert_tf.modeling.models import BertModel, encode, token_inputs

        more = ["masked_lm_ids"] if with_losses else []
        inputs = token_inputs("masked_lm_positions", *more)
        outputs, embeddings = encode(config, inputs, num_sequences=num_sequences)
        x = outputs["sequence_output"]  # [B, S, D]
        positions = inputs["masked_lm_positions"]  # [B, P]
        masked_lm = MaskedLmHead.from_bert_config(config, embeddings=embeddings)
        if with_losses:
            logits, losses = masked_lm(x, positions, inputs["masked_lm_ids"])
            outputs["masked_lm_losses"] = losses  # [B, P]
        else:
            logits = masked_lm(x, positions)
        outputs["masked_lm_logits"] = logits  # [B, P, V]
        if "next_sentence" in self.terms:
            next_sentence = NextSentenceHead.from_bert_config(config)
            logits = next_sentence(outputs["pooled_output"])  # [B, 2], or [B * K, 2]
            if num_sequences > 1:
                logits = keras.ops.reshape(logits, (-1, num_sequences, 2))  # [B, K, 2]
            outputs["next_sentence_logits"] = logits
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def item_weights(self, batch):
        """masked_lm: masked_lm_weights [B, P]; next_sentence: 1 for each sequence, [B, K]."""
        import tensorflow as tf

        real = batch["is_real_example"][:, None]  # [B, 1]
        weights = {"masked_lm": batch["masked_lm_weights"] * real}
        if "next_sentence" not in self.terms:
            return weights
        weights["next_sentence"] = real
        most = batch["next_sentence_labels"].shape[1]  # K
        if most > 1:  # packed rows, some of which have fewer sequences
            num_sequences = tf.reduce_max(batch["input_mask"], axis=1, keepdims=True)  # [B, 1]
            is_there = tf.range(most) < num_sequences  # [B, K]
            weights["next_sentence"] = real * tf.cast(is_there, tf.float32)
        return weights

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

    labels = batch["next_sentence_labels"]
    logits = tf.reshape(outputs["next_sentence_logits"], [-1, labels.shape[1], 2])
    return logits, labels


class FillMask(Pretraining):
    """Masked words only."""

    name = "fill_mask"
    architecture = "BertForMaskedLM"
    weights = "cls/predictions/"
    required = f"{ENCODER}|{weights}"
    outputs = ("masked_lm_logits",)
    terms = ("masked_lm",)
    added_sizes = None
