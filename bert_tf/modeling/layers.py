"""The layers of BERT, up to its pooler; in `keras.ops` alone, so they run on every backend.

    x = Embeddings(config)(input_ids, segment_ids)                           [B, S, D]
    x = EncoderBlock(config, name="layer_0")(x, padding_mask=input_mask)     [B, S, D]
    pooled = Pooler(config)(x)                                               [B, D]

Dimensions, here and in the whole project:

    B batch    S sequence    P predictions    D hidden    N heads    H head size, D = N * H
    F feed-forward    V vocabulary    T segment types

Layers and weights are named so that a variable's path is its name in the original's checkpoints,
less the leading `bert/`, `bert/encoder/` or `cls/` (checkpoints/tf1.py).
"""

from typing import Any

import keras
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import BertConfig
from bert_tf.modeling.base import BertLayer, activation
from bert_tf.modeling.dropout import recomputed

MASKED_SCORE = -10000.0  # added to the attention scores of padding; finite, as in the original


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention of N heads (paper, section 3; original: `attention_layer`).

    With `recompute` the probabilities, S * S of each head, are not kept for the gradient but
    computed again from query and key: one product of the six that attention takes is made twice.
    """

    recompute = False  # set by `TrainingStep`

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.query = self.dense(self.config.hidden_size, "query")
        self.key = self.dense(self.config.hidden_size, "key")
        self.value = self.dense(self.config.hidden_size, "value")
        self.dropout = self.dropout_layer(self.config.attention_probs_dropout_prob)

    def build(self, x_shape, padding_mask_shape=None):
        """Makes the three projections."""
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        self.dropout.build(x_shape)

    def call(self, x, padding_mask=None, training=None):
        """x [B, S, D], padding_mask [B, S], 0 for padding -> context [B, S, D]."""
        batch, length, hidden = ops.shape(x)
        heads = self.config.num_attention_heads
        mask_scores = self._mask_scores(padding_mask, batch, length)

        def split(y):  # [B, S, D] -> [B, N, S, H]
            y = ops.reshape(y, (batch, length, heads, hidden // heads))
            return ops.transpose(y, (0, 2, 1, 3))

        def attend(query, key, value):  # [B, N, S, H] each -> [B, N, S, H]
            scale = (hidden // heads) ** -0.5
            scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * scale  # [B, N, S, S]
            scores = ops.cast(scores, "float32") + mask_scores
            probabilities = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
            return ops.matmul(self.dropout(probabilities, training=training), value)

        parts = split(self.query(x)), split(self.key(x)), split(self.value(x))
        context = recomputed(attend, *parts) if self.recompute and training else attend(*parts)
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(context, (batch, length, hidden))  # [B, S, D]

    def _mask_scores(self, padding_mask, batch, length):
        """0 for word pieces, -10000 for padding: float32 [B, 1, 1, S]."""
        if padding_mask is None:
            return 0.0
        mask = ops.cast(padding_mask, "float32")
        # Not broadcast: with another shape, which only a running graph may know, one of both fails.
        mask = ops.maximum(mask, ops.reshape(mask, (batch, length)))
        return ((1.0 - mask) * MASKED_SCORE)[:, None, None, :]


@keras.saving.register_keras_serializable(package="bert_tf")
class Attention(BertLayer):
    """Self-attention, its projection, residual and normalization: half an encoder block."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.self_attention = SelfAttention(self.config, dtype=self.dtype_policy, name="self")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape, padding_mask_shape=None):
        """Builds both parts."""
        self.self_attention.build(x_shape, padding_mask_shape)
        self.add_and_norm.build(x_shape, x_shape)

    def call(self, x, padding_mask=None, training=None):
        """x [B, S, D], padding_mask [B, S], 0 for padding -> [B, S, D]."""
        context = self.self_attention(x, padding_mask, training=training)
        return self.add_and_norm(context, x, training=training)


@keras.saving.register_keras_serializable(package="bert_tf")
class AddAndNorm(BertLayer):
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
class Intermediate(BertLayer):
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
class EncoderBlock(BertLayer):
    """One Transformer block, normalized after each half (original: `transformer_model`).

    Called with x [B, S, D] and padding_mask int [B, S], 1 for word pieces and 0 for padding, as
    `input_mask`; without a mask there is no padding.

    With `recompute` it keeps its input alone for the gradient, and computes again what else the
    backward pass needs: some 20 tensors as large as its input, of one block at a time. The work is
    a third more. Dropout masks are hashes of places (dropout.py), so the second pass draws those of
    the first.
    """

    recompute = False  # set by `TrainingStep`

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        self.attention = Attention(self.config, dtype=self.dtype_policy, name="attention")
        self.intermediate = Intermediate(self.config, dtype=self.dtype_policy, name="intermediate")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape, padding_mask_shape=None):
        """Builds the three parts."""
        self.attention.build(x_shape, padding_mask_shape)
        self.intermediate.build(x_shape)
        self.add_and_norm.build((*x_shape[:-1], self.config.intermediate_size), x_shape)

    def call(self, x, padding_mask=None, training=None):
        """x [B, S, D], padding_mask [B, S], 0 for padding -> [B, S, D]."""

        def block(x):
            x = self.attention(x, padding_mask, training=training)
            wide = self.intermediate(x)  # [B, S, F]
            return self.add_and_norm(wide, x, training=training)

        return recomputed(block, x) if self.recompute and training else block(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(BertLayer):
    """Word + segment + position embeddings, normalized (original: `embedding_postprocessor`)."""

    def __init__(self, config: BertConfig | dict[str, Any], name: str = "embeddings", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.norm = self.layer_norm()
        self.dropout = self.dropout_layer(self.config.hidden_dropout_prob)

    def build(self, input_ids_shape, segment_ids_shape=None):
        """Makes the three tables and the normalization."""
        init = TruncatedNormal(stddev=self.config.initializer_range)

        def table(rows: int, name: str):
            # In float32 whatever the layer computes in: many gradients of one row are added up.
            shape = (rows, self.config.hidden_size)
            return self.add_weight(shape=shape, initializer=init, autocast=False, name=name)

        self.word_embeddings = table(self.config.vocab_size, "word_embeddings")  # [V, D]
        self.token_type_embeddings = table(self.config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(self.config.max_position_embeddings, "position_embeddings")
        self.norm.build((*input_ids_shape, self.config.hidden_size))
        self.dropout.build((*input_ids_shape, self.config.hidden_size))

    def call(self, input_ids, segment_ids, training=None, with_table=False):
        """input_ids, segment_ids int [B, S] -> embeddings [B, S, D].

        With `with_table` -> (embeddings, word table [V, D]), for a head that is tied to the table:
        only what is read inside `call` takes part in the gradient, not what a functional model
        reads while it is built.
        """
        length = ops.shape(input_ids)[1]
        longest = self.config.max_position_embeddings
        if isinstance(length, int) and length > longest:
            raise ValueError(f"received sequences of {length}, expected at most {longest}")
        words = ops.copy(self.word_embeddings)  # the value, not the variable: for custom gradients
        x = ops.take(words, input_ids, axis=0)  # [B, S, D]
        # A product with one-hot rows: a gradient without scatter, for the two or so types.
        segment_ids = ops.stack([input_ids, segment_ids])[1]  # of one shape, or this fails
        types = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.variable_dtype)
        x += ops.matmul(types, ops.convert_to_tensor(self.token_type_embeddings))  # [B, S, D]
        x += ops.convert_to_tensor(self.position_embeddings)[:length]  # [S, D] to each row
        x = self.dropout(self.norm(x), training=training)
        return (x, words) if with_table else x

    def compute_output_spec(self, input_ids, segment_ids, training=None, with_table=False):
        """[B, S, D], or that and [V, D]."""
        hidden = self.config.hidden_size
        x = keras.KerasTensor((*input_ids.shape, hidden), dtype=self.compute_dtype)
        table = keras.KerasTensor((self.config.vocab_size, hidden), dtype=self.variable_dtype)
        return (x, table) if with_table else x


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """tanh(dense(first token)): one vector for the sequence (original: `BertModel`)."""

    def __init__(self, config: BertConfig | dict[str, Any], name: str = "pooler", **kwargs):
        super().__init__(config, name=name, **kwargs)
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
