"""Checkpoints of public kinds, each read, or refused with the names to make."""

import functools
import json
import pickle
import re
import sys
import types

import model_files
import numpy as np
import pytest
import small
from tf2_files import NEWER, OLDER, encoder_places, write_tf2

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.cli import convert
from bert_tf.errors import InputError

ENCODER, PRETRAINING, CLASSIFIER = "BertModel", "BertForPreTraining", "classifier"
WORDS = "embeddings.word_embeddings.weight"


def encoder(tensors) -> dict:
    return {name: value for name, value in tensors.items() if name.startswith("bert/")}


def behind(prefix: str, tensors, *, head: str = "", bert: str = "bert/") -> dict:
    """Names with `prefix` in place of the encoder's `bert`, and `head` before those of heads."""
    return {
        (prefix + name.removeprefix(bert) if name.startswith(bert) else head + name): value
        for name, value in tensors.items()
    }


def with_slots(tensors) -> dict:
    """With Adam's moments, the step and a setting of the loss."""
    moments = {
        f"{name}/{moment}": np.zeros_like(value)
        for name, value in tensors.items()
        for moment in ("adam_m", "adam_v")
    }
    return tensors | moments | {"global_step": np.int64(7)}


# ---------------------------------------------------------------------------- TF1


@pytest.mark.parametrize("kind", ["pretraining", "classifier", "span"])
@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("bert/", ""),  # the original's releases, and what is fine-tuned from them
        ("", ""),
        ("module/bert/", "module/"),  # a module of TF-Hub
        ("module/bert/", ""),  # and a head on it
        ("module_1/bert/", ""),
        ("module/", ""),
        ("model/bert/", "model/"),
    ],
)
def test_tf1(tmp_path, kind, prefix, head):
    tensors = model_files.tensors_of(kind)
    stored = with_slots(behind(prefix, tensors, head=head))
    weights = open_weights(model_files.write_tf1(tmp_path, stored))
    model_files.assert_same({n: weights.read(n) for n in weights.names}, tensors)
    assert len(weights.slots) == 2 * len(tensors) + 1
    model = make_model("embeddings", small.CONFIG)
    assert not load_checkpoint(model, weights).missing


def test_what_is_left_over_is_told(tmp_path, tensors, capsys):
    """It belongs to no layer: the report, inspect and convert name it."""
    others = {"model/loss/scale": np.ones(3, np.float32), "extra/x": np.ones(3, np.float32)}
    path = model_files.write_tf1(tmp_path / "a", behind("model/bert/", tensors) | others)
    report = load_checkpoint(make_model("pretraining", small.CONFIG), path)
    assert report.unused == ["extra/x", "loss/scale"]
    assert "  loss/scale [3]" in convert.description(open_weights(path))
    for written, says in (
        ("bert_tf", "kept, though of no layer here"),
        ("hugging_face", "left out"),
    ):
        options = convert.Convert(from_=path, to=f"{tmp_path}/{written}", format=written)
        convert.main(options)
        assert f"  {says}: loss/scale" in capsys.readouterr().out


# ---------------------------------------------------------------------------- TF2


@pytest.mark.parametrize(("root", "attention"), [("encoder", OLDER), ("model/encoder", NEWER)])
def test_tf2(tmp_path, tensors, root, attention):
    path = write_tf2(tmp_path, tensors, encoder_places(root, attention=attention))
    model_files.assert_same(model_files.all_tensors(open_weights(path)), encoder(tensors))


@pytest.mark.parametrize("is_numbered", [True, False])
def test_two_encoders_of_tf2(tmp_path, tensors, is_numbered):
    places = encoder_places("encoder") | encoder_places("model", is_numbered=is_numbered)
    with pytest.raises(InputError, match=r"both encoder/.*/embeddings and model/.*/embeddings"):
        open_weights(write_tf2(tmp_path, tensors, places))


# ---------------------------------------------------------------------------- PyTorch's names


def older(names: dict) -> dict:
    """Names of pytorch-pretrained-bert."""
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in names.items()
    }


def of_nvidia(names: dict) -> dict:
    """Names of DeepLearningExamples, whose layers with an activation are `dense_act`."""
    layers = r"(intermediate|pooler|transform)\.dense\."
    return {re.sub(layers, r"\1.dense_act.", name): value for name, value in names.items()}


TORCH = functools.partial(behind, bert="bert.")
LAYOUTS = {
    "of Hugging Face": dict,
    "without bert": functools.partial(TORCH, ""),
    "pytorch-pretrained-bert": older,
    "NVIDIA": of_nvidia,
    "DataParallel": functools.partial(TORCH, "module.bert.", head="module."),
    "DataParallel of the encoder": functools.partial(TORCH, "module."),
    "DataParallel of NVIDIA": lambda names: TORCH("module.bert.", of_nvidia(names), head="module."),
    "Lightning": functools.partial(TORCH, "model.bert.", head="model."),
    "Lightning with its own head": functools.partial(TORCH, "model.bert."),
    "Lightning of the encoder": functools.partial(TORCH, "model."),
    "Lightning within DataParallel": functools.partial(
        TORCH, "module.model.bert.", head="module.model."
    ),
}
HEADS = {
    "BertModel": lambda: encoder(model_files.tensors_of()),
    "BertForPreTraining": model_files.tensors_of,
    "BertForMaskedLM": lambda: {
        n: v
        for n, v in model_files.tensors_of().items()
        if "seq_rel" not in n and "pooler" not in n
    },
    "BertForSequenceClassification": lambda: model_files.tensors_of("classifier"),
    "BertForQuestionAnswering": lambda: model_files.tensors_of("span"),
}


class Tensor:
    """What is asked of one of torch."""

    def __init__(self, value: np.ndarray):
        self.value, self.shape = value, value.shape

    def element_size(self) -> int:
        return self.value.itemsize

    def is_floating_point(self) -> bool:
        return True

    def float(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self.value


def loaded(content, map_location, weights_only):
    """What torch.load gives, here of a pickle that this module wrote."""
    assert weights_only
    return pickle.load(content)


@pytest.fixture
def torch(monkeypatch):
    """torch, as far as a pickle is read by it."""
    module = types.SimpleNamespace(__version__="2.10.0", load=loaded)
    monkeypatch.setitem(sys.modules, "torch", module)


def write(folder, stored, kind: str):
    """A folder of Hugging Face's with these tensors in a file, several or a pickle."""
    model_files.write_hugging_face(folder, stored)
    file = folder / "model.safetensors"
    if kind == "pickle":
        file.unlink()
        content = {name: Tensor(value) for name, value in stored.items()}
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    elif kind == "parts":
        part = folder / "model-00001-of-00001.safetensors"
        file.rename(part)
        index = {"weight_map": dict.fromkeys(stored, part.name)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("kind", ["safetensors", "parts", "pickle"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_of_torch(tmp_path, layout, head, kind):
    """sentence-transformers writes a BertModel without bert."""
    tensors = HEADS[head]()
    stored = LAYOUTS[layout](model_files.state_dict(tensors))
    weights = open_weights(write(tmp_path, stored, kind))
    model_files.assert_same(model_files.all_tensors(weights), tensors)


@pytest.mark.parametrize("layout", ["without bert", "DataParallel", "Lightning"])
def test_copies_within_a_wrapper(tmp_path, tensors, layout):
    """The tied table and the positions' numbers are copies behind any prefix."""
    theirs = model_files.state_dict(tensors)
    theirs["cls.predictions.decoder.weight"] = theirs[f"bert.{WORDS}"] + 0
    theirs["bert.embeddings.position_ids"] = np.arange(13)[None]
    stored = LAYOUTS[layout](theirs)
    copies = {name for name in stored if "decoder" in name or "position_ids" in name}
    weights = open_weights(model_files.write_hugging_face(tmp_path / "a", stored))
    assert {*weights.ignored} == copies
    (table,) = (name for name in stored if name.endswith(WORDS))
    del stored[table]
    weights = open_weights(model_files.write_hugging_face(tmp_path / "b", stored))
    model_files.assert_same(model_files.all_tensors(weights), tensors)


@pytest.mark.parametrize(
    ("prefixes", "says"),
    [
        (("decoder.bert.", "encoder."), "both decoder.bert.{0} and encoder.{0}"),  # EncoderDecoder
        (("doc_model.bert.", "query_model.bert."), "both doc_model.bert.{0} and query_model"),
        (("bert.", "teacher.bert."), "both bert.{0} and teacher.bert.{0}"),
        (("bert.", ""), "both bert.embeddings.LayerNorm.bias and embeddings.LayerNorm.bias"),
        (("bert.", "model.bert."), "LayerNorm.bias and model.bert.embeddings.LayerNorm.bias"),
        (("0.auto_model.",), "begin with 0.auto_model., such as 0.auto_model.{0}"),
        (("bert_model.",), "have bert. in place of bert_model."),
    ],
)
def test_refused_prefixes(tmp_path, tensors, prefixes, says):
    theirs = model_files.state_dict(encoder(tensors))
    stored = {}
    for prefix in prefixes:
        stored |= TORCH(prefix, theirs)
    with pytest.raises(InputError) as caught:
        open_weights(model_files.write_hugging_face(tmp_path, stored))
    assert says.format(WORDS) in str(caught.value)
    assert f"{tmp_path}/model.safetensors" in caught.value.received
    slashed = {name.replace(".", "/").removesuffix("/weight"): v for name, v in stored.items()}
    with pytest.raises(InputError, match=r"with both|names begin with"):
        open_weights(model_files.write_tf1(tmp_path / "tf1", slashed))


def test_a_weight_within_and_without_the_wrapper(tmp_path, tensors):
    theirs = LAYOUTS["DataParallel"](model_files.state_dict(tensors))
    theirs["cls.predictions.bias"] = theirs["module.cls.predictions.bias"] + 1
    with pytest.raises(InputError, match=r"both (module\.)?cls\.predictions\.bias and"):
        open_weights(model_files.write_hugging_face(tmp_path, theirs))


MEGATRON = (
    "language_model.embedding.word_embeddings.weight",
    "language_model.transformer.layers.0.input_layernorm.weight",
)
KERAS_HUB = ("token_embedding.embeddings", "transformer_layer_0._self_attention_layer.query.kernel")


@pytest.mark.parametrize("names", [MEGATRON, KERAS_HUB])
def test_names_of_other_programs(tmp_path, names):
    """Of layers that have no name here nothing is guessed; the message has both names."""
    stored = {name: np.ones([2, 2], np.float32) for name in names}
    weights = open_weights(model_files.write_hugging_face(tmp_path, stored))
    with pytest.raises(InputError, match="such as bert/") as caught:
        load_checkpoint(make_model("embeddings", small.CONFIG), weights)
    assert all(name.replace(".", "/") in caught.value.received for name in names)
    assert "rename weights of the same layers" in caught.value.remedy


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("entry", "others"),
    [
        ("state_dict", {"epoch": 3, "callbacks": {}}),  # Lightning
        ("model", {"optimizer": {"state": {}}}),  # NVIDIA
        ("module", {"optimizer": None}),  # DeepSpeed
    ],
)
def test_pickles_with_more_than_tensors(tmp_path, tensors, entry, others):
    (tmp_path / "config.json").write_text(json.dumps(model_files.hugging_face_config()))
    theirs = {n: Tensor(v) for n, v in model_files.state_dict(tensors).items()}
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(pickle.dumps(others | {entry: theirs}))
    with pytest.raises(InputError, match="tensors by name alone") as caught:
        open_weights(tmp_path)
    assert f"weights_only=True)['{entry}']" in caught.value.remedy


# ---------------------------------------------------------------------------- other files


@pytest.mark.parametrize(
    ("name", "says", "remedy"),
    [
        ("tf_model.h5", "Hugging Face's weights for TensorFlow", "from_tf=True"),
        ("flax_model.msgpack", "for Flax", "from_flax=True"),
        ("model.onnx", "ONNX", "from which it was exported"),
        ("model.weights.h5", "KerasHub", "keras_hub"),
        ("saved_model.pb", "exported graph", "variables/variables"),
        ("epoch=3.ckpt", "PyTorch", "state_dict"),
        ("mp_rank_00_model_states.pt", "PyTorch", "state_dict"),
    ],
)
def test_files_of_other_programs(tmp_path, name, says, remedy):
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "config.json").write_text("{}")
    paths = [tmp_path] if name.endswith("weights.h5") else [tmp_path, tmp_path / name]
    for path in paths:
        with pytest.raises(InputError, match=says) as caught:
            open_weights(path)
        assert name in caught.value.received
        assert remedy in caught.value.remedy
        assert "model.safetensors" in caught.value.expected


def test_a_missing_file_is_of_no_kind(tmp_path):
    for path in (tmp_path / "bert_model.ckpt", tmp_path / "tf_model.h5", tmp_path):
        with pytest.raises(InputError, match="where there is no checkpoint"):
            open_weights(path)
