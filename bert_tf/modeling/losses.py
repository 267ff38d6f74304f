"""Logits and labels -> loss and metrics of each head.

Everything is a sum, and every mean is made of two of them, so that a batch can lie on several
replicas or be cut into micro-batches: sums are added up first and divided last, and the loss is
that of the whole batch.
"""

from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

Batch = Mapping[str, tf.Tensor]
Sums = dict[str, tf.Tensor]  # float32 scalars by name


class Objective(Protocol):
    """What is minimised and what is measured: the sum over `terms` of loss_sum / denominator."""

    def weights(self, batch: Batch) -> Sums:
        """The sum of the weights of each term; of a part of the batch, or the whole."""

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of each term's losses."""

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of each metric, under the name <term>_<metric>."""

    def loss(self, loss_sums: Sums, weights: Sums) -> tf.Tensor:
        """The loss, from the sums of losses and weights of the whole batch."""


class PretrainingObjective:
    """Masked-LM loss + next-sentence loss (original: `get_masked_lm_output` and following).

    masked_lm: the mean over the masked positions of the whole batch, sum(w * l) / (sum(w) + 1e-5).
    next_sentence: the mean over the examples; 0 = the second sentence is the next, 1 = random.
    """

    EPSILON = {"masked_lm": 1e-5, "next_sentence": 0.0}  # noqa: RUF012

    def __init__(self, *, masked_lm_only: bool = False):
        """With `masked_lm_only` next_sentence_labels are not looked at."""
        self.terms = ("masked_lm",) if masked_lm_only else ("masked_lm", "next_sentence")

    def weights(self, batch: Batch) -> Sums:
        """Sums of masked_lm_weights and of examples."""
        return {term: tf.reduce_sum(self._item_weights(term, batch)) for term in self.terms}

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """Weighted sums of the cross entropies of both heads."""
        return {
            term: tf.reduce_sum(
                self._item_weights(term, batch) * self._losses(term, outputs, batch)
            )
            for term in self.terms
        }

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """Weighted sums of right guesses, masked_lm_accuracy and next_sentence_accuracy."""
        sums = {}
        for term in self.terms:
            guesses = tf.argmax(outputs[f"{term}_logits"], axis=-1, output_type=tf.int32)
            right = tf.cast(guesses == self._labels(term, batch), tf.float32)
            sums[f"{term}_accuracy"] = tf.reduce_sum(self._item_weights(term, batch) * right)
        return sums

    def loss(self, loss_sums: Sums, weights: Sums) -> tf.Tensor:
        """The sum of the terms' means."""
        return tf.add_n([loss_sums[t] / (weights[t] + self.EPSILON[t]) for t in self.terms])

    def _losses(self, term: str, outputs: Batch, batch: Batch) -> tf.Tensor:
        if f"{term}_losses" in outputs:  # a model that was built `with_losses`
            return outputs[f"{term}_losses"]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=self._labels(term, batch), logits=tf.cast(outputs[f"{term}_logits"], tf.float32)
        )

    def _labels(self, term: str, batch: Batch) -> tf.Tensor:
        if term == "masked_lm":
            return batch["masked_lm_ids"]  # [B, P]
        return batch["next_sentence_labels"][:, 0]  # [B]

    def _item_weights(self, term: str, batch: Batch) -> tf.Tensor:
        real = batch["is_real_example"]  # [B], 0 for rows that only fill up a batch
        return batch["masked_lm_weights"] * real[:, None] if term == "masked_lm" else real


class _OneTerm:
    """An objective of one term: the mean of a loss over items, examples unless said otherwise."""

    def __init__(self, term: str):
        self.terms = (term,)

    def item_weights(self, batch: Batch) -> tf.Tensor:
        """The weight of each item; 0 for what only fills up a batch."""
        return batch["is_real_example"]  # [B]

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """The loss of each item."""
        raise NotImplementedError

    def right(self, outputs: Batch, batch: Batch) -> tf.Tensor | None:
        """1 for each item that is guessed right; None where there is no such thing."""
        del outputs, batch
        return None

    def weights(self, batch: Batch) -> Sums:
        """The sum of the items' weights."""
        return {self.terms[0]: tf.reduce_sum(self.item_weights(batch))}

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of the items' losses."""
        losses = self.losses(outputs, batch)
        return {self.terms[0]: tf.reduce_sum(self.item_weights(batch) * losses)}

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of right guesses."""
        right = self.right(outputs, batch)
        if right is None:
            return {}
        return {f"{self.terms[0]}_accuracy": tf.reduce_sum(self.item_weights(batch) * right)}

    def loss(self, loss_sums: Sums, weights: Sums) -> tf.Tensor:
        """The mean over the items; 0 where there are none."""
        return tf.math.divide_no_nan(loss_sums[self.terms[0]], weights[self.terms[0]])


class ClassifierObjective(_OneTerm):
    """Cross entropy of logits [B, classes] and label_ids int32 [B, 1] (original: `create_model`).

    For multiple choice the classes are the choices.
    """

    def __init__(self):
        super().__init__("classifier")

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Cross entropy, float32 [B]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=batch["label_ids"][:, 0], logits=tf.cast(outputs["logits"], tf.float32)
        )

    def right(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Whether the likeliest class is the label, float32 [B]."""
        guesses = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
        return tf.cast(guesses == batch["label_ids"][:, 0], tf.float32)


class RegressionObjective(_OneTerm):
    """Squared error of logits [B, 1] and label_ids float32 [B, 1]."""

    def __init__(self):
        super().__init__("regression")

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Squared error, float32 [B]."""
        return tf.square(tf.cast(outputs["logits"], tf.float32) - batch["label_ids"])[:, 0]


class MultiLabelObjective(_OneTerm):
    """Binary cross entropy of logits [B, classes] and label_ids [B, classes] of 0 and 1, meaned."""

    def __init__(self):
        super().__init__("multi_label")

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """The mean over the classes, float32 [B]."""
        each = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(batch["label_ids"], tf.float32),
            logits=tf.cast(outputs["logits"], tf.float32),
        )  # [B, classes]
        return tf.reduce_mean(each, axis=-1)


class TokenObjective(_OneTerm):
    """Cross entropy of logits [B, S, classes] and label_ids int32 [B, S]; -1 is no item."""

    def __init__(self):
        super().__init__("token")

    def item_weights(self, batch: Batch) -> tf.Tensor:
        """1 for each labelled token of a real example, float32 [B, S]."""
        labelled = tf.cast(batch["label_ids"] >= 0, tf.float32)
        return labelled * batch["is_real_example"][:, None]

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Cross entropy, float32 [B, S]."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.maximum(batch["label_ids"], 0),
            logits=tf.cast(outputs["logits"], tf.float32),
        )

    def right(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Whether the likeliest class is the label, float32 [B, S]."""
        guesses = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
        return tf.cast(guesses == batch["label_ids"], tf.float32)


class SpanObjective(_OneTerm):
    """The mean of the cross entropies of start and end over all positions (original: `run_squad`).

    start_logits, end_logits [B, S]; start_positions, end_positions int32 [B, 1].
    """

    def __init__(self):
        super().__init__("span")

    def losses(self, outputs: Batch, batch: Batch) -> tf.Tensor:
        """Half the sum of both, float32 [B]."""
        ends = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=batch[f"{end}_positions"][:, 0],
                logits=tf.cast(outputs[f"{end}_logits"], tf.float32),
            )
            for end in ("start", "end")
        ]
        return tf.add_n(ends) / 2
