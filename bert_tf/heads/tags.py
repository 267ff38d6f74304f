"""A tag for each word, from a cell to a metric; schemes of tags are in schemes.py."""

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
    of_classes,
    of_tokens,
)
from bert_tf.heads.labels import UNKNOWN, Label
from bert_tf.heads.schemes import OUTSIDE, TAG, have_prefixes, normal_tags, tags_in


class TagError(ValueError):
    """A tag that is invalid; `number` is its place in the sentence."""

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

    def balanced_weights(self, labels: Iterable[Label]) -> tuple[float, ...]:
        """As of `Labels`, of words."""
        return super().balanced_weights(itertools.chain.from_iterable(labels))

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
        """A number for each token, IGNORED where no word begins."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        bounds = {"least": UNKNOWN, "most": num_labels - 1}
        return (Feature("label_ids", tf.int64, max_seq_length, "max_seq_length", **bounds),)

    def item_weights(self, batch):
        """1 for each labelled token of a real example, [B, S]."""
        import tensorflow as tf

        labelled = tf.cast(batch["label_ids"] >= 0, tf.float32)
        labelled *= of_tokens(batch["is_real_example"], batch)
        return {"token": of_classes(labelled, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies [B, S] of logits [B, S, L] and label_ids int32 [B, S]."""
        import tensorflow as tf

        return {"token": cross_entropy(outputs["logits"], tf.maximum(batch["label_ids"], 0))}

    def correct(self, outputs, batch):
        """Correct classes [B, S]."""
        return {"token": is_likeliest(outputs["logits"], batch["label_ids"])}
