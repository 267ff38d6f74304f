"""Records: their exact bytes, what is written and parsed, what no record may hold."""

import itertools

import numpy as np
import pytest
import small
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_records import PAIR, PAIR_BYTES

from bert_tf.data.records import Feature, Record, pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.squad.windows import squad_record
from bert_tf.tasks.features import classifier_record


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
    assert (parsed["ids"].dtype, parsed["weights"].dtype) == (tf.int64, tf.float32)
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


# ---------------------------------------------------------------------------- values

MODEL = {"vocab_size": 41, "type_vocab_size": 4}
LABELS, CHOICES = 3, 2


def task_record(head: str) -> Record:
    choices = {"num_choices": CHOICES} if head == "multiple_choice" else {}
    return classifier_record(
        max_seq_length=small.S, head=head, num_labels=LABELS, **choices, **MODEL
    )


RECORDS = {
    "pretraining": small.RECORD,
    "squad": squad_record(max_seq_length=small.S, is_training=True, **MODEL),
    **{
        head: task_record(head)
        for head in (
            "classification",
            "regression",
            "multi_label",
            "token_labels",
            "multiple_choice",
        )
    },
}
OF_ALL = {"input_ids": (0, 40), "input_mask": (0, 1), "segment_ids": (0, 3)}
GREATEST = 3.4028235e38
RANGES = {  # the least and the greatest value of each feature
    "pretraining": OF_ALL
    | {
        "masked_lm_positions": (0, 6),
        "masked_lm_ids": (0, 40),
        "masked_lm_weights": (0.0, GREATEST),
        "next_sentence_labels": (0, 1),
    },
    "squad": OF_ALL
    | {
        "unique_ids": (0, 2**31 - 1),
        "start_positions": (0, 6),
        "end_positions": (0, 6),
        "is_impossible": (0, 1),
    },
    "classification": OF_ALL | {"label_ids": (0, 2), "is_real_example": (0, 1)},
    "regression": OF_ALL | {"label_ids": (-GREATEST, GREATEST), "is_real_example": (0, 1)},
    "multi_label": OF_ALL | {"label_ids": (0, 1), "is_real_example": (0, 1)},
    "token_labels": OF_ALL | {"label_ids": (-1, 2), "is_real_example": (0, 1)},
    "multiple_choice": OF_ALL | {"label_ids": (0, 1), "is_real_example": (0, 1)},
}
FEATURES = [(kind, name) for kind, ranges in RANGES.items() for name in ranges]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("values")


def written(folder, record: Record, name: str, values: list) -> RecordFiles:
    """A file of three records for each value, which is the second's last number of a feature."""
    path = str(folder / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for value, number in itertools.product(values, range(3)):
            row = {f.name: [0] * f.size for f in record.features}
            row[name][-1] = value if number == 1 else 0
            writer.write(record.serialize(row))
    return RecordFiles(path, record)


def test_every_feature_has_a_range():
    for kind, record in RECORDS.items():
        assert RANGES[kind].keys() == {f.name for f in record.features}


@pytest.mark.parametrize(("kind", "name"), FEATURES)
def test_values_beyond_the_range_of_a_feature(folder, kind, name):
    record, (least, most) = RECORDS[kind], RANGES[kind][name]
    if isinstance(least, float):
        wrong = [np.nan, np.inf, -np.inf, *([-1e-30, -1.0] if least == 0 else [])]
    else:
        wrong = [least - 1, most + 1, 2**32 + least, 2**32 + most, 2**63 - 1, -(2**63), 2**31]
    files = written(folder, record, name, wrong)
    for number, value in enumerate(wrong):
        rows = [3 * number + 2, 3 * number, 3 * number + 1]
        with pytest.raises(InputError) as caught:
            files.read(rows)
        error = caught.value
        assert error.received == f"{files.where(rows[2])}, with the {name} {np.float32(value)}" or (
            error.received == f"{files.where(rows[2])}, with the {name} {value}"
        )
        assert "finite" in error.expected or f"from {least} to {most}" in error.expected
        assert len(files.read(rows[:2])[name]) == 2


@pytest.mark.parametrize(("kind", "name"), FEATURES)
def test_values_at_the_ends_of_a_range(folder, kind, name):
    record, ends = RECORDS[kind], list(RANGES[kind][name])
    found = written(folder, record, name, ends).read([1, 4])[name]
    assert found.dtype == (np.float32 if isinstance(ends[0], float) else np.int32)
    np.testing.assert_array_equal(found[:, -1], np.array(ends, found.dtype))


def test_minus_zero_and_shares_are_weights(folder):
    files = written(folder, small.RECORD, "masked_lm_weights", [-0.0, 0.5, 1e-45, 7.0])
    found = files.read(range(12))["masked_lm_weights"][1::3, -1]
    assert found.tolist() == np.float32([-0.0, 0.5, 1e-45, 7.0]).tolist()


def test_a_range_that_the_model_sets_names_it(folder):
    with pytest.raises(InputError) as caught:
        written(folder, small.RECORD, "segment_ids", [4]).read([1])
    assert caught.value.expected == "numbers from 0 to 3, as the model's type_vocab_size is 4"
    assert "configuration" in caught.value.remedy


def test_without_a_model_ids_are_any_of_a_batch(folder):
    """Data generation writes records before there is a model."""
    record = pretraining_record(max_seq_length=7, max_predictions_per_seq=3)
    files = written(folder, record, "input_ids", [2**31 - 1, 2**31])
    assert files.read([1])["input_ids"][0, -1] == 2**31 - 1
    with pytest.raises(InputError, match=r"numbers from 0 to 2147483647\n"):
        files.read([4])
