"""Length buckets: nothing lost, nothing twice, least padding, the same for any start and parts."""

import itertools

import numpy as np
import pytest
import small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.batches import BucketedBatches, choose_lengths, real_lengths
from bert_tf.data.records import Feature, Record
from bert_tf.data.samplers import ByLengthSampler, SequentialSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

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


def bucketed(files, **changes) -> BucketedBatches:
    """Batches of 4, in order of length."""
    lengths = real_lengths(files)
    order = ByLengthSampler(
        SequentialSampler(ROWS), lengths, batch_size=4, window=99, num_examples=ROWS, seed=None
    )
    settings = {"lengths": lengths, "padded_lengths": (3, 5, small.S), "num_examples": ROWS}
    return BucketedBatches(files, order, batch_size=4, vocab_size=41, **(settings | changes))


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
    batches = BucketedBatches(
        files,
        SequentialSampler(2),
        batch_size=1,
        vocab_size=9,
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
