"""Many `tf.train.Example` at a time as bytes, from arrays.

A record is a row of columns. A column is a part of all records: bytes [B, W], of which each row
counts only some.

    Example   field FIRST: Features
    Features  field FIRST: a map entry for each feature, in the order of their names
    entry     field FIRST: the name; field SECOND: Feature
    Feature   field SECOND: FloatList, or field THIRD: Int64List
    list      field FIRST: the numbers, packed: little-endian floats, or varints, which have seven
              bits in each byte, the lowest first, and a one on top of all but the last
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_tf.data.records import Record

FIRST, SECOND, THIRD = b"\x0a", b"\x12", b"\x1a"  # fields whose length comes first


def serialize(record: Record, values: Mapping[str, np.ndarray]) -> list[bytes]:
    """Records from arrays, as `Record.serialize` makes them of each row.

    Args:
      record: the declaration.
      values: for each declared feature [B, size], of integers or bool where it is int64.

    Raises:
      ValueError: a feature is missing, unknown, or has another length.
    """
    record.check_sizes({name: value.shape[-1] for name, value in values.items()})
    columns = []
    for feature in sorted(record.features, key=lambda feature: feature.name):
        columns += map_entry(feature.name, values[feature.name], feature.dtype.is_integer)
    return rows(field(FIRST, columns))


class Column(NamedTuple):
    """A part of all records."""

    data: np.ndarray  # uint8 [B, W]
    counts: np.ndarray  # bool [B, W]: which bytes the record has
    sizes: np.ndarray  # int64 [B]: how many these are


def constant(data: bytes, num_rows: int) -> Column:
    """The same bytes in each of B rows."""
    shape = (num_rows, len(data))
    return Column(
        np.broadcast_to(np.frombuffer(data, np.uint8), shape),
        np.broadcast_to(True, shape),
        np.full(num_rows, len(data)),
    )


def floats(numbers: np.ndarray) -> Column:
    """Numbers [B, n] as float32."""
    data = np.ascontiguousarray(numbers, "<f4").view(np.uint8)
    return Column(data, np.broadcast_to(True, data.shape), np.full(len(data), data.shape[1]))


def varints(numbers: np.ndarray) -> Column:
    """Integers [B, n] as varints; negative ones have ten bytes, as in protocol buffers."""
    rest = numbers.astype(np.uint64)
    width = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    data = np.empty((*rest.shape, width), np.uint8)
    counts = np.empty(data.shape, bool)
    for place in range(width):
        counts[..., place] = rest > 0 if place else True
        data[..., place] = rest & 0x7F
        rest >>= 7
        data[..., place] |= (rest > 0).astype(np.uint8) << 7
    shape = (len(data), -1)
    return Column(data.reshape(shape), counts.reshape(shape), counts.sum(axis=(1, 2)))


def field(tag: bytes, content: list[Column]) -> list[Column]:
    """A field of a message: its tag, the length of its content, the content."""
    sizes = np.sum([column.sizes for column in content], axis=0)
    return [constant(tag, len(sizes)), varints(sizes[:, np.newaxis]), *content]


def map_entry(name: str, numbers: np.ndarray, are_integers: bool) -> list[Column]:
    """A feature of all records, [B, n]."""
    packed = varints(numbers) if are_integers else floats(numbers)
    feature = field(THIRD if are_integers else SECOND, field(FIRST, [packed]))
    key = field(FIRST, [constant(name.encode(), len(numbers))])
    return field(FIRST, [*key, *field(SECOND, feature)])


def rows(columns: list[Column]) -> list[bytes]:
    """The records."""
    data = np.concatenate([column.data for column in columns], axis=1)
    counts = np.concatenate([column.counts for column in columns], axis=1)
    joined = data[counts].tobytes()
    ends = np.cumsum(np.sum([column.sizes for column in columns], axis=0)).tolist()
    return [joined[begin:end] for begin, end in itertools.pairwise([0, *ends])]
