"""Every kind of file of tensors: halves, several files with an index, pickles, damage."""

import dataclasses
import json
import struct
import sys
import types

import model_files
import numpy as np
import pytest
import safetensors.numpy
import small

from bert_tf import BertModel, load_checkpoint
from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError

ERF_CONFIG = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf")


def write(folder, tensors, **given):
    return model_files.write_hugging_face(folder, model_files.state_dict(tensors), **given)


@pytest.mark.parametrize("kind", ["F16", "BF16", "F64"])
def test_other_precision_is_read_as_float32(tmp_path, tensors, kind):
    """Exactly the value that was stored: bfloat16 is the upper half of a float32."""
    theirs = model_files.state_dict(tensors)
    if kind == "BF16":
        stored = {n: (v.view(np.uint32) >> 16).astype(np.uint16) for n, v in theirs.items()}
        expected = {n: (v.astype(np.uint32) << 16).view(np.float32) for n, v in stored.items()}
    else:
        stored = {n: v.astype({"F16": "f2", "F64": "f8"}[kind]) for n, v in theirs.items()}
        expected = {n: v.astype(np.float32) for n, v in stored.items()}
    model_files.write_hugging_face(tmp_path, {})
    write_safetensors(tmp_path / "model.safetensors", stored, kind)
    weights = open_weights(tmp_path)
    model_files.assert_same(model_files.state_dict(model_files.all_tensors(weights)), expected)


def write_safetensors(path, arrays, dtype: str) -> None:
    """The format by hand: length of the header, header, bytes."""
    header, start = {}, 0
    for name, value in arrays.items():
        end = start + value.nbytes
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    content = b"".join(value.tobytes() for value in arrays.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def test_weights_of_whole_numbers(tmp_path, tensors):
    """As quantized models have them; without their scales they mean something else."""
    theirs = model_files.state_dict(tensors)
    theirs["bert.pooler.dense.weight"] = theirs["bert.pooler.dense.weight"].astype(np.int8)
    weights = open_weights(model_files.write_hugging_face(tmp_path, theirs))
    with pytest.raises(InputError, match=r"bert\.pooler\.dense\.weight of int8"):
        load_checkpoint(BertModel(ERF_CONFIG), weights)


@pytest.fixture
def parts(tmp_path, tensors):
    """A folder with its tensors in three files, and the index of these."""
    theirs = model_files.state_dict(tensors)
    model_files.write_hugging_face(tmp_path, {})
    (tmp_path / "model.safetensors").unlink()
    weight_map = {}
    for part in range(3):
        name = f"model-{part + 1:05}-of-00003.safetensors"
        own = dict(list(theirs.items())[part::3])
        safetensors.numpy.save_file(own, tmp_path / name)
        weight_map |= dict.fromkeys(own, name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return index


def test_several_files_with_an_index(parts, tensors):
    for path in (parts.parent, parts):
        model_files.assert_same(model_files.all_tensors(open_weights(path)), tensors)
    (parts.parent / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00003\.safetensors, which cannot be"):
        open_weights(parts)


NAMES = ("../{}", "{1}/{0}", "./{}", "a/../{}", "..safetensors/{}")  # that leave the folder


@pytest.mark.parametrize(
    ("weight_map", "says"),
    [
        ({"other": "model-00001-of-00003.safetensors"}, "says that model-00001.* has other"),
        ({"x": "model.safetensors.index.json"}, "plain names"),  # itself
        (["model-00001-of-00003.safetensors"], "without a weight_map"),
        ({"x": 1}, "plain names"),
        (None, "without a weight_map"),
        *((name, "an index with plain names of files") for name in NAMES),
    ],
)
def test_a_damaged_index(parts, weight_map, says):
    if weight_map in NAMES:
        own = json.loads(parts.read_text())["weight_map"]
        weight_map = {name: weight_map.format(part, parts.parent) for name, part in own.items()}
    parts.write_text(json.dumps({"weight_map": weight_map} if weight_map else {}))
    with pytest.raises(InputError, match=says) as caught:
        open_weights(parts.parent)
    assert str(parts) in caught.value.received


def test_a_file_of_the_folder(tmp_path, tensors):
    path = write(tmp_path, tensors) / "model.safetensors"
    assert open_weights(path).path == str(path)
    with pytest.raises(InputError, match="not there"):
        open_weights(tmp_path / "other.safetensors")
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"without a config\.json"):
        open_weights(path)


# No torch, and one whose loader runs code; its `load` would be an AttributeError.
@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (None, "a pickle, which can run code"),
        (types.SimpleNamespace(__version__="2.5.1+cpu"),
         r"with PyTorch 2\.5\.1\+cpu\n.*PyTorch 2\.10 or later"),
    ],
)  # fmt: skip
def test_a_pickle_that_nothing_can_read_safely(tmp_path, monkeypatch, torch, says):
    """The loader that takes tensors only is torch's; without it nothing is unpickled."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "config.json").write_text(json.dumps(model_files.hugging_face_config()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(InputError, match=says):
        open_weights(tmp_path)
