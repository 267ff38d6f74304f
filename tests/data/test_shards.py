"""Record files: one sequence of records through all files; what is refused."""

import concurrent.futures
import gzip
import os
import pathlib
import random

import numpy as np
import pytest
import small
import tensorflow as tf
import walking
from frames import framed
from small_records import NUMBER, PAIR, PAIR_BYTES, open_numbers, write_numbers

from bert_tf.data.index import FOOTER_BYTES
from bert_tf.data.records import Feature, Record, description_path, pretraining_record
from bert_tf.data.shards import (
    RecordFiles,
    common_description,
    read_description,
    record_paths,
    tf_record_io,
)
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
        (gzip.compress, "compressed with gzip"),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    whole = write_numbers(tmp_path / "whole.tfrecord", range(7))
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(damage((tmp_path / "whole.tfrecord").read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        RecordFiles([whole, str(path)], NUMBER)
    assert str(path) in caught.value.received


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize(
    "length", [6, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 17, 2**64 - 1]
)
def test_lengths_beyond_the_file(tmp_path, place, length):
    """With a valid checksum; TensorFlow's reader dies of a length of 2**62."""
    whole = write_numbers(tmp_path / "whole.tfrecord", range(place + 1))
    path = tmp_path / "damaged.tfrecord"
    data = (tmp_path / "whole.tfrecord").read_bytes()
    path.write_bytes(data + framed(b"seven", length=length))
    with pytest.raises(InputError, match=f"cut off after {place + 1} records"):
        RecordFiles([whole, str(path)], NUMBER)


def test_a_length_of_a_hole_in_a_file_is_not_read(tmp_path):
    """A file of no content can be as long as it likes."""
    path = tmp_path / "sparse.tfrecord"
    write_numbers(path, [1])
    with path.open("r+b") as stream:
        stream.seek(0, 2)
        stream.write(framed(b"", length=2**31))
        stream.truncate(2**31 + 1000)
    with pytest.raises(InputError, match="cut off after 1 records"):
        RecordFiles(str(path), NUMBER)


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
    with pytest.raises(InputError, match=r"record 1, a record that is not a tf\.train\.Example"):
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


ROWS = small.examples(9)
GOOD = [small.RECORD.serialize({name: v[i] for name, v in ROWS.items()}) for i in range(9)]


@pytest.mark.parametrize(
    ("data", "received"),
    [
        (b"", "a record with the features []"),
        (b"\xff" * 60, "a record that is not a tf.train.Example"),
        (GOOD[0][:-1], "a record that is not a tf.train.Example"),
        (GOOD[0] + b"\x0b" * 500, "a record that is not a tf.train.Example"),  # nested groups
        (GOOD[0].replace(b"input_ids", b"input_\xe9\xe9s"), "a record that is not a tf.train"),
        (
            GOOD[0].replace(b"input_ids", b"input_idz"),
            "a record with the features ['input_idz', 'input_mask', ",
        ),
        (PAIR_BYTES, "a record with the features ['a', 'b']"),
    ],
)
def test_a_later_record_that_is_none(tmp_path, data, received):
    """With a valid checksum: TensorFlow's own message of some of them cannot be decoded."""
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(framed(GOOD[1]) + framed(data) + framed(GOOD[2]))
    files = RecordFiles(str(path), small.RECORD)
    with pytest.raises(InputError) as caught:
        files.read([0, 2, 1])
    assert caught.value.received.startswith(f"{path}, record 2, {received}")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A record that is damaged somewhere, or all random."""
    place, count = rng.randrange(len(data)), rng.randrange(1, 9)
    return rng.choice(
        [
            lambda: rng.randbytes(rng.randrange(300)),
            lambda: data[:place],
            lambda: data[:place] + rng.randbytes(count) + data[place:],
            lambda: data[:place] + rng.randbytes(count) + data[place + count :],
            lambda: data[:place] + data[place + count :],
            lambda: data + rng.choice(GOOD),  # every feature twice: the last counts
            lambda: b"\x0b" * 10 ** (count % 5) + data,
            lambda: data[:place] + b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + data[place:],
        ]
    )()


def test_random_damage_is_refused_or_harmless(tmp_path):
    """What is taken is what protocol buffers say, and in range."""
    rng = random.Random(7)
    records = [mutated(rng.choice(GOOD), rng) for _ in range(1500)]
    path = str(tmp_path / "damaged.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for one in [GOOD[0], *records]:
            writer.write(one)
    files, taken, refused = RecordFiles(path, small.RECORD), 0, {}
    for row, one in enumerate(records, 1):
        try:
            found = files.read([row])
        except InputError as error:
            refused[row] = error
            continue
        taken += 1
        try:
            features = tf.train.Example.FromString(one).features.feature
        except Exception:  # wrong lengths around values that are whole
            continue
        for feature in small.RECORD.features:
            kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
            assert found[feature.name][0].tolist() == getattr(features[feature.name], kind).value
    assert 50 < taken < 500
    for row, error in refused.items():
        assert f"{path}, record {row + 1}, " in error.received
        assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: os.truncate(path, 90), "it has become shorter"),
        (os.remove, "No such file or directory"),
        (lambda path: write_numbers(path, [0, 1, 2, 3, 5]), "it has other bytes"),
    ],
)
def test_a_file_that_changes_while_it_is_read(tmp_path, change, says):
    path = write_numbers(tmp_path / "a.tfrecord", range(5))
    files = RecordFiles(path, NUMBER)
    change(path)
    with pytest.raises(InputError, match=rf"record 5, which can no longer be read .*{says}"):
        files.read([4])


def test_a_bit_that_flips_after_opening(tmp_path):
    path = tmp_path / "a.tfrecord"
    files = RecordFiles(write_numbers(path, range(100, 107)), NUMBER)
    data = path.read_bytes()
    at = len(data) // 7 * 4 - FOOTER_BYTES - 1  # the last byte of the fourth record, its number
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert files.read([0, 1, 2, 4, 5, 6])["input_ids"][3] == 104
    with pytest.raises(InputError, match=r"record 4, which can no longer be read .*other bytes"):
        files.read(range(7))


def test_files_of_other_contents_have_another_fingerprint(tmp_path):
    paths = [write_numbers(tmp_path / str(n), [n, 7]) for n in range(3)]
    assert len({RecordFiles(path, NUMBER).fingerprint() for path in paths}) == 3


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


# ---------------------------------------------------------------------------- descriptions


def test_wide_patterns_take_no_description(tmp_path):
    for name in ("a.tfrecord", "info_a.tfrecord.json", "report_a.tfrecord.json", "b.tfrecord"):
        (tmp_path / name).write_text("")
    records = [str(tmp_path / name) for name in ("a.tfrecord", "b.tfrecord")]
    for pattern in ("*", "*.tfrecord*", "?.tfrecord*"):
        assert record_paths(str(tmp_path / pattern)) == records
    alone = description_path(records[0])
    assert alone == str(tmp_path / "info_a.tfrecord.json")
    assert record_paths(alone) == [alone]  # so that the error is that it holds no records


def test_a_file_that_is_not_as_described(tmp_path):
    """One that was cut between two records, or replaced, shows by no checksum."""
    records = walking.write_records(tmp_path / "a", 9, seed=2)
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt", 97)
    declared = pretraining_record(**walking.SIZES)
    walking.describe(records, vocabulary)
    assert len(RecordFiles(str(records), declared)) == 9
    for changes in ({"num_records": 8}, {"num_bytes": 1}):
        walking.describe(records, vocabulary, **changes)
        with pytest.raises(InputError, match="with 9 records in") as caught:
            RecordFiles(str(records), declared)
        assert "info_a.json" in caught.value.expected
    other = walking.write_records(tmp_path / "a", 8, seed=2)
    with pytest.raises(InputError, match="with 8 records in"):
        RecordFiles(str(other), declared)


def test_what_several_files_were_made_with(tmp_path):
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt", 97)
    paths = [str(walking.write_records(tmp_path / name, 3, seed=2)) for name in "abc"]
    assert common_description(paths) == (None, paths[0])
    for path in paths[1:]:  # what may differ does
        walking.describe(pathlib.Path(path), vocabulary, dupe_factor=len(path), masked_lm_prob=1)
    data, undescribed = common_description(paths)
    assert (data.vocab_size, undescribed) == (97, paths[0])
    assert common_description(paths[1:]) == (data, None)
    walking.describe(pathlib.Path(paths[2]), vocabulary, do_lower_case=True)
    with pytest.raises(InputError, match=r"b with do_lower_case False, .*c with True"):
        common_description(paths)
    walking.describe(pathlib.Path(paths[2]), vocabulary, never_split=["w3"])
    with pytest.raises(InputError, match=r"b with never_split \(\), .*c with \('w3',\)"):
        common_description(paths)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_records": -1}, "num_records"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"masked_lm_prob": 1.5}, "masked_lm_prob"),
        ({"do_lower_case": "yes"}, "do_lower_case"),
        ({"max_seq_length": "17"}, "max_seq_length"),
        ({"casing": True}, "casing"),
    ],
)
def test_a_description_is_typed(tmp_path, changes, named):
    records = walking.write_records(tmp_path / "a", 2, seed=2)
    walking.describe(records, walking.write_vocabulary(tmp_path / "vocab.txt"), **changes)
    with pytest.raises(InputError, match=named) as caught:
        read_description(str(records))
    assert "info_a.json" in caught.value.received
