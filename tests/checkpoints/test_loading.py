"""Opening, loading into models, and what belongs to weights beside what is given."""

import dataclasses
import os
import pathlib
import re

import keras
import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from model_files import assert_same
from model_files import write_bundle as write

from bert_tf import BertModel, FullTokenizer, load_checkpoint, make_model
from bert_tf.checkpoints.companions import check_kept_pieces
from bert_tf.checkpoints.keras_files import refuse_other_tokenizer, weights_of
from bert_tf.checkpoints.loading import config_of, open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.checkpoints.tf1 import GLOBAL_STEP, RUN_SETTINGS
from bert_tf.errors import InputError
from bert_tf.heads import head_named

CONFIG = small.CONFIG
DATA = ".data-00000-of-00001"


@pytest.fixture
def model():
    return make_model("pretraining", CONFIG)


def test_a_remote_path_that_cannot_be_read(monkeypatch):
    def unreachable(*args, **kwargs):
        raise tf.errors.UnavailableError(None, None, "no route to the host")

    monkeypatch.setattr(tf.io.gfile, "exists", unreachable)  # tests do not wait for a network
    with pytest.raises(InputError, match="gs://nobody/model, which cannot be read"):
        open_weights("gs://nobody/model")


# ---------------------------------------------------------------------------- loading


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
    with pytest.raises(InputError, match=r"lacks 2 .*/output_weights; its other .*cls/squad"):
        load_checkpoint(model, tmp_path / "a.ckpt", required="bert/|cls/")


def refused(model, prefix, message: str) -> InputError:
    """Loading raises, and the model is as before."""
    before = reference.take_weights(model)
    with pytest.raises(InputError, match=message) as caught:
        load_checkpoint(model, prefix)
    assert_same(reference.take_weights(model), before)
    assert str(prefix) in caught.value.received
    return caught.value


GAMMA, WORDS = "bert/embeddings/LayerNorm/gamma", "bert/embeddings/word_embeddings"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({WORDS: np.zeros([43, 22], np.float32)}, rf"{WORDS} has the shape \(43, 22\)"),
        *(({GAMMA: values}, f"whose {GAMMA} has values of the type")
          for values in (np.array([b"x"] * 22), np.arange(22), np.ones(22, np.complex64))),
    ],
)  # fmt: skip
def test_weights_of_another_shape_or_type(model, tensors, tmp_path, changes, says):
    error = refused(model, write(tmp_path / "a.ckpt", tensors | changes), says)
    assert error.expected in ("(41, 22), as the configuration says", "floating-point numbers")


def test_nothing_matches(model, tmp_path):
    prefix = write(tmp_path / "a.ckpt", {"distilbert/x": np.float32(1)})
    refused(model, prefix, r"(?s)lacks 37 of .* bert/emb.*distilbert/x\n.*trained for this")
    with pytest.raises(InputError, match="lacks all of the model's weights, such as bert/embedd"):
        load_checkpoint(model, prefix, required="nothing/")


def test_a_bit_of_the_last_tensor(model, tensors, tmp_path):
    """The others are read by then. More damage: tests/fuzz/test_readers.py."""
    prefix = write(tmp_path / "a.ckpt", tensors)
    path = pathlib.Path(prefix + DATA)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(model, prefix, "which cannot be read")
    path.unlink()
    refused(model, prefix, "which cannot be read")


@pytest.mark.parametrize(
    ("file_format", "name"),
    [
        *(("hugging_face", f"model.safetensors{end}") for end in ("", ".index.json")),
        ("hugging_face", "pytorch_model.bin"),
        ("hugging_face", "tokenizer.json"),
        *(("bert_tf", name) for name in ("checkpoint", "bert_config.json", "vocab.txt")),
        *(("bert_tf", f"bert_model.ckpt{end}") for end in (".index", DATA)),
        ("keras", "model.keras"),
    ],
)
def test_pipes_are_not_waited_for(tmp_path, tensors, file_format, name):
    """Nor are they sockets or devices; a process that writes into it may never come."""
    folder = tmp_path / "model"
    if file_format == "keras":
        folder.mkdir()
    else:
        save_weights(model_files.weights_of(tensors), str(folder), format=file_format)
    if name == "pytorch_model.bin" or name.endswith(".index.json"):
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="a pipe, a socket or a device") as caught:
        open_weights(folder / name if file_format == "keras" else folder)
    assert str(folder / name) in caught.value.received


# ---------------------------------------------------------------------------- models with more


def token_model() -> keras.Model:
    return make_model("token_labels", CONFIG, num_classes=model_files.NUM_CLASSES)


def test_a_quantized_model_is_refused(tmp_path):
    model = token_model()
    model.quantize("int8")
    count = f"{6 * CONFIG.num_hidden_layers + 1} layers are quantized"
    with pytest.raises(InputError, match=count):
        save_weights(model, f"{tmp_path}/a", format="bert_tf")
    with pytest.raises(InputError, match=count):
        load_checkpoint(model, model_files.weights_of(model_files.tensors_of("classifier")))
    assert not list(tmp_path.iterdir())


def test_a_model_with_its_tokenizer_and_labels(tmp_path):
    """Every format has them."""
    model = token_model()
    model.tokenizer = FullTokenizer(
        "v", pieces=model_files.PIECES, never_split=["[MASK]", "w7"], added_words=["w8"]
    )
    model.labels = ["O", "B-PER", "I-PER"]
    model.save(str(tmp_path / "model.keras"))
    paths = [save_weights(model, f"{tmp_path}/{name}", format=name)
             for name in ("bert_tf", "hugging_face")]  # fmt: skip
    for path in (f"{tmp_path}/model.keras", *paths):
        weights = open_weights(path)
        assert (weights.pieces, weights.config) == (model_files.PIECES, CONFIG)
        assert weights.metadata.never_split == ("[MASK]", "w7")
        assert weights.metadata.added_words == ("w8",)
        assert weights.metadata.do_lower_case is True
        assert weights.metadata.architecture == "BertForTokenClassification"
        if "keras" not in path:
            assert weights.metadata.labels == ("O", "B-PER", "I-PER")
    tokenizer = tokenizer_of(weights, weights.config)
    assert tokenizer.tokenize("xw7[MASK]") == ["[UNK]", "w7", "[MASK]"]


def test_what_a_model_carries_comes_before_what_is_beside_it():
    """A tokenizer that keeps nothing whole, too; and without anything nothing is known."""
    model = token_model()
    model.labels, model.metadata = ("O", "B-PER", "I-PER"), {"task": "token_labels"}
    beside = ModelMetadata(labels=("x", "y", "z"), num_choices=2, never_split=("w7",))
    metadata = weights_of(model, metadata=beside).metadata
    assert metadata.labels == ("O", "B-PER", "I-PER")
    assert (metadata.task, metadata.num_choices) == ("token_labels", 2)
    assert metadata.never_split == ("w7",)
    model.tokenizer = FullTokenizer("v", pieces=model_files.PIECES)
    assert weights_of(model, metadata=beside).metadata.never_split is None
    weights = weights_of(BertModel(CONFIG))
    assert (weights.pieces, weights.vocab_file, weights.metadata.known()) == (None, None, {})


# ---------------------------------------------------------------------------- what belongs to them


def silent(**changes):
    """Weights of the small vocabulary, of which nothing else is known."""
    tensors = model_files.tensors_of()
    return model_files.weights_of(tensors, **{"path": "/memory/x/model"} | changes)


def test_the_configuration_that_is_given(tmp_path):
    other = tmp_path / "other.json"
    dropout = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3)
    other.write_text(dropout.to_json_string())
    unknown = silent(config=None)
    assert config_of(unknown, str(other)) == config_of(silent(), str(other)) == dropout
    assert config_of(silent()) == CONFIG
    with pytest.raises(InputError, match=r"without a bert_config\.json"):
        config_of(unknown)
    for name, value in {"num_attention_heads": 11, "hidden_act": "gelu_erf",
                        "layer_norm_eps": 1e-6}.items():  # fmt: skip
        other.write_text(dataclasses.replace(CONFIG, **{name: value}).to_json_string())
        with pytest.raises(InputError, match=f"{other} with {name} {value}"):
            config_of(silent(), str(other))


def check_case(weights, lower: bool | None, says: str, vocab_file: str | None = None) -> None:
    """The case is taken, and the other one refused."""
    config = weights.config
    assert tokenizer_of(weights, config, vocab_file, lower).do_lower_case is lower
    with pytest.raises(InputError, match=says) as caught:
        tokenizer_of(weights, config, vocab_file, not lower)
    assert caught.value.remedy == f"use --{'' if lower else 'no'}do_lower_case"


def test_case_by_the_vocabulary(data_dir, caplog):
    """Data of a cased vocabulary may have been lower-cased; the model then knows no capitals."""
    config = dataclasses.replace(CONFIG, vocab_size=28996)
    weights, file = silent(config=config, pieces=None), f"{data_dir}/vocab/cased_en_28996.txt"
    check_case(weights, False, "a vocabulary with", file)
    recorded = dataclasses.replace(weights, metadata=ModelMetadata(do_lower_case=True))
    assert tokenizer_of(recorded, config, file).do_lower_case is True
    assert "check that it is the model's vocabulary" in caplog.text


@pytest.mark.parametrize(
    ("folder", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
    ],
)
def test_case_by_the_name_of_the_folder(folder, lower):
    for root in ("", "/models/", "gs://bucket/"):
        check_case(silent(path=f"{root}{folder}/bert_model.ckpt"), lower, "by its name")
    tokenizer_of(silent(path=f"/{folder}_mine/bert_model.ckpt"), CONFIG, None, not lower)


def test_case_as_recorded_or_unknown():
    """It is asked for where some pieces, too few to be sure, would be lost in lower-cased text."""
    for lower in (True, False):
        weights = silent(metadata=ModelMetadata(do_lower_case=lower))
        check_case(weights, lower, f"whose model says do_lower_case {lower}")
        assert tokenizer_of(weights, CONFIG).do_lower_case is lower
    assert tokenizer_of(silent(), CONFIG).do_lower_case is True
    unsure = silent(pieces=(*model_files.PIECES[:-1], "Paris"))
    with pytest.raises(InputError, match=r"does not show whether .*'Paris'") as caught:
        tokenizer_of(unsure, CONFIG)
    assert "--nodo_lower_case" in caught.value.expected
    for lower in (True, False):
        assert tokenizer_of(unsure, CONFIG, None, lower).do_lower_case is lower


@pytest.mark.parametrize(
    ("rows", "says"),
    [(40, "with 41 word pieces\n.*at most 40"), (41 + 1024, "with 41 word pieces\n.*1065, the")],
)
def test_the_table_against_the_vocabulary(tmp_path, rows, says):
    with pytest.raises(InputError, match=re.compile(says)):
        tokenizer_of(silent(), dataclasses.replace(CONFIG, vocab_size=rows))
    padded = dataclasses.replace(CONFIG, vocab_size=41 + 1023)
    assert tokenizer_of(silent(), padded).vocab_size == 41
    with pytest.raises(InputError, match=r"without a vocab\.txt"):
        tokenizer_of(silent(pieces=None), CONFIG)
    (tmp_path / "vocab.txt").write_text("\n".join(model_files.PIECES))
    for config in (CONFIG, padded):
        assert tokenizer_of(silent(pieces=None), config, f"{tmp_path}/vocab.txt").vocab_size == 41


def test_pieces_of_the_first_weights():
    """None may be lost; new ones are learned."""
    weights = silent(metadata=ModelMetadata(never_split=("w3",)))
    check_kept_pieces(weights, ModelMetadata(never_split=("w5", "w3")))
    check_kept_pieces(silent(), ModelMetadata(never_split=("w5",)))
    with pytest.raises(InputError, match="with --never_split=w5, for /memory") as caught:
        check_kept_pieces(weights, ModelMetadata(never_split=("w5",)))
    assert caught.value.remedy == "make the data again with --never_split=w3,w5"
    weights = silent(metadata=ModelMetadata(never_split=("w3",), added_words=("w4",)))
    check_kept_pieces(weights, ModelMetadata(never_split=("w3",), added_words=("w4", "w6")))
    with pytest.raises(InputError, match=r"without --added_words, for .* with added_words w4"):
        check_kept_pieces(weights, ModelMetadata(never_split=("w3", "w4")))


# ---------------------------------------------------------------------------- models with their own

WITH_UNUSED = (*model_files.PIECES[:-1], "[unused0]")
LABELS = ("a", "b", "c")


def companions(**given) -> tuple:
    """Weights of a classifier, and a model with companions of its own."""
    metadata = ModelMetadata(
        architecture="BertForSequenceClassification", labels=LABELS, do_lower_case=True
    )
    tensors = model_files.tensors_of("classifier")
    weights = model_files.weights_of(tensors, metadata=metadata, pieces=WITH_UNUSED)
    config = dataclasses.replace(CONFIG, **given.get("config", {}))
    model = head_named(given.get("head", "classification")).model(config, num_classes=3)
    pieces, lower = given.get("pieces", WITH_UNUSED), given.get("do_lower_case", True)
    model.tokenizer = FullTokenizer("vocab.txt", lower, pieces=pieces)
    model.labels = given.get("labels", LABELS)
    return weights, model


def test_a_model_with_the_same_companions():
    """Labels in another order, and words of the user's own for [unusedN], are the same."""
    weights, model = companions(
        labels=("c", "a", "b"), pieces=(*WITH_UNUSED[:-1], "mine"),
        config={"hidden_dropout_prob": 0.3},
    )  # fmt: skip
    load_checkpoint(model, weights)
    loaded = reference.take_weights(model)
    for name in ("output_weights", "output_bias"):
        np.testing.assert_array_equal(loaded[name], weights.read(name)[[2, 0, 1]])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"config": {"num_attention_heads": 11}}, "num_attention_heads 11"),
        ({"config": {"hidden_act": "relu"}}, "hidden_act relu"),
        ({"config": {"layer_norm_eps": 1e-3}}, "layer_norm_eps 0.001"),
        ({"pieces": (*WITH_UNUSED[:7], "x", *WITH_UNUSED[8:])}, "of 41 pieces, id 7 'x'"),
        ({"pieces": WITH_UNUSED[:-1]}, "a vocabulary of 40 pieces, id 40 ''"),
        ({"pieces": (*WITH_UNUSED[:-1], "w3")}, "a vocabulary of 41 pieces, id 40 'w3'"),  # twice
        ({"do_lower_case": False}, "do_lower_case False"),
        ({"labels": ("a", "b", "d")}, "3 labels: a, b, d"),
        ({"labels": ("a", "b", "a")}, "3 labels: a, b, a"),
        ({"head": "token_labels"}, "as one with architecture = BertForTokenClassification"),
    ],
)
def test_a_model_with_other_companions(given, says):
    weights, model = companions(**given)
    with pytest.raises(InputError, match=says):
        load_checkpoint(model, weights)


def test_a_tokenizer_beside_a_model_with_its_own():
    _, model = companions()
    refuse_other_tokenizer(model, model.tokenizer, max_seq_length=13)
    with pytest.raises(InputError, match="14"):
        refuse_other_tokenizer(model, model.tokenizer, max_seq_length=14)
    for given in ({"pieces": model_files.PIECES}, {"do_lower_case": False}):
        with pytest.raises(InputError, match="another tokenizer than that of classification"):
            refuse_other_tokenizer(model, companions(**given)[1].tokenizer, max_seq_length=13)
