"""Orders and batches: the same for any hosts and replicas, from any step on; damage named."""

import gc
import itertools
import pathlib
import subprocess
import sys
import weakref
from unittest import mock

import numpy as np
import pytest
import small
import tensorflow as tf
from frames import framed, unframed
from hypothesis import given, settings
from hypothesis import strategies as st
from small_records import NUMBER, PAIR_BYTES, open_numbers, write_numbers

from bert_tf.data import batches as batches_module
from bert_tf.data import records as record_files
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.packing import DealtSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

# ---------------------------------------------------------------------------- samplers


def make(kind: str, blocks: list[int], batch_size: int, seed: int):
    num_rows = sum(blocks)
    if kind in ("shuffled", "dealt"):
        # So many lanes that each has a row.
        with mock.patch.object(batches_module, "LEAST_BLOCKS_OF_A_LANE", 2):
            sampler = ShuffledSampler(blocks, batch_size=batch_size, seed=seed)
        if kind == "shuffled":
            return sampler
        lengths = np.arange(num_rows) % 7
        return DealtSampler(sampler, lengths, batch_size=batch_size, window=3)
    return SequentialSampler(num_rows)


BLOCKS = st.lists(st.integers(1, 9), min_size=1, max_size=90)


@pytest.mark.parametrize("kind", ["in order", "shuffled", "dealt"])
@given(
    blocks=BLOCKS,
    batch_size=st.integers(1, 8),
    seed=st.integers(-(2**40), 2**40),
    cuts=st.lists(st.integers(0, 1300), min_size=3, max_size=3).map(sorted),
)
@settings(max_examples=30, deadline=None)
def test_rows_are_a_function_of_the_position(kind, blocks, batch_size, seed, cuts):
    sampler, other = (make(kind, blocks, batch_size, seed) for _ in range(2))
    a, b, c = cuts
    whole = sampler.rows(0, c).tolist()
    # Another sampler, asked for the later part first: no state that could tell.
    assert other.rows(b, c).tolist() == whole[b:]
    assert other.rows(a, b).tolist() == whole[a:b]
    assert other.rows(0, c).dtype == np.int64


@pytest.mark.parametrize("kind", ["in order", "shuffled"])
@given(blocks=BLOCKS, batch_size=st.integers(1, 8), seed=st.integers(0, 2**40))
@settings(max_examples=30, deadline=None)
def test_every_row_once_an_epoch(kind, blocks, batch_size, seed):
    """In lanes, each in its own epoch."""
    num_rows, sampler = sum(blocks), make(kind, blocks, batch_size, seed)
    lanes = getattr(sampler, "_num_lanes", 1)
    by_lane = sampler.rows(0, 3 * batch_size * num_rows).reshape(-1, lanes, batch_size // lanes)
    for epoch in range(2):
        rows = []
        for lane in range(lanes):
            size = (lane + 1) * num_rows // lanes - lane * num_rows // lanes
            rows += by_lane[:, lane].ravel()[epoch * size : (epoch + 1) * size].tolist()
        assert sorted(rows) == list(range(num_rows))
        assert kind != "in order" or rows == sorted(rows)


@pytest.mark.parametrize("blocks", [[2000], [5] * 400])
def test_epochs_and_seeds_differ(blocks):
    orders = [make("shuffled", blocks, 4, seed).rows(e * 2000, e * 2000 + 2000)
              for seed, e in ((0, 0), (0, 1), (1, 0))]  # fmt: skip
    for one, other in itertools.combinations(orders, 2):
        assert sum(one == other) < 20
    if len(blocks) > 1:  # of the blocks, not only within them
        of_lane_1 = [set((rows[1::4] // 5).tolist()) for rows in orders]
        assert len(of_lane_1[0] & of_lane_1[1]) < 60


def test_a_shuffle_is_even():
    """Every row comes at every place about equally often: 50 of 550 draws, 6.7 the deviation."""
    counts = np.zeros([11, 11])
    for seed in range(11):
        rows = ShuffledSampler([4, 6, 1], batch_size=3, seed=seed).rows(0, 550).reshape(50, 11)
        assert len({tuple(epoch) for epoch in rows.tolist()}) == 50
        for epoch in rows:
            counts[range(11), epoch] += 1
    assert np.abs(counts - 50).max() < 5 * 6.7


def test_a_window_mixes_its_blocks():
    """Records of one block come far apart: 64 blocks are open at once, in all lanes together."""
    sampler = ShuffledSampler([100] * 640, batch_size=4, seed=3)
    blocks = sampler.rows(0, 6400).reshape(1600, 4)[:, 2] // 100  # the first window of a lane
    assert np.bincount(blocks)[blocks].tolist() == [100] * 1600
    for block in set(blocks.tolist()):
        places = np.flatnonzero(blocks == block)
        assert 600 < places.mean() < 1000
        assert places.min() < 200
        assert places.max() > 1400


def test_a_billion_records_are_planned_at_once():
    """What is read next, some terabytes into a run, is known in a moment."""
    sampler = ShuffledSampler(np.full(10**6, 1000), batch_size=64, seed=3)
    rows = sampler.rows(40 * 10**9, 40 * 10**9 + 64)
    assert len(set((rows // 1000).tolist())) == 64


# ---------------------------------------------------------------------------- batches

SIZES = (130, 7, 301, 250)  # records of files


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four to six records, and lanes of two blocks at least."""
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 200)
    monkeypatch.setattr(batches_module, "LEAST_BLOCKS_OF_A_LANE", 2)
    monkeypatch.setattr(batches_module, "OPEN_BLOCKS", 24)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 72)
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 40)


@pytest.fixture
def files(tmp_path, small_blocks) -> RecordFiles:
    """The numbers 0, 1, 2, ... through all files."""
    return open_numbers(tmp_path, *SIZES)


def shuffled(files: RecordFiles, batch_size: int, seed: int = 5) -> Batches:
    sampler = ShuffledSampler(files.block_records, batch_size=batch_size, seed=seed)
    return Batches(files, sampler, batch_size=batch_size)


def in_order(files: RecordFiles, batch_size: int, num_examples: int | None = None) -> Batches:
    sampler = SequentialSampler(len(files))
    return Batches(files, sampler, batch_size=batch_size, num_examples=num_examples)


def numbers_of(batches: Batches, count: int, **parts) -> list[list[int]]:
    found = batches.dataset(**parts).take(count).as_numpy_iterator()
    return [batch["input_ids"][:, 0].tolist() for batch in found]


def test_batches_follow_the_sampler(files, caplog):
    for sampler, batch_size in (
        (ShuffledSampler(files.block_records, batch_size=8, seed=5), 8),
        (SequentialSampler(688), 100),
    ):
        batches = Batches(files, sampler, batch_size=batch_size)
        assert (batches.num_records, batches.num_batches) == (688, None)
        found = list(itertools.chain.from_iterable(numbers_of(batches, 90)))
        assert found == sampler.rows(0, 90 * batch_size).tolist()
    assert batches.batch_rows(6).tolist() == [*range(600, 688), *range(12)]
    assert "retracing" not in caplog.text  # by the threads that read


@pytest.mark.parametrize("batch_size", [1, 12])
def test_the_same_for_any_replicas_and_hosts(files, batch_size):
    batches = shuffled(files, batch_size)
    whole = numbers_of(batches, 10, start=11)
    for num_parts in (n for n in (1, 2, 3, 6) if batch_size % n == 0):
        for hosts in (n for n in (1, 2, 3) if num_parts % n == 0):
            here = num_parts // hosts
            parts = {"start": 11, "num_parts": num_parts, "parts_here": here}
            by_host = [
                numbers_of(batches, 10 * here, **parts, first_part=host * here)
                for host in range(hosts)
            ]
            joined = [
                [n for rows in by_host for part in rows[t * here : (t + 1) * here] for n in part]
                for t in range(10)
            ]
            assert joined == whole


def test_from_any_step_on(files, monkeypatch):
    batches = shuffled(files, 6)
    whole = numbers_of(batches, 150)
    for start in (1, 114, 115, 140):
        assert numbers_of(batches, 10, start=start) == whole[start : start + 10]
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 1)
    assert numbers_of(shuffled(files, 6), 150) == whole


@pytest.mark.parametrize("size", [1, 5, 12, 30])
def test_another_batch_size_goes_on_with_the_rows_that_are_left(files, size):
    """From the order of batches of 12 in several lanes, after 20 of them."""
    order = ShuffledSampler(files.block_records, batch_size=12, seed=5)
    before = Batches(files, order, batch_size=12).rows(range(20)).ravel().tolist()
    after = Batches(files, order, batch_size=size, offset=20 * (12 - size))
    left = after.rows(range(20, 20 + 360 // size)).ravel().tolist()
    assert before + left == order.rows(0, 600).tolist()
    assert len({*before, *left}) == 600  # of 688; the last ones of an epoch differ by lane
    assert list(itertools.chain.from_iterable(numbers_of(after, 7, start=20))) == left[: 7 * size]


def test_shapes_and_types(tmp_path):
    features = small.examples(4)
    files = RecordFiles(small.write_records(tmp_path / "a", features), small.RECORD)
    (batch,) = in_order(files, 4).dataset().take(1).as_numpy_iterator()
    features["is_real_example"] = np.ones(4, np.float32)
    features["sequences"] = np.arange(4, dtype=np.int32)[:, None]
    assert batch.keys() == features.keys()
    for name, value in features.items():
        assert batch[name].dtype == value.dtype
        np.testing.assert_array_equal(batch[name], value)
    spec = in_order(files, 4).dataset(num_parts=2).element_spec
    assert spec["input_ids"] == tf.TensorSpec([2, small.S], tf.int32)
    assert spec["masked_lm_weights"] == tf.TensorSpec([2, small.P], tf.float32)
    assert spec["is_real_example"] == tf.TensorSpec([2], tf.float32)
    with pytest.raises(InputError, match="a batch size of 7 for 3 replicas"):
        in_order(files, 7).dataset(num_parts=3)


@pytest.mark.parametrize(("num_examples", "count"), [(650, 13), (800, 16), (3, 1)])
def test_a_short_last_batch_is_filled_up(files, num_examples, count):
    batches = in_order(files, 50, num_examples)
    assert batches.num_batches == count
    found = list(batches.dataset(num_parts=2, parts_here=2).as_numpy_iterator())
    real = np.concatenate([batch["is_real_example"] for batch in found])
    assert real.tolist() == [1] * num_examples + [0] * (50 * count - num_examples)
    numbers = np.concatenate([batch["input_ids"][:, 0] for batch in found])[real == 1]
    assert numbers.tolist() == [row % 688 for row in range(num_examples)]
    assert len(batches.batch_rows(count - 1)) == num_examples - 50 * (count - 1)
    host = [b["is_real_example"] for b in batches.dataset(num_parts=2, first_part=1)]
    assert np.concatenate(host).tolist() == real.reshape(count, 2, 25)[:, 1].ravel().tolist()


def test_each_host_reads_its_own_blocks(files):
    """Each once an epoch; and a resumed run no more than the blocks that were open."""
    batches = shuffled(files, 8)
    with mock.patch.object(files, "read_block", side_effect=files.read_block) as read:
        for host in range(2):
            read.reset_mock()
            numbers_of(batches, 4 * 86, num_parts=8, first_part=host * 4, parts_here=4)
            # Four lanes: half of the blocks, those at the ends of lanes, some of the next epoch.
            most = len(files.block_records) / 2 + 4 + 4 * 3 * 2
            assert len({call.args for call in read.call_args_list}) <= most
            assert read.call_count <= most + 8
        read.reset_mock()
        numbers_of(batches, 1, start=50)
        assert read.call_count <= 3 * 24  # those that are open, and those read beforehand


# ---------------------------------------------------------------------------- damage

OF_FILE, OF_RECORD = "damaged, cut off or changed", "record 202, "
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
    records = [framed(record) for record in unframed(path.read_bytes())]
    change, message = DAMAGE[kind]
    changed = change(records[201])
    assert len(changed) == len(records[201])
    path.write_bytes(b"".join([*records[:201], changed, *records[202:]]))
    found = []
    numbers = batches.dataset().map(lambda batch: batch["input_ids"][:, 0]).as_numpy_iterator()
    with pytest.raises(InputError, match=message) as caught, batches.record_errors():
        found.extend(rows.tolist() for rows in numbers)
    assert str(path) in caught.value.received
    assert found == whole[: len(found)]
    # Damage of the file shows where a record of its block comes, of the content where its own does.
    bad = next(t for t, rows in enumerate(whole) if 2**31 - 1 in rows)
    in_block = next(t for t, rows in enumerate(whole) if {*range(195, 208)} & {*rows})
    assert len(found) == bad if message == OF_RECORD else in_block <= len(found) <= bad


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
from bert_tf.data.batches import Batches, SequentialSampler
from bert_tf.data.shards import RecordFiles
batches = Batches(RecordFiles(sys.argv[2], NUMBER), SequentialSampler(50), batch_size=4)
print(sum(1 for _ in batches.dataset().take(100)))
"""


def test_on_one_processor(tmp_path):
    """The one thread of TensorFlow waits for the batches, whose reading must not need it."""
    path = write_numbers(tmp_path / "a.tfrecord", range(50))
    helpers = str(pathlib.Path(small.__file__).parent)
    command = [sys.executable, "-c", ON_ONE_PROCESSOR, helpers, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "100"
