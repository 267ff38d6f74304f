"""Records: their exact bytes, what is written and parsed."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_records import PAIR, PAIR_BYTES

from bert_tf.data.records import Feature, Record, pretraining_record


def test_bytes_of_a_record():
    assert PAIR.serialize({"b": [3, 300], "a": [1.5]}) == PAIR_BYTES
    assert PAIR.serialize({"a": np.float32([1.5]), "b": np.array([3, 300])}) == PAIR_BYTES


def test_features_of_the_pretraining_record():
    def listed(record):
        return [(f.name, f.dtype.name, f.size) for f in record.features]

    features = [
        ("input_ids", "int64", 11),
        ("input_mask", "int64", 11),
        ("segment_ids", "int64", 11),
        ("masked_lm_positions", "int64", 3),
        ("masked_lm_ids", "int64", 3),
        ("masked_lm_weights", "float32", 3),
        ("next_sentence_labels", "int64", 1),
    ]
    sizes = {"max_seq_length": 11, "max_predictions_per_seq": 3}
    assert listed(pretraining_record(**sizes)) == features
    assert listed(pretraining_record(**sizes, next_sentence=False)) == features[:-1]


int32s = st.integers(-(2**31), 2**31 - 1)
float32s = st.floats(width=32, allow_nan=False)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.lists(int32s, min_size=5, max_size=5), st.lists(float32s, min_size=2, max_size=2)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_round_trip(rows):
    record = Record("r", (Feature("ids", tf.int64, 5), Feature("weights", tf.float32, 2)))
    serialized = [record.serialize({"ids": ids, "weights": weights}) for ids, weights in rows]
    again = [record.serialize({"weights": weights, "ids": ids}) for ids, weights in rows]
    assert serialized == again
    parsed = record.parse(serialized)
    assert (parsed["ids"].dtype, parsed["weights"].dtype) == (tf.int32, tf.float32)
    np.testing.assert_array_equal(parsed["ids"], [ids for ids, _ in rows])
    np.testing.assert_array_equal(parsed["weights"], np.float32([w for _, w in rows]))
    for one in serialized:
        record.check_kind(one, where="here")


@pytest.mark.parametrize(
    "values",
    [
        {"b": [3, 300]},
        {"b": [3, 300], "a": [1.5], "c": [1]},
        {"b": [3], "a": [1.5]},
        {"b": [3, 300, 7], "a": [1.5]},
        {"b": [3, 300], "a": []},
        {},
    ],
)
def test_other_features_or_lengths_are_not_written(values):
    with pytest.raises(ValueError, match=r"expected \{'b': 2, 'a': 1\}"):
        PAIR.serialize(values)
