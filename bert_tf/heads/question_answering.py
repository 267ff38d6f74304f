"""The head that finds an answer in a text (paper, section 4.2; original: run_squad.py)."""

import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.heads import ENCODER
from bert_tf.heads.head import Head, cross_entropy
from bert_tf.modeling.heads import TokenClassifier
from bert_tf.modeling.models import BertModel, encode, token_inputs


class QuestionAnswering(Head):
    """For each token, how likely the answer begins with it, and ends with it."""

    name = "question_answering"
    architecture = "BertForQuestionAnswering"
    weights = "cls/squad/"
    required = f"{ENCODER}|{weights}"
    outputs = ("start_logits", "end_logits")
    terms = ("span",)
    reads_windows = True
    title = "Answers questions about a text with words from it."
    serving = "bert_tf.serving.question_answering:QuestionAnsweringTask"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with start_logits and end_logits [B, S]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs)
        head = TokenClassifier(config, num_classes=2, name="squad")
        logits = head(outputs["sequence_output"])  # [B, S, 2]
        outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
        return BertModel(inputs, outputs, name=self.name)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The positions of the answer's first and last token; 0 where there is no answer."""
        names = ("start_positions", "end_positions")
        return tuple(Feature(name, tf.int64, 1, most=max_seq_length - 1) for name in names)

    def losses(self, outputs, batch):
        """Half the sum of the cross entropies of start and end over all positions, [B].

        Of start_logits, end_logits [B, S] and start_positions, end_positions int32 [B, 1].
        """
        ends = [
            cross_entropy(outputs[f"{end}_logits"], batch[f"{end}_positions"][:, 0])
            for end in ("start", "end")
        ]
        return {"span": tf.add_n(ends) / 2}
