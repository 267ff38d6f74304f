"""Tags: a label for each word, from a cell to a metric; their schemes are in schemes.py."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from bert_tf.heads.classification import LabelHead, Labels
from bert_tf.heads.head import (
    ENCODER,
    OUTPUT,
    HeadSizes,
    cross_entropy,
    is_likeliest,
    repeated_for_tokens,
    times_class_weights,
)
from bert_tf.heads.labels import UNKNOWN, Label
from bert_tf.heads.schemes import OUTSIDE, TAG, have_prefixes, normal_tags, tags_in


class TagError(ValueError):
    """An invalid tag.

    Attributes:
      number: its index in the sentence.
    """

    def __init__(self, expected: str, number: int):
        super().__init__(expected)
        self.number = number


@dataclasses.dataclass(frozen=True)
class Tags(Labels):
    """A label for each word."""

    head: ClassVar[str] = "token_labels"
    kind: ClassVar[str] = "tags"
    is_per_word: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = False

    def parse(self, value: Any) -> tuple[str, ...]:
        """The tags of a sentence, in the scheme of the names; without names as B- and I-.

        Published files mark entities in different ways: some have B- only for an entity that
        directly follows another of its type, others mark the last word. All mean the same
        entities, and only these are scored.

        Raises:
          TagError: a tag is invalid.
        """
        if not value:
            return super().parse(None)
        tags = [tag.strip() if isinstance(tag, str) else "" for tag in value]
        names = self.names or self.in_order(set(tags))
        if have_prefixes(names):
            return self._parse_prefixed(tags, names)
        if "" in tags:
            raise TagError("a tag", tags.index(""))
        return tuple(tags)

    @staticmethod
    def _parse_prefixed(tags: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
        """Tags with B-, I- or the like, in the scheme of the names."""
        has_types = any(len(name) > 1 for name in names)
        normal = normal_tags(tags)
        for number, tag in enumerate(normal):
            is_prefixed = TAG.fullmatch(tag) and (len(tag) > 1) == has_types
            if tag != OUTSIDE and not is_prefixed:
                kinds = "B- or I- and the type of an entity" if has_types else "B or I"
                raise TagError(f"O, or {kinds}", number)
        return tags_in(names, normal)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """O, then B- and I- of every type; or O, then the classes."""
        if not have_prefixes(names):
            return sorted(names, key=lambda name: (name != OUTSIDE, name))
        kinds = {match[2] for match in map(TAG.fullmatch, names) if match and match[2]}
        ordered = [OUTSIDE]
        for kind in sorted(kinds):
            ordered += [f"B-{kind}", f"I-{kind}"]
        return ordered if kinds else [OUTSIDE, "B", "I"]

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """As in `Labels`; the items are words."""
        return super().balanced_weights(itertools.chain.from_iterable(labels))

    def ids(self, label: Label | None) -> list[int]:
        """A label id for each word."""
        return [self.numbers.get(tag, UNKNOWN) for tag in label]

    def for_metrics(self, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """The gold tags of each sentence, and those that its probabilities [W, L] predict.

        Both are normal tags, so that the schemes of data and model do not matter.
        """
        normal = normal_tags if have_prefixes(self.names) else list
        gold = [normal(tags) for tags in label_ids]
        predicted = []
        for sentence in probabilities:
            tags = map(self.spell, self.decide(sentence))
            predicted.append(normal(tags))
        return gold, predicted


class TokenLabels(LabelHead):
    """A tag for each word."""

    name = "token_labels"
    architecture = "BertForTokenClassification"
    required = f"{ENCODER}|{OUTPUT}"
    labels = Tags
    metrics = ("entity_f1", "accuracy")
    terms = ("token",)
    vectors = "sequence_output"
    added_sizes = HeadSizes(per_token=True)
    title = "Labels every word of a text."
    serving = "bert_tf.serving.token_labels:TokenLabelsTask"

    def label_features(self, max_seq_length, num_labels, num_choices):
        """A label id for each token; IGNORED if no word begins there."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        bounds = {"least": UNKNOWN, "most": num_labels - 1}
        return (Feature("label_ids", tf.int64, max_seq_length, "max_seq_length", **bounds),)

    def item_weights(self, batch):
        """1, or the weight of its class, for each labelled token of a real example: [B, S]."""
        import tensorflow as tf

        weights = tf.cast(batch["label_ids"] >= 0, tf.float32)  # [B, S]
        weights *= repeated_for_tokens(batch["is_real_example"], batch)
        return {"token": times_class_weights(weights, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies [B, S] of logits [B, S, L] and label_ids int32 [B, S]."""
        import tensorflow as tf

        return {"token": cross_entropy(outputs["logits"], tf.maximum(batch["label_ids"], 0))}

    def correct(self, outputs, batch):
        """Correct classes [B, S]."""
        return {"token": is_likeliest(outputs["logits"], batch["label_ids"])}
