"""Answers in a text: the head of SQuAD."""

from bert_tf.heads.head import ENCODER, Head, HeadSizes, cross_entropy


class QuestionAnswering(Head):
    """For each token, how likely the answer begins with it, and ends with it."""

    name = "question_answering"
    sizes = ()
    architecture = "BertForQuestionAnswering"
    weights = "cls/squad/"
    required = f"{ENCODER}|{weights}"
    outputs = ("start_logits", "end_logits")
    terms = ("span",)
    added_sizes = HeadSizes(per_token=True, classes=2)
    reads_windows = True
    title = "Answers questions about a text with words from it."
    serving = "bert_tf.serving.question_answering:QuestionAnsweringTask"

    def model(self, config, *, num_classes=2, num_choices=1, num_sequences=1):
        """The encoder with start_logits and end_logits [B, S]."""
        from bert_tf.modeling.heads import TokenClassifier
        from bert_tf.modeling.models import BertModel, encode, token_inputs
        from bert_tf.modeling.rows import last_at_first

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
        import tensorflow as tf

        from bert_tf.data.records import Feature

        names = ("start_positions", "end_positions")
        return tuple(Feature(name, tf.int64, 1, most=max_seq_length - 1) for name in names)

    def losses(self, outputs, batch):
        """Half the sum of the cross entropies of start and end over all positions, [B].

        Of packed rows [B, K], over a sequence's own tokens; else over padding too, as in the
        original.

        Of start_logits, end_logits [B, S] and start_positions, end_positions int32 [B, K], which
        count from the beginning of a sequence.
        """
        import tensorflow as tf

        from bert_tf.modeling.layers import MASKED_SCORE
        from bert_tf.modeling.rows import tokens_before

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
