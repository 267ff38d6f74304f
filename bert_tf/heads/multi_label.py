"""Any number of labels, from a cell to a metric.

A label applies if its probability reaches its threshold: one half, unless a threshold was given or
chosen by the dev data. Thresholds belong to a model, by the names of its labels.
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

HALF = 0.5  # the default threshold
OF_DEV = "dev"  # --threshold=dev: the best threshold of each label by the dev data
SEPARATORS = ",;|"  # between the labels in a cell
# Texts that are no name: missing values; lists, dicts, tuples or vectors of 0 and 1 as printed.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}  # the elements of vectors of labels


def separators_of(cells: Iterable[Any]) -> str:
    """The separators of the labels in a column; if cells have ; or |, a comma is part of a name.

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
      thresholds: the least probability at which each label applies, in the order of the names; ():
        one half.
      separators: the separators of the labels in a cell, as `separators_of` gives them for its
        column. Those in a label's name do not separate.
    """

    thresholds: tuple[float, ...] = ()
    separators: str = SEPARATORS
    head: ClassVar[str] = "multi_label"
    kind: ClassVar[str] = "multi_label"
    may_be_empty: ClassVar[bool] = True

    # ------------------------------------------------------------------------ from cells

    def of_column(self, cells: Iterable[Any]) -> Self:
        """These labels with the separators that a whole column has."""
        separators = separators_of(cells)
        if separators != SEPARATORS and self.separators == SEPARATORS:
            logging.info("Labels are parted by ; or |: a comma is a part of a label.")
            return dataclasses.replace(self, separators=separators)
        return self

    def parse(self, value: Any) -> tuple[str, ...]:
        """The labels in a list, or in a cell with separators between them."""
        if self.is_missing(value):
            raise ValueError("labels; an empty cell or list where none applies")
        cells: Sequence[Any] = [value]
        if isinstance(value, str):
            cells = self._split(value)
        elif isinstance(value, list | tuple):
            cells = value
        texts = [text_of(cell) for cell in cells]
        are_names = self._are_names(texts, value)
        names = [self.name_of(text) for text in texts if text] if are_names else []
        if not are_names or len(set(names)) < len(names):
            raise ValueError(
                "the names that apply, each once: weather,sport (or ; or |) in a cell, "
                'in jsonl also ["weather", "sport"]; not '
                "0 and 1 for each, nor a list or dict as a program prints it"
            )
        return tuple(names)

    def _split(self, cell: str) -> list[str]:
        """The parts of a cell, each a label."""
        separators = self._free(self.separators)
        return re.split(f"[{separators}]", cell) if separators else [cell]

    def _are_names(self, texts: Sequence[str | None], value: Any) -> bool:
        """Whether texts may be names: they are known, or look like no printed list or vector.

        Args:
          texts: the parts of `value`.
          value: the whole cell or list.
        """
        if None in texts:
            return False
        if {*self.names, *self.synonyms}.issuperset(texts):
            return True
        whole = [value.strip()] if isinstance(value, str) else []
        return not any(map(NO_NAME.fullmatch, [*whole, *texts]))

    def _free(self, separators: str) -> str:
        """The separators that are in no name."""
        all_names = "".join(self.names)
        return "".join(mark for mark in separators if mark not in all_names)

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """For each label the rows without it / the rows with it: then both count alike.

        The weight of a label that no row has, or all rows have, is 1.
        """
        rows = np.array([self.ids(label) for label in labels])  # [N, L]
        num_with = rows.sum(axis=0)  # [L]
        num_without = len(rows) - num_with
        weights = np.where(num_with, num_without / np.maximum(num_with, 1), 1.0)
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
        """1 where a probability reaches the threshold of its label, else 0: int64 [N, L]."""
        return (np.asarray(probabilities) >= (self.thresholds or HALF)).astype(np.int64)

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """These labels with thresholds by name; {}: one half.

        Raises:
          InputError: the thresholds are of other labels.
        """
        return dataclasses.replace(self, thresholds=in_order_of(self.names, thresholds))

    def with_best_thresholds(self, label_ids: Sequence, probabilities: Sequence) -> Self:
        """These labels with the thresholds that give each the best F1.

        Args:
          label_ids: zeros and ones [N, L].
          probabilities: float [N, L].
        """
        gold = np.asarray(label_ids)
        probabilities = np.asarray(probabilities)
        thresholds = [best_threshold(probabilities[:, i], gold[:, i]) for i in range(self.size)]
        return dataclasses.replace(self, thresholds=tuple(thresholds))

    @property
    def thresholds_by_name(self) -> dict[str, float]:
        """The threshold of each label; {} if all have the default, one half."""
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
        """Names with a comma between; if a name has a comma, with another separator."""
        separators = self._free(SEPARATORS) or SEPARATORS
        return separators[0].join(names)


def check_threshold(threshold: str, labels: Labels, *, has_dev: bool) -> None:
    """Refuses a --threshold that is neither a probability nor `OF_DEV`, or that has no effect.

    Args:
      threshold: the value of the flag.
      labels: the labels of the task.
      has_dev: whether there are dev data to choose thresholds by.

    Raises:
      InputError: the threshold cannot be used.
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
    """The thresholds in the order of the names; () if there are none.

    Raises:
      InputError: the thresholds are of other labels.
    """
    if not thresholds:
        return ()
    if thresholds.keys() != set(names):
        received = f"thresholds of the labels {', '.join(thresholds)}"
        expected = f"one of each of {', '.join(names)}"
        raise InputError(received, expected, "correct thresholds in model_facts.json")
    return tuple(thresholds[name] for name in names)


def best_threshold(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """The threshold with the best F1 of one label; of several the nearest to one half.

    A threshold accepts the k highest probabilities, of which h are of rows that have the label: F1
    is 2 h / (k + number of rows that have it). The threshold lies in the middle between two
    different probabilities, or is one half if this lies between them.

    >>> best_threshold(np.array([0.1, 0.4, 0.2, 0.05]), np.array([0, 1, 1, 0]))
    0.15000000000000002

    Args:
      probabilities: float [N].
      gold: 1 for the rows that have the label, else 0, [N].

    Returns:
      The threshold; one half if no row has the label.
    """
    num_with_label = int(np.sum(gold))
    if not num_with_label:
        return HALF
    order = np.argsort(-probabilities, kind="stable")
    above = probabilities[order].astype(np.float64)  # the lowest of the k probabilities, by k - 1
    below = np.append(above[1:], 0.0)  # the next lower probability
    hits = np.cumsum(gold[order])
    counts = np.arange(1, len(above) + 1)
    scores = 2 * hits / (counts + num_with_label)  # F1
    is_between = below < above  # a threshold does not part equal probabilities
    middles = np.where((below < HALF) & (above >= HALF), HALF, (above + below) / 2)
    is_best = is_between & (scores == scores[is_between].max(initial=0.0))
    candidates = middles[is_best]
    if not len(candidates):  # all probabilities are 0
        return HALF
    return float(candidates[np.abs(candidates - HALF).argmin()])


# ---------------------------------------------------------------------------- the head


class MultiLabel(Classification):
    """Any number of labels.

    Attributes:
      thresholds: the least probability at which each label applies; (): one half.
      class_weights: for each label, the weight of rows that have it; others have weight 1.
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
        """This head with the least probability at which each label applies; {}: one half."""
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
            losses = tf.nn.weighted_cross_entropy_with_logits(labels, logits, weights)
        else:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        losses = tf.reduce_mean(losses, axis=-1)  # [B * K, L] -> [B * K]
        return {"multi_label": tf.reshape(losses, tf.shape(batch["is_real_example"]))}

    def correct(self, outputs, batch):
        """{}: the metrics of predictions count accuracy."""
        return {}

    def answers(self, outputs, labels):
        """labels, probabilities and applies, [B, L] each."""
        import tensorflow as tf

        probabilities = tf.sigmoid(outputs["logits"])  # [B, L]
        thresholds = tf.constant(self.thresholds or HALF, probabilities.dtype)
        return {**all_labels(probabilities, labels), "applies": probabilities >= thresholds}
