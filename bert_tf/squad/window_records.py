"""Windows as TFRecords: the original's train.tf_record and eval.tf_record."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature, Record
from bert_tf.data.shards import RecordFiles, write_records
from bert_tf.squad.windows import Window


def squad_record(*, max_seq_length: int, is_training: bool) -> Record:
    """The record of a window (original: `FeatureWriter` of run_squad.py).

    Features: unique_ids int64 [1]; input_ids, input_mask, segment_ids int64 [S]; in training also
    start_positions, end_positions, is_impossible int64 [1].
    """

    def single(name: str) -> Feature:
        return Feature(name, tf.int64, 1)

    def per_token(name: str) -> Feature:
        return Feature(name, tf.int64, max_seq_length, "max_seq_length")

    features = [
        single("unique_ids"),
        *map(per_token, ("input_ids", "input_mask", "segment_ids")),
    ]
    if is_training:
        features += map(single, ("start_positions", "end_positions", "is_impossible"))
    return Record("SQuAD", tuple(features))


def record_values(
    window: Window, *, max_seq_length: int, is_training: bool
) -> dict[str, list[int]]:
    """A window's features, padded with zeros to `max_seq_length`; integers [S] or [1]."""

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values, (0, max_seq_length - len(values)))

    values = {
        "unique_ids": [window.unique_id],
        "input_ids": padded(window.input_ids),
        "input_mask": padded(np.ones_like(window.input_ids)),
        "segment_ids": padded(window.segment_ids),
    }
    if is_training:
        values |= {
            "start_positions": [window.answer.start],
            "end_positions": [window.answer.end],
            "is_impossible": [window.is_impossible],
        }
    return {name: np.asarray(value, np.int64).tolist() for name, value in values.items()}


def write_windows(
    path: str, windows: Iterable[Window], *, max_seq_length: int, is_training: bool
) -> RecordFiles:
    """Writes a file of records, which appears whole or not at all.

    Raises:
      InputError: it cannot be written there.
    """
    kind = {"max_seq_length": max_seq_length, "is_training": is_training}
    record = squad_record(**kind)
    write_records(path, record, (record_values(window, **kind) for window in windows))
    return RecordFiles(path, record)
