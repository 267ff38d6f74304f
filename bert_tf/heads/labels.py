"""Labels of a task: parsed from cells, named by the training data, as numbers, decided, spelled.

    cell "yes"  --parse-->  label "yes"  --ids-->  record [1]  --model-->  logits [L]
                                                                             | probabilities, decide
                            prediction "yes"  <--spell--  1  <---------------+

A class for each kind of label, which knows the head that learns it by its name:

    Labels     classification   one of several names      logits [B, L] -> soft-max
    Scores     regression       a number                  score  [B, 1]
    LabelSets  multi_label      any of several names      logits [B, L] -> sigmoid each
    Choices    multiple_choice  the number of an answer   logit of each answer [B, C] -> soft-max
    Tags       token_labels     a tag for each word       logits [B, S, L] -> soft-max each

L labels, C choices. Nothing here loads TensorFlow: --help lists the tasks.
"""

import dataclasses
import decimal
import difflib
import functools
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_tf.errors import InputError
from bert_tf.files import LONE_SURROGATE
from bert_tf.heads.schemes import OUTSIDE, TAG, have_prefixes, normal_tags, tags_in

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# What no font shows: Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt).
INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
# What pandas and spreadsheets take for a missing value (pandas.read_csv, na_values).
MISSING_ELSEWHERE = {"#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "None", "n/a", "null"}
MISSING = re.compile(r"nan|<na>", re.IGNORECASE)  # what pandas and NumPy write for no value
# Also a list, dict, tuple or vector of 0 and 1 as a program prints it.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)
BINARY = {"0", "1", "0.0", "1.0", "false", "true"}  # what vectors of labels are made of
GREATEST = float(np.finfo(np.float32).max)  # score
MOST_USUAL, LEAST_DEVIATION = 10.0, 0.01  # of scores that are learned as they are
IGNORED, UNKNOWN = -1, -2  # label ids: of no label, and of a tag that the model does not have

Label = str | float | tuple[str, ...]


class TagError(ValueError):
    """A tag that is invalid; `number` is its place in the sentence."""

    def __init__(self, expected: str, number: int):
        super().__init__(expected)
        self.number = number


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels of which each example has one; the base of the other kinds.

    Attributes:
      names: in the order of the label ids; empty until the training data name them.
      synonyms: other spellings of the names.
      head: the name of the head that learns them, in `heads.NAMES`.
      may_be_empty: whether an empty cell is a label.
      is_per_word: whether every word has a label.
      takes_windows: whether a long text may be read in windows, whose logits are averaged.
      scale: see `Scores`.
    """

    names: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    head: ClassVar[str] = "classification"
    may_be_empty: ClassVar[bool] = False
    is_per_word: ClassVar[bool] = False
    takes_windows: ClassVar[bool] = True
    scale: ClassVar[tuple[float, float] | None] = None

    def __post_init__(self):
        if len({*self.names}) < len(self.names) or "" in self.names:
            received = f"the labels {', '.join(map(repr, self.names))}"
            raise InputError(received, "different names", "correct the labels")

    @property
    def size(self) -> int:
        """How many logits the head gives for a sequence, or for a token."""
        return len(self.names)

    @property
    def are_fixed(self) -> bool:
        """Whether the label names are known."""
        return bool(self.names)

    # ------------------------------------------------------------------------ from cells

    def parse(self, value: Any) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected in the cell.
        """
        text = text_of(value)
        if text is None or self.is_missing(text):
            raise ValueError(f"a label: {self.describe()}")
        return self.name_of(text)

    def is_missing(self, value: Any) -> bool:
        """Whether a cell or a value of JSON stands for no label.

        So does -1, as in published test data, if the names are known and it is none of them.
        """
        if value is None or value != value:  # NaN
            return True
        text = text_of(value)
        if not text:
            return text == "" and not self.may_be_empty
        stands_for_none = MISSING.fullmatch(text) or (self.names and text == str(IGNORED))
        return text not in self.names and bool(stands_for_none)

    def name_of(self, text: str) -> str:
        """The name that a name or synonym stands for; raises `ValueError` if there is none."""
        name = self.synonyms.get(text, text)
        if self.names and name not in self.names:
            folded = {name.casefold(): name for name in self.names}
            alike = difflib.get_close_matches(name.casefold(), folded, 1, 0.7)
            hint = f" (did you mean {folded[alike[0]]!r}?)" if alike else ""
            raise ValueError(self.describe() + hint)
        return name

    def describe(self) -> str:
        """What a label can be, for messages."""
        if not self.names:
            return "any text"
        shown = ", ".join([*self.names[:20], *["..."] * (len(self.names) > 20)])
        return f"one of the {len(self.names)} labels {shown}"

    # ------------------------------------------------------------------------ names

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Label ids by name."""
        return {name: number for number, name in enumerate(self.names)}

    def with_names_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names in the training data, whatever the order of its examples."""
        if self.are_fixed:
            return self
        return dataclasses.replace(self, names=tuple(self.in_order(self.names_in(labels))))

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The names of training data: numbers by value, then others by code points."""
        values = {name: int(name) for name in names if re.fullmatch("[0-9]{1,18}", name)}
        return sorted(names, key=lambda name: (name not in values, values.get(name, 0), name))

    @staticmethod
    def names_in(labels: Iterable[Label]) -> set[str]:
        """The names in labels that are one name or several."""
        several = ((label,) if isinstance(label, str) else label for label in labels)
        return {name for names in several for name in names}

    def look_alikes(self) -> list[list[str]]:
        """Groups of names that differ only in case, white space or the spelling of a number.

        Or in characters that no font shows, or that Unicode takes for the same (NFKC).
        """
        groups: dict[str | decimal.Decimal, list[str]] = {}
        exact = decimal.Context(traps=[])  # an exponent of a hundred digits gives NaN, no error
        for name in self.names:
            visible = unicodedata.normalize("NFKC", INVISIBLE.sub("", name))
            folded = " ".join(visible.casefold().split())
            key = decimal.Decimal(name, exact) if DECIMAL.fullmatch(name) else folded
            groups.setdefault(key, []).append(name)
        return [names for names in groups.values() if len(names) > 1]

    # ------------------------------------------------------------------------ numbers

    def ids(self, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; of an example without label (None) those of the first name."""
        return [0 if label is None else self.numbers[label]]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Logits [N, ..., L] -> probabilities of the same shape, float64."""
        logits = logits.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Predictions as numbers: probabilities [..., L] -> label ids [...]."""
        return np.asarray(probabilities).argmax(axis=-1)

    def unscaled(self, values: Any) -> Any:
        """The scores that outputs of a model or label ids stand for; of names the values."""
        return values

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Gold labels and predictions, as tasks/results.py takes them.

        Of one name by the order of the names: "1" is the second label for F1, also of names 1, 0.

        Args:
          label_ids: of each example, as `ids` gives them; of a sentence in words its tags.
          probabilities: of each example.
        """
        gold, ranks = np.asarray(label_ids), np.argsort(np.argsort(self.names))
        return ranks[gold.reshape(len(gold))], ranks[self.decide(np.asarray(probabilities))]

    # ------------------------------------------------------------------------ to files

    @property
    def columns(self) -> Sequence[str]:
        """Names of the probabilities in a table."""
        return self.names

    def spell(self, prediction: Any) -> str:
        """One decided prediction as it is written to files."""
        return self.names[int(prediction)]

    def spell_label(self, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        return "" if label is None else str(label)


@dataclasses.dataclass(frozen=True)
class LabelSets(Labels):
    """Labels of which each example has any number."""

    head: ClassVar[str] = "multi_label"
    may_be_empty: ClassVar[bool] = True

    def parse(self, value: Any) -> tuple[str, ...]:
        """The labels in a cell, with a comma, ; or | between them, or in a list."""
        if self.is_missing(value):
            raise ValueError("labels; an empty cell or list where none applies")
        cells, whole = value if isinstance(value, list | tuple) else [value], []
        if isinstance(value, str):
            cells, whole = re.split(r"[,;|]", value), [value.strip()]
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

    def ids(self, label: Label | None) -> list[int]:
        """L zeros and ones."""
        return [int(label is not None and name in label) for name in self.names]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The sigmoid of each logit."""
        return 1 / (1 + np.exp(-logits.astype(np.float64)))

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """0 and 1 [N, L], with 1 for a probability of one half and more."""
        return (np.asarray(probabilities) >= 0.5).astype(np.int64)

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Zeros and ones, both [N, L]."""
        return np.asarray(label_ids), self.decide(probabilities)

    def spell(self, prediction: Any) -> str:
        """The names that are 1."""
        return ",".join(itertools.compress(self.names, prediction))

    def spell_label(self, label: Label | None) -> str:
        """The names."""
        return "" if label is None else ",".join(label)


@dataclasses.dataclass(frozen=True)
class Scores(Labels):
    """Labels that are numbers.

    Attributes:
      limits: the least and the greatest score.
      scale: mean and deviation of the training data's scores, if the model gives
        (score - mean) / deviation.
    """

    limits: tuple[float, float] = (-math.inf, math.inf)
    scale: tuple[float, float] | None = None
    head: ClassVar[str] = "regression"
    size: ClassVar[int] = 1
    are_fixed: ClassVar[bool] = True  # there are no names to find
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
        """The range."""
        low, high = self.limits
        bounds = f" from {low:g} to {high:g}" if high < math.inf else ""
        return f"a finite number{bounds}, such as 2.5 or 1e-3"

    def with_names_in(self, labels: Iterable[Label]) -> "Scores":
        """These labels, with a scale if the scores are too large or too close for a new head.

        Those with limits have none, nor have scores from -10 to 10 with a usual deviation.
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
        """The score, in the scale."""
        mean, deviation = self.scale or (0.0, 1.0)
        return [0.0 if label is None else (label - mean) / deviation]

    def unscaled(self, values: Any) -> Any:
        """The scores."""
        return np.asarray(values) * self.scale[1] + self.scale[0] if self.scale else values

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The scores as they are."""
        return logits.astype(np.float64)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The scores [N]."""
        scores = np.asarray(probabilities)
        return scores.reshape(len(scores))

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Scores, both [N]."""
        return self.unscaled(self.decide(label_ids)), self.decide(probabilities)

    def spell(self, prediction: Any) -> str:
        """The score; within limits, if there are any, and then with three decimals."""
        score = np.clip(float(prediction), *self.limits)
        return f"{score:.3f}" if np.isfinite(self.limits).all() else f"{score:.9g}"

    def spell_label(self, label: Label | None) -> str:
        """The score."""
        return "" if label is None else f"{label:.15g}"


@dataclasses.dataclass(frozen=True)
class Choices(Labels):
    """Labels that are numbers of sequences, of which one is right."""

    head: ClassVar[str] = "multiple_choice"
    takes_windows: ClassVar[bool] = False
    size: ClassVar[int] = 1  # the score of each sequence


@dataclasses.dataclass(frozen=True)
class Tags(Labels):
    """A label for each word."""

    head: ClassVar[str] = "token_labels"
    is_per_word: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = False

    def parse(self, value: Any) -> tuple[str, ...]:
        """The tags of a sentence, spelled as the names; without names as B- and I-.

        Published files mark entities in different ways: some have B- only for an entity that
        directly follows another of its type, others mark the last word. All mean the same
        entities, and only these are scored.

        Raises:
          TagError: with what is expected, and which tag is wrong.
        """
        if not value:
            return super().parse(None)
        tags = [tag.strip() if isinstance(tag, str) else "" for tag in value]
        names = self.names or self.in_order({*tags})
        has_prefixes, has_types = have_prefixes(names), any(len(name) > 1 for name in names)
        for number, tag in enumerate(normal := normal_tags(tags) if has_prefixes else tags):
            is_typed = TAG.fullmatch(tag) and (len(tag) > 1) == has_types
            if not tag or (has_prefixes and tag != OUTSIDE and not is_typed):
                kinds = "B- or I- and the type of an entity" if has_types else "B or I"
                raise TagError(f"O, or {kinds}" if has_prefixes else "a tag", number)
        return tags_in(names, normal) if has_prefixes else tuple(tags)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """O, then B- and I- of every type; or O, then the classes."""
        if not have_prefixes(names):
            return sorted(names, key=lambda name: (name != OUTSIDE, name))
        kinds = {match[2] for match in map(TAG.fullmatch, names) if match and match[2]}
        ends = [f"-{kind}" for kind in sorted(kinds)] or [""]
        return [OUTSIDE, *(f"{prefix}{end}" for end in ends for prefix in "BI")]

    def ids(self, label: Label | None) -> list[int]:
        """One for each word."""
        return [self.numbers.get(tag, UNKNOWN) for tag in label]

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """The gold tags of each sentence, and those that its probabilities [W, L] predict.

        A model of a scheme where I- begins an entity predicts the same entities.
        """
        decided = (map(self.spell, self.decide(one)) for one in probabilities)
        normal = normal_tags if have_prefixes(self.names) else list
        return tuple([normal(tags) for tags in side] for side in (label_ids, decided))


def text_of(value: Any) -> str | None:
    """A text or finite number as text; None of anything else, and of what is not Unicode."""
    if isinstance(value, str):
        return None if LONE_SURROGATE.search(value) else value.strip()
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None
