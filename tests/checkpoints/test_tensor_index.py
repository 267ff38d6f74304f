"""The index of a TF1 checkpoint: read as TensorFlow writes it, refused where it is another's."""

import pathlib
import time

import numpy as np
import pytest
import tensor_index
import tensorflow as tf
from model_files import assert_same
from model_files import write_bundle as write
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.checkpoints.tf1 import CheckpointReader
from bert_tf.errors import InputError

VALUE = np.arange(12, dtype=np.float32).reshape(4, 3)
# TensorFlow's reader ends the process on most of these, or takes memory for them. The changes of
# an entry, or the bytes in its place.
WRONG = {
    "no type": {"dtype": 0},
    "unknown type": {"dtype": 9999},
    "reference": {"dtype": 101},
    "resource": {"dtype": 20},
    "negative": {"shape": {"dim": [{"size": -4}, {"size": 3}]}},
    "huge": {"shape": {"dim": [{"size": 2**31}, {"size": 2**31}]}},
    "one row more": {"shape": {"dim": [{"size": 5}, {"size": 3}]}},
    "any shape": {"shape": {"unknown_rank": True}},
    "dimensions": {"shape": {"dim": [{"size": 1}] * 255}},
    "text of 2^40": {"dtype": 7, "shape": {"dim": [{"size": 2**40}]}},
    "before the file": {"offset": -8},
    "behind the file": {"offset": 2**40},
    "another file": {"shard_id": 1},
    "negative part": {"slices": [{"extent": [{"start": 0, "length": -1}]}]},
    "huge whole": {"shape": {"dim": [{"size": 2**60}]}, "slices": [{"extent": [{"start": 0}]}]},
    "empty": b"",
    "no protobuf": b"\xff",
    "half a number": b"\x08\x81",
}


@pytest.fixture
def prefix(tmp_path) -> pathlib.Path:
    """A checkpoint of one tensor, a."""
    return pathlib.Path(write(tmp_path / "c", {"a": VALUE}))


def values_of(prefix: pathlib.Path) -> dict[bytes, bytes]:
    return tensor_index.read_table(prefix.with_suffix(".index").read_bytes())


def refused(prefix: pathlib.Path, content: bytes, message: str = "") -> None:
    """An index with this content is refused, at once."""
    prefix.with_suffix(".index").write_bytes(content)
    begin = time.monotonic()
    with pytest.raises(InputError, match=rf"{prefix}, which cannot be read \(.*{message}"):
        CheckpointReader(prefix)
    assert time.monotonic() - begin < 1


def test_an_index_taken_apart_and_put_together(tmp_path):
    tensors = {f"a/{i}": VALUE + i for i in range(40)}
    prefix = pathlib.Path(write(tmp_path / "c", tensors))
    prefix.with_suffix(".index").write_bytes(tensor_index.table(values_of(prefix)))
    assert_same({name: CheckpointReader(prefix).read(name) for name in tensors}, tensors)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_entries_that_tensorflow_never_writes(prefix, wrong):
    values = values_of(prefix)
    if isinstance(wrong, dict):
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(values[b"a"])
        for name in wrong:
            entry.ClearField(name)
        entry.MergeFrom(tensor_bundle_pb2.BundleEntryProto(**wrong))
        wrong = entry.SerializeToString()
    refused(prefix, tensor_index.table(values | {b"a": wrong}))


def test_a_small_file_that_takes_hours_or_memory(prefix):
    """A block listed 200 times; keys that repeat the one before: 400 KB would take 1.6 GB."""
    values = values_of(prefix)
    refused(prefix, tensor_index.table(values, repeated=200), "blocks that overlap")
    long = {b"": values[b""], b"a" * 150_000: values[b"a"]}
    refused(prefix, tensor_index.table(long, expands=10_000))
    # TensorFlow writes every 16th key whole.
    prefix.with_suffix(".index").write_bytes(tensor_index.table(values, expands=15))
    assert CheckpointReader(prefix).shapes == {"a" + "x" * n: VALUE.shape for n in range(16)}


def test_a_tensor_in_parts(tmp_path):
    """As a partitioned variable of TensorFlow 1 is saved."""
    prefix = str(tmp_path / "c")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["a", "a"],
        shape_and_slices=["4 3 0,1:-", "4 3 1,3:-"],
        tensors=[tf.constant(VALUE[:1]), tf.constant(VALUE[1:])],
    )
    reader = CheckpointReader(prefix)
    assert reader.shapes == {"a": (4, 3)}
    np.testing.assert_array_equal(reader.read("a"), VALUE)
