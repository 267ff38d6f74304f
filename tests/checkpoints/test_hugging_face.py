"""Hugging Face's folders: names, configuration, tokenizer, and every kind of file of weights."""

import dataclasses
import json
import struct
import sys

import model_files
import numpy as np
import pytest
import reference
import safetensors.numpy
import small

from bert_tf import bert_encoder, load_checkpoint, pretraining_model
from bert_tf.checkpoints import hugging_face as hf
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError

ERF_CONFIG = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf")
VOCAB_TEXT = "".join(f"{piece}\n" for piece in model_files.PIECES)


@pytest.fixture
def tensors():
    return model_files.tensors_of()


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


def test_names_of_ours_that_they_do_not_have():
    for name in ("other/kernel", "cls/other", "step"):
        assert hf.hugging_face_name(name) is None


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
    model = pretraining_model(ERF_CONFIG)
    report = load_checkpoint(model, write(tmp_path, tensors))
    assert not report.missing
    batch = small.model_inputs(small.examples())
    expected = reference.pretraining_outputs(tensors, ERF_CONFIG, batch)
    for name, value in model(batch, training=False).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-5, rtol=2e-5)


def test_older_names_and_copies(tmp_path, tensors):
    """gamma and beta, no prefix, a constant, and the tied table and bias once more."""
    theirs = model_files.state_dict(tensors)
    for name in [n for n in theirs if "LayerNorm" in n]:
        older = name.replace("weight", "gamma").replace("bias", "beta")
        theirs[older] = theirs.pop(name)
    theirs = {name.removeprefix("bert."): value for name, value in theirs.items()}
    theirs["embeddings.position_ids"] = np.arange(13)[None]
    theirs["cls.predictions.decoder.weight"] = theirs["embeddings.word_embeddings.weight"].copy()
    theirs["cls.predictions.decoder.bias"] = theirs["cls.predictions.bias"].copy()
    weights = open_weights(model_files.write_hugging_face(tmp_path, theirs))
    model_files.assert_same(model_files.all_tensors(weights), tensors)
    assert set(weights.ignored) == {
        "embeddings.position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
    }  # fmt: skip


def test_the_bias_under_its_newer_name_alone(tmp_path, tensors):
    theirs = model_files.state_dict(tensors)
    theirs["cls.predictions.decoder.bias"] = theirs.pop("cls.predictions.bias")
    weights = open_weights(model_files.write_hugging_face(tmp_path, theirs))
    model_files.assert_same(model_files.all_tensors(weights), tensors)


@pytest.mark.parametrize(
    ("copy", "of"),
    [("decoder.weight", "bert.embeddings.word_embeddings.weight"), ("decoder.bias", None)],
)
def test_an_untied_decoder(tmp_path, tensors, copy, of):
    theirs = model_files.state_dict(tensors)
    changed = theirs[of or "cls.predictions.bias"].copy()
    changed.flat[-1] += 1
    theirs[f"cls.predictions.{copy}"] = changed
    with pytest.raises(InputError, match="differs from") as caught:
        open_weights(model_files.write_hugging_face(tmp_path, theirs))
    assert copy in caught.value.received


def test_one_weight_under_two_names(tmp_path, tensors):
    theirs = model_files.state_dict(tensors)
    theirs["bert.pooler.dense.bias".removeprefix("bert.")] = theirs["bert.pooler.dense.bias"] + 1
    with pytest.raises(InputError, match=r"both .*pooler\.dense\.bias and .*pooler\.dense\.bias"):
        open_weights(model_files.write_hugging_face(tmp_path, theirs))


def test_no_pooler(tmp_path, tensors):
    """As BertForMaskedLM is saved: the pooler stays fresh, and the report says so."""
    there = {n: v for n, v in tensors.items() if "pooler" not in n and "seq_rel" not in n}
    model = pretraining_model(ERF_CONFIG, next_sentence=False)
    report = load_checkpoint(model, write(tmp_path, there))
    assert report.missing == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert sorted(there) == report.matched


def test_a_missing_weight_of_the_encoder(tmp_path, tensors):
    del tensors["bert/encoder/layer_1/output/LayerNorm/beta"]
    with pytest.raises(InputError, match="lacks 1 of the model's weights"):
        load_checkpoint(bert_encoder(ERF_CONFIG), write(tmp_path, tensors))


# ---------------------------------------------------------------------------- kinds of files


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
    model = pretraining_model(ERF_CONFIG)
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
        load_checkpoint(bert_encoder(ERF_CONFIG), weights)


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


# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu_erf"), ("gelu_python", "gelu_erf"), ("gelu_new", "gelu"),
        ("gelu_pytorch_tanh", "gelu"), ("relu", "relu"), (None, "gelu_erf"),
    ],
)  # fmt: skip
def test_activations(theirs, ours):
    values = model_files.hugging_face_config(hidden_act=theirs)
    assert hf.read_config(values, source="config.json").hidden_act == ours


@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
@pytest.mark.parametrize("eps", [1e-12, 1e-5])
def test_configuration_there_and_back(act, eps):
    config = dataclasses.replace(
        small.CONFIG, hidden_act=act, layer_norm_eps=eps, hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.2, initializer_range=0.03,
    )  # fmt: skip
    values = json.loads(json.dumps(hf.write_config(config, ModelMetadata(), {})))
    assert values["hidden_act"] == {"gelu": "gelu_new", "gelu_erf": "gelu"}.get(act, act)
    assert values["model_type"] == "bert"
    assert hf.read_config(values, source="config.json") == config


def test_what_a_config_json_leaves_out():
    """The defaults of transformers, which are not all those of the original."""
    config = hf.read_config({}, source="config.json")
    assert config == BertConfig(vocab_size=30522, type_vocab_size=2, hidden_act="gelu_erf")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'"),
        ({"is_decoder": True}, "is_decoder True"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_act": "silu"}, "'silu'"),
        ({"num_attention_heads": 4}, "num_attention_heads 4"),
        ({"hidden_size": "22"}, "hidden_size '22'"),
    ],
)
def test_refused_configurations(tmp_path, tensors, changes, says):
    folder = write(tmp_path, tensors, config=model_files.hugging_face_config(**changes))
    with pytest.raises(InputError, match=says) as caught:
        open_weights(folder)
    assert f"{folder}/config.json" in caught.value.received


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


@pytest.mark.parametrize("labels", [None, ("a", "b")])
def test_labels_that_nobody_named(labels):
    """transformers makes a head of as many classes as there are labels: 2, if it is not told."""
    shapes = {"output_weights": (model_files.NUM_CLASSES, 22)}
    values = hf.write_config(small.CONFIG, ModelMetadata(labels=labels), shapes)
    assert values["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert "id2label" not in hf.write_config(small.CONFIG, ModelMetadata(), {})


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


@pytest.mark.parametrize("own", [["task"], {"tasks": "multi_label"}, "multi_label"])
def test_what_else_is_known_and_is_none(tmp_path, tensors, own):
    config = model_files.hugging_face_config(bert_tf=own)
    with pytest.raises(InputError, match=r"config\.json with bert_tf "):
        open_weights(write(tmp_path, tensors, config=config))


@pytest.mark.parametrize("by_id", [{"1": "a"}, {"x": "a"}, ["a"], {"0": "a", "2": "b"}])
def test_labels_with_gaps(tmp_path, tensors, by_id):
    config = model_files.hugging_face_config(id2label=by_id)
    with pytest.raises(InputError, match="id2label"):
        open_weights(write(tmp_path, tensors, config=config))


# ---------------------------------------------------------------------------- tokenizer


def fast_tokenizer(pieces=model_files.PIECES, added=(), **normalizer) -> dict:
    """The values of a tokenizer.json."""
    return {
        "normalizer": {"type": "BertNormalizer", "lowercase": True} | normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(pieces)}},
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


@pytest.mark.parametrize(
    ("files", "lower"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"do_lower_case": False}}, False),
        ({"tokenizer_config.json": {"do_lower_case": True, "strip_accents": True}}, True),
        ({"tokenizer_config.json": {"tokenize_chinese_chars": True}}, None),
        ({"tokenizer.json": fast_tokenizer(lowercase=False, strip_accents=None)}, False),
        ({"tokenizer_config.json": {}, "tokenizer.json": fast_tokenizer(lowercase=True)}, True),
    ],
)
def test_case(tmp_path, tensors, files, lower):
    assert open_weights(write(tmp_path, tensors, files=files)).metadata.do_lower_case is lower


CONFIG_FILE = "tokenizer_config.json"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({CONFIG_FILE: {"do_lower_case": True, "strip_accents": False}}, "strip_accents False"),
        ({CONFIG_FILE: {"do_lower_case": False, "strip_accents": True}}, "strip_accents True"),
        ({CONFIG_FILE: {"tokenize_chinese_chars": False}}, "tokenize_chinese_chars false"),
        ({"tokenizer.json": fast_tokenizer(handle_chinese_chars=False)}, "chinese"),
        ({"tokenizer.json": fast_tokenizer(strip_accents=False)}, "strip_accents False"),
        ({"tokenizer.json": fast_tokenizer(type="NFKC")}, "normalizer of the type NFKC"),
        (
            {"tokenizer.json": fast_tokenizer() | {"pre_tokenizer": {"type": "Whitespace"}}},
            "pre_tokenizer of the type Whitespace",
        ),
        ({"tokenizer.json": fast_tokenizer() | {"model": {"type": "BPE"}}}, "of the kind BPE"),
    ],
)
def test_tokenizers_that_are_not_berts(tmp_path, tensors, files, says):
    with pytest.raises(InputError, match=says) as caught:
        open_weights(write(tmp_path, tensors, files=files))
    assert f"{tmp_path}/{next(iter(files))}" in caught.value.received


def test_vocabulary_of_tokenizer_json_alone(tmp_path, tensors):
    """In the order of the ids, whatever the order in the file."""
    values = fast_tokenizer(added=[(41, "[NEW]"), (2, "[CLS]")])
    values["model"]["vocab"] = dict(reversed(values["model"]["vocab"].items()))
    weights = open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))
    assert weights.pieces == (*model_files.PIECES, "[NEW]")
    assert weights.vocab_file == f"{tmp_path}/tokenizer.json"


def test_vocabularies_in_two_files(tmp_path, tensors):
    files = {"vocab.txt": VOCAB_TEXT, "tokenizer.json": fast_tokenizer(added=[(41, "[NEW]")])}
    weights = open_weights(write(tmp_path / "longer", tensors, files=files))
    assert weights.pieces == (*model_files.PIECES, "[NEW]")
    files["tokenizer.json"] = fast_tokenizer()
    weights = open_weights(write(tmp_path / "same", tensors, files=files))
    assert weights.pieces == model_files.PIECES
    assert weights.vocab_file == f"{tmp_path}/same/vocab.txt"


@pytest.mark.parametrize(("number", "piece"), [(7, "other"), (40, None)])
def test_vocabularies_that_differ(tmp_path, tensors, number, piece):
    pieces = list(model_files.PIECES)
    pieces[number:] = [piece, *pieces[number + 1 :]] if piece else []
    files = {"vocab.txt": VOCAB_TEXT, "tokenizer.json": fast_tokenizer(pieces)}
    with pytest.raises(InputError, match=f"differ at id {number}"):
        open_weights(write(tmp_path, tensors, files=files))


def test_added_tokens(tmp_path, tensors):
    files = {"vocab.txt": VOCAB_TEXT, "added_tokens.json": {"[B]": 42, "[A]": 41}}
    weights = open_weights(write(tmp_path / "a", tensors, files=files))
    assert weights.pieces == (*model_files.PIECES, "[A]", "[B]")
    files["added_tokens.json"] = {"[B]": 43}
    with pytest.raises(InputError, match=r"added_tokens\.json, whose ids are not 0 to 41"):
        open_weights(write(tmp_path / "b", tensors, files=files))


def test_gaps_in_the_ids(tmp_path, tensors):
    values = fast_tokenizer()
    del values["model"]["vocab"]["w3"]
    with pytest.raises(InputError, match="ids are not 0 to 39"):
        open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))


def test_tokenizer_files_that_are_written(tmp_path, tensors):
    """With what only Hugging Face's tokenizer asks for, and read again alike."""
    weights = model_files.weights_of(tensors, metadata=ModelMetadata(do_lower_case=False))
    folder = tmp_path / "made"
    again = open_weights(save_weights(str(folder), weights, to_format="hugging_face"))
    assert again.metadata.do_lower_case is False
    assert again.pieces == model_files.PIECES
    assert (folder / "vocab.txt").read_text() == VOCAB_TEXT
    special = {f"{p[1:-1].lower()}_token": p for p in model_files.SPECIAL}
    assert json.loads((folder / "special_tokens_map.json").read_text()) == special
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings == special | {
        "do_lower_case": False,
        "model_max_length": 13,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
    }


@pytest.mark.parametrize("piece", [" ", "a b\n", "a\nb", "\u3000c"])
def test_pieces_that_cannot_stand_on_a_line(tmp_path, tensors, piece):
    """Only tokenizer.json can hold them; vocab.txt would be another vocabulary."""
    weights = model_files.weights_of(tensors, pieces=[*model_files.PIECES[:-1], piece])
    for to_format in ("hugging_face", "bert_tf"):
        with pytest.raises(InputError, match="whose piece 40 is"):
            save_weights(f"{tmp_path}/a", weights, to_format=to_format)
    assert not list(tmp_path.iterdir())
