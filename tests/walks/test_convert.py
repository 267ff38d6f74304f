"""bert-tf convert and extract_features.py: whole walks, and bad input of every kind."""

import dataclasses
import importlib
import os
import pathlib
import shutil

import numpy as np
import pytest
import reference
import walking
from model_files import write_bundle
from walking import TINY, read_tensors, write_config, write_vocabulary

from bert_tf import BertConfig, BertModel, Predictor, load, load_checkpoint
from bert_tf.checkpoints.loading import config_of, open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import Weights
from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
CONVERT = "convert"
BIAS = "bert/encoder/layer_1/output/dense/bias"
POSITIONS = "bert/embeddings/position_embeddings"


@pytest.fixture
def convert():
    """The script's main, without a process of its own."""
    with walking.in_process(CONVERT) as call:
        yield call


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    """A folder as the original releases them: an encoder, its vocabulary, its configuration."""
    folder = tmp_path_factory.mktemp("model")
    write_config(folder / "bert_config.json")
    write_vocabulary(folder / "vocab.txt")
    tensors = reference.random_weights(BertConfig(**TINY), seed=4)
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    write_bundle(folder / "bert_model.ckpt", encoder | {"global_step": np.int64(3)})
    return folder


# ---------------------------------------------------------------------------- good input


def test_there_and_back(model, tmp_path, convert, capsys):
    """What is printed; and after the way back the last is the first."""
    convert(**{"from": model, "to": tmp_path / "hf"})
    printed = capsys.readouterr().out
    assert "in the format hugging_face" in printed
    assert "sequence_output: greatest difference 0\n" in printed
    assert "slots of the optimizer, such as global_step" in printed
    convert(**{"from": tmp_path / "hf", "to": tmp_path / "b"}, format="tf1")
    before, after = read_tensors(model), read_tensors(tmp_path / "b")
    assert before.keys() == after.keys() | {"global_step"}
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name])
    assert (tmp_path / "b/vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()


def test_verbs(model, tmp_path, convert, capsys):
    convert("inspect", **{"from": model})
    shown = capsys.readouterr().out
    for text in (f"{BIAS} [12]\n", "slots of an optimizer", "39 weights"):
        assert text in shown
    convert("strip", **{"from": model, "to": tmp_path / "s"})
    assert read_tensors(tmp_path / "s").keys() == read_tensors(model).keys() - {"global_step"}


@pytest.mark.parametrize("file_format", ["tf1", "hugging_face"])
def test_more_tokens_and_positions(model, tmp_path, convert, capsys, caplog, file_format):
    """101 rows become 105, 24 become 60: in every format, and on the way back.

    The folder alone is enough for every way that a model's tokenizer is made.
    """
    flags = {"extra_tokens": "<e1>,</e1>,##er,e-2", "never_split": "<e1>,</e1>", "seed": 3}
    flags |= {"max_position_embeddings": 60, "format": file_format}
    convert(**{"from": model, "to": tmp_path / "kept"}, **flags)
    assert "sequence_output: greatest difference 0\n" in capsys.readouterr().out
    assert any("positions 24 to 59 are copies" in message for message in caplog.messages)
    cuts = [message for message in caplog.messages if "The tokenizer cuts" in message]
    assert [message.split("'")[1] for message in cuts] == ["e-2"]
    longer, old = open_weights(tmp_path / "kept"), read_tensors(model)[POSITIONS]
    assert longer.config.max_position_embeddings == 60
    assert (longer.config.vocab_size, longer.pieces[-4:]) == (105, ("<e1>", "</e1>", "##er", "e-2"))
    np.testing.assert_array_equal(longer.read(POSITIONS), [*old, *old, *old[:12]])
    text, pieces = "w1<e1>w2</e1>", ["w1", "<e1>", "w2", "</e1>"]
    loaded, tokenizer = load(tmp_path / "kept")
    assert tokenizer.tokenize(text) == pieces
    assert loaded(tokenizer(["w1 " * 48], max_length=60))["sequence_output"].shape == (1, 50, 12)
    assert Predictor(tmp_path / "kept").model.tokenizer.tokenize(text) == pieces
    convert(**{"from": tmp_path / "kept", "to": tmp_path / "same"})  # the other format
    again = open_weights(tmp_path / "same")
    assert tokenizer_of(again, again.config).tokenize(text) == pieces
    np.testing.assert_array_equal(again.read(POSITIONS), longer.read(POSITIONS))
    convert(**{"from": tmp_path / "kept", "to": tmp_path / "cut"}, never_split="")
    cut = open_weights(tmp_path / "cut")
    assert tokenizer_of(cut, cut.config).tokenize(text) != pieces


@pytest.mark.parametrize("file_format", ["tf1", "hugging_face"])
def test_added_words(model, tmp_path, convert, file_format):
    """In the files of both formats, in what loads and answers, and in a copy without them."""
    flags = {"extra_tokens": "Covid-19,<e1>", "added_words": "Covid-19", "never_split": "<e1>"}
    convert(**{"from": model, "to": tmp_path / "added"}, **flags, format=file_format)
    text, pieces = "w1covid-19 w2<e1>COVID-19", ["w1", "Covid-19", "w2", "<e1>", "Covid-19"]
    assert load(tmp_path / "added")[1].tokenize(text) == pieces
    assert Predictor(tmp_path / "added").model.tokenizer.tokenize(text) == pieces
    convert(**{"from": tmp_path / "added", "to": tmp_path / "same"})  # the other format
    again = open_weights(tmp_path / "same")
    assert again.metadata.added_words == ("Covid-19",)
    assert tokenizer_of(again, again.config).tokenize(text) == pieces
    convert(**{"from": tmp_path / "same", "to": tmp_path / "cut"}, added_words="")
    cut = open_weights(tmp_path / "cut")
    assert (cut.metadata.added_words, cut.metadata.never_split) == (None, ("<e1>",))


# ---------------------------------------------------------------------------- bad input


def test_weights_that_do_not_fit(model, tmp_path, convert):
    """Nothing is written before both models have computed."""
    source = shutil.copytree(model, tmp_path / "source")
    write_bundle(source / "bert_model.ckpt", read_tensors(source) | {BIAS: np.zeros(13, "f4")})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=rf"{BIAS} has the shape \(13,\)"):
        convert(**{"from": source, "to": tmp_path / "made"})
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("file_format", ["tf1", "hugging_face"])
def test_a_model_that_computes_something_else_is_not_kept(
    model, tmp_path, convert, monkeypatch, file_format
):
    """What is written is compared before the folder has its name."""
    module = "saving" if file_format == "tf1" else "hugging_face"
    module = importlib.import_module(f"bert_tf.checkpoints.{module}")
    write = module.write_tensors

    def write_others(folder: str, weights: Weights) -> None:
        def read(name: str) -> np.ndarray:
            by = np.arange(12, dtype=np.float32) if name == BIAS else np.float32(0)
            return weights.read(name) + by

        write(folder, dataclasses.replace(weights, read=read))

    monkeypatch.setattr(module, "write_tensors", write_others)
    says = r"outputs differ: .*sequence_output by \S+\n.*0\.0001\nTo do: report this"
    with pytest.raises(InputError, match=says):
        convert(**{"from": model, "to": tmp_path / "new/made"}, format=file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "flags", "says"),
    [
        ("shrink", {}, "'shrink'"),
        ("strip inspect", {}, "'strip inspect'"),
        ("", {"to": ""}, "convert without --to"),
        ("strip", {"from": "a,b"}, "a,b"),
        ("", {"never_split": "w3,<e1>"}, "101 pieces, without <e1>"),
        ("", {"max_position_embeddings": 23}, "which has 24"),
    ],
)
def test_bad_commands(model, tmp_path, convert, words, flags, says):
    flags = {"from": model, "to": "{}"} | flags
    flags["to"] = flags["to"].format(tmp_path / "made")
    with pytest.raises(InputError, match=says):
        convert(*words.split(), **flags)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- extract_features.py


def test_extract_features(data_dir, tmp_path):
    """Sentences of STS-B by a real model, against each of them alone."""
    folder = data_dir / "weights/all-MiniLM-L6-v2"
    rows = (data_dir / "glue/STS-B/dev.tsv").read_text(encoding="utf-8").splitlines()[1:8]
    sentences = [row.split("\t")[7] for row in rows]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    with walking.in_process("extract_features.py") as extract:
        extract(
            init_checkpoint=folder, input_file=tmp_path / "a.txt", batch_size=4,
            output_file=tmp_path / "a.npz", pooling="mean",
        )  # fmt: skip
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "a.txt"]
    found = np.load(tmp_path / "a.npz")["embeddings"]
    assert found.shape == (7, 384)
    weights = open_weights(str(folder))
    tokenizer, encoder = tokenizer_of(weights, weights.config), BertModel(config_of(weights))
    load_checkpoint(encoder, weights)
    for text, vector in zip(sentences, found, strict=True):
        alone = np.asarray(encoder(tokenizer([text]), training=False)["sequence_output"])[0]
        np.testing.assert_allclose(vector, alone.mean(axis=0), atol=1e-5)
