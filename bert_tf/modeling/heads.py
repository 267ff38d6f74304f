"""The heads of BERT, written with `keras.ops` alone; dimensions and names as in layers.py.

masked pieces     [B, S, D] -> [B, P, V]
sequences         [B, D]    -> [B, classes]     next sentence, sentence tasks, multiple choice
tokens            [B, S, D] -> [B, S, classes]  tags, answer starts and ends
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.layers import BertLayer, activation, truncated_normal
from bert_tf.modeling.tied_cross_entropy import tied_cross_entropy


@keras.saving.register_keras_serializable(package="bert_tf")
class Transform(BertLayer):
    """norm(activation(dense(x))), before the masked-LM head's vocabulary projection."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.hidden_size)
        self.norm = self.layer_norm()

    def build(self, x_shape):
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.norm.build((*x_shape[:-1], self.config.hidden_size))

    def call(self, x):
        """x [..., D] -> [..., D]."""
        return self.norm(activation(self.config.hidden_act)(self.projection(x)))


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLmHead(BertLayer):
    """Guesses the masked pieces (paper, section 3.1; original: `get_masked_lm_output`).

    The vocabulary projection is the word-embedding table; only masked positions are projected.
    """

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.transform = Transform(self.config, dtype=self.dtype_policy, name="transform")

    def build(
        self,
        sequence_output_shape,
        masked_lm_positions_shape=None,
        word_table_shape=None,
        masked_lm_ids_shape=None,
    ):
        """Makes the transform and the bias of each piece."""
        self.transform.build((*masked_lm_positions_shape, sequence_output_shape[-1]))
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,), initializer="zeros", name="output_bias"
        )  # [V]

    def call(self, sequence_output, masked_lm_positions, word_table, masked_lm_ids=None):
        """Logits, and losses where the right ids are given.

        Args:
          sequence_output: [B, S, D].
          masked_lm_positions: int [B, P].
          word_table: [V, D].
          masked_lm_ids: int [B, P], or None.

        Returns:
          logits [B, P, V]; with masked_lm_ids (logits, losses float32 [B, P]). What is not used of
          the two costs nothing in a compiled function.
        """
        batch, length, hidden = ops.shape(sequence_output)
        num_predictions = ops.shape(masked_lm_positions)[1]
        row_starts = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
        flat_positions = ops.reshape(masked_lm_positions + row_starts, (-1,))  # [B * P]
        x = ops.take(ops.reshape(sequence_output, (-1, hidden)), flat_positions, axis=0)
        x = self.transform(x)  # [B * P, D]
        bias = ops.copy(self.output_bias)
        logits = ops.matmul(x, ops.transpose(word_table)) + bias  # [B * P, V]
        logits = ops.reshape(logits, (batch, num_predictions, self.config.vocab_size))
        if masked_lm_ids is None:
            return logits
        losses = tied_cross_entropy(x, word_table, bias, ops.reshape(masked_lm_ids, (-1,)))
        return logits, ops.reshape(losses, (batch, num_predictions))

    def compute_output_spec(
        self, sequence_output, masked_lm_positions, word_table, masked_lm_ids=None
    ):
        """[B, P, V], or that and [B, P]."""
        shape = masked_lm_positions.shape
        logits = keras.KerasTensor((*shape, self.config.vocab_size), dtype=self.compute_dtype)
        if masked_lm_ids is None:
            return logits
        return logits, keras.KerasTensor(shape, dtype="float32")


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(BertLayer):
    """Logits from the pooled vector; weights [classes, D] as the original stores them.

    In float32 unless said otherwise: it is little work, and close logits stay apart.

    Next-sentence prediction uses it with 2 classes, 0 = is next (`get_next_sentence_output`).
    First weights have the deviation `initializer_range`, by default that of the original's
    run_classifier.py and run_squad.py, whatever the configuration says.
    """

    def __init__(
        self,
        config: BertConfig | dict[str, Any],
        *,
        num_classes: int,
        initializer_range: float = 0.02,
        dtype: Any = "float32",
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        self.num_classes, self.initializer_range = num_classes, initializer_range

    def build(self, pooled_output_shape):
        """Makes weights and bias."""
        self.output_weights = self.add_weight(
            shape=(self.num_classes, pooled_output_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(self.num_classes,), initializer="zeros", name="output_bias"
        )

    def call(self, pooled_output):
        """pooled_output [B, D] -> logits [B, classes]."""
        weights = ops.transpose(ops.convert_to_tensor(self.output_weights))  # [D, classes]
        return ops.matmul(pooled_output, weights) + self.output_bias

    def compute_output_shape(self, pooled_output_shape):
        """[B, classes]."""
        return (*pooled_output_shape[:-1], self.num_classes)

    def get_config(self):
        """The constructor's arguments."""
        own = {"num_classes": self.num_classes, "initializer_range": self.initializer_range}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenClassifier(SequenceClassifier):
    """The same for the vector of each token; SQuAD uses it with 2 classes, answer start and end."""

    def call(self, sequence_output):
        """sequence_output [B, S, D] -> logits [B, S, classes]."""
        return super().call(sequence_output)


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(keras.layers.Layer):
    """Every choice an example of its own."""

    def call(self, x):
        """x [B, C, S] -> [B * C, S]."""
        return ops.reshape(x, (-1, ops.shape(x)[-1]))

    def compute_output_shape(self, x_shape):
        """[B * C, S]."""
        return (None, x_shape[-1])
