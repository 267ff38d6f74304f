"""Regression: a number as the label, from a cell to a metric."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from bert_tf.heads.classification import Classification, Labels
from bert_tf.heads.head import HeadSizes
from bert_tf.heads.labels import (
    DECIMAL,
    GREATEST,
    LEAST_DEVIATION,
    MOST_USUAL,
    Label,
    text_of,
)


@dataclasses.dataclass(frozen=True)
class Scores(Labels):
    """Labels that are numbers.

    Attributes:
      limits: the least and the greatest score.
      scale: mean and standard deviation of the training scores, if the model is trained on
        (score - mean) / deviation; None: it is trained on the scores.
    """

    limits: tuple[float, float] = (-math.inf, math.inf)
    scale: tuple[float, float] | None = None
    head: ClassVar[str] = "regression"
    kind: ClassVar[str] = "regression"
    takes_weights: ClassVar[bool] = False
    size: ClassVar[int] = 1
    are_fixed: ClassVar[bool] = True  # there are no names
    columns: ClassVar[Sequence[str]] = ("score",)

    def parse(self, value: Any) -> float:
        """The number in a cell."""
        text = text_of(value)
        if not text:
            return super().parse(value)
        score = float(text) if DECIMAL.fullmatch(text) else math.nan
        if not (abs(score) <= GREATEST and self.limits[0] <= score <= self.limits[1]):
            raise ValueError(self.describe())
        return score

    def describe(self) -> str:
        """A description of valid scores, for messages."""
        low, high = self.limits
        bounds = f" from {low:g} to {high:g}" if high < math.inf else ""
        return f"a finite number{bounds}, such as 2.5 or 1e-3"

    def with_names_in(self, labels: Iterable[Label]) -> "Scores":
        """These labels, with a scale if a new head could not learn the scores as they are.

        Scores with limits need none, nor do scores from -10 to 10 that are not too close.
        """
        if math.isfinite(self.limits[0]):
            return self
        scores = [*labels]
        mean = math.fsum(scores) / len(scores)
        deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
        is_usual = max(map(abs, scores)) <= MOST_USUAL and deviation >= LEAST_DEVIATION
        scale = None if is_usual or not deviation else (mean, deviation)
        return dataclasses.replace(self, scale=scale)

    def ids(self, label: Label | None) -> list[float]:
        """The scaled score; without a label 0."""
        mean, deviation = self.scale or (0.0, 1.0)
        return [0.0 if label is None else (label - mean) / deviation]

    def unscaled(self, values: Any) -> Any:
        """The scores of scaled values."""
        if not self.scale:
            return values
        mean, deviation = self.scale
        return np.asarray(values) * deviation + mean

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The outputs as they are, float64."""
        return logits.astype(np.float64)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The outputs [N, 1] -> [N]."""
        scores = np.asarray(probabilities)
        return scores.reshape(len(scores))

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Gold scores and predicted scores, [N] each."""
        return self.unscaled(self.decide(label_ids)), self.decide(probabilities)

    def spell(self, prediction: Any) -> str:
        """The score; if there are limits, clipped to them and with three decimals."""
        score = np.clip(float(prediction), *self.limits)
        return f"{score:.3f}" if np.isfinite(self.limits).all() else f"{score:.9g}"

    def spell_label(self, label: Label | None) -> str:
        """The score with all digits that distinguish it from others."""
        return "" if label is None else repr(float(label)).removesuffix(".0")


class Regression(Classification):
    """A score."""

    name = "regression"
    problem_type = "regression"
    labels = Scores
    metrics = ("spearman", "pearson")
    further_metrics = ()
    terms = ("regression",)
    has_names = False
    sizes = ()
    added_sizes = HeadSizes(classes=1)
    title = "Gives each text a score."
    answer_meanings = MappingProxyType(
        {"score": "float [B], which may lie beyond the scores of training"}
    )

    def model(self, config, *, num_classes=1, num_choices=1, num_sequences=1):
        """The encoder with a score of its pooled vector: logits [B * K, 1]."""
        return super().model(config, num_classes=1, num_sequences=num_sequences)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One float32."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.float32, 1, least=-GREATEST, most=GREATEST),)

    def losses(self, outputs, batch):
        """Squared errors of logits [B * K, 1] and label_ids float32 [B, K]."""
        import tensorflow as tf

        logits = tf.reshape(tf.cast(outputs["logits"], tf.float32), tf.shape(batch["label_ids"]))
        errors = tf.square(logits - batch["label_ids"])
        return {"regression": tf.reshape(errors, tf.shape(batch["is_real_example"]))}

    def correct(self, outputs, batch):
        """{}: a score has no accuracy."""
        return {}

    def answers(self, outputs, labels):
        """score [B]."""
        return {"score": outputs["logits"][:, 0]}
