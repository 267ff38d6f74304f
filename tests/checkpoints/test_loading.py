"""Opening, and loading into models."""

import os
import pathlib
import zipfile

import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from model_files import assert_same
from model_files import write_bundle as write

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.checkpoints.tf1 import GLOBAL_STEP, RUN_SETTINGS
from bert_tf.errors import InputError

CONFIG = small.CONFIG
SHAPES = reference.variable_shapes(CONFIG)
DATA = ".data-00000-of-00001"


@pytest.fixture
def model():
    return make_model("pretraining", CONFIG)


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["model.zip", "bert_model.ckpt", "weights"])
def test_an_archive(tmp_path, name):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("bert_config.json", "{}")
    with pytest.raises(InputError, match="an archive") as caught:
        open_weights(str(tmp_path / name))
    assert "unpack" in caught.value.remedy


@pytest.mark.parametrize("path", ["gs://no-such-bucket-of-ours/model", "nothing://a/b.ckpt"])
def test_a_remote_path_that_cannot_be_read(path, monkeypatch):
    def unreachable(*args, **kwargs):
        raise tf.errors.UnavailableError(None, None, "no route to the host")

    if path.startswith("gs"):  # tests do not wait for a network
        monkeypatch.setattr(tf.io.gfile, "exists", unreachable)
    with pytest.raises(InputError, match="cannot be read") as caught:
        open_weights(path)
    assert path in caught.value.received


# ---------------------------------------------------------------------------- loading


def test_load_under_another_seed(model, tensors, tmp_path):
    prefix = write(tmp_path / "a.ckpt", tensors)
    report = load_checkpoint(model, prefix)
    assert_same(reference.take_weights(model), tensors)
    assert report.path == prefix
    assert str(report) == (
        f"{prefix}: {len(SHAPES)} variables loaded\n  missing (kept fresh): 0\n  unused: 0\n"
        "  optimizer state, not loaded: 0"
    )


def test_a_missing_head_keeps_its_fresh_weights(model, tensors, tmp_path):
    before = reference.take_weights(model)
    there = {name: value for name, value in tensors.items() if not name.startswith("cls/seq")}
    others = {
        "cls/squad/output_bias": np.zeros(2, np.float32),
        "bert/pooler/dense/bias/adam_m": np.ones(3, np.float32),
        "AdamWeightDecayOptimizer/x": np.float32(1),
        GLOBAL_STEP: np.int64(5),
        RUN_SETTINGS: tf.constant("{}"),
    }
    report = load_checkpoint(model, write(tmp_path / "a.ckpt", there | others))
    missing = ["cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights"]
    assert report.missing == missing
    assert report.unused == ["cls/squad/output_bias"]
    assert set(report.slots) == others.keys() - {"cls/squad/output_bias"}
    assert_same(reference.take_weights(model), there | {name: before[name] for name in missing})
    assert "missing (kept fresh): 2\n    cls/seq_relationship/output_bias\n" in str(report)
    with pytest.raises(InputError, match="a model without a next-sentence head; it has cls/squad"):
        load_checkpoint(model, tmp_path / "a.ckpt", required="bert/|cls/")


def refused(model, prefix, message: str) -> InputError:
    """Loading raises, and the model is as before."""
    before = reference.take_weights(model)
    with pytest.raises(InputError, match=message) as caught:
        load_checkpoint(model, prefix)
    assert_same(reference.take_weights(model), before)
    assert str(prefix) in caught.value.received
    return caught.value


def test_a_missing_weight_of_the_encoder(model, tensors, tmp_path):
    name = "bert/encoder/layer_1/output/dense/bias"
    there = {n: value for n, value in tensors.items() if n != name}
    refused(model, write(tmp_path / "a.ckpt", there), f"lacks 1 .*such as {name}\n")


def test_another_shape(model, tensors, tmp_path):
    name = "bert/embeddings/word_embeddings"
    tensors[name] = np.zeros([43, small.CONFIG.hidden_size], np.float32)
    error = refused(model, write(tmp_path / "a.ckpt", tensors), rf"{name} has the shape \(43, 22\)")
    assert error.expected == "(41, 22), as the configuration says"


@pytest.mark.parametrize(
    ("required", "says"),
    [
        (r"bert/", "a model without a BERT encoder; it has distilbert/x\n"),
        (r"nothing/", "lacks all of the model's weights, such as bert/embeddings"),
    ],
)
def test_nothing_matches(model, tmp_path, required, says):
    prefix = write(tmp_path / "a.ckpt", {"distilbert/x": np.float32(1)})
    with pytest.raises(InputError, match=says):
        load_checkpoint(model, prefix, required=required)


@pytest.mark.parametrize(
    ("scope", "part"),
    [
        ("bert/pooler/", "pooler"),
        ("cls/predictions/", "masked-LM head"),
        ("cls/seq_relationship/", "next-sentence head"),
    ],
)
def test_a_missing_part_is_named(model, tensors, tmp_path, scope, part):
    """The reason in the user's words; what is missing of a part that is there is listed."""
    there = {name: value for name, value in tensors.items() if not name.startswith(scope)}
    with pytest.raises(InputError, match=f"a model without a {part}\n"):
        load_checkpoint(model, write(tmp_path / "a.ckpt", there), required="")
    name = next(name for name in tensors if name.startswith(scope))
    there = {n: value for n, value in tensors.items() if n != name}
    with pytest.raises(InputError, match=f"lacks 1 .*such as {name}\n"):
        load_checkpoint(model, write(tmp_path / "a.ckpt", there), required="")


@pytest.mark.parametrize("keep", [0, 1, 1000, -1])
def test_cut_off_data(model, tensors, tmp_path, keep):
    prefix = write(tmp_path / "a.ckpt", tensors)
    data = pathlib.Path(prefix + DATA)
    data.write_bytes(data.read_bytes()[:keep])
    refused(model, prefix, "which cannot be read")


def test_damaged_data(model, tensors, tmp_path):
    """One bit of the last tensor: the others are read by then."""
    prefix = write(tmp_path / "a.ckpt", tensors)
    data = bytearray(pathlib.Path(prefix + DATA).read_bytes())
    data[-1] ^= 1
    pathlib.Path(prefix + DATA).write_bytes(data)
    refused(model, prefix, "which cannot be read")


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"text"])
def test_damaged_index(model, tensors, tmp_path, damage):
    prefix = write(tmp_path / "a.ckpt", tensors)
    index = pathlib.Path(f"{prefix}.index")
    index.write_bytes(damage(index.read_bytes()))
    refused(model, prefix, "which cannot be read")


def test_missing_data_file(model, tensors, tmp_path):
    prefix = write(tmp_path / "a.ckpt", tensors)
    pathlib.Path(prefix + DATA).unlink()
    refused(model, prefix, "which cannot be read")


@pytest.mark.parametrize(
    "values", [np.array([b"x"] * 22), np.arange(22), np.ones(22, np.complex64)]
)
def test_weights_that_are_no_numbers_of_floating_point(tmp_path, tensors, values):
    name = "bert/embeddings/LayerNorm/gamma"
    model = make_model("pretraining", small.CONFIG)
    before = model.get_weights()
    with pytest.raises(InputError, match=f"whose {name} has values of the type"):
        load_checkpoint(model, write(tmp_path / "a", tensors | {name: values}))
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


FOLDERS = {  # of each format, and a file in it
    "hugging_face": ("model.safetensors", "pytorch_model.bin", "config.json", "tokenizer.json",
                     "model.safetensors.index.json", "tokenizer_config.json", "vocab.txt",
                     "added_tokens.json", "special_tokens_map.json", "sentence_bert_config.json"),
    "bert_tf": ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "checkpoint",
                "bert_config.json", "model_facts.json", "vocab.txt"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("to_format", "name"), [(f, name) for f, names in FOLDERS.items() for name in names]
)
def test_pipes_are_not_waited_for(tmp_path, tensors, to_format, name):
    """Nor are they sockets or devices; a process that writes into it may never come."""
    folder = tmp_path / "model"
    save_weights(str(folder), model_files.weights_of(tensors), to_format=to_format)
    if name == "pytorch_model.bin" or name.endswith(".index.json"):
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="a pipe, a socket or a device") as caught:
        open_weights(folder)
    assert str(folder / name) in caught.value.received


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5", "x.safetensors"])
def test_a_pipe_that_is_named(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"a pipe, a socket or a device|without a config\.json"):
        open_weights(tmp_path / name)
