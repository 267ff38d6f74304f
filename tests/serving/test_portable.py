"""Files for LiteRT and ONNX Runtime: every kind answers as the model's `ids` signature does."""

import dataclasses
import functools
import json
import math
import pathlib
import sys

import numpy as np
import pytest
import served_models
import tensorflow as tf
from served_models import CONFIG, LENGTH, TOKENIZER

from bert_tf.errors import InputError
from bert_tf.serving import portable, predictor
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import ServingOptions

onnxruntime = pytest.importorskip("onnxruntime", reason="installed with the extra onnx")
Interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
NUMBERS = {  # answers that are no strings
    "pairs": {"probability", "probabilities"},
    "multiple_choice": {"choice", "probabilities"},
    "token_labels": {"label_ids", "probabilities"},
    "embeddings": {"mean", "pooled"},
    "fill_mask": {"piece_ids", "probabilities"},
    "no_answer": {"start_logits", "end_logits"},
}


@pytest.fixture(scope="module")
def weights_of(tmp_path_factory):
    """Gives the weights of a kind."""

    @functools.cache
    def get(kind: str):
        return served_models.write_folder(kind, tmp_path_factory.mktemp(kind) / "model")

    return get


def export(weights, kind: str, folder, file_format: str, **more) -> str:
    options = served_models.options(kind)
    arguments = (weights, weights.config, TOKENIZER, str(folder))
    return export_checkpoint(*arguments, options=options, file_format=file_format, **more)


def metadata_of(path: str | pathlib.Path) -> dict:
    return json.loads((pathlib.Path(path) / "export.json").read_text())


def features_of(inputs: dict, rows: int, length: int, *, seed: int) -> dict[str, np.ndarray]:
    """Drawn rows of drawn lengths."""
    rng = np.random.default_rng(seed)
    real = np.arange(length) < rng.integers(2, length + 1, [rows, 1])
    found = {
        "input_ids": rng.integers(0, CONFIG.vocab_size, real.shape) * real,
        "input_mask": real,
        "segment_ids": rng.integers(0, 2, real.shape) * real,
    }
    if "masked_lm_positions" in inputs:  # real ones, as the signature wants
        share = rng.random([rows, inputs["masked_lm_positions"]["shape"][-1] or length])
        found["masked_lm_positions"] = share * real.sum(-1, keepdims=True)
    return {name: value.astype(np.int32) for name, value in found.items()}


@pytest.mark.parametrize("kind", ["pairs", "fill_mask", "no_answer"])
def test_files_answer_as_the_model(kind, weights_of, tmp_path):
    weights = weights_of(kind)
    model = predictor.of_weights(weights, CONFIG, TOKENIZER, served_models.options(kind))

    def compare(asked: dict, found: dict) -> None:
        wanted = model.run(asked, "ids")
        for name, value in found.items():
            # The signature leaves out padding that all rows have, where a file cannot.
            value, expected = value[tuple(slice(n) for n in wanted[name].shape)], wanted[name]
            if kind == "no_answer":  # of padding nothing is promised
                real = asked["input_mask"][:, : value.shape[1]] != 0
                value, expected = value[real], expected[real]
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)

    path = export(weights, kind, tmp_path / "lite", "litert")
    inputs = metadata_of(path)["signatures"]["ids"]
    assert inputs["input_ids"]["shape"][-1] == LENGTH
    asked = features_of(inputs, 1, LENGTH, seed=4)
    compare(asked, Interpreter(f"{path}/model.tflite").get_signature_runner()(**asked))
    path = export(weights, kind, tmp_path / "onnx", "onnx")
    inputs = metadata_of(path)["signatures"]["ids"]
    session = onnxruntime.InferenceSession(f"{path}/model.onnx")
    names = [output.name for output in session.get_outputs()]
    assert set(names) == NUMBERS[kind] == set(metadata_of(path)["answers"]["ids"])
    for rows, length in ((1, LENGTH), (5, 7)):
        asked = features_of(inputs, rows, length, seed=rows)
        compare(asked, dict(zip(names, session.run(names, asked), strict=True)))
    if kind == "fill_mask":  # a position is never of another row
        asked = features_of(inputs, 2, 7, seed=3)
        asked["masked_lm_positions"][:] = [[7], [0]]  # of row 0, one beyond its end
        with pytest.raises(Exception, match=r"(?i)index|indices|out of"):
            session.run(None, asked)


@pytest.mark.parametrize(
    ("kind", "file_formats"),
    [("multiple_choice", ["onnx"]), ("token_labels", ["litert", "onnx"]), ("embeddings", ["onnx"])],
)
def test_a_causal_model(kind, file_formats, tmp_path, monkeypatch):
    """An export compares its file with the model, which test_inference.py tests."""
    causal = dataclasses.replace(CONFIG, attention="causal")
    monkeypatch.setattr(served_models, "CONFIG", causal)
    weights = served_models.write_folder(kind, tmp_path / "model")
    paths = [export(weights, kind, tmp_path / name, name) for name in file_formats]
    path = paths[-1]
    session = onnxruntime.InferenceSession(f"{path}/model.onnx")
    names = {one.name for one in session.get_inputs()}
    assert names == set(metadata_of(path)["signatures"]["ids"])
    assert {one.name for one in session.get_outputs()} == NUMBERS[kind]


@pytest.mark.parametrize(
    ("file_format", "file"), [("litert", "model.tflite"), ("onnx", "model.onnx")]
)
def test_int8_weights_are_smaller_and_nearly_the_same(tmp_path, monkeypatch, file_format, file):
    """Of a model large enough that weights are most of it."""
    larger = dataclasses.replace(CONFIG, hidden_size=118, intermediate_size=235)
    monkeypatch.setattr(served_models, "CONFIG", larger)
    weights = served_models.write_folder("pairs", tmp_path / "model")
    path = pathlib.Path(export(weights, "pairs", tmp_path / "export", file_format, int8=True))
    size = sum(4 * math.prod(shape) for shape in weights.shapes.values())
    assert 0.2 < (path / file).stat().st_size / size < 0.4
    metadata = metadata_of(path)
    assert metadata["int8_weights"]
    assert 1e-5 < metadata["greatest_difference"] < 0.9
    assert "int8 weights" in (path / "README.md").read_text()
    names = {file, "assets", "README.md", "export.json", "SHA256SUMS"}
    assert {one.name for one in path.iterdir()} == names


@pytest.mark.parametrize(
    ("module", "file_format", "int8", "says"),
    [
        ("tf2onnx", "onnx", False, r"bert-tf\[onnx\]"),
        ("onnxruntime", "onnx", False, r"bert-tf\[onnx\]"),
        ("ai_edge_litert", "litert", False, r"bert-tf\[litert\]"),
        ("tf2onnx", "saved_model", True, "--format=saved_model"),
    ],
)
def test_what_cannot_be_converted(
    weights_of, tmp_path, monkeypatch, module, file_format, int8, says
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=says):
        export(weights_of("pairs"), "pairs", tmp_path / "export", file_format, int8=int8)
    assert not (tmp_path / "export").exists()


@pytest.fixture(scope="module")
def choosing(weights_of) -> predictor.ServedModel:
    """A model of multiple choice."""
    weights = weights_of("multiple_choice")
    return predictor.of_weights(
        weights, CONFIG, TOKENIZER, served_models.options("multiple_choice")
    )


@pytest.mark.parametrize(
    ("int8", "change", "differ"),
    [
        (False, lambda v: v + 2e-4 * (v.dtype.kind == "f"), "by 2.0e-04"),
        (False, lambda v: v + (v.dtype.kind == "i"), "by .*, and in 100% of the whole"),
        (False, lambda v: v * np.nan, "by inf"),
        (False, lambda v: v[np.newaxis] if v.dtype.kind == "i" else v, "by inf"),
        (True, lambda v: v + 1, None),
        (True, lambda v: v[np.newaxis], "by inf"),
    ],
)
def test_a_file_that_answers_otherwise_is_not_written(
    weights_of, choosing, tmp_path, monkeypatch, int8, change, differ
):
    """The model itself answers in place of a file."""
    kind, folder = "multiple_choice", tmp_path / "export"
    weights = weights_of(kind)

    def load(*_):
        return lambda asked: {n: change(v) for n, v in choosing.run(asked, "ids").items()}

    monkeypatch.setattr(portable, "convert", lambda _, path, *__, **___: open(path, "w").close())
    monkeypatch.setitem(portable.FORMATS, "onnx", portable.FORMATS["onnx"]._replace(load=load))
    if differ is None:
        metadata = metadata_of(export(weights, kind, folder, "onnx", int8=int8))
        assert (metadata["int8_weights"], metadata["other_whole_numbers"]) == (True, 1.0)
        return
    with pytest.raises(InputError, match=f"answers of the converted model that differ {differ}"):
        export(weights, kind, folder, "onnx", int8=int8)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("score", "off", "difference"),
    [(2.0, 0.25, 0.25), (8.0, -0.5, 0.5), (600_000.0, 0.75, 0.75 / 60_000), (-40.0, 1.0, 0.25)],
)
def test_what_is_large_may_differ_by_more(monkeypatch, score, off, difference):
    """Prices, say, whose float32 have steps of 0.06."""
    monkeypatch.setattr(portable, "sample_features", lambda _: [{"input_ids": np.int32([[1]])}])
    found = portable.compare(
        lambda _: {"score": np.float32([score + off])},
        lambda **_: {"score": tf.constant([score])},
        None,
    )
    assert found == (pytest.approx(difference), 0.0)


@pytest.mark.parametrize(("file_format", "length"), [("litert", 9), ("onnx", 29)])
def test_questions_of_short_windows(weights_of, tmp_path, caplog, file_format, length):
    """Shorter than 64 tokens of a question, [CLS], two [SEP] and a piece of context."""
    caplog.set_level("INFO", logger="absl")
    options = ServingOptions(task="question_answering", max_seq_length=length)
    arguments = weights_of("no_answer"), CONFIG, TOKENIZER, str(tmp_path)
    folder = export_checkpoint(*arguments, options=options, file_format=file_format)
    assert metadata_of(folder)["signatures"].keys() == {"ids"}
    assert f"Questions are cut to {(length - 4) // 2} tokens" in caplog.text
