"""Multiple choice: the number of the best of several sequences, from a cell to a metric."""

import dataclasses
from typing import ClassVar

from bert_tf.heads.classification import Classification, Labels, classified


@dataclasses.dataclass(frozen=True)
class Choices(Labels):
    """Labels that are the number of the right sequence."""

    head: ClassVar[str] = "multiple_choice"
    kind: ClassVar[str] = ""
    takes_windows: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    size: ClassVar[int] = 1  # the score of each sequence


class MultipleChoice(Classification):
    """The number of the best sequence (section 4.4): a vector gives each its score."""

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
        """A model from inputs int32 [B, C, S] each to logits [B, C]; it has no other outputs.

        For packed rows inputs are [B, S], in which the choices of an example follow each other, and
        logits [B * K / C, C].
        """
        import keras

        from bert_tf.modeling.heads import MergeChoices
        from bert_tf.modeling.models import BertModel, encode, token_inputs

        if num_sequences > 1:
            inputs = token_inputs()  # [B, S]
            rows = inputs
        else:
            inputs = token_inputs(shape=(num_choices, None))  # [B, C, S]
            rows = {name: MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
        outputs, _ = encode(config, rows, num_sequences=num_sequences)
        scores = classified(config, outputs["pooled_output"], 1)  # [B * C, 1], or [B * K, 1]
        logits = keras.ops.reshape(scores, (-1, num_choices))  # [B, C], or [B * K / C, C]
        return BertModel(
            inputs,
            {"logits": logits},
            name=self.name,
            num_sequences=num_sequences,
            metadata={"num_choices": num_choices},
        )

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The number of the right sequence."""
        import tensorflow as tf

        from bert_tf.data.records import Feature

        return (Feature("label_ids", tf.int64, 1, most=num_choices - 1),)
