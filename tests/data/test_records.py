"""Records: their exact bytes, what is written and parsed, what no record may hold."""

import itertools

import numpy as np
import pytest
import small
import tensorflow as tf
from frames import framed
from small_records import PAIR, PAIR_BYTES

from bert_tf.data.records import Record, pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.squad.windows import squad_record
from bert_tf.tasks.features import classifier_record
from bert_tf.training.fine_tuning import write_records


def test_bytes_of_a_record(tmp_path):
    values = {"b": [3, 300], "a": [1.5]}
    assert PAIR.serialize(values) == PAIR_BYTES
    assert PAIR.serialize({"a": np.float32([1.5]), "b": np.array([3, 300])}) == PAIR_BYTES
    row = small.RECORD.serialize({name: x[0] for name, x in small.examples().items()})
    assert (places := [row.index(n.encode()) for n in sorted(small.examples())]) == sorted(places)
    path = tmp_path / "two.tfrecord"
    assert write_records(str(path), PAIR, [values] * 2) == 2
    assert path.read_bytes() == framed(PAIR_BYTES) * 2
    rows = RecordFiles(str(path), PAIR).read([1])
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([[1.5]], [[3, 300]])


@pytest.mark.parametrize(
    "changes", [{"a": None}, {"c": [1]}, {"b": [3]}, {"b": [3, 300, 7]}, {"a": []}]
)
def test_other_features_or_lengths_are_not_written(changes):
    values = {"b": [3, 300], "a": [1.5]} | changes
    with pytest.raises(ValueError, match=r"expected \{'b': 2, 'a': 1\}"):
        PAIR.serialize({name: value for name, value in values.items() if value is not None})


# ---------------------------------------------------------------------------- values

MODEL = {"vocab_size": 41, "type_vocab_size": 4}
LABELS, CHOICES = 3, 2
GREATEST = 3.4028235e38
LABEL_IDS = {
    "classification": (0, 2),
    "regression": (-GREATEST, GREATEST),
    "multi_label": (0, 1),
    "token_labels": (-2, 2),
    "multiple_choice": (0, 1),
}


def task_record(head: str) -> Record:
    choices = {"num_choices": CHOICES} if head == "multiple_choice" else {}
    return classifier_record(
        max_seq_length=small.S, head=head, num_labels=LABELS, **choices, **MODEL
    )


RECORDS = {
    "pretraining": small.RECORD,
    "squad": squad_record(max_seq_length=small.S, is_training=True, **MODEL),
} | {head: task_record(head) for head in LABEL_IDS}
OF_ALL = {"input_ids": (0, 40), "input_mask": (0, 1), "segment_ids": (0, 3)}
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
} | {
    head: OF_ALL | {"label_ids": ends, "is_real_example": (0, 1)}
    for head, ends in LABEL_IDS.items()
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


@pytest.mark.parametrize(("kind", "name"), FEATURES)
def test_the_range_of_a_feature(folder, kind, name):
    record, (least, most) = RECORDS[kind], RANGES[kind][name]
    assert RANGES[kind].keys() == {f.name for f in record.features}
    if isinstance(least, float):
        wrong = [np.nan, np.inf, -np.inf, *([-1e-30, -1.0] if least == 0 else [])]
    else:
        wrong = [least - 1, most + 1, 2**32 + least, 2**32 + most, 2**63 - 1, -(2**63), 2**31]
    files = written(folder, record, name, [least, most, *wrong])
    for number, value in enumerate(wrong, 2):
        rows = [3 * number + 2, 3 * number, 3 * number + 1]
        with pytest.raises(InputError) as caught:
            files.read(rows)
        said = [
            f"{files.where(rows[2])}, with the {name} {one}" for one in (value, np.float32(value))
        ]
        assert caught.value.received in said
        expected = caught.value.expected
        assert "finite" in expected or f"from {least} to {most}" in expected
        assert len(files.read(rows[:2])[name]) == 2
    found = files.read([1, 4])[name]
    assert found.dtype == (np.float32 if isinstance(least, float) else np.int32)
    np.testing.assert_array_equal(found[:, -1], np.array([least, most], found.dtype))


def test_a_range_names_the_model_that_sets_it(folder):
    """Data generation writes records before there is a model."""
    with pytest.raises(InputError, match="as the model's type_vocab_size is 4") as caught:
        written(folder, small.RECORD, "segment_ids", [4]).read([1])
    assert "configuration" in caught.value.remedy
    record = pretraining_record(max_seq_length=7, max_predictions_per_seq=3)
    files = written(folder, record, "input_ids", [2**31 - 1, 2**31])
    assert files.read([1])["input_ids"][0, -1] == 2**31 - 1
    with pytest.raises(InputError, match=r"numbers from 0 to 2147483647\n"):
        files.read([4])
