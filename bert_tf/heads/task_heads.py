"""Heads of tasks: labels of texts and words, answers in a text, and the encoder alone."""

from types import MappingProxyType

import keras
import tensorflow as tf

from bert_tf.data import PACKED_TOKENS
from bert_tf.data.records import GREATEST_FLOAT, Feature
from bert_tf.heads import ENCODER, ON_TOP, OUTPUT
from bert_tf.heads.head import Head, cross_entropy, is_likeliest
from bert_tf.heads.labels import UNKNOWN
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
    """A head with a logit for each label; see `bert_tf.heads.labels` for these.

    Attributes:
      least_names: how many names training data must have.
      vectors: the output of the encoder that is classified.
    """

    has_names = True
    least_names: int = 2
    vectors: str = "pooled_output"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with a classifier of its `vectors`: logits [B, L] or [B, S, L]."""
        inputs = token_inputs()
        outputs, vectors = vectors_of(config, inputs)
        outputs["logits"] = classified(config, vectors[self.vectors], num_classes)
        return BertModel(inputs, outputs, name=self.name)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One number of a label."""
        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)


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

    def answers(self, outputs, labels):
        """score [B]."""
        return {"score": outputs["logits"][:, 0]}


class MultipleChoice(Classification):
    """The number of the best sequence: one vector scores each."""

    name = "multiple_choice"
    architecture = "BertForMultipleChoice"
    has_names = False
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

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The number of a sequence."""
        return (Feature("label_ids", tf.int64, 1, most=num_choices - 1),)


class TokenLabels(LabelHead):
    """A tag for each word."""

    name = "token_labels"
    architecture = "BertForTokenClassification"
    required = f"{ENCODER}|{ON_TOP}|{OUTPUT}"
    terms = ("token",)
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
