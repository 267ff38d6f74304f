"""Vectors -> files: the original's JSON lines, one NumPy archive, or TFRecords.

A file appears under its name when it is whole.
"""

import io
import json
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.files import whole_file
from bert_tf.serving.feature_extraction import Vectors
from bert_tf.serving.options import FEATURE_FORMATS

DECIMALS = 6  # of the original's JSON


def write_jsonl(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """A line for each text, as the original has it; returns how many.

    Without pooling:
        {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values":
        [...]}]}, ...]}                             (the key is spelled so in the original)
    Pooled:
        {"linex_index": 0, "layers": [{"index": -1, "values": [...]}]}
    """
    count = 0
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        for count, line in enumerate(vectors, 1):
            file.write(json.dumps(_as_json(count - 1, line, layers)) + "\n")
    return count


def _as_json(number: int, line: Vectors, layers: Sequence[int | str]) -> dict:
    def of_layers(values: np.ndarray) -> list[dict]:  # [L, D]
        return [{"index": i, "values": v} for i, v in zip(layers, rounded(values), strict=True)]

    if line.layers.ndim == 2:
        return {"linex_index": number, "layers": of_layers(line.layers)}
    by_token = np.swapaxes(line.layers, 0, 1)  # [T, L, D]
    features = [
        {"token": token, "layers": of_layers(values)}
        for token, values in zip(line.tokens, by_token, strict=True)
    ]
    return {"linex_index": number, "features": features}


def rounded(values: np.ndarray) -> list:
    """float32 as Python numbers of six decimals; as `round` gives them, all at once."""
    return np.round(values.astype(np.float64), DECIMALS).tolist()


def write_npz(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """One archive; returns how many texts. All vectors are held in memory.

    Pooled: embeddings float32 [N, L * D], the layers side by side in the order asked for. Without
    pooling: embeddings float32 [T, L * D] of all pieces of all texts, tokens [T], and row_splits
    int64 [N + 1]: text i has the pieces row_splits[i] to row_splits[i + 1].
    """
    del layers  # their order is that of the columns
    rows, tokens, splits = [], [], [0]
    for line in vectors:
        if line.layers.ndim == 2:
            rows.append(line.layers.reshape(1, -1))
        else:
            by_token = np.swapaxes(line.layers, 0, 1)  # [T, L, D]
            rows.append(by_token.reshape(len(line.tokens), -1))
            tokens += line.tokens
        splits.append(splits[-1] + len(rows[-1]))
    arrays = {"embeddings": np.concatenate(rows) if rows else np.zeros([0, 0], np.float32)}
    if tokens:
        arrays |= {"tokens": np.array(tokens), "row_splits": np.array(splits, np.int64)}
    archive = io.BytesIO()  # it is written back and forth, which remote files are not
    np.savez(archive, **arrays)
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(archive.getvalue())
    return len(splits) - 1


def write_tfrecord(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """A tf.Example for each text; returns how many.

    linex_index int64; tokens bytes [T]; layers bytes [L]; embeddings float, flat; shape int64: that
    of embeddings, [L, T, D], or [L, D] if pooled.
    """
    count = 0
    with whole_file(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for count, line in enumerate(vectors, 1):
            features = {
                "linex_index": _ints([count - 1]),
                "tokens": _bytes(line.tokens),
                "layers": _bytes(map(str, layers)),
                "embeddings": tf.train.Feature(
                    float_list=tf.train.FloatList(value=line.layers.ravel())
                ),
                "shape": _ints(line.layers.shape),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return count


def _ints(values) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _bytes(values: Iterable[str]) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))


WRITERS = dict(zip(FEATURE_FORMATS, (write_jsonl, write_npz, write_tfrecord), strict=True))
