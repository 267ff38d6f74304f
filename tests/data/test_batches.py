"""Batches: the same for any hosts and replicas, from any step on; cut to length; damage named."""

import gc
import itertools
import os
import pathlib
import subprocess
import sys
import weakref

import numpy as np
import pytest
import small
import tensorflow as tf
from frames import framed, unframed
from small_records import NUMBER, PAIR_BYTES, open_numbers, write_numbers

from bert_tf.data import batches as batches_module
from bert_tf.data import index, samplers
from bert_tf.data.batches import Batches, BatchingConfig, real_lengths
from bert_tf.data.records import Feature, Record
from bert_tf.data.samplers import ByLengthSampler, SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

SIZES = (130, 7, 301, 250)  # records of files


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four to six records, and lanes of two blocks at least."""
    monkeypatch.setattr(index, "BLOCK_BYTES", 200)
    monkeypatch.setattr(samplers, "LEAST_BLOCKS_OF_A_LANE", 2)
    monkeypatch.setattr(samplers, "OPEN_BLOCKS", 24)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 72)
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 40)


@pytest.fixture
def files(tmp_path, small_blocks) -> RecordFiles:
    """The numbers 0, 1, 2, ... through all files."""
    return open_numbers(tmp_path, *SIZES)


def shuffled(files: RecordFiles, batch_size: int, seed: int = 5) -> Batches:
    sampler = samplers.shuffled(files.block_records, batch_size=batch_size, seed=seed)
    return Batches(files, sampler, batch_size=batch_size)


def in_order(files: RecordFiles, batch_size: int, num_examples: int | None = None) -> Batches:
    sampler = SequentialSampler(len(files))
    return Batches(files, sampler, batch_size=batch_size, num_examples=num_examples)


def numbers_of(batches: Batches, count: int, **parts) -> list[list[int]]:
    found = batches.dataset(**parts).take(count).as_numpy_iterator()
    return [batch["input_ids"][:, 0].tolist() for batch in found]


def test_batches_follow_the_sampler(files, caplog):
    for sampler, batch_size in (
        (samplers.shuffled(files.block_records, batch_size=8, seed=5), 8),
        (ShuffledSampler(688, seed=2), 5),
        (SequentialSampler(688), 100),
    ):
        batches = Batches(files, sampler, batch_size=batch_size)
        assert (batches.num_records, batches.num_batches) == (688, None)
        found = list(itertools.chain.from_iterable(numbers_of(batches, 150)))
        assert found == sampler.rows(0, 150 * batch_size).tolist()
    assert batches.batch_rows(6).tolist() == [*range(600, 688), *range(12)]
    assert "retracing" not in caplog.text  # by the threads that read


@pytest.mark.parametrize("batch_size", [1, 6, 8, 12])
def test_the_same_for_any_replicas_and_hosts(files, batch_size):
    batches = shuffled(files, batch_size)
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
    batches = shuffled(files, 6)
    whole = numbers_of(batches, 300)
    for start in (1, 17, 114, 115, 290):
        assert numbers_of(batches, 10, start=start) == whole[start : start + 10]
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 1)
    assert numbers_of(shuffled(files, 6), 300) == whole


def test_shapes_and_types(tmp_path):
    features = small.examples(4)
    files = RecordFiles(small.write_records(tmp_path / "a", features), small.RECORD)
    (batch,) = in_order(files, 4).dataset().take(1).as_numpy_iterator()
    assert set(batch) == {*features, "is_real_example"}
    for name, value in features.items():
        assert batch[name].dtype == value.dtype
        np.testing.assert_array_equal(batch[name], value)
    assert batch["is_real_example"].dtype == np.float32
    assert batch["is_real_example"].tolist() == [1, 1, 1, 1]
    spec = in_order(files, 4).dataset(num_parts=2).element_spec
    assert spec["input_ids"] == tf.TensorSpec([2, small.S], tf.int32)
    assert spec["masked_lm_weights"] == tf.TensorSpec([2, small.P], tf.float32)
    assert spec["is_real_example"] == tf.TensorSpec([2], tf.float32)


@pytest.mark.parametrize(("num_examples", "count"), [(688, 14), (650, 13), (800, 16), (3, 1)])
def test_a_short_last_batch_is_filled_up(files, num_examples, count):
    batches = in_order(files, 50, num_examples)
    assert batches.num_batches == count
    found = list(batches.dataset(num_parts=2, parts_here=2).as_numpy_iterator())
    assert len(found) == 2 * count
    real = np.concatenate([batch["is_real_example"] for batch in found])
    assert real.tolist() == [1] * num_examples + [0] * (50 * count - num_examples)
    numbers = np.concatenate([batch["input_ids"][:, 0] for batch in found])[real == 1]
    assert numbers.tolist() == [row % 688 for row in range(num_examples)]
    assert len(batches.batch_rows(count - 1)) == num_examples - 50 * (count - 1)
    host = [b["is_real_example"] for b in batches.dataset(num_parts=2, first_part=1)]
    assert np.concatenate(host).tolist() == real.reshape(count, 2, 25)[:, 1].ravel().tolist()


def test_a_batch_that_cannot_be_split(tmp_path):
    with pytest.raises(InputError, match="a batch size of 7 for 3 replicas"):
        in_order(open_numbers(tmp_path, 2), 7).dataset(num_parts=3)


def test_each_host_reads_its_own_blocks(files, monkeypatch):
    """Each once an epoch; and a resumed run no more than the blocks that were open."""
    read = []
    real = RecordFiles.read_block
    monkeypatch.setattr(
        RecordFiles, "read_block", lambda self, block: read.append(block) or real(self, block)
    )
    batches = shuffled(files, 8)
    for host in range(2):
        read.clear()
        numbers_of(batches, 4 * 86, num_parts=8, first_part=host * 4, parts_here=4)
        # Four lanes: half of the blocks, those at the ends of lanes, and some of the next epoch.
        most = len(files.block_records) / 2 + 4 + 4 * 3 * 2
        assert len(set(read)) <= most
        assert len(read) <= most + 8
    read.clear()
    numbers_of(batches, 1, start=50)
    assert len(read) <= 3 * 24  # those that are open, and those that are read beforehand


# ---------------------------------------------------------------------------- damage

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
    batches = shuffled(RecordFiles(str(path), NUMBER), 4, seed=1)
    whole = numbers_of(batches, 70)
    bad = next(t for t, rows in enumerate(whole) if 2**31 - 1 in rows)
    records = [framed(record) for record in unframed(path.read_bytes())]
    change, message = DAMAGE[kind]
    changed = change(records[201])
    assert len(changed) == len(records[201])
    path.write_bytes(b"".join([*records[:201], changed, *records[202:]]))
    found = []
    with pytest.raises(InputError, match=message) as caught:
        collect(batches, found)
    assert str(path) in caught.value.received
    assert found == whole[: len(found)]
    # Damage of the file shows where a record of its block comes, of the content where its own does.
    in_block = next(t for t, rows in enumerate(whole) if {*range(195, 208)} & {*rows})
    assert len(found) == bad if message == OF_RECORD else in_block <= len(found) <= bad


def collect(batches: Batches, found: list) -> None:
    """Adds the numbers of all batches up to the error."""
    with batches.record_errors():
        for batch in batches.dataset():
            found.append(batch["input_ids"].numpy()[:, 0].tolist())


def test_a_file_that_is_cut_while_it_is_read(tmp_path, small_blocks):
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    batches = in_order(RecordFiles(path, NUMBER), 4)
    os.truncate(path, 90)
    with pytest.raises(InputError, match=r"a\.tfrecord, damaged"), batches.record_errors():
        numbers_of(batches, 12)


@pytest.mark.parametrize(
    ("feature", "bad"), [("input_ids", 41), ("input_ids", -1), ("masked_lm_ids", 41)]
)
def test_an_id_without_a_row_in_the_table(tmp_path, feature, bad):
    features = small.examples(5)
    features[feature][3, 1] = bad
    files = RecordFiles(small.write_records(tmp_path / "a.tfrecord", features), small.RECORD)
    batches = in_order(files, 2)
    assert len(list(batches.dataset().take(1))) == 1
    with pytest.raises(tf.errors.OpError):
        list(batches.dataset().take(2))
    assert batches.error.received == f"{files.where(3)}, with the {feature} {bad}"
    assert batches.error.expected == "numbers from 0 to 40, as the model's vocab_size is 41"


def test_an_error_that_is_kept_does_not_keep_the_reading(tmp_path, small_blocks):
    """Nor its threads."""
    path = write_numbers(tmp_path / "a.tfrecord", [*range(30), 2**31])
    batches = in_order(RecordFiles(path, NUMBER), 4)
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
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import ShuffledSampler
from bert_tf.data.shards import RecordFiles
batches = Batches(RecordFiles(sys.argv[2], NUMBER), ShuffledSampler(50, seed=1), batch_size=4)
print(sum(1 for _ in batches.dataset().take(100)))
"""


def test_on_one_processor(tmp_path):
    """The one thread of TensorFlow waits for the batches, whose reading must not need it."""
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    helpers = str(pathlib.Path(small.__file__).parent)
    command = [sys.executable, "-c", ON_ONE_PROCESSOR, helpers, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "100"


# ---------------------------------------------------------------------------- by length

ROWS = 23


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> RecordFiles:
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    return RecordFiles(small.write_records(path, small.examples(ROWS)), small.RECORD)


def bucketed(files: RecordFiles, **changes) -> Batches:
    """Batches of 4, in order of length."""
    lengths = real_lengths(files)
    assert lengths.tolist() == small.examples(ROWS)["input_mask"].sum(1).tolist()
    sampler = ByLengthSampler(
        SequentialSampler(ROWS), lengths, batch_size=4, window=99, ends=[ROWS], seed=None
    )
    settings = {"lengths": lengths, "padded_lengths": (3, 5, small.S), "num_examples": ROWS}
    return Batches(files, sampler, batch_size=4, **(settings | changes))


@pytest.mark.parametrize("rows_at_once", [1, 1000])
def test_batches_are_cut_and_hold_every_example_once(examples, monkeypatch, rows_at_once):
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", rows_at_once)
    batches = bucketed(examples)
    values, seen, lengths = small.examples(ROWS), [], []
    whole = [{n: v.numpy() for n, v in batch.items()} for batch in batches.dataset()]
    for number, batch in enumerate(whole):
        rows = batches.batch_rows(number)
        real = int(batch["is_real_example"].sum())
        assert real == len(rows)
        lengths.append(batch["input_ids"].shape[1])
        longest = values["input_mask"][rows].sum(1).max()
        assert lengths[-1] == min(n for n in (3, 5, small.S) if n >= longest)
        for name in ("input_ids", "segment_ids", "input_mask"):
            assert (batch[name][:real] == values[name][rows][:, : lengths[-1]]).all()
        assert batch["masked_lm_ids"].shape == (4, small.P)
        seen += rows.tolist()
    assert sorted(seen) == list(range(ROWS))
    assert len(set(lengths)) > 1
    parts = [list(bucketed(examples).dataset(num_parts=2, first_part=part)) for part in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):  # of one length
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([first[name], second[name]]), value)


@pytest.mark.parametrize(("padded_lengths", "length"), [((3, 5, small.S), None), ((small.S,), 7)])
def test_one_length_is_known_before_a_batch_is_read(examples, padded_lengths, length):
    """As a TPU needs it."""
    shapes = bucketed(examples, padded_lengths=padded_lengths).dataset().element_spec
    assert small.S == 7
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert shapes[name].shape.as_list() == [4, length]
    assert shapes["masked_lm_ids"].shape.as_list() == [4, small.P]


def test_several_sequences_of_an_example(tmp_path):
    sizes = {"size": 10, "size_flag": "max_seq_length", "sequences": 2}
    names = ("input_ids", "input_mask")
    record = Record("choice", tuple(Feature(name, tf.int64, **sizes) for name in names))
    ids = np.array([[[1, 2, 0, 0, 0], [3, 4, 5, 0, 0]], [[6, 0, 0, 0, 0], [7, 8, 0, 0, 0]]])
    features = {"input_ids": ids.reshape(2, 10), "input_mask": 1 * (ids > 0).reshape(2, 10)}
    files = RecordFiles(small.write_records(tmp_path / "c", features, record), record)
    lengths = real_lengths(files)
    assert lengths.tolist() == [3, 2]
    batches = Batches(
        files,
        SequentialSampler(2),
        batch_size=1,
        num_examples=2,
        lengths=lengths,
        padded_lengths=(2, 5),
    )
    first, second = (batch["input_ids"].numpy() for batch in batches.dataset())
    assert first.tolist() == ids[:1].tolist()
    assert second.tolist() == ids[1:, :, :2].tolist()


def test_longer_records_than_expected(examples):
    with pytest.raises(InputError, match="max_seq_length"):
        bucketed(examples, padded_lengths=(2, 4))


def test_an_evaluation_of_many_blocks_reads_each_once(tmp_path, small_blocks, monkeypatch):
    """Sorted only as far as the blocks that are kept."""
    monkeypatch.setattr(batches_module, "OPEN_BLOCKS", 3)
    path = small.write_records(tmp_path / "a", small.examples(60))
    files, read = RecordFiles(path, small.RECORD), []
    assert len(files.block_records) > 20
    batches = BatchingConfig(max_seq_length=small.S).once(files, batch_size=4)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 12)
    real = RecordFiles.read_block
    monkeypatch.setattr(
        RecordFiles, "read_block", lambda self, block: read.append(block) or real(self, block)
    )
    rows = [batches.batch_rows(number).tolist() for number in range(batches.num_batches)]
    assert sorted(itertools.chain.from_iterable(rows)) == list(range(60))
    assert len(list(batches.dataset())) == batches.num_batches
    assert len(read) < 1.2 * len(files.block_records)
