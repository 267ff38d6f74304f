"""How layers behave in a training step: reproducible dropout, and gradients that need less memory.

A step is a context around the model and its gradient; `training/step.py` enters it:

    with TrainingStep(seed, sequences, recompute="attention"), tf.GradientTape() as tape:
        loss = ...model(inputs, training=True)...
        gradients = tape.gradient(loss, weights)

Inside, layers use three things:

    Dropout     masks that are a hash of seed, sequence and position: the same on one device and on
                eight, in whole batches and in parts, and when a layer is computed twice
    recomputed  a function whose gradient keeps only the inputs, and recomputes the rest
    attend      the paper's attention with a hand-written gradient that keeps less

Outside of a step, in `fit` or a plain call, dropout is seeded by Keras's generator, nothing is
recomputed, and gradients are the backend's own.

Dimensions as in `layers.py`: B batch, S sequence, N heads, H head size, D = N * H; K sequences of a
row of several (`rows.py`).
"""

import contextvars
import dataclasses
import math
import re
import zlib
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.declarations import check
from bert_tf.modeling.rows import places_in_sequences

Tensor = Any  # of any backend
Shape = tuple[int | None, ...]
GOLDEN_RATIO = -0x61C88647  # 0x9E3779B9 as int32; spreads consecutive counters
_current: contextvars.ContextVar["TrainingStep | None"] = contextvars.ContextVar(
    "training_step", default=None
)

# ---------------------------------------------------------------------------- the context of a step


@dataclasses.dataclass
class TrainingStep:
    """The context of a training step, which the layers in it look up.

    In it, a dropout mask is a pure function of the step's seed, the number of the sequence in the
    global batch and the token's position in its sequence, whatever row the sequence is in.

    Args:
      seed: int32 scalar, a different one for each step.
      sequences: the numbers of the sequences in the global batch, int32 [B, K]; None: 0, 1, 2, ...
        In multiple choice an example has C rows, which are numbered consecutively.
      sequence_numbers: for rows of several sequences (`rows.py`), int32 [B, S].
      recompute: what the gradient recomputes: "attention" (the probabilities, and the derivative of
        the activation), "blocks" (whole blocks) or "" (nothing).
      without_dropout: a pattern of the paths of layers without dropout, such as those of a frozen
        encoder; "": all layers drop.
      hashes: the results of `hashes_of` by shape, computed once for all layers.
    """

    seed: Tensor
    sequences: Tensor = None
    sequence_numbers: Tensor = None
    recompute: str = ""
    without_dropout: str = ""
    hashes: dict[tuple, tuple[Tensor, Tensor]] = dataclasses.field(default_factory=dict)
    _tokens: list[contextvars.Token] = dataclasses.field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.seed = ops.convert_to_tensor(self.seed, "int32")

    def __enter__(self) -> None:
        self._tokens.append(_current.set(self))

    def __exit__(self, *_: Any) -> None:
        _current.reset(self._tokens.pop())

    def drops(self, path: str) -> bool:
        """Whether the dropout layer of that path drops anything."""
        return not (self.without_dropout and re.match(self.without_dropout, path))

    def hashes_of(self, shape: Any) -> tuple[Tensor, Tensor]:
        """The hashes that a dropout mask of a shape is made of.

        A line is a vector along the last axis, such as a token's [D] of [B, S, D].

        Args:
          shape: [B, ..., elements of a line].

        Returns:
          The hash of each line by seed, sequence and position, int32 [B, ..., 1]; and numbers of
          the elements of a line, int32, which broadcast to the shape.
        """
        if not all(isinstance(size, int) for size in shape):  # a tensor is no key of a dict
            return self._hashes(shape)
        key = tuple(shape)
        if key not in self.hashes:
            self.hashes[key] = self._hashes(shape)
        return self.hashes[key]

    def again(self, zero: Tensor) -> "TrainingStep":
        """A step of the same masks, for the recomputation.

        Args:
          zero: int32 scalar, a 0 that no compiler knows: otherwise it would reuse the first masks.
        """
        hashes = {key: (line + zero, element) for key, (line, element) in self.hashes.items()}
        return dataclasses.replace(self, seed=self.seed + zero, hashes=hashes)

    def _hashes(self, shape: Any) -> tuple[Tensor, Tensor]:
        """As `hashes_of`, without looking up earlier results."""
        inner = shape[1:-1]  # the axes between rows and elements: (), (S,), (N, S), ...
        element = ops.arange(shape[-1], dtype="int32")
        if self.sequence_numbers is not None and inner:
            positions = places_in_sequences(self.sequence_numbers)  # [B, S]
            index = ops.maximum(self.sequence_numbers - 1, 0)  # [B, S]
            sequence = ops.take_along_axis(self.sequences, index, axis=1)  # [B, S]
            if len(inner) == 2:  # probabilities [B, N, S, S], whose elements are tokens, too
                element = positions[:, None, None, :]
        else:
            sequence = self._sequence_of_rows(shape[0])  # [B]
            positions = ops.arange(inner[-1] if inner else 1, dtype="int32")  # [S], or [1]
            if inner:
                sequence = sequence[:, None]  # [B, 1]
        if len(inner) > 1:  # a token has a line for each head: 2**16 is above all positions
            heads = ops.arange(math.prod(inner[:-1]), dtype="int32")[:, None] * 2**16  # [N, 1]
            positions = ops.expand_dims(positions, -2) + heads  # [N, S], or [B, N, S]
            sequence = ops.expand_dims(sequence, 1)
        sequence_hash = mix(ops.bitwise_xor(sequence * GOLDEN_RATIO, mix(self.seed)))
        line_hash = mix(ops.bitwise_xor(sequence_hash, positions * GOLDEN_RATIO))
        if len(inner) > 2:
            line_hash = ops.reshape(line_hash, (-1, *inner))
        return ops.expand_dims(line_hash, -1), element * GOLDEN_RATIO

    def _sequence_of_rows(self, num_rows: Any) -> Tensor:
        """The number of each row's sequence in the global batch, int32 [num_rows]."""
        if self.sequences is None:
            return ops.arange(num_rows, dtype="int32")
        sequences = ops.reshape(self.sequences, (-1, 1))  # [B * K, 1]
        choices = num_rows // ops.shape(sequences)[0]  # C; 1 unless it is multiple choice
        numbers = sequences * choices + ops.arange(choices, dtype="int32")  # [B * K, C]
        return ops.reshape(numbers, (-1,))


# ---------------------------------------------------------------------------- dropout


def mix(h: Tensor) -> Tensor:
    """A hash of int32 tensors, in which each bit of `h` changes half of the bits: MurmurHash3's.

    It is the finalizer `fmix32`, computed with int32: some backends have no uint32. Products wrap
    around, and the sign bits of shifts are masked.
    """
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF)) * -0x7A143595
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 13), 0x7FFFF)) * -0x3D4D51CB
    return ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF))


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout whose mask is a hash of seed, layer, sequence, position and element.

        y = Dropout(0.1)(x, training=True)                        [B, ...] -> [B, ...]

    The gradient recomputes the mask, which is not stored. In a `TrainingStep` a sequence has its
    number in the global batch: so masks do not depend on how a batch is packed, spread over
    replicas or cut into micro-batches, and a resumed run draws the same masks as an uninterrupted
    one. Outside of a step, as in `fit`, the seed comes from a Keras `SeedGenerator`; all replicas
    then draw the same masks, as with Keras's own layer.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        """Stores the rate; there are no weights.

        Args:
          rate: the share of elements that become 0, at least 0 and below 1.
          seed: the seed of the masks outside of a `TrainingStep`; None: drawn by Keras.
          **kwargs: passed to keras.layers.Layer.

        Raises:
          InputError: the rate is out of range, or the seed is no whole number.
        """
        super().__init__(**kwargs)
        check("rate", rate, float, low=0, below=1)
        check("seed", seed, int | None)
        self.rate = rate
        self.seed = seed
        self.supports_masking = True
        self.generator: Any = keras.random.SeedGenerator(seed) if rate else None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [B, ...] -> [B, ...]; in training a share `rate` is 0, the rest is scaled up."""
        if not self.rate or not training:
            return x
        step = _current.get()
        if step is None:
            layer_seed, num_calls = ops.unstack(ops.cast(self.generator.next(), "int32"), 2)
            step = TrainingStep(ops.bitwise_xor(mix(num_calls * GOLDEN_RATIO), layer_seed))
        elif not step.drops(self.path):
            return x
        keep = self._mask(step, ops.shape(x))
        scaled = ops.cast(x, "float32") * (1.0 / (1.0 - self.rate))  # in float32, then cast
        return ops.where(keep, ops.cast(scaled, x.dtype), ops.cast(0, x.dtype))

    def _mask(self, step: TrainingStep, shape: Any) -> Tensor:
        """The dropout mask of a shape, bool: True for elements that are kept."""
        if len(shape) < 2:  # each element is a row
            return ops.reshape(self._mask(step, (math.prod(shape), 1)), shape)
        line, element = step.hashes_of(shape)
        layer_hash = zlib.crc32(self.path.encode()) - 2**31
        # Cheaper than `mix`: lines are well mixed, and mostly the high bits decide below.
        h = ops.bitwise_xor(ops.bitwise_xor(line, layer_hash) * -0x3D4D51CB, element) * -0x7A143595
        h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 15), 0x1FFFF)) * -0x3D4D51CB
        return h >= int((self.rate - 0.5) * 2**32)  # h is uniform over int32

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """The shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


# ---------------------------------------------------------------------------- recomputation


def recomputes(what: str) -> bool:
    """Whether the current step recomputes this for the gradient; outside of a step nothing is.

    Args:
      what: "attention" or "blocks".
    """
    step = _current.get()
    return step is not None and step.recompute == what


def recomputed(function: Callable, *tensors: Tensor) -> Tensor:
    """`function(*tensors)`, whose gradient keeps only the tensors and recomputes the rest.

    Outside of a `TrainingStep` nothing is recomputed: the second pass would draw other masks.

    The seed of dropout is handed over as one of the tensors. Otherwise the compiler would see that
    both passes draw the same masks, and keep them from the first: a byte for each element.
    """
    step = _current.get()
    if step is None:
        return function(*tensors)

    def with_seed(high: Tensor, low: Tensor, *tensors: Tensor) -> Tensor:
        seed = ops.left_shift(ops.cast(high, "int32"), 16) + ops.cast(low, "int32")
        with dataclasses.replace(step, seed=seed, hashes={}):
            return function(*tensors)

    # remat differentiates its arguments, so they are float32, which holds half a seed exactly.
    high = ops.cast(ops.right_shift(step.seed, 16), "float32")
    low = ops.cast(ops.bitwise_and(step.seed, 0xFFFF), "float32")
    return keras.remat(with_seed)(high, low, *tensors)


# ---------------------------------------------------------------------------- attention


def in_training_step(training: bool | None) -> bool:
    """Whether this is the forward pass of a training step, in which `attend` can be used.

    Elsewhere its gradient would draw other dropout masks than its forward pass.
    """
    return bool(training) and _current.get() is not None


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: Dropout) -> Tensor:
    """dropout(softmax(Q Kᵀ / √H + bias)) V in a training step; its gradient keeps less.

    P are the probabilities, O the context, dX is the gradient of the loss with respect to X:

        dV = dropout(P)ᵀ dO
        dP = dropout(dO Vᵀ), with the mask of the forward pass
        dS = P * (dP - rowsum(O * dO)), of the scores
        dQ = dS K / √H
        dK = dSᵀ Q / √H

    rowsum(O * dO) equals rowsum(P * dP) without a tensor [S, S] (Dao et al., 2022, appendix B.2).
    The gradient computes P again from query and key. The compiler merges it with the P of the
    forward pass. Where the step recomputes attention it cannot, and one of six products, Q Kᵀ, is
    made twice.

    Args:
      query, key, value: [B, N, S, H].
      bias: float32, broadcast to [B, N, S, S].
      dropout: the dropout of the probabilities.

    Returns:
      The context, [B, S, N, H].
    """
    step: Any = _current.get()  # there is one: see `in_training_step`
    dtype = query.dtype
    scale = query.shape[-1] ** -0.5  # 1 / √H

    def scores_of(query: Tensor, key: Tensor) -> Tensor:
        scores = ops.matmul(query, _transposed(key)) * scale
        return ops.cast(scores, "float32") + bias  # [B, N, S, S]

    def dropped(probabilities: Tensor) -> Tensor:
        return dropout(ops.cast(probabilities, dtype), training=True)

    @ops.custom_gradient
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Any:
        scores = scores_of(query, key)
        row_max = ops.max(scores, axis=-1, keepdims=True)  # [B, N, S, 1]
        powers = ops.exp(scores - row_max)  # [B, N, S, S]
        inverse_sum = 1.0 / ops.sum(powers, axis=-1, keepdims=True)  # [B, N, S, 1]
        context = ops.matmul(dropped(powers * inverse_sum), value)  # [B, N, S, H]
        context = _heads_swapped(context)  # [B, S, N, H]

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            # TensorFlow passes dO by name, other backends by position.
            d_context = arguments[0] if upstream is None else upstream  # [B, S, N, H]
            products = ops.cast(d_context, "float32") * ops.cast(context, "float32")
            row_sums = _heads_swapped(ops.sum(products, axis=-1, keepdims=True))  # [B, N, S, 1]
            d_context = _heads_swapped(d_context)  # [B, N, S, H]
            inputs = [query, key, value]
            step_again = step
            if step.recompute == "attention":
                # No compiler knows that this is 0, so it cannot reuse the forward pass's P.
                zero = d_context[:1, :1, :1, :1] * 0
                inputs = [x + zero for x in inputs]
                step_again = step.again(ops.cast(zero[0, 0, 0, 0], "int32"))
            q, k, v = inputs
            p = ops.exp(scores_of(q, k) - row_max) * inverse_sum  # [B, N, S, S]
            with step_again:  # draws the dropout of the forward pass again
                d_value = ops.matmul(_transposed(dropped(p)), d_context)  # [B, N, S, H]
                d_p = dropped(ops.matmul(d_context, _transposed(v)))  # [B, N, S, S]
            d_scores = p * (ops.cast(d_p, "float32") - row_sums)  # [B, N, S, S]
            d_scores = ops.cast(d_scores, dtype) * scale
            d_query = ops.matmul(d_scores, k)  # [B, N, S, H]
            d_key = ops.matmul(_transposed(d_scores), q)  # [B, N, S, H]
            return d_query, d_key, d_value

        return context, gradient

    return attention(query, key, value)


def _transposed(x: Tensor) -> Tensor:
    """[B, N, X, Y] -> [B, N, Y, X]."""
    return ops.transpose(x, (0, 1, 3, 2))


def _heads_swapped(x: Tensor) -> Tensor:
    """[B, N, S, H] -> [B, S, N, H], and back."""
    return ops.transpose(x, (0, 2, 1, 3))
