"""Windows -> logits: for each piece, how likely the answer begins with it, and ends with it.

    pieces         [CLS] who founded it ? [SEP] ru ##pre ##cht founded it [SEP]
    start_logits     0.1 ...                    7.9 0.3   0.2     1.1 ...
    end_logits       0.4 ...                    0.2 0.1   8.3     0.9 ...

The logits of [CLS] say that there is no answer in the window.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import loading as weights
from bert_tf.checkpoints.metadata import Weights
from bert_tf.config import BertConfig
from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles
from bert_tf.modeling import losses, models
from bert_tf.squad.windows import Window
from bert_tf.training.fine_tuning import predictions_in_order
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

ENCODER_AND_HEAD = r"bert/(?!pooler/)|cls/squad/"  # what a checkpoint must have to answer questions


def make_trainer(
    config: BertConfig,
    optimizer: AdamWeightDecay,
    strategy: tf.distribute.Strategy,
    *,
    seed: int,
    freeze: Sequence[str] = (),
    step_config: StepConfig | None = None,
) -> Trainer:
    """Model, loss and optimizer on the devices; arguments as for `Trainer`."""
    return Trainer(
        lambda: models.span_model(config),
        losses.SpanObjective(),
        optimizer,
        strategy=strategy,
        seed=seed,
        freeze=freeze,
        step_config=step_config,
    )


def restore(
    source: Weights,
    config: BertConfig,
    strategy: tf.distribute.Strategy,
    *,
    step_config: StepConfig | None = None,
) -> Trainer:
    """A trained model, to answer questions with.

    Raises:
      InputError: the weights are not of a whole model for questions and contexts.
    """
    untrained = AdamWeightDecay(schedule=Schedule(learning_rate=0.0, num_train_steps=1))
    trainer = make_trainer(config, untrained, strategy, seed=0, step_config=step_config)
    logging.info("%s", weights.load_checkpoint(trainer.model, source, required=ENCODER_AND_HEAD))
    return trainer


def window_logits(
    trainer: Trainer,
    records: RecordFiles,
    windows: Sequence[Window],
    batching: BatchingConfig,
    *,
    batch_size: int,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Start and end logits of every window, in order, each float32 [S].

    Args:
      trainer: with the model.
      records: of the windows, from `write_windows`.
      windows: T pieces each.
      batching: how records become batches. Without buckets S is max_seq_length, as in the original,
        which lets the logits of padding compete for a place among the best; with buckets it is T.
      batch_size: windows of a step.

    Raises:
      InputError: the model gives what is no number.
    """
    batches = batching.once(records, batch_size=batch_size)
    found = predictions_in_order(trainer, batches, ("start_logits", "end_logits"))
    whole = batching.max_seq_length
    lengths = [len(w.input_ids) if batching.bucket_by_length else whole for w in windows]
    start_logits, end_logits = (
        [row[:length] for row, length in zip(rows, lengths, strict=True)] for rows in found.values()
    )
    return start_logits, end_logits
