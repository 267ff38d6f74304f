"""What a training step changes in the layers: dropout's masks, and what is kept for the gradient.

A step is a context around the model and its gradient, which `training/step.py` opens:

    with TrainingStep(seed, sequences, recompute="attention"), tf.GradientTape() as tape:
        loss = ...model(inputs, training=True)...
        gradients = tape.gradient(loss, weights)

Inside of it the layers ask for three things:

    Dropout     draws masks that are a hash of seed, sequence and place: the same on one device and
                on eight, in whole batches and in parts, and when something is computed twice
    recomputed  runs a function whose gradient keeps its inputs alone and computes the rest again
    attend      the paper's attention with a gradient that is written out, and keeps less

Outside of a step, in `fit` or a plain call, nothing here is in effect: Dropout draws from Keras's
generator, nothing is computed again, and gradients are the backend's own.

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
    """Within its context layers know of the step that they are called in.

    Dropout masks are then a pure function of its seed, of a sequence's number in the global batch
    and of a token's place in its sequence, whatever rows they stand in.

    Args:
      seed: int32 scalar, a different one for each step.
      sequences: the numbers of its sequences in the global batch, int32 [B, K]; None: 0, 1, 2, ...
        Multiple choice has C rows for each; they are numbered one after the other.
      sequence_numbers: of rows of several sequences (`rows.py`), int32 [B, S].
      recompute: what is computed again for the gradient: "attention", its probabilities and the
        derivative of the activation; "blocks", all of a block; "", nothing.
      without_dropout: a pattern of the paths of layers that drop nothing, as those of a frozen
        encoder; "": all drop.
      hashes: of lines and elements by shape, computed once for all layers.
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
        """Two int32 tensors that broadcast to a shape and tell its elements apart.

        A line is what lies along the last axis. The first is a hash of each line: of seed, sequence
        and position. The second counts the elements of a line.
        """
        if not all(isinstance(n, int) for n in shape):  # some are tensors
            return self._hashes(shape)
        key = tuple(shape)
        if key not in self.hashes:
            self.hashes[key] = self._hashes(shape)
        return self.hashes[key]

    def again(self, zero: Tensor) -> "TrainingStep":
        """A step of the same masks, computed again; `zero`: int32, which no compiler can know."""
        hashes = {key: (line + zero, element) for key, (line, element) in self.hashes.items()}
        return dataclasses.replace(self, seed=self.seed + zero, hashes=hashes)

    def _hashes(self, shape: Any) -> tuple[Tensor, Tensor]:
        between = shape[1:-1]  # the axes between rows and lines: none, [S], [N, S], ...
        element = ops.arange(shape[-1], dtype="int32")
        if self.sequence_numbers is not None and between:
            positions = places_in_sequences(self.sequence_numbers)  # [B, S]
            number = ops.maximum(self.sequence_numbers - 1, 0)
            sequence = ops.take_along_axis(self.sequences, number, axis=1)  # [B, S]
            if len(between) == 2:  # attention's probabilities: elements are tokens, too
                element = positions[:, None, None, :]
        else:
            sequence = self._sequences(shape[0])  # [B]
            positions = ops.arange(between[-1] if between else 1, dtype="int32")  # [S]
            sequence = sequence[:, None] if between else sequence
        if len(between) > 1:  # heads have a line each for a token: apart by more than positions
            heads = ops.arange(math.prod(between[:-1]), dtype="int32")[:, None] * 2**16  # [N, 1]
            positions = ops.expand_dims(positions, -2) + heads  # [N, S], or [B, N, S]
            sequence = ops.expand_dims(sequence, 1)
        of_sequence = mix(ops.bitwise_xor(sequence * GOLDEN_RATIO, mix(self.seed)))
        line = mix(ops.bitwise_xor(of_sequence, positions * GOLDEN_RATIO))
        if len(between) > 2:
            line = ops.reshape(line, (-1, *between))
        return ops.expand_dims(line, -1), element * GOLDEN_RATIO

    def _sequences(self, rows: Any) -> Tensor:
        """The numbers of the sequences that so many rows belong to, int32 [rows]."""
        if self.sequences is None:
            return ops.arange(rows, dtype="int32")
        sequences = ops.reshape(self.sequences, (-1, 1))  # [B * K, 1]
        each = rows // ops.shape(sequences)[0]
        return ops.reshape(sequences * each + ops.arange(each, dtype="int32"), (-1,))


# ---------------------------------------------------------------------------- dropout


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

        y = Dropout(0.1)(x, training=True)                        [B, ...] -> [B, ...]

    It is computed again for the gradient, not stored. In a `TrainingStep` sequences have their
    numbers in the global batch: so the masks of a step do not depend on how its batch is packed,
    spread over replicas or cut into micro-batches, and a resumed run draws those of an undisturbed
    one. Outside of a step the seed comes from a Keras `SeedGenerator`, so that the layer works
    under `fit` too; there all replicas draw the same masks, as those of Keras's own layer do.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        """Without weights.

        Args:
          rate: the share of elements that become 0, at least 0 and below 1.
          seed: of the masks outside of a `TrainingStep`; None: drawn by Keras.
          **kwargs: as of Keras's layers.

        Raises:
          InputError: the rate is out of range, or the seed is no whole number.
        """
        super().__init__(**kwargs)
        check("rate", rate, float, low=0, below=1)
        check("seed", seed, int | None)
        self.rate, self.seed = rate, seed
        self.supports_masking = True
        self.generator: Any = keras.random.SeedGenerator(seed) if rate else None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """x [B, ...] -> [B, ...]; in training a share `rate` becomes 0, the rest is scaled up."""
        if not self.rate or not training:
            return x
        step = _current.get()
        if step is None:
            layer_seed, calls = ops.unstack(ops.cast(self.generator.next(), "int32"), 2)
            step = TrainingStep(ops.bitwise_xor(mix(calls * GOLDEN_RATIO), layer_seed))
        elif not step.drops(self.path):
            return x
        keep = self._keeps(step, ops.shape(x))
        scaled = ops.cast(x, "float32") * (1.0 / (1.0 - self.rate))  # in float32, then cast
        return ops.where(keep, ops.cast(scaled, x.dtype), ops.cast(0, x.dtype))

    def _keeps(self, step: TrainingStep, shape: Any) -> Tensor:
        """Whether each element of a tensor of that shape is kept, bool."""
        if len(shape) < 2:  # each element is a row of its own
            return ops.reshape(self._keeps(step, (math.prod(shape), 1)), shape)
        line, element = step.hashes_of(shape)
        # Less than `mix`, for speed: the lines are well mixed, and only high bits are compared.
        layer_hash = zlib.crc32(self.path.encode()) - 2**31
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
    """Whether the step, if there is one, computes this again for the gradient."""
    step = _current.get()
    return step is not None and step.recompute == what


def recomputed(function: Callable, *tensors: Tensor) -> Tensor:
    """`function(*tensors)`; its gradient keeps the tensors alone, and computes the rest again.

    The seed of dropout is one more of them. Otherwise a compiler would find that the masks of both
    passes are the same, compute them once, and keep them: a byte for each element. Outside of a
    `TrainingStep` nothing is recomputed, as the second pass would draw other masks.
    """
    step = _current.get()
    if step is None:
        return function(*tensors)

    def with_seed(high: Tensor, low: Tensor, *tensors: Tensor) -> Tensor:
        seed = ops.left_shift(ops.cast(high, "int32"), 16) + ops.cast(low, "int32")
        with dataclasses.replace(step, seed=seed, hashes={}):
            return function(*tensors)

    # As halves, which float32 holds exactly: remat differentiates its arguments.
    high = ops.cast(ops.right_shift(step.seed, 16), "float32")
    low = ops.cast(ops.bitwise_and(step.seed, 0xFFFF), "float32")
    return keras.remat(with_seed)(high, low, *tensors)


# ---------------------------------------------------------------------------- attention


def in_training_step(training: bool | None) -> bool:
    """Whether attention is computed by `attend`: in a training step, and nowhere else.

    Elsewhere a second pass would draw other masks of dropout than the first.
    """
    return bool(training) and _current.get() is not None


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: Dropout) -> Tensor:
    """dropout(softmax(Q Kᵀ / √H + bias)) V in a training step, with a gradient that keeps less.

    The gradient of soft-max needs no sums over S * S: rowsum(P * dP) = rowsum(O * dO), with O the
    context (Dao et al., 2022, appendix B.2). The probabilities P are written as computed again from
    query and key: a compiler finds that they are those of the forward pass, and keeps them, unless
    the step recomputes attention. Then one of attention's six products is made twice.

    Args:
      query, key, value: [B, N, S, H].
      bias: float32, broadcast to [B, N, S, S].
      dropout: of the probabilities.

    Returns:
      The context, [B, S, N, H].
    """
    step: Any = _current.get()  # there is one: see `in_training_step`
    dtype = query.dtype
    scale = query.shape[-1] ** -0.5
    last_swapped, heads_swapped = (0, 1, 3, 2), (0, 2, 1, 3)

    def scores_of(query: Tensor, key: Tensor) -> Tensor:  # float32 [B, N, S, S]
        scores = ops.matmul(query, ops.transpose(key, last_swapped)) * scale
        return ops.cast(scores, "float32") + bias

    def dropped(p: Tensor) -> Tensor:
        return dropout(ops.cast(p, dtype), training=True)

    @ops.custom_gradient
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Any:
        scores = scores_of(query, key)
        row_max = ops.max(scores, axis=-1, keepdims=True)  # [B, N, S, 1]
        powers = ops.exp(scores - row_max)  # [B, N, S, S]
        inverse_sum = 1.0 / ops.sum(powers, axis=-1, keepdims=True)  # [B, N, S, 1]
        # [B, S, N, H], as the layer goes on with it.
        context = ops.transpose(ops.matmul(dropped(powers * inverse_sum), value), heads_swapped)

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            # TensorFlow gives it by name, other backends by position.
            g = arguments[0] if upstream is None else upstream  # [B, S, N, H]
            delta = ops.cast(g, "float32") * ops.cast(context, "float32")
            delta = ops.transpose(ops.sum(delta, axis=-1, keepdims=True), heads_swapped)
            g = ops.transpose(g, heads_swapped)  # [B, N, S, H]; delta: [B, N, S, 1]
            again, q, k, v = step, query, key, value
            if step.recompute == "attention":
                # A zero that no compiler can know: otherwise it keeps the forward pass's P.
                zero = g[:1, :1, :1, :1] * 0
                q, k, v = (x + zero for x in (q, k, v))
                again = step.again(ops.cast(zero[0, 0, 0, 0], "int32"))
            p = ops.exp(scores_of(q, k) - row_max) * inverse_sum  # [B, N, S, S]
            with again:
                d_value = ops.matmul(ops.transpose(dropped(p), last_swapped), g)  # [B, N, S, H]
                d_p = dropped(ops.matmul(g, ops.transpose(v, last_swapped)))  # [B, N, S, S]
            d_scores = p * (ops.cast(d_p, "float32") - delta)  # [B, N, S, S]
            d_scores = ops.cast(d_scores, dtype) * scale
            d_query = ops.matmul(d_scores, k)  # [B, N, S, H]
            d_key = ops.matmul(ops.transpose(d_scores, last_swapped), q)  # [B, N, S, H]
            return d_query, d_key, d_value

        return context, gradient

    return attention(query, key, value)
