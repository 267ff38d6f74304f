"""The heads of BERT, in `keras.ops` alone; dimensions and names as in layers.py.

masked tokens     [B, S, D] -> [B, P, V]
sequences         [B, D]    -> [B, classes]     next sentence, sentence tasks, multiple choice
tokens            [B, S, D] -> [B, S, classes]  tags, answer starts and ends
"""

from typing import Any

import keras
from keras import backend, ops
from keras.initializers import TruncatedNormal

from bert_tf.declarations import check
from bert_tf.modeling.layers import ACTIVATIONS, BertLayer, Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="bert_tf")
class Transform(BertLayer):
    """norm(activation(dense(x))), before the masked-LM head's vocabulary projection."""

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.hidden_size)
        self.norm = self.layer_norm()

    def build(self, x_shape: Shape) -> None:
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.norm.build((*x_shape[:-1], self.config.hidden_size))

    def call(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]."""
        return self.norm(ACTIVATIONS[self.config.hidden_act](self.projection(x)))


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLmHead(BertLayer):
    """Predicts the masked tokens (paper, section 3.1; original: `get_masked_lm_output`).

    The vocabulary projection is the word-embedding table; only masked positions are projected. In
    a causal model each is predicted from the token before it.
    """

    def __init__(self, config: Config, name: str = "predictions", **kwargs: Any):
        super().__init__(config, name=name, **kwargs)
        self.transform = Transform(self.config, dtype=self.dtype_policy, name="transform")

    def build(
        self,
        sequence_output_shape,
        masked_lm_positions_shape=None,
        word_table_shape=None,
        masked_lm_ids_shape=None,
    ):
        """Makes the transform and a bias for each word piece."""
        self.transform.build((*masked_lm_positions_shape, sequence_output_shape[-1]))
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,), initializer="zeros", name="output_bias"
        )  # [V]

    def call(self, sequence_output, masked_lm_positions, word_table, masked_lm_ids=None):
        """Logits; with labels also losses.

        Args:
          sequence_output: [B, S, D].
          masked_lm_positions: int [B, P].
          word_table: [V, D].
          masked_lm_ids: int [B, P], or None.

        Returns:
          logits [B, P, V]; with masked_lm_ids (logits, losses float32 [B, P]). Of the two an
          unused one costs nothing in a compiled function.
        """
        batch, length, hidden = ops.shape(sequence_output)
        masked_lm_positions = ops.cast(masked_lm_positions, "int32")  # Keras builds with floats
        if self.config.is_causal:
            masked_lm_positions = ops.maximum(masked_lm_positions - 1, 0)
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

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor) -> None:
        """None: a prediction has no padding."""

    def compute_output_spec(self, sequence_output, positions, word_table, masked_lm_ids=None):
        """[B, P, V], or that and [B, P]."""
        logits = (*positions.shape, self.config.vocab_size)
        logits = keras.KerasTensor(logits, dtype=self.compute_dtype)
        losses = keras.KerasTensor(positions.shape, dtype="float32")
        return logits if masked_lm_ids is None else (logits, losses)


def tied_cross_entropy(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of softmax(x tableᵀ + bias) against labels, in one pass over the logits.

    The logits [M, V] are the largest tensor of pre-training, so the soft-max is never made. The
    forward pass keeps e = exp(logits - shift) and z, the sum of each row of e; the soft-max is e/z.
    For the gradients one element of each row of e changes, that of the label: w is e with e - z
    there. The factor 1/z goes to the small matrices, x and g:

        d x      = (g / z) (w table)
        d table  = wᵀ (x g / z)
        d bias   = (g / z)ᵀ w

    Args:
      x: [M, D].
      table: [V, D].
      bias: [V].
      labels: int [M], rows of the table.

    Returns:
      float32 [M], in nats.
    """

    @ops.custom_gradient
    def cross_entropy(x: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        scores = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")  # [M, V]
        bias32 = ops.cast(bias, "float32")
        # Nothing is above this shift; so the bias needs no pass of its own over the scores.
        shift = ops.max(scores, axis=1, keepdims=True) + ops.max(bias32)  # [M, 1]
        e = ops.exp(scores + bias32 - shift)  # [M, V]
        z = ops.sum(e, axis=1)  # [M]
        if backend.standardize_dtype(x.dtype) == "float32":  # the scores are not read again
            of_label = ops.sum(x * ops.take(table, labels, axis=0), axis=1)  # [M]
        else:  # rounded as in the sum over all: otherwise the loss could fall below 0
            of_label = ops.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        of_label = of_label + ops.take(bias32, labels, axis=0)  # [M], the labels' logits

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> Tensor:
            g = arguments[0] if upstream is None else upstream  # [M]
            rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)
            cells = ops.stack([rows, labels], axis=1)  # [M, 2]
            at_label = ops.exp(of_label - shift[:, 0]) - z  # [M]
            w = ops.cast(ops.scatter_update(e, cells, at_label), x.dtype)  # [M, V]
            scale = ops.cast(g / z, x.dtype)[:, None]  # [M, 1]
            d_x = scale * ops.matmul(w, table)
            d_table = ops.matmul(ops.transpose(w), scale * x)
            d_bias = ops.matmul(ops.transpose(scale), w)[0]  # this way w need not be transposed
            return d_x, d_table, ops.cast(d_bias, bias.dtype)

        return ops.log(z) + shift[:, 0] - of_label, gradient

    return cross_entropy(x, table, bias)


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(BertLayer):
    """Logits from the pooled vector; weights [classes, D] as in the original.

    In float32 by default: it is little work, and close logits stay apart.
    """

    # That of the original's run_classifier.py and run_squad.py, whatever the configuration has.
    initializer_range = 0.02

    def __init__(self, config: Config, *, num_classes: int, dtype: Any = "float32", **kwargs: Any):
        super().__init__(config, dtype=dtype, **kwargs)
        check("num_classes", int(num_classes), int, low=1)  # NumPy's integers as well
        self.num_classes = num_classes

    def build(self, pooled_output_shape: Shape) -> None:
        """Makes weights and bias."""
        self.output_weights = self.add_weight(
            shape=(self.num_classes, pooled_output_shape[-1]),
            initializer=TruncatedNormal(stddev=self.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(self.num_classes,), initializer="zeros", name="output_bias"
        )

    def call(self, pooled_output: Tensor) -> Tensor:
        """pooled_output [..., D] -> logits [..., classes]."""
        weights = ops.transpose(ops.convert_to_tensor(self.output_weights))  # [D, classes]
        return ops.matmul(pooled_output, weights) + self.output_bias

    def compute_output_shape(self, pooled_output_shape: Shape) -> Shape:
        """[..., classes]."""
        return (*pooled_output_shape[:-1], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenClassifier(SequenceClassifier):
    """The same for each token: [B, S, D] -> [B, S, classes]; in SQuAD for start and end.

    A .weights.h5 names layers by their class, and so tells models of tokens from those of texts.
    """


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(SequenceClassifier):
    """Whether the second text follows the first: 2 classes, 0 = is next, 1 = random.

    Original: `get_next_sentence_output`.
    """

    def __init__(self, config: Config, name: str = "seq_relationship", **kwargs: Any):
        super().__init__(config, **{"num_classes": 2, **kwargs}, name=name)
        self.initializer_range = self.config.initializer_range


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(keras.layers.Layer):
    """Makes an example of every choice."""

    def call(self, x: Tensor) -> Tensor:
        """x [B, C, S] -> [B * C, S]."""
        return ops.reshape(x, (-1, ops.shape(x)[-1]))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B * C, S]."""
        return (None, x_shape[-1])
