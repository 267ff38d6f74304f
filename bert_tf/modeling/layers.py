"""The layers of BERT, up to its pooler; in `keras.ops` alone, so they run on every backend.

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
from bert_tf.modeling.dropout import Dropout, recomputed
from bert_tf.runtime import check_model_memory

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


class _Dense(keras.layers.Dense):
    """A dense layer that takes all rows as one matrix: half the cost of batched products."""

    def call(self, x):
        """x [..., in] -> [..., units]."""
        return self._by_rows(super().call, x)

    def quantized_call(self, x):
        """As `call`, with a kernel of whole numbers."""
        return self._by_rows(super().quantized_call, x)

    def _by_rows(self, product, x):
        shape = ops.shape(x)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(product(rows), (*shape[:-1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's own, which would refuse a subclass; merges LoRA's product first."""
        if self.lora_enabled and self.quantization_mode is None:  # else it is rounded when saved
            self._kernel.assign(self.merged_kernel())
            self.lora_kernel_b.assign(ops.zeros_like(self.lora_kernel_b))
        super().quantize(mode, type_check=False, config=config)

    def merged_kernel(self):
        """The kernel with the product of LoRA's factors, [in, units] in the kernel's own dtype."""
        factors = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return self._kernel + factors * (self.lora_alpha / self.lora_rank)

    def _get_kernel_with_merged_lora(self):
        """What is saved; Keras's own would round it to the dtype that the layer computes in."""
        if self.lora_enabled and self.quantization_mode is None:
            return self.merged_kernel(), None, None
        return super()._get_kernel_with_merged_lora()

    def load_own_variables(self, store):
        """As Keras's own, which also zeroes LoRA's first factor: no gradient would be left."""
        first = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


class BertLayer(keras.layers.Layer):
    """A layer with the sizes of a `BertConfig`, which is serialized with it."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)

    def dense(self, units: int, name: str = "dense") -> _Dense:
        """A dense layer with BERT's initializer, of this layer's dtype."""
        kernel = TruncatedNormal(stddev=self.config.initializer_range)
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
        """The constructor's arguments, and of which kind the dense layers inside are if quantized.

        Keras saves the configuration of the outermost layer alone. A layer in which only LoRA's
        factors are trained is saved as frozen, because the factors are merged.
        """
        config = {**super().get_config(), "config": self.config.to_dict()}
        own = [v for v in self.weights if not v.name.startswith("lora_kernel")]
        config["trainable"] = self.trainable and (not own or any(v.trainable for v in own))
        dense = self._dense_layers()
        if any(layer.quantization_mode is not None for layer in dense):
            config["dense"] = [
                {
                    "dtype": keras.dtype_policies.serialize(layer.dtype_policy),
                    "quantization": keras.saving.serialize_keras_object(layer.quantization_config),
                }
                for layer in dense
            ]
        return config

    @classmethod
    def from_config(cls, config):
        """The layer of what `get_config` gave."""
        config = dict(config)
        kinds = config.pop("dense", None)
        layer = super().from_config(config)
        for inner in layer._flatten_layers(include_self=False):
            inner.trainable = layer.trainable
        for dense, kind in zip(layer._dense_layers(), kinds, strict=True) if kinds else ():
            dense.dtype_policy = keras.dtype_policies.deserialize(kind["dtype"])
            dense.quantization_config = keras.saving.deserialize_keras_object(kind["quantization"])
        return layer

    def _dense_layers(self) -> list[_Dense]:
        return [layer for layer in self._flatten_layers() if isinstance(layer, _Dense)]

    def compute_output_shape(self, x_shape, *_):
        """The shape of the first input, with D at its end."""
        return (*x_shape[:-1], self.config.hidden_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(BertLayer):
    """Word + segment + position embeddings, normalized (original: `embedding_postprocessor`)."""

    def __init__(self, config: BertConfig | dict[str, Any], **kwargs):
        super().__init__(config, **kwargs)
        check_model_memory(self.config.num_parameters)  # before the first large weight is made
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

    def call(self, input_ids, segment_ids, training=None):
        """input_ids, segment_ids int [B, S] -> (embeddings [B, S, D], word table [V, D]).

        The table is an output because the masked-LM head is tied to it: only what is read inside
        `call` takes part in the gradient, not what a functional model reads while it is built.
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

    def build(self, x_shape, mask_scores_shape=None):
        """Makes the three projections."""
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        self.dropout.build(x_shape)

    def call(self, x, mask_scores, training=None):
        """x [B, S, D], mask_scores [B, 1, 1, S] -> context [B, S, D]."""
        batch, length, hidden = ops.shape(x)
        heads = self.config.num_attention_heads
        # Not broadcast: with another shape, which only a running graph may know, one of both fails.
        mask_scores = ops.maximum(mask_scores, ops.reshape(mask_scores, (batch, 1, 1, length)))

        def split(y):  # [B, S, D] -> [B, N, S, H]
            y = ops.reshape(y, (batch, length, heads, hidden // heads))
            return ops.transpose(y, (0, 2, 1, 3))

        def attend(query, key, value):  # [B, N, S, H] each -> [B, N, S, H]
            scale = (hidden // heads) ** -0.5
            scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * scale  # [B, N, S, S]
            scores = ops.cast(scores, "float32") + ops.cast(mask_scores, "float32")
            probabilities = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
            return ops.matmul(self.dropout(probabilities, training=training), value)

        parts = split(self.query(x)), split(self.key(x)), split(self.value(x))
        context = recomputed(attend, *parts) if self.recompute and training else attend(*parts)
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(context, (batch, length, hidden))  # [B, S, D]


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
class Attention(BertLayer):
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
class EncoderBlock(BertLayer):
    """One Transformer block, normalized after each half (original: `transformer_model`).

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

    def build(self, x_shape, mask_scores_shape=None):
        """Builds the three parts."""
        self.attention.build(x_shape, mask_scores_shape)
        self.intermediate.build(x_shape)
        self.add_and_norm.build((*x_shape[:-1], self.config.intermediate_size), x_shape)

    def call(self, x, mask_scores, training=None):
        """x [B, S, D], mask_scores [B, 1, 1, S] -> [B, S, D]."""

        def block(x):
            x = self.attention(x, mask_scores, training=training)
            wide = self.intermediate(x)  # [B, S, F]
            return self.add_and_norm(wide, x, training=training)

        return recomputed(block, x) if self.recompute and training else block(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
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
