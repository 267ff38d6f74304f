"""Dropout without state: a mask is a hash of the seed, the place in the model, row and element.

So the masks of a step do not depend on how its batch is spread over devices or cut into
micro-batches, and a resumed run draws those of an undisturbed one.
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

GOLDEN_RATIO = -0x61C88647  # 0x9E3779B9 as int32; spreads consecutive counters


@dataclasses.dataclass(frozen=True)
class DropoutKey:
    """What the dropout masks of one step depend on, beside the place in the model."""

    seed: Any  # int32 scalar made from the run's seed and the step
    first_row: Any  # int32 scalar: the place of this batch's row 0 in the global batch
    num_rows: int | None  # of this batch; None: as many as a layer is given


_keys: list[DropoutKey] = []


@contextlib.contextmanager
def dropout_key(seed, first_row=0, num_rows: int | None = None) -> Iterator[None]:
    """Within this context all dropout masks are a pure function of (seed, row, place in the model).

    The rows are counted through the global batch, so that masks do not depend on how the batch is
    spread over replicas or cut into micro-batches, and a resumed run draws the masks of an
    undisturbed one.

    Args:
      seed: int32 scalar, another one for each step.
      first_row: int32 scalar, the place in the global batch of row 0 of what the model is given.
      num_rows: how many rows the model is given. A layer that is given several sequences of each
        (multiple choice) counts those; without it, rows are taken for sequences.
    """
    _keys.append(DropoutKey(seed, first_row, num_rows))
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
            key = _keys[-1]
            each = 1 if key.num_rows is None else num_rows // key.num_rows
            seed, first_row = key.seed, key.first_row * each
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
