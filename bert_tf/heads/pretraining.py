"""The heads that BERT is pre-trained with (paper, section 3.1)."""

import keras
import tensorflow as tf

from bert_tf.data.records import PACKED
from bert_tf.heads import ENCODER
from bert_tf.heads.head import Batch, Head, cross_entropy, is_likeliest
from bert_tf.modeling.heads import MaskedLmHead, NextSentenceHead
from bert_tf.modeling.models import (
    DEFAULTS,
    PACKED_INPUTS,
    TOKEN_INPUTS,
    BertModel,
    encode,
    token_inputs,
)


class Pretraining(Head):
    """Masked words, and whether the second text follows the first.

    masked_lm: the mean over the masked positions of the whole batch, sum(w * l) / (sum(w) + 1e-5),
      of masked_lm_losses [B, P], which `tied_cross_entropy` computes in the model.
    next_sentence: the mean over the sequences; 0 = the second text is the next, 1 = random.

    Original: `get_masked_lm_output` and `get_next_sentence_output`.
    """

    name = "pretraining"
    architecture = "BertForPreTraining"
    weights = "cls/(predictions|seq_relationship)/"
    required = f"bert/|{weights}"
    outputs = ("masked_lm_logits", "next_sentence_logits")
    terms = ("masked_lm", "next_sentence")
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
          num_sequences: K, above 1 of packed rows, whose input is sequence_numbers in the place
            of input_mask, and whose next_sentence_logits are [B, K, 2].
        """
        more = ["masked_lm_ids"] if with_losses else []
        is_packed = num_sequences > 1
        names = PACKED_INPUTS if is_packed else TOKEN_INPUTS
        inputs = token_inputs("masked_lm_positions", *more, names=names)
        read = self.read(inputs) if with_losses else inputs
        outputs, word_table = encode(config, read, num_sequences=num_sequences)
        hidden, positions = outputs["sequence_output"], read["masked_lm_positions"]
        predict = MaskedLmHead(config)
        if with_losses:
            logits, losses = predict(hidden, positions, word_table, read["masked_lm_ids"])
            outputs |= {"masked_lm_logits": logits, "masked_lm_losses": losses}  # [B, P, V], [B, P]
        else:
            outputs["masked_lm_logits"] = predict(hidden, positions, word_table)  # [B, P, V]
        if "next_sentence" in self.terms:
            logits = NextSentenceHead(config)(outputs["pooled_output"])  # [B, 2], or [B * K, 2]
            if is_packed:
                logits = keras.ops.reshape(logits, (-1, num_sequences, 2))
            outputs["next_sentence_logits"] = logits
        return BertModel(inputs, outputs, name=self.name)

    def read(self, inputs: Batch) -> Batch:
        """What is read and predicted in training, given the features of records."""
        return inputs

    def item_weights(self, batch):
        """masked_lm_weights [B, P], and 1 for each sequence [B, K]; K > 1 in packed rows."""
        real = batch["is_real_example"][:, None]  # [B, 1]
        weights = {"masked_lm": batch["masked_lm_weights"] * real, "next_sentence": real}
        if "next_sentence" in self.terms and PACKED in batch:
            in_row = tf.reduce_max(batch[PACKED], axis=1, keepdims=True)  # [B, 1]
            number = tf.range(batch["next_sentence_labels"].shape[1])  # [K]
            weights["next_sentence"] = real * tf.cast(number < in_row, tf.float32)  # [B, K]
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


def _next_sentence(outputs: Batch, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """The logits [B, K, 2] and labels [B, K]."""
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


class NextToken(FillMask):
    """Each token from those before it: what a causal model is trained with (section 5.1).

    next_token: the mean over all tokens of the batch but the first of each sequence.
    """

    terms = ("next_token",)

    def read(self, inputs):
        """Masked pieces are put back, and all positions predicted: int [B, S] each."""
        ids = inputs["input_ids"]
        every = DEFAULTS["masked_lm_positions"](ids)  # [B, S]
        masked = keras.ops.expand_dims(inputs["masked_lm_positions"], 1)  # [B, 1, P]
        # At 0 is [CLS], which is never masked: there is what fills up the predictions.
        is_here = keras.ops.equal(keras.ops.expand_dims(every, 2), masked) & (masked > 0)
        labels = keras.ops.expand_dims(inputs["masked_lm_ids"], 1)
        labels = keras.ops.max(keras.ops.where(is_here, labels, -1), axis=2)  # [B, S]
        ids = keras.ops.where(labels < 0, ids, labels)
        return {**inputs, "input_ids": ids, "masked_lm_ids": ids, "masked_lm_positions": every}

    def item_weights(self, batch):
        """1 for each token that has one of its sequence before it, [B, S]."""
        numbers = batch[PACKED if PACKED in batch else "input_mask"]
        follows = (numbers[:, 1:] == numbers[:, :-1]) & (numbers[:, 1:] > 0)  # [B, S - 1]
        weights = tf.pad(tf.cast(follows, tf.float32), [[0, 0], [1, 0]])
        return {"next_token": weights * batch["is_real_example"][:, None]}

    def losses(self, outputs, batch):
        """Cross entropies [B, S]."""
        return {"next_token": outputs["masked_lm_losses"]}

    def correct(self, outputs, batch):
        """Correct predictions [B, S]."""
        labels = self.read(batch)["masked_lm_ids"]
        return {"next_token": is_likeliest(outputs["masked_lm_logits"], labels)}

    def loss(self, loss_sums, denominators):
        """The mean."""
        return Head.loss(self, loss_sums, denominators)
