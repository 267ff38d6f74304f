"""The layers of BERT's heads, in Keras alone; dimensions and names as in layers.py.

MaskedLmHead        [B, S, D] -> [B, P, V]        masked tokens
SequenceClassifier  [B, D]    -> [B, classes]     sentence tasks, multiple choice
NextSentenceHead    [B, D]    -> [B, 2]           next sentence
TokenClassifier     [B, S, D] -> [B, S, classes]  tags, answer starts and ends

Models and losses that use them: bert_tf/heads.
"""

from collections.abc import Callable
from typing import Any, Self

import keras
from keras import backend, ops
from keras.initializers import TruncatedNormal

from bert_tf.config import ACTIVATIONS as ACTIVATION_NAMES
from bert_tf.config import BertConfig
from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.modeling.base import BertLayer, checked_scale, checked_size
from bert_tf.modeling.layers import ACTIVATIONS, Embeddings, Shape, Tensor


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLmHead(BertLayer):
    """Predicts the masked tokens (section 3.1, task 1).

        head = MaskedLmHead(embeddings=embeddings)
        logits = head(x, masked_lm_positions)        [B, S, D], int [B, P] -> [B, P, V]

    Only the vectors at masked positions are projected to the vocabulary, by the table of the word
    embeddings. norm(activation(dense(x))) before it is in the original's code, not in the paper. A
    causal model predicts each token from the one before it.

    The head refers to its embeddings without owning them: the model that has them as a layer trains
    and saves them. A copy of the head, made from its configuration, has none until `tie` is called;
    `BertModel` calls it for clones and loaded files.

    Original: `get_masked_lm_output`.
    """

    def __init__(
        self,
        hidden_size: int | None = None,
        activation: str = "gelu",
        *,
        embeddings: Embeddings | None = None,
        vocab_size: int | None = None,
        causal: bool = False,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        **kwargs: Any,
    ):
        """Makes the inner layers; `build` makes their weights.

        Args:
          hidden_size: D; None: that of `embeddings`.
          activation: see `EncoderBlock`.
          embeddings: the layer to whose table the head is tied; None: `tie` is called later.
          vocab_size: V; None: that of `embeddings`.
          causal: whether the encoder is causal.
          initializer_range, layer_norm_eps: see `EncoderBlock`.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: a size is missing or is not that of the embeddings, or as `EncoderBlock`.
        """
        super().__init__(**kwargs)
        # A closure hides the layer from Keras, which would save it as a part of this one.
        self._embeddings: Callable[[], Embeddings | None] = lambda: None
        if embeddings is not None:
            hidden_size = embeddings.hidden_size if hidden_size is None else hidden_size
            vocab_size = embeddings.vocab_size if vocab_size is None else vocab_size
        self.hidden_size = checked_size("hidden_size", hidden_size)
        self.vocab_size = checked_size("vocab_size", vocab_size)
        check("activation", activation, str, choices=ACTIVATION_NAMES)
        self.activation = activation
        self.causal = causal
        self.initializer_range = checked_scale("initializer_range", initializer_range)
        self.layer_norm_eps = checked_scale("layer_norm_eps", layer_norm_eps)
        if embeddings is not None:
            self.tie(embeddings)
        self.projection = self.make_dense(self.hidden_size)
        self.norm = self.make_layer_norm()

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes and the name of a configuration's model."""
        arguments: dict[str, Any] = {
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "activation": config.hidden_act,
            "causal": config.is_causal,
            "initializer_range": config.initializer_range,
            "layer_norm_eps": config.layer_norm_eps,
            "name": "predictions",
        }
        return cls(**arguments | kwargs)

    def tie(self, embeddings: Embeddings) -> None:
        """Uses the word table of a layer as the projection.

        Raises:
          InputError: the table has another size than the head.
        """
        vocab_size = embeddings.vocab_size
        hidden_size = embeddings.hidden_size
        if (vocab_size, hidden_size) != (self.vocab_size, self.hidden_size):
            received = f"embeddings of {vocab_size} word pieces and hidden_size {hidden_size}"
            expected = f"{self.vocab_size} and {self.hidden_size}, the sizes of {self.name}"
            raise InputError(received, expected, "give the embeddings of the same model")
        self._embeddings = lambda: embeddings

    @property
    def tied_to(self) -> Embeddings | None:
        """The embeddings whose table the head uses; None if it is tied to none."""
        return self._embeddings()

    def build(
        self, sequence_output_shape: Shape, masked_lm_positions_shape: Shape | None = None
    ) -> None:
        """Makes the transform and a bias for each word piece."""
        with keras.name_scope("transform"):
            self.projection.build(sequence_output_shape)
            self.norm.build(sequence_output_shape)
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", name="output_bias"
        )  # [V]

    def call(self, sequence_output, masked_lm_positions, masked_lm_ids=None):
        """Computes logits; with labels also losses.

        Args:
          sequence_output: [B, S, D].
          masked_lm_positions: int [B, P]. A position outside of the row is an error on CPUs; on
            accelerators and under XLA, which report no such errors, its vector is 0.
          masked_lm_ids: int [B, P], or None.

        Returns:
          logits [B, P, V]; with masked_lm_ids (logits, losses float32 [B, P]). A compiled function
          computes only those that it uses.

        Raises:
          InputError: the head is tied to no embeddings.
        """
        table = self._table()  # [V, D]
        x = self._gathered(sequence_output, masked_lm_positions)  # [B * P, D]
        x = self.norm(ACTIVATIONS[self.activation](self.projection(x)))  # [B * P, D]
        bias = ops.copy(self.output_bias)
        logits = ops.matmul(x, ops.transpose(table)) + bias  # [B * P, V]
        predictions = ops.shape(masked_lm_positions)  # [B, P]
        logits = ops.reshape(logits, (*predictions, self.vocab_size))  # [B, P, V]
        if masked_lm_ids is None:
            return logits
        losses = tied_cross_entropy(x, table, bias, ops.reshape(masked_lm_ids, (-1,)))
        return logits, ops.reshape(losses, predictions)

    def _table(self) -> Tensor:
        """The word table [V, D] as a tensor of this call, so that gradients reach the variable."""
        embeddings = self._embeddings()
        if embeddings is None or not embeddings.built:
            received = f"{self.name}, a head that is tied to no embeddings that have been called"
            remedy = (
                f"call {self.name}.tie(embeddings) with the Embeddings layer of the model; "
                "clones and loaded files of a BertModel are tied by themselves"
            )
            raise InputError(received, "the word table that it projects to", remedy)
        return ops.cast(ops.copy(embeddings.word_embeddings), self.compute_dtype)

    def _gathered(self, sequence_output: Tensor, positions: Tensor) -> Tensor:
        """The vectors that tokens are predicted from: [B, S, D], [B, P] -> [B * P, D]."""
        batch, length, hidden = ops.shape(sequence_output)
        positions = ops.cast(positions, "int32")  # Keras builds loaded models with floats
        if self.causal:
            positions = ops.maximum(positions - 1, 0)
        is_inside = ops.logical_and(positions >= 0, positions < length)  # [B, P]
        row_starts = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
        # A position outside of its row must not read another row. It gets an index beyond the last
        # row: CPUs refuse it, elsewhere the vector is set to 0 below.
        indices = ops.where(is_inside, positions + row_starts, batch * length)  # [B, P]
        x = ops.reshape(sequence_output, (-1, hidden))  # [B * S, D]
        x = ops.take(x, ops.reshape(indices, (-1,)), axis=0)  # [B * P, D]
        return ops.where(ops.reshape(is_inside, (-1, 1)), x, ops.cast(0, x.dtype))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor) -> None:
        """None: a prediction has no padding."""

    def compute_output_shape(
        self, sequence_output_shape: Shape, masked_lm_positions_shape: Shape | None = None
    ) -> Shape:
        """[B, P, V]."""
        predictions = masked_lm_positions_shape or (sequence_output_shape[0], None)
        return (*predictions, self.vocab_size)

    def compute_output_spec(self, sequence_output, masked_lm_positions, masked_lm_ids=None):
        """[B, P, V]; with labels also [B, P]."""
        shape = masked_lm_positions.shape  # [B, P]
        logits = keras.KerasTensor((*shape, self.vocab_size), dtype=self.compute_dtype)
        losses = keras.KerasTensor(shape, dtype="float32")
        return logits if masked_lm_ids is None else (logits, losses)


def tied_cross_entropy(x: Tensor, table: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of softmax(x tableᵀ + bias) against labels, in one pass over the logits.

    The logits [M, V] are the largest tensor of pre-training, so the soft-max is never made. The
    forward pass keeps e = exp(logits - shift) and z, the sum of each row of e; the soft-max is e/z.
    Let w be e with z subtracted at each row's label: w / z is the soft-max minus the one-hot label.
    g [M] is the incoming gradient; to divide it by z is cheaper than to divide w:

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
    def cross_entropy(x: Tensor, table: Tensor, bias: Tensor) -> tuple:
        scores = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")  # [M, V]
        bias32 = ops.cast(bias, "float32")
        # An upper bound of the logits; their maximum would take another pass, with the bias.
        shift = ops.max(scores, axis=1, keepdims=True) + ops.max(bias32)  # [M, 1]
        e = ops.exp(scores + bias32 - shift)  # [M, V]
        z = ops.sum(e, axis=1)  # [M]
        if backend.standardize_dtype(x.dtype) == "float32":  # does not read the scores again
            label_logits = ops.sum(x * ops.take(table, labels, axis=0), axis=1)  # [M]
        else:  # rounded as in z: otherwise a loss could fall below 0
            label_logits = ops.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        label_logits = label_logits + ops.take(bias32, labels, axis=0)  # [M]

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> Tensor:
            # TensorFlow passes the gradient by name, other backends by position.
            g = arguments[0] if upstream is None else upstream  # [M]
            rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)
            cells = ops.stack([rows, labels], axis=1)  # [M, 2]
            label_weights = ops.exp(label_logits - shift[:, 0]) - z  # [M]
            w = ops.cast(ops.scatter_update(e, cells, label_weights), x.dtype)  # [M, V]
            scale = ops.cast(g / z, x.dtype)[:, None]  # [M, 1]
            d_x = scale * ops.matmul(w, table)  # [M, D]
            d_table = ops.matmul(ops.transpose(w), scale * x)  # [V, D]
            d_bias = ops.matmul(ops.transpose(scale), w)[0]  # [V]; w need not be transposed
            return d_x, d_table, ops.cast(d_bias, bias.dtype)

        return ops.log(z) + shift[:, 0] - label_logits, gradient

    return cross_entropy(x, table, bias)


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(BertLayer):
    """Logits from the pooled vector (section 4.1); weights [classes, D] as in the original.

        logits = SequenceClassifier(num_classes=3)(pooled)       [B, D] -> [B, 3]

    It computes in float32 by default: this is little work, and keeps close logits apart. The
    initializer's range is that of the original's run_classifier.py and run_squad.py, which do not
    read it from the configuration.
    """

    def __init__(
        self,
        num_classes: int,
        initializer_range: float = 0.02,
        *,
        dtype: Any = "float32",
        **kwargs: Any,
    ):
        """Stores the sizes; `build` makes the weights.

        Args:
          num_classes: the number of classes of the task.
          initializer_range: see `Embeddings`.
          dtype: the dtype policy, as for Keras's layers.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: there are no classes.
        """
        super().__init__(dtype=dtype, **kwargs)
        self.num_classes = checked_size("num_classes", num_classes)
        self.initializer_range = checked_scale("initializer_range", initializer_range)

    def build(self, x_shape: Shape) -> None:
        """Makes weights and bias."""
        self.output_weights = self.add_weight(
            shape=(self.num_classes, x_shape[-1]),
            initializer=TruncatedNormal(stddev=self.initializer_range),
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(self.num_classes,), initializer="zeros", name="output_bias"
        )

    def call(self, x: Tensor) -> Tensor:
        """x [..., D] -> logits [..., classes]."""
        weights = ops.transpose(ops.convert_to_tensor(self.output_weights))  # [D, classes]
        return ops.matmul(x, weights) + self.output_bias

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[..., classes]."""
        return (*x_shape[:-1], self.num_classes)


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenClassifier(SequenceClassifier):
    """Logits for each token, [B, S, D] -> [B, S, classes]; the classes of SQuAD: start, end."""


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(SequenceClassifier):
    """Whether the second text follows the first: 2 classes, 0 = is next, 1 = random.

        logits = NextSentenceHead()(pooled)                      [B, D] -> [B, 2]

    Section 3.1, task 2. Original: `get_next_sentence_output`.
    """

    def __init__(self, num_classes: int = 2, initializer_range: float = 0.02, **kwargs: Any):
        super().__init__(num_classes, initializer_range, **kwargs)

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the initializer and the name of a configuration's model."""
        arguments: dict[str, Any] = {
            "initializer_range": config.initializer_range,
            "name": "seq_relationship",
        }
        return cls(**arguments | kwargs)


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(keras.layers.Layer):
    """Makes each choice of an example a row of the batch (section 4.4)."""

    def call(self, x: Tensor) -> Tensor:
        """x [B, C, S] -> [B * C, S]."""
        return ops.reshape(x, (-1, ops.shape(x)[-1]))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B * C, S]."""
        batch, choices, length = x_shape
        if batch is None or choices is None:
            return (None, length)
        return (batch * choices, length)

    def compute_output_spec(self, x: Tensor) -> keras.KerasTensor:
        """[B * C, S] of the same type, such as ids."""
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=x.dtype)
