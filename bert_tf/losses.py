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
