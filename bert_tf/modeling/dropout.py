"""Dropout without state: a mask is a hash of seed, place in the model, row and element.

Rows are counted through the global batch. So the masks of a step do not depend on how its batch is
spread over replicas or cut into micro-batches, and a resumed run draws the masks of an undisturbed
one.
"""

import contextlib
import math
import zlib
from collections.abc import Callable, Iterator

import keras
from keras import ops

GOLDEN_RATIO = -0x61C88647  # 0x9E3779B9 as int32; spreads consecutive counters


_keys: list[tuple] = []  # seed, first_row and num_rows of each `dropout_key` that is entered


@contextlib.contextmanager
def dropout_key(seed, first_row=0, num_rows: int | None = None) -> Iterator[None]:
    """Within this context dropout masks are a pure function of seed, row and place in the model.

    Args:
      seed: int32 scalar, a different one for each step.
      first_row: int32 scalar, the place in the global batch of row 0 of the model's inputs.
      num_rows: the rows of the model's inputs. A layer whose inputs have several sequences for each
        row (multiple choice) then counts sequences; without it, rows are taken for sequences.
    """
    _keys.append((seed, first_row, num_rows))
    try:
        yield
    finally:
        _keys.pop()


def recomputed(function: Callable, *tensors):
    """`function(*tensors)`; its gradient keeps the tensors alone, and computes the rest again.

    The seed of dropout is one more of them. Otherwise a compiler would find that the masks of both
    passes are the same, compute them once, and keep them: a byte for each element. Outside of
    `dropout_key` nothing is recomputed, as the second pass would draw other masks.
    """
    if not _keys:
        return function(*tensors)
    seed, *rows = _keys[-1]

    def with_seed(high, low, *tensors):
        seed = ops.left_shift(ops.cast(high, "int32"), 16) + ops.cast(low, "int32")
        with dropout_key(seed, *rows):
            return function(*tensors)

    # Halves, which float32 holds exactly: what is not floating has no place in a gradient.
    seed = ops.convert_to_tensor(seed, "int32")
    high, low = ops.right_shift(seed, 16), ops.bitwise_and(seed, 0xFFFF)
    halves = (ops.cast(half, "float32") for half in (high, low))
    return keras.remat(with_seed)(*halves, *tensors)


def mix(h):
    """The finalizer of MurmurHash3 on int32 tensors: every bit of `h` flips half of the result.

    Wrapping products and masked shifts of int32, as not every backend has uint32.
    """
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF)) * -0x7A143595
    h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 13), 0x7FFFF)) * -0x3D4D51CB
    return ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 16), 0xFFFF))


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout whose mask is a hash, so that it is computed again for the gradient, not stored.

    Outside of `dropout_key` the seed comes from a Keras `SeedGenerator`, so that the layer works
    under `fit` too.
    """

    def __init__(self, rate: float, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.supports_masking = True
        self._seeds = keras.random.SeedGenerator() if rate else None

    def call(self, x, training=None):
        """x [B, ...] -> [B, ...]; in training a share `rate` becomes 0, the rest is scaled up."""
        if not self.rate or not training:
            return x
        shape = ops.shape(x)
        element = ops.arange(math.prod(shape[1:]), dtype="int32") * GOLDEN_RATIO
        element = ops.reshape(element, (1, *shape[1:]))
        row = ops.reshape(self._row_keys(shape[0]), (shape[0],) + (1,) * (len(shape) - 1))
        # Less than `mix`, for speed: the row's key is well mixed, and only high bits are compared.
        h = ops.bitwise_xor(element, row) * -0x7A143595
        h = ops.bitwise_xor(h, ops.bitwise_and(ops.right_shift(h, 15), 0x1FFFF)) * -0x3D4D51CB
        keep = h >= int((self.rate - 0.5) * 2**32)
        return ops.where(keep, x / (1.0 - self.rate), ops.zeros_like(x))

    def _row_keys(self, num_rows):
        """One hash for each row [B], which its elements are mixed into."""
        if _keys:
            seed, first_row, rows_of_inputs = _keys[-1]
            first_row *= 1 if rows_of_inputs is None else num_rows // rows_of_inputs
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
