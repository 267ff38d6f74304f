"""The index of a checkpoint: what TensorFlow never writes is refused before it opens it."""

import pathlib
import re
import time

import numpy as np
import pytest
import tensor_index
import tensorflow as tf
from model_files import write_bundle
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.checkpoints.tensor_index import read_table
from bert_tf.checkpoints.tf1 import CheckpointReader
from bert_tf.errors import InputError

VALUE = np.arange(12, dtype=np.float32).reshape(4, 3)
# The changes of an entry, or the bytes in its place; and what the message says. TensorFlow's reader
# ends the process on most of these, or takes memory for them.
WRONG = {
    "no type": ({"dtype": 0}, "the type invalid|unknown type 0"),
    "unknown type": ({"dtype": 9999}, "the unknown type 9999"),
    "reference": ({"dtype": 101}, "the type float32_ref"),
    "resource": ({"dtype": 20}, "the type resource"),
    "negative": ({"shape": {"dim": [{"size": -4}, {"size": 3}]}}, r"the shape \[-4, 3\], which no"),
    "no rows": ({"shape": {"dim": [{"size": 0}, {"size": 3}]}}, r"the shape \[0, 3\], which no"),
    "huge": (
        {"shape": {"dim": [{"size": 2**31}, {"size": 2**31}]}},
        r"the shape \[2147483648, 2147483648\] of float32 and 48 bytes",
    ),
    "one row more": ({"shape": {"dim": [{"size": 5}, {"size": 3}]}}, r"the shape \[5, 3\]"),
    "one row less": ({"shape": {"dim": [{"size": 3}, {"size": 3}]}}, r"the shape \[3, 3\]"),
    "any shape": ({"shape": {"unknown_rank": True}}, "which no tensor of a model has"),
    "dimensions": ({"shape": {"dim": [{"size": 1}] * 255}}, "which no tensor of a model has"),
    "text of 2^40": ({"dtype": 7, "shape": {"dim": [{"size": 2**40}]}}, "of string"),
    "before the file": ({"offset": -8}, "48 bytes at -8 of a file of 48"),
    "behind the file": ({"offset": 2**40}, "48 bytes at 1099511627776 of a file of 48"),
    "another file": ({"shard_id": 1}, "the data file 1 of 1"),
    "negative part": (
        {"slices": [{"extent": [{"start": 0, "length": -1}]}]},
        "a part before its tensor",
    ),
    "huge whole": (
        {"shape": {"dim": [{"size": 2**60}]}, "slices": [{"extent": [{"start": 0}]}]},
        "of float32 and 48 bytes",
    ),
    "no protobuf": (b"\xff", "Error parsing|decode|truncated"),
}


@pytest.fixture
def index(tmp_path) -> pathlib.Path:
    """The index of a checkpoint of one tensor, a."""
    return pathlib.Path(write_bundle(tmp_path / "c", {"a": VALUE}) + ".index")


def refused(index: pathlib.Path, content: bytes) -> str:
    """What is said of an index with this content, at once."""
    index.write_bytes(content)
    begin = time.monotonic()
    with pytest.raises(InputError, match=re.escape(str(index))) as caught:
        CheckpointReader(index)
    assert time.monotonic() - begin < 1
    return caught.value.received


@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_entries_that_tensorflow_never_writes(index, change, says):
    values = dict(read_table(index.read_bytes()))
    if isinstance(change, dict):
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(values[b"a"])
        for name in change:
            entry.ClearField(name)
        entry.MergeFrom(tensor_bundle_pb2.BundleEntryProto(**change))
        change = entry.SerializeToString()
    received = refused(index, tensor_index.table(values | {b"a": change}))
    assert re.search(f"whose entry a has .*({says})", received), received


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_a_header_of_other_data_files(index, number):
    values = dict(read_table(index.read_bytes()))
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=number)
    content = tensor_index.table(values | {b"": header.SerializeToString()})
    assert f"{number} data files" in refused(index, content)


def test_a_small_index_that_takes_hours_or_memory(index):
    """A block listed 200 times; keys that repeat the one before: 400 KB would take 1.6 GB."""
    values = dict(read_table(index.read_bytes()))
    assert "overlap" in refused(index, tensor_index.table(values, repeated=200))
    long = {b"": values[b""], b"a" * 150_000: values[b"a"]}
    assert "repeat each other" in refused(index, tensor_index.table(long, expands=10_000))
    # TensorFlow writes every 16th key whole.
    index.write_bytes(tensor_index.table(values, expands=15))
    assert CheckpointReader(index).shapes == {"a" + "x" * n: VALUE.shape for n in range(16)}


def test_a_missing_data_file_is_named(index):
    index.with_suffix(".data-00000-of-00001").unlink()
    with pytest.raises(InputError, match=r"c\.data-00000-of-00001; No such file"):
        CheckpointReader(index)


def test_what_tensorflow_writes_is_read(tmp_path):
    """Of every type, in parts, in several files."""
    values = {
        f"{tf.as_dtype(kind).name}/{shape}": np.ones(shape).astype(kind)
        for kind in (np.float64, np.float16, np.int64, np.uint8, np.bool_)
        for shape in ((), (1, 3), (2, 3))
    }
    values["text"] = np.array([[b"", b"some text"]], object)
    values["half"] = tf.ones([2], tf.bfloat16)
    reader = CheckpointReader(write_bundle(tmp_path / "c", values))
    assert reader.shapes == {name: tuple(values[name].shape) for name in sorted(values)}
    tf.raw_ops.SaveV2(
        prefix=f"{tmp_path}/parts",
        tensor_names=["a", "a"],
        shape_and_slices=["4 3 0,1:-", "4 3 1,3:-"],
        tensors=[tf.constant(VALUE[:1]), tf.constant(VALUE[1:])],
    )
    reader = CheckpointReader(tmp_path / "parts")
    assert reader.shapes == {"a": (4, 3)}
    np.testing.assert_array_equal(reader.read("a"), VALUE)
    halves = [write_bundle(tmp_path / name, {name: VALUE}) for name in "bc"]
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=halves, destination_prefix=f"{tmp_path}/whole", delete_old_dirs=False
    )
    assert CheckpointReader(tmp_path / "whole").shapes == {"b": (4, 3), "c": (4, 3)}
