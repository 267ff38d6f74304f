"""Record files: one sequence of records through all files; what is refused."""

import contextlib
import gzip
import pathlib
from unittest import mock

import numpy as np
import pytest
import small
import tensorflow as tf
import walking
from frames import framed
from small_records import NUMBER, PAIR_BYTES, open_numbers, write_numbers

from bert_tf.data import records as record_files
from bert_tf.data import shards
from bert_tf.data.records import BlockIndex, Feature, Record, index_path, pretraining_record
from bert_tf.data.shards import RecordFiles, common_description, read_description, record_paths
from bert_tf.errors import InputError


def numbers_of(files: RecordFiles, rows) -> list[int]:
    return files.read(rows)["input_ids"][:, 0].tolist()


@pytest.mark.parametrize("block_bytes", [1 << 20, 80, 1])
def test_several_files_are_one_sequence(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(record_files, "BLOCK_BYTES", block_bytes)
    files = open_numbers(tmp_path, 3, 1, 5)
    assert len(files) == 9
    blocks = {1 << 20: [3, 1, 5], 80: [3, 1, 3, 2], 1: [1] * 9}[block_bytes]
    assert files.block_records.tolist() == blocks
    assert files.blocks_of(np.arange(9)).tolist() == np.repeat(range(len(blocks)), blocks).tolist()
    rows = [8, 0, 3, 2, 4, 4]
    assert numbers_of(files, rows) == rows
    places = {0: "0.tfrecord, record 1", 2: "0.tfrecord, record 3", 3: "1.tfrecord, record 1",
              4: "2.tfrecord, record 1", 8: "2.tfrecord, record 5"}  # fmt: skip
    assert {row: files.where(row).rpartition("/")[2] for row in places} == places


# ---------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "cut off or changed"),
        (lambda data: data[: len(data) // 2], "cut off or changed"),
        (lambda data: data[:7], "cut off or changed"),
        (lambda data: data + b"\0", "cut off or changed"),
        (lambda data: data[:14] + b"?" + data[15:], "cut off or changed"),
        (lambda data: b"Once upon a time there was a file of text.\n", "cut off or changed"),
        (lambda data: b"", "an empty file"),
        (gzip.compress, "compressed with gzip"),
        # The length of the first record is at the beginning, as of gzip and pickles a mark is.
        *((lambda _, n=n: framed(bytes(n)) + b"\0", "or changed") for n in (0x280, 0x8B1F)),
        *(  # with a valid checksum; TensorFlow's reader dies of a length of 2**62
            (lambda data, length=length: data + framed(b"seven", length=length), "or changed")
            for length in (6, 2**31, 2**62, 2**64 - 17, 2**64 - 1)
        ),
    ],
)
def test_damage_that_shows_at_the_start(tmp_path, damage, message):
    whole = write_numbers(tmp_path / "whole.tfrecord", range(7))
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(damage((tmp_path / "whole.tfrecord").read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        RecordFiles([whole, str(path)], NUMBER)
    assert str(path) in caught.value.received


def test_a_length_of_a_hole_in_a_file_is_not_read(tmp_path):
    """A file of no content can be as long as it likes."""
    path = tmp_path / "sparse.tfrecord"
    write_numbers(path, [1])
    with path.open("r+b") as stream:
        stream.seek(0, 2)
        stream.write(framed(b"", length=2**31))
        stream.truncate(2**31 + 1000)
    with pytest.raises(InputError, match="cut off or changed"):
        RecordFiles(str(path), NUMBER)


@pytest.mark.parametrize(
    ("change", "message", "whole"),
    [
        (lambda data: data[:147] + bytes([data[147] ^ 1]) + data[148:], "changed", [0, 1, 2, 4]),
        (lambda data: data[:90], "changed", [0, 1]),
        (lambda data: data[38:] + framed(PAIR_BYTES), "changed", []),
        (None, "a, which cannot be read", []),
    ],
)
def test_a_file_that_changes_after_opening(tmp_path, monkeypatch, change, message, whole):
    """What is whole can still be read."""
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 38)
    path = tmp_path / "a"
    files = RecordFiles(write_numbers(path, range(5)), NUMBER)
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    with pytest.raises(InputError, match=message) as caught:
        numbers_of(files, range(5))
    assert str(path) in caught.value.received
    assert not whole or numbers_of(files, whole) == whole


# ---------------------------------------------------------------------------- indexes


def test_an_index_is_made_once(tmp_path):
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    kept = pathlib.Path(index_path(path))
    RecordFiles(path, NUMBER)
    assert not kept.exists()
    files = RecordFiles(path, NUMBER, keep_indexes=True)
    text = kept.read_text()
    again = RecordFiles(f"{tmp_path}/*", NUMBER, keep_indexes=True)
    assert (again.paths, again.fingerprint()) == ([path], files.fingerprint())
    assert kept.read_text() == text


OTHER, NOT_ITS = "which is not the index of", "damaged, cut off or changed"


@pytest.mark.parametrize(
    ("records", "sizes", "message"),
    [
        ((3, 2), (114, 76), None),  # 38 bytes each
        ((3, 2), (114, 75), OTHER),
        ((3,), (114, 76), OTHER),
        ((3, 5), (114, 76), OTHER),
        ((3, 1), (114, 76), NOT_ITS),
        ((2, 2), (114, 76), NOT_ITS),
        ((3, 2), (76, 114), NOT_ITS),
        ((3, 2), (115, 75), NOT_ITS),
        ((3, 3), (114, 76), NOT_ITS),
    ],
)
def test_an_index_of_another_file_is_refused(tmp_path, monkeypatch, records, sizes, message):
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 80)
    path = write_numbers(tmp_path / "a", range(1, 6))
    of_another = BlockIndex(num_bytes=190, block_bytes=sizes, block_records=records)
    pathlib.Path(index_path(path)).write_text(of_another.to_json_string())

    def read() -> list[int]:
        files = RecordFiles(path, NUMBER, keep_indexes=True)
        return numbers_of(files, range(len(files)))

    if not message:
        assert read() == [1, 2, 3, 4, 5]
        return
    with pytest.raises(InputError, match=message) as caught:
        read()
    assert f"remove {index_path(path)}" in caught.value.remedy


def test_where_nothing_can_be_written(tmp_path, monkeypatch, caplog):
    paths = [write_numbers(tmp_path / name, range(50)) for name in "ab"]
    full = InputError("a disk that is full", "room", "make some")
    monkeypatch.setattr(shards.files, "write_text", mock.Mock(side_effect=full))
    assert len(RecordFiles(paths, NUMBER, keep_indexes=True)) == 100
    (said,) = caplog.messages
    assert said.startswith("An index cannot be kept beside its file, and is made at each start: ")
    assert "a disk that is full" in said


def test_files_that_are_others(tmp_path):
    """Blocks of the same sizes may have other records, or be in another order."""
    ones, others = (write_numbers(tmp_path / f"{n}", range(n, n + 50)) for n in (0, 50))
    found = [[ones], [others], [ones, others], [others, ones]]
    assert len({RecordFiles(paths, NUMBER).fingerprint() for paths in found}) == len(found)


# ---------------------------------------------------------------------------- records

SIZES = {"max_seq_length": small.S, "max_predictions_per_seq": small.P}
FLOATS = Record("floats", (Feature("input_ids", tf.float32, 1),))
GOOD = small.RECORD.serialize({name: values[0] for name, values in small.examples(1).items()})
NO_EXAMPLE, NAMES = "a record that is not a tf.train.Example", "input_ids, input_mask, segment"


@pytest.mark.parametrize(
    ("data", "sizes", "received", "said"),
    [
        (PAIR_BYTES, {}, "a record with the features ['a', 'b']", NAMES),
        (b"", {}, "a record with the features []", NAMES),
        (b"\xff" * 60, {}, NO_EXAMPLE, NAMES),
        (GOOD + b"\x0b" * 500, {}, NO_EXAMPLE, NAMES),  # nested groups
        # TensorFlow's own message cannot be decoded.
        (GOOD.replace(b"input_ids", b"input_\xe9\xe9s"), {}, NO_EXAMPLE, NAMES),
        (GOOD.replace(b"input_ids", b"input_idz"), {}, "with the features ['input_idz', ", NAMES),
        (GOOD, {"max_seq_length": 11}, "input_ids has 7 values", "--max_seq_length=7"),
        (GOOD, {"max_predictions_per_seq": 5}, "positions has 3", "predictions_per_seq=3"),
        # Ids written as floats, say: the remedy must not be a length of 0.
        (FLOATS.serialize({"input_ids": [3.0]}), {"max_seq_length": 1}, "has 0 values", "1 values"),
    ],
)
def test_records_of_another_kind(tmp_path, data, sizes, received, said):
    """As the first of a file, and as a later one."""
    path, record = tmp_path / "a.tfrecord", pretraining_record(**SIZES | sizes)
    good = record.serialize({feature.name: [0] * feature.size for feature in record.features})
    for place in (1, 2):
        path.write_bytes(framed(good) * (place - 1) + framed(data) + framed(good))
        with pytest.raises(InputError) as caught:
            RecordFiles(str(path), record).read([0, 2, 1])
        assert caught.value.received.startswith(f"{path}, record {place}, ")
        assert received in caught.value.received
        assert said in str(caught.value)
        assert "=0" not in caught.value.remedy


def test_next_sentence_labels_may_be_there_unread(tmp_path):
    path = small.write_records(tmp_path / "a.tfrecord", small.examples(2))
    record = pretraining_record(**SIZES, next_sentence=False)
    assert "next_sentence_labels" not in RecordFiles(path, record).read([0, 1])


# ---------------------------------------------------------------------------- descriptions


def test_wide_patterns_take_no_description(tmp_path):
    for name in ("a.tfrecord", "info_a.tfrecord.json", "report_a.tfrecord.json", "b.tfrecord"):
        (tmp_path / name).write_text("")
    records = [str(tmp_path / name) for name in ("a.tfrecord", "b.tfrecord")]
    for pattern in ("*", "*.tfrecord*", "?.tfrecord*"):
        assert record_paths(str(tmp_path / pattern)) == records


def test_shards_without_a_record(tmp_path):
    """Of more shards than records some are empty: as their descriptions say, or it is damage."""
    paths = [write_numbers(tmp_path / name, range(7 if name in "bd" else 0)) for name in "abcd"]
    for path in (paths[0], paths[2]):
        walking.describe(pathlib.Path(path), walking.write_vocabulary(tmp_path / "vocab.txt"))
    files = RecordFiles(paths, NUMBER)
    assert numbers_of(files, range(14)) == [*range(7), *range(7)]
    assert files.where(7) == f"{paths[3]}, record 1"
    with pytest.raises(InputError, match="a, an empty file"):
        RecordFiles([paths[0], paths[2]], NUMBER)
    pathlib.Path(record_files.description_path(paths[2])).unlink()
    with pytest.raises(InputError, match="c, an empty file"):
        RecordFiles(paths, NUMBER)


def test_a_file_that_is_not_as_described(tmp_path):
    """One that was cut between two records, or replaced, shows by no checksum."""
    records = walking.write_records(tmp_path / "a", 9, seed=2)
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt", 97)
    for changes in ({}, {"num_records": 8}, {"num_bytes": 1}):
        walking.describe(records, vocabulary, **changes)
        expected = pytest.raises(InputError, match=r"(?s)with 9 records in .*info_a\.json")
        with expected if changes else contextlib.nullcontext():
            RecordFiles(str(records), pretraining_record(**walking.SIZES))


def test_what_several_files_were_made_with(tmp_path):
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt", 97)
    paths = [str(walking.write_records(tmp_path / name, 3, seed=2)) for name in "abc"]
    assert common_description(paths) == (None, paths[0])
    for path in paths[1:]:  # what may differ does
        walking.describe(pathlib.Path(path), vocabulary, dupe_factor=len(path), masked_lm_prob=1)
    data, undescribed = common_description(paths)
    assert (data.vocab_size, undescribed) == (97, paths[0])
    assert common_description(paths[1:]) == (data, None)
    walking.describe(pathlib.Path(paths[2]), vocabulary, never_split=["w3"])
    with pytest.raises(InputError, match=r"b with never_split \(\), .*c with \('w3',\)"):
        common_description(paths)
    walking.describe(pathlib.Path(paths[2]), vocabulary, do_lower_case="yes")
    with pytest.raises(InputError, match=r"info_c\.json with .*do_lower_case"):
        read_description(paths[2])
