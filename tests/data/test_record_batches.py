"""Batches: which record comes in which; by length nothing lost, nothing twice, least padding."""

import itertools

import numpy as np
import pytest
import small
import tensorflow as tf
from frames import framed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_records import NUMBER, PAIR_BYTES, open_numbers

from bert_tf.data.record_batches import RecordBatches, choose_lengths, real_lengths
from bert_tf.data.records import Feature, Record
from bert_tf.data.samplers import ByLengthSampler, SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError


def taken(dataset, number=None) -> list[dict]:
    return list((dataset if number is None else dataset.take(number)).as_numpy_iterator())


def numbers_of(batches: list[dict]) -> list[list[int]]:
    return [batch["input_ids"][:, 0].tolist() for batch in batches]


def test_batches_follow_the_order(tmp_path):
    files = open_numbers(tmp_path, 3, 4)
    batches = RecordBatches(files, SequentialSampler(7), batch_size=5)
    assert batches.num_batches is None
    assert batches.num_records == 7
    assert numbers_of(taken(batches.dataset(), 3)) == [
        [0, 1, 2, 3, 4],
        [5, 6, 0, 1, 2],
        [3, 4, 5, 6, 0],
    ]
    assert numbers_of(taken(batches.dataset(start=2), 1)) == [[3, 4, 5, 6, 0]]
    sampler = ShuffledSampler(7, seed=2)
    shuffled = RecordBatches(files, sampler, batch_size=5)
    epoch_and_more = np.concatenate(numbers_of(taken(shuffled.dataset(), 2))).tolist()
    assert epoch_and_more == sampler.rows(0, 10).tolist()
    assert sorted(epoch_and_more[:7]) == list(range(7))


def test_shapes_and_types(tmp_path):
    features = small.examples(4)
    files = RecordFiles(small.write_records(tmp_path / "a", features), small.RECORD)
    batches = RecordBatches(files, SequentialSampler(4), batch_size=4)
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
    batches = RecordBatches(files, SequentialSampler(7), batch_size=4, num_examples=num_examples)
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
    batches = RecordBatches(files, SequentialSampler(2), batch_size=7)
    with pytest.raises(InputError, match="a batch size of 7 for 3 replicas"):
        batches.dataset(num_parts=3)


@pytest.mark.parametrize(
    ("feature", "bad"), [("input_ids", 41), ("input_ids", -1), ("masked_lm_ids", 41)]
)
def test_an_id_without_a_row_in_the_table(tmp_path, feature, bad):
    features = small.examples(5)
    features[feature][3, 1] = bad
    files = RecordFiles(small.write_records(tmp_path / "a.tfrecord", features), small.RECORD)
    batches = RecordBatches(files, SequentialSampler(5), batch_size=2)
    assert len(taken(batches.dataset(), 1)) == 1
    with pytest.raises(tf.errors.OpError):
        taken(batches.dataset(), 2)
    assert isinstance(batches.error, InputError)
    assert batches.error.received == f"{files.where(3)}, with the {feature} {bad}"
    assert batches.error.expected == "numbers from 0 to 40, as the model's vocab_size is 41"


def test_a_damaged_record_ends_the_iteration_with_an_error(tmp_path):
    number = NUMBER.serialize({"input_ids": [1]})
    path = tmp_path / "mixed.tfrecord"
    path.write_bytes(framed(number) * 2 + framed(PAIR_BYTES))
    batches = RecordBatches(RecordFiles(str(path), NUMBER), SequentialSampler(3), batch_size=1)
    with pytest.raises(tf.errors.OpError):
        taken(batches.dataset(), 3)
    assert "mixed.tfrecord, record 3" in str(batches.error)


# ---------------------------------------------------------------------------- by length

ROWS = 23


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    return RecordFiles(small.write_records(path, small.examples(ROWS)), small.RECORD)


def test_real_lengths(files):
    assert real_lengths(files).tolist() == small.examples(ROWS)["input_mask"].sum(1).tolist()


def padded(lengths, chosen) -> int:
    """Positions in all, if each example is padded to the next of the chosen lengths."""
    return sum(min(c for c in chosen if c >= n) for n in lengths)


@given(
    st.lists(st.integers(1, 44), min_size=1, max_size=40),
    st.integers(44, 50),
    st.integers(1, 3),
    st.sampled_from([0, 20, 100]),
)
@settings(deadline=None)
def test_chosen_lengths_make_least_work(lengths, longest, count, cost):
    def work(chosen) -> int:
        used = {min(c for c in chosen if c >= n) for n in lengths}
        return padded(lengths, chosen) + cost * len(used)

    chosen = choose_lengths(np.array(lengths), longest=longest, count=count, cost=cost)
    assert len(chosen) <= count
    assert chosen[-1] == longest
    assert sorted(set(chosen)) == list(chosen)
    steps = list(range(8, longest, 8))
    best = min(
        work((*some, longest)) for k in range(count) for some in itertools.combinations(steps, k)
    )
    assert work(chosen) == best


def bucketed(files, **changes) -> RecordBatches:
    """Batches of 4, in order of length."""
    lengths = real_lengths(files)
    sampler = ByLengthSampler(
        SequentialSampler(ROWS), lengths, batch_size=4, window=99, ends=[ROWS], seed=None
    )
    settings = {"lengths": lengths, "padded_lengths": (3, 5, small.S), "num_examples": ROWS}
    return RecordBatches(files, sampler, batch_size=4, **(settings | changes))


def test_batches_are_cut_and_hold_every_example_once(files):
    batches = bucketed(files)
    examples, seen, lengths = small.examples(ROWS), [], []
    for number, batch in enumerate(batches.dataset()):
        rows = batches.batch_rows(number)
        real = int(batch["is_real_example"].numpy().sum())
        assert real == len(rows)
        length = batch["input_ids"].shape[1]
        lengths.append(length)
        longest = examples["input_mask"][rows].sum(1).max()
        assert length == min(n for n in (3, 5, small.S) if n >= longest)
        for name in ("input_ids", "segment_ids", "input_mask"):
            assert (batch[name].numpy()[:real] == examples[name][rows][:, :length]).all()
        assert batch["masked_lm_ids"].shape == (4, small.P)
        seen += rows.tolist()
    assert sorted(seen) == list(range(ROWS))
    assert len(set(lengths)) > 1


@pytest.mark.parametrize(("padded_lengths", "length"), [((3, 5, small.S), None), ((small.S,), 7)])
def test_one_length_is_known_before_a_batch_is_read(files, padded_lengths, length):
    """As a TPU needs it."""
    shapes = bucketed(files, padded_lengths=padded_lengths).dataset().element_spec
    assert small.S == 7
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert shapes[name].shape.as_list() == [4, length]
    assert shapes["masked_lm_ids"].shape.as_list() == [4, small.P]


def test_replicas_get_parts_of_one_length(files):
    whole = [batch["input_ids"].numpy() for batch in bucketed(files).dataset()]
    parts = [
        [b["input_ids"].numpy() for b in bucketed(files).dataset(num_parts=2, first_part=part)]
        for part in range(2)
    ]
    for all_rows, first, second in zip(whole, *parts, strict=True):
        assert (np.concatenate([first, second]) == all_rows).all()


def test_several_sequences_of_an_example(tmp_path):
    record = Record(
        "choice",
        (
            Feature("input_ids", small.RECORD.features[0].dtype, 10, "max_seq_length", sequences=2),
            Feature(
                "input_mask", small.RECORD.features[0].dtype, 10, "max_seq_length", sequences=2
            ),
        ),
    )
    ids = np.array([[[1, 2, 0, 0, 0], [3, 4, 5, 0, 0]], [[6, 0, 0, 0, 0], [7, 8, 0, 0, 0]]])
    features = {"input_ids": ids.reshape(2, 10), "input_mask": 1 * (ids > 0).reshape(2, 10)}
    files = RecordFiles(small.write_records(tmp_path / "c", features, record), record)
    assert real_lengths(files).tolist() == [3, 2]
    batches = RecordBatches(
        files,
        SequentialSampler(2),
        batch_size=1,
        lengths=real_lengths(files),
        padded_lengths=(2, 5),
        num_examples=2,
    )
    first, second = (batch["input_ids"].numpy() for batch in batches.dataset())
    assert first.tolist() == ids[:1].tolist()
    assert second.tolist() == ids[1:, :, :2].tolist()


def test_longer_records_than_expected(files):
    with pytest.raises(InputError, match="max_seq_length"):
        bucketed(files, padded_lengths=(2, 4))
