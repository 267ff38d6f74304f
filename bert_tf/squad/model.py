"""Windows -> logits: for each piece, how likely the answer begins with it, and ends with it.

    pieces         [CLS] who founded it ? [SEP] ru ##pre ##cht founded it [SEP]
    start_logits     0.1 ...                    7.9 0.3   0.2     1.1 ...
    end_logits       0.4 ...                    0.2 0.1   8.3     0.9 ...

The logits of [CLS] score "no answer in this window".
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles
from bert_tf.squad.windows import Window
from bert_tf.training.fine_tuning import predictions_in_order
from bert_tf.training.trainer import Trainer

ENCODER_AND_HEAD = r"bert/(?!pooler/)|cls/squad/"  # what a checkpoint must have to answer questions


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
      trainer: with a `span_model`.
      records: of the windows, from `write_windows`.
      windows: T pieces each.
      batching: how records become batches. With buckets S is T. Without, S is max_seq_length, as in
        the original, which lets the logits of padding compete for a place among the best.
      batch_size: windows in a batch.

    Raises:
      InputError: logits are NaN or infinite.
    """
    batches = batching.once(records, batch_size=batch_size)
    outputs = predictions_in_order(trainer, batches, ("start_logits", "end_logits"))
    whole = batching.max_seq_length
    lengths = [len(w.input_ids) if batching.bucket_by_length else whole for w in windows]
    start_logits, end_logits = (
        [row[:length] for row, length in zip(rows, lengths, strict=True)]
        for rows in outputs.values()
    )
    return start_logits, end_logits
