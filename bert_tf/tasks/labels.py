"""What the labels of a task are: read from cells, found in training data, as numbers, decided.

A head is what a model has for such labels:

    classification   one of several names            scores [B, L] -> soft-max
    regression       a number                        score  [B, 1]
    multi_label      any of several names            scores [B, L] -> sigmoid each
    multiple_choice  the number of an answer         score of each answer [B, C] -> soft-max
    token_labels     a tag for each word             scores [B, S, L] -> soft-max each

L labels, C choices.
"""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.config import HEADS

IGNORED = -1  # the label id of a position that has no label
OUTSIDE = "O"  # the tag of a word that is in no entity
# The other schemes say at the end of an entity what B and I say at the next word's beginning.
TAG_PREFIXES = {"B": "B", "I": "I", "S": "B", "U": "B", "E": "I", "L": "I"}

Label = str | float | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Attributes:
      head: a name in config.HEADS.
      names: in the order of the label ids; empty until they are found in the training data.
      synonyms: other spellings of the names.
      separator: between the labels of a cell of multi_label.
      limits: the least and the greatest score of regression.
    """

    head: str = "classification"
    names: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    separator: str = ","
    limits: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self):
        if self.head not in HEADS:
            raise ValueError(f"received the head {self.head!r}, expected one of {[*HEADS]}")
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise ValueError(f"received the label names {self.names}, expected each once")

    @property
    def size(self) -> int:
        """How many scores the head gives for a sequence, or for a token."""
        return 1 if self.head in ("regression", "multiple_choice") else len(self.names)

    @property
    def are_found(self) -> bool:
        """Whether all that is to be known before training is known."""
        return self.head == "regression" or bool(self.names)

    # ------------------------------------------------------------------------ reading

    def parse(self, value) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected there.
        """
        if self.head == "multi_label":
            return self._parse_set(value)
        text = _text_of(value)
        if not text:
            raise ValueError(f"a label: {self.describe()}")
        if self.head == "regression":
            return self._parse_score(text)
        return self._known(self.synonyms.get(text, text))

    def parse_tags(self, values: Sequence) -> tuple[str, ...]:
        """The tags of a sentence, with B- at the first word of each entity and I- at the others.

        The published files differ: in some, B- marks only an entity that follows another of its
        type at once. Both mean the same entities, which is what counts here.
        """
        tags, before = [], OUTSIDE
        for value in values:
            match = re.fullmatch(r"([BISUEL])-(.+)", _text_of(value))
            if match:
                prefix, kind = TAG_PREFIXES[match[1]], match[2]
                inside = prefix == "I" and before[2:] == kind
                tag = self._known(f"{'I' if inside else 'B'}-{kind}")
            elif value == OUTSIDE:
                tag = OUTSIDE
            else:
                raise ValueError("O, or B- or I- and the type of an entity")
            tags.append(tag)
            before = tag
        return tuple(tags)

    def _parse_score(self, text: str) -> float:
        low, high = self.limits
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not (math.isfinite(score) and low <= score <= high):
            raise ValueError(self.describe())
        return score

    def _parse_set(self, value) -> tuple[str, ...]:
        if value is None:
            raise ValueError("labels; an empty cell or list where none applies")
        parts = value if isinstance(value, Sequence) else [value]
        if isinstance(value, str):
            parts = value.split(self.separator)
        texts = [text for text in map(_text_of, parts) if text]
        return tuple(dict.fromkeys(self._known(self.synonyms.get(t, t)) for t in texts))

    def _known(self, name: str) -> str:
        if self.names and name not in self.names:
            raise ValueError(self.describe())
        return name

    def describe(self) -> str:
        """What a label can be, for messages."""
        if self.head == "regression":
            low, high = self.limits
            return "a finite number" + (f" from {low:g} to {high:g}" if high < math.inf else "")
        if not self.names:
            return "any text"
        shown = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        return f"one of the {len(self.names)} labels {shown}"

    # ------------------------------------------------------------------------ finding

    def found_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names that occur in training data, in an order of their own.

        Numbers go by value, then other names by code points. Of tags, O comes first, then B- and
        I- of every type.
        """
        if self.are_found:
            return self
        seen = self.names_in(labels)
        if self.head == "token_labels":
            kinds = sorted({tag[2:] for tag in seen if tag != OUTSIDE})
            names = [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]
        else:
            names = sorted(seen, key=_by_value)
        return dataclasses.replace(self, names=tuple(names))

    def absent_from(self, labels: Iterable[Label | None]) -> tuple[str, ...]:
        """Those of the names that none of the labels of some data is."""
        if self.head == "regression":
            return ()
        seen = self.names_in(label for label in labels if label is not None)
        return tuple(name for name in self.names if name not in seen)

    @staticmethod
    def names_in(labels: Iterable[Label]) -> set[str]:
        """Each name once, of labels that are one or several."""
        return {
            name for label in labels for name in ((label,) if isinstance(label, str) else label)
        }

    # ------------------------------------------------------------------------ numbers

    def ids(self, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; of an example without label (None) those of the first name.

        Returns:
          [1] of classification, multiple_choice and regression (a float there); [L] zeros and
          ones of multi_label; one for each word of token_labels.
        """
        if self.head == "regression":
            return [0.0 if label is None else float(label)]
        if self.head == "multi_label":
            return [int(label is not None and name in label) for name in self.names]
        numbers = self._numbers
        if self.head == "token_labels":
            return [numbers[tag] for tag in label]
        return [0 if label is None else numbers[label]]

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Predictions as numbers, of probabilities [..., L] ([N, 1] scores of regression).

        Returns:
          Label ids [...]; of regression the scores [N]; of multi_label 0 and 1 [N, L], with 1 for
          a probability of one half and more.
        """
        probabilities = np.asarray(probabilities)
        if self.head == "regression":
            return probabilities.reshape(len(probabilities))
        if self.head == "multi_label":
            return (probabilities >= 0.5).astype(np.int64)
        return probabilities.argmax(axis=-1)

    def spell(self, prediction) -> str:
        """One decided prediction as it is written to files."""
        if self.head == "regression":
            return f"{min(max(float(prediction), self.limits[0]), self.limits[1]):.3f}"
        if self.head == "multi_label":
            chosen = [name for name, yes in zip(self.names, prediction, strict=True) if yes]
            return self.separator.join(chosen)
        return self.names[int(prediction)]

    def spell_label(self, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        if label is None:
            return ""
        if self.head == "regression":
            return f"{label:g}"
        return self.separator.join(label) if self.head == "multi_label" else str(label)


def _text_of(value) -> str:
    """A cell, or a value of JSON, as text."""
    if value is None:
        return ""
    return (value if isinstance(value, str) else json.dumps(value)).strip()


def _by_value(name: str) -> tuple[int, int, str]:
    is_number = re.fullmatch(r"[0-9]{1,18}", name) is not None
    return (0, int(name), name) if is_number else (1, 0, name)
