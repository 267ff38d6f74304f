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

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import BertConfig

Config = BertConfig | dict[str, Any]
Tensor = Any  # of any backend
Shape = tuple[int | None, ...]
MASKED_SCORE = -10000.0  # added to the attention scores of padding; finite, as in the original
ACTIVATIONS = {  # by hidden_act: gelu is the tanh form, gelu_erf the exact one
    "gelu": lambda x: ops.gelu(x, approximate=True),
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


class BertLayer(keras.layers.Layer):
    """A layer with the sizes of a `BertConfig`, which is serialized with it.

    It passes on a mask of Keras, as `Masking` or `Embedding(mask_zero=True)` give it. Layers that
    attend take it for the padding_mask if they are given none.
    """

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)

    def dense(self, units: int, name: str = "dense") -> "Dense":
        """A dense layer with BERT's initializer, of this layer's dtype."""
        kernel = TruncatedNormal(stddev=self.config.initializer_range)
        return Dense(units, kernel_initializer=kernel, dtype=self.dtype_policy, name=name)

    def layer_norm(self) -> keras.layers.LayerNormalization:
        """Layer normalization with BERT's epsilon (Keras's own default is 1e-3)."""
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    def dropout_layer(self, rate: float) -> "Dropout":
        """Dropout of this layer's dtype."""
        return Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def as_encoder(self) -> Self:
        """The layer, as part of the encoder: it is frozen with it, and its tokens are packed."""
        for inner in self._flatten_layers():
            if isinstance(inner, Dropout):
                inner.is_of_encoder = True
        return self

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BertLayer":
        """The layer of what `get_config` gave; what is inside of a frozen layer is frozen, too."""
        layer = super().from_config(config)
        for inner in layer._flatten_layers(include_self=False):
            inner.trainable = layer.trainable
        return layer

    def compute_output_shape(self, x_shape: Shape, *_: Any) -> Shape:
        """The shape of the first input, with D at its end."""
        return (*x_shape[:-1], self.config.hidden_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention of N heads (paper, section 3; original: `attention_layer`).

    In a causal model (section 5.1) a token sees itself and those before it.

    The gradient is written out: that of soft-max needs no sums over S * S, as those of P * dP are
    those of the context and its gradient (Dao et al., 2022, appendix B.2). With `recompute` the
    probabilities are not kept for it but computed again from query and key: one product of the six
    that attention takes is made twice.
    """

    recompute = False  # set by `Steps`

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.query = self.dense(self.config.hidden_size, "query")
        self.key = self.dense(self.config.hidden_size, "key")
        self.value = self.dense(self.config.hidden_size, "value")
        self.dropout = self.dropout_layer(self.config.attention_probs_dropout_prob)

    def build(self, x_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        """Makes the three projections."""
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        self.dropout.build(x_shape)

    def call(self, x, padding_mask=None, training=None, mask=None):
        """x [B, S, D] -> context [B, S, D].

        padding_mask: [B, S], 0 for padding; or [B, S, S], 0 where a token (first S) does not see
        another (second S). Without it `mask`, [B, S], which Keras gives.
        """
        padding_mask = mask if padding_mask is None else padding_mask
        batch, length, hidden = ops.shape(x)
        heads = self.config.num_attention_heads
        mask_scores = self._mask_scores(padding_mask, batch, length)

        def split(y):  # [B, S, D] -> [B, N, S, H]
            y = ops.reshape(y, (batch, length, heads, hidden // heads))
            return ops.transpose(y, (0, 2, 1, 3))

        parts = split(self.query(x)), split(self.key(x)), split(self.value(x))
        context = self._context(parts, mask_scores, bool(training))  # [B, S, N, H]
        return ops.reshape(context, (batch, length, hidden))  # [B, S, D]

    def _context(self, parts: Iterable[Tensor], mask_scores: Tensor, training: bool) -> Tensor:
        """softmax(Q K^T / sqrt(H) + mask) V, with dropout: [B, N, S, H] each -> [B, S, N, H]."""
        query, key, value = parts
        scale, across, swapped = query.shape[-1] ** -0.5, (0, 1, 3, 2), (0, 2, 1, 3)

        def scores_of(query: Tensor, key: Tensor) -> Tensor:  # float32 [B, N, S, S]
            scores = ops.matmul(query, ops.transpose(key, across)) * scale
            return ops.cast(scores, "float32") + mask_scores

        def dropped(p: Tensor) -> Tensor:
            return self.dropout(ops.cast(p, self.compute_dtype), training=training)

        if not (training and _keys):  # otherwise a second pass draws the masks of the first
            p = ops.softmax(scores_of(query, key), axis=-1)
            return ops.transpose(ops.matmul(dropped(p), value), swapped)

        masks = _keys[-1]

        @ops.custom_gradient
        def attend(query: Tensor, key: Tensor, value: Tensor) -> Any:
            scores = scores_of(query, key)
            most = ops.max(scores, axis=-1, keepdims=True)  # [B, N, S, 1]
            powers = ops.exp(scores - most)
            share = 1.0 / ops.sum(powers, axis=-1, keepdims=True)
            context = ops.transpose(ops.matmul(dropped(powers * share), value), swapped)

            def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
                g = arguments[0] if upstream is None else upstream  # [B, S, N, H]
                inner = ops.cast(g, "float32") * ops.cast(context, "float32")
                inner = ops.transpose(ops.sum(inner, axis=-1, keepdims=True), swapped)
                g = ops.transpose(g, swapped)  # [B, N, S, H]; inner: [B, N, S, 1]
                again, q, k, v = masks, query, key, value
                if self.recompute:  # plus a 0 that no compiler knows: else it keeps what was there
                    zero = g[:1, :1, :1, :1] * 0
                    q, k, v = (x + zero for x in (q, k, v))
                    again = masks.again(ops.cast(zero[0, 0, 0, 0], "int32"))
                p = ops.exp(scores_of(q, k) - most) * share  # [B, N, S, S]
                with again:
                    to_value = ops.matmul(ops.transpose(dropped(p), across), g)
                    of_p = dropped(ops.matmul(g, ops.transpose(v, across)))
                of_scores = p * (ops.cast(of_p, "float32") - inner)
                of_scores = ops.cast(of_scores, self.compute_dtype) * scale
                to_key = ops.matmul(ops.transpose(of_scores, across), q)
                return ops.matmul(of_scores, k), to_key, to_value

            return context, gradient

        return attend(query, key, value)

    def _mask_scores(self, padding_mask: Tensor, batch: Tensor, length: Tensor) -> Tensor:
        """0 for what is seen, -10000 for what is not: float32 [B, 1, 1 or S, S], [S, S], or 0."""
        seen = 1.0
        if padding_mask is not None:
            mask = ops.cast(padding_mask, "float32")
            # Not broadcast: of another shape, which only a running graph may know, one of both
            # fails.
            own = (batch, length, length) if len(mask.shape) == 3 else (batch, length)
            seen = ops.reshape(ops.maximum(mask, ops.reshape(mask, own)), (batch, 1, -1, length))
        if self.config.is_causal:
            places = ops.arange(length, dtype="int32")
            seen *= ops.cast(places[:, None] >= places, "float32")  # [S, S]
        return (1.0 - seen) * MASKED_SCORE


@keras.saving.register_keras_serializable(package="bert_tf")
class Attention(BertLayer):
    """Self-attention, its projection, residual and normalization: half an encoder block."""

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.self_attention = SelfAttention(self.config, dtype=self.dtype_policy, name="self")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        """Builds both parts."""
        self.self_attention.build(x_shape, padding_mask_shape)
        self.add_and_norm.build(x_shape, x_shape)

    def call(self, x, padding_mask=None, training=None, mask=None):
        """x [B, S, D], padding_mask [B, S], 0 for padding, else Keras's mask -> [B, S, D]."""
        padding_mask = mask if padding_mask is None else padding_mask
        context = self.self_attention(x, padding_mask, training=training)
        return self.add_and_norm(context, x, training=training)


@keras.saving.register_keras_serializable(package="bert_tf")
class AddAndNorm(BertLayer):
    """norm(residual + dropout(dense(x))), the end of both halves of an encoder block."""

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.hidden_size)
        self.dropout = self.dropout_layer(self.config.hidden_dropout_prob)
        self.norm = self.layer_norm()

    def build(self, x_shape: Shape, residual_shape: Shape | None = None) -> None:
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.dropout.build(x_shape)
        self.norm.build((*x_shape[:-1], self.config.hidden_size))

    def call(self, x: Tensor, residual: Tensor, training: bool | None = None) -> Tensor:
        """x [B, S, D or F], residual [B, S, D] -> [B, S, D]."""
        return self.norm(residual + self.dropout(self.projection(x), training=training))


@keras.saving.register_keras_serializable(package="bert_tf")
class Intermediate(BertLayer):
    """activation(dense(x)): the wide half of the feed-forward network.

    With `recompute` the gradient of the activation is computed from its input and keeps nothing.
    """

    recompute = False  # set by `Steps`

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.projection = self.dense(self.config.intermediate_size)

    def build(self, x_shape: Shape) -> None:
        """Makes the projection."""
        self.projection.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [..., D] -> [..., F]."""
        wide, activation = self.projection(x), ACTIVATIONS[self.config.hidden_act]
        return keras.remat(activation)(wide) if self.recompute and training else activation(wide)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """The shape of x with F at its end."""
        return (*x_shape[:-1], self.config.intermediate_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(BertLayer):
    """One Transformer block, normalized after each half (original: `transformer_model`).

    Called with x [B, S, D] and padding_mask int [B, S], 1 for word pieces and 0 for padding, as
    `input_mask`. Without it the mask that x has from Keras (`BertLayer`) is taken; without
    either there is no padding.

    With `recompute` it keeps its input alone for the gradient, and computes again what else the
    backward pass needs: some 20 tensors as large as its input, of one block at a time. The work is
    a third more. Dropout masks are hashes of places (`Dropout`), so the second pass draws those of
    the first.
    """

    recompute = False  # set by `Steps`

    def __init__(self, config: Config, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.attention = Attention(self.config, dtype=self.dtype_policy, name="attention")
        self.intermediate = Intermediate(self.config, dtype=self.dtype_policy, name="intermediate")
        self.add_and_norm = AddAndNorm(self.config, dtype=self.dtype_policy, name="output")

    def build(self, x_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        """Builds the three parts."""
        self.attention.build(x_shape, padding_mask_shape)
        self.intermediate.build(x_shape)
        self.add_and_norm.build((*x_shape[:-1], self.config.intermediate_size), x_shape)

    def call(self, x, padding_mask=None, training=None, mask=None):
        """x [B, S, D], padding_mask [B, S], 0 for padding, else Keras's mask -> [B, S, D]."""
        padding_mask = mask if padding_mask is None else padding_mask

        def block(x: Tensor) -> Tensor:
            x = self.attention(x, padding_mask, training=training)
            wide = self.intermediate(x, training=training)  # [B, S, F]
            return self.add_and_norm(wide, x, training=training)

        return recomputed(block, x) if self.recompute and training else block(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(BertLayer):
    """Word + segment + position embeddings, normalized (original: `embedding_postprocessor`)."""

    def __init__(self, config: Config, name: str = "embeddings", **kwargs: Any):
        super().__init__(config, name=name, autocast=False, **kwargs)  # 16 bits hold no ids
        self.norm = self.layer_norm()
        self.dropout = self.dropout_layer(self.config.hidden_dropout_prob)

    def build(self, input_ids_shape: Shape, segment_ids_shape: Shape | None = None) -> None:
        """Makes the three tables and the normalization."""

        def table(rows: int, name: str) -> Tensor:
            # One each: an initializer of Keras draws the same values whenever it is called.
            init = TruncatedNormal(stddev=self.config.initializer_range)
            # In float32 whatever the layer computes in: many gradients of one row are added up.
            shape = (rows, self.config.hidden_size)
            return self.add_weight(shape=shape, initializer=init, autocast=False, name=name)

        self.word_embeddings = table(self.config.vocab_size, "word_embeddings")  # [V, D]
        self.token_type_embeddings = table(self.config.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(self.config.max_position_embeddings, "position_embeddings")
        self.norm.build((*input_ids_shape, self.config.hidden_size))
        self.dropout.build((*input_ids_shape, self.config.hidden_size))

    def call(self, input_ids, segment_ids, training=None, with_table=False, sequence_numbers=None):
        """input_ids, segment_ids [B, S] -> embeddings [B, S, D].

        Ids are whole numbers; floats, with which Keras builds a loaded model, are cast.

        With `sequence_numbers`, of a packed row, positions begin again in each sequence.

        With `with_table` -> (embeddings, word table [V, D]), for a head that is tied to the table:
        only what is read inside `call` takes part in the gradient, not what a functional model
        reads while it is built.
        """
        input_ids, segment_ids = (ops.cast(ids, "int32") for ids in (input_ids, segment_ids))
        length = ops.shape(input_ids)[1]
        longest = self.config.max_position_embeddings
        if sequence_numbers is None and isinstance(length, int) and length > longest:
            raise ValueError(f"received sequences of {length}, expected at most {longest}")
        words = ops.copy(self.word_embeddings)  # the value, not the variable: for custom gradients
        x = ops.take(words, input_ids, axis=0)  # [B, S, D]
        # A product with one-hot rows: a gradient without scatter, for the two or so types.
        segment_ids = ops.stack([input_ids, segment_ids])[1]  # of one shape, or this fails
        types = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.variable_dtype)
        x += ops.matmul(types, ops.convert_to_tensor(self.token_type_embeddings))  # [B, S, D]
        positions = ops.convert_to_tensor(self.position_embeddings)
        if sequence_numbers is None:
            x += positions[:length]  # [S, D] to each row
        else:
            places = ops.minimum(places_in_sequences(sequence_numbers), longest - 1)  # of padding
            x += ops.take(positions, places, axis=0)  # [B, S, D]
        x = self.dropout(self.norm(x), training=training)
        return (x, words) if with_table else x

    def compute_output_spec(
        self, input_ids, segment_ids, training=None, with_table=False, sequence_numbers=None
    ):
        """[B, S, D], or that and [V, D]."""
        hidden = self.config.hidden_size
        x = keras.KerasTensor((*input_ids.shape, hidden), dtype=self.compute_dtype)
        table = keras.KerasTensor((self.config.vocab_size, hidden), dtype=self.variable_dtype)
        return (x, table) if with_table else x


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """tanh(dense(first token)): one vector for the sequence (original: `BertModel`).

    `encode` gives a causal model's last token as the first one.
    """

    def __init__(self, config: Config, name: str = "pooler", **kwargs: Any):
        super().__init__(config, name=name, **kwargs)
        self.projection = self.dense(self.config.hidden_size)

    def build(self, sequence_output_shape: Shape) -> None:
        """Makes the projection."""
        self.projection.build((sequence_output_shape[0], sequence_output_shape[-1]))

    def call(self, sequence_output: Tensor) -> Tensor:
        """sequence_output [B, S, D] -> [B, D]."""
        return ops.tanh(self.projection(sequence_output[:, 0]))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor) -> None:
        """None: a vector of the whole sequence has no padding."""

    def compute_output_shape(self, sequence_output_shape: Shape) -> Shape:
        """[B, D]."""
        return (sequence_output_shape[0], self.config.hidden_size)


# ---------------------------------------------------------------------------- packed rows

# A row has several sequences, one after the other (Krell et al., 2021); sequence_numbers int [B, S]
# is 1 for the tokens of the first, 2 for those of the second, and 0 for padding.


def places_in_sequences(sequence_numbers: Tensor) -> Tensor:
    """The place of each token in its sequence, from 0: int32 [B, S]."""
    before = _tokens_before(sequence_numbers, sequence_numbers)  # [B, S]
    return ops.arange(ops.shape(sequence_numbers)[1], dtype="int32") - before


def first_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the first tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    Of a sequence that is not there some token's.
    """
    numbers = ops.arange(1, num_sequences + 1, dtype="int32")[None, :]  # [1, K]
    places = _tokens_before(sequence_numbers, numbers)  # [B, K]
    last = ops.sum(ops.cast(sequence_numbers > 0, "int32"), axis=1, keepdims=True) - 1  # [B, 1]
    return ops.take_along_axis(x, ops.expand_dims(ops.minimum(places, last), 2), axis=1)


def last_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the last tokens of sequences 1 to K: x [B, S, D] -> [B, K, D]."""
    # [1, K], of the next ones; a tensor would be an input of graphs that are converted.
    numbers = np.arange(2, num_sequences + 2, dtype="int32")[None, :]
    places = ops.maximum(_tokens_before(sequence_numbers, numbers) - 1, 0)  # [B, K]
    return ops.take_along_axis(x, ops.expand_dims(places, 2), axis=1)


def _tokens_before(sequence_numbers: Tensor, of: Tensor) -> Tensor:
    """How many tokens of a row are of sequences with smaller numbers: int32, of the shape of `of`.

    0 for number 0, the padding.
    """
    own = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_before = ops.logical_and(own > 0, ops.less(own, of[:, :, None]))  # [B, n, S]
    return ops.sum(ops.cast(is_before, "int32"), axis=-1)


# Batches of fine-tuning are packed by the step: packed_tokens int [R, W] has, for each place in
# their rows, which of the tokens [B * S] stands there, or -1 (data/packing.py).


@keras.saving.register_keras_serializable(package="bert_tf")
class PackTokens(keras.layers.Layer):
    """Puts the tokens of a batch into rows."""

    def call(self, packed_tokens: Tensor, input_ids: Tensor, segment_ids: Tensor) -> Any:
        """int [R, W], and [B, S] each -> their ids and segments, and sequence numbers, [R, W]."""
        tokens = ops.maximum(packed_tokens, 0)
        ids = (ops.take(ops.reshape(x, (-1,)), tokens) for x in (input_ids, segment_ids))
        return *ids, ops.floor_divide(packed_tokens, ops.shape(input_ids)[1]) + 1

    def compute_output_spec(self, packed_tokens: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        """[R, W] each."""
        return tuple(keras.KerasTensor(packed_tokens.shape, "int32") for _ in range(3))


@keras.saving.register_keras_serializable(package="bert_tf")
class UnpackTokens(keras.layers.Layer):
    """Takes the vectors of a batch's tokens out of their rows."""

    def call(self, x: Tensor, packed_tokens: Tensor, input_mask: Tensor) -> tuple[Tensor, Tensor]:
        """[R, W, D], int [R, W], int [B, S] -> [B, S, D], 0 for padding; first tokens [B, 1, D]."""
        batch, length = ops.shape(input_mask)
        cells = ops.reshape(packed_tokens, (-1,))  # [R * W]
        starts = ops.arange(batch, dtype="int32")[:, None] * length  # [B, 1]
        first = ops.argmax(ops.cast(ops.equal(starts, cells), "int32"), axis=1)[:, None]  # [B, 1]
        first = ops.cast(first, "int32")
        places = ops.minimum(first + ops.arange(length, dtype="int32"), ops.size(cells) - 1)

        @ops.custom_gradient
        def unpacked(x: Tensor) -> Tensor:
            y = ops.take(x, places, axis=0)  # [B, S, D]

            def gradient(*arguments: Tensor, upstream: Tensor = None) -> Tensor:
                g = arguments[0] if upstream is None else upstream  # [B, S, D]
                g = ops.take(ops.reshape(g, (-1, x.shape[-1])), ops.maximum(cells, 0), axis=0)
                return g * ops.cast(cells >= 0, g.dtype)[:, None]  # [R * W, D]

            return y * ops.cast(input_mask, y.dtype)[..., None], gradient

        x = ops.reshape(x, (-1, x.shape[-1]))  # [R * W, D]
        return unpacked(x), ops.take(x, first, axis=0)

    def compute_output_spec(
        self, x: Tensor, packed_tokens: Tensor, input_mask: Tensor
    ) -> tuple[Tensor, ...]:
        """[B, S, D] and [B, 1, D]."""
        batch, length = input_mask.shape
        shapes = (batch, length, x.shape[-1]), (batch, 1, x.shape[-1])
        return tuple(keras.KerasTensor(shape, x.dtype) for shape in shapes)


# ---------------------------------------------------------------------------- dense


class Dense(keras.layers.Dense):
    """A dense layer that takes all rows as one matrix: half the cost of batched products."""

    def call(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., units]."""
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(super().call(rows), (*ops.shape(x)[:-1], self.units))

    @property
    def kernel(self) -> Tensor:
        """As Keras's own, with LoRA's product; but what is saved is not rounded as in `call`."""
        if not self.lora_enabled or self.quantization_mode:
            return super().kernel
        factors = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return self._kernel + factors * (self.lora_alpha / self.lora_rank)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """As Keras's own, which refuses every subclass."""
        super().quantize(mode, type_check=False, config=config)

    def load_own_variables(self, store: Any) -> None:
        """As Keras's own, which also zeroes LoRA's first factor: no gradient would be left."""
        first = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


# ---------------------------------------------------------------------------- dropout

GOLDEN_RATIO = -0x61C88647  # 0x9E3779B9 as int32; spreads consecutive counters


@dataclasses.dataclass
class DropoutKey:
    """Within its context dropout masks are a pure function of seed, row and place in the model.

    Args:
      seed: int32 scalar, a different one for each step.
      first_row: int32 scalar, the place in the global batch of row 0 of the model's inputs.
      num_rows: the rows of the model's inputs. A layer whose inputs have several sequences for each
        row (multiple choice) then counts sequences; without it, rows are taken for sequences.
      packed_tokens: of a packed batch; the masks of its tokens are those of the batch unpacked.
      input_shape: [B, S] or [B, C, S], of its ids.
      lines: what `places` has made.
    """

    seed: Tensor
    first_row: Tensor = 0
    num_rows: int | None = None
    packed_tokens: Tensor = None
    input_shape: Any = ()
    lines: dict[tuple, tuple[Tensor, Tensor]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seed = ops.convert_to_tensor(self.seed, "int32")

    def __enter__(self) -> None:
        _keys.append(self)

    def __exit__(self, *_: Any) -> None:
        _keys.pop()

    def places(self, shape: Any, *, is_packed: bool) -> tuple[Tensor, Tensor]:
        """Of each element a hash of its line, along the last axis, and of its place in the line.

        They broadcast to `shape` and are made once for all layers: what is left for each element is
        what counts on GPUs, and what is left for each layer is what a step's start takes.
        """
        make = self._packed if is_packed else self._of_rows
        if not all(isinstance(n, int) for n in shape):  # some are tensors
            return make(shape)
        key = (*shape, is_packed)
        if key not in self.lines:
            self.lines[key] = make(shape)
        return self.lines[key]

    def again(self, zero: Tensor) -> "DropoutKey":
        """A key of the same masks, which are computed again: `zero`, an int32, is 0 unknown."""
        lines = {key: (line + zero, element) for key, (line, element) in self.lines.items()}
        return dataclasses.replace(self, seed=self.seed + zero, lines=lines)

    def _of_rows(self, shape: Any) -> tuple[Tensor, Tensor]:
        first = self.first_row
        if self.num_rows is not None:
            first *= shape[0] // self.num_rows
        rows = ops.arange(shape[0], dtype="int32") + first  # [B]
        rows = ops.reshape(rows, (shape[0],) + (1,) * (len(shape) - 1))
        lines = ops.reshape(spread(math.prod(shape[1:-1])), (1, *shape[1:-1], 1))
        return self._hashed(rows, lines), spread(shape[-1])

    def _packed(self, shape: Any) -> tuple[Tensor, Tensor]:
        cells, length = self.packed_tokens, self.input_shape[-1]
        first = self.first_row * math.prod(self.input_shape[1:-1])
        rows, places = first + cells // length, cells % length  # [R, W]
        if len(shape) != 4:
            lines = self._hashed(rows[..., None], places[..., None] * GOLDEN_RATIO)  # [R, W, 1]
            return lines, spread(shape[-1])
        lines = ops.arange(shape[1], dtype="int32")[:, None] * length + places[:, None, :]
        lines = self._hashed(rows[:, None, :, None], lines[..., None] * GOLDEN_RATIO)
        return lines, places[:, None, None, :] * GOLDEN_RATIO  # [R, N, W, 1], [R, 1, 1, W]

    def _hashed(self, rows: Tensor, lines: Tensor) -> Tensor:
        row = mix(ops.bitwise_xor(rows * GOLDEN_RATIO, mix(self.seed)))
        return mix(ops.bitwise_xor(row, lines))


def spread(n: Any) -> Tensor:
    """0 to n - 1, times the golden ratio: int32 [n]."""
    return ops.arange(n, dtype="int32") * GOLDEN_RATIO


_keys: list[DropoutKey] = []  # those whose contexts are entered


def recomputed(function: Callable, *tensors: Tensor) -> Tensor:
    """`function(*tensors)`; its gradient keeps the tensors alone, and computes the rest again.

    The seed of dropout is one more of them. Otherwise a compiler would find that the masks of both
    passes are the same, compute them once, and keep them: a byte for each element. Outside of
    `DropoutKey` nothing is recomputed, as the second pass would draw other masks.
    """
    if not _keys:
        return function(*tensors)
    key = _keys[-1]

    def with_seed(high: Tensor, low: Tensor, *tensors: Tensor) -> Tensor:
        seed = ops.left_shift(ops.cast(high, "int32"), 16) + ops.cast(low, "int32")
        with dataclasses.replace(key, seed=seed, lines={}):
            return function(*tensors)

    # Halves, which float32 holds exactly: what is not floating has no place in a gradient.
    high, low = ops.right_shift(key.seed, 16), ops.bitwise_and(key.seed, 0xFFFF)
    halves = (ops.cast(half, "float32") for half in (high, low))
    return keras.remat(with_seed)(*halves, *tensors)


def mix(h: Tensor) -> Tensor:
    """The finalizer of MurmurHash3 on int32 tensors: every bit of `h` flips half of the result.

    Wrapping products and masked shifts of int32, as not every backend has uint32.
    """
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF)) * -0x7A143595
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 13), 0x7FFFF)) * -0x3D4D51CB
    return ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF))


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout without state: a mask is a hash of seed, place in the model, row and element.

    It is computed again for the gradient, not stored. Rows are counted through the global batch: so
    the masks of a step do not depend on how its batch is spread over replicas or cut into
    micro-batches, and a resumed run draws the masks of an undisturbed one. Outside of `DropoutKey`
    the seed comes from a Keras `SeedGenerator`, so that the layer works under `fit` too; there
    all replicas draw the same masks, as those of Keras's own layer do.
    """

    is_of_encoder = False  # which is frozen as a whole, and whose tokens may be packed

    def __init__(self, rate: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = rate
        self.supports_masking = True
        self._seeds: Any = keras.random.SeedGenerator() if rate else None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [B, ...] -> [B, ...]; in training a share `rate` becomes 0, the rest is scaled up."""
        if not self.rate or not training:
            return x
        if _keys:
            key = _keys[-1]
        else:
            own, calls = ops.unstack(ops.cast(self._seeds.next(), "int32"), 2)
            key = DropoutKey(ops.bitwise_xor(mix(calls * GOLDEN_RATIO), own))
        is_packed = key.packed_tokens is not None and self.is_of_encoder
        line, element = key.places(ops.shape(x), is_packed=is_packed)
        # Less than `mix`, for speed: the lines are well mixed, and only high bits are compared.
        place = zlib.crc32(self.path.encode()) - 2**31
        h = ops.bitwise_xor(ops.bitwise_xor(line, place) * -0x3D4D51CB, element) * -0x7A143595
        h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 15), 0x1FFFF)) * -0x3D4D51CB
        keep = h >= int((self.rate - 0.5) * 2**32)
        wide = ops.cast(x, "float32") * (1.0 / (1.0 - self.rate))  # which is no bfloat16
        return ops.where(keep, ops.cast(wide, x.dtype), ops.cast(0, x.dtype))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """The shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}
