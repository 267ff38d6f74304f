"""Hugging Face's folders: names, configuration, tokenizer, and every kind of file of weights."""

import dataclasses
import json
import pathlib
import pickle
import struct
import sys
import types

import model_files
import numpy as np
import pytest
import safetensors.numpy
import small

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints import hugging_face as hf
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError

ERF_CONFIG = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf")


def write(folder, tensors, **given):
    return model_files.write_hugging_face(folder, model_files.state_dict(tensors), **given)


# ---------------------------------------------------------------------------- names


def test_names_are_a_bijection():
    """Over every name of the original, and those written out by hand."""
    names = model_files.hugging_face_names()
    heads = {n for kind in model_files.KINDS for n in model_files.tensors_of(kind)}
    assert names.keys() == heads
    assert len(set(names.values())) == len(names)
    for ours, theirs in names.items():
        assert hf.hugging_face_name(ours) == theirs
        assert hf.original_name(theirs) == ours
    for name in ("other/kernel", "cls/other", "step"):
        assert hf.hugging_face_name(name) is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("bert.embeddings.LayerNorm.gamma", "bert/embeddings/LayerNorm/gamma"),
        ("bert.encoder.layer.11.output.LayerNorm.beta",
         "bert/encoder/layer_11/output/LayerNorm/beta"),
        ("bert.encoder.layer.10.attention.self.key.weight",
         "bert/encoder/layer_10/attention/self/key/kernel"),
        *((theirs, None) for theirs in ("cls.predictions.decoder.weight", "lm_head.weight",
                                        "encoder.layer.0.output.dense.bias",
                                        "distilbert.transformer.layer.0.ffn.lin1.weight")),
    ],
)  # fmt: skip
def test_other_names_of_theirs(theirs, ours):
    assert hf.original_name(theirs) == ours


# ---------------------------------------------------------------------------- weights


def with_copies(tensors) -> dict:
    """What transformers saves beside them: the tied table and bias once more."""
    theirs = model_files.state_dict(tensors)
    theirs["cls.predictions.decoder.weight"] = theirs["bert.embeddings.word_embeddings.weight"] + 0
    return theirs | {"cls.predictions.decoder.bias": theirs["cls.predictions.bias"] + 0}


def test_older_names_and_copies(tmp_path, tensors):
    """gamma and beta, no prefix, a constant; the bias under its newer name alone."""
    theirs = with_copies(tensors)
    for name in [n for n in theirs if "LayerNorm" in n]:
        older = name.replace("weight", "gamma").replace("bias", "beta")
        theirs[older] = theirs.pop(name)
    theirs = {name.removeprefix("bert."): value for name, value in theirs.items()}
    theirs["embeddings.position_ids"] = np.arange(13)[None]
    weights = open_weights(model_files.write_hugging_face(tmp_path / "a", theirs))
    model_files.assert_same(model_files.all_tensors(weights), tensors)
    copies = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert set(weights.ignored) == {"embeddings.position_ids", *copies}
    del theirs["cls.predictions.bias"]
    weights = open_weights(model_files.write_hugging_face(tmp_path / "b", theirs))
    model_files.assert_same(model_files.all_tensors(weights), tensors)


@pytest.mark.parametrize("prefix", ["bert.", ""])
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_tied_tensors_that_are_stored_once(tmp_path, tensors, prefix, suffix):
    """Under either name; the table of a masked-LM head is that of the encoder."""
    theirs = with_copies(tensors)
    table, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    for left_out in ((table,), (table, bias), ("cls.predictions.decoder.weight",)):
        stored = {
            prefix + n.removeprefix("bert.") if n.startswith("bert.") else n: v
            for n, v in theirs.items()
            if n not in left_out
        }
        folder = model_files.write_hugging_face(tmp_path / f"{len(left_out)}{left_out[0]}", stored)
        if suffix == "bin":
            torch = pytest.importorskip("torch", reason="installed with the extra torch")
            (folder / "model.safetensors").unlink()
            values = {name: torch.from_numpy(value) for name, value in stored.items()}
            torch.save(values, folder / "pytorch_model.bin")
        weights = open_weights(folder)
        model_files.assert_same(model_files.all_tensors(weights), tensors)
        assert len(weights.ignored) == 2 - len(left_out)
        model = make_model("pretraining", ERF_CONFIG)
        assert not load_checkpoint(model, weights, required="").missing


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_an_untied_decoder(tmp_path, tensors, name):
    theirs = with_copies(tensors)
    theirs[f"cls.predictions.decoder.{name}"].flat[-1] += 1
    with pytest.raises(InputError, match=rf"decoder\.{name} that differs from"):
        open_weights(model_files.write_hugging_face(tmp_path, theirs))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("bert.pooler.dense.bias", "pooler.dense.bias"),
        ("bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"),
    ],
)
def test_a_weight_under_two_names(tmp_path, tensors, name, other):
    theirs = model_files.state_dict(tensors)
    theirs[other] = theirs[name] + 1
    with pytest.raises(InputError, match=f"both ({name} and {other}|{other} and {name})"):
        open_weights(model_files.write_hugging_face(tmp_path, theirs))


# ---------------------------------------------------------------------------- vectors of texts


def modules(*types: str, pooling: str = "1_Pooling") -> dict[str, str]:
    """A modules.json of sentence-transformers."""
    paths = {"Transformer": "", "Pooling": pooling}
    entries = [
        {"idx": i, "name": str(i), "path": paths.get(kind, f"{i}_{kind}"),
         "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(types)
    ]  # fmt: skip
    return {"modules.json": json.dumps(entries)}


def modes(*names: str) -> dict[str, bool]:
    """A configuration of its pooling."""
    every = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "lasttoken")
    return {"word_embedding_dimension": 22} | {f"pooling_mode_{n}": n in names for n in every}


BASIC, MEAN = ("Transformer", "Pooling"), modes("mean_tokens")


@pytest.mark.parametrize(
    ("files", "is_mean"),
    [
        (modules(*BASIC) | {"1_Pooling/config.json": MEAN}, True),
        (modules(*BASIC, "Normalize", "Dropout") | {"1_Pooling/config.json": MEAN}, True),
        (modules(*BASIC, pooling="pool") | {"pool/config.json": modes("cls_token")}, False),
        (modules(*BASIC) | {"1_Pooling/config.json": {"pooling_mode": "mean"}}, True),
        (modules(*BASIC) | {"1_Pooling/config.json": {"pooling_mode": "cls"}}, False),
        # The folder of this name belongs to no module.
        (modules(*BASIC, pooling="p") | {"p/config.json": {}, "1_Pooling/config.json": modes()},
         True),
        (modules("BERT"), True),
    ],
)  # fmt: skip
def test_vectors_that_are_computed(tmp_path, tensors, caplog, files, is_mean):
    weights = open_weights(write(tmp_path, tensors, files=files))
    model_files.assert_same(model_files.all_tensors(weights), tensors)
    assert ("vectors are those of [CLS]" in caplog.text) != is_mean


@pytest.mark.parametrize(
    ("files", "says"),
    [
        *((modules(*BASIC, kind), f"2_{kind}/config.json with the module {kind}\n") for kind in (
            "Dense", "LSTM", "CNN", "LayerNorm", "WeightedLayerPooling", "WordWeights")),
        (modules("WordEmbeddings", "Pooling"), "with the module WordEmbeddings\n"),
        *((modules(*BASIC) | {"1_Pooling/config.json": modes(*names)}, says) for names, says in (
            (("mean_tokens", "max_tokens"), "1_Pooling/config.json with the module"),
            (("mean_tokens", "cls_token"), "of mean and cls"),
            (("max_tokens",), "of max\n"),
            (("lasttoken",), "of lasttoken\n"),
            (("mean_sqrt_len_tokens",), "of mean_sqrt_len\n"))),
        # Mean is on unless it is switched off.
        (modules(*BASIC) | {"1_Pooling/config.json": {"pooling_mode_cls_token": True}},
         "of mean and cls"),
        (modules(*BASIC) | {"1_Pooling/config.json": {"pooling_mode": ["max", "mean"]}},
         "of max and mean"),
        (modules(*BASIC) | {"1_Pooling/config.json": {"pooling_mode": 5}}, "Pooling of 5\n"),
        (modules(*BASIC, pooling="pool") | {"pool/config.json": modes("max_tokens")},
         "pool/config.json with the module Pooling of max\n"),
        ({"1_Pooling/config.json": modes("mean_tokens", "cls_token")}, "of mean and cls"),
        (modules(*BASIC), "1_Pooling/config.json"),
    ],
)  # fmt: skip
def test_vectors_that_are_not_computed(tmp_path, tensors, files, says):
    """The encoder alone is read by the name of its file."""
    folder = write(tmp_path, tensors, files={"1_Pooling/config.json": MEAN} | files)
    if says == "1_Pooling/config.json":
        (folder / says).unlink()
    with pytest.raises(InputError, match=says):
        open_weights(folder)
    weights = open_weights(folder / "model.safetensors")
    model_files.assert_same(model_files.all_tensors(weights), tensors)


# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [(None, "gelu_erf"), ("gelu_python", "gelu_erf"), ("gelu_pytorch_tanh", "gelu")],
)
def test_defaults_and_activations_of_theirs(theirs, ours):
    """What a config.json leaves out is not all as in the original."""
    values = {"hidden_act": theirs} if theirs else {}
    config = BertConfig.from_hugging_face(values, source="config.json")
    assert config == BertConfig(vocab_size=30522, type_vocab_size=2, hidden_act=ours)


@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
def test_configuration_there_and_back(act):
    config = dataclasses.replace(
        small.CONFIG, hidden_act=act, layer_norm_eps=1e-5, hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.2, initializer_range=0.03,
    )  # fmt: skip
    values = json.loads(json.dumps(hf.write_config(config, ModelMetadata(), {})))
    assert values["hidden_act"] == {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(act, act)
    assert values["model_type"] == "bert"
    assert "id2label" not in values
    assert BertConfig.from_hugging_face(values, source="config.json") == config


@pytest.mark.parametrize(
    ("kind", "left_out", "architecture"),
    [
        ("pretraining", "none", "BertForPreTraining"),
        ("pretraining", "cls/seq", "BertForMaskedLM"),
        ("pretraining", "cls/pred", "BertForNextSentencePrediction"),
        ("pretraining", "cls/", "BertModel"),
        ("classifier", "none", "BertForSequenceClassification"),
        ("classifier", "bert/pooler", "BertForTokenClassification"),
        ("span", "none", "BertForQuestionAnswering"),
    ],
)
def test_architecture(kind, left_out, architecture):
    tensors = model_files.tensors_of(kind)
    assert hf.architecture_of(n for n in tensors if not n.startswith(left_out)) == architecture


def test_labels_that_nobody_named():
    """transformers makes a head of as many classes as there are labels: 2, if it is not told."""
    shapes = {"output_weights": (model_files.NUM_CLASSES, 22)}
    for labels in (None, ("a", "b")):
        values = hf.write_config(small.CONFIG, ModelMetadata(labels=labels), shapes)
        assert values["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}


def test_what_is_known_of_a_model(tmp_path):
    """transformers has a name for any number of labels; ours are in a file beside, as elsewhere."""
    metadata = ModelMetadata(
        do_lower_case=True, architecture="BertForSequenceClassification", labels=("no", "ja", "ä"),
        null_score_diff_threshold=0.5, task="multi_label", pairs=True, num_choices=1,
        max_seq_length=9, doc_stride=3, max_query_length=2, version_2_with_negative=False,
    )  # fmt: skip
    weights = model_files.weights_of(model_files.tensors_of("classifier"), metadata=metadata)
    folder = tmp_path / "theirs"
    theirs = open_weights(save_weights(weights, str(folder), format="hugging_face"))
    ours = open_weights(save_weights(theirs, f"{tmp_path}/ours", format="bert_tf"))
    assert theirs.metadata == ours.metadata == metadata
    values = json.loads((folder / "config.json").read_text())
    assert values["problem_type"] == "multi_label_classification"
    assert values["label2id"] == {"no": 0, "ja": 1, "ä": 2}
    (folder / "config.json").write_text(json.dumps(values | {"architectures": ["BertModel"]}))
    assert open_weights(folder).metadata.task is None  # transformers has made another model of it
    (folder / "config.json").write_text(json.dumps(values | {"id2label": {"0": "only"}}))
    assert open_weights(folder).metadata.labels == ("only",)
    (folder / "model_facts.json").unlink()
    metadata = open_weights(folder).metadata
    assert (metadata.task, metadata.doc_stride) == ("multi_label", None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'"),
        *(({"is_decoder": value}, f"is_decoder {value!r}") for value in (True, "false")),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_act": "silu"}, "'silu'"),
        ({"architectures": 7}, "architectures 7"),
        ({"architectures": "BertModel"}, "architectures 'BertModel'"),
        ({"architectures": [7]}, r"architectures\[0\] 7"),
        ({"problem_type": ["x"]}, r"problem_type \['x'\]"),
        *(({"id2label": x}, "id2label") for x in (0, {"1": "a"}, ["a"], {"0": "a", "2": "b"},
                                                  {"0": None, "1": "b"}, {"0": ["a"], "1": "b"})),
        ({"id2label": {"0": "a", "1": "a"}}, r"labels \('a', 'a'\)"),
        ({"tokenizer_class": 3}, "tokenizer_class 3"),
    ],
)  # fmt: skip
def test_refused_configurations(tmp_path, changes, says):
    folder = write(tmp_path, {}, config=model_files.hugging_face_config(**changes))
    with pytest.raises(InputError, match=says) as caught:
        open_weights(folder)
    assert f"{tmp_path}/config.json" in caught.value.received


def test_a_causal_model_is_not_written(tmp_path):
    """In their files it would be BERT, which reads the same weights in another way."""
    config = dataclasses.replace(small.CONFIG, attention="causal")
    with pytest.raises(InputError, match="with attention causal"):
        hf.texts_of(model_files.weights_of({}, config=config))


# ---------------------------------------------------------------------------- files of tensors


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
        ({"other": "model-00001-of-00003.safetensors"}, "cannot be read"),
        ({"x": "model.safetensors.index.json"}, "with the file"),  # itself
        (["model-00001-of-00003.safetensors"], "weight_map"),
        ({"x": 1}, "weight_map"),
        (None, "weight_map"),
        *((name, "with the file") for name in NAMES),
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
    with pytest.raises(InputError, match=r"other\.safetensors, which cannot be read"):
        open_weights(tmp_path / "other.safetensors")
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json, which is not a file"):
        open_weights(path)


class Payload:
    """What makes a file when it is unpickled."""

    def __init__(self, path: pathlib.Path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


# The loader that is installed; none; and one whose loader runs code: its `load` would be an
# AttributeError.
@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("own", r"a pickle, which can run code|bin, which cannot be read"),
        (None, "a pickle, which can run code"),
        (types.SimpleNamespace(__version__="2.5.1+cpu"),
         r"with PyTorch 2\.5\.1\+cpu\n.*PyTorch 2\.10 or later"),
    ],
)  # fmt: skip
def test_a_pickle_runs_no_code(tmp_path, monkeypatch, torch, says):
    """The loader that takes tensors only is torch's; without it nothing is unpickled."""
    if torch != "own":
        monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "config.json").write_text(json.dumps(model_files.hugging_face_config()))
    file, trace = tmp_path / "pytorch_model.bin", tmp_path / "executed"
    file.write_bytes(pickle.dumps({"bert.pooler.dense.bias": Payload(trace)}))
    with pytest.raises(InputError, match=says):
        open_weights(tmp_path)
    assert not trace.exists()
    pickle.loads(file.read_bytes())["bert.pooler.dense.bias"].close()
    assert trace.exists()  # else nothing is proved
