"""One of several labels, from a cell to a metric; other kinds of labels derive from these classes.

Labels          parses cells, numbers the names, decides and spells
LabelHead       a head with a logit for each label, of texts or words
Classification  loss and answers for texts
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
from bert_tf.heads.head import Head, HeadSizes, cross_entropy, is_likeliest, times_class_weights
from bert_tf.heads.labels import IGNORED, MISSING, Label, text_of


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels of which each example has one; the base of the other kinds.

    Attributes:
      names: the names in the order of the label ids; empty until the training data are read.
      synonyms: the name by each other spelling.
      positive: the one of two names whose F1 is reported; "": the last by code points.
      head: the name of the head that learns them, in `heads.NAMES`.
      kind: the name in --label_kind; "": a user's files cannot have them.
      may_be_empty: whether an empty cell is a label.
      is_per_word: whether every word has a label.
      takes_windows: whether long texts may be read in windows, whose logits are averaged.
      takes_weights: whether labels may have different weights in the loss.
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
        if len(set(self.names)) < len(self.names) or "" in self.names:
            received = f"the labels {', '.join(map(repr, self.names))}"
            raise InputError(received, "different names", "correct the labels")

    @property
    def size(self) -> int:
        """The number of logits of a sequence, or of a token."""
        return len(self.names)

    @property
    def are_fixed(self) -> bool:
        """Whether the label names are known before training data are read."""
        return bool(self.names)

    # ------------------------------------------------------------------------ from cells

    def of_column(self, cells: Iterable[Any]) -> Self:
        """These labels, adapted to the cells of a whole column."""
        del cells
        return self

    def parse(self, value: Any) -> Label:
        """The label in a cell.

        Raises:
          ValueError: the cell has none; the message says what is expected in it.
        """
        text = text_of(value)
        if text is None or self.is_missing(text):
            raise ValueError(f"a label: {self.describe()}")
        return self.name_of(text)

    def is_missing(self, value: Any) -> bool:
        """Whether a cell or a JSON value means that there is no label.

        -1 does, as in published test data, if the names are known and it is none of them.
        """
        if value is None or value != value:  # NaN
            return True
        text = text_of(value)
        if not text:
            return text == "" and not self.may_be_empty
        if text in self.names:
            return False
        is_ignored = bool(self.names) and text == str(IGNORED)
        return is_ignored or MISSING.fullmatch(text) is not None

    def name_of(self, text: str) -> str:
        """The label name of a name or synonym; raises `ValueError` if there is none."""
        name = self.synonyms.get(text, text)
        if self.names and name not in self.names:
            by_folded = {name.casefold(): name for name in self.names}
            alike = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7)
            hint = f" (did you mean {by_folded[alike[0]]!r}?)" if alike else ""
            raise ValueError(self.describe() + hint)
        return name

    def describe(self) -> str:
        """A description of valid labels, for messages."""
        if not self.names:
            return "any text"
        shown = ", ".join(self.names[:20])
        if len(self.names) > 20:
            shown += ", ..."
        return f"one of the {len(self.names)} labels {shown}"

    # ------------------------------------------------------------------------ names

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Label ids by name."""
        return {name: number for number, name in enumerate(self.names)}

    def with_names_in(self, labels: Iterable[Label]) -> "Labels":
        """These labels with the names of the training data, in an order that these do not decide.

        Args:
          labels: the labels of all training examples.
        """
        if self.are_fixed:
            return self
        return dataclasses.replace(self, names=tuple(self.in_order(self.names_in(labels))))

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Sorts names: numbers by value, then others by code points."""
        values = {name: int(name) for name in names if re.fullmatch("[0-9]{1,18}", name)}
        return sorted(names, key=lambda name: (name not in values, values.get(name, 0), name))

    @staticmethod
    def names_in(labels: Iterable[Label]) -> set[str]:
        """The names in labels, each of which is a name or several names."""
        names = set()
        for label in labels:
            names.update([label] if isinstance(label, str) else label)
        return names

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """Class weights with which all names count alike in N items: N / (L * items of the name).

        The weight of a name without items is 1.
        """
        counts = Counter(labels)
        share = counts.total() / self.size
        return tuple(share / counts[name] if counts[name] else 1.0 for name in self.names)

    # ------------------------------------------------------------------------ numbers

    def ids(self, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; without a label (None) those of the first name."""
        return [0 if label is None else self.numbers[label]]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The soft-max of logits [N, ..., L], float64 of the same shape."""
        logits = logits.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The likeliest label ids: probabilities [..., L] -> [...]."""
        return np.asarray(probabilities).argmax(axis=-1)

    def unscaled(self, values: Any) -> Any:
        """Model outputs or label ids in the units of the data; only `Scores` changes them."""
        return values

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """These labels with the least probability at which each name applies; {}: the defaults.

        Raises:
          InputError: such labels have no thresholds.
        """
        if thresholds:
            received = f"thresholds for the labels of {self.head}"
            raise InputError(received, "labels of which a text has any number", "leave them out")
        return self

    # ------------------------------------------------------------------------ metrics

    @property
    def label_of_f1(self) -> str:
        """Of two names, the one whose F1 is reported."""
        return self.positive or max(self.names)

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Gold labels and predictions, as tasks/results.py takes them.

        They are ranks of the sorted names, whatever the order of the ids. Of two names
        `label_of_f1` has rank 1.

        Args:
          label_ids: the label ids of each example, as `ids` gives them; for words the tags of each
            sentence.
          probabilities: the probabilities of each example.
        """
        gold = np.asarray(label_ids)
        gold = gold.reshape(len(gold))
        predicted = self.decide(np.asarray(probabilities))
        ranks = np.argsort(np.argsort(self.names))
        if self.size == 2:
            ranks = np.array([int(name == self.label_of_f1) for name in self.names])
        return ranks[gold], ranks[predicted]

    # ------------------------------------------------------------------------ to files

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns of probabilities in a table."""
        return self.names

    def spell(self, prediction: Any) -> str:
        """A prediction of `decide` as it is written to files."""
        return self.names[int(prediction)]

    def spell_label(self, label: Label | None) -> str:
        """A gold label as it is written to files; "" if there is none."""
        return "" if label is None else str(label)


# ---------------------------------------------------------------------------- heads


class LabelHead(Head):
    """A head with a logit for each label.

    Attributes:
      least_names: the least number of label names in training data.
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
        """One label id."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)


def classified(config, vectors, num_classes: int):
    """Logits [..., L] of an encoder's vectors [..., D], after dropout.

    The rate is `classifier_dropout` of the configuration, or 0.1 as in the original.
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
        """1 or the weight of its class for each example: [B], or [B, K] of packed rows."""
        real = batch["is_real_example"]
        return {self.terms[0]: times_class_weights(real, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies of logits [B * K, L] and label_ids int32 [B, K]."""
        return {self.terms[0]: _by_sequence(cross_entropy, outputs, batch)}

    def correct(self, outputs, batch):
        """Correct classes."""
        return {self.terms[0]: _by_sequence(is_likeliest, outputs, batch)}

    def answers(self, outputs, labels):
        """label [B], probability [B], labels and probabilities [B, L]."""
        import tensorflow as tf

        probabilities = tf.nn.softmax(outputs["logits"])  # [B, L]
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))  # [B]
        probability = tf.reduce_max(probabilities, axis=-1)  # [B]
        return {"label": label, "probability": probability, **all_labels(probabilities, labels)}


def _by_sequence(function, outputs, batch):
    """`function(logits, labels)` of each sequence: [B], or [B, K] of packed rows."""
    import tensorflow as tf

    values = function(outputs["logits"], tf.reshape(batch["label_ids"], [-1]))  # [B * K]
    return tf.reshape(values, tf.shape(batch["is_real_example"]))


def all_labels(probabilities, labels):
    """labels and probabilities [B, L]; each row has all names, so that it can be read alone."""
    import tensorflow as tf

    names = tf.broadcast_to(tf.constant(labels)[tf.newaxis], tf.shape(probabilities))
    return {"labels": names, "probabilities": probabilities}
