"""The layers of BERT, up to its pooler; in `keras.ops` alone, so they run on every backend.

    x = Embeddings(vocab_size=30522, hidden_size=768)(input_ids, segment_ids)    [B, S, D]
    x = EncoderBlock(768, num_heads=12, intermediate_size=3072)(x)               [B, S, D]
    pooled = Pooler(768)(x)                                                      [B, D]

or with the sizes of a configuration, `EncoderBlock.from_bert_config(config, name="layer_0")`.

Dimensions, here and in the whole project:

    B batch    S sequence    P predictions    D hidden    N heads    H head size, D = N * H
    F feed-forward    V vocabulary    T segment types

Layers and weights are named so that a variable's path is its name in the original's checkpoints,
less the leading `bert/`, `bert/encoder/` or `cls/` (checkpoints/tf1.py).
"""

import contextlib
import dataclasses
import importlib
import math
import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import keras
import numpy as np
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import BertConfig
from bert_tf.declarations import check_field
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.tokenization.layer import Tokenizer as Tokenizer

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


# The sizes of layers, and what they are called in a BertConfig, which says what is allowed.
SIZES = {
    "hidden_size": "hidden_size",  # D
    "num_heads": "num_attention_heads",  # N; the head size H is D / N
    "intermediate_size": "intermediate_size",  # F
    "vocab_size": "vocab_size",  # V
    "type_vocab_size": "type_vocab_size",  # T
    "max_positions": "max_position_embeddings",  # the longest sequence
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "causal": "is_causal",  # whether a token sees those before it and itself alone
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}


if not TYPE_CHECKING:  # for which a misspelt name is an error

    def __getattr__(name: str) -> Any:
        """`Tokenizer`, which needs TensorFlow."""
        if name == "Tokenizer":
            return importlib.import_module("bert_tf.tokenization.layer").Tokenizer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BertLayer(keras.layers.Layer):
    """A layer with some of `SIZES` as arguments and attributes, which are saved with it.

    It passes on a mask of Keras, as `Masking` or `Embeddings` give it. Layers that attend take it
    for the padding_mask if they are given none.

    Attributes:
      takes: the names of its sizes; one that is not given is as in a BertConfig.
      sizes: their values.
    """

    takes: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any):
        defaults = vars(BertConfig) | {"is_causal": False}
        sizes = {name: kwargs.pop(name, defaults.get(SIZES[name])) for name in self.takes}
        super().__init__(**kwargs)
        self.supports_masking = True
        remedy = f"give numbers, or use {type(self).__name__}.from_bert_config(config)"
        for name, value in sizes.items():
            sizes[name] = value = value.item() if isinstance(value, np.generic) else value
            check_field(BertConfig, SIZES[name], value, name=name, remedy=remedy)
        self.sizes = sizes

    def __getattr__(self, name: str) -> Any:
        with contextlib.suppress(AttributeError):
            return super().__getattr__(name)  # where PyTorch's modules keep their parts
        if name in SIZES and name in (sizes := self.__dict__.get("sizes", {})):
            return sizes[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer with the sizes of a configuration; the constructor's arguments go before."""
        return cls(**{name: getattr(config, SIZES[name]) for name in cls.takes} | kwargs)

    def part(self, cls: type["Part"], name: str) -> "Part":
        """A layer inside of this one, of its sizes and dtype."""
        sizes = {size: self.sizes[size] for size in cls.takes}
        return cls(**sizes, dtype=self.dtype_policy, name=name)

    def dense(self, units: int, name: str = "dense") -> "Dense":
        """A dense layer with BERT's initializer, of this layer's dtype."""
        kernel = TruncatedNormal(stddev=self.initializer_range)
        return Dense(units, kernel_initializer=kernel, dtype=self.dtype_policy, name=name)

    def layer_norm(self) -> keras.layers.LayerNormalization:
        """Layer normalization with BERT's epsilon (Keras's own default is 1e-3)."""
        return keras.layers.LayerNormalization(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    def dropout_layer(self, rate: float) -> "Dropout":
        """Dropout of this layer's dtype."""
        return Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), **self.sizes}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer of what `get_config` gave; what is inside of a frozen layer is frozen, too."""
        whole = config.get("config")  # of embeddings, and of every layer in older files
        own = {name: value for name, value in config.items() if name != "config"}
        layer = cls.from_bert_config(BertConfig.from_dict(whole), **own) if whole else cls(**own)
        for inner in layer._flatten_layers(include_self=False):
            inner.trainable = layer.trainable
        return layer

    def compute_output_shape(self, x_shape: Shape, *_: Any) -> Shape:
        """The shape of the first input, with D at its end."""
        return (*x_shape[:-1], self.hidden_size)


Part = TypeVar("Part", bound=BertLayer)


class Attending(BertLayer):
    """A layer whose tokens see each other: what its parts take and give.

    Called with x [B, S, D] and

        padding_mask              [B, S], 0 for padding, as `input_mask`; without it the mask that x
                                  has from Keras; without either there is no padding
        attention_mask            [B, S, S] or [B, N, S, S], 0 where a token (first S) does not see
                                  another (second S); given both, it sees what both allow
        return_attention_scores   also gives the soft-max's probabilities, float32 [B, N, S, S]

    A mask of another shape is an error.
    """

    def compute_output_spec(self, x, *args, return_attention_scores=False, **kwargs):
        """[B, S, D], or that and [B, N, S, S]."""
        y = keras.KerasTensor((*x.shape[:-1], self.hidden_size), dtype=self.compute_dtype)
        scores = (x.shape[0], self.num_heads, x.shape[1], x.shape[1])
        return (y, keras.KerasTensor(scores, "float32")) if return_attention_scores else y


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(Attending):
    """Scaled dot-product attention of N heads (paper, section 3; original: `attention_layer`).

    In a causal model (section 5.1) a token sees itself and those before it.

    The gradient is written out: that of soft-max needs no sums over S * S, as those of P * dP are
    those of the context and its gradient (Dao et al., 2022, appendix B.2). In a `TrainingStep` that
    recomputes attention the probabilities are not kept for it but computed again from query and
    key: one product of the six that attention takes is made twice.
    """

    takes = ("hidden_size", "num_heads", "attention_dropout", "causal", "initializer_range")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        hidden_size, num_heads = self.hidden_size, self.num_heads
        if hidden_size % num_heads:
            received = f"hidden_size {hidden_size}, which is no multiple of num_heads {num_heads}"
            raise InputError(received, "a whole size for each head", "change one of the two")
        self.query = self.dense(hidden_size, "query")
        self.key = self.dense(hidden_size, "key")
        self.value = self.dense(hidden_size, "value")
        self.dropout = self.dropout_layer(self.attention_dropout)

    def build(self, x_shape: Shape, *_: Any, **__: Any) -> None:
        """Makes the three projections."""
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        self.dropout.build(x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,
    ):
        """x [B, S, D] -> context [B, S, D]; see `Attending`."""
        padding_mask = mask if padding_mask is None else padding_mask
        batch, length, hidden = ops.shape(x)
        heads = self.num_heads
        mask_scores = self._mask_scores(padding_mask, attention_mask, batch, length)

        def split(y):  # [B, S, D] -> [B, N, S, H]
            y = ops.reshape(y, (batch, length, heads, hidden // heads))
            return ops.transpose(y, (0, 2, 1, 3))

        parts = split(self.query(x)), split(self.key(x)), split(self.value(x))
        context, p = self._context(parts, mask_scores, bool(training), return_attention_scores)
        context = ops.reshape(context, (batch, length, hidden))  # [B, S, D]
        return (context, p) if return_attention_scores else context

    def _context(
        self, parts: Iterable[Tensor], mask_scores: Tensor, training: bool, with_scores: bool
    ) -> tuple[Tensor, Tensor]:
        """softmax(Q K^T / sqrt(H) + mask) V, with dropout: [B, N, S, H] each -> [B, S, N, H].

        And the soft-max without dropout, or None.
        """
        query, key, value = parts
        scale, across, swapped = query.shape[-1] ** -0.5, (0, 1, 3, 2), (0, 2, 1, 3)

        def scores_of(query: Tensor, key: Tensor) -> Tensor:  # float32 [B, N, S, S]
            scores = ops.matmul(query, ops.transpose(key, across)) * scale
            return ops.cast(scores, "float32") + mask_scores

        def dropped(p: Tensor) -> Tensor:
            return self.dropout(ops.cast(p, self.compute_dtype), training=training)

        # Otherwise a second pass draws the masks of the first.
        if with_scores or not (training and _steps):
            p = ops.softmax(scores_of(query, key), axis=-1)
            return ops.transpose(ops.matmul(dropped(p), value), swapped), p

        masks = _steps[-1]

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
                if masks.recompute == "attention":
                    # Plus a 0 that no compiler knows: else it keeps what was there.
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

        return attend(query, key, value), None

    def _mask_scores(
        self, padding_mask: Tensor, attention_mask: Tensor, batch: Tensor, length: Tensor
    ) -> Tensor:
        """0 for what is seen, -10000 for what is not: float32 [B, 1 or N, 1 or S, S], [S, S], 0."""
        seen = 1.0
        if padding_mask is not None:
            mask = _of_shape("padding_mask", padding_mask, (batch, length))
            seen *= ops.reshape(mask, (batch, 1, 1, length))
        if attention_mask is not None:
            own = (batch, *[self.num_heads] * (len(attention_mask.shape) == 4), length, length)
            mask = _of_shape("attention_mask", attention_mask, own)
            seen *= ops.reshape(mask, (batch, -1, length, length))
        if self.causal:
            places = ops.arange(length, dtype="int32")
            seen *= ops.cast(places[:, None] >= places, "float32")  # [S, S]
        return (1.0 - seen) * MASKED_SCORE


def _of_shape(name: str, mask: Tensor, shape: tuple) -> Tensor:
    """The mask as float32; not broadcast: of another shape, known in a running graph, it fails."""
    if len(mask.shape) != len(shape):
        wanted = {"padding_mask": "[B, S]", "attention_mask": "[B, S, S] or [B, N, S, S]"}
        received = f"{name} of shape {list(mask.shape)}"
        raise InputError(received, wanted[name], "give the one as the other, or correct its shape")
    mask = ops.cast(mask, "float32")
    return ops.maximum(mask, ops.reshape(mask, shape))


@keras.saving.register_keras_serializable(package="bert_tf")
class Attention(Attending):
    """Self-attention, its projection, residual and normalization: half an encoder block."""

    takes = (*SelfAttention.takes, "dropout", "layer_norm_eps")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.self_attention = self.part(SelfAttention, "self")
        self.add_and_norm = self.part(AddAndNorm, "output")

    def build(self, x_shape: Shape, *_: Any, **__: Any) -> None:
        """Builds both parts."""
        self.self_attention.build(x_shape)
        self.add_and_norm.build(x_shape, x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,
    ):
        """x [B, S, D] -> [B, S, D]; see `Attending`."""
        padding_mask = mask if padding_mask is None else padding_mask
        with_scores = return_attention_scores
        context = self.self_attention(
            x, padding_mask, attention_mask, training=training, return_attention_scores=with_scores
        )
        context, *scores = context if with_scores else (context,)
        y = self.add_and_norm(context, x, training=training)
        return (y, *scores) if with_scores else y


@keras.saving.register_keras_serializable(package="bert_tf")
class AddAndNorm(BertLayer):
    """norm(residual + dropout(dense(x))), the end of both halves of an encoder block."""

    takes = ("hidden_size", "dropout", "initializer_range", "layer_norm_eps")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.projection = self.dense(self.hidden_size)
        self.dropout = self.dropout_layer(self.sizes["dropout"])
        self.norm = self.layer_norm()

    def build(self, x_shape: Shape, residual_shape: Shape | None = None) -> None:
        """Makes the projection and the normalization."""
        self.projection.build(x_shape)
        self.dropout.build(x_shape)
        self.norm.build((*x_shape[:-1], self.hidden_size))

    def call(self, x: Tensor, residual: Tensor, training: bool | None = None) -> Tensor:
        """x [B, S, D or F], residual [B, S, D] -> [B, S, D]."""
        return self.norm(residual + self.dropout(self.projection(x), training=training))


@keras.saving.register_keras_serializable(package="bert_tf")
class Intermediate(BertLayer):
    """activation(dense(x)): the wide half of the feed-forward network.

    In a `TrainingStep` that recomputes attention, the gradient of the activation is computed from
    its input and keeps nothing.
    """

    takes = ("hidden_size", "intermediate_size", "activation", "initializer_range")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.projection = self.dense(self.intermediate_size)

    def build(self, x_shape: Shape) -> None:
        """Makes the projection."""
        self.projection.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [..., D] -> [..., F]."""
        wide, activation = self.projection(x), ACTIVATIONS[self.activation]
        again = training and recomputes("attention")
        return keras.remat(activation)(wide) if again else activation(wide)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        """The shape of x with F at its end."""
        return (*x_shape[:-1], self.intermediate_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(Attending):
    """One Transformer block, normalized after each half (original: `transformer_model`).

        block = EncoderBlock(hidden_size=768, num_heads=12, intermediate_size=3072)
        y = block(x, padding_mask=input_mask)                      [B, S, D] -> [B, S, D]

    What else it is called with: `Attending`. Rates of dropout are those of the residuals and of
    the attention's probabilities; activation: gelu (the tanh form), gelu_erf, relu, tanh, linear.

    In a `TrainingStep` that recomputes blocks it keeps its input alone for the gradient, and
    computes again what else the backward pass needs: some 20 tensors as large as its input, of one
    block at a time. The work is a third more. Dropout masks are hashes of places (`Dropout`), so
    the second pass draws those of the first.

    Raises:
      InputError: a size is not positive, hidden_size is no multiple of num_heads, or the
        activation is unknown.
    """

    takes = (*Attention.takes, "intermediate_size", "activation")

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
        super().__init__(
            hidden_size=hidden_size,
            num_heads=num_heads,
            intermediate_size=intermediate_size,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=activation,
            causal=causal,
            initializer_range=initializer_range,
            layer_norm_eps=layer_norm_eps,
            **kwargs,
        )
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: hidden_size})
        self.attention = self.part(Attention, "attention")
        self.intermediate = self.part(Intermediate, "intermediate")
        self.add_and_norm = self.part(AddAndNorm, "output")

    def build(self, x_shape: Shape, *_: Any, **__: Any) -> None:
        """Builds the three parts."""
        self.attention.build(x_shape)
        self.intermediate.build(x_shape)
        self.add_and_norm.build((*x_shape[:-1], self.intermediate_size), x_shape)

    def call(
        self,
        x,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,
    ):
        """x [B, S, D] -> [B, S, D]; see `Attending`."""
        training, with_scores = drops(self, training), return_attention_scores
        masks = (mask if padding_mask is None else padding_mask), attention_mask

        def block(x: Tensor) -> Any:
            options = {"training": training, "return_attention_scores": with_scores}
            y = self.attention(x, *masks, **options)
            y, *scores = y if with_scores else (y,)
            y = self.add_and_norm(self.intermediate(y, training=training), y, training=training)
            return (y, *scores) if with_scores else y

        return recomputed(block, x) if training and recomputes("blocks") else block(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(BertLayer):
    """Word + segment + position embeddings, normalized (original: `embedding_postprocessor`).

        x = Embeddings(vocab_size=30522, hidden_size=768)(input_ids, segment_ids)     [B, S, D]

    With mask_zero, id 0 is padding: the result has that as its mask of Keras.

    Attributes:
      config: the `BertConfig` that it was made of; None: of numbers.
    """

    config: BertConfig | None = None

    takes = (
        *("vocab_size", "hidden_size", "max_positions", "type_vocab_size", "dropout"),
        *("initializer_range", "layer_norm_eps"),
    )

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
        name: str = "embeddings",
        **kwargs: Any,
    ):
        super().__init__(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            max_positions=max_positions,
            type_vocab_size=type_vocab_size,
            dropout=dropout,
            initializer_range=initializer_range,
            layer_norm_eps=layer_norm_eps,
            name=name,
            **{"autocast": False, **kwargs},  # 16 bits hold no ids
        )
        self.mask_zero = mask_zero
        self.norm = self.layer_norm()
        self.dropout = self.dropout_layer(dropout)

    def build(self, input_ids_shape: Shape, *_: Any, **__: Any) -> None:
        """Makes the three tables and the normalization."""

        def table(rows: int, name: str) -> Tensor:
            # One each: an initializer of Keras draws the same values whenever it is called.
            init = TruncatedNormal(stddev=self.initializer_range)
            # In float32 whatever the layer computes in: many gradients of one row are added up.
            shape = (rows, self.hidden_size)
            return self.add_weight(shape=shape, initializer=init, autocast=False, name=name)

        self.word_embeddings = table(self.vocab_size, "word_embeddings")  # [V, D]
        self.token_type_embeddings = table(self.type_vocab_size, "token_type_embeddings")
        self.position_embeddings = table(self.max_positions, "position_embeddings")
        self.norm.build((*input_ids_shape, self.hidden_size))
        self.dropout.build((*input_ids_shape, self.hidden_size))

    @classmethod
    def from_bert_config(cls, config: BertConfig, **kwargs: Any) -> Self:
        """The layer of a model with that configuration, which is saved with it."""
        layer = super().from_bert_config(config, **kwargs)
        own = {SIZES[name]: value for name, value in layer.sizes.items()}
        layer.config = dataclasses.replace(config, **own)
        return layer

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """As of every layer; those of older files made no mask."""
        return super().from_config({"mask_zero": "config" not in config, **config})

    def call(
        self,
        input_ids,
        segment_ids=None,
        positions=None,
        training=None,
        with_table=False,
        sequence_numbers=None,
    ):
        """input_ids, segment_ids, positions [B, S] -> embeddings [B, S, D].

        Segments that are left out are 0, positions 0, 1, 2, ... Ids are whole numbers; floats, with
        which Keras builds a loaded model, are cast.

        With `with_table` -> (embeddings, word table [V, D]), or the table alone if it is "only",
        for a head that is tied to it: only what is read inside `call` takes part in the gradient,
        not what a functional model reads while it is built.

        With `sequence_numbers`, of rows of several sequences, positions begin again in each.
        """
        if sequence_numbers is not None:
            positions = ops.minimum(places_in_sequences(sequence_numbers), self.max_positions - 1)
        if keras.backend.standardize_dtype(input_ids.dtype) in ("bfloat16", "float16"):
            remedy = "give integers; a Sequential model needs keras.Input((None,), dtype='int32')"
            raise InputError(f"ids of type {input_ids.dtype}", "whole numbers", remedy)
        input_ids = ops.cast(input_ids, "int32")
        length = ops.shape(input_ids)[1]
        if positions is None and isinstance(length, int) and length > self.max_positions:
            received = f"sequences of {length}"
            raise InputError(received, f"at most {self.max_positions}", "cut the texts")
        words = ops.copy(self.word_embeddings)  # the value, not the variable: for custom gradients
        if with_table == "only":
            return words
        x = ops.take(words, input_ids, axis=0)  # [B, S, D]
        types = ops.convert_to_tensor(self.token_type_embeddings)
        if segment_ids is None:
            x += types[0]
        else:
            # A product with one-hot rows: a gradient without scatter, for the two or so types.
            segment_ids = ops.cast(segment_ids, "int32")
            segment_ids = ops.stack([input_ids, segment_ids])[1]  # of one shape, or this fails
            one_hot = ops.one_hot(segment_ids, self.type_vocab_size, dtype=self.variable_dtype)
            x += ops.matmul(one_hot, types)  # [B, S, D]
        table = ops.convert_to_tensor(self.position_embeddings)
        if positions is None:
            x += table[:length]  # [S, D] to each row
        else:
            x += ops.take(table, ops.cast(positions, "int32"), axis=0)  # [B, S, D]
        x = self.dropout(self.norm(x), training=drops(self, training))
        return (x, words) if with_table else x

    def compute_mask(self, input_ids: Tensor, previous_mask: Tensor = None) -> Tensor:
        """Where ids are not padding, bool [B, S]; None without mask_zero."""
        ids = input_ids[0] if isinstance(input_ids, (list, tuple)) else input_ids
        return ops.not_equal(ids, 0) if self.mask_zero else None

    def compute_output_shape(  # type: ignore[override]  # Keras gives it by name
        self, input_ids_shape: Shape, *_: Any, **__: Any
    ) -> Shape:
        """[B, S, D]."""
        return (*input_ids_shape, self.hidden_size)

    def compute_output_spec(self, input_ids, *_, with_table=False, **__):
        """[B, S, D], that and [V, D], or [V, D]."""
        x = keras.KerasTensor((*input_ids.shape, self.hidden_size), dtype=self.compute_dtype)
        table = keras.KerasTensor((self.vocab_size, self.hidden_size), dtype=self.variable_dtype)
        return {False: x, True: (x, table), "only": table}[with_table]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"mask_zero": self.mask_zero}
        whole = {"config": self.config.to_dict()} if self.config else {}
        return {**super().get_config(), **own, **whole}


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """tanh(dense(first token)): one vector for the sequence (original: `BertModel`).

        pooled = Pooler(hidden_size=768)(x)                       [B, S, D] -> [B, D]

    `encode` gives a causal model's last token as the first one.
    """

    takes = ("hidden_size", "initializer_range")

    def __init__(
        self, hidden_size: int, initializer_range: float = 0.02, name: str = "pooler", **kwargs: Any
    ):
        sizes = {"hidden_size": hidden_size, "initializer_range": initializer_range}
        super().__init__(**sizes, name=name, **kwargs)
        self.projection = self.dense(hidden_size)

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
        return (sequence_output_shape[0], self.hidden_size)


# ---------------------------------------------------------------------------- packed rows

# A row has several sequences, one after the other (Krell et al., 2021). Its input_mask, here called
# sequence_numbers, int [B, S], is 1 for the tokens of the first, 2 for those of the second, 0 for
# padding.


def same_sequence(sequence_numbers: Tensor) -> Tensor:
    """Whether a token sees another, as an attention_mask: [B, S] -> bool [B, S, S].

    Padding sees padding.
    """
    numbers = sequence_numbers
    return ops.equal(ops.expand_dims(numbers, 2), ops.expand_dims(numbers, 1))


def places_in_sequences(sequence_numbers: Tensor) -> Tensor:
    """The place of each token in its sequence, from 0: int32 [B, S]."""
    before = tokens_before(sequence_numbers, sequence_numbers)  # [B, S]
    return ops.arange(ops.shape(sequence_numbers)[1], dtype="int32") - before


def first_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the first tokens of sequences 1 to K: x [B, S, D] -> [B, K, D].

    Of a sequence that is not there some token's.
    """
    numbers = ops.arange(1, num_sequences + 1, dtype="int32")[None, :]  # [1, K]
    places = tokens_before(sequence_numbers, numbers)  # [B, K]
    last = ops.sum(ops.cast(sequence_numbers > 0, "int32"), axis=1, keepdims=True) - 1  # [B, 1]
    return ops.take_along_axis(x, ops.expand_dims(ops.minimum(places, last), 2), axis=1)


def last_tokens(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """The vectors of the last tokens of sequences 1 to K: x [B, S, D] -> [B, K, D]."""
    # [1, K], of the next ones; a tensor would be an input of graphs that are converted.
    numbers = np.arange(2, num_sequences + 2, dtype="int32")[None, :]
    places = ops.maximum(tokens_before(sequence_numbers, numbers) - 1, 0)  # [B, K]
    return ops.take_along_axis(x, ops.expand_dims(places, 2), axis=1)


def last_at_first(x: Tensor, sequence_numbers: Tensor, num_sequences: int) -> Tensor:
    """[B, S, D], with the vector of each sequence's last token at its first one."""
    last = last_tokens(x, sequence_numbers, num_sequences)  # [B, K, D]
    number = ops.expand_dims(ops.maximum(sequence_numbers - 1, 0), 2)  # [B, S, 1]
    before = ops.pad(sequence_numbers, ((0, 0), (1, 0)))[:, :-1]  # [B, S]
    is_first = ops.logical_and(sequence_numbers > 0, ops.not_equal(sequence_numbers, before))
    last = ops.take_along_axis(last, number, axis=1)  # [B, S, D]
    return ops.where(ops.expand_dims(is_first, 2), last, x)


def tokens_before(sequence_numbers: Tensor, of: Tensor) -> Tensor:
    """How many tokens of a row are of sequences with smaller numbers: int32, of the shape of `of`.

    0 for number 0, the padding.
    """
    own = ops.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    is_before = ops.logical_and(own > 0, ops.less(own, of[:, :, None]))  # [B, n, S]
    return ops.sum(ops.cast(is_before, "int32"), axis=-1)


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
class TrainingStep:
    """Within its context layers know of the step that they are called in.

    Dropout masks are then a pure function of its seed, of a sequence's number in the global batch
    and of a token's place in its sequence, whatever rows they stand in.

    Args:
      seed: int32 scalar, a different one for each step.
      sequences: their numbers in the global batch, int32 [B, K]. A layer whose inputs have more
        rows counts on within each. None: 0, 1, 2, ...
      numbers: of rows of several sequences their input_mask, int32 [B, S].
      recompute: what is computed again for the gradient: "attention", its probabilities and the
        derivative of gelu; "blocks", all of a block; "", nothing.
      still: ids of the layers that drop nothing, those of a frozen encoder.
      lines: what `places` has made.
    """

    seed: Tensor
    sequences: Tensor = None
    numbers: Tensor = None
    recompute: str = ""
    still: frozenset[int] = frozenset()
    lines: dict[tuple, tuple[Tensor, Tensor]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seed = ops.convert_to_tensor(self.seed, "int32")

    def __enter__(self) -> None:
        _steps.append(self)

    def __exit__(self, *_: Any) -> None:
        _steps.pop()

    def places(self, shape: Any) -> tuple[Tensor, Tensor]:
        """Of each element a hash of its line, along the last axis, and of its place in the line.

        They broadcast to `shape` and are made once for all layers: what is left for each element is
        what counts on GPUs, and what is left for each layer is what a step's start takes.
        """
        if not all(isinstance(n, int) for n in shape):  # some are tensors
            return self._places(shape)
        key = tuple(shape)
        if key not in self.lines:
            self.lines[key] = self._places(shape)
        return self.lines[key]

    def again(self, zero: Tensor) -> "TrainingStep":
        """A step of the same masks, which are computed again: `zero`, an int32, is 0 unknown."""
        lines = {key: (line + zero, element) for key, (line, element) in self.lines.items()}
        return dataclasses.replace(self, seed=self.seed + zero, lines=lines)

    def _places(self, shape: Any) -> tuple[Tensor, Tensor]:
        between, last = shape[1:-1], ops.arange(shape[-1], dtype="int32")
        if self.numbers is not None and between:  # of the tokens of several sequences
            places = places_in_sequences(self.numbers)  # [B, S]
            number = ops.maximum(self.numbers - 1, 0)
            sequence = ops.take_along_axis(self.sequences, number, axis=1)  # [B, S]
            if len(between) == 2:
                last = places[:, None, None, :]
        else:
            sequence = self._sequences(shape[0])  # [B]
            places = ops.arange(between[-1] if between else 1, dtype="int32")  # [S]
            sequence = sequence[:, None] if between else sequence
        if len(between) > 1:  # as heads have several lines of each token
            others = ops.arange(math.prod(between[:-1]), dtype="int32")[:, None] * 2**16
            places = ops.expand_dims(places, -2) + others  # [N, S], or [B, N, S]
            sequence = ops.expand_dims(sequence, 1)
        row = mix(ops.bitwise_xor(sequence * GOLDEN_RATIO, mix(self.seed)))
        line = mix(ops.bitwise_xor(row, places * GOLDEN_RATIO))
        if len(between) > 2:
            line = ops.reshape(line, (-1, *between))
        return ops.expand_dims(line, -1), last * GOLDEN_RATIO

    def _sequences(self, rows: Any) -> Tensor:
        """The numbers of the sequences that so many rows belong to, int32 [rows]."""
        if self.sequences is None:
            return ops.arange(rows, dtype="int32")
        sequences = ops.reshape(self.sequences, (-1, 1))  # [B * K, 1]
        each = rows // ops.shape(sequences)[0]
        return ops.reshape(sequences * each + ops.arange(each, dtype="int32"), (-1,))


_steps: list[TrainingStep] = []  # those whose contexts are entered


def recomputes(what: str) -> bool:
    """Whether this is computed again for the gradient."""
    return bool(_steps) and _steps[-1].recompute == what


def drops(layer: keras.layers.Layer, training: bool | None) -> bool:
    """Whether a part of the encoder has dropout."""
    return bool(training) and not (_steps and id(layer) in _steps[-1].still)


def recomputed(function: Callable, *tensors: Tensor) -> Tensor:
    """`function(*tensors)`; its gradient keeps the tensors alone, and computes the rest again.

    The seed of dropout is one more of them. Otherwise a compiler would find that the masks of both
    passes are the same, compute them once, and keep them: a byte for each element. Outside of a
    `TrainingStep` nothing is recomputed, as the second pass would draw other masks.
    """
    if not _steps:
        return function(*tensors)
    step = _steps[-1]

    def with_seed(high: Tensor, low: Tensor, *tensors: Tensor) -> Tensor:
        seed = ops.left_shift(ops.cast(high, "int32"), 16) + ops.cast(low, "int32")
        with dataclasses.replace(step, seed=seed, lines={}):
            return function(*tensors)

    # Halves, which float32 holds exactly: what is not floating has no place in a gradient.
    high, low = ops.right_shift(step.seed, 16), ops.bitwise_and(step.seed, 0xFFFF)
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
    """Dropout without state: a mask is a hash of seed, place in the model, sequence and element.

    It is computed again for the gradient, not stored. Sequences have their numbers in the global
    batch (`TrainingStep`): so the masks of a step do not depend on how its batch is packed, spread
    over replicas or cut into micro-batches, and a resumed run draws those of an undisturbed one.
    Outside of a step the seed comes from a Keras `SeedGenerator`, so that the layer works under
    `fit` too; there all replicas draw the same masks, as those of Keras's own layer do.
    """

    def __init__(self, rate: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = rate
        self.supports_masking = True
        self._seeds: Any = keras.random.SeedGenerator() if rate else None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [B, ...] -> [B, ...]; in training a share `rate` becomes 0, the rest is scaled up."""
        if not self.rate or not training:
            return x
        if _steps:
            step = _steps[-1]
        else:
            own, calls = ops.unstack(ops.cast(self._seeds.next(), "int32"), 2)
            step = TrainingStep(ops.bitwise_xor(mix(calls * GOLDEN_RATIO), own))
        line, element = step.places(ops.shape(x))
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
