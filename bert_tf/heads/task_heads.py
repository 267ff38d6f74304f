"""Heads of tasks: labels of texts and words, answers in a text, and the encoder alone."""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data import PACKED_TOKENS
from bert_tf.data.records import GREATEST_FLOAT, Feature
from bert_tf.heads import ENCODER, ON_TOP, OUTPUT
from bert_tf.heads.head import Head, cross_entropy, is_likeliest
from bert_tf.heads.labels import DECIMAL, MISSING, UNKNOWN, Label, Labels, TagError, text_of
from bert_tf.heads.tags import OUTSIDE, TAG, have_prefixes, normal_tags, tags_in
from bert_tf.modeling.heads import (
    Bidirectional,
    Lstm,
    MergeChoices,
    SequenceClassifier,
    TokenClassifier,
    WeightedSum,
)
from bert_tf.modeling.layers import MASKED_SCORE, Dropout, last_tokens
from bert_tf.modeling.models import BertModel, encode, token_inputs


class LabelHead(Head):
    """A head whose answers are labels; by default one of several names.

    Attributes:
      least_names: how many names training data must have.
      may_be_empty: whether an empty cell is a label.
      is_per_word: whether every word has a label.
      vectors: the output of the encoder that is classified.
      takes_windows: whether a long text may be read in windows, whose logits are averaged.
    """

    has_names = True
    least_names: int = 2
    may_be_empty: bool = False
    is_per_word: bool = False
    takes_windows: bool = False
    vectors: str = "pooled_output"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with a classifier of its `vectors`: logits [B, L] or [B, S, L]."""
        inputs = token_inputs()
        outputs, vectors = vectors_of(config, inputs)
        outputs["logits"] = classified(config, vectors[self.vectors], num_classes)
        return BertModel(inputs, outputs, name=self.name)

    def size(self, labels: Labels) -> int:
        """How many scores the head gives for a sequence, or for a token."""
        return len(labels.names)

    def are_fixed(self, labels: Labels) -> bool:
        """Whether the label names are known."""
        return bool(labels.names)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One number of a label."""
        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)

    def parse(self, labels: Labels, value) -> Label:
        """The label in a cell.

        Raises:
          ValueError: with what is expected in the cell.
        """
        text = text_of(value)
        if text is None or labels.is_missing(text):
            raise ValueError(f"a label: {self.describe(labels)}")
        return self.name_of(labels, text)

    def name_of(self, labels: Labels, text: str) -> str:
        """The name that a name or synonym stands for; raises `ValueError` if there is none."""
        name = labels.synonyms.get(text, text)
        if labels.names and name not in labels.names:
            raise ValueError(self.describe(labels))
        return name

    def describe(self, labels: Labels) -> str:
        """What a label can be, for messages."""
        if not labels.names:
            return "any text"
        shown = ", ".join([*labels.names[:20], *["..."] * (len(labels.names) > 20)])
        return f"one of the {len(labels.names)} labels {shown}"

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """The names of training data: numbers by value, then others by code points."""
        values = {name: int(name) for name in names if re.fullmatch("[0-9]{1,18}", name)}
        return sorted(names, key=lambda name: (name not in values, values.get(name, 0), name))

    def ids(self, labels: Labels, label: Label | None) -> list[int] | list[float]:
        """The label_ids of a record; of an example without label (None) those of the first name."""
        return [0 if label is None else labels.numbers[label]]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Logits [N, ..., L] -> probabilities of the same shape, float64."""
        logits = logits.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Predictions as numbers: probabilities [..., L] -> label ids [...]."""
        return np.asarray(probabilities).argmax(axis=-1)

    def for_metrics(self, labels: Labels, label_ids: Sequence, probabilities: Sequence) -> tuple:
        """Gold labels and predictions, as tasks/results.py takes them.

        Args:
          labels: of the task.
          label_ids: of each example, as `ids` gives them; of a sentence in words its tags.
          probabilities: of each example.
        """
        gold = np.asarray(label_ids)
        return gold.reshape(len(gold)), self.decide(np.asarray(probabilities))

    def columns(self, labels: Labels) -> Sequence[str]:
        """Names of the probabilities in a table."""
        return labels.names

    def spell(self, labels: Labels, prediction) -> str:
        """One decided prediction as it is written to files."""
        return labels.names[int(prediction)]

    def spell_label(self, labels: Labels, label: Label | None) -> str:
        """A gold label as it is written to files; empty where there is none."""
        return "" if label is None else str(label)


# Also a list, dict, tuple or vector of 0 and 1 as a program prints it.
NO_NAME = re.compile(
    rf"{MISSING.pattern}|\[.*\]|\{{.*\}}|\(\s*(?:['\"]|[01]\s*,).*\)|(?:array|set|tensor)\(.*\)"
    r"|[01](?:\W+[01]){2,}",
    re.DOTALL | re.IGNORECASE,
)


def vectors_of(config, inputs):
    """The encoder's outputs, and what heads read: the same, or what a BiLSTM makes of its layers.

    The BiLSTM (paper, tables 5 and 7) gives sequence_output [B, S, 2 H], forward and backward, and
    pooled_output [B, 2 H]: forward of the last token, backward of the first.
    """
    if not config.bilstm_layers:
        outputs, _ = encode(config, inputs)
        return outputs, outputs
    outputs, _ = encode(config, inputs, all_layers=True)
    embeddings = outputs.pop("embedding_output")
    every = [outputs.pop(f"layer_{i}") for i in range(config.num_hidden_layers)]
    match config.features:
        case "embeddings":
            x = embeddings
        case "concat_last_four":
            x = keras.ops.concatenate(every[-4:], axis=-1)  # [B, S, 4 D]
        case "sum_last_four" | "sum_all" as kind:
            summed = every if kind == "sum_all" else every[-4:]
            x = WeightedSum(name="weighted_sum")(keras.ops.stack(summed, axis=-1))
        case kind:
            x = every[-2 if kind == "second_to_last" else -1]
    mask = inputs["input_mask"]
    is_token = keras.ops.not_equal(mask, 0)
    for i in range(config.bilstm_layers):
        options = {"return_sequences": True, "use_cudnn": False, "dtype": "float32"}
        lstm = Lstm(config.bilstm_size, name="lstm", **options)
        both = Bidirectional(lstm, dtype="float32", name=f"bilstm_{i}")
        x = both(x, mask=is_token)  # [B, S, 2 H]
        x *= keras.ops.cast(keras.ops.expand_dims(is_token, 2), "float32")
    last = last_tokens(x[..., : config.bilstm_size], mask, 1)[:, 0]  # [B, H]
    pooled = keras.ops.concatenate([last, x[:, 0, config.bilstm_size :]], axis=-1)
    return outputs, {"sequence_output": x, "pooled_output": pooled}


def classified(config, vectors, num_classes: int):
    """Logits [..., L] of a model's vectors [..., D], with a dropout of 0.1 as in the original."""
    dropped = Dropout(0.1, name="dropout")(vectors)
    layer = SequenceClassifier if len(vectors.shape) == 2 else TokenClassifier
    return layer(config, num_classes=num_classes, name="classifier")(dropped)


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
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        probability = tf.reduce_max(probabilities, axis=-1)
        return {"label": label, "probability": probability, **_all_labels(probabilities, labels)}


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
        names = [self.name_of(labels, text) for text in texts if text] if are_names else []
        if not are_names or len(set(names)) < len(names):
            raise ValueError(self.describe_several(labels))
        return tuple(names)

    def describe_several(self, labels: Labels) -> str:
        """How several labels of an example are written, for messages."""
        return (
            f"the names that apply, each once: weather{labels.separator}sport in a cell "
            f'(--label_separator={labels.separator!r}), in jsonl also ["weather", "sport"]; not 0 '
            "and 1 for each, nor a list or dict as a program prints it"
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
        """The score, in the scale of `labels`."""
        mean, deviation = labels.scale or (0.0, 1.0)
        return [0.0 if label is None else (label - mean) / deviation]

    def probabilities(self, logits):
        """The scores as they are."""
        return logits.astype(np.float64)

    def decide(self, probabilities):
        """The scores [N]."""
        scores = np.asarray(probabilities)
        return scores.reshape(len(scores))

    def for_metrics(self, labels, label_ids, probabilities):
        """Scores, both [N]."""
        return labels.unscaled(self.decide(label_ids)), self.decide(probabilities)

    def columns(self, labels):
        """The score."""
        return ("score",)

    def spell(self, labels, prediction):
        """The score; within limits, if there are any, and then with three decimals."""
        score = np.clip(float(prediction), *labels.limits)
        return f"{score:.3f}" if np.isfinite(labels.limits).all() else f"{score:.9g}"

    def spell_label(self, labels, label):
        """The score."""
        return "" if label is None else f"{label:g}"

    def answers(self, outputs, labels):
        """score [B]."""
        return {"score": outputs["logits"][:, 0]}


class MultipleChoice(Classification):
    """The number of the best sequence: one vector scores each."""

    name = "multiple_choice"
    architecture = "BertForMultipleChoice"
    has_names = False
    takes_windows = False
    title = "Chooses the ending that goes on best."
    serving = "bert_tf.serving.tasks:MultipleChoiceTask"

    def model(self, config, *, num_classes=1, num_choices=1):
        """From inputs int32 [B, C, S] each to logits [B, C], and no other outputs."""
        inputs = token_inputs(shape=(num_choices, None))
        merged = {name: MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
        _, vectors = vectors_of(config, merged)
        scores = classified(config, vectors["pooled_output"], 1)  # [B * C, 1]
        logits = keras.ops.reshape(scores, (-1, num_choices))  # [B, C]
        return BertModel(inputs, {"logits": logits}, name=self.name)

    def size(self, labels):
        """1, the score of each sequence."""
        return 1

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The number of a sequence."""
        return (Feature("label_ids", tf.int64, 1, most=num_choices - 1),)

    def for_metrics(self, labels, label_ids, probabilities):
        """Numbers of sequences, both [N]."""
        return LabelHead.for_metrics(self, labels, label_ids, probabilities)


class TokenLabels(LabelHead):
    """A tag for each word."""

    name = "token_labels"
    architecture = "BertForTokenClassification"
    required = f"{ENCODER}|{ON_TOP}|{OUTPUT}"
    terms = ("token",)
    is_per_word = True
    vectors = "sequence_output"
    title = "Labels every word of a text."
    serving = "bert_tf.serving.token_labels:TokenLabelsTask"

    def label_features(self, max_seq_length, num_labels, num_choices):
        """A number for each token, IGNORED where no word begins."""
        bounds = {"least": UNKNOWN, "most": num_labels - 1}
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
        """The tags of a sentence, spelled as the labels' names; without names as B- and I-.

        Published files mark entities in different ways: some have B- only for an entity that
        directly follows another of its type, others mark the last word. All mean the same
        entities, and only these are scored.

        Raises:
          TagError: with what is expected, and which tag is wrong.
        """
        if not values:
            return super().parse(labels, None)
        tags = [value.strip() if isinstance(value, str) else "" for value in values]
        names = labels.names or self.in_order({*tags})
        has_prefixes, has_types = have_prefixes(names), any(len(name) > 1 for name in names)
        for number, tag in enumerate(normal := normal_tags(tags) if has_prefixes else tags):
            is_typed = TAG.fullmatch(tag) and (len(tag) > 1) == has_types
            if not tag or (has_prefixes and tag != OUTSIDE and not is_typed):
                kinds = "B- or I- and the type of an entity" if has_types else "B or I"
                raise TagError(f"O, or {kinds}" if has_prefixes else "a tag", number)
        return tags_in(names, normal) if has_prefixes else tuple(tags)

    def in_order(self, names):
        """O, then B- and I- of every type; or O, then the classes."""
        if not have_prefixes(names):
            return sorted(names, key=lambda name: (name != OUTSIDE, name))
        kinds = {match[2] for match in map(TAG.fullmatch, names) if match and match[2]}
        ends = [f"-{kind}" for kind in sorted(kinds)] or [""]
        return [OUTSIDE, *(f"{prefix}{end}" for end in ends for prefix in "BI")]

    def ids(self, labels, label):
        """One for each word."""
        return [labels.numbers.get(tag, UNKNOWN) for tag in label]

    def for_metrics(self, labels, label_ids, probabilities):
        """The gold tags of each sentence, and those that its probabilities [W, L] predict.

        A model of a scheme where I- begins an entity predicts the same entities.
        """
        decided = (map(labels.spell, self.decide(one)) for one in probabilities)
        normal = normal_tags if have_prefixes(labels.names) else list
        return tuple([normal(tags) for tags in side] for side in (label_ids, decided))


class QuestionAnswering(Head):
    """For each token, how likely the answer begins with it, and ends with it."""

    name = "question_answering"
    architecture = "BertForQuestionAnswering"
    weights = "cls/squad/"
    required = f"{ENCODER}|{ON_TOP}|{weights}"
    outputs = ("start_logits", "end_logits")
    terms = ("span",)
    reads_windows = True
    title = "Answers questions about a text with words from it."
    serving = "bert_tf.serving.question_answering:QuestionAnsweringTask"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with start_logits and end_logits [B, S]."""
        inputs = token_inputs()
        outputs, vectors = vectors_of(config, inputs)
        x = vectors["sequence_output"]  # [B, S, D]
        if config.is_causal:  # no answer is scored at [CLS], which sees nothing
            x = keras.ops.concatenate([last_tokens(x, inputs["input_mask"], 1), x[:, 1:]], axis=1)
        logits = TokenClassifier(config, num_classes=2, name="squad")(x)  # [B, S, 2]
        outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
        return BertModel(inputs, outputs, name=self.name)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The positions of the answer's first and last token; 0 where there is no answer."""
        names = ("start_positions", "end_positions")
        return tuple(Feature(name, tf.int64, 1, most=max_seq_length - 1) for name in names)

    def losses(self, outputs, batch):
        """Half the sum of the cross entropies of start and end over all positions, [B].

        In packed batches over the example's own tokens; else over padding too, as in the original.

        Of start_logits, end_logits [B, S] and start_positions, end_positions int32 [B, 1].
        """
        ends, padding = [], 0.0
        if PACKED_TOKENS in batch:  # padding is not computed
            padding = MASKED_SCORE * tf.cast(1 - batch["input_mask"], tf.float32)  # [B, S]
        for end in ("start", "end"):
            logits = tf.cast(outputs[f"{end}_logits"], tf.float32) + padding
            ends.append(cross_entropy(logits, batch[f"{end}_positions"][:, 0]))
        return {"span": tf.add_n(ends) / 2}


class Embeddings(Head):
    """No head."""

    name = "embeddings"
    architecture = "BertModel"
    weights = ENCODER
    required = ENCODER
    outputs = ("sequence_output", "pooled_output")
    title = "Turns texts into vectors."
    serving = "bert_tf.serving.tasks:EmbeddingTask"

    def model(self, config, *, num_classes=0, num_choices=1):
        """`BertModel(config)`."""
        return BertModel(config, name=self.name)
