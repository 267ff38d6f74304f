"""The layers of BERT, written with `keras.ops` alone: they run on every Keras backend.

Dimensions, here and in the whole project:

    B batch    S sequence    P predictions    D hidden    N heads    H head size, D = N * H
    F feed-forward    V vocabulary    T segment types

Layers and weights are named so that a variable's path is its name in the original's checkpoints,
less the leading `bert/`, `bert/encoder/` or `cls/` (see checkpoints.py).
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.tied_cross_entropy import tied_cross_entropy

MASKED_SCORE = -10000.0  # added to the attention scores of padding; finite, as in the original


def activation(name: str):
    """The function behind a `hidden_act`: gelu is the tanh form, gelu_erf the exact one."""
    return {
        "gelu": lambda x: ops.gelu(x, approximate=True),
        "gelu_erf": lambda x: ops.gelu(x, approximate=False),
        "relu": ops.relu,
        "tanh": ops.tanh,
        "linear": lambda x: x,
    }[name]


# ---------------------------------------------------------------------------- dropout

GOLDEN_RATIO = -0x61C88647  # 0x9E3779B9 as int32; spreads consecutive counters


@dataclasses.dataclass(frozen=True)
class DropoutKey:
    """What the dropout masks of one step depend on, beside the place in the model."""

    seed: Any  # int32 scalar made from the run's seed and the step
    first_row: Any  # int32 scalar: the place of this batch's row 0 in the global batch


_keys: list[DropoutKey] = []


@contextlib.contextmanager
def dropout_key(seed, first_row=0) -> Iterator[None]:
    """Within this context all dropout masks are a pure function of (seed, row, place in the model).

    The rows are counted through the global batch, so that masks do not depend on how the batch is
    spread over replicas or cut into micro-batches, and a resumed run draws the masks of an
    undisturbed one.

    Args:
      seed: int32 scalar, another one for each step.
      first_row: int32 scalar, the place in the global batch of row 0 of what the model is given.
    """
    _keys.append(DropoutKey(seed, first_row))
    try:
        yield
    finally:
        _keys.pop()


def mix(h):
    """The finalizer of MurmurHash3 on int32 tensors: every bit of `h` moves half of the result.

    int32 with wrapping products and masked shifts, since not every backend has uint32.
    """
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF)) * -0x7A143595
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 13), 0x7FFFF)) * -0x3D4D51CB
    return ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF))


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout whose mask is a hash of (seed, place in the model, row, element), not a state.

    Nothing is stored for the gradient and no generator runs: the mask is computed again where it
    is needed. Outside of `dropout_key` the seed comes from a Keras `SeedGenerator`, so that the
    layer works under `fit` too.
    """

    def __init__(self, rate: float, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.supports_masking = True
        self._seeds = keras.random.SeedGenerator() if rate else None

    def call(self, x, training=None):
        """x [B, ...] -> [B, ...]; in training a share `rate` is 0, the rest scaled up."""
        if not self.rate or not training:
            return x
        shape = ops.shape(x)
        row_shape = (1, *shape[1:])
        size = 1
        for dimension in shape[1:]:
            size *= dimension
        element = ops.reshape(ops.arange(size, dtype="int32") * GOLDEN_RATIO, row_shape)
        row = ops.reshape(self._row_keys(shape[0]), (shape[0],) + (1,) * (len(shape) - 1))
        # Less than `mix`, for speed: the row's key is well mixed, and only high bits are compared.
        h = ops.bitwise_xor(element, row) * -0x7A143595
        h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 15), 0x1FFFF)) * -0x3D4D51CB
        keep = h >= int((self.rate - 0.5) * 2**32)
        return ops.where(keep, x / (1.0 - self.rate), ops.zeros_like(x))

    def _row_keys(self, num_rows):
        if _keys:
            seed, first_row = _keys[-1].seed, _keys[-1].first_row
        else:
            own, calls = ops.unstack(ops.cast(self._seeds.next(), "int32"), 2)
            seed, first_row = ops.bitwise_xor(mix(calls * GOLDEN_RATIO), own), 0
        place = zlib.crc32(self.path.encode()) - 2**31
        site = mix(ops.bitwise_xor(ops.convert_to_tensor(seed, "int32"), place))
        rows = ops.arange(num_rows, dtype="int32") + first_row  # [B]
        return mix(ops.bitwise_xor(rows * GOLDEN_RATIO, site))

    def compute_output_shape(self, input_shape):
        """The shape of the input."""
        return input_shape

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}


# ---------------------------------------------------------------------------- building blocks


def _initializer(config: BertConfig):
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class _Dense(keras.layers.Dense):
    """A dense layer that works on one matrix of all rows: half the cost of batched products."""

    def call(self, x):
        """x [..., in] -> [..., units]."""
        shape = ops.shape(x)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(super().call(rows), (*shape[:-1], self.units))


class _Layer(keras.layers.Layer):
    """A layer whose sizes are those of a `BertConfig`; it is serialized with the configuration."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)

    def dense(self, units: int, name: str = "dense") -> _Dense:
        """A dense layer with BERT's initializer, of this layer's dtype."""
        kernel = _initializer(self.config)
        return _Dense(units, kernel_initializer=kernel, dtype=self.dtype_policy, name=name)

    def layer_norm(self) -> keras.layers.LayerNormalization:
        """Layer normalization with BERT's epsilon (Keras's own default is 1e-3)."""
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    def dropout_layer(self, rate: float) -> Dropout:
        """Dropout of this layer's dtype."""
        return Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict()}

    def compute_output_shape(self, x_shape, *_):
        """The shape of the first input, with D at its end."""
        return (*x_shape[:-1], self.config.hidden_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(_Layer):
    """Word + segment + position embeddings, normalized (original: `embedding_postprocessor`)."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.norm = self.layer_norm()
        self.dropout = self.dropout_layer(self.config.hidden_dropout_prob)

    def build(self, input_ids_shape, segment_ids_shape=None):
        """Makes the three tables and the normalization."""
        init = _initializer(self.config)

        def table(rows: int, name: str):
            return self.add_weight(
                shape=(rows, self.config.hidden_size), initializer=init, name=name
            )

        self.word_embeddings = table(self.config.vocab_size, "word_embeddings")  # [V, D]
        self.token_type_embeddings = table(self.config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(self.config.max_position_embeddings, "position_embeddings")
        self.norm.build((*input_ids_shape, self.config.hidden_size))
        self.dropout.build((*input_ids_shape, self.config.hidden_size))

    def call(self, input_ids, segment_ids, training=None):
        """input_ids, segment_ids int [B, S] -> (embeddings [B, S, D], word table [V, D]).

        The table is an output because the masked-LM head is tied to it: what is read inside `call`
        takes part in the gradient, what a functional model reads while it is built does not.
        """
        length = ops.shape(input_ids)[1]
        longest = self.config.max_position_embeddings
        if isinstance(length, int) and length > longest:
            raise ValueError(f"received sequences of {length}, expected at most {longest}")
        words = ops.copy(self.word_embeddings)  # the value, not the variable: for custom gradients
        x = ops.take(words, input_ids, axis=0)  # [B, S, D]
        # A product with one-hot rows: a gradient without scatter, for the two or so types.
        types = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.compute_dtype)
        x += ops.matmul(types, ops.convert_to_tensor(self.token_type_embeddings))  # [B, S, D]
        x += ops.convert_to_tensor(self.position_embeddings)[:length]  # [S, D] to each row
        return self.dropout(self.norm(x), training=training), words

    def compute_output_shape(self, input_ids_shape, segment_ids_shape=None):
        """The shapes of embeddings and table."""
        hidden = self.config.hidden_size
        return (*input_ids_shape, hidden), (self.config.vocab_size, hidden)


@keras.saving.register_keras_serializable(package="bert_tf")
class AttentionMask(keras.layers.Layer):
    """The mask of real tokens as scores to add: 0 for them, -10000 for padding."""

    def call(self, input_mask):
        """input_mask int [B, S] -> [B, 1, 1, S]."""
        mask = ops.cast(input_mask, self.compute_dtype)[:, None, None, :]
        return (1.0 - mask) * MASKED_SCORE


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(_Layer):
    """Scaled dot-product attention of N heads (paper, section 3; original: `attention_layer`)."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.query = self.dense(self.config.hidden_size, "query")
        self.key = self.dense(self.config.hidden_size, "key")
        self.value = self.dense(self.config.hidden_size, "value")
        self.dropout = self.dropout_layer(self.config.attention_probs_dropout_prob)

    def build(self, x_shape, mask_scores_shape=None):
        """Makes the three projections."""
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        self.dropout.build(x_shape)

    def call(self, x, mask_scores, training=None):
        """x [B, S, D], mask_scores [B, 1, 1, S] -> context [B, S, D]."""
        batch, length, hidden = ops.shape(x)
        heads = self.config.num_attention_heads

        def split(y):  # [B, S, D] -> [B, N, S, H]
            y = ops.reshape(y, (batch, length, heads, hidden // heads))
            return ops.transpose(y, (0, 2, 1, 3))

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scale = (hidden // heads) ** -0.5
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * scale  # [B, N, S, S]
        scores = ops.cast(scores + mask_scores, "float32")
        probabilities = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
        probabilities = self.dropout(probabilities, training=training)
        context = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(context, (batch, length, hidden))  # [B, S, D]


@keras.saving.register_keras_serializable(package="bert_tf")
class AddAndNorm(_Layer):
    """norm(residual + dropout(dense(x))), the end of both halves of an encoder block."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.hidden_size)
        self.dropout = self.dropout_layer(self.config.hidden_dropout_prob)
        self.norm = self.layer_norm()

    def build(self, x_shape, residual_shape=None):
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.dropout.build(x_shape)
        self.norm.build((*x_shape[:-1], self.config.hidden_size))

    def call(self, x, residual, training=None):
        """x [B, S, D or F], residual [B, S, D] -> [B, S, D]."""
        return self.norm(residual + self.dropout(self.projection(x), training=training))


@keras.saving.register_keras_serializable(package="bert_tf")
class Intermediate(_Layer):
    """activation(dense(x)): the wide half of the feed-forward network."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.intermediate_size)

    def build(self, x_shape):
        """Makes the projection."""
        self.projection.build(x_shape)

    def call(self, x):
        """x [..., D] -> [..., F]."""
        return activation(self.config.hidden_act)(self.projection(x))

    def compute_output_shape(self, x_shape):
        """The shape of x with F at its end."""
        return (*x_shape[:-1], self.config.intermediate_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class Attention(_Layer):
    """Self-attention, its projection, residual and normalization: half an encoder block."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.self_attention = SelfAttention(self.config, dtype=self.dtype_policy, name="self")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape, mask_scores_shape=None):
        """Builds both parts."""
        self.self_attention.build(x_shape, mask_scores_shape)
        self.add_and_norm.build(x_shape, x_shape)

    def call(self, x, mask_scores, training=None):
        """x [B, S, D], mask_scores [B, 1, 1, S] -> [B, S, D]."""
        context = self.self_attention(x, mask_scores, training=training)
        return self.add_and_norm(context, x, training=training)


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(_Layer):
    """One Transformer block, normalized after each half (original: `transformer_model`)."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.attention = Attention(self.config, dtype=self.dtype_policy, name="attention")
        self.intermediate = Intermediate(self.config, dtype=self.dtype_policy, name="intermediate")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape, mask_scores_shape=None):
        """Builds the three parts."""
        self.attention.build(x_shape, mask_scores_shape)
        self.intermediate.build(x_shape)
        self.add_and_norm.build((*x_shape[:-1], self.config.intermediate_size), x_shape)

    def call(self, x, mask_scores, training=None):
        """x [B, S, D], mask_scores [B, 1, 1, S] -> [B, S, D]."""
        x = self.attention(x, mask_scores, training=training)
        wide = self.intermediate(x)  # [B, S, F]
        return self.add_and_norm(wide, x, training=training)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(_Layer):
    """tanh(dense(first token)): one vector for the sequence (original: `BertModel`)."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.hidden_size)

    def build(self, sequence_output_shape):
        """Makes the projection."""
        self.projection.build((sequence_output_shape[0], sequence_output_shape[-1]))

    def call(self, sequence_output):
        """sequence_output [B, S, D] -> [B, D]."""
        return ops.tanh(self.projection(sequence_output[:, 0]))

    def compute_output_shape(self, sequence_output_shape):
        """[B, D]."""
        return (sequence_output_shape[0], self.config.hidden_size)


# ---------------------------------------------------------------------------- heads


@keras.saving.register_keras_serializable(package="bert_tf")
class Transform(_Layer):
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
class MaskedLmHead(_Layer):
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
class SequenceClassifier(_Layer):
    """Logits from the pooled vector; weights [classes, D] as the original stores them.

    Next-sentence prediction uses it with 2 classes, 0 = is next (`get_next_sentence_output`).
    """

    def __init__(self, config: BertConfig | dict[str, Any], *, num_classes: int, **kwargs):
        super().__init__(config, **kwargs)
        self.num_classes = num_classes

    def build(self, pooled_output_shape):
        """Makes weights and bias."""
        self.output_weights = self.add_weight(
            shape=(self.num_classes, pooled_output_shape[-1]),
            initializer=_initializer(self.config),
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
        return {**super().get_config(), "num_classes": self.num_classes}


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
