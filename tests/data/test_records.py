"""Records: their exact bytes, what is refused, and which record comes in which batch."""

import concurrent.futures
import struct

import numpy as np
import pytest
import small
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_tf.data.batches import RecordBatches
from bert_tf.data.records import Feature, Record, pretraining_record
from bert_tf.data.samplers import SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles, tf_record_io
from bert_tf.errors import InputError
from bert_tf.files import expand_patterns

PAIR = Record("pair", (Feature("b", tf.int64, 2), Feature("a", tf.float32, 1)))
# Protocol buffers: a tag (field * 8 + 2) and a length before everything that has a length.
PAIR_BYTES = bytes.fromhex(
    "0a 1d"  # Example.features, 29 bytes
    "0a 0d  0a 01 61"  # a map entry, 13 bytes: the key "a", keys being sorted,
    "       12 08  12 06  0a 04 0000c03f"  # a Feature with a FloatList of 1.5
    "0a 0c  0a 01 62"  # the key "b",
    "       12 07  1a 05  0a 03 03 ac02"  # a Feature with an Int64List of 3 and 300
)


def checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def write_numbers(path, numbers) -> str:
    """A file of `NUMBER` records."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            writer.write(NUMBER.serialize({"input_ids": [number]}))
    return str(path)


NUMBER = Record("number", (Feature("input_ids", tf.int64, 1),))


def open_numbers(folder, *sizes: int) -> RecordFiles:
    """Files of the given sizes with the numbers 0, 1, 2, ... through all of them."""
    starts = np.cumsum([0, *sizes])
    paths = [
        write_numbers(folder / f"{i}.tfrecord", range(starts[i], starts[i + 1]))
        for i in range(len(sizes))
    ]
    return RecordFiles(paths, NUMBER)


# ---------------------------------------------------------------------------- one record


def test_bytes_of_a_record():
    assert PAIR.serialize({"b": [3, 300], "a": [1.5]}) == PAIR_BYTES
    assert PAIR.serialize({"a": np.float32([1.5]), "b": np.array([3, 300])}) == PAIR_BYTES


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "two.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(2):
            writer.write(PAIR.serialize({"b": [3, 300], "a": [1.5]}))
    assert path.read_bytes() == framed(PAIR_BYTES) * 2
    rows = RecordFiles(str(path), PAIR).read([1])
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([[1.5]], [[3, 300]])


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
        record.check(one, where="here")


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


# ---------------------------------------------------------------------------- files


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


def test_expand_patterns(tmp_path):
    for name in ("b1", "a2", "a1", "c"):
        (tmp_path / name).touch()

    def names(patterns):
        return "".join(path.rpartition("/")[2] + " " for path in expand_patterns(patterns))

    assert names(f"{tmp_path}/a*") == "a1 a2 "
    assert names(f"{tmp_path}/b1,{tmp_path}/a?") == "b1 a1 a2 "
    assert names([f"{tmp_path}/c", f"{tmp_path}/a1"]) == "c a1 "
    for nothing in ("", f"{tmp_path}/c,", f"{tmp_path}/c,{tmp_path}/d*", [f"{tmp_path}/d"]):
        with pytest.raises(InputError, match="which matches no file"):
            expand_patterns(nothing)


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


# ---------------------------------------------------------------------------- batches


def taken(dataset, number=None) -> list[dict]:
    return list((dataset if number is None else dataset.take(number)).as_numpy_iterator())


def numbers_of(batches: list[dict]) -> list[list[int]]:
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


def test_batches_follow_the_order(tmp_path):
    files = open_numbers(tmp_path, 3, 4)
    batches = RecordBatches(files, SequentialSampler(7), batch_size=5, vocab_size=7)
    assert batches.num_batches is None
    assert batches.num_records == 7
    assert numbers_of(taken(batches.dataset(), 3)) == [
        [0, 1, 2, 3, 4],
        [5, 6, 0, 1, 2],
        [3, 4, 5, 6, 0],
    ]
    assert numbers_of(taken(batches.dataset(start=2), 1)) == [[3, 4, 5, 6, 0]]
    order = ShuffledSampler(7, seed=2)
    shuffled = RecordBatches(files, order, batch_size=5, vocab_size=7)
    epoch_and_more = np.concatenate(numbers_of(taken(shuffled.dataset(), 2))).tolist()
    assert epoch_and_more == order.rows(0, 10).tolist()
    assert sorted(epoch_and_more[:7]) == list(range(7))


def test_shapes_and_types(tmp_path):
    features = small.examples(4)
    files = RecordFiles(small.write_records(tmp_path / "a", features), small.RECORD)
    batches = RecordBatches(files, SequentialSampler(4), batch_size=4, vocab_size=41)
    (batch,) = taken(batches.dataset(), 1)
    assert set(batch) == {*features, "is_real_example"}
    for name, value in features.items():
        assert batch[name].dtype == value.dtype
        np.testing.assert_array_equal(batch[name], value)
    assert batch["is_real_example"].dtype == np.float32
    assert batch["is_real_example"].tolist() == [1, 1, 1, 1]
    spec = batches.dataset(num_parts=2).element_spec
    assert spec["input_ids"] == tf.TensorSpec([2, small.S], tf.int32)
    assert spec["masked_lm_weights"] == tf.TensorSpec([2, small.P], tf.float32)


@settings(
    deadline=None, max_examples=7, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    num_parts=st.integers(1, 4),
    part_size=st.integers(1, 3),
    start=st.integers(0, 3),
    num_examples=st.none() | st.integers(1, 20),
    data=st.data(),
)
def test_parts_of_replicas_are_the_batch(tmp_path, num_parts, part_size, start, num_examples, data):
    files = open_numbers(tmp_path, 5, 2)
    batches = RecordBatches(
        files,
        ShuffledSampler(7, seed=1),
        batch_size=num_parts * part_size,
        vocab_size=7,
        num_examples=num_examples,
    )
    whole = taken(batches.dataset(start=start), 3)
    # Two hosts: the first `here` replicas and the others.
    here = data.draw(st.integers(0, num_parts))
    hosts = []
    for first, number in ((0, here), (here, num_parts - here)):
        dataset = batches.dataset(
            start=start, num_parts=num_parts, first_part=first, parts_here=number
        )
        hosts.append(taken(dataset, 3 * number) if number else [])
    for t, batch in enumerate(whole):
        parts = hosts[0][t * here : (t + 1) * here]
        there = num_parts - here
        parts = parts + hosts[1][t * there : (t + 1) * there]
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), value)


@pytest.mark.parametrize(("num_examples", "sizes"), [(8, [4, 4]), (9, [4, 4, 1]), (3, [3])])
def test_a_short_last_batch_is_filled_up(tmp_path, num_examples, sizes):
    files = open_numbers(tmp_path, 7)
    batches = RecordBatches(
        files, SequentialSampler(7), batch_size=4, vocab_size=7, num_examples=num_examples
    )
    assert batches.num_batches == len(sizes)
    whole = taken(batches.dataset())
    assert [batch["is_real_example"].tolist() for batch in whole] == [
        [1.0] * size + [0.0] * (4 - size) for size in sizes
    ]
    real = [batch["input_ids"][batch["is_real_example"] == 1, 0].tolist() for batch in whole]
    assert np.concatenate(real).tolist() == [i % 7 for i in range(num_examples)]
    parts = taken(batches.dataset(num_parts=2, parts_here=2))
    assert len(parts) == 2 * len(sizes)
    assert sum(part["is_real_example"].sum() for part in parts) == num_examples


def test_a_batch_that_cannot_be_split(tmp_path):
    files = open_numbers(tmp_path, 2)
    batches = RecordBatches(files, SequentialSampler(2), batch_size=7, vocab_size=2)
    with pytest.raises(InputError, match="a batch size of 7 for 3 replicas"):
        batches.dataset(num_parts=3)


@pytest.mark.parametrize(
    ("feature", "bad"), [("input_ids", 41), ("input_ids", -1), ("masked_lm_ids", 41)]
)
def test_an_id_without_a_row_in_the_table(tmp_path, feature, bad):
    features = small.examples(5)
    features[feature][3, 1] = bad
    files = RecordFiles(small.write_records(tmp_path / "a.tfrecord", features), small.RECORD)
    batches = RecordBatches(files, SequentialSampler(5), batch_size=2, vocab_size=41)
    assert len(taken(batches.dataset(), 1)) == 1
    with pytest.raises(tf.errors.OpError):
        taken(batches.dataset(), 2)
    assert isinstance(batches.error, InputError)
    assert batches.error.received == f"{files.where(3)}, with the {feature} {bad}"
    assert batches.error.expected == "ids from 0 to 40, the vocab_size of the model"


def test_a_damaged_record_ends_the_iteration_with_an_error(tmp_path):
    number = NUMBER.serialize({"input_ids": [1]})
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(framed(number) * 2 + framed(PAIR_BYTES))
    batches = RecordBatches(
        RecordFiles(str(path), NUMBER), SequentialSampler(3), batch_size=1, vocab_size=2
    )
    with pytest.raises(tf.errors.OpError):
        taken(batches.dataset(), 3)
    assert "mixed.tfrecord, record 3" in str(batches.error)
