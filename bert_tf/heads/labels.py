"""Labels of a task: parsed from cells, named by the training data, as numbers, decided, spelled.

    cell "yes"  --parse-->  label "yes"  --ids-->  record [1]  --model-->  scores [L]
                                                                             | decide
                            prediction "yes"  <--spell--  1  <---------------+

The head of a task says what a label is:

    classification   one of several names            scores [B, L] -> soft-max
    regression       a number                        score  [B, 1]
    multi_label      any of several names            scores [B, L] -> sigmoid each
    multiple_choice  the number of an answer         score of each answer [B, C] -> soft-max
    token_labels     a tag for each word             scores [B, S, L] -> soft-max each

L labels, C choices.
"""

import dataclasses
import decimal
import functools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.files import LONE_SURROGATE
from bert_tf.heads import head_named
from bert_tf.heads.head import Head

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MISSING = re.compile(r"nan|<na>", re.IGNORECASE)  # what pandas and NumPy write for no value
SEPARATORS = (",", ";", "|", "\t")  # usual ones
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}

Label = str | float | tuple[str, ...]


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

    def size(self, labels: "Labels") -> int:
        """How many scores the head gives for a sequence, or for a token."""
        return len(labels.names)

    def are_fixed(self, labels: "Labels") -> bool:
        """Whether the label names are known."""
        return bool(labels.names)

    def label_features(
        self, max_seq_length: int, num_labels: int, num_choices: int
    ) -> tuple[Feature, ...]:
        """One number of a label."""
        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)

    def parse(self, labels: "Labels", value) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected in the cell.
        """
        text = text_of(value)
        if text is None or labels.is_missing(text):
            raise ValueError(f"a label: {self.describe(labels)}")
        return labels.known(text)

    def describe(self, labels: "Labels") -> str:
        """What a label can be, for messages."""
        if not labels.names:
            return "any text"
        shown = ", ".join(labels.names[:20]) + (", ..." if len(labels.names) > 20 else "")
        return f"one of the {len(labels.names)} labels {shown}"

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """The names of training data: numbers by value, then others by code points."""
        return sorted(names, key=_by_value)

    def ids(self, labels: "Labels", label: Label | None) -> list[int] | list[float]:
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
        self, labels: "Labels", label_ids: Sequence, probabilities: Sequence
    ) -> tuple[Sequence, Sequence]:
        """Gold labels and predictions, as tasks/metrics.py takes them.

        Args:
          labels: of the task.
          label_ids: of each example, as `ids` gives them.
          probabilities: of each example.
        """
        gold = np.asarray(label_ids)
        return gold.reshape(len(gold)), self.decide(np.asarray(probabilities))

    def columns(self, labels: "Labels") -> Sequence[str]:
        """Names of the probabilities in a table."""
        return labels.names

    def spell(self, labels: "Labels", prediction) -> str:
        """One decided prediction as it is written to files."""
        return labels.names[int(prediction)]

    def spell_label(self, labels: "Labels", label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        return "" if label is None else str(label)


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Attributes:
      head: says what a label is; its name in `heads.NAMES` will do.
      names: in the order of the label ids; empty until the training data name them.
      synonyms: other spellings of the names.
      separator: between the labels of a cell of multi_label.
      limits: the least and the greatest score of regression.
    """

    head: LabelHead | str = "classification"
    names: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    separator: str = ","
    limits: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self):
        if isinstance(self.head, str):
            object.__setattr__(self, "head", head_named(self.head))
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise ValueError(f"received the label names {self.names}, expected each once")

    # What the head says of these labels; see `LabelHead`.

    @property
    def size(self) -> int:
        """How many scores the head gives for a sequence, or for a token."""
        return self.head.size(self)

    @property
    def are_fixed(self) -> bool:
        """Whether the label names are known; regression has none."""
        return self.head.are_fixed(self)

    def parse(self, value) -> Label:
        """The label in a cell; raises `ValueError` with what is expected there."""
        return self.head.parse(self, value)

    def describe(self) -> str:
        """What a label can be, for messages."""
        return self.head.describe(self)

    def ids(self, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; of an example without label (None) those of the first name."""
        return self.head.ids(self, label)

    def spell(self, prediction) -> str:
        """One decided prediction as it is written to files."""
        return self.head.spell(self, prediction)

    def spell_label(self, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        return self.head.spell_label(self, label)

    # ------------------------------------------------------------------------ names

    def is_missing(self, value) -> bool:
        """Whether a cell or a value of JSON stands for no label."""
        if not isinstance(value, str):
            return value is None or value != value  # NaN
        text = value.strip()
        is_empty = not text and not self.head.may_be_empty
        return is_empty or (text not in self.names and bool(MISSING.fullmatch(text)))

    def known(self, name: str) -> str:
        """A name or synonym as the name; raises `ValueError` if it is none."""
        name = self.synonyms.get(name, name)
        if self.names and name not in self.names:
            raise ValueError(self.describe())
        return name

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Label ids by name."""
        return {name: number for number, name in enumerate(self.names)}

    def with_names_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names in the training data, in an order that does not depend on it.

        Numbers go by value, then other names by code points. Of tags, O comes first, then B- and
        I- of every type.
        """
        if self.are_fixed:
            return self
        return dataclasses.replace(self, names=tuple(self.head.in_order(self.names_in(labels))))

    def absent_from(self, labels: Iterable[Label | None]) -> tuple[str, ...]:
        """The names that do not occur in some data."""
        if not self.names:
            return ()
        seen = self.names_in(label for label in labels if label is not None)
        return tuple(name for name in self.names if name not in seen)

    @staticmethod
    def names_in(labels: Iterable[Label]) -> set[str]:
        """The names in labels that are one name or several."""
        return {
            name for label in labels for name in ((label,) if isinstance(label, str) else label)
        }

    def separated(self) -> dict[str, list[str]]:
        """The names that hold a usual separator, and so may be several names, by separator."""
        found = {one: [name for name in self.names if one in name] for one in SEPARATORS}
        return {separator: names for separator, names in found.items() if names}

    def look_alikes(self) -> list[list[str]]:
        """Groups of names that differ only in case, white space or the spelling of a number."""
        groups: dict[str | decimal.Decimal, list[str]] = {}
        exact = decimal.Context(traps=[])  # an exponent of a hundred digits gives NaN, no error
        for name in self.names:
            if DECIMAL.fullmatch(name):
                key = decimal.Decimal(name, exact)
            else:
                key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
            groups.setdefault(key, []).append(name)
        return [names for names in groups.values() if len(names) > 1]

    @property
    def are_binary(self) -> bool:
        """Whether the names are 0 and 1, or other words for no and yes."""
        return {name.lower() for name in self.names} <= BINARY


def text_of(value) -> str | None:
    """A text or finite number as text; None of anything else, and of what is not Unicode."""
    if isinstance(value, str):
        return None if LONE_SURROGATE.search(value) else value.strip()
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None


def _by_value(name: str) -> tuple[int, int, str]:
    is_number = re.fullmatch(r"[0-9]{1,18}", name) is not None
    return (0, int(name), name) if is_number else (1, 0, name)
