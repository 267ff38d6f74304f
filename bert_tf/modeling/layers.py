"""The layers of BERT up to its pooler, in Keras alone: they run on every backend.

    x = Embeddings(vocab_size=30522, hidden_size=768)(input_ids, segment_ids)    [B, S, D]
    x = EncoderBlock(768, num_heads=12, intermediate_size=3072)(x)               [B, S, D]
    pooled = Pooler(768)(x)                                                      [B, D]

A `BertConfig` gives the same sizes: `EncoderBlock.from_bert_config(config, name="layer_0")`.

Dimensions, here and in the whole project:

    B batch    S sequence    P predictions    D hidden    N heads    H head size, D = N * H
    F feed-forward    V vocabulary    T segment types

In every mask 0 hides a token, and any other value lets it be seen; where all are hidden, none is,
as in the original. Sections without a name are those of BERT's paper (Devlin et al., 2019); its
encoder is that of Vaswani et al. (2017). `base.py` has what the layers share, `memory.py` what a
training step changes.

A variable's path is its name in the original's checkpoints without the leading `bert/`,
`bert/encoder/` or `cls/` (`names.py`).
"""

from typing import Any, Self

import keras
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import ACTIVATIONS as ACTIVATION_NAMES
from bert_tf.config import BertConfig
from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.modeling import memory
from bert_tf.modeling.base import BertLayer, checked_rate, checked_scale, checked_size

Tensor = Any  # of any backend
Shape = tuple[int | None, ...]
MASKED_SCORE = -10000.0  # added to the scores of hidden tokens; finite, as in the original
ACTIVATIONS = {  # by hidden_act: gelu is the tanh form, gelu_erf the exact one
    "gelu": lambda x: ops.gelu(x, approximate=True),
    "gelu_erf": lambda x: ops.gelu(x, approximate=False),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


# ---------------------------------------------------------------------------- embeddings


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(BertLayer):
    """The normalized sum of word, segment and position embeddings (section 3, figure 2).

        embed = Embeddings(vocab_size=30522, hidden_size=768)
        x = embed(input_ids, segment_ids)                     int [B, S] each -> [B, S, D]
        x = embed(input_ids, segment_ids, mask=input_mask)    with an explicit mask

    The result carries a Keras mask for the following layers: `mask` if it is given, otherwise
    `input_ids != 0` if `mask_zero`.

    Original: `embedding_lookup` and `embedding_postprocessor`.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_positions: int = 512,
        type_vocab_size: int = 2,
        dropout: float = 0.1,
        *,
        mask_zero: bool = True,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        **kwargs: Any,
    ):
        """Stores the sizes; `build` makes the tables.

        Args:
          vocab_size: V, rows of the word table.
          hidden_size: D.
          max_positions: rows of the position table; the length of the longest sequence.
          type_vocab_size: T, rows of the segment table.
          dropout: rate, below 1.
          mask_zero: whether id 0 is padding if no mask is given.
          initializer_range: standard deviation of the truncated normal for new weights.
          layer_norm_eps: added to variances.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: a size is not positive, or a rate is out of range.
        """
        # No autocast by default: it would round ids that come as floats.
        super().__init__(**{"autocast": False, **kwargs})
        self.vocab_size = checked_size("vocab_size", vocab_size)
        self.hidden_size = checked_size("hidden_size", hidden_size)
        self.max_positions = checked_size("max_positions", max_positions)
        self.type_vocab_size = checked_size("type_vocab_size", type_vocab_size)
        self.dropout = checked_rate("dropout", dropout)
        self.mask_zero = mask_zero
        self.initializer_range = checked_scale("initializer_range", initializer_range)
        self.layer_norm_eps = checked_scale("layer_norm_eps", layer_norm_eps)
        self.norm = self.make_layer_norm()
        self.drop = self.make_dropout(dropout)
        # One for each table: a Keras initializer draws the same values again.
        self.initializers = [TruncatedNormal(stddev=initializer_range) for _ in range(3)]

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes and the name of a configuration's model."""
        arguments: dict[str, Any] = {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "max_positions": config.max_position_embeddings,
            "type_vocab_size": config.type_vocab_size,
            "dropout": config.hidden_dropout_prob,
            "initializer_range": config.initializer_range,
            "layer_norm_eps": config.layer_norm_eps,
            "name": "embeddings",
        }
        return cls(**arguments | kwargs)

    def build(self, input_ids_shape: Shape) -> None:
        """Makes the three tables and the normalization."""
        words, types, positions = self.initializers
        self.word_embeddings = self._table("word_embeddings", self.vocab_size, words)
        self.token_type_embeddings = self._table(
            "token_type_embeddings", self.type_vocab_size, types
        )
        self.position_embeddings = self._table("position_embeddings", self.max_positions, positions)
        self.norm.build((*input_ids_shape, self.hidden_size))
        self.drop.build((*input_ids_shape, self.hidden_size))

    def _table(self, name: str, rows: int, initializer: Any) -> Tensor:
        """A new table [rows, D]."""
        # No autocast: a row sums the gradients of many tokens, which needs float32.
        shape = (rows, self.hidden_size)
        return self.add_weight(shape=shape, initializer=initializer, autocast=False, name=name)

    def call(self, input_ids, segment_ids=None, positions=None, training=None, mask=None):
        """Adds three vectors for each token, then normalizes and drops.

        Args:
          input_ids: int [B, S]; float32 is cast, as Keras builds loaded models with floats.
          segment_ids: int [B, S], 0 for the first text, 1 for the second; None: all 0.
          positions: int [B, S]; None: 0, 1, 2, ...
          training: whether dropout acts.
          mask: [B, S], the Keras mask of the result.

        Returns:
          [B, S, D].

        Raises:
          InputError: ids are float16 or bfloat16, or a row is longer than `max_positions`.
        """
        input_ids = self._checked_ids(input_ids, may_be_longer=positions is not None)
        words = ops.convert_to_tensor(self.word_embeddings)  # [V, D]
        x = ops.take(words, input_ids, axis=0)  # [B, S, D]
        x += self._segment_vectors(input_ids, segment_ids)
        x += self._position_vectors(ops.shape(input_ids)[1], positions)
        return self.drop(self.norm(x), training=training)

    def _checked_ids(self, input_ids: Tensor, *, may_be_longer: bool) -> Tensor:
        """The ids as int32 [B, S]; `may_be_longer`: than the position table."""
        if keras.backend.standardize_dtype(input_ids.dtype) in ("bfloat16", "float16"):
            remedy = "give integers; a Sequential model needs keras.Input((None,), dtype='int32')"
            raise InputError(f"ids of type {input_ids.dtype}", "whole numbers", remedy)
        input_ids = ops.cast(input_ids, "int32")
        length = ops.shape(input_ids)[1]
        if not may_be_longer and isinstance(length, int) and length > self.max_positions:
            received = f"sequences of {length}"
            raise InputError(received, f"at most {self.max_positions}", "cut the texts")
        return input_ids

    def _segment_vectors(self, input_ids: Tensor, segment_ids: Tensor | None) -> Tensor:
        """The segment embedding of each token, [B, S, D]; without ids that of segment 0, [D]."""
        table = ops.convert_to_tensor(self.token_type_embeddings)  # [T, D]
        if segment_ids is None:
            return table[0]
        segment_ids = ops.cast(segment_ids, "int32")
        # `stack` fails if the shapes differ, where the sum in `call` would broadcast.
        segment_ids = ops.stack([input_ids, segment_ids])[1]  # [B, S]
        # T is small: a product with one-hot rows is cheap, and its gradient needs no scatter.
        one_hot = ops.one_hot(segment_ids, self.type_vocab_size, dtype=self.variable_dtype)
        return ops.matmul(one_hot, table)  # [B, S, D]

    def _position_vectors(self, length: Any, positions: Tensor | None) -> Tensor:
        """The position embedding of each token: [S, D] for all rows, or [B, S, D]."""
        table = ops.convert_to_tensor(self.position_embeddings)  # [max_positions, D]
        if positions is None:
            return table[:length]  # [S, D]
        return ops.take(table, ops.cast(positions, "int32"), axis=0)  # [B, S, D]

    def compute_mask(self, input_ids: Tensor, previous_mask: Tensor = None) -> Tensor:
        """The mask of the call as bool [B, S]; without one `input_ids != 0`, if `mask_zero`."""
        if previous_mask is not None:
            return ops.cast(previous_mask, "bool")
        return ops.not_equal(input_ids, 0) if self.mask_zero else None

    def compute_output_shape(self, input_ids_shape: Shape) -> Shape:
        """[B, S, D]."""
        return (*input_ids_shape, self.hidden_size)


# ---------------------------------------------------------------------------- attention


def attention_bias(
    shape: tuple, masks: list[Tensor | None], attention_mask: Tensor | None, causal: bool
) -> Tensor:
    """The bias of attention scores: 0 where a token sees another, else -10000.

    Args:
      shape: (B, N, S).
      masks: [B, S] each, 0 for tokens that are hidden from all; None is skipped.
      attention_mask: [B, S, S], [B, 1, S, S] or [B, N, S, S], 0 where a token (first S) does not
        see another (second S); or None.
      causal: whether a token sees only itself and the tokens before it (the left-to-right model
        of section 5.1).

    Returns:
      float32, broadcast to [B, N, S, S]; 0 without a mask. A token sees what all masks allow.

    Raises:
      InputError: a mask has another shape. The backend raises its own error if the size is known
        only when the graph runs.
    """
    batch, heads, length = shape
    visible = []  # bool, each broadcast to [B, N, S, S]
    for mask in masks:
        if mask is not None:
            mask = _checked_mask("padding_mask", mask, (batch, length))
            visible.append(ops.reshape(mask, (batch, 1, 1, length)))
    if attention_mask is not None and len(attention_mask.shape) == 4:
        heads = 1 if attention_mask.shape[1] == 1 else heads  # 1: the same mask for all heads
        mask = _checked_mask("attention_mask", attention_mask, (batch, heads, length, length))
        visible.append(mask)
    elif attention_mask is not None:
        mask = _checked_mask("attention_mask", attention_mask, (batch, length, length))
        visible.append(ops.reshape(mask, (batch, 1, length, length)))
    if causal:
        positions = ops.arange(length, dtype="int32")
        visible.append(positions[:, None] >= positions)  # [S, S]
    product = 1.0  # of all masks: 1 where all are true
    for mask in visible:
        product *= ops.cast(mask, "float32")
    return (1.0 - product) * MASKED_SCORE


def _checked_mask(name: str, mask: Tensor, shape: tuple) -> Tensor:
    """The mask as bool, of the given shape."""
    if not _may_agree(mask.shape, shape):
        wanted = {"padding_mask": "[B, S]", "attention_mask": "[B, S, S] or [B, N, S, S]"}
        received = f"{name} of shape {list(mask.shape)} for {list(shape)}"
        raise InputError(received, wanted[name], "give the one as the other, or correct its shape")
    mask = ops.cast(mask, "bool")
    # Sizes that are unknown until the graph runs are compared there: one of these two fails.
    return ops.logical_or(mask, ops.reshape(mask, shape))


def _may_agree(shape: Shape, expected: tuple) -> bool:
    """Whether two shapes have the same number of axes, and the same sizes where both are known."""
    if len(shape) != len(expected):
        return False
    for size, wanted in zip(shape, expected, strict=True):
        are_known = isinstance(size, int) and isinstance(wanted, int)
        if are_known and size != wanted:
            return False
    return True


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention of N heads (Vaswani et al., 2017, sections 3.2.1 and 3.2.2).

        attention = SelfAttention(hidden_size=768, num_heads=12)
        context = attention(x, padding_mask=input_mask)           [B, S, D] -> [B, S, D]

    The projection of the joined heads is part of `EncoderBlock`. Arguments of a call, beside x:

        padding_mask              [B, S], 0 for padding
        attention_mask            [B, S, S] or [B, N, S, S], 0 where a token (first S) does not see
                                  another (second S)
        return_attention_scores   also gives the soft-max's probabilities, float32 [B, N, S, S]

    A token sees what both masks and the Keras mask of x allow.

    Original: `attention_layer`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float = 0.1,
        *,
        causal: bool = False,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ):
        """Makes the projections; `build` makes their weights.

        Args:
          hidden_size: D.
          num_heads: N; the head size H is D / N.
          dropout: rate of the probabilities' dropout, below 1.
          causal: whether a token sees only itself and the tokens before it.
          initializer_range: see `Embeddings`.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: a size is not positive, D is no multiple of N, or a rate is out of range.
        """
        super().__init__(**kwargs)
        self.hidden_size = checked_size("hidden_size", hidden_size)
        self.num_heads = checked_size("num_heads", num_heads)
        self.dropout = checked_rate("dropout", dropout)
        self.causal = causal
        self.initializer_range = checked_scale("initializer_range", initializer_range)
        if self.hidden_size % self.num_heads:
            received = f"hidden_size {hidden_size}, which is no multiple of num_heads {num_heads}"
            raise InputError(received, "a whole size for each head", "change one of the two")
        self.query = self.make_dense(hidden_size, "query")
        self.key = self.make_dense(hidden_size, "key")
        self.value = self.make_dense(hidden_size, "value")
        self.drop = self.make_dropout(dropout)

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes of a configuration."""
        arguments: dict[str, Any] = {
            "hidden_size": config.hidden_size,
            "num_heads": config.num_attention_heads,
            "dropout": config.attention_probs_dropout_prob,
            "causal": config.is_causal,
            "initializer_range": config.initializer_range,
        }
        return cls(**arguments | kwargs)

    def build(self, x_shape: Shape) -> None:
        """Makes the weights of the three projections."""
        for part in (self.query, self.key, self.value, self.drop):
            part.build(x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,  # the Keras mask of x, which Keras passes as `mask` if x is the only tensor,
        x_mask=None,  # and as `x_mask` if there are more
    ):
        """Computes Attention(Q, K, V) = softmax(Q Kᵀ / √H) V for each head, and joins the heads."""
        batch, length, hidden = ops.shape(x)
        shape = (batch, self.num_heads, length)
        bias = attention_bias(shape, [mask, x_mask, padding_mask], attention_mask, self.causal)
        query = self._split_heads(self.query(x))  # [B, N, S, H]
        key = self._split_heads(self.key(x))  # [B, N, S, H]
        value = self._split_heads(self.value(x))  # [B, N, S, H]
        if memory.in_training_step(training) and not return_attention_scores:
            # The same result as below, with a gradient that keeps less in memory.
            context = memory.attend(query, key, value, bias, self.drop)  # [B, S, N, H]
            return ops.reshape(context, (batch, length, hidden))  # [B, S, D]
        scale = query.shape[-1] ** -0.5  # 1 / √H
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * scale  # [B, N, S, S]
        probabilities = ops.softmax(ops.cast(scores, "float32") + bias, axis=-1)  # [B, N, S, S]
        dropped = self.drop(ops.cast(probabilities, self.compute_dtype), training=training)
        context = ops.transpose(ops.matmul(dropped, value), (0, 2, 1, 3))  # [B, S, N, H]
        context = ops.reshape(context, (batch, length, hidden))  # [B, S, D]
        return (context, probabilities) if return_attention_scores else context

    def _split_heads(self, x: Tensor) -> Tensor:
        """[B, S, D] -> [B, N, S, H]."""
        batch, length, hidden = ops.shape(x)
        x = ops.reshape(x, (batch, length, self.num_heads, hidden // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B, S, D]."""
        return x_shape

    def compute_output_spec(self, x, *args, return_attention_scores=False, **kwargs):
        """[B, S, D]; with scores also [B, N, S, S]."""
        return attention_spec(self, x, return_attention_scores)


def attention_spec(layer: Any, x: Tensor, with_scores: bool) -> Any:
    """The outputs of an attention layer: [B, S, D]; with scores also [B, N, S, S]."""
    context = keras.KerasTensor(x.shape, dtype=layer.compute_dtype)
    if not with_scores:
        return context
    batch, length, _ = x.shape
    scores = keras.KerasTensor((batch, layer.num_heads, length, length), "float32")
    return context, scores


# ---------------------------------------------------------------------------- encoder block


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(BertLayer):
    """One Transformer block, normalized after each sub-layer (Vaswani et al., section 3.1).

        block = EncoderBlock(hidden_size=768, num_heads=12, intermediate_size=3072)
        y = block(x, padding_mask=input_mask)                      [B, S, D] -> [B, S, D]

    Other arguments of a call: see `SelfAttention`.

    A training step that recomputes blocks (`memory.py`) keeps the input of each block; its backward
    pass computes the block's other tensors again, some 20 of that size, block by block. The step
    then takes a third longer. In a step that recomputes attention, the derivative
    of the activation is also recomputed, from the activation's input.

    Original: `transformer_model`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        intermediate_size: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: str = "gelu",
        *,
        causal: bool = False,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        **kwargs: Any,
    ):
        """Makes the inner layers; `build` makes their weights.

        Args:
          hidden_size: D.
          num_heads: N.
          intermediate_size: F, the width of the feed-forward network.
          dropout: rate of the dropout of each sub-layer's output.
          attention_dropout: rate of the probabilities' dropout.
          activation: gelu (the tanh form, as in the original), gelu_erf, relu, tanh or linear.
          causal, initializer_range: see `SelfAttention`.
          layer_norm_eps: added to variances.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: a size is not positive, D is no multiple of N, a rate is out of range, or the
            activation is unknown.
        """
        super().__init__(**kwargs)
        self.hidden_size = checked_size("hidden_size", hidden_size)
        self.num_heads = checked_size("num_heads", num_heads)
        self.intermediate_size = checked_size("intermediate_size", intermediate_size)
        self.dropout = checked_rate("dropout", dropout)
        self.attention_dropout = checked_rate("attention_dropout", attention_dropout)
        check("activation", activation, str, choices=ACTIVATION_NAMES)
        self.activation = activation
        self.causal = causal
        self.initializer_range = checked_scale("initializer_range", initializer_range)
        self.layer_norm_eps = checked_scale("layer_norm_eps", layer_norm_eps)
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: self.hidden_size})
        self.attention = SelfAttention(
            hidden_size,
            num_heads,
            attention_dropout,
            causal=causal,
            initializer_range=initializer_range,
            name="self",
            **self.part_arguments(),
        )
        self.attention_output = self.make_dense(self.hidden_size)
        self.attention_drop = self.make_dropout(dropout)
        self.attention_norm = self.make_layer_norm()
        self.intermediate = self.make_dense(self.intermediate_size)
        self.block_output = self.make_dense(self.hidden_size)
        self.output_drop = self.make_dropout(dropout)
        self.output_norm = self.make_layer_norm()

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes of a configuration."""
        arguments: dict[str, Any] = {
            "hidden_size": config.hidden_size,
            "num_heads": config.num_attention_heads,
            "intermediate_size": config.intermediate_size,
            "dropout": config.hidden_dropout_prob,
            "attention_dropout": config.attention_probs_dropout_prob,
            "activation": config.hidden_act,
            "causal": config.is_causal,
            "initializer_range": config.initializer_range,
            "layer_norm_eps": config.layer_norm_eps,
        }
        return cls(**arguments | kwargs)

    def build(self, x_shape: Shape) -> None:
        """Builds the inner layers in the scopes that give weights the original's names."""
        with keras.name_scope("attention"):
            self.attention.build(x_shape)
            with keras.name_scope("output"):
                for part in (self.attention_output, self.attention_drop, self.attention_norm):
                    part.build(x_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(x_shape)
        with keras.name_scope("output"):
            self.block_output.build((*x_shape[:-1], self.intermediate_size))
            for part in (self.output_drop, self.output_norm):
                part.build(x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,
        x_mask=None,
    ):
        """Applies attention, then the feed-forward network: norm(x + sublayer(x)) each."""
        activation = ACTIVATIONS[self.activation]
        if training and memory.recomputes("attention"):
            activation = keras.remat(activation)  # its derivative is not kept, but recomputed

        def block(x: Tensor) -> Any:  # [B, S, D] -> [B, S, D]
            attended = self.attention(
                x,
                padding_mask,
                attention_mask,
                training=training,
                return_attention_scores=return_attention_scores,
                mask=mask,
                x_mask=x_mask,
            )
            context = attended[0] if return_attention_scores else attended
            context = self.attention_drop(self.attention_output(context), training=training)
            y = self.attention_norm(x + context)  # [B, S, D]
            wide = activation(self.intermediate(y))  # [B, S, F]
            z = self.output_drop(self.block_output(wide), training=training)  # [B, S, D]
            z = self.output_norm(y + z)  # [B, S, D]
            return (z, attended[1]) if return_attention_scores else z

        if training and memory.recomputes("blocks"):
            return memory.recomputed(block, x)
        return block(x)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B, S, D]."""
        return x_shape

    def compute_output_spec(self, x, *args, return_attention_scores=False, **kwargs):
        """[B, S, D]; with scores also [B, N, S, S]."""
        return attention_spec(self, x, return_attention_scores)


# ---------------------------------------------------------------------------- pooler


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """tanh(dense(first token)): one vector for the sequence, which the paper calls C (section 3).

        pooled = Pooler(hidden_size=768)(x)                       [B, S, D] -> [B, D]

    The dense layer and tanh are in the original's code, not in the paper. In a causal model
    `models.encode` puts the last token first, as only that one sees the others.

    Original: `BertModel`.
    """

    def __init__(self, hidden_size: int, initializer_range: float = 0.02, **kwargs: Any):
        """Makes the projection; arguments: see `SelfAttention`."""
        super().__init__(**kwargs)
        self.hidden_size = checked_size("hidden_size", hidden_size)
        self.initializer_range = checked_scale("initializer_range", initializer_range)
        self.projection = self.make_dense(self.hidden_size)

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes and the name of a configuration's model."""
        arguments: dict[str, Any] = {
            "hidden_size": config.hidden_size,
            "initializer_range": config.initializer_range,
            "name": "pooler",
        }
        return cls(**arguments | kwargs)

    def build(self, x_shape: Shape) -> None:
        """Makes the projection's weights."""
        self.projection.build((x_shape[0], x_shape[-1]))

    def call(self, x: Tensor) -> Tensor:
        """x [B, S, D] -> [B, D]."""
        first = x[:, 0]  # [B, D], of [CLS]
        return ops.tanh(self.projection(first))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor) -> None:
        """None: a vector of the whole sequence has no padding."""

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """[B, D]."""
        return (x_shape[0], self.hidden_size)
