"""What fine-tuning of every kind shares: records of features, their batches, their predictions.

features -> train.tf_record     written whole or not at all
batches of them                 in an order of (seed, position), by length
predictions                     of every record once, in the order of the records
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints import tf1
from bert_tf.data.batches import BucketedBatches
from bert_tf.errors import InputError
from bert_tf.training import optimization
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.settings import FineTuningSchedule
from bert_tf.training.trainer import Trainer

# Where a run is made longer: how long it is, and how its best checkpoint is chosen.
_MAY_CHANGE = ("num_train_epochs", "num_train_steps", "eval_steps", "early_stopping")


def make_optimizer(schedule: FineTuningSchedule, num_train_steps: int) -> AdamWeightDecay:
    """The optimizer of fine-tuning, its learning rate set for so many steps."""
    return optimization.make_optimizer(
        schedule.optimizer,
        optimization.Schedule(
            learning_rate=schedule.learning_rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=int(num_train_steps * schedule.warmup_proportion),
            end_learning_rate=schedule.end_learning_rate,
        ),
        bias_correction=schedule.bias_correction,
        layerwise_lr_decay=schedule.layerwise_lr_decay,
    )


def refuse_other_settings(folder: tf1.CheckpointFolder, facts: Mapping[str, Any]) -> None:
    """A run that has ended may be made longer; other settings make another run of it.

    Args:
      folder: of the run.
      facts: of the run that is asked for, as they will be noted.

    Raises:
      InputError: naming what differs.
    """
    latest = folder.latest()
    if latest and tf1.is_finished(latest):
        tf1.check_finished_run(latest, facts, besides=_MAY_CHANGE)


def predictions_in_order(
    trainer: Trainer, batches: BucketedBatches, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """What the model gives for every record, in the order of the records.

    Args:
      trainer: with the model.
      batches: every record once, in any order.
      names: of outputs.

    Returns:
      Each output float32 [rows, ...]; outputs of each token are padded with 0 to the longest.

    Raises:
      InputError: the model gives infinities or no numbers.
    """
    names = list(names)
    found: dict[str, list] = {name: [None] * batches.num_records for name in names}
    for rows, outputs in trainer.predict(batches, names):
        for name in names:
            for row, value in zip(rows, outputs[name], strict=True):
                found[name][row] = value
    for name, values in found.items():
        _check_finite(name, values)
    return {name: _stack(values) for name, values in found.items()}


def _check_finite(name: str, values: list[np.ndarray]) -> None:
    """Refuses a model that has lost its way, rather than to write answers by chance."""
    wrong = sum(not np.isfinite(value).all() for value in values)
    if wrong:
        raise InputError(
            received=f"a model that gives {name} that are infinite or no numbers for {wrong} of "
            f"{len(values)} records",
            expected="numbers: its training has gone wrong, or its weights are damaged",
            remedy="train again with a smaller --learning_rate or longer warm-up, or give another "
            "checkpoint",
        )


def _stack(values: list[np.ndarray]) -> np.ndarray:
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    longest = max(len(value) for value in values)
    padded = np.zeros([len(values), longest, *values[0].shape[1:]], values[0].dtype)
    for row, value in enumerate(values):
        padded[row, : len(value)] = value
    return padded
