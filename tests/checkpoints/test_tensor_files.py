"""Every kind of file of tensors: halves, several files with an index, pickles, damage."""

import dataclasses
import json
import struct
import sys
import types

import model_files
import numpy as np
import pytest
import reference
import safetensors.numpy
import small

from bert_tf import BertModel, load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError

ERF_CONFIG = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf")


def write(folder, tensors, **given):
    return model_files.write_hugging_face(folder, model_files.state_dict(tensors), **given)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_precision_is_read_as_float32(tmp_path, tensors, kind):
    """Exactly the value that was stored: bfloat16 is the upper half of a float32."""
    theirs = model_files.state_dict(tensors)
    if kind == "F16":
        stored = {name: value.astype(np.float16) for name, value in theirs.items()}
        model_files.write_hugging_face(tmp_path, stored)
        expected = {name: value.astype(np.float32) for name, value in stored.items()}
    else:
        halves = {n: (v.view(np.uint32) >> 16).astype(np.uint16) for n, v in theirs.items()}
        model_files.write_hugging_face(tmp_path, {})
        write_safetensors(tmp_path / "model.safetensors", halves, "BF16")
        expected = {
            name: (value.astype(np.uint32) << 16).view(np.float32) for name, value in halves.items()
        }
    weights = open_weights(tmp_path)
    model_files.assert_same(model_files.state_dict(model_files.all_tensors(weights)), expected)
    model = make_model("pretraining", ERF_CONFIG)
    load_checkpoint(model, weights)
    model_files.assert_same(model_files.state_dict(reference.take_weights(model)), expected)


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


@pytest.mark.parametrize(
    "damage",
    [
        {"weight_map": {"other": "model-00001-of-00003.safetensors"}},
        {"weight_map": {"x": "model.safetensors.index.json"}},  # itself
        {"weight_map": ["model-00001-of-00003.safetensors"]},
        {"weight_map": {"x": 1}},
        {},
    ],
)
def test_a_damaged_index(parts, damage):
    parts.write_text(json.dumps(damage))
    with pytest.raises(InputError, match=r"index\.json"):
        open_weights(parts.parent)


@pytest.mark.parametrize("name", ["../{}", "{0}", "./{}", "a/../{}", "..safetensors/{}"])
def test_an_index_that_leaves_its_folder(parts, name):
    values = json.loads(parts.read_text())
    values["weight_map"] = {
        tensor: name.format(parts.parent / part if name == "{0}" else part)
        for tensor, part in values["weight_map"].items()
    }
    parts.write_text(json.dumps(values))
    with pytest.raises(InputError, match="an index with plain names of files"):
        open_weights(parts.parent)


def test_a_file_of_the_folder(tmp_path, tensors):
    path = write(tmp_path, tensors) / "model.safetensors"
    assert open_weights(path).path == str(path)
    with pytest.raises(InputError, match="not there"):
        open_weights(tmp_path / "other.safetensors")
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"without a config\.json"):
        open_weights(path)


def test_a_pickle_without_torch(tmp_path, monkeypatch):
    """The loader that takes tensors only is torch's; without it nothing is unpickled."""
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "config.json").write_text(json.dumps(model_files.hugging_face_config()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(InputError, match="a pickle, which can run code"):
        open_weights(tmp_path)


def test_a_pickle_with_a_torch_whose_loader_runs_code(tmp_path, monkeypatch):
    old = types.SimpleNamespace(__version__="2.5.1+cpu")  # has no `load` to be called
    monkeypatch.setitem(sys.modules, "torch", old)
    model_files.write_hugging_face(tmp_path, {})
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"with PyTorch 2\.5\.1\+cpu\n.*PyTorch 2\.10 or later"):
        open_weights(tmp_path)
