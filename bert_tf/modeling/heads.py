"""The heads of BERT, in `keras.ops` alone; dimensions and names as in layers.py.

masked tokens     [B, S, D] -> [B, P, V]
sequences         [B, D]    -> [B, classes]     next sentence, sentence tasks, multiple choice
tokens            [B, S, D] -> [B, S, classes]  tags, answer starts and ends
"""

import operator
from typing import Any

import keras
from keras import backend, ops
from keras.initializers import TruncatedNormal

from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.modeling.layers import ACTIVATIONS, BertLayer, Embeddings, Shape, Tensor


@keras.saving.register_keras_serializable(package="bert_tf")
class Transform(BertLayer):
    """norm(activation(dense(x))), before the masked-LM head's vocabulary projection."""

    takes = ("hidden_size", "activation", "initializer_range", "layer_norm_eps")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.projection = self.dense(self.hidden_size)
        self.norm = self.layer_norm()

    def build(self, x_shape: Shape) -> None:
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.norm.build((*x_shape[:-1], self.hidden_size))

    def call(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]."""
        return self.norm(ACTIVATIONS[self.activation](self.projection(x)))


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLmHead(BertLayer):
    """Predicts the masked tokens (paper, section 3.1; original: `get_masked_lm_output`).

        logits = MaskedLmHead(embeddings=embeddings)(x, masked_lm_positions)        [B, P, V]

    The vocabulary projection is the word-embedding table; only masked positions are projected. In
    a causal model each is predicted from the token before it.
    """

    gives_logits = True
    takes = (*Transform.takes, "causal")

    def __init__(
        self,
        hidden_size: int | None = None,
        activation: str = "gelu",
        *,
        embeddings: Embeddings | None = None,
        causal: bool = False,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        name: str = "predictions",
        **kwargs: Any,
    ):
        """With new weights, but for the table.

        Args:
          hidden_size: D; that of `embeddings` unless given.
          activation: as of `EncoderBlock`.
          embeddings: the layer to whose table the head is tied, where calls give no word_table.
          causal: whether the model is.
          initializer_range, layer_norm_eps: as of `EncoderBlock`.
          name: part of the weights' names in checkpoints.
          **kwargs: as of Keras's layers.
        """
        super().__init__(
            hidden_size=hidden_size or getattr(embeddings, "hidden_size", None),
            activation=activation,
            causal=causal,
            initializer_range=initializer_range,
            layer_norm_eps=layer_norm_eps,
            name=name,
            **kwargs,
        )
        self.transform = self.part(Transform, "transform")
        self._embeddings = lambda: embeddings  # no part of this layer: its weights are another's

    def __call__(self, sequence_output, masked_lm_positions, word_table=None, *args, **kwargs):
        """As `call`; without a table that of `embeddings`, also in files and copies of a model."""
        if word_table is None:
            word_table = self._own_table(sequence_output)
        given = (sequence_output, masked_lm_positions, word_table, *args)
        return super().__call__(*given, **kwargs)

    def _own_table(self, x: Tensor) -> Tensor:
        embeddings = self._embeddings()
        if embeddings is None or not embeddings.built:
            received = f"{self.name}, a head without embeddings that have been called"
            remedy = "give MaskedLmHead(embeddings=layer), or a word_table [V, D]"
            raise InputError(received, "the table that it is tied to", remedy)
        if not isinstance(x, keras.KerasTensor):
            return ops.copy(embeddings.word_embeddings)
        todo, seen = [x], set()  # of a functional model, in which the table is a tensor, too
        while todo:
            history = todo.pop()._keras_history
            made = history.operation._inbound_nodes[history.node_index]
            if history.operation is embeddings:
                arguments = {**made.arguments.kwargs, "with_table": "only"}
                return embeddings(*made.arguments.args, **arguments)
            todo += [] if made in seen else made.input_tensors
            seen.add(made)
        received = f"{self.name} on a tensor that is not made of its embeddings"
        remedy = "call them in this model, or give a word_table"
        raise InputError(received, "their vectors", remedy)

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
            shape=(word_table_shape[0],), initializer="zeros", name="output_bias"
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
        if self.causal:
            masked_lm_positions = ops.maximum(masked_lm_positions - 1, 0)
        num_predictions = ops.shape(masked_lm_positions)[1]
        row_starts = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
        flat_positions = ops.reshape(masked_lm_positions + row_starts, (-1,))  # [B * P]
        x = ops.take(ops.reshape(sequence_output, (-1, hidden)), flat_positions, axis=0)
        x = self.transform(x)  # [B * P, D]
        bias = ops.copy(self.output_bias)
        logits = ops.matmul(x, ops.transpose(word_table)) + bias  # [B * P, V]
        logits = ops.reshape(logits, (batch, num_predictions, ops.shape(word_table)[0]))
        if masked_lm_ids is None:
            return logits
        losses = tied_cross_entropy(x, word_table, bias, ops.reshape(masked_lm_ids, (-1,)))
        return logits, ops.reshape(losses, (batch, num_predictions))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor) -> None:
        """None: a prediction has no padding."""

    def compute_output_spec(self, sequence_output, positions, word_table, masked_lm_ids=None):
        """[B, P, V], or that and [B, P]."""
        logits = (*positions.shape, word_table.shape[0])
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

        logits = SequenceClassifier(num_classes=3)(pooled)       [B, D] -> [B, 3]

    In float32 by default: it is little work, and close logits stay apart. The initializer's range
    is that of the original's run_classifier.py and run_squad.py, whatever the configuration has.
    """

    gives_logits = True  # for `BertModel.compile`

    def __init__(self, num_classes: int, *, dtype: Any = "float32", **kwargs: Any):
        super().__init__(dtype=dtype, **kwargs)
        self.num_classes = operator.index(num_classes)  # NumPy's integers as well
        check("num_classes", self.num_classes, int, low=1)

    def build(self, pooled_output_shape: Shape) -> None:
        """Makes weights and bias."""
        self.output_weights = self.add_weight(
            shape=(self.num_classes, pooled_output_shape[-1]),
            initializer=TruncatedNormal(stddev=self.sizes.get("initializer_range", 0.02)),
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
    """The same for each token: [B, S, D] -> [B, S, classes]; in SQuAD for start and end."""


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(SequenceClassifier):
    """Whether the second text follows the first: 2 classes, 0 = is next, 1 = random.

    Original: `get_next_sentence_output`.
    """

    takes = ("initializer_range",)

    def __init__(
        self,
        num_classes: int = 2,
        *,
        initializer_range: float = 0.02,
        name: str = "seq_relationship",
        **kwargs: Any,
    ):
        super().__init__(num_classes, initializer_range=initializer_range, name=name, **kwargs)


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(keras.layers.Layer):
    """Makes an example of every choice."""

    def call(self, x: Tensor) -> Tensor:
        """x [B, C, S] -> [B * C, S]."""
        return ops.reshape(x, (-1, ops.shape(x)[-1]))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B * C, S]."""
        return (None, x_shape[-1])
