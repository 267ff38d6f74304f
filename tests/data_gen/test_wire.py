"""data_gen/wire.py: the bytes that protocol buffers give."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.records import Feature, Record, pretraining_record
from data_gen import wire


def by_protobuf(record: Record, values: dict[str, np.ndarray], row: int) -> bytes:
    example = tf.train.Example()
    for feature in record.features:
        slot = example.features.feature[feature.name]
        numbers = slot.int64_list if feature.dtype == tf.int64 else slot.float_list
        kind = np.int64 if feature.dtype == tf.int64 else np.float32
        numbers.value.extend(values[feature.name][row].astype(kind).tolist())
    return example.SerializeToString(deterministic=True)


SIZES = {"zeta": (tf.int64, 3), "a" * 130: (tf.float32, 2), "Beta": (tf.int64, 1)}
RECORD = Record("test", tuple(Feature(name, *kind) for name, kind in SIZES.items()))
integers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21, 2**31, 2**63 - 1, -1]),
)


@given(
    rows=st.lists(st.tuples(*[integers] * 4, *[st.floats(width=32)] * 2), min_size=1, max_size=4)
)
@settings(deadline=None)
def test_any_numbers(rows):
    numbers = [row[:4] for row in rows]
    values = {
        "zeta": np.array(numbers, np.int64)[:, :3],
        "Beta": np.array(numbers, np.int64)[:, 3:],
        "a" * 130: np.array([row[4:] for row in rows], np.float32),
    }
    found = wire.serialize(RECORD, values)
    assert found == [by_protobuf(RECORD, values, row) for row in range(len(rows))]
    assert RECORD.serialize({name: value[0] for name, value in values.items()}) == found[0]


@pytest.mark.parametrize("size", [11, 128, 700])
def test_records_of_pre_training(size):
    record = pretraining_record(max_seq_length=size, max_predictions_per_seq=7)
    rng = np.random.default_rng(size)
    values = {
        feature.name: rng.integers(0, 2 if "mask" in feature.name else 30522, (5, feature.size))
        for feature in record.features
    }
    values["input_mask"] = values["input_mask"] == 1
    values["segment_ids"] = values["segment_ids"].astype(np.uint8)
    expected = [by_protobuf(record, values, row) for row in range(5)]
    assert wire.serialize(record, values) == expected


def test_varints_by_hand():
    column = wire.varints(np.array([[0, 300], [127, 128]]))
    assert column.sizes.tolist() == [3, 3]
    assert column.data[column.counts].tolist() == [0, 0xAC, 2, 127, 0x80, 1]


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match="received features"):
        wire.serialize(RECORD, {"zeta": np.zeros((2, 4))})
