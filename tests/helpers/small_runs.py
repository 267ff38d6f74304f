"""Small training runs: every head over one batch, and pre-training in a folder."""

import dataclasses
import functools
import unittest.mock
from collections.abc import Callable, Sequence

import numpy as np
import small
import tensorflow as tf

from bert_tf import BertConfig, BertModel, heads
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data import SEQUENCES
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.packing import Packing, most_sequences
from bert_tf.data.records import input_features
from bert_tf.data.shards import RecordFiles
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.options import Intervals, StepConfig
from bert_tf.training.plan import RunPlan
from bert_tf.training.trainer import Trainer

DROPPING = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
STILL = dataclasses.replace(DROPPING, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
assert DROPPING.hidden_dropout_prob > 0
STEPS = 6  # more than two epochs of batches of 4 of 11 records
BATCH = 4
RECORDS = 11
SCHEDULE = Schedule(learning_rate=1e-2, num_train_steps=STEPS, num_warmup_steps=2)
EVERY_STEP = Intervals(iterations_per_loop=1, log_steps=2, save_checkpoints_steps=2)

# ---------------------------------------------------------------------------- every head

HEADS = tuple(name for name in heads.NAMES if name not in ("fill_mask", "embeddings"))
CLASSES = 3
CHOICES = 2
# A learning rate as for BERT: it multiplies the rounding errors of gradients near 0.
LOW_RATES = Schedule(learning_rate=1e-4, num_train_steps=9)


def make_trainer(
    config: BertConfig = DROPPING,
    strategy=None,
    *,
    head: str = "pretraining",
    optimizer: AdamWeightDecay | None = None,
    seed: int = 3,
    freeze: Sequence[str] = (),
    objective: heads.Head | None = None,
    xla: bool = False,
    pack: bool = False,
    model: Callable[[], BertModel] | None = None,
    **step_config,
) -> Trainer:
    """A trainer, with `SCHEDULE` by default.

    Args:
      config: the configuration of the model.
      strategy: the strategy of tf.distribute; None: one device.
      head: the name of the head.
      optimizer: the optimizer; None: AdamW with `SCHEDULE`.
      seed: the seed of the weights and of dropout.
      freeze: as in `Trainer`.
      objective: the head whose losses are used; None: that of the model.
      xla: whether XLA compiles the steps.
      pack: whether the model takes packed batches.
      model: makes the model; None: the model of the head.
      **step_config: further fields of `StepConfig`.
    """
    sizes = {"num_classes": CLASSES, "num_choices": CHOICES}
    options = {"with_losses": True} if head == "pretraining" else sizes
    if pack:
        options["num_sequences"] = most_sequences(small.S, choices_of(head))

    def of_head() -> BertModel:
        return heads.head_named(head).model(config, **options)

    return Trainer(
        model or of_head,
        objective or heads.head_named(head),
        optimizer or AdamWeightDecay(SCHEDULE),
        strategy=strategy or distribution.make_strategy("one"),
        seed=seed,
        freeze=freeze,
        step_config=StepConfig(xla=xla, **step_config),
    )


def choices_of(head: str) -> int:
    """C: how many sequences an example of the head has."""
    return CHOICES if head == "multiple_choice" else 1


def make_batch(head: str, rows: int, *, seed: int = 1) -> dict[str, np.ndarray]:
    """A batch of the head; the last row but one is not a real example."""
    rng = np.random.default_rng(seed)
    choices = choices_of(head)
    batch = small.examples(rows * choices, seed=seed)
    if head != "pretraining":
        inputs = ("input_ids", "input_mask", "segment_ids")
        shape = (rows, *[choices] * (choices > 1), small.S)
        batch = {name: batch[name].reshape(shape) for name in inputs}
        for feature in heads.head_named(head).label_features(small.S, CLASSES, CHOICES):
            least = int(max(feature.least, -1))
            most = int(min(feature.most, small.S - 1))
            values = rng.integers(least, most + 1, (rows, feature.size))
            batch[feature.name] = values.astype(feature.batch_dtype)
    is_real = np.ones(rows, np.float32)
    is_real[-2] = 0
    sequences = np.arange(rows * choices, dtype=np.int32).reshape(rows, choices)
    return batch | {"is_real_example": is_real, SEQUENCES: sequences}


def both_batches(head: str, rows: int, parts: int = 1) -> tuple[dict, dict]:
    """The same examples twice: with a row for each sequence, and packed.

    Labels of tokens are those of tokens that are not padding. Questions of the first batch are
    packed too, each into a separate row: otherwise their losses would include padding.
    """
    batch = make_batch(head, rows)
    lengths = batch["input_mask"].reshape(rows, -1, small.S).sum(axis=2)
    for name in {"start_positions", "end_positions"} & batch.keys():
        batch[name] %= lengths
    if head == "token_labels":
        batch["label_ids"] = np.where(batch["input_mask"], batch["label_ids"], -1)
    numbers = np.arange(rows)
    choices = choices_of(head)
    packing = Packing(lengths, small.S, numbers[np.newaxis], parts=parts)
    labels = heads.head_named(head).label_features(small.S, CLASSES, CHOICES)
    features = (*input_features(small.S, sequences=choices), *labels)
    filled = packing.fill(numbers)
    filled = filled.reshape(-1, filled.shape[-1])
    packed = packing.pack(batch, features, numbers, filled, 0)
    assert len(packed["input_ids"]) < rows * choices
    if head == "question_answering":
        packing.width = small.S
        alone = np.where(np.arange(filled.shape[1]), -1, numbers[:, np.newaxis])
        batch = packing.pack(batch, features, numbers, alone, 0)
    return batch, packed


class SameBatch:
    """A batch `number` times, each time with its rows in another order."""

    def __init__(self, batch: dict[str, np.ndarray], number: int):
        self._batches = []
        for shift in range(number):
            rolled = {name: np.roll(value, shift, axis=0) for name, value in batch.items()}
            self._batches.append(rolled)
        self.batch_size = len(batch["is_real_example"])

    def dataset(self, *, start, num_parts, first_part, parts_here) -> tf.data.Dataset:
        """See `Batches.dataset`."""
        size = self.batch_size // num_parts
        parts = []
        for batch in self._batches[start:]:
            for number in range(first_part, first_part + parts_here):
                rows = slice(number * size, (number + 1) * size)
                parts.append({name: value[rows] for name, value in batch.items()})
        stacked = {}
        for name in parts[0]:
            stacked[name] = np.stack([part[name] for part in parts])
        return tf.data.Dataset.from_tensor_slices(stacked)


def take_steps(trainer: Trainer, batch: dict[str, np.ndarray], steps: int = 3) -> dict[str, float]:
    """Takes steps over a batch whose rows change places; returns the mean losses."""
    iterator = distribution.distributed_batches(trainer.strategy, SameBatch(batch, steps))
    return trainer.run_steps(iterator, 0, steps)[1]


def tensors(trainer: Trainer) -> dict[str, np.ndarray]:
    """Weights and moments, by name."""
    values = {}
    for name, value in trainer.state(0, {}).items():
        if not name.startswith("bert_tf/"):
            values[name] = np.asarray(value)
    return values


def largest_difference(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest difference between weights and moments."""
    assert ours.keys() == theirs.keys()
    floats = [name for name, value in ours.items() if value.dtype == np.float32]
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in floats)


# ---------------------------------------------------------------------------- pre-training


def write_files(folder, features=None, *, rows: int = RECORDS) -> RecordFiles:
    """Writes the records of a run, by default random ones."""
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


def train(trainer: Trainer, batches, folder, **changes) -> dict[int, dict]:
    """Trains; returns the mean losses since the last stop, by step.

    Args:
      trainer: the trainer, with the first weights.
      batches: the batches to train on.
      folder: a path or a `CheckpointFolder`.
      **changes: further arguments of `Trainer.train`; num_train_steps and intervals for its plan;
        evaluate, a function of the step alone; on_stop, a function of a step and its losses.
    """
    losses = {}
    on_stop = changes.pop("on_stop", lambda step, means: None)

    def noted(run_steps, *args):
        step, means = run_steps(*args)
        losses[step] = {name: value for name, value in means.items() if name != "kept_steps"}
        if not means["kept_steps"]:  # float16 has skipped all of them: there are no losses
            losses[step] = {}
        on_stop(step, losses[step])
        return step, means

    if not isinstance(folder, CheckpointFolder):
        folder = CheckpointFolder(folder)
    steps = changes.pop("num_train_steps", STEPS)
    plan = RunPlan(
        num_records=batches.num_records,
        batch_size=batches.batch_size,
        num_train_steps=steps,
        last_step=steps,
        seed=5,
        intervals=changes.pop("intervals", EVERY_STEP),
    )
    evaluate = changes.pop("evaluate", None)
    if evaluate:
        changes["evaluate"] = lambda step, _: evaluate(step)
    changes.setdefault("run_settings", {"seed": 3})
    noting = functools.partial(noted, trainer.run_steps)
    with unittest.mock.patch.object(trainer, "run_steps", noting):
        trainer.train(batches, plan, folder=folder, **changes)
    return losses


def tensors_of(folder, step: int) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}")
    names = reader.get_variable_to_shape_map()
    return {name: np.asarray(reader.get_tensor(name)) for name in names}


def assert_same(folder, other_folder, step: int) -> None:
    """Asserts that two folders have equal checkpoints of a step, bit for bit."""
    ours = tensors_of(folder, step)
    theirs = tensors_of(other_folder, step)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, name)


def assert_close(folder, other_folder, step: int, *, most: float = 1e-5) -> None:
    """Asserts that the weights and moments of two folders differ by rounding only."""
    difference = largest_difference(tensors_of(folder, step), tensors_of(other_folder, step))
    assert difference < most, difference


def spoil(trainer: Trainer) -> None:
    """Makes every weight and moment wrong, so that right values can only come from a file."""
    steps = trainer.steps
    for variable in (steps.weights | steps.frozen | steps.slots).values():
        variable.assign(tf.ones_like(variable) * 7)
