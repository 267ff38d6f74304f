"""Outputs of a model and labels -> loss and metrics of each head.

Everything is a sum, and every mean is the quotient of two, so that a batch can be spread over
replicas or cut into micro-batches: sums are added up first and divided last, and the loss is that
of the whole batch.
"""

from collections.abc import Mapping

import tensorflow as tf

Batch = Mapping[str, tf.Tensor]
Sums = dict[str, tf.Tensor]  # float32 scalars by name


class Objective:
    """What is minimised and measured: the sum over `terms` of loss_sum / denominator.

    A term is a mean over weighted items: examples, predictions or tokens. Subclasses give weight,
    loss and correctness of each item.
    """

    terms: tuple[str, ...]

    def item_weights(self, batch: Batch) -> Batch:
        """Weights by term; 0 for rows that only fill up a batch."""
        return {self.terms[0]: batch["is_real_example"]}  # [B]

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Losses by term, float32, of the weights' shape."""
        raise NotImplementedError

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """By term 1 where the prediction is the label, else 0; no terms without an accuracy."""
        del outputs, batch
        return {}

    def denominators(self, batch: Batch) -> Sums:
        """The sum of the weights of each term; of a part of the batch, or the whole."""
        return {t: tf.reduce_sum(weights) for t, weights in self.item_weights(batch).items()}

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of each term's losses."""
        weights = self.item_weights(batch)
        losses = self.losses(outputs, batch)
        return {t: tf.reduce_sum(weights[t] * losses[t]) for t in self.terms}

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted number of correct predictions, as <term>_accuracy."""
        weights, correct = self.item_weights(batch), self.correct(outputs, batch)
        return {f"{t}_accuracy": tf.reduce_sum(weights[t] * correct[t]) for t in correct}

    def loss(self, loss_sums: Sums, denominators: Sums) -> tf.Tensor:
        """The loss, from the sums of the whole batch; a term without items is 0."""
        quotients = [tf.math.divide_no_nan(loss_sums[t], denominators[t]) for t in self.terms]
        return tf.add_n(quotients)


class PretrainingObjective(Objective):
    """Masked-LM loss + next-sentence loss (original: `get_masked_lm_output` and following).

    masked_lm: the mean over the masked positions of the whole batch, sum(w * l) / (sum(w) + 1e-5),
      of masked_lm_losses [B, P], which `heads.tied_cross_entropy` computes in the model.
    next_sentence: the mean over the examples; 0 = the second sentence is the next, 1 = random.
    """

    def __init__(self, *, masked_lm_only: bool = False):
        """With `masked_lm_only` next_sentence_labels are ignored."""
        self.terms = ("masked_lm",) if masked_lm_only else ("masked_lm", "next_sentence")

    def item_weights(self, batch: Batch) -> Batch:
        """masked_lm_weights [B, P], and 1 for each example [B]."""
        real = batch["is_real_example"]  # [B]
        weights = {"masked_lm": batch["masked_lm_weights"] * real[:, None], "next_sentence": real}
        return {t: weights[t] for t in self.terms}

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Cross entropies of both heads, [B, P] and [B]."""
        losses = {"masked_lm": outputs["masked_lm_losses"]}
        if "next_sentence" in self.terms:
            labels = batch["next_sentence_labels"][:, 0]
            losses["next_sentence"] = _cross_entropy(outputs["next_sentence_logits"], labels)
        return losses

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """Correct predictions of both heads, [B, P] and [B]."""
        correct = {"masked_lm": _correct(outputs["masked_lm_logits"], batch["masked_lm_ids"])}
        if "next_sentence" in self.terms:
            labels = batch["next_sentence_labels"][:, 0]
            correct["next_sentence"] = _correct(outputs["next_sentence_logits"], labels)
        return correct

    def loss(self, loss_sums: Sums, denominators: Sums) -> tf.Tensor:
        """The sum of the terms' means."""
        epsilon = {"masked_lm": denominators["masked_lm"] + 1e-5}
        return super().loss(loss_sums, {**denominators, **epsilon})


class ClassifierObjective(Objective):
    """Cross entropy of logits [B, classes] and label_ids int32 [B, 1] (original: `create_model`).

    For multiple choice the classes are the choices.
    """

    terms = ("classifier",)

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Cross entropies [B]."""
        return {"classifier": _cross_entropy(outputs["logits"], batch["label_ids"][:, 0])}

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """Correct classes [B]."""
        return {"classifier": _correct(outputs["logits"], batch["label_ids"][:, 0])}


class RegressionObjective(Objective):
    """Squared error of logits [B, 1] and label_ids float32 [B, 1]."""

    terms = ("regression",)

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Squared errors [B]."""
        error = tf.cast(outputs["logits"], tf.float32) - batch["label_ids"]
        return {"regression": tf.square(error)[:, 0]}


class MultiLabelObjective(Objective):
    """Binary cross entropy of logits and label_ids, 0 or 1, both [B, classes]."""

    terms = ("multi_label",)

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Cross entropies averaged over classes, [B]."""
        each = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(batch["label_ids"], tf.float32),
            logits=tf.cast(outputs["logits"], tf.float32),
        )  # [B, classes]
        return {"multi_label": tf.reduce_mean(each, axis=-1)}


class TokenObjective(Objective):
    """Cross entropy of logits [B, S, classes] and label_ids int32 [B, S]; -1 has no label."""

    terms = ("token",)

    def item_weights(self, batch: Batch) -> Batch:
        """1 for each labelled token of a real example, [B, S]."""
        labelled = tf.cast(batch["label_ids"] >= 0, tf.float32)
        return {"token": labelled * batch["is_real_example"][:, None]}

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Cross entropies [B, S]."""
        return {"token": _cross_entropy(outputs["logits"], tf.maximum(batch["label_ids"], 0))}

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """Correct classes [B, S]."""
        return {"token": _correct(outputs["logits"], batch["label_ids"])}


class SpanObjective(Objective):
    """The mean of the cross entropies of start and end over all positions (original: `run_squad`).

    start_logits, end_logits [B, S]; start_positions, end_positions int32 [B, 1].
    """

    terms = ("span",)

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Half the sum of both, [B]."""
        ends = [
            _cross_entropy(outputs[f"{end}_logits"], batch[f"{end}_positions"][:, 0])
            for end in ("start", "end")
        ]
        return {"span": tf.add_n(ends) / 2}


def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Logits [..., classes] and labels int32 [...] -> float32 [...]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=tf.cast(logits, tf.float32)
    )


def _correct(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """1 where the likeliest class is the label: float32 [...]."""
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(predicted == labels, tf.float32)
