"""What fine-tuning of every kind shares: records of features, their batches, their predictions.

features -> train.tf_record     written whole or not at all
batches of them                 in an order of (seed, position), by length
predictions                     of every record once, in the order of the records
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints import tf1
from bert_tf.data.batches import (
    BucketedBatches,
)
from bert_tf.errors import InputError
from bert_tf.training import optimization
from bert_tf.training.trainer import Trainer

# Where a run is made longer: how long it is, and how its best checkpoint is chosen.
_MAY_CHANGE = ("num_train_epochs", "num_train_steps", "eval_steps", "early_stopping")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSchedule:
    """How long and how fast; named as the original's flags."""

    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    end_learning_rate: float = 0.0
    layerwise_lr_decay: float = 1.0

    def num_train_steps(self, num_examples: int) -> int:
        """Updates in all, int(N / batch * epochs) as in the original.

        Raises:
          InputError: that is none.
        """
        steps = int(num_examples / self.train_batch_size * self.num_train_epochs)
        if steps < 1:
            raise InputError(
                received=f"{num_examples} examples, --train_batch_size={self.train_batch_size}, "
                f"--num_train_epochs={self.num_train_epochs}",
                expected="enough for one update",
                remedy="use a smaller batch or more epochs",
            )
        return steps

    def optimizer(
        self, num_train_steps: int, *, kind: str = "adamw", bias_correction: bool = False
    ) -> optimization.AdamWeightDecay:
        """The original's optimizer and learning rate over so many steps, or LAMB."""
        return optimization.OPTIMIZERS[kind](
            schedule=optimization.Schedule(
                learning_rate=self.learning_rate,
                num_train_steps=num_train_steps,
                num_warmup_steps=int(num_train_steps * self.warmup_proportion),
                end_learning_rate=self.end_learning_rate,
            ),
            bias_correction=bias_correction,
            layerwise_lr_decay=self.layerwise_lr_decay,
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
