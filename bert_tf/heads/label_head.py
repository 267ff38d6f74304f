"""What all heads have whose answers are labels; by default one of several names."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.heads.head import Head
from bert_tf.heads.labels import Label, Labels, text_of


class LabelHead(Head):
    """A head whose answers are labels; by default one of several names.

    Attributes:
      least_names: how many names training data must have.
      may_be_empty: whether an empty cell is a label.
      is_per_word: whether every word has a label.
      takes_windows: whether a long text may be read in windows, whose logits are averaged.
    """

    has_names = True
    least_names: int = 2
    may_be_empty: bool = False
    is_per_word: bool = False
    takes_windows: bool = False

    def size(self, labels: Labels) -> int:
        """How many scores the head gives for a sequence, or for a token."""
        return len(labels.names)

    def are_fixed(self, labels: Labels) -> bool:
        """Whether the label names are known."""
        return bool(labels.names)

    def label_features(
        self, max_seq_length: int, num_labels: int, num_choices: int
    ) -> tuple[Feature, ...]:
        """One number of a label."""
        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)

    def parse(self, labels: Labels, value) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected in the cell.
        """
        text = text_of(value)
        if text is None or labels.is_missing(text):
            raise ValueError(f"a label: {self.describe(labels)}")
        return labels.known(text)

    def describe(self, labels: Labels) -> str:
        """What a label can be, for messages."""
        if not labels.names:
            return "any text"
        shown = ", ".join(labels.names[:20]) + (", ..." if len(labels.names) > 20 else "")
        return f"one of the {len(labels.names)} labels {shown}"

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """The names of training data: numbers by value, then others by code points."""
        return sorted(names, key=_by_value)

    def ids(self, labels: Labels, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; of an example without label (None) those of the first name."""
        return [0 if label is None else labels.numbers[label]]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Logits [N, ..., L] -> probabilities of the same shape, float64."""
        logits = logits.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Predictions as numbers: probabilities [..., L] -> label ids [...]."""
        return np.asarray(probabilities).argmax(axis=-1)

    def for_metrics(
        self, labels: Labels, label_ids: Sequence, probabilities: Sequence
    ) -> tuple[Sequence, Sequence]:
        """Gold labels and predictions, as tasks/results.py takes them.

        Args:
          labels: of the task.
          label_ids: of each example, as `ids` gives them.
          probabilities: of each example.
        """
        gold = np.asarray(label_ids)
        return gold.reshape(len(gold)), self.decide(np.asarray(probabilities))

    def columns(self, labels: Labels) -> Sequence[str]:
        """Names of the probabilities in a table."""
        return labels.names

    def spell(self, labels: Labels, prediction) -> str:
        """One decided prediction as it is written to files."""
        return labels.names[int(prediction)]

    def spell_label(self, labels: Labels, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        return "" if label is None else str(label)


def _by_value(name: str) -> tuple[int, int, str]:
    is_number = re.fullmatch(r"[0-9]{1,18}", name) is not None
    return (0, int(name), name) if is_number else (1, 0, name)
