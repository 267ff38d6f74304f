"""The head of SQuAD, which finds answers in a text."""

from bert_tf.heads.head import ENCODER, Head, HeadSizes, cross_entropy


class QuestionAnswering(Head):
    """Two logits for each token: that the answer starts there, and that it ends there.

    Section 4.2. Original: run_squad.py, `create_model`.
    """

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
        if config.is_causal:
            # [CLS] stands for "no answer", but has seen no other token; the last one has.
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
        """The mean of the cross entropies of start and end: [B], or [B, K] of packed rows.

        The soft-max is over all S positions, padding included, as in the original; in packed rows
        over the tokens of a sequence. start_logits and end_logits are [B, S]; start_positions and
        end_positions, int32 [B, K], count from the beginning of a sequence.
        """
        import tensorflow as tf

        losses = []
        for end in ("start", "end"):
            logits = tf.cast(outputs[f"{end}_logits"], tf.float32)[:, None]  # [B, 1, S]
            positions = batch[f"{end}_positions"]  # [B, K]
            if positions.shape[1] > 1:
                logits, positions = _in_packed_rows(logits, positions, batch["input_mask"])
            losses.append(cross_entropy(logits, positions))  # [B, K]
        return {"span": tf.reshape(tf.add_n(losses) / 2, tf.shape(batch["is_real_example"]))}


def _in_packed_rows(logits, positions, sequence_numbers):
    """Logits [B, K, S] of each sequence's tokens, and positions [B, K] in the row.

    Args:
      logits: [B, 1, S].
      positions: int32 [B, K], in the sequences.
      sequence_numbers: int32 [B, S], the input_mask.
    """
    import tensorflow as tf

    from bert_tf.modeling.layers import MASKED_SCORE
    from bert_tf.modeling.rows import tokens_before

    numbers = tf.range(1, positions.shape[1] + 1)  # [K]
    is_of_sequence = sequence_numbers[:, None] == numbers[:, None]  # [B, K, S]
    logits = tf.where(is_of_sequence, logits, MASKED_SCORE)
    positions += tokens_before(sequence_numbers, numbers[None])
    # A sequence that the row does not have might begin behind its end; its weight is 0.
    return logits, tf.minimum(positions, logits.shape[-1] - 1)
