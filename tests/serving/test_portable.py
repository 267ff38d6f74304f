"""Files for LiteRT and ONNX Runtime: every kind answers as the model's `ids` signature does."""

import dataclasses
import functools
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import served_models
import tensorflow as tf
from served_models import CONFIG, LENGTH, TOKENIZER

from bert_tf.errors import InputError
from bert_tf.serving import onnx_names, portable, predictor
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.signatures import make_task

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
    card = " ".join((path / "README.md").read_text().split())
    assert "int8 weights" in card
    has_batches = file_format == "onnx"
    assert ("greatest_difference_in_batches" in metadata) == has_batches
    assert ("In a batch of these texts" in card) == has_batches
    assert ("Answers depend on the other texts of a batch, and on its padding" in card) == (
        has_batches
    )
    assert ("Answers do not depend on padding" in card) != has_batches
    asked = features_of(metadata["signatures"]["ids"], 1, LENGTH, seed=1)
    asked["input_mask"][:, 5:] = 0
    other = asked | {"input_ids": np.where(asked["input_mask"], asked["input_ids"], 7)}
    run = portable.FORMATS[file_format].load(str(path / file), 1)
    answers = [run(features)["probabilities"] for features in (asked, other)]
    assert np.array_equal(*answers) != has_batches
    if has_batches:
        pair = {name: np.concatenate([asked[name], other[name]]) for name in asked}
        assert not np.array_equal(run(pair)["probabilities"][:1], answers[0])
    names = {file, "assets", "README.md", "export.json", "SHA256SUMS"}
    assert {one.name for one in path.iterdir()} == names


DIMENSIONS = {  # of what a file takes and answers
    "pairs": ({}, {"probability": ["batch"], "probabilities": ["batch", 3]}),
    "multiple_choice": ({}, {"choice": ["batch"], "probabilities": ["batch", "choices"]}),
    "token_labels": (
        {},
        {"label_ids": ["batch", "sequence"], "probabilities": ["batch", "sequence", 3]},
    ),
    "embeddings": ({}, {"mean": ["batch", 22], "pooled": ["batch", 22]}),
    "fill_mask": (
        {"masked_lm_positions": ["batch", "masks"]},
        {"piece_ids": ["batch", "masks", 3], "probabilities": ["batch", "masks", 3]},
    ),
    "no_answer": (
        {},
        {"start_logits": ["batch", "sequence"], "end_logits": ["batch", "sequence"]},
    ),
}


@pytest.mark.parametrize("kind", DIMENSIONS)
def test_sizes_have_names(weights_of, tmp_path, kind):
    path = export(weights_of(kind), kind, tmp_path / "export", "onnx")
    session = onnxruntime.InferenceSession(f"{path}/model.onnx")
    further, answers = DIMENSIONS[kind]
    is_choice = kind == "multiple_choice"
    shape = ["batch", "choices", "sequence"] if is_choice else ["batch", "sequence"]
    features = dict.fromkeys(["input_ids", "input_mask", "segment_ids"], shape) | further
    assert {one.name: one.shape for one in session.get_inputs()} == features
    assert {one.name: one.shape for one in session.get_outputs()} == answers
    for sizes in ({"batch": 1, "sequence": 2, "choices": 5}, {"batch": 4, "sequence": LENGTH}):
        sizes = {"masks": 3, "choices": 2} | sizes
        asked = {
            name: np.ones([sizes[one] for one in dimensions], np.int32)
            for name, dimensions in features.items()
        }
        values = session.run([*answers], asked)
        for value, dimensions in zip(values, answers.values(), strict=True):
            assert value.shape == tuple(sizes.get(one, one) for one in dimensions)


EXPORT = """
import sys, served_models
from bert_tf.checkpoints.loading import open_weights
from bert_tf.serving.export import export_checkpoint
checkpoint, folder = sys.argv[1:]
weights = open_weights(checkpoint)
arguments = weights, weights.config, served_models.TOKENIZER, folder
options = served_models.options("fill_mask")
export_checkpoint(*arguments, options=options, file_format="onnx", int8=True)
"""


def test_the_same_model_gives_the_same_bytes(tmp_path):
    """In processes that order sets otherwise, and in one that has converted others before."""
    weights = served_models.write_folder("fill_mask", tmp_path / "model")
    processes = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", EXPORT, weights.path, str(tmp_path / seed)]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        processes.append(subprocess.Popen(command, env=environment))
    paths = [export(weights, "fill_mask", tmp_path / "3", "onnx", int8=True)]
    for _ in range(2):
        paths.append(export(weights, "fill_mask", tmp_path / "4", "onnx"))
    assert [process.wait() for process in processes] == [0, 0]
    paths += [tmp_path / "1/1", tmp_path / "2/1"]
    written = [(pathlib.Path(path) / "model.onnx").read_bytes() for path in paths]
    here, first, second, *others = written
    assert others == [here, here]
    assert first == second


@pytest.mark.parametrize("is_positive", [True, False])
def test_names_in_branches(tmp_path, is_positive):
    """Of a head with conditions. Neither names nor order nor what is not needed matter.

    y = x + w if x's sum is positive, else -w.
    """
    onnx = pytest.importorskip("onnx")
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    files = []
    for w, total, flag, mine, reverse in (("w", "s", "f", "m", 1), ("b", "z", "a", "c", -1)):
        then = make.make_graph(
            [make.make_node("Add", ["x", w], [mine])],
            "then",
            [],
            [make.make_tensor_value_info(mine, number, None)],
        )
        otherwise = make.make_graph(
            [make.make_node("Neg", [w], [mine])],
            "else",
            [],
            [make.make_tensor_value_info(mine, number, None)],
        )
        nodes = [
            make.make_node("ReduceSum", ["x"], [total], keepdims=0),
            make.make_node("Greater", [total, "zero"], [flag]),
            make.make_node("If", [flag], ["y"], then_branch=then, else_branch=otherwise),
        ]
        tensors = [
            make.make_tensor(w, number, [1], [4.0]),
            make.make_tensor("zero", number, [], [0.0]),
            make.make_tensor(f"unused {w}", number, [], [0.0]),
        ]
        graph = make.make_graph(
            nodes,
            "graph",
            [make.make_tensor_value_info("x", number, ["unk__1"])],
            [make.make_tensor_value_info("y", number, ["unk__2"])],
            tensors[::reverse],
        )
        opset = [make.make_opsetid("", 15)]
        path = str(tmp_path / f"{w}.onnx")
        onnx.save(make.make_model(graph, opset_imports=opset, ir_version=8), path)
        onnx_names.write_named(path, {"x": ["batch"], "y": ["batch"]})
        files.append(pathlib.Path(path).read_bytes())
    assert files[0] == files[1]
    session = onnxruntime.InferenceSession(files[0])
    x = np.float32([1, 2] if is_positive else [-1, -2])
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, [5, 6] if is_positive else [-4])
    assert len(onnx.load_from_string(files[0]).graph.initializer) == 2


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


@pytest.mark.parametrize(("fixed", "count"), [(True, 1), (False, 2)])
def test_texts_are_compared_alone_and_in_a_batch(weights_of, choosing, fixed, count):
    """Each choice is another one in a batch, and alone those of the shortest row."""

    def other(asked):
        values = choosing.run(asked, "ids")
        is_batch = len(asked["input_ids"]) > 1
        is_other = is_batch or asked["input_mask"].sum() == shortest
        off = {"probabilities": 0.25 * is_batch, "choice": int(is_other)}
        return {name: value + value.dtype.type(off[name]) for name, value in values.items()}

    def own(**asked):
        arrays = {name: value.numpy() for name, value in asked.items()}
        return {name: tf.constant(v) for name, v in choosing.run(arrays, "ids").items()}

    kind = "multiple_choice"
    task = make_task(weights_of(kind), CONFIG, TOKENIZER, served_models.options(kind))
    counts = [row["input_mask"].sum() for row in portable.sample_rows(task)]
    shortest = min(counts)
    far = portable.beside(other, own, task, fixed=fixed)
    assert len(far) == 2 * count
    assert far["greatest_difference"] == 0.0
    assert far["other_whole_numbers"] == counts.count(shortest) / len(counts) < 1
    if not fixed:
        assert far["greatest_difference_in_batches"] == pytest.approx(0.25)
        assert far["other_whole_numbers_in_batches"] == 1.0


@pytest.mark.parametrize("kind", DIMENSIONS)
def test_compared_texts(weights_of, kind):
    """Of words, with the special pieces of the task's own sequences, of several lengths."""
    weights, options = weights_of(kind), served_models.options(kind)
    task = make_task(weights, CONFIG, TOKENIZER, options)
    rows = portable.sample_rows(task)
    texts = 2 if kind in ("pairs", "multiple_choice", "no_answer") else 1
    number = 3 if kind == "multiple_choice" else 1
    special = {TOKENIZER.vocab[piece] for piece in ("[PAD]", "[MASK]", "[UNK]")}
    for row in rows:
        sequences = row["input_ids"].reshape(number, -1)
        for ids, mask in zip(sequences, row["input_mask"].reshape(number, -1), strict=True):
            real = ids[mask != 0].tolist()
            assert (real[0], real[-1]) == (TOKENIZER.vocab["[CLS]"], TOKENIZER.vocab["[SEP]"])
            assert real.count(TOKENIZER.vocab["[SEP]"]) == texts
            assert not special & {*real}
        if "masked_lm_positions" in row:
            assert row["masked_lm_positions"].max() < row["input_mask"].sum()
    lengths = {row["input_ids"].shape[-1] for row in rows}
    assert len(lengths) > 1
    assert max(lengths) == LENGTH
    batch = portable.joined(rows)
    assert batch["input_ids"].shape[-1] == LENGTH
    assert batch["input_mask"].sum() == sum(row["input_mask"].sum() for row in rows)


@pytest.mark.parametrize(
    ("score", "off", "difference"),
    [(2.0, 0.25, 0.25), (8.0, -0.5, 0.5), (600_000.0, 0.75, 0.75 / 60_000), (-40.0, 1.0, 0.25)],
)
def test_what_is_large_may_differ_by_more(score, off, difference):
    """Prices, say, whose float32 have steps of 0.06."""
    found = portable.compare(
        lambda _: {"score": np.float32([score + off])},
        lambda **_: {"score": tf.constant([score])},
        [{"input_ids": np.int32([[1]])}],
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
