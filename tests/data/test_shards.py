"""Record files: one sequence of records through all files; what is refused."""

import concurrent.futures
import contextlib
import functools
import gzip
import os
import pathlib
import random
import resource

import numpy as np
import pytest
import small
import tensorflow as tf
import walking
from frames import framed
from small_records import NUMBER, PAIR, PAIR_BYTES, open_numbers, write_numbers

from bert_tf.data import index
from bert_tf.data.index import BlockIndex, index_path
from bert_tf.data.records import Feature, Record, description_path, pretraining_record
from bert_tf.data.shards import RecordFiles, common_description, read_description, record_paths
from bert_tf.errors import InputError


def numbers_of(files: RecordFiles, rows) -> list[int]:
    return files.read(rows)["input_ids"][:, 0].tolist()


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "two.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(2):
            writer.write(PAIR.serialize({"b": [3, 300], "a": [1.5]}))
    assert path.read_bytes() == framed(PAIR_BYTES) * 2
    rows = RecordFiles(str(path), PAIR).read([1])
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([[1.5]], [[3, 300]])
    assert (rows["a"].dtype, rows["b"].dtype) == (np.float32, np.int32)


@pytest.mark.parametrize("block_bytes", [1 << 20, 80, 1])
def test_several_files_are_one_sequence(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(index, "BLOCK_BYTES", block_bytes)
    files = open_numbers(tmp_path, 3, 1, 5)
    assert len(files) == 9
    blocks = {1 << 20: [3, 1, 5], 80: [3, 1, 3, 2], 1: [1] * 9}[block_bytes]
    assert files.block_records.tolist() == blocks
    assert files.blocks_of(np.arange(9)).tolist() == np.repeat(range(len(blocks)), blocks).tolist()
    rows = [8, 0, 3, 2, 4, 4]
    assert numbers_of(files, rows) == rows
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
    orders = [np.random.default_rng(seed).permutation(30).tolist() for seed in range(150)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda rows: numbers_of(files, rows), orders)) == orders


def test_bytes_that_the_kernel_reads(tmp_path):
    """Each block once, whatever TensorFlow's buffers."""
    path = str(walking.write_records(tmp_path / "a", 20_000, seed=1))
    files = RecordFiles(path, pretraining_record(**walking.SIZES))
    assert len(files.block_records) > 2

    def bytes_read() -> int:
        return int(pathlib.Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    for block in range(len(files.block_records)):
        files.read_block(block)
    assert bytes_read() - before < 1.02 * os.path.getsize(path) + 10_000


# ---------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "damaged or cut off after 6 records"),
        (lambda data: data[: len(data) // 2], "damaged or cut off after 3 records"),
        (lambda data: data[:7], "damaged or cut off after 0 records"),
        (lambda data: data + b"\0", "damaged or cut off after 7 records"),
        (lambda data: data[:14] + b"?" + data[15:], "damaged or cut off after 0 records"),
        (lambda data: b"Once upon a time there was a file of text.\n", "after 0 records"),
        (lambda data: b"", "an empty file"),
        (gzip.compress, "compressed with gzip"),
        *(  # with a valid checksum; TensorFlow's reader dies of a length of 2**62
            (lambda data, length=length: data + framed(b"seven", length=length), "after 7 records")
            for length in (6, 2**31, 2**62, 2**63, 2**64 - 17, 2**64 - 1)
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
    with pytest.raises(InputError, match="cut off after 1 records"):
        RecordFiles(str(path), NUMBER)


def test_a_folder_in_the_place_of_a_file(tmp_path):
    with pytest.raises(InputError):
        RecordFiles(str(tmp_path), NUMBER)


def with_a_bit_flipped(data: bytes, record: int) -> bytes:
    """In the last byte of a record's data: its number."""
    at = 38 * record - 4 - 1
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: with_a_bit_flipped(data, 4), "damaged or cut off after 3 records"),
        (lambda data: data[:90], "damaged or cut off after 2 records"),
        (lambda data: data[:76], "which has changed since it was opened"),
        (lambda data: data[38:] + framed(PAIR_BYTES), "which has changed since it was opened"),
        (None, "a, which cannot be read"),
    ],
)
def test_a_file_that_changes_after_opening(tmp_path, monkeypatch, change, message):
    """What is whole can still be read."""
    monkeypatch.setattr(index, "BLOCK_BYTES", 38)
    path = tmp_path / "a"
    files = RecordFiles(write_numbers(path, range(5)), NUMBER)
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    with pytest.raises(InputError, match=message) as caught:
        numbers_of(files, range(5))
    assert str(path) in caught.value.received
    if "3 records" in message:
        assert numbers_of(files, [0, 1, 2, 4]) == [0, 1, 2, 4]


# ---------------------------------------------------------------------------- indexes


def test_an_index_is_made_once(tmp_path):
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    kept = pathlib.Path(index_path(path))
    RecordFiles(path, NUMBER)
    assert not kept.exists()
    files = RecordFiles(path, NUMBER, keep_indexes=True)
    assert kept.name == "index_a.tfrecord.json"
    text = kept.read_text()
    again = RecordFiles(f"{tmp_path}/*", NUMBER, keep_indexes=True)
    assert (again.paths, again.fingerprint()) == ([path], files.fingerprint())
    assert kept.read_text() == text
    write_numbers(tmp_path / "a.tfrecord", range(49))
    with pytest.raises(InputError, match="which is not the index of") as caught:
        RecordFiles(path, NUMBER, keep_indexes=True)
    assert f"remove {kept}" in caught.value.remedy
    kept.unlink()
    assert RecordFiles(path, NUMBER, keep_indexes=True).fingerprint() != files.fingerprint()


OTHER, NOT_ITS = "which is not the index of", "or whose index is of another file"


@pytest.mark.parametrize(
    ("records", "sizes", "message"),
    [
        ((3, 2), (114, 76), None),  # 38 bytes each
        ((3, 2), (114, 75), OTHER),
        ((3,), (114, 76), OTHER),
        ((3, 2**70), (114, 76), OTHER),
        ((3, 5), (114, 76), OTHER),
        ((3, 1), (114, 76), NOT_ITS),
        ((2, 2), (114, 76), NOT_ITS),
        ((3, 2), (76, 114), NOT_ITS),
        ((3, 2), (115, 75), NOT_ITS),
        ((3, 3), (114, 76), NOT_ITS),
    ],
)
def test_an_index_of_another_file_is_refused(tmp_path, monkeypatch, records, sizes, message):
    monkeypatch.setattr(index, "BLOCK_BYTES", 80)
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


@contextlib.contextmanager
def no_file_longer_than(num_bytes: int):
    """As on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_nothing_can_be_written(tmp_path, caplog):
    paths = [write_numbers(tmp_path / name, range(50)) for name in "ab"]
    with caplog.at_level("WARNING", logger="absl"), no_file_longer_than(10):
        assert len(RecordFiles(paths, NUMBER, keep_indexes=True)) == 100
    (said,) = caplog.messages
    assert said.startswith("An index cannot be kept beside its file, and is made at each start: ")
    assert "File too large" in said
    assert sorted(tmp_path.iterdir()) == [pathlib.Path(path) for path in paths]


def test_files_that_are_others(tmp_path):
    """Blocks of the same sizes may have other records, or be in another order."""
    ones, others = (write_numbers(tmp_path / f"{n}", range(n, n + 50)) for n in (0, 50))
    found = [[ones], [others], [ones, others], [others, ones]]
    assert len({RecordFiles(paths, NUMBER).fingerprint() for paths in found}) == len(found)


def test_shards_without_a_record(tmp_path):
    """Of more shards than records some are empty: as their descriptions say, or it is damage."""
    paths = [tmp_path / name for name in "abcd"]
    for path, numbers in zip(paths, (range(0), range(7), range(0), range(7, 18)), strict=True):
        write_numbers(path, numbers)
        if not numbers:
            walking.describe(path, walking.write_vocabulary(tmp_path / "vocab.txt"))
    files = RecordFiles([str(path) for path in paths], NUMBER)
    assert numbers_of(files, range(18)) == list(range(18))
    assert files.where(7) == f"{paths[3]}, record 1"
    for wrong in ([paths[0]], [paths[0], paths[2]]):
        with pytest.raises(InputError, match="a, an empty file"):
            RecordFiles([str(path) for path in wrong], NUMBER)
    pathlib.Path(description_path(str(paths[2]))).unlink()
    with pytest.raises(InputError, match="c, an empty file"):
        RecordFiles([str(path) for path in paths], NUMBER)


# ---------------------------------------------------------------------------- records


SIZES = {"max_seq_length": small.S, "max_predictions_per_seq": small.P}
FLOATS = Record("floats", (Feature("input_ids", tf.float32, 1),))
GOOD = [
    small.RECORD.serialize({name: values[i] for name, values in small.examples(9).items()})
    for i in range(9)
]


@pytest.mark.parametrize(
    ("data", "sizes", "received", "said"),
    [
        (PAIR_BYTES, {}, "a record with the features ['a', 'b']", "input_ids, input_mask, segment"),
        (b"hello", {}, "a record that is not a tf.train.Example", "input_ids, input_mask, segment"),
        (GOOD[0], {"max_seq_length": 11}, "input_ids has 7 values", "--max_seq_length=7"),
        (
            GOOD[0],
            {"max_predictions_per_seq": 5},
            "masked_lm_positions has 3",
            "--max_predictions_per_seq=3",
        ),
        # Ids written as floats, say: the remedy must not be a length of 0.
        (FLOATS.serialize({"input_ids": [3.0]}), {"max_seq_length": 1}, "has 0 values", "1 values"),
    ],
)
def test_records_of_another_kind(tmp_path, data, sizes, received, said):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(data))
    with pytest.raises(InputError) as caught:
        RecordFiles(str(path), pretraining_record(**SIZES | sizes))
    assert f"{path}, record 1, " in caught.value.received
    assert received in caught.value.received
    assert said in str(caught.value)
    assert "=0" not in caught.value.remedy


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
    assert numbers_of(files, [0, 2]) == [small.examples(9)["input_ids"][i, 0] for i in (1, 2)]
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
    records = [mutated(rng.choice(GOOD), rng) for _ in range(500)]
    path = str(tmp_path / "damaged.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for one in [GOOD[0], *records]:
            writer.write(one)
    files, taken, refused = RecordFiles(path, small.RECORD), 0, {}
    blocks = functools.cache(files.read_block)
    for row, one in enumerate(records, 1):
        try:
            found = files.read([row], blocks)
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
    assert 20 < taken < 170
    for row, error in refused.items():
        assert f"{path}, record {row + 1}, " in error.received
        assert len(str(error)) < 1000


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
