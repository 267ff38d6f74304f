"""Block indexes: the same blocks while records are written and afterwards."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import typed
from bert_tf.data import index
from bert_tf.data.index import BlockIndex, IndexBuilder, find_blocks, index_path
from bert_tf.errors import InputError


def write(path, sizes) -> IndexBuilder:
    """A file of records of these sizes, and what was noted meanwhile."""
    noted = IndexBuilder()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size in sizes:
            writer.write(b"x" * size)
            noted.add(size)
    return noted


def found_in(path) -> BlockIndex | None:
    with path.open("rb") as file:
        return find_blocks(file, path.stat().st_size)


def test_blocks_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "BLOCK_BYTES", 60)
    # With their frames 26, 36, | 16, 46, | 76, | 17.
    found = write(tmp_path / "a", [10, 20, 0, 30, 60, 1]).finish()
    assert found == found_in(tmp_path / "a")
    assert found.block_bytes == (62, 62, 76, 17)
    assert found.block_records == (2, 2, 1, 1)
    assert (found.num_bytes, found.num_records) == (217, 6)


@pytest.mark.parametrize("count", [0, 1, 7, 400])
@pytest.mark.parametrize("chunk", [8, 19, 1000])
def test_found_as_noted(tmp_path, monkeypatch, count, chunk):
    monkeypatch.setattr(index, "BLOCK_BYTES", 500)
    monkeypatch.setattr(index, "READ_BYTES", chunk)
    sizes = np.random.default_rng(count).integers(0, 90, count).tolist()
    noted = write(tmp_path / "a", sizes).finish()
    assert found_in(tmp_path / "a") == noted
    assert typed(BlockIndex, json.loads(noted.to_json_string()), source="a") == noted


def test_damage_shows(tmp_path):
    write(tmp_path / "a", [5, 50, 500])
    data = (tmp_path / "a").read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:100], b"text" * 30, b"\xff" * 16, b"x"):
        (tmp_path / "a").write_bytes(damaged)
        assert found_in(tmp_path / "a") is None


def test_an_index_of_a_million_blocks():
    """Of a file of a terabyte; it is read in a second."""
    sizes = [2**20] * 10**6
    values = {"num_bytes": sum(sizes), "block_bytes": sizes, "block_records": [7] * len(sizes)}
    begin = time.monotonic()
    assert typed(BlockIndex, values, source="a").fits(sum(sizes))
    for wrong in (0, True, 1.0, "1", None):
        sizes[-7] = wrong
        with pytest.raises(InputError, match=rf"block_bytes\[999993\] {wrong!r}"):
            typed(BlockIndex, values, source="a")
    assert time.monotonic() - begin < 6  # with five refusals, and on a busy machine


def test_its_name():
    assert index_path("gs://bucket/data/train.tfrecord") == (
        "gs://bucket/data/index_train.tfrecord.json"
    )
