"""Heads of tasks: labels of texts and words, answers in a text, and the encoder alone."""

from types import MappingProxyType

import keras
import tensorflow as tf

from bert_tf.data.records import GREATEST_FLOAT, Feature
from bert_tf.heads import ENCODER, OUTPUT
from bert_tf.heads.head import Head, cross_entropy, is_likeliest, of_classes, of_tokens
from bert_tf.heads.labels import UNKNOWN
from bert_tf.modeling.heads import MergeChoices, SequenceClassifier, TokenClassifier
from bert_tf.modeling.layers import MASKED_SCORE
from bert_tf.modeling.memory import Dropout
from bert_tf.modeling.models import BertModel, encode, token_inputs
from bert_tf.modeling.rows import last_at_first, tokens_before


class LabelHead(Head):
    """A head with a logit for each label; see `bert_tf.heads.labels` for these.

    Attributes:
      least_names: how many names training data must have.
      vectors: the output of the encoder that is classified.
    """

    has_names = True
    sizes = ("num_classes",)
    least_names: int = 2
    vectors: str = "pooled_output"

    def model(self, config, *, num_classes=2, num_choices=1, num_sequences=1):
        """The encoder with a classifier of its `vectors`: logits [B * K, L] or [B, S, L]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs, num_sequences=num_sequences)
        outputs["logits"] = classified(outputs[self.vectors], num_classes)
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One number of a label."""
        return (Feature("label_ids", tf.int64, 1, most=num_labels - 1),)


def classified(vectors, num_classes: int):
    """Logits [..., L] of a model's vectors [..., D], with a dropout of 0.1 as in the original."""
    dropped = Dropout(0.1, name="dropout")(vectors)
    layer = SequenceClassifier if len(vectors.shape) == 2 else TokenClassifier
    return layer(num_classes, name="classifier")(dropped)


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

    def item_weights(self, batch):
        """1 for an example, or the weight of its class: [B], or [B, K] of packed rows."""
        real = batch["is_real_example"]
        return {self.terms[0]: of_classes(real, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies of logits [B * K, L] and label_ids int32 [B, K]."""
        return {"classifier": _by_sequence(cross_entropy, outputs, batch)}

    def correct(self, outputs, batch):
        """Correct classes."""
        return {"classifier": _by_sequence(is_likeliest, outputs, batch)}

    def answers(self, outputs, labels):
        """label, probability [B], labels and probabilities [B, L]."""
        probabilities = tf.nn.softmax(outputs["logits"])  # [B, L]
        label = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        probability = tf.reduce_max(probabilities, axis=-1)
        return {"label": label, "probability": probability, **_all_labels(probabilities, labels)}


def _by_sequence(function, outputs, batch):
    """`function(logits, labels)` of each sequence: [B], or [B, K] of packed rows."""
    found = function(outputs["logits"], tf.reshape(batch["label_ids"], [-1]))  # [B * K]
    return tf.reshape(found, tf.shape(batch["is_real_example"]))


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
        """Cross entropies averaged over classes, of logits [B * K, L] and label_ids [B, K, L]."""
        logits = tf.cast(outputs["logits"], tf.float32)
        each = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(tf.reshape(batch["label_ids"], tf.shape(logits)), tf.float32),
            logits=logits,
        )  # [B * K, L]
        each = tf.reduce_mean(each, axis=-1)
        return {"multi_label": tf.reshape(each, tf.shape(batch["is_real_example"]))}

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
    sizes = ()
    title = "Gives each text a score."
    answer_meanings = MappingProxyType(
        {"score": "float [B], which may lie beyond the scores of training"}
    )

    def model(self, config, *, num_classes=1, num_choices=1, num_sequences=1):
        """The encoder with a score of its pooled vector: logits [B * K, 1]."""
        return super().model(config, num_classes=1, num_sequences=num_sequences)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """One float32."""
        return (Feature("label_ids", tf.float32, 1, least=-GREATEST_FLOAT, most=GREATEST_FLOAT),)

    def losses(self, outputs, batch):
        """Squared errors of logits [B * K, 1] and label_ids float32 [B, K]."""
        logits = tf.reshape(tf.cast(outputs["logits"], tf.float32), tf.shape(batch["label_ids"]))
        error = tf.square(logits - batch["label_ids"])
        return {"regression": tf.reshape(error, tf.shape(batch["is_real_example"]))}

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
    sizes = ("num_choices",)
    title = "Chooses the ending that goes on best."
    serving = "bert_tf.serving.tasks:MultipleChoiceTask"

    def model(self, config, *, num_classes=1, num_choices=1, num_sequences=1):
        """From inputs int32 [B, C, S] each to logits [B, C], and no other outputs.

        Of packed rows [B, S], in which the choices of an example follow each other, [B * K / C, C].
        """
        inputs = rows = token_inputs(shape=(None,) if num_sequences > 1 else (num_choices, None))
        if num_sequences == 1:
            rows = {name: MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
        outputs, _ = encode(config, rows, num_sequences=num_sequences)
        scores = classified(outputs["pooled_output"], 1)  # [B * C, 1], or [B * K, 1]
        logits = keras.ops.reshape(scores, (-1, num_choices))
        options = {"num_sequences": num_sequences, "metadata": {"num_choices": num_choices}}
        return BertModel(inputs, {"logits": logits}, name=self.name, **options)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The number of a sequence."""
        return (Feature("label_ids", tf.int64, 1, most=num_choices - 1),)


class TokenLabels(LabelHead):
    """A tag for each word."""

    name = "token_labels"
    architecture = "BertForTokenClassification"
    required = f"{ENCODER}|{OUTPUT}"
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
        labelled *= of_tokens(batch["is_real_example"], batch)
        return {"token": of_classes(labelled, batch["label_ids"], self.class_weights)}

    def losses(self, outputs, batch):
        """Cross entropies [B, S] of logits [B, S, L] and label_ids int32 [B, S]."""
        return {"token": cross_entropy(outputs["logits"], tf.maximum(batch["label_ids"], 0))}

    def correct(self, outputs, batch):
        """Correct classes [B, S]."""
        return {"token": is_likeliest(outputs["logits"], batch["label_ids"])}


class QuestionAnswering(Head):
    """For each token, how likely the answer begins with it, and ends with it."""

    name = "question_answering"
    sizes = ()
    architecture = "BertForQuestionAnswering"
    weights = "cls/squad/"
    required = f"{ENCODER}|{weights}"
    outputs = ("start_logits", "end_logits")
    terms = ("span",)
    reads_windows = True
    title = "Answers questions about a text with words from it."
    serving = "bert_tf.serving.question_answering:QuestionAnsweringTask"

    def model(self, config, *, num_classes=2, num_choices=1, num_sequences=1):
        """The encoder with start_logits and end_logits [B, S]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs, num_sequences=num_sequences)
        x = outputs["sequence_output"]  # [B, S, D]
        if config.is_causal:  # no answer is scored at [CLS], which sees nothing
            x = last_at_first(x, inputs["input_mask"], num_sequences)
        logits = TokenClassifier(num_classes=2, name="squad")(x)  # [B, S, 2]
        outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The positions of the answer's first and last token; 0 where there is no answer."""
        names = ("start_positions", "end_positions")
        return tuple(Feature(name, tf.int64, 1, most=max_seq_length - 1) for name in names)

    def losses(self, outputs, batch):
        """Half the sum of the cross entropies of start and end over all positions, [B].

        Of packed rows [B, K], over a sequence's own tokens; else over padding too, as in the
        original.

        Of start_logits, end_logits [B, S] and start_positions, end_positions int32 [B, K], which
        count from the beginning of a sequence.
        """
        ends, num_sequences = [], batch["start_positions"].shape[1]
        for end in ("start", "end"):
            logits, places = outputs[f"{end}_logits"], batch[f"{end}_positions"]
            logits = tf.cast(logits, tf.float32)[:, None]  # [B, 1, S]
            if num_sequences > 1:
                numbers, number = batch["input_mask"], tf.range(1, num_sequences + 1)
                is_own = numbers[:, None] == number[:, None]  # [B, K, S]
                logits = tf.where(is_own, logits, MASKED_SCORE)
                places += tokens_before(numbers, number[None])  # [B, K]
                places = tf.minimum(places, logits.shape[-1] - 1)  # of sequences that are not there
            ends.append(cross_entropy(logits, places))
        return {"span": tf.reshape(tf.add_n(ends) / 2, tf.shape(batch["is_real_example"]))}


class Embeddings(Head):
    """No head."""

    name = "embeddings"
    architecture = "BertModel"
    sizes = ()
    weights = ENCODER
    required = ENCODER
    outputs = ("sequence_output", "pooled_output")
    title = "Turns texts into vectors."
    serving = "bert_tf.serving.tasks:EmbeddingTask"

    def model(self, config, *, num_classes=0, num_choices=1):
        """`BertModel(config)`."""
        return BertModel(config, name=self.name)
