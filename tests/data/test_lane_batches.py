"""Batches of pre-training: the same for any hosts and replicas, from any step on; damage named."""

import contextlib
import gc
import io
import itertools
import os
import pathlib
import resource
import subprocess
import sys
import weakref

import numpy as np
import pytest
import small
import walking
from frames import framed
from small_records import NUMBER, PAIR_BYTES, write_numbers

from bert_tf.data import blocks, index, lane_batches, lanes
from bert_tf.data.blocks import BlockFiles, find_in_processes, find_in_turn
from bert_tf.data.index import index_path
from bert_tf.data.lane_batches import LaneBatches
from bert_tf.data.records import description_path, pretraining_record
from bert_tf.errors import InputError

SIZES = (130, 7, 301, 250)  # records of files


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four to six records, and lanes of two blocks at least."""
    monkeypatch.setattr(index, "BLOCK_BYTES", 200)
    monkeypatch.setattr(lanes, "LEAST_BLOCKS_OF_A_LANE", 2)
    monkeypatch.setattr(lanes, "OPEN_BLOCKS", 24)
    monkeypatch.setattr(lane_batches, "ROWS_AT_ONCE", 40)


@pytest.fixture
def files(tmp_path, small_blocks) -> BlockFiles:
    """The numbers 0, 1, 2, ... through all files."""
    starts = np.cumsum([0, *SIZES])
    for i, (begin, end) in enumerate(itertools.pairwise(starts)):
        write_numbers(tmp_path / f"{i}.tfrecord", range(begin, end))
    return BlockFiles(str(tmp_path / "*.tfrecord"), NUMBER)


def numbers_of(batches: LaneBatches, count: int, **parts) -> list[list[int]]:
    found = batches.dataset(**parts).take(count).as_numpy_iterator()
    return [batch["input_ids"][:, 0].tolist() for batch in found]


def test_every_record_once_an_epoch(files, caplog):
    batches = LaneBatches(files, batch_size=8, seed=5)
    assert (batches.num_lanes, batches.num_records, batches.num_batches) == (8, 688, None)
    epochs = [
        list(itertools.chain.from_iterable(numbers_of(batches, 86, start=86 * epoch)))
        for epoch in range(2)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(688))
    assert epochs[0] != epochs[1]
    assert numbers_of(LaneBatches(files, batch_size=8, seed=6), 1) != [epochs[0][:8]]
    assert "retracing" not in caplog.text  # by the threads that read


@pytest.mark.parametrize("batch_size", [1, 6, 8, 12])
def test_the_same_for_any_replicas_and_hosts(files, batch_size):
    batches = LaneBatches(files, batch_size=batch_size, seed=5)
    whole = numbers_of(batches, 30, start=11)
    for num_parts in (n for n in (1, 2, 3, 4, 6) if batch_size % n == 0):
        for hosts in (n for n in (1, 2, 3) if num_parts % n == 0):
            here = num_parts // hosts
            parts = {"start": 11, "num_parts": num_parts, "parts_here": here}
            by_host = [
                numbers_of(batches, 30 * here, **parts, first_part=host * here)
                for host in range(hosts)
            ]
            joined = [
                [n for rows in by_host for part in rows[t * here : (t + 1) * here] for n in part]
                for t in range(30)
            ]
            assert joined == whole


def test_from_any_step_on(files, monkeypatch):
    batches = LaneBatches(files, batch_size=6, seed=7)
    whole = numbers_of(batches, 300)
    for start in (1, 17, 114, 115, 290):
        assert numbers_of(batches, 10, start=start) == whole[start : start + 10]
    monkeypatch.setattr(lane_batches, "ROWS_AT_ONCE", 1)
    assert numbers_of(LaneBatches(files, batch_size=6, seed=7), 300) == whole


def test_shapes_and_types(tmp_path):
    features = small.examples(4)
    files = BlockFiles(small.write_records(tmp_path / "a", features), small.RECORD)
    batches = LaneBatches(files, batch_size=4, seed=None)
    (batch,) = batches.dataset().take(1).as_numpy_iterator()
    for name, value in features.items():
        assert batch[name].dtype == value.dtype
        np.testing.assert_array_equal(batch[name], value)
    spec = batches.dataset(num_parts=2).element_spec
    assert spec["input_ids"].shape == [2, small.S]
    assert spec["masked_lm_weights"].shape == [2, small.P]
    assert spec["is_real_example"].shape == [2]


def test_once_through_the_files(files):
    batches = LaneBatches(files, batch_size=50, seed=None, num_examples=688)
    assert batches.num_batches == 14
    found = list(batches.dataset(num_parts=2, parts_here=2).as_numpy_iterator())
    numbers = np.concatenate([batch["input_ids"][:, 0] for batch in found])
    real = np.concatenate([batch["is_real_example"] for batch in found])
    assert numbers[:688].tolist() == list(range(688))
    assert real.tolist() == [1] * 688 + [0] * 12
    repeated = LaneBatches(files, batch_size=50, seed=None, num_examples=800)
    assert np.concatenate(numbers_of(repeated, 16)).tolist() == [*range(688), *range(112)]
    assert numbers_of(batches, 1, num_parts=2, first_part=1, start=13) == [
        [*range(675, 688), *range(12)]
    ]


# ---------------------------------------------------------------------------- what is read


def test_each_host_reads_its_own_blocks(files, monkeypatch):
    """And a resumed run no more than the blocks that were open."""
    read = []
    monkeypatch.setattr(
        blocks.BlockFiles,
        "read",
        lambda self, block, *piece, real=blocks.BlockFiles.read: (
            read.append(block) or real(self, block, *piece)
        ),
    )
    batches = LaneBatches(files, batch_size=8, seed=5)
    for host in range(2):
        read.clear()
        numbers_of(batches, 4 * 86, num_parts=8, first_part=host * 4, parts_here=4)
        # Four lanes: half of the blocks, those at the ends of lanes, and the windows after.
        assert len(set(read)) <= len(files.block_records) / 2 + 4 + 4 * 3 * 2
    read.clear()
    numbers_of(batches, 1, start=50)
    assert len(read) <= 3 * 24  # those that are open, and those that are read beforehand


def test_bytes_that_the_kernel_reads(tmp_path):
    """Each block once, whatever TensorFlow's buffers."""
    path = str(walking.write_records(tmp_path / "a", 20_000, seed=1))
    files = BlockFiles(path, pretraining_record(**walking.SIZES))
    assert len(files.block_records) > 2
    before = bytes_read()
    for block, count in enumerate(files.block_records):
        files.read(block, 0, int(count))
    assert bytes_read() - before < 1.02 * os.path.getsize(path) + 10_000


def bytes_read() -> int:
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


# ---------------------------------------------------------------------------- indexes


def test_an_index_is_made_once(tmp_path, small_blocks):
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    files = BlockFiles(path, NUMBER)
    kept = pathlib.Path(index_path(path))
    text = kept.read_text()
    assert kept.name == "index_a.tfrecord.json"
    assert BlockFiles(f"{tmp_path}/*", NUMBER).paths == [path]
    assert BlockFiles(path, NUMBER).fingerprint() == files.fingerprint()
    assert kept.read_text() == text
    write_numbers(tmp_path / "a.tfrecord", range(49))
    with pytest.raises(InputError, match="which is not the index of") as caught:
        BlockFiles(path, NUMBER)
    assert f"remove {kept}" in caught.value.remedy
    kept.unlink()
    assert BlockFiles(path, NUMBER).fingerprint() != files.fingerprint()


@pytest.mark.parametrize(
    ("records", "sizes", "message"),
    [
        ((3, 2), (114, 76), None),  # 38 bytes each
        ((3, 2), (114, 75), "which is not the index of"),
        ((3,), (114, 76), "which is not the index of"),
        ((3, 2**70), (114, 76), "which is not the index of"),
        ((3, 5), (114, 76), "which is not the index of"),
        ((3, 1), (114, 76), "records are not where its index has them"),
        ((2, 2), (114, 76), "records are not where its index has them"),
        ((3, 2), (76, 114), "records are not where its index has them"),
        ((3, 2), (115, 75), "records are not where its index has them"),
        ((3, 3), (114, 76), "records are not where its index has them"),
    ],
)
def test_an_index_of_another_file_is_refused(tmp_path, monkeypatch, records, sizes, message):
    monkeypatch.setattr(index, "BLOCK_BYTES", 80)
    path = write_numbers(tmp_path / "a", range(1, 6))
    of_another = index.BlockIndex(num_bytes=190, block_bytes=sizes, block_records=records)
    pathlib.Path(index_path(path)).write_text(of_another.to_json_string())

    def read() -> list[list[int]]:
        batches = LaneBatches(BlockFiles(path, NUMBER), batch_size=2, seed=None, num_examples=5)
        with batches.record_errors():
            return numbers_of(batches, 3)

    if not message:
        assert list(itertools.chain.from_iterable(read()))[:5] == [1, 2, 3, 4, 5]
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


@pytest.mark.parametrize("what", ["the folder", "the disk"])
def test_where_nothing_can_be_written(tmp_path, small_blocks, monkeypatch, caplog, what):
    paths = [write_numbers(tmp_path / name, range(50)) for name in "ab"]

    def fail(*_):
        raise InputError("a folder that is read-only", "b", "c")

    with caplog.at_level("WARNING", logger="absl"), contextlib.ExitStack() as patch:
        if what == "the folder":
            monkeypatch.setattr(blocks, "write_text", fail)
        else:
            patch.enter_context(no_file_longer_than(60))
        assert len(BlockFiles(paths, NUMBER)) == 100
    (said,) = caplog.messages
    assert said.startswith("An index cannot be kept beside its file, and is made at each start: ")
    assert ("a folder that is read-only" if what == "the folder" else "File too large") in said
    assert sorted(tmp_path.iterdir()) == [pathlib.Path(path) for path in paths]


def test_by_several_processes(tmp_path):
    paths = [
        write_numbers(tmp_path / name, range(size))
        for name, size in zip("abc", (3, 1, 5), strict=True)
    ]
    (tmp_path / "d").write_bytes(b"no records")
    found = find_in_processes([*paths, str(tmp_path / "d")])
    assert found == find_in_turn([*paths, str(tmp_path / "d")])
    assert [one and one.num_records for one in found] == [3, 1, 5, None]


def test_files_that_are_others(tmp_path, small_blocks):
    """Blocks of the same sizes may have other records, or be in another order."""
    ones, others = (
        write_numbers(tmp_path / name, range(first, first + 50))
        for name, first in (("a", 0), ("b", 50))
    )
    found = [[ones], [others], [ones, others], [others, ones]]
    assert len({BlockFiles(paths, NUMBER).fingerprint() for paths in found}) == len(found)
    assert [len(BlockFiles(paths, NUMBER).block_records) for paths in found[:2]] == [9, 9]


def test_shards_without_a_record(tmp_path, small_blocks):
    """Of more shards than records some are empty: as their descriptions say, or it is damage."""
    paths = [tmp_path / name for name in "abcd"]
    for path, numbers in zip(paths, (range(0), range(7), range(0), range(7, 18)), strict=True):
        write_numbers(path, numbers)
        if not numbers:
            walking.describe(path, walking.write_vocabulary(tmp_path / "vocab.txt"))
    files = BlockFiles([str(path) for path in paths], NUMBER)
    batches = LaneBatches(files, batch_size=6, seed=None, num_examples=18)
    assert numbers_of(batches, 3) == [[*range(n, n + 6)] for n in (0, 6, 12)]
    assert files.where(len(files.block_records) - 1, 0).startswith(f"{paths[3]}, record ")
    for wrong in ([paths[0]], [paths[0], paths[2]]):
        with pytest.raises(InputError, match="a, an empty file"):
            BlockFiles([str(path) for path in wrong], NUMBER)
    pathlib.Path(description_path(str(paths[2]))).unlink()
    with pytest.raises(InputError, match="c, an empty file"):
        BlockFiles([str(path) for path in paths], NUMBER)


# ---------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "damaged or cut off after 6 records"),
        (lambda data: data[:7], "damaged or cut off after 0 records"),
        (lambda data: data + b"\0", "damaged or cut off after 7 records"),
        (lambda data: data[:14] + b"?" + data[15:], "damaged or cut off after 0 records"),
        (lambda data: b"Once upon a time there was a file of text.\n", "after 0 records"),
        (lambda data: b"", "an empty file"),
    ],
)
def test_damage_that_shows_at_the_start(tmp_path, damage, message):
    whole = write_numbers(tmp_path / "whole.tfrecord", range(7))
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(damage((tmp_path / "whole.tfrecord").read_bytes()))
    with pytest.raises(InputError, match=message) as caught:
        BlockFiles([whole, str(path)], NUMBER)
    assert str(path) in caught.value.received


OF_FILE, OF_RECORD = "damaged or cut off after 201 records", "record 202, "
DAMAGE = {  # of record 202, and what is said
    "a bit": (lambda record: record[:20] + bytes([record[20] ^ 4]) + record[21:], OF_FILE),
    "a length": (lambda record: b"\x7f" + record[1:], OF_FILE),
    "another kind": (lambda record: framed(PAIR_BYTES[: len(record) - 16]), OF_RECORD),
    "a value": (lambda _: framed(NUMBER.serialize({"input_ids": [2**31]})), OF_RECORD),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_at_its_batch(tmp_path, small_blocks, kind):
    numbers = [*range(201), 2**31 - 1, *range(202, 301)]
    path = pathlib.Path(write_numbers(tmp_path / "a.tfrecord", numbers))
    batches = LaneBatches(BlockFiles(str(path), NUMBER), batch_size=4, seed=1)
    whole = numbers_of(batches, 70)
    bad = next(t for t, rows in enumerate(whole) if 2**31 - 1 in rows)
    data = path.read_bytes()
    records = []
    stream = io.BytesIO(data)
    while length := stream.read(8):
        records.append(length + stream.read(8 + int.from_bytes(length, "little")))
    change, message = DAMAGE[kind]
    records[201] = change(records[201])
    assert sum(map(len, records)) == len(data)
    path.write_bytes(b"".join(records))
    found = []
    with pytest.raises(InputError, match=message) as caught:
        collect(batches, found)
    assert str(path) in caught.value.received
    assert found == whole[: len(found)]
    # Damage of the file shows when its window is opened, of the content where the record comes.
    assert len(found) == bad if message == OF_RECORD else len(found) <= bad


def collect(batches: LaneBatches, found: list) -> None:
    """Adds the numbers of all batches up to the error."""
    with batches.record_errors():
        for batch in batches.dataset():
            found.append(batch["input_ids"].numpy()[:, 0].tolist())


@pytest.mark.parametrize("change", ["cut", "removed"])
def test_a_file_that_changes_while_it_is_read(tmp_path, small_blocks, change):
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    batches = LaneBatches(BlockFiles(path, NUMBER), batch_size=4, seed=None)
    os.truncate(path, 90) if change == "cut" else os.remove(path)
    says = "has changed since it was opened" if change == "cut" else "cannot be read"
    with pytest.raises(InputError, match=rf"a\.tfrecord, which {says}"), batches.record_errors():
        numbers_of(batches, 12)


def test_an_error_that_is_kept_does_not_keep_the_reading(tmp_path, small_blocks):
    """Nor its threads."""
    path = write_numbers(tmp_path / "a.tfrecord", [*range(30), 2**31])
    batches = LaneBatches(BlockFiles(path, NUMBER), batch_size=4, seed=None)
    iterators = [batches.dataset().as_numpy_iterator()]
    kept = weakref.ref(iterators[0])
    with (
        pytest.raises(InputError, match="record 31, with the input_ids 2147483648") as caught,
        batches.record_errors(),
    ):
        list(iterators.pop())
    gc.collect()
    assert caught.value.remedy == "make the data again"
    assert kept() is None


ON_ONE_PROCESSOR = """
import os, sys
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
sys.path.insert(0, sys.argv[1])
from small_records import NUMBER
from bert_tf.data.blocks import BlockFiles
from bert_tf.data.lane_batches import LaneBatches
batches = LaneBatches(BlockFiles(sys.argv[2], NUMBER), batch_size=4, seed=1)
print(sum(1 for _ in batches.dataset().take(100)))
"""


def test_on_one_processor(tmp_path):
    """The one thread of TensorFlow waits for the batches, whose reading must not need it."""
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    helpers = str(pathlib.Path(small.__file__).parent)
    command = [sys.executable, "-c", ON_ONE_PROCESSOR, helpers, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "100"
