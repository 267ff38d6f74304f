"""The number of the best of several sequences, from a cell to a metric."""

import dataclasses
from typing import ClassVar

from bert_tf.heads.classification import Classification, Labels, classified


@dataclasses.dataclass(frozen=True)
class Choices(Labels):
    """Labels that are numbers of sequences, of which one is right."""

    head: ClassVar[str] = "multiple_choice"
    kind: ClassVar[str] = ""
    takes_windows: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    size: ClassVar[int] = 1  # the score of each sequence


class MultipleChoice(Classification):
    """The number of the best sequence: one vector scores each."""

    name = "multiple_choice"
    architecture = "BertForMultipleChoice"
    problem_type = None
    labels = Choices
    metrics = ("accuracy",)
    further_metrics = ()
    has_names = False
    sizes = ("num_choices",)
    added_sizes = None
    title = "Chooses the ending that goes on best."
    serving = "bert_tf.serving.tasks:MultipleChoiceTask"

    def model(self, config, *, num_classes=1, num_choices=1, num_sequences=1):
        """From inputs int32 [B, C, S] each to logits [B, C], and no other outputs.

        Of packed rows [B, S], in which the choices of an example follow each other, [B * K / C, C].
        """
        import keras

        from bert_tf.modeling.heads import MergeChoices
        from bert_tf.modeling.models import BertModel, encode, token_inputs

        inputs = rows = token_inputs(shape=(None,) if num_sequences > 1 else (num_choices, None))
        if num_sequences == 1:
            rows = {name: MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
        outputs, _ = encode(config, rows, num_sequences=num_sequences)
        scores = classified(config, outputs["pooled_output"], 1)  # [B * C, 1], or [B * K, 1]
        logits = keras.ops.reshape(scores, (-1, num_choices))
        options = {"num_sequences": num_sequences, "metadata": {"num_choices": num_choices}}
        return BertModel(inputs, {"logits": logits}, name=self.name, **options)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The number of a sequence."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.int64, 1, most=num_choices - 1),)
