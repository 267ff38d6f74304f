"""Rows by length: nothing lost, nothing twice, neighbours alike, the least padding."""

import itertools
from unittest import mock

import numpy as np
import pytest
import small
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data import batches as batches_module
from bert_tf.data import by_length
from bert_tf.data import records as record_files
from bert_tf.data.batches import ShuffledSampler
from bert_tf.data.by_length import (
    BatchingConfig,
    BufferedShuffleSampler,
    ByLengthSampler,
    choose_lengths,
    order_by_length,
    real_lengths,
)
from bert_tf.data.grouping import batches_by_length, padded_length
from bert_tf.data.records import Feature, Record
from bert_tf.data.shards import RecordFiles

ROWS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=40)


def test_up_and_down_by_hand():
    lengths, groups = [5, 1, 3, 5, 1, 3, 4], [0, 0, 0, 1, 1, 1, 2]
    assert order_by_length(lengths, groups).tolist() == [1, 2, 0, 3, 5, 4, 6]
    assert [padded_length(n, (4, 8)) for n in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]


@given(ROWS, st.integers(1, 7), st.integers(5, 30))
def test_batches_by_length(rows, batch_size, most):
    lengths, groups = [length for length, _ in rows], [group for _, group in rows]
    found = list(batches_by_length(lengths, batch_size=batch_size, groups=groups, most=most))
    order = list(itertools.chain.from_iterable(found))
    assert order == order_by_length(lengths, groups).tolist()
    assert sorted(order) == list(range(len(rows)))
    for batch in found:
        assert 1 <= len(batch) <= batch_size
        assert len({groups[row] for row in batch}) == 1
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= most
    for one, after in itertools.pairwise(found):  # no batch could have had one row more
        longest = max(lengths[row] for row in [*one, after[0]])
        fits = len(one) < batch_size and (len(one) + 1) * longest <= most
        assert not fits or groups[one[0]] != groups[after[0]]


@given(
    st.lists(st.integers(1, 44), min_size=1, max_size=40),
    st.integers(44, 50),
    st.integers(1, 3),
    st.sampled_from([0, 20, 100]),
)
@settings(deadline=None)
def test_chosen_lengths_make_least_work(lengths, most, count, cost):
    def work(chosen) -> int:
        padded = [padded_length(n, chosen) for n in lengths]
        return sum(padded) + cost * len(set(padded))

    chosen = choose_lengths(np.array(lengths), most=most, count=count, cost=cost)
    steps = [*range(8, most, 8), most]
    last = padded_length(max(lengths), steps)
    assert len(chosen) <= count
    assert list(chosen) == sorted({*chosen, last})
    assert work(chosen) == min(
        work((*some, last))
        for number in range(count)
        for some in itertools.combinations(steps[: steps.index(last)], number)
    )


# ---------------------------------------------------------------------------- samplers


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(np.array),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 4),
    seed=st.integers(-3, 3),
)
@settings(deadline=None)
def test_windows_of_an_epoch(lengths, batch_size, window, seed):
    """Each has the rows of the other sampler, alike ones side by side, and ends with the epoch."""
    num_rows = len(lengths)
    under = ShuffledSampler([num_rows], batch_size=batch_size, seed=5)
    sampler = ByLengthSampler(under, lengths, batch_size=batch_size, window=window, seed=seed)
    starts = {epoch * num_rows // batch_size for epoch in range(5)}
    begin = 0
    while begin < max(starts):
        end = min([begin + window, *(start for start in starts if start > begin)])
        positions = begin * batch_size, end * batch_size
        mine, theirs = sampler.rows(*positions), under.rows(*positions)
        assert sorted(mine) == sorted(theirs)
        if positions[0] // num_rows == (positions[1] - 1) // num_rows:  # of one epoch
            of_batches = sorted(lengths[mine].reshape(-1, batch_size).tolist(), key=sorted)
            for one, other in itertools.pairwise(of_batches):
                assert max(one) <= min(other)
        begin = end


@given(num_rows=st.integers(1, 13), buffer=st.integers(1, 9), seed=st.integers(-3, 2**40))
def test_a_buffer_is_filled_from_the_files_and_left_at_random(num_rows, buffer, seed):
    held = [position % num_rows for position in range(buffer)]
    rows = BufferedShuffleSampler(num_rows, seed=seed, buffer=buffer).rows(0, 60)
    for position, row in enumerate(rows.tolist()):
        held.remove(row)  # it was in the buffer
        held.append((buffer + position) % num_rows)


# ---------------------------------------------------------------------------- batches

COUNT = 23


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> RecordFiles:
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    return RecordFiles(small.write_records(path, small.examples(COUNT)), small.RECORD)


@pytest.mark.parametrize("rows_at_once", [1, 1000])
@pytest.mark.parametrize("kind", ["once", "training"])
def test_batches_are_cut_and_hold_every_example_once(examples, monkeypatch, rows_at_once, kind):
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(by_length, "MULTIPLE", 2)
    monkeypatch.setattr(by_length, "COMPILATION", 1)
    config, values = BatchingConfig(max_seq_length=small.S), small.examples(COUNT)
    if kind == "once":
        batches = config.once(examples, batch_size=4)
    else:
        batches = config.training(examples, batch_size=4, num_train_steps=COUNT, seed=7)
    lengths, rows = [], []
    whole = list(batches.dataset().as_numpy_iterator())
    for number, batch in enumerate(whole):
        rows.append(batches.batch_rows(number))
        real = int(batch["is_real_example"].sum())
        assert real == len(rows[-1])
        lengths.append(batch["input_ids"].shape[1])
        longest = values["input_mask"][rows[-1]].sum(1).max()
        assert longest <= lengths[-1] < longest + 2 or lengths[-1] == max(lengths)
        for name in ("input_ids", "segment_ids", "input_mask"):
            assert (batch[name][:real] == values[name][rows[-1]][:, : lengths[-1]]).all()
        assert batch["masked_lm_ids"].shape == (4, small.P)
    times = {"once": 1, "training": 4}[kind]
    assert np.bincount(np.concatenate(rows)).tolist() == [times] * COUNT
    assert len(set(lengths)) > 1
    parts = [batches.dataset(num_parts=2, first_part=p).as_numpy_iterator() for p in range(2)]
    for batch, first, second in zip(whole, *parts, strict=True):  # of one length
        for name, value in batch.items():
            np.testing.assert_array_equal(np.concatenate([first[name], second[name]]), value)


def test_without_buckets_the_length_is_known_before_a_batch_is_read(examples):
    """As a TPU needs it."""
    config = BatchingConfig(max_seq_length=small.S, bucket_by_length=False)
    batches = config.once(examples, batch_size=4)
    assert batches.dataset().element_spec["input_ids"] == tf.TensorSpec([4, small.S], tf.int32)
    assert batches.batch_rows(1).tolist() == [4, 5, 6, 7]


def test_several_sequences_of_an_example(tmp_path, monkeypatch):
    monkeypatch.setattr(by_length, "MULTIPLE", 1)
    monkeypatch.setattr(by_length, "COMPILATION", 0)
    sizes = {"size": 10, "size_flag": "max_seq_length", "sequences": 2}
    names = ("input_ids", "input_mask")
    record = Record("choice", tuple(Feature(name, tf.int64, **sizes) for name in names))
    ids = np.array([[[1, 2, 0, 0, 0], [3, 4, 5, 0, 0]], [[6, 0, 0, 0, 0], [7, 8, 0, 0, 0]]])
    features = {"input_ids": ids.reshape(2, 10), "input_mask": 1 * (ids > 0).reshape(2, 10)}
    files = RecordFiles(small.write_records(tmp_path / "c", features, record), record)
    assert real_lengths(files).tolist() == [3, 2]
    for bucket, cuts in ((True, [(1, 2), (0, 3)]), (False, [(0, 5), (1, 5)])):
        config = BatchingConfig(max_seq_length=5, bucket_by_length=bucket)
        found = config.once(files, batch_size=1).dataset().as_numpy_iterator()
        for batch, (row, length) in zip(found, cuts, strict=True):
            assert batch["input_ids"].tolist() == ids[row : row + 1, :, :length].tolist()


def test_an_evaluation_of_many_blocks_reads_each_once(tmp_path, monkeypatch):
    """Sorted only as far as the blocks that are kept."""
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 200)
    monkeypatch.setattr(by_length, "OPEN_BLOCKS", 3)
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(batches_module, "KEPT_BLOCKS", 12)
    files = RecordFiles(small.write_records(tmp_path / "a", small.examples(60)), small.RECORD)
    assert len(files.block_records) > 20
    batches = BatchingConfig(max_seq_length=small.S).once(files, batch_size=4)
    rows = np.concatenate([batches.batch_rows(number) for number in range(batches.num_batches)])
    assert sorted(rows) == list(range(60))
    with mock.patch.object(files, "read_block", side_effect=files.read_block) as read:
        assert len(list(batches.dataset())) == batches.num_batches
    assert read.call_count < 1.2 * len(files.block_records)
