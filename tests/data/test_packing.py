"""Batches of fine-tuning: every row once, batches alike, tokens in rows; texts by length."""

import itertools
from unittest import mock

import numpy as np
import pytest
import small
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data import SEQUENCES, packing
from bert_tf.data import batches as batches_module
from bert_tf.data import records as record_files
from bert_tf.data.batches import ShuffledSampler
from bert_tf.data.grouping import batches_by_length, order_by_length, padded_length
from bert_tf.data.packing import (
    BatchingConfig,
    DealtSampler,
    Packing,
    deal,
    real_lengths,
)
from bert_tf.data.records import Feature, Record, fill_rows
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


# ---------------------------------------------------------------------------- samplers


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40).map(np.array),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 4),
)
@settings(deadline=None)
def test_windows_of_an_epoch(lengths, batch_size, window):
    """Each has the rows of the other sampler, its batches are alike, and it ends with the epoch."""
    num_rows = len(lengths)
    under = ShuffledSampler([num_rows], batch_size=batch_size, seed=5)
    sampler = DealtSampler(under, lengths, batch_size=batch_size, window=window)
    starts = {epoch * num_rows // batch_size for epoch in range(5)}
    begin = 0
    while begin < max(starts):
        end = min([begin + window, *(start for start in starts if start > begin)])
        positions = begin * batch_size, end * batch_size
        mine, theirs = sampler.rows(*positions), under.rows(*positions)
        assert sorted(mine) == sorted(theirs)
        sums = lengths[mine].reshape(-1, batch_size).sum(axis=1)
        assert np.ptp(sums) <= np.ptp(lengths[mine])
        begin = end


def test_dealt_by_hand():
    """The longest one each, then the next to the batch with least; long and short ones in turn."""
    assert deal(np.array([7, 2, 3, 6, 8, 2, 3, 5]), 2).tolist() == [[4, 2, 7, 1], [0, 6, 3, 5]]


# ---------------------------------------------------------------------------- batches

COUNT = 23


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> RecordFiles:
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    return RecordFiles(small.write_records(path, small.examples(COUNT)), small.RECORD)


def unpacked(batch: dict, name: str, length: int = small.S) -> dict[int, list[int]]:
    """The numbers of each sequence of a packed batch, by its number in the global batch."""
    found = {}
    for row, sequences in enumerate(batch[SEQUENCES].tolist()):
        for place, sequence in enumerate(sequences):
            tokens = batch[name][row][batch["input_mask"][row] == place + 1]
            assert (sequence >= 0) == (len(tokens) > 0)
            if sequence >= 0:
                found[sequence] = tokens.tolist()
    assert not batch["input_ids"][batch["input_mask"] == 0].any()
    return found


@pytest.mark.parametrize("rows_at_once", [1, 1000])
@pytest.mark.parametrize("kind", ["once", "training"])
@pytest.mark.parametrize("one_shape", [False, True])
def test_batches_hold_every_example_once(examples, monkeypatch, rows_at_once, kind, one_shape):
    """All of its tokens, and its label beside them; for each of two replicas its own."""
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(packing, "COMPILATION", 1)
    values = small.examples(COUNT)
    config, rows = BatchingConfig(max_seq_length=small.S), {"parts": 2, "one_shape": one_shape}
    if kind == "once":
        batches = config.once(examples, batch_size=4, **rows)
    else:
        batches = config.training(examples, batch_size=4, num_train_steps=COUNT, seed=7, **rows)
    rows, shapes = [], set()
    datasets = [batches.dataset(num_parts=2, first_part=part) for part in range(2)]
    parts = zip(*(dataset.as_numpy_iterator() for dataset in datasets), strict=True)
    for number, replicas in enumerate(parts):
        rows.append(batches.batch_rows(number))
        assert sum(part["is_real_example"].sum() for part in replicas) == len(rows[-1])
        for name in ("input_ids", "segment_ids", "next_sentence_labels"):
            found = {}
            for first, part in zip((0, 2), replicas, strict=True):
                if name == "next_sentence_labels":
                    flat = zip(part[SEQUENCES].ravel(), part[name].ravel(), strict=True)
                    own = {sequence: [label] for sequence, label in flat if sequence >= 0}
                else:
                    own = unpacked(part, name)
                assert {*own} <= {first, first + 1}
                assert part["is_real_example"].ravel().tolist() == [
                    float(sequence >= 0) for sequence in part[SEQUENCES].ravel()
                ]
                found |= own
            for place, row in enumerate(rows[-1]):
                length = values["input_mask"][row].sum() if name != "next_sentence_labels" else 1
                assert found[place] == values[name][row][:length].tolist()
        shapes |= {part["input_ids"].shape for part in replicas}
    times = {"once": 1, "training": 4}[kind]
    assert np.bincount(np.concatenate(rows)).tolist() == [times] * COUNT
    assert len(shapes) <= (1 if one_shape else 2)
    spec = datasets[0].element_spec["input_ids"].shape
    assert spec.is_fully_defined() == (len(batches.packing.shapes) == 1)


def test_the_same_examples_without_packing(examples):
    one, other = (
        BatchingConfig(max_seq_length=small.S, bucket_by_length=bucket).training(
            examples, batch_size=4, num_train_steps=9, seed=7
        )
        for bucket in (True, False)
    )
    assert (one.rows(range(9)) == other.rows(range(9))).all()


@given(st.lists(st.integers(1, 9), min_size=4, max_size=60), st.integers(1, 2))
@settings(deadline=None)
def test_every_batch_has_one_of_two_shapes(lengths, parts):
    """They hold all tokens, and rows are no wider than two sequences."""
    batches = np.arange(len(lengths) // 4 * 4).reshape(-1, 4)
    rows = Packing(np.array(lengths)[:, np.newaxis], 9, batches, parts=parts)
    assert max(lengths) <= rows.width <= 20
    for batch in batches:
        filled = rows.fill(batch)
        assert filled.shape[1] in rows.shapes
        assert sorted(filled[filled >= 0]) == [*range(4)]
        needed = 0
        for of_part, members in zip(filled, batch.reshape(parts, -1), strict=True):
            sizes = np.array([lengths[one] for one in members])
            for row in of_part:
                assert sum(lengths[batch[place]] for place in row if place >= 0) <= rows.width
            most = rows.num_sequences
            needed = max(needed, len(fill_rows(sizes, rows.width, most_sequences=most)))
        assert filled.shape[1] == min(n for n in rows.shapes if n >= needed)


def test_without_buckets_the_length_is_known_before_a_batch_is_read(examples):
    """As a TPU needs it."""
    config = BatchingConfig(max_seq_length=small.S, bucket_by_length=False)
    batches = config.once(examples, batch_size=4)
    assert batches.dataset().element_spec["input_ids"] == tf.TensorSpec([4, small.S], tf.int32)
    assert batches.batch_rows(1).tolist() == [4, 5, 6, 7]


def test_several_sequences_of_an_example(tmp_path):
    sizes = {"size": 10, "size_flag": "max_seq_length", "sequences": 2}
    names = ("input_ids", "input_mask")
    record = Record("choice", tuple(Feature(name, tf.int64, **sizes) for name in names))
    ids = np.array([[[1, 2, 0, 0, 0], [3, 4, 5, 0, 0]], [[6, 0, 0, 0, 0], [7, 8, 0, 0, 0]]])
    features = {"input_ids": ids.reshape(2, 10), "input_mask": 1 * (ids > 0).reshape(2, 10)}
    files = RecordFiles(small.write_records(tmp_path / "c", features, record), record)
    assert real_lengths(files).tolist() == [[2, 3], [1, 2]]
    for bucket in (True, False):
        config = BatchingConfig(max_seq_length=5, bucket_by_length=bucket)
        (batch,) = config.once(files, batch_size=2).dataset().as_numpy_iterator()
        if bucket:  # the choices of an example follow each other
            found = unpacked(batch, "input_ids")
            assert [found[n] for n in range(4)] in ([[1, 2], [3, 4, 5], [6], [7, 8]],
                                                    [[6], [7, 8], [1, 2], [3, 4, 5]])  # fmt: skip
        else:
            assert batch["input_ids"].tolist() == ids.tolist()
            assert batch[SEQUENCES].tolist() == [[0, 1], [2, 3]]


def test_an_evaluation_of_many_blocks_reads_each_once(tmp_path, monkeypatch):
    """Sorted only as far as the blocks that are kept."""
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 200)
    monkeypatch.setattr(packing, "OPEN_BLOCKS", 3)
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
