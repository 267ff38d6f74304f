"""Hugging Face's folders: names, configuration, tokenizer, and every kind of file of weights."""

import dataclasses
import json

import model_files
import numpy as np
import pytest
import reference
import small

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints import hugging_face as hf
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError

ERF_CONFIG = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf")
VOCAB_TEXT = "".join(f"{piece}\n" for piece in model_files.PIECES)


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
        ("embeddings.LayerNorm.gamma", "bert/embeddings/LayerNorm/gamma"),
        ("bert.encoder.layer.11.output.LayerNorm.beta",
         "bert/encoder/layer_11/output/LayerNorm/beta"),
        ("encoder.layer.10.attention.self.key.weight",
         "bert/encoder/layer_10/attention/self/key/kernel"),
        ("pooler.dense.bias", "bert/pooler/dense/bias"),
        ("cls.predictions.decoder.weight", None),
        ("distilbert.transformer.layer.0.ffn.lin1.weight", None),
        ("lm_head.weight", None),
    ],
)  # fmt: skip
def test_other_names_of_theirs(theirs, ours):
    assert hf.original_name(theirs) == ours


# ---------------------------------------------------------------------------- weights


def test_opened(tmp_path, tensors):
    weights = open_weights(write(tmp_path, tensors, files={"vocab.txt": VOCAB_TEXT}))
    assert weights.format == "hugging_face"
    model_files.assert_same(model_files.all_tensors(weights), tensors)
    assert {n: np.shape(v) for n, v in tensors.items()} == weights.shapes
    assert weights.config == ERF_CONFIG
    assert weights.pieces == model_files.PIECES
    assert weights.metadata == ModelMetadata(architecture="BertForPreTraining")


def test_outputs_are_those_of_the_reference(tmp_path, tensors):
    """With the exact gelu, by the arithmetic in plain NumPy."""
    model = make_model("pretraining", ERF_CONFIG)
    report = load_checkpoint(model, write(tmp_path, tensors))
    assert not report.missing
    batch = small.model_inputs(small.examples())
    expected = reference.pretraining_outputs(tensors, ERF_CONFIG, batch)
    for name, value in model(batch, training=False).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-5, rtol=2e-5)


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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cls.predictions.decoder.weight", r"decoder\.weight differs from"),
        ("cls.predictions.decoder.bias", r"decoder\.bias differs from"),
        ("pooler.dense.bias", r"both .*pooler\.dense\.bias and .*pooler\.dense\.bias"),
    ],
)
def test_a_weight_that_comes_twice(tmp_path, tensors, name, says):
    """An untied decoder, or a weight under two names."""
    theirs = with_copies(tensors)
    theirs[name] = theirs.get(name, theirs["bert.pooler.dense.bias"]).copy()
    theirs[name].flat[-1] += 1
    with pytest.raises(InputError, match=says):
        open_weights(model_files.write_hugging_face(tmp_path, theirs))


def test_no_pooler(tmp_path, tensors):
    """As BertForMaskedLM is saved: the pooler stays fresh, and the report says so."""
    there = {n: v for n, v in tensors.items() if "pooler" not in n and "seq_rel" not in n}
    model = make_model("fill_mask", ERF_CONFIG)
    report = load_checkpoint(model, write(tmp_path, there))
    assert report.missing == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert sorted(there) == report.matched


# ---------------------------------------------------------------------------- configuration


def test_activations_and_what_a_config_json_leaves_out():
    """The defaults of transformers, which are not all those of the original."""
    config = BertConfig.from_hugging_face({}, source="config.json")
    assert config == BertConfig(vocab_size=30522, type_vocab_size=2, hidden_act="gelu_erf")
    acts = {"gelu": "gelu_erf", "gelu_python": "gelu_erf", "gelu_new": "gelu",
            "gelu_pytorch_tanh": "gelu", "relu": "relu"}  # fmt: skip
    for theirs, ours in acts.items():
        values = model_files.hugging_face_config(hidden_act=theirs)
        assert BertConfig.from_hugging_face(values, source="config.json").hidden_act == ours


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
        ("span", "none", "BertForQuestionAnswering"),
    ],
)
def test_architecture(kind, left_out, architecture):
    names = {
        n: v.shape for n, v in model_files.tensors_of(kind).items() if not n.startswith(left_out)
    }
    assert hf.architecture_of(names) == architecture
    values = hf.write_config(small.CONFIG, ModelMetadata(), names)
    assert values["architectures"] == [architecture]


def test_labels(tmp_path):
    tensors = model_files.tensors_of("classifier")
    labels = ("nein", "ja", "äh")
    config = model_files.hugging_face_config(
        architectures=["BertForSequenceClassification"],
        id2label={str(i): label for i, label in enumerate(labels)},
    )
    weights = open_weights(write(tmp_path / "a", tensors, config=config))
    assert weights.metadata.labels == labels
    again = open_weights(save_weights(f"{tmp_path}/b", weights, to_format="bert_tf"))
    assert again.metadata == weights.metadata
    third = open_weights(save_weights(f"{tmp_path}/c", again, to_format="hugging_face"))
    assert third.metadata == weights.metadata
    values = json.loads((tmp_path / "c/config.json").read_text())
    assert values["label2id"] == {"nein": 0, "ja": 1, "äh": 2}


def test_labels_that_nobody_named():
    """transformers makes a head of as many classes as there are labels: 2, if it is not told."""
    shapes = {"output_weights": (model_files.NUM_CLASSES, 22)}
    for labels in (None, ("a", "b")):
        values = hf.write_config(small.CONFIG, ModelMetadata(labels=labels), shapes)
        assert values["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}


def test_what_else_is_known_of_a_model(tmp_path):
    """transformers has a name for any number of labels; the rest it keeps without knowing it."""
    metadata = ModelMetadata(
        do_lower_case=True, architecture="BertForSequenceClassification", labels=("a", "b", "c"),
        null_score_diff_threshold=0.5, task="multi_label", pairs=True, num_choices=1,
        max_seq_length=9, doc_stride=3, max_query_length=2, version_2_with_negative=False,
    )  # fmt: skip
    weights = model_files.weights_of(model_files.tensors_of("classifier"), metadata=metadata)
    folder = tmp_path / "theirs"
    theirs = open_weights(save_weights(str(folder), weights, to_format="hugging_face"))
    ours = open_weights(save_weights(f"{tmp_path}/ours", theirs, to_format="bert_tf"))
    assert theirs.metadata == ours.metadata == metadata
    values = json.loads((folder / "config.json").read_text())
    assert values["problem_type"] == "multi_label_classification"
    del values["bert_tf"]
    (folder / "config.json").write_text(json.dumps(values))
    assert open_weights(folder).metadata.task == "multi_label"
    (folder / "config.json").write_text(json.dumps(values | {"architectures": ["BertModel"]}))
    assert open_weights(folder).metadata.task is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'"),
        ({"is_decoder": True}, "is_decoder True"),
        ({"is_decoder": "false"}, "is_decoder 'false'"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_act": "silu"}, "'silu'"),
        ({"hidden_act": ["gelu"]}, r"hidden_act \['gelu'\]"),
        ({"num_attention_heads": 4}, "num_attention_heads 4"),
        ({"hidden_size": "22"}, "hidden_size '22'"),
        ({"architectures": 7}, "architectures 7"),
        ({"architectures": "BertModel"}, "architectures 'BertModel'"),
        ({"architectures": [7]}, r"architectures\[0\] 7"),
        ({"problem_type": ["x"]}, r"problem_type \['x'\]"),
        ({"null_score_diff_threshold": True}, "null_score_diff_threshold True"),
        ({"null_score_diff_threshold": [1]}, r"null_score_diff_threshold \[1\]"),
        ({"id2label": {"0": ["a"], "1": "b"}}, "id2label"),
        ({"id2label": {"0": "a", "1": "a"}}, r"labels \('a', 'a'\)"),
        *(({"id2label": x}, "id2label") for x in (0, {"1": "a"}, ["a"], {"0": "a", "2": "b"})),
        ({"bert_tf": {"of": ["BertForPreTraining", None], "doc_stride": "x"}}, "doc_stride 'x'"),
        *(({"bert_tf": x}, r"config\.json with bert_tf ")
          for x in (["task"], {"tasks": "multi_label"}, "multi_label")),
        ({"tokenizer_class": 3}, "tokenizer_class 3"),
    ],
)  # fmt: skip
def test_refused_configurations(tmp_path, changes, says):
    folder = write(tmp_path, {}, config=model_files.hugging_face_config(**changes))
    with pytest.raises(InputError, match=says) as caught:
        open_weights(folder)
    assert f"{tmp_path}/config.json" in caught.value.received
