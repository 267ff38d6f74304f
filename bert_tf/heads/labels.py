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

L labels, C choices. Nothing here loads TensorFlow before a head is asked: --help lists the tasks.
"""

import dataclasses
import decimal
import functools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.files import LONE_SURROGATE
from bert_tf.heads import NAMES, head_named

if TYPE_CHECKING:
    from bert_tf.heads import LabelHead

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MISSING = re.compile(r"nan|<na>", re.IGNORECASE)  # what pandas and NumPy write for no value
INVISIBLE = dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))  # without width, of no script
SEPARATORS = (",", ";", "|", "\t")  # usual ones
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}  # what vectors of labels are made of
SCALED = "regression"  # the head whose labels may have a scale
MOST_USUAL, LEAST_DEVIATION = 10.0, 0.01  # of scores that are learned as they are
IGNORED, UNKNOWN = -1, -2  # label ids: of no label, and of a tag that the model does not have

Label = str | float | tuple[str, ...]


class TagError(ValueError):
    """A tag that is invalid; `number` is its place in the sentence."""

    def __init__(self, expected: str, number: int):
        super().__init__(expected)
        self.number = number


class _HeadByName:
    """The field `head` of `Labels`: of a name the head, loaded with TensorFlow at its first use.

    Asked of the class it is the default of the dataclass's field.
    """

    def __get__(self, labels: "Labels | None", _: type) -> Any:
        if labels is None:
            return "classification"
        head = labels.__dict__["head"]
        if isinstance(head, str):
            head = labels.__dict__["head"] = head_named(head)
        return head

    def __set__(self, labels: "Labels", head: Any) -> None:
        if isinstance(head, str) and head not in NAMES:
            head_named(head)  # raises
        labels.__dict__["head"] = head


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Attributes:
      head: says what a label is; its name in `heads.NAMES` will do.
      names: in the order of the label ids; empty until the training data name them.
      synonyms: other spellings of the names.
      separator: between the labels of a cell of multi_label.
      limits: the least and the greatest score of regression.
      scale: mean and deviation of the training data's scores, if the model gives
        (score - mean) / deviation.
    """

    head: "LabelHead | str" = _HeadByName()
    names: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    separator: str = ","
    limits: tuple[float, float] = (-math.inf, math.inf)
    scale: tuple[float, float] | None = None

    def __post_init__(self):
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise ValueError(f"received the label names {self.names}, expected each once")

    # ------------------------------------------------------------------------ as the head says

    size = property(lambda self: self.head.size(self), doc="As of `LabelHead`.")
    are_fixed = property(lambda self: self.head.are_fixed(self), doc="As of `LabelHead`.")

    def parse(self, value: Any) -> Label:
        """As of `LabelHead`."""
        return self.head.parse(self, value)

    def ids(self, label: Label | None) -> list[int] | list[float]:
        """As of `LabelHead`."""
        return self.head.ids(self, label)

    def spell(self, prediction: Any) -> str:
        """As of `LabelHead`."""
        return self.head.spell(self, prediction)

    def spell_label(self, label: Label | None) -> str:
        """As of `LabelHead`."""
        return self.head.spell_label(self, label)

    # ------------------------------------------------------------------------ names

    def is_missing(self, value) -> bool:
        """Whether a cell or a value of JSON stands for no label.

        So does -1, as in published test data, if the names are known and it is none of them.
        """
        if value is None or value != value:  # NaN
            return True
        text = text_of(value)
        if not text:
            return text == "" and not self.head.may_be_empty
        stands_for_none = MISSING.fullmatch(text) or (self.names and text == str(IGNORED))
        return text not in self.names and bool(stands_for_none)

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Label ids by name."""
        return {name: number for number, name in enumerate(self.names)}

    def with_names_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names in the training data, whatever the order of its examples.

        Numbers go by value, then other names by code points. Of tags, O comes first, then B- and
        I- of every type.
        """
        if self.are_fixed:
            return self._with_scale_of([*labels]) if self.head.name == SCALED else self
        return dataclasses.replace(self, names=tuple(self.head.in_order(self.names_in(labels))))

    def _with_scale_of(self, scores: Sequence) -> "Labels":
        """These labels, with a scale if the scores are too large or too close for a new head.

        Tasks with limits have none, nor have scores from -10 to 10 with a usual deviation.
        """
        if math.isfinite(self.limits[0]):
            return self
        mean = math.fsum(scores) / len(scores)
        deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
        is_usual = max(map(abs, scores)) <= MOST_USUAL and deviation >= LEAST_DEVIATION
        scale = None if is_usual or not deviation else (mean, deviation)
        return dataclasses.replace(self, scale=scale)

    def unscaled(self, values: Any) -> Any:
        """The scores that outputs of a model stand for; the values themselves without a scale."""
        return np.asarray(values) * self.scale[1] + self.scale[0] if self.scale else values

    def absent_from(self, labels: Iterable[Label | None]) -> tuple[str, ...]:
        """The names that do not occur in some data."""
        if not self.names:
            return ()
        seen = self.names_in(label for label in labels if label is not None)
        return tuple(name for name in self.names if name not in seen)

    @staticmethod
    def names_in(labels: Iterable[Label]) -> set[str]:
        """The names in labels that are one name or several."""
        several = ((label,) if isinstance(label, str) else label for label in labels)
        return {name for names in several for name in names}

    def look_alikes(self) -> list[list[str]]:
        """Groups of names that differ only in case, white space or the spelling of a number."""
        groups: dict[str | decimal.Decimal, list[str]] = {}
        exact = decimal.Context(traps=[])  # an exponent of a hundred digits gives NaN, no error
        for name in self.names:
            visible = unicodedata.normalize("NFKC", name.translate(INVISIBLE))
            folded = " ".join(visible.casefold().split())
            key = decimal.Decimal(name, exact) if DECIMAL.fullmatch(name) else folded
            groups.setdefault(key, []).append(name)
        return [names for names in groups.values() if len(names) > 1]


def text_of(value) -> str | None:
    """A text or finite number as text; None of anything else, and of what is not Unicode."""
    if isinstance(value, str):
        return None if LONE_SURROGATE.search(value) else value.strip()
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None
