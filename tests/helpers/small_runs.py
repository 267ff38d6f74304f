"""A small pre-training run in a folder, for tests of the training loop."""

import dataclasses

import numpy as np
import small
import small_heads
import tensorflow as tf

from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import Intervals
from bert_tf.training.trainer import Trainer

DROPPING = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
STILL = dataclasses.replace(DROPPING, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
assert DROPPING.hidden_dropout_prob > 0
STEPS, BATCH, RECORDS = 6, 4, 11  # more than two epochs
SCHEDULE = Schedule(learning_rate=1e-2, num_train_steps=STEPS, num_warmup_steps=2)
EVERY_STEP = Intervals(iterations_per_loop=1, log_steps=2, save_checkpoints_steps=2)


def write_files(folder, features=None, *, rows: int = RECORDS) -> RecordFiles:
    """The records of a run."""
    features = small.examples(rows) if features is None else features
    return RecordFiles(small.write_records(folder / "a.tfrecord", features), small.RECORD)


def endless(files: RecordFiles) -> Batches:
    """Shuffled batches for training."""
    order = ShuffledSampler(files.block_records, batch_size=BATCH, seed=5)
    return Batches(files, order, batch_size=BATCH)


def in_order(
    files: RecordFiles,
    *,
    batch_size: int = BATCH,
    num_examples: int | None = None,
    order: SequentialSampler | None = None,
) -> Batches:
    """Batches for evaluation; endless without `num_examples`."""
    order = order or SequentialSampler(len(files))
    return Batches(files, order, batch_size=batch_size, num_examples=num_examples)


def make_trainer(config=DROPPING, strategy=None, **options) -> Trainer:
    """A trainer of `SCHEDULE`; `options` as for `small_heads.make_trainer`."""
    options = {"optimizer": AdamWeightDecay(SCHEDULE), "xla": False} | options
    return small_heads.make_trainer("pretraining", config, strategy=strategy, **options)


def train(trainer: Trainer, batches, folder, **changes) -> dict[int, dict]:
    """Trains; returns the mean losses since the last stop, by step.

    Args:
      trainer: with the first weights.
      batches: to train on.
      folder: a path or a `CheckpointFolder`.
      **changes: of the arguments of `Trainer.train`.
    """
    losses = {}
    on_stop = changes.pop("on_stop", lambda step, means: None)

    def note(step, means):
        losses[step] = means
        on_stop(step, means)

    folder = folder if isinstance(folder, CheckpointFolder) else CheckpointFolder(folder)
    given = {"num_train_steps": STEPS, "intervals": EVERY_STEP, "run_settings": {"seed": 3}}
    trainer.train(batches, folder=folder, on_stop=note, **given | changes)
    return losses


def tensors_of(folder, step: int) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}")
    names = reader.get_variable_to_shape_map()
    return {name: np.asarray(reader.get_tensor(name)) for name in names}


def assert_same(one, other, step: int) -> None:
    """Two folders have the same checkpoint of a step, bit for bit."""
    ours, theirs = tensors_of(one, step), tensors_of(other, step)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, name)


def assert_close(one, other, step: int) -> None:
    """Their weights and moments differ by rounding only."""
    ours, theirs = tensors_of(one, step), tensors_of(other, step)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if value.dtype == np.float32:
            assert np.abs(ours[name] - value).max() < 1e-6, name


def spoil(trainer: Trainer) -> None:
    """Makes every weight and moment wrong, so that what is right can only come from a file."""
    steps = trainer.steps
    for variable in (steps.weights | steps.frozen | steps.slots).values():
        variable.assign(tf.ones_like(variable) * 7)
