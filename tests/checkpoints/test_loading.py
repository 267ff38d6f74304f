"""Opening, and loading into models."""

import os
import pathlib

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


def test_another_shape(model, tensors, tmp_path):
    name = "bert/embeddings/word_embeddings"
    tensors[name] = np.zeros([43, small.CONFIG.hidden_size], np.float32)
    error = refused(model, write(tmp_path / "a.ckpt", tensors), rf"{name} has the shape \(43, 22\)")
    assert error.expected == "(41, 22), as the configuration says"


def test_nothing_matches(model, tmp_path):
    prefix = write(tmp_path / "a.ckpt", {"distilbert/x": np.float32(1)})
    refused(model, prefix, "a model without a BERT encoder; it has distilbert/x\n")
    with pytest.raises(InputError, match="lacks all of the model's weights, such as bert/embedd"):
        load_checkpoint(model, prefix, required="nothing/")


@pytest.mark.parametrize(
    ("scope", "part"),
    [
        ("bert/encoder/", None),
        ("bert/pooler/", "pooler"),
        ("cls/predictions/", "masked-LM head"),
        ("cls/seq_relationship/", "next-sentence head"),
    ],
)
def test_a_missing_part_is_named(model, tensors, tmp_path, scope, part):
    """The reason in the user's words; what is missing of a part that is there is listed."""
    there = {name: value for name, value in tensors.items() if not name.startswith(scope)}
    says = f"a model without a {part}\n" if part else "lacks 32 of the model's weights, such as "
    with pytest.raises(InputError, match=says):
        load_checkpoint(model, write(tmp_path / "a.ckpt", there), required="")
    name = next(name for name in tensors if name.startswith(scope))
    there = {n: value for n, value in tensors.items() if n != name}
    with pytest.raises(InputError, match=f"lacks 1 .*such as {name}\n"):
        load_checkpoint(model, write(tmp_path / "a.ckpt", there), required="")


DAMAGE = {
    **{f"{keep} bytes": (DATA, lambda data, keep=keep: data[:keep]) for keep in (0, 1000, -1)},
    # The last tensor: the others are read by then.
    "one bit": (DATA, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "no index": (".index", lambda data: b""),
    "half an index": (".index", lambda data: data[:-9]),
    "text": (".index", lambda data: b"text"),
    "no data": (DATA, None),
}


@pytest.mark.parametrize(("suffix", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_files(model, tensors, tmp_path, suffix, damage):
    prefix = write(tmp_path / "a.ckpt", tensors)
    path = pathlib.Path(prefix + suffix)
    content = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(content))
    refused(model, prefix, "which cannot be read")


@pytest.mark.parametrize(
    "values", [np.array([b"x"] * 22), np.arange(22), np.ones(22, np.complex64)]
)
def test_weights_that_are_no_numbers_of_floating_point(model, tmp_path, tensors, values):
    name = "bert/embeddings/LayerNorm/gamma"
    prefix = write(tmp_path / "a", tensors | {name: values})
    refused(model, prefix, f"whose {name} has values of the type")


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
