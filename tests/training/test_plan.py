"""The plan of a run: every record as often as the epochs say, however it is cut and resumed."""

import collections
import itertools
import math

import pytest
import small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.batches import Batches, ShuffledSampler
from bert_tf.data.packing import BatchingConfig
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.training.options import Intervals
from bert_tf.training.plan import RunPlan, steps_of_fit
from bert_tf.training.pretraining import training_batches

MOST = 40  # records


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[int, RecordFiles]:
    """Files of each number of records."""
    folder = tmp_path_factory.mktemp("records")
    found = {}
    for count in range(1, MOST + 1):
        path = small.write_records(folder / f"{count}", small.examples(count))
        found[count] = RecordFiles(path, small.RECORD)
    return found


def read_by(batches: Batches, steps: range) -> list[int]:
    """The rows that steps read, over all devices and hosts, whose parts are test_batches.py's."""
    return batches.rows(steps).ravel().tolist()


def counts_of(rows: list[int], num_records: int) -> list[int]:
    """How often each record was read."""
    counted = collections.Counter(rows)
    return [counted[row] for row in range(num_records)]


def assert_even(rows: list[int], num_records: int) -> None:
    """Every record was read once an epoch, so that none is more than one read ahead."""
    whole = len(rows) // num_records
    for epoch in range(whole):
        of_epoch = rows[epoch * num_records : (epoch + 1) * num_records]
        assert sorted(of_epoch) == [*range(num_records)]
    counts = counts_of(rows, num_records)
    assert {*counts} <= {whole, whole + 1}
    assert sum(counts) == len(rows)


def assert_even_as_dealt(rows: list[int], num_records: int, size: int, epochs: float) -> None:
    """The same of packed batches, whose rows change places to make them alike.

    Those of a batch at the border of two epochs may come later in the second one: a run that ends
    within it may lack fewer than a batch of them.
    """
    whole = len(rows) // num_records
    counts = counts_of(rows, num_records)
    late = counts.count(whole - 1)
    assert late < size
    assert epochs % 1 or not late
    assert {*counts} <= {whole - 1, whole, whole + 1}


PLANS = {
    "num_records": st.integers(1, MOST),
    "size": st.integers(1, 12),
    "epochs": st.one_of(st.integers(1, 4), st.floats(0.2, 4.0)),
    "seed": st.integers(0, 2**32),
}


@settings(max_examples=60, deadline=None)
@given(**PLANS, kills=st.lists(st.floats(0, 1), max_size=3), packs=st.booleans())
def test_fine_tuning_reads_every_record_as_often_as_the_epochs_say(
    files, num_records, size, epochs, seed, kills, packs
):
    """Killed at any step and resumed; packed or not; texts, tags and windows are records alike."""
    sizes = {"num_records": num_records, "num_counted": num_records, "batch_size": size}
    steps = int(num_records / size * epochs)
    if steps < 1:
        with pytest.raises(InputError, match="enough for one update"):
            RunPlan.of_epochs(**sizes, num_epochs=epochs, seed=seed)
        return
    plan = RunPlan.of_epochs(**sizes, num_epochs=epochs, seed=seed)
    assert plan.last_step == plan.num_train_steps == steps
    assert plan.times_read == steps * size / num_records
    config = BatchingConfig(max_seq_length=small.S, bucket_by_length=False)
    record = files[num_records]
    stops = sorted({0, *(int(steps * share) for share in kills), steps})
    rows = []
    for begin, end in itertools.pairwise(stops):  # each in a process of its own
        if packs:
            batches = config.training(
                record, batch_size=size, num_train_steps=steps, seed=plan.seed
            )
        else:
            batches = training_batches(record, plan)
        rows += read_by(batches, range(begin, end))
    assert len(rows) == plan.position(steps)
    if not packs:
        assert_even(rows, num_records)
    elif size <= num_records:
        assert_even_as_dealt(rows, num_records, size, epochs)


@settings(max_examples=60, deadline=None)
@given(
    num_records=PLANS["num_records"],
    seed=PLANS["seed"],
    parts=st.lists(st.tuples(st.integers(1, 17), st.integers(1, 6)), min_size=1, max_size=4),
)
def test_pre_training_is_exact_with_every_batch_size(files, num_records, seed, parts):
    """Resumed with another size each time, every record is read once an epoch."""
    record = files[num_records]
    rows: list[int] = []
    step = 0
    saved: dict = {}
    for size, steps in parts:
        plan = RunPlan(
            num_records=num_records,
            batch_size=size,
            num_train_steps=1000,
            last_step=step + steps,
            seed=seed,
        )
        if saved:
            plan = plan.resumed(step, saved)
        assert plan.position(step) == len(rows)
        batches = training_batches(record, plan)
        rows += read_by(batches, range(step, plan.last_step))
        step = plan.last_step
        saved = {"train_batch_size": plan.batch_size, **plan.settings()}
    order = ShuffledSampler(record.block_records, batch_size=parts[0][0], seed=seed)
    assert rows == order.rows(0, len(rows)).tolist()
    assert_even(rows, num_records)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    epochs=st.integers(1, 3),
    first=st.integers(0, 2),
    split=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
)
def test_fit_makes_the_steps_that_keras_makes(rows, batch_size, epochs, first, split):
    """As Keras splits: the first floor(rows * (1 - split)) rows are trained."""
    kept = [*range(rows)][: math.floor(rows * (1.0 - split))]
    made = sum(len(range(0, len(kept), batch_size)) for _ in range(first, epochs + first))
    options = {"batch_size": batch_size, "epochs": epochs + first, "initial_epoch": first}
    assert steps_of_fit(rows, validation_split=split, **options) == max(1, made)


def test_questions_are_counted_and_windows_read():
    """As in the original; the share that is trained is said at once."""
    sizes = {"num_counted": 41, "batch_size": 8, "seed": 5}
    plan = RunPlan.of_epochs(num_records=90, **sizes, num_epochs=2.0)
    assert plan.num_train_steps == 10
    said = "10 steps of 8 of 90 records train on each record 0.89 times: on 89% of them once, on "
    assert plan.describe() == f"{said}the rest never."


def test_what_is_due_when():
    intervals = Intervals(
        iterations_per_loop=5, log_steps=4, save_checkpoints_steps=6, eval_steps=3
    )
    plan = RunPlan(
        num_records=7, batch_size=2, num_train_steps=13, last_step=13, seed=5, intervals=intervals
    )
    assert [*plan.stops(1)] == [3, 4, 6, 8, 9, 12, 13]
    assert [step for step in range(14) if plan.is_to_log(step)] == [0, 4, 8, 12, 13]
    assert [step for step in range(14) if plan.is_to_save(step)] == [0, 6, 12, 13]
    assert [step for step in range(14) if plan.is_to_evaluate(step)] == [0, 3, 6, 9, 12]
