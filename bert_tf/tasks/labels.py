"""Labels of a task: parsed from cells, named by the training data, as numbers, decided, spelled.

    cell "yes"  --parse-->  label "yes"  --ids-->  record [1]  --model-->  scores [L]
                                                                             | decide
                            prediction "yes"  <--spell--  1  <---------------+

The head of a task says what a label is (names of `bert_tf.config.HEADS`):

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
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.config import HEADS
from bert_tf.files import LONE_SURROGATE

IGNORED = -1  # the label id of a position that has no label
OUTSIDE = "O"  # the tag of a word that is in no entity
# Some schemes mark the end of an entity (E, L) or an entity of one word (S, U); B and I suffice.
TAG_PREFIXES = {"B": "B", "I": "I", "S": "B", "U": "B", "E": "I", "L": "I"}
TAG = re.compile(r"([BISUEL])-(.+)")
GREATEST = float(np.finfo(np.float32).max)  # scores are float32 in records
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MISSING = re.compile(r"nan|<na>", re.IGNORECASE)  # what pandas and NumPy write for no value
# Also a list, dict, tuple or vector of 0 and 1 as a program prints it.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)
SEPARATORS = (",", ";", "|", "\t")  # usual ones
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}

Label = str | float | tuple[str, ...]


class TagError(ValueError):
    """A tag that is invalid; `number` is its place in the sentence."""

    def __init__(self, expected: str, number: int):
        super().__init__(expected)
        self.number = number


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Attributes:
      head: a name in config.HEADS.
      names: in the order of the label ids; empty until the training data name them.
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
    def are_fixed(self) -> bool:
        """Whether the label names are known; regression has none."""
        return self.head == "regression" or bool(self.names)

    # ------------------------------------------------------------------------ cell -> label

    def parse(self, value) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected in the cell.
        """
        if self.head == "multi_label":
            return self._parse_several(value)
        text = text_of(value)
        if text and self.head == "regression":
            return self._score(text)
        if text is None or self.is_missing(text):
            raise ValueError(f"a label: {self.describe()}")
        return self._known(text)

    def is_missing(self, value) -> bool:
        """Whether a cell or a value of JSON stands for no label."""
        if not isinstance(value, str):
            return value is None or value != value  # NaN
        text = value.strip()
        is_empty = not text and self.head != "multi_label"
        return is_empty or (text not in self.names and bool(MISSING.fullmatch(text)))

    def _parse_several(self, value) -> tuple[str, ...]:
        if self.is_missing(value):
            raise ValueError("labels; an empty cell or list where none applies")
        cells, whole = value if isinstance(value, list | tuple) else [value], []
        if isinstance(value, str):
            cells, whole = value.split(self.separator), [value.strip()]
        texts = [text_of(cell) for cell in cells]
        are_names = None not in texts
        if are_names and not {*self.names, *self.synonyms}.issuperset(texts):
            are_names = not any(map(NO_NAME.fullmatch, [*whole, *texts]))
        names = [self._known(text) for text in texts if text] if are_names else []
        if not are_names or len(set(names)) < len(names):
            raise ValueError(self.describe_several())
        return tuple(names)

    def parse_tags(self, values: Sequence) -> tuple[str, ...]:
        """The tags of a sentence, with B- at the first word of each entity and I- at the others.

        Published files differ: in some, B- marks only an entity that directly follows another of
        its type. Both mean the same entities, and only these are scored.

        Raises:
          TagError: with what is expected, and which tag is wrong.
        """
        tags = normal_tags(value.strip() if isinstance(value, str) else "" for value in values)
        for number, tag in enumerate(tags):
            if tag != OUTSIDE and not TAG.fullmatch(tag):
                raise TagError("O, or B- or I- and the type of an entity", number)
            if tag != OUTSIDE and self.names and tag not in self.names:
                raise TagError(self.describe(), number)
        return tuple(tags)

    def _score(self, text: str) -> float:
        score = float(text) if DECIMAL.fullmatch(text) else math.nan
        if not (abs(score) <= GREATEST and self.limits[0] <= score <= self.limits[1]):
            raise ValueError(self.describe())
        return score

    def _known(self, name: str) -> str:
        name = self.synonyms.get(name, name)
        if self.names and name not in self.names:
            raise ValueError(self.describe())
        return name

    def describe(self) -> str:
        """What a label can be, for messages."""
        if self.head == "regression":
            low, high = self.limits
            bounds = f" from {low:g} to {high:g}" if high < math.inf else ""
            return f"a finite number{bounds}, such as 2.5 or 1e-3"
        if not self.names:
            return "any text"
        shown = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        return f"one of the {len(self.names)} labels {shown}"

    def describe_several(self) -> str:
        """How several labels of an example are written, for messages."""
        return (
            f"the names that apply, each once: weather{self.separator}sport in a cell "
            f'(--label_separator={self.separator!r}), in jsonl also ["weather", "sport"]; not '
            "0 and 1 for each name, nor a list or dict as a program prints it"
        )

    # ------------------------------------------------------------------------ names

    def with_names_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names in the training data, in an order that does not depend on it.

        Numbers go by value, then other names by code points. Of tags, O comes first, then B- and
        I- of every type.
        """
        if self.are_fixed:
            return self
        seen = self.names_in(labels)
        if self.head == "token_labels":
            kinds = sorted({tag[2:] for tag in seen if tag != OUTSIDE})
            names = [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]
        else:
            names = sorted(seen, key=_by_value)
        return dataclasses.replace(self, names=tuple(names))

    def absent_from(self, labels: Iterable[Label | None]) -> tuple[str, ...]:
        """The names that do not occur in some data."""
        if self.head == "regression":
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
            return self.separator.join(itertools.compress(self.names, prediction))
        return self.names[int(prediction)]

    def spell_label(self, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        if label is None:
            return ""
        if self.head == "regression":
            return f"{label:g}"
        return self.separator.join(label) if self.head == "multi_label" else str(label)


def probabilities(head: str, logits: np.ndarray) -> np.ndarray:
    """Logits [N, ..., L] -> probabilities of the same shape, float64; scores as they are."""
    logits = logits.astype(np.float64)
    if head == "regression":
        return logits
    if head == "multi_label":
        return 1 / (1 + np.exp(-logits))
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def normal_tags(tags: Iterable[str]) -> list[str]:
    """A sentence's tags with B- at the first word of each entity and I- at the others.

    >>> normal_tags(["I-X", "I-X", "O", "U-X", "E-Y"])
    ['B-X', 'I-X', 'O', 'B-X', 'B-Y']
    """
    normal, before = [], OUTSIDE
    for tag in tags:
        if match := TAG.fullmatch(tag):
            prefix, kind = TAG_PREFIXES[match[1]], match[2]
            is_inside = prefix == "I" and before in (f"B-{kind}", f"I-{kind}")
            tag = f"{'I' if is_inside else 'B'}-{kind}"
        normal.append(tag)
        before = tag
    return normal


def text_of(value) -> str | None:
    """A text or finite number as text; None of anything else, and of what is not Unicode."""
    if isinstance(value, str):
        return None if LONE_SURROGATE.search(value) else value.strip()
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None


def _by_value(name: str) -> tuple[int, int, str]:
    is_number = re.fullmatch(r"[0-9]{1,18}", name) is not None
    return (0, int(name), name) if is_number else (1, 0, name)
