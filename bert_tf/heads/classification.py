"""Heads on the pooled vector: one of several labels, any number of them, or a score."""

import itertools
import math
import re
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from bert_tf.data.records import GREATEST_FLOAT, Feature
from bert_tf.heads.head import CLASSIFIER_DROPOUT, cross_entropy, is_likeliest
from bert_tf.heads.label_head import LabelHead
from bert_tf.heads.labels import MISSING, Labels, text_of
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.heads import SequenceClassifier
from bert_tf.modeling.models import BertModel, encode, token_inputs

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Also a list, dict, tuple or vector of 0 and 1 as a program prints it.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)


class Classification(LabelHead):
    """One of several labels (original: `create_model`)."""

    name = "classification"
    terms = ("classifier",)
    takes_windows = True
    title = "Gives each text one of several labels."
    answer_meanings = MappingProxyType(
        {
            "label": "string [B], the likeliest label",
            "probability": "float [B], its probability",
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
        }
    )

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with a classifier of its pooled vector: logits [B, L]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs)
        pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
        classifier = SequenceClassifier(config, num_classes=num_classes, name="classifier")
        outputs["logits"] = classifier(pooled)  # [B, L]
        return BertModel(inputs, outputs, name=self.name)

    def losses(self, outputs, batch):
        """Cross entropies [B] of logits [B, L] and label_ids int32 [B, 1]."""
        return {"classifier": cross_entropy(outputs["logits"], batch["label_ids"][:, 0])}

    def correct(self, outputs, batch):
        """Correct classes [B]."""
        return {"classifier": is_likeliest(outputs["logits"], batch["label_ids"][:, 0])}

    def for_metrics(self, labels, label_ids, probabilities):
        """By the order of the names: "1" is the second label for F1, also of names 1, 0."""
        gold, decided = super().for_metrics(labels, label_ids, probabilities)
        ranks = np.argsort(np.argsort(labels.names))
        return ranks[gold], ranks[decided]

    def answers(self, outputs, labels):
        """label, probability [B], labels and probabilities [B, L]."""
        probabilities = tf.nn.softmax(outputs["logits"])  # [B, L]
        return {
            "label": tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1)),
            "probability": tf.reduce_max(probabilities, axis=-1),
            **_all_labels(probabilities, labels),
        }


def _all_labels(probabilities, labels):
    """The names in every row, so that a row of an answer can be read by itself."""
    names = tf.broadcast_to(tf.constant(labels)[tf.newaxis], tf.shape(probabilities))
    return {"labels": names, "probabilities": probabilities}


class MultiLabel(Classification):
    """Any number of labels."""

    name = "multi_label"
    terms = ("multi_label",)
    least_names = 1
    may_be_empty = True
    title = "Gives each text any number of labels."
    answer_meanings = MappingProxyType(
        {
            "labels": "string [B, L], all labels, the same in each row",
            "probabilities": "float [B, L], the probability of each",
            "applies": "bool [B, L], whether it applies: its probability is one half or more",
        }
    )

    def label_features(self, max_seq_length, num_labels, num_choices):
        """L zeros and ones."""
        return (Feature("label_ids", tf.int64, num_labels, most=1),)

    def losses(self, outputs, batch):
        """Cross entropies averaged over classes [B], of logits and label_ids, both [B, L]."""
        each = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(batch["label_ids"], tf.float32),
            logits=tf.cast(outputs["logits"], tf.float32),
        )  # [B, L]
        return {"multi_label": tf.reduce_mean(each, axis=-1)}

    def correct(self, outputs, batch):
        """None: accuracy is counted by the metrics."""
        return {}

    def parse(self, labels: Labels, value) -> tuple[str, ...]:
        """The labels in a cell, with `labels.separator` between them, or in a list."""
        if labels.is_missing(value):
            raise ValueError("labels; an empty cell or list where none applies")
        cells, whole = value if isinstance(value, list | tuple) else [value], []
        if isinstance(value, str):
            cells, whole = value.split(labels.separator), [value.strip()]
        texts = [text_of(cell) for cell in cells]
        are_names = None not in texts
        if are_names and not {*labels.names, *labels.synonyms}.issuperset(texts):
            are_names = not any(map(NO_NAME.fullmatch, [*whole, *texts]))
        names = [labels.known(text) for text in texts if text] if are_names else []
        if not are_names or len(set(names)) < len(names):
            raise ValueError(self.describe_several(labels))
        return tuple(names)

    def describe_several(self, labels: Labels) -> str:
        """How several labels of an example are written, for messages."""
        return (
            f"the names that apply, each once: weather{labels.separator}sport in a cell "
            f'(--label_separator={labels.separator!r}), in jsonl also ["weather", "sport"]; not '
            "0 and 1 for each name, nor a list or dict as a program prints it"
        )

    def ids(self, labels, label):
        """L zeros and ones."""
        return [int(label is not None and name in label) for name in labels.names]

    def probabilities(self, logits):
        """The sigmoid of each logit."""
        return 1 / (1 + np.exp(-logits.astype(np.float64)))

    def decide(self, probabilities):
        """0 and 1 [N, L], with 1 for a probability of one half and more."""
        return (np.asarray(probabilities) >= 0.5).astype(np.int64)

    def for_metrics(self, labels, label_ids, probabilities):
        """Zeros and ones, both [N, L]."""
        return np.asarray(label_ids), self.decide(probabilities)

    def spell(self, labels, prediction):
        """The names that are 1."""
        return labels.separator.join(itertools.compress(labels.names, prediction))

    def spell_label(self, labels, label):
        """The names."""
        return "" if label is None else labels.separator.join(label)

    def answers(self, outputs, labels):
        """labels, probabilities, applies [B, L]."""
        probabilities = tf.sigmoid(outputs["logits"])  # [B, L]
        return {**_all_labels(probabilities, labels), "applies": probabilities >= 0.5}


class Regression(Classification):
    """A score."""

    name = "regression"
    terms = ("regression",)
    has_names = False
    title = "Gives each text a score."
    answer_meanings = MappingProxyType(
        {"score": "float [B], which may lie beyond the scores of training"}
    )

    def model(self, config, *, num_classes=1, num_choices=1):
        """The encoder with a score of its pooled vector: logits [B, 1]."""
        return super().model(config, num_classes=1)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One float32."""
        return (Feature("label_ids", tf.float32, 1, least=-GREATEST_FLOAT, most=GREATEST_FLOAT),)

    def losses(self, outputs, batch):
        """Squared errors [B] of logits and label_ids float32, both [B, 1]."""
        error = tf.cast(outputs["logits"], tf.float32) - batch["label_ids"]
        return {"regression": tf.square(error)[:, 0]}

    def correct(self, outputs, batch):
        """None."""
        return {}

    def size(self, labels):
        """1."""
        return 1

    def are_fixed(self, labels):
        """True: there are no names to find."""
        return True

    def parse(self, labels, value):
        """The number in a cell."""
        text = text_of(value)
        if not text:
            return super().parse(labels, value)
        score = float(text) if DECIMAL.fullmatch(text) else math.nan
        if not (abs(score) <= GREATEST_FLOAT and labels.limits[0] <= score <= labels.limits[1]):
            raise ValueError(self.describe(labels))
        return score

    def describe(self, labels):
        """The range."""
        low, high = labels.limits
        bounds = f" from {low:g} to {high:g}" if high < math.inf else ""
        return f"a finite number{bounds}, such as 2.5 or 1e-3"

    def ids(self, labels, label):
        """The score."""
        return [0.0 if label is None else float(label)]

    def probabilities(self, logits):
        """The scores as they are."""
        return logits.astype(np.float64)

    def decide(self, probabilities):
        """The scores [N]."""
        scores = np.asarray(probabilities)
        return scores.reshape(len(scores))

    def for_metrics(self, labels, label_ids, probabilities):
        """Scores, both [N]."""
        return self.decide(label_ids), self.decide(probabilities)

    def columns(self, labels):
        """The score."""
        return ("score",)

    def spell(self, labels, prediction):
        """The score within the limits, with three decimals."""
        return f"{min(max(float(prediction), labels.limits[0]), labels.limits[1]):.3f}"

    def spell_label(self, labels, label):
        """The score."""
        return "" if label is None else f"{label:g}"

    def answers(self, outputs, labels):
        """score [B]."""
        return {"score": outputs["logits"][:, 0]}
