"""The head that labels every word, as in named entity recognition (paper, section 5.3)."""

import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.heads import ENCODER, OUTPUT
from bert_tf.heads.head import CLASSIFIER_DROPOUT, cross_entropy, is_likeliest
from bert_tf.heads.label_head import LabelHead
from bert_tf.heads.labels import IGNORED, Labels, TagError
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.heads import TokenClassifier
from bert_tf.modeling.models import BertModel, encode, token_inputs

OUTSIDE = "O"  # the tag of a word that is in no entity
# Some schemes mark the end of an entity (E, L) or an entity of one word (S, U); B and I suffice.
TAG_PREFIXES = {"B": "B", "I": "I", "S": "B", "U": "B", "E": "I", "L": "I"}
TAG = re.compile(r"([BISUEL])-(.+)")


class TokenLabels(LabelHead):
    """A tag for each word."""

    name = "token_labels"
    architecture = "BertForTokenClassification"
    required = f"{ENCODER}|{OUTPUT}"
    terms = ("token",)
    is_per_word = True
    title = "Labels every word of a text."
    serving = "bert_tf.serving.token_labels:TokenLabelsTask"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with a classifier of each token's vector: logits [B, S, L]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs)
        hidden = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["sequence_output"])
        classifier = TokenClassifier(config, num_classes=num_classes, name="classifier")
        outputs["logits"] = classifier(hidden)  # [B, S, L]
        return BertModel(inputs, outputs, name=self.name)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """A number for each token, IGNORED where no word begins."""
        bounds = {"least": IGNORED, "most": num_labels - 1}
        return (Feature("label_ids", tf.int64, max_seq_length, "max_seq_length", **bounds),)

    def item_weights(self, batch):
        """1 for each labelled token of a real example, [B, S]."""
        labelled = tf.cast(batch["label_ids"] >= 0, tf.float32)
        return {"token": labelled * batch["is_real_example"][:, None]}

    def losses(self, outputs, batch):
        """Cross entropies [B, S] of logits [B, S, L] and label_ids int32 [B, S]."""
        return {"token": cross_entropy(outputs["logits"], tf.maximum(batch["label_ids"], 0))}

    def correct(self, outputs, batch):
        """Correct classes [B, S]."""
        return {"token": is_likeliest(outputs["logits"], batch["label_ids"])}

    def parse(self, labels: Labels, values: Sequence | None) -> tuple[str, ...]:
        """The tags of a sentence, with B- at the first word of each entity and I- at the others.

        Published files differ: in some, B- marks only an entity that directly follows another of
        its type. Both mean the same entities, and only these are scored.

        Raises:
          TagError: with what is expected, and which tag is wrong.
        """
        if not values:
            return super().parse(labels, None)
        tags = normal_tags(value.strip() if isinstance(value, str) else "" for value in values)
        for number, tag in enumerate(tags):
            if tag != OUTSIDE and not TAG.fullmatch(tag):
                raise TagError("O, or B- or I- and the type of an entity", number)
            if tag != OUTSIDE and labels.names and tag not in labels.names:
                raise TagError(self.describe(labels), number)
        return tuple(tags)

    def in_order(self, names):
        """O, then B- and I- of every type."""
        kinds = sorted({tag[2:] for tag in names if tag != OUTSIDE})
        return [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI")]

    def ids(self, labels, label):
        """One for each word."""
        return [labels.numbers[tag] for tag in label]

    def for_metrics(self, labels, label_ids, probabilities):
        """Tags of each sentence; of probabilities [W, L] for each.

        A model of a scheme where I- begins an entity predicts the same entities.
        """
        decided = [self.decide(rows) for rows in probabilities]
        gold, predicted = (
            [normal_tags(map(labels.spell, ids)) for ids in side] for side in (label_ids, decided)
        )
        return gold, predicted


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
