"""What fine-tuning takes from its flags: warm-up, optimizer, the order of the examples."""

import dataclasses
import json
import math

import numpy as np
import pytest

from bert_tf.checkpoints import tf1
from bert_tf.data.by_length import BatchingConfig
from bert_tf.data.shards import RecordFiles, write_records
from bert_tf.errors import InputError
from bert_tf.tasks.features import classifier_record
from bert_tf.tasks.run import make_optimizer, refuse_other_settings
from bert_tf.training.optimization import AdamWeightDecay, Lamb
from bert_tf.training.settings import FineTuningSchedule

S, ROWS = 5, 307


def test_steps_and_warm_up_of_mrpc():
    """As the original has them: int(3668 / 32 * 3.0), int(343 * 0.1)."""
    schedule = FineTuningSchedule()
    assert schedule.num_train_steps(3668) == 343
    found = make_optimizer(schedule, 343).schedule
    assert (found.num_train_steps, found.num_warmup_steps) == (343, 34)
    assert (found.learning_rate, found.end_learning_rate) == (5e-5, 0.0)


def test_what_the_optimizer_is_given():
    schedule = FineTuningSchedule(
        learning_rate=3e-4, end_learning_rate=1e-6, warmup_proportion=0.25, layerwise_lr_decay=0.75
    )
    corrected = dataclasses.replace(schedule, optimizer="lamb", bias_correction=True)
    plain, lamb = make_optimizer(schedule, 10), make_optimizer(corrected, 10)
    assert (type(plain), plain.bias_correction) == (AdamWeightDecay, False)
    assert (type(lamb), lamb.bias_correction) == (Lamb, True)
    assert plain.layerwise_lr_decay == lamb.layerwise_lr_decay == 0.75
    assert plain.schedule == lamb.schedule
    found = plain.schedule
    assert (found.learning_rate, found.end_learning_rate, found.num_warmup_steps) == (3e-4, 1e-6, 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> RecordFiles:
    """Records of one to five pieces."""
    record = classifier_record(max_seq_length=S, head="classification", num_labels=2, num_choices=1)
    path = str(tmp_path_factory.mktemp("records") / "train.tf_record")

    def row(number: int) -> dict:
        ones = [1] * (1 + number % S) + [0] * (S - 1 - number % S)
        return {
            "input_ids": ones,
            "input_mask": ones,
            "segment_ids": [0] * S,
            "label_ids": [0],
            "is_real_example": [1],
        }

    write_records(path, record, map(row, range(ROWS)))
    return RecordFiles(path, record)


def rows_of(files, epochs=2, **options) -> np.ndarray:
    """Which records so many epochs of training take, in order."""
    batching = BatchingConfig(max_seq_length=S, **options)
    steps = epochs * ROWS  # of one example
    batches = batching.training(files, batch_size=1, num_train_steps=steps, seed=3)
    return np.concatenate([batches.batch_rows(number) for number in range(steps)])


def test_the_originals_shuffle(files):
    """No record comes more than a hundred places early, as from the original's buffer."""
    rows = rows_of(files, bucket_by_length=False, legacy_shuffle=True)
    places = np.arange(len(rows))
    for epoch in range(2):
        assert sorted(rows[epoch * ROWS :][:ROWS]) != list(rows[epoch * ROWS :][:ROWS])
    early = rows[:ROWS] - places[:ROWS]
    assert 80 < early.max() < 100


def test_a_complete_shuffle(files):
    rows = rows_of(files, bucket_by_length=False)
    assert sorted(rows[:ROWS]) == sorted(rows[ROWS:]) == list(range(ROWS))
    assert (rows[:ROWS] - np.arange(ROWS)).max() > 200
    assert (rows[:ROWS] != rows[ROWS:]).any()


def test_a_batch_has_no_record_twice(files):
    """Though the three copies that three epochs have of it are of one length."""
    batching = BatchingConfig(max_seq_length=S)
    batches = batching.training(files, batch_size=8, num_train_steps=3 * ROWS // 8, seed=3)
    rows = [batches.batch_rows(number) for number in range(3 * ROWS // 8)]
    assert sum(len(set(one)) < len(one) for one in rows) <= 2  # where two epochs meet


def test_buckets_or_not(files):
    """In training: batches of alike lengths, or of the full length."""
    for bucket in (True, False):
        batching = BatchingConfig(max_seq_length=S, bucket_by_length=bucket)
        batches = batching.training(files, batch_size=4, num_train_steps=50, seed=3)
        spread = [np.ptp(batches.batch_rows(number) % S) for number in range(50)]
        assert (max(spread) <= 1) == bucket


def train_on(folder, files, *, stop: int, steps: int, batch_size: int, **options) -> list[int]:
    """The records of a run up to step `stop` of `steps`, from the folder's checkpoint on."""
    settings = {"num_train_steps": steps, "num_train_epochs": steps * batch_size / ROWS}
    refuse_other_settings(folder, settings)
    batches = BatchingConfig(max_seq_length=S, **options).training(
        files,
        batch_size=batch_size,
        num_train_steps=steps,
        seed=3,
    )
    begin = tf1.step_of(folder.latest() or "")
    rows = [row for number in range(begin, stop) for row in batches.batch_rows(number).tolist()]
    folder.save(stop, {tf1.RUN_SETTINGS: json.dumps(settings)})
    return rows


STOPS = (  # of runs of 307 records in batches of 4: the step at which a process stops, and its end
    ((76, 76), (153, 153)),
    ((76, 76), (153, 153), (230, 230)),
    ((76, 76), (100, 153), (131, 153), (153, 153), (190, 230), (230, 230)),  # killed
    ((60, 76), (153, 153)),  # stopped early, and given more
    ((60, 153), (76, 76), (80, 153), (153, 153)),  # given less, and more again
)


@pytest.mark.parametrize("stops", STOPS)
@pytest.mark.parametrize("bucket", [True, False])
def test_a_run_that_is_trained_further_takes_every_record_once_an_epoch(
    tmp_path, files, stops, bucket
):
    folder, rows = tf1.CheckpointFolder(str(tmp_path)), []
    for stop, steps in stops:
        rows += train_on(
            folder, files, stop=stop, steps=steps, batch_size=4, bucket_by_length=bucket
        )
    assert len(rows) == stops[-1][0] * 4
    times = np.bincount(rows, minlength=ROWS)
    epochs = len(rows) / ROWS
    assert (times.min(), times.max()) == (math.floor(epochs), math.ceil(epochs))


def test_a_run_may_be_trained_longer(tmp_path):
    """With other settings only before its end; then it is not what they make."""
    notes = {"seed": 3, "num_train_epochs": 3.0, "num_train_steps": 6}
    folder = tf1.CheckpointFolder(tmp_path)
    refuse_other_settings(folder, {"seed": 4})
    folder.save(5, {tf1.RUN_SETTINGS: json.dumps(notes)})
    refuse_other_settings(folder, notes | {"seed": 4})
    folder.save(6, {tf1.RUN_SETTINGS: json.dumps(notes)})
    refuse_other_settings(
        folder, notes | {"num_train_epochs": 4.0, "num_train_steps": 8, "early_stopping": 2}
    )
    with pytest.raises(InputError, match="other settings: seed 4"):
        refuse_other_settings(folder, notes | {"seed": 4, "num_train_steps": 12})
