"""The head that chooses one of several sequences (paper, section 4.4)."""

import keras
import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.heads.classification import Classification
from bert_tf.heads.head import CLASSIFIER_DROPOUT
from bert_tf.heads.label_head import LabelHead
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.heads import MergeChoices, SequenceClassifier
from bert_tf.modeling.models import BertModel, encode, token_inputs


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
        outputs, _ = encode(config, merged)
        pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
        scores = SequenceClassifier(config, num_classes=1, name="classifier")(pooled)
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
