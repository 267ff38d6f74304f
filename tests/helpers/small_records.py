"""Records of one number or two features, their bytes worked out by hand, and files of them."""

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature, Record
from bert_tf.data.shards import RecordFiles

NUMBER = Record("number", (Feature("input_ids", tf.int64, 1),))
PAIR = Record("pair", (Feature("b", tf.int64, 2), Feature("a", tf.float32, 1)))
# Protocol buffers: a tag (field * 8 + 2) and a length precede every value of variable length.
PAIR_BYTES = bytes.fromhex(
    "0a 1d"  # Example.features, 29 bytes
    "0a 0d  0a 01 61"  # a map entry, 13 bytes: the key "a", keys being sorted,
    "       12 08  12 06  0a 04 0000c03f"  # a Feature with a FloatList of 1.5
    "0a 0c  0a 01 62"  # the key "b",
    "       12 07  1a 05  0a 03 03 ac02"  # a Feature with an Int64List of 3 and 300
)


def write_numbers(path, numbers) -> str:
    """Writes a file of `NUMBER` records; returns its path."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            writer.write(NUMBER.serialize({"input_ids": [number]}))
    return str(path)


def open_numbers(folder, *sizes: int) -> RecordFiles:
    """Writes and opens files with these numbers of records: 0, 1, 2, ... from file to file."""
    starts = np.cumsum([0, *sizes])
    paths = []
    for i in range(len(sizes)):
        numbers = range(starts[i], starts[i + 1])
        paths.append(write_numbers(folder / f"{i}.tfrecord", numbers))
    return RecordFiles(paths, NUMBER)
