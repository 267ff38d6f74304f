"""What the fine-tuning of all tasks shares: the optimizer, resuming, predictions in order."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.run_settings import check_finished_run, is_finished
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError
from bert_tf.training import optimization
from bert_tf.training.settings import FineTuningSchedule
from bert_tf.training.trainer import Trainer

# Settings that may change when a finished run is trained further: its length, and how its best
# checkpoint is chosen.
_MAY_CHANGE = ("num_train_epochs", "num_train_steps", "eval_steps", "early_stopping")


def make_optimizer(
    schedule: FineTuningSchedule, num_train_steps: int
) -> optimization.AdamWeightDecay:
    """The optimizer of a fine-tuning run of so many steps."""
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


def refuse_other_settings(folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> None:
    """Raises InputError if the folder has a finished run with other settings.

    A finished run may be trained further; with other settings it would be another run.

    Args:
      folder: of the run.
      run_settings: of the run that is asked for, as for `Trainer.train`.
    """
    latest = folder.latest()
    if latest and is_finished(latest):
        check_finished_run(latest, run_settings, besides=_MAY_CHANGE)


def with_run_ends(folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with the steps at which it once was to end if they are more than one.

    They decide the order of records in batches by length, and so are recorded in checkpoints.

    Args:
      folder: of the run, which may have been begun with another number of steps.
      run_settings: as for `Trainer.train`, with num_train_steps.
    """
    last, latest = run_settings["num_train_steps"], folder.latest()
    saved = tf1.CheckpointReader(latest).run_settings() if latest else {}
    ends = saved.get(tf1.RUN_ENDS) or [saved.get("num_train_steps", last)]
    if last > ends[-1]:
        ends = [*ends, last]
    return {**run_settings} | ({tf1.RUN_ENDS: ends} if ends != [last] else {})


def predictions_in_order(
    trainer: Trainer, batches: Batches, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The model's outputs for every record, in the order of the records.

    Args:
      trainer: with the model.
      batches: every record once, in any order.
      names: of outputs.

    Returns:
      Each output float32 [rows, ...]; outputs of each token are padded with 0 to the longest.

    Raises:
      InputError: the model's outputs are NaN or infinite.
    """
    found: dict[str, list] = {name: [None] * batches.num_records for name in names}
    for number, outputs in enumerate(trainer.predict(batches, list(found))):
        rows = batches.batch_rows(number)
        for name, values in found.items():
            for row, value in zip(rows, outputs[name][: len(rows)], strict=True):
                values[row] = value
    for name, values in found.items():
        _check_finite(name, values)
    return {name: _stack(values) for name, values in found.items()}


def _check_finite(name: str, values: list[np.ndarray]) -> None:
    if wrong := sum(not np.isfinite(value).all() for value in values):
        raise InputError(
            f"a model whose {name} are NaN or infinite for {wrong} of {len(values)} records",
            "finite numbers: its training diverged, or its weights are damaged",
            "train again with a lower --learning_rate or a longer warm-up, or give another "
            "checkpoint",
        )


def _stack(values: list[np.ndarray]) -> np.ndarray:
    """The values as one array, padded with 0 along their first axis."""
    longest = max(map(len, values))
    padded = np.zeros([len(values), longest, *values[0].shape[1:]], values[0].dtype)
    for row, value in enumerate(values):
        padded[row, : len(value)] = value
    return padded
