"""One of several labels, from a cell to a metric; the other kinds of labels build on this page.

Labels          parses cells, numbers the names, decides and spells
LabelHead       a logit for each label, of texts or words
Classification  the loss and the answers of texts
"""

import dataclasses
import difflib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from bert_tf.errors import InputError
from bert_tf.heads.head import Head, HeadSizes, cross_entropy, is_likeliest, of_classes
from bert_tf.heads.labels import IGNORED, MISSING, Label, text_of


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels of which each example has one; the base of the other kinds.

    Attributes:
      names: in the order of the label ids; empty until the training data name them.
      synonyms: other spellings of the names.
      positive: of two names, that of which f1 is; "": the last by code points.
      head: the name of the head that learns them, in `heads.NAMES`.
      kind: the name of --label_kind; "": they are not for one's own files.
      may_be_empty: whether an empty cell is a label.
      is_per_word: whether every word has a label.
      takes_windows: whether a long text may be read in windows, whose logits are averaged.
      takes_weights: whether the labels may count differently in the loss.
      scale: see `Scores`.
    """

    names: tuple[str, ...] = ()
    synonyms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    positive: str = ""
    head: ClassVar[str] = "classification"
    kind: ClassVar[str] = "classes"
    may_be_empty: ClassVar[bool] = False
    is_per_word: ClassVar[bool] = False
    takes_windows: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
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

    def of_column(self, cells: Iterable[Any]) -> Self:
        """These labels, as the cells of a whole column show how each is to be read."""
        del cells
        return self

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

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """The weights with which all names count alike: N / (L * items of the name), else 1."""
        counts = Counter(labels)
        share = counts.total() / self.size
        return tuple(share / counts[name] if counts[name] else 1.0 for name in self.names)

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

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """These labels, which apply from such probabilities on, by name; {}: as usual.

        Raises:
          InputError: they have no thresholds.
        """
        if thresholds:
            received = f"thresholds for the labels of {self.head}"
            raise InputError(received, "labels of which a text has any number", "leave them out")
        return self

    # ------------------------------------------------------------------------ metrics

    @property
    def label_of_f1(self) -> str:
        """Of two names, that of which f1 is."""
        return self.positive or max(self.names)

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Gold labels and predictions, as tasks/results.py takes them.

        Of one name by the order of the names: "1" is the second label for F1, also of names 1, 0.
        Of two names the one that `label_of_f1` gives is the second.

        Args:
          label_ids: of each example, as `ids` gives them; of a sentence in words its tags.
          probabilities: of each example.
        """
        gold = np.asarray(label_ids)
        ranks = np.argsort(np.argsort(self.names))
        if self.size == 2:
            ranks = np.array([int(name == self.label_of_f1) for name in self.names])
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


# ---------------------------------------------------------------------------- heads


class LabelHead(Head):
    """A head with a logit for each label.

    Attributes:
      least_names: how many names training data must have.
      vectors: the output of the encoder that is classified.
    """

    has_names = True
    sizes = ("num_classes",)
    added_sizes = HeadSizes()
    least_names: int = 2
    vectors: str = "pooled_output"

    def model(self, config, *, num_classes=2, num_choices=1, num_sequences=1):
        """The encoder with a classifier of its `vectors`: logits [B * K, L] or [B, S, L]."""
        from bert_tf.modeling.models import BertModel, encode, token_inputs

        inputs = token_inputs()
        outputs, _ = encode(config, inputs, num_sequences=num_sequences)
        outputs["logits"] = classified(config, outputs[self.vectors], num_classes)
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One number of a label."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)


def classified(config, vectors, num_classes: int):
    """Logits [..., L] of a model's vectors [..., D], with a dropout of 0.1 as in the original.

    `classifier_dropout` of the configuration gives another one.
    """
    from bert_tf.modeling.heads import SequenceClassifier, TokenClassifier
    from bert_tf.modeling.memory import Dropout

    rate = 0.1 if config.classifier_dropout is None else config.classifier_dropout
    dropped = Dropout(rate, name="dropout")(vectors)
    layer = SequenceClassifier if len(vectors.shape) == 2 else TokenClassifier
    return layer(num_classes, name="classifier")(dropped)


class Classification(LabelHead):
    """One of several labels (original: `create_model`)."""

    name = "classification"
    problem_type = "single_label_classification"
    labels = Labels
    metrics = ("accuracy", "macro_f1", "matthews")
    further_metrics = ("micro_f1", "f1")
    terms = ("classifier",)
    title = "Gives each text one of several labels."
    answer_meanings = MappingProxyType(
        {
            "label": "string [B], the likeliest label",
            "probability": "float [B], its probability",
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
        }
    )

    def item_weights(self, batch):
        """1 for an example, or the weight of its class: [B], or [B, K] of packed rows."""
        real = batch["is_real_example"]
        return {self.terms[0]: of_classes(real, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies of logits [B * K, L] and label_ids int32 [B, K]."""
        return {self.terms[0]: _by_sequence(cross_entropy, outputs, batch)}

    def correct(self, outputs, batch):
        """Correct classes."""
        return {self.terms[0]: _by_sequence(is_likeliest, outputs, batch)}

    def answers(self, outputs, labels):
        """label, probability [B], labels and probabilities [B, L]."""
        import tensorflow as tf

        probabilities = tf.nn.softmax(outputs["logits"])  # [B, L]
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        probability = tf.reduce_max(probabilities, axis=-1)
        return {"label": label, "probability": probability, **all_labels(probabilities, labels)}


def _by_sequence(function, outputs, batch):
    """`function(logits, labels)` of each sequence: [B], or [B, K] of packed rows."""
    import tensorflow as tf

    values = function(outputs["logits"], tf.reshape(batch["label_ids"], [-1]))  # [B * K]
    return tf.reshape(values, tf.shape(batch["is_real_example"]))


def all_labels(probabilities, labels):
    """The names in every row, so that a row of an answer can be read by itself."""
    import tensorflow as tf

    names = tf.broadcast_to(tf.constant(labels)[tf.newaxis], tf.shape(probabilities))
    return {"labels": names, "probabilities": probabilities}
