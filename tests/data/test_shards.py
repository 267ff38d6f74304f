"""Record files: one sequence of records through all files; what is refused."""

import concurrent.futures

import numpy as np
import pytest
import small
import tensorflow as tf
from small_records import NUMBER, PAIR, PAIR_BYTES, framed, open_numbers, write_numbers

from bert_tf.data.records import Feature, Record, pretraining_record
from bert_tf.data.shards import RecordFiles, tf_record_io
from bert_tf.errors import InputError


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "two.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(2):
            writer.write(PAIR.serialize({"b": [3, 300], "a": [1.5]}))
    assert path.read_bytes() == framed(PAIR_BYTES) * 2
    rows = RecordFiles(str(path), PAIR).read([1])
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([[1.5]], [[3, 300]])


def test_several_files_are_one_sequence(tmp_path):
    files = open_numbers(tmp_path, 3, 1, 5)
    assert len(files) == 9
    rows = [8, 0, 3, 2, 4, 4]
    assert files.read(rows)["input_ids"][:, 0].tolist() == rows
    assert [files.where(row).rpartition("/")[2] for row in (0, 2, 3, 4, 8)] == [
        "0.tfrecord, record 1",
        "0.tfrecord, record 3",
        "1.tfrecord, record 1",
        "2.tfrecord, record 1",
        "2.tfrecord, record 5",
    ]


def test_read_from_many_threads(tmp_path):
    """Training and evaluation prefetch in threads of their own, maybe from the same files."""
    files = open_numbers(tmp_path, 13, 17)
    orders = [np.random.default_rng(seed).permutation(30) for seed in range(150)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda rows: files.read(rows)["input_ids"][:, 0], orders)
        for rows, numbers in zip(orders, read, strict=True):
            assert numbers.tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "damaged or cut off after 6 records"),
        (lambda data: data[: len(data) // 2], "damaged or cut off after 3 records"),
        (lambda data: data[:7], "damaged or cut off after 0 records"),
        (lambda data: data + b"\0", "damaged or cut off after 7 records"),
        (lambda data: data[:14] + b"?" + data[15:], "damaged or cut off after 0 records"),
        (lambda data: data[:-20] + b"?" + data[-19:], "damaged or cut off after 6 records"),
        (lambda data: b"Once upon a time there was a file of text.\n", "after 0 records"),
        (lambda data: b"", "an empty file"),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    whole = write_numbers(tmp_path / "whole.tfrecord", range(7))
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(damage((tmp_path / "whole.tfrecord").read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        RecordFiles([whole, str(path)], NUMBER)
    assert str(path) in caught.value.received


def test_a_folder_in_the_place_of_a_file(tmp_path):
    with pytest.raises(InputError):
        RecordFiles(str(tmp_path), NUMBER)


def one_record_file(path, data: bytes) -> str:
    path.write_bytes(framed(data))
    return str(path)


def test_records_of_another_kind(tmp_path):
    path = one_record_file(tmp_path / "pair.tfrecord", PAIR_BYTES)
    with pytest.raises(InputError) as caught:
        RecordFiles(path, small.RECORD)
    assert caught.value.received == f"{path}, record 1, a record with the features ['a', 'b']"
    assert "input_ids, input_mask, segment_ids" in caught.value.expected


def test_records_that_are_none(tmp_path):
    path = one_record_file(tmp_path / "text.tfrecord", b"hello")
    with pytest.raises(InputError, match=r"record 1, a record with the features \[\]"):
        RecordFiles(path, small.RECORD)


@pytest.mark.parametrize(
    ("sizes", "received", "remedy"),
    [
        ({"max_seq_length": 11}, "input_ids has 7 values", "--max_seq_length=7"),
        (
            {"max_predictions_per_seq": 5},
            "masked_lm_positions has 3",
            "--max_predictions_per_seq=3",
        ),
    ],
)
def test_records_of_other_lengths(tmp_path, sizes, received, remedy):
    path = small.write_records(tmp_path / "a.tfrecord", small.examples(2))
    given = {"max_seq_length": small.S, "max_predictions_per_seq": small.P} | sizes
    with pytest.raises(InputError, match=received) as caught:
        RecordFiles(path, pretraining_record(**given))
    assert remedy in caught.value.remedy


def test_a_feature_of_another_type(tmp_path):
    """Ids written as floats, say: the remedy must not be a length of 0."""
    floats = Record("floats", (Feature("input_ids", tf.float32, 1),))
    path = one_record_file(tmp_path / "f.tfrecord", floats.serialize({"input_ids": [3.0]}))
    with pytest.raises(InputError, match="input_ids has 0 values in its int64_list") as caught:
        RecordFiles(path, pretraining_record(max_seq_length=1, max_predictions_per_seq=1))
    assert "=0" not in caught.value.remedy


def test_a_later_record_of_another_kind(tmp_path):
    number = NUMBER.serialize({"input_ids": [5]})
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(framed(number) * 2 + framed(PAIR_BYTES))
    files = RecordFiles(str(path), NUMBER)
    assert files.read([1])["input_ids"].tolist() == [[5]]
    with pytest.raises(InputError, match=r"mixed\.tfrecord, record 3"):
        files.read([0, 2])


def test_next_sentence_labels_may_be_there_unread(tmp_path):
    path = small.write_records(tmp_path / "a.tfrecord", small.examples(2))
    record = pretraining_record(
        max_seq_length=small.S, max_predictions_per_seq=small.P, next_sentence=False
    )
    assert "next_sentence_labels" not in RecordFiles(path, record).read([0, 1])


def test_what_we_use_of_tensorflows_private_reader(tmp_path):
    path = tmp_path / "a.tfrecord"
    first, second = framed(b"one"), framed(b"three")
    path.write_bytes(first + second)
    reader = tf_record_io.tf_record_random_reader(str(path))
    assert reader.read(0) == (b"one", len(first))
    assert reader.read(len(first)) == (b"three", len(first + second))
    assert reader.read(0) == (b"one", len(first))
    with pytest.raises(IndexError):
        reader.read(len(first + second))
    path.write_bytes(first + second[:-1] + b"?")
    reader = tf_record_io.tf_record_random_reader(str(path))
    with pytest.raises(tf.errors.DataLossError):
        reader.read(len(first))
