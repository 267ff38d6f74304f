"""Any number of labels, from a cell to a metric.

A label applies where its probability reaches its threshold: one half, unless a threshold was given
or chosen on dev data. Thresholds belong to a model, by the names of its labels.
"""

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.heads.classification import Classification, Labels, all_labels
from bert_tf.heads.head import Head
from bert_tf.heads.labels import DECIMAL, MISSING, Label, text_of

HALF = 0.5  # the threshold of labels without one
OF_DEV = "dev"  # --threshold: the best of each label by the dev data
SEPARATORS = ",;|"  # of the labels in a cell
# What is no name: also a list, dict, tuple or vector of 0 and 1 as a program prints it.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}  # what vectors of labels are made of


def separators_of(cells: Iterable[Any]) -> str:
    """What parts the labels in the cells of a column: where ; or | does, a comma is a letter.

    >>> separators_of(["weather,sport", "sport"])
    ',;|'
    >>> separators_of(["Arts, culture & media;Sport", "Arts, culture & media", ["a;b"], None])
    ';|'
    """
    has_other = any(isinstance(cell, str) and re.search("[;|]", cell) for cell in cells)
    return SEPARATORS.replace(",", "") if has_other else SEPARATORS


@dataclasses.dataclass(frozen=True)
class LabelSets(Labels):
    """Labels of which each example has any number.

    Attributes:
      thresholds: the probability from which on each label applies, in the order of the names; ():
        one half.
      separators: of the labels in a cell, as `separators_of` its column; none is part of a name.
    """

    thresholds: tuple[float, ...] = ()
    separators: str = SEPARATORS
    head: ClassVar[str] = "multi_label"
    kind: ClassVar[str] = "multi_label"
    may_be_empty: ClassVar[bool] = True

    # ------------------------------------------------------------------------ from cells

    def of_column(self, cells: Iterable[Any]) -> Self:
        """These labels, with the separators that the cells of a whole column show."""
        separators = separators_of(cells)
        if separators != SEPARATORS and self.separators == SEPARATORS:
            logging.info("Labels are parted by ; or |: a comma is a part of a label.")
            return dataclasses.replace(self, separators=separators)
        return self

    def parse(self, value: Any) -> tuple[str, ...]:
        """The labels in a cell, with a separator between, or in a list."""
        if self.is_missing(value):
            raise ValueError("labels; an empty cell or list where none applies")
        cells: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
        whole: list[str] = []
        if isinstance(value, str):
            cells = self._parts(value)
            whole = [value.strip()]
        texts = [text_of(cell) for cell in cells]
        are_names = None not in texts
        if are_names and not {*self.names, *self.synonyms}.issuperset(texts):
            are_names = not any(map(NO_NAME.fullmatch, [*whole, *texts]))
        names = [self.name_of(text) for text in texts if text] if are_names else []
        if not are_names or len(set(names)) < len(names):
            raise ValueError(
                "the names that apply, each once: weather,sport (or ; or |) in a cell, "
                'in jsonl also ["weather", "sport"]; not '
                "0 and 1 for each, nor a list or dict as a program prints it"
            )
        return tuple(names)

    def _parts(self, cell: str) -> list[str]:
        """The labels in a cell."""
        separators = self._free(self.separators)
        return re.split(f"[{separators}]", cell) if separators else [cell]

    def _free(self, separators: str) -> str:
        """Those separators that are in no name."""
        return "".join(mark for mark in separators if not any(mark in name for name in self.names))

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """Of each label the rows without it by those with it, so that both count alike; else 1."""
        rows = np.array([self.ids(label) for label in labels])  # [N, L]
        having = rows.sum(axis=0)
        weights = np.where(having, (len(rows) - having) / np.maximum(having, 1), 1.0)
        return tuple(float(weight) if weight else 1.0 for weight in weights)

    # ------------------------------------------------------------------------ numbers

    def ids(self, label: Label | None) -> list[int]:
        """L zeros and ones."""
        return [int(label is not None and name in label) for name in self.names]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The sigmoid of each logit."""
        return 1 / (1 + np.exp(-logits.astype(np.float64)))

    # ------------------------------------------------------------------------ thresholds

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """0 and 1 [N, L], with 1 for a probability that reaches the threshold of its label."""
        return (np.asarray(probabilities) >= (self.thresholds or HALF)).astype(np.int64)

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """These labels with thresholds by name; {}: with one half.

        Raises:
          InputError: they are of other labels.
        """
        return dataclasses.replace(self, thresholds=in_order_of(self.names, thresholds))

    def with_best_thresholds(self, label_ids: Sequence, probabilities: Sequence) -> Self:
        """These labels with the thresholds that give each the best F1.

        Args:
          label_ids: zeros and ones [N, L].
          probabilities: float [N, L].
        """
        gold = np.asarray(label_ids)
        shares = np.asarray(probabilities)
        thresholds = [best_threshold(shares[:, i], gold[:, i]) for i in range(self.size)]
        return dataclasses.replace(self, thresholds=tuple(thresholds))

    @property
    def thresholds_by_name(self) -> dict[str, float]:
        """The threshold of each label; none where all are one half by default."""
        return dict(zip(self.names, self.thresholds, strict=bool(self.thresholds)))

    # ------------------------------------------------------------------------ to files

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Zeros and ones, both [N, L]."""
        return np.asarray(label_ids), self.decide(np.asarray(probabilities))

    def spell(self, prediction: Any) -> str:
        """The names that are 1."""
        return self._joined(itertools.compress(self.names, prediction))

    def spell_label(self, label: Label | None) -> str:
        """The names."""
        return "" if label is None else self._joined(label)

    def _joined(self, names: Iterable[str]) -> str:
        """Names with a comma between, or, where a name has one, with another separator."""
        return (self._free(SEPARATORS) or SEPARATORS)[0].join(names)


def check_threshold(threshold: str, labels: Labels, *, has_dev: bool) -> None:
    """Refuses a --threshold that is neither a probability nor `OF_DEV`, or that has no effect.

    Args:
      threshold: as it was given.
      labels: of the task.
      has_dev: whether there are dev data to choose it by.

    Raises:
      InputError: it cannot be used.
    """
    received = f"--threshold={threshold}"
    if not isinstance(labels, LabelSets):
        expected = "labels of which a text has any number (--label_kind=multi_label)"
        raise InputError(f"{received} for the labels of {labels.head}", expected, "leave it out")
    if threshold == OF_DEV:
        if not has_dev:
            expected = "dev data, by which thresholds are chosen"
            raise InputError(f"{received} without --do_eval", expected, "add --do_eval")
        return
    if not DECIMAL.fullmatch(threshold) or not 0 < float(threshold) < 1:
        expected = f"a probability between 0 and 1, such as 0.3, or {OF_DEV}"
        raise InputError(received, expected, "correct --threshold")


def in_order_of(names: Sequence[str], thresholds: Mapping[str, float]) -> tuple[float, ...]:
    """Thresholds by name, in the order of the names; () of none.

    Raises:
      InputError: they are of other labels.
    """
    if thresholds and thresholds.keys() != {*names}:
        received = f"thresholds of the labels {', '.join(thresholds)}"
        expected = f"one of each of {', '.join(names)}"
        raise InputError(received, expected, "correct thresholds in model_facts.json")
    return tuple(thresholds[name] for name in names) if thresholds else ()


def best_threshold(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """The threshold with the best F1 of one label; of equal ones the nearest to one half.

    With the k highest probabilities, of which h are of rows that have the label, F1 is
    2 h / (k + rows that have it). Between two different probabilities lies a threshold: in their
    middle, or one half where it lies between them.

    >>> best_threshold(np.array([0.1, 0.4, 0.2, 0.05]), np.array([0, 1, 1, 0]))
    0.15000000000000002

    Args:
      probabilities: float [N].
      gold: 1 for the rows that have the label, else 0, [N].

    Returns:
      The threshold; one half if no row has the label, as then nothing can be learned of it.
    """
    having = int(np.sum(gold))
    if not having:
        return HALF
    order = np.argsort(-probabilities, kind="stable")
    shares = probabilities[order].astype(np.float64)
    hits = np.cumsum(gold[order])
    counts = np.arange(1, len(shares) + 1)
    scores = 2 * hits / (counts + having)
    below = np.append(shares[1:], 0.0)  # the next lower probability
    is_end = below < shares  # equal ones are on one side
    middles = np.where((below < HALF) & (shares >= HALF), HALF, (shares + below) / 2)
    best = is_end & (scores == scores[is_end].max(initial=0.0))
    candidates = middles[best]
    if not len(candidates):  # all probabilities are 0
        return HALF
    return float(candidates[np.abs(candidates - HALF).argmin()])


# ---------------------------------------------------------------------------- the head


class MultiLabel(Classification):
    """Any number of labels.

    Attributes:
      thresholds: the probability from which on each label applies; (): one half.
      class_weights: how often, for each label, a row that has it counts beside one that has not.
    """

    name = "multi_label"
    problem_type = "multi_label_classification"
    labels = LabelSets
    metrics = ("micro_f1", "macro_f1", "accuracy")
    further_metrics = ()
    terms = ("multi_label",)
    least_names = 1
    thresholds: tuple[float, ...] = ()
    title = "Gives each text any number of labels."
    answer_meanings = MappingProxyType(
        {
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
            "applies": "bool [B, L], whether it applies: its probability reaches its threshold, "
            "one half unless thresholds say otherwise",
        }
    )

    def with_thresholds(self, thresholds, labels):
        """This head, whose labels apply from other probabilities on."""
        head = copy.copy(self)
        head.thresholds = in_order_of(labels, thresholds)
        return head

    def label_features(self, max_seq_length, num_labels, num_choices):
        """L zeros and ones."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.int64, num_labels, most=1),)

    def item_weights(self, batch):
        """1 for an example: [B], or [B, K] of packed rows."""
        return Head.item_weights(self, batch)

    def losses(self, outputs, batch):
        """Cross entropies averaged over classes, of logits [B * K, L] and label_ids [B, K, L].

        With class weights w: -(w y log p + (1 - y) log(1 - p)) of a label y with probability p.
        """
        import tensorflow as tf

        logits = tf.cast(outputs["logits"], tf.float32)
        labels = tf.cast(tf.reshape(batch["label_ids"], tf.shape(logits)), tf.float32)
        if self.class_weights:
            weights = tf.constant(self.class_weights, tf.float32)
            each = tf.nn.weighted_cross_entropy_with_logits(labels, logits, weights)
        else:
            each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        each = tf.reduce_mean(each, axis=-1)  # [B * K]
        return {"multi_label": tf.reshape(each, tf.shape(batch["is_real_example"]))}

    def correct(self, outputs, batch):
        """None: accuracy is counted by the metrics."""
        return {}

    def answers(self, outputs, labels):
        """labels, probabilities, applies [B, L]."""
        import tensorflow as tf

        probabilities = tf.sigmoid(outputs["logits"])  # [B, L]
        thresholds = tf.constant(self.thresholds or HALF, probabilities.dtype)
        return {**all_labels(probabilities, labels), "applies": probabilities >= thresholds}
