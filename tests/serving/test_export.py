"""What is written: operations, weights, cards, checksums, versions, and what is refused."""

import dataclasses
import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import killed
import numpy as np
import pytest
import served_models
import small_squad
import tensorflow as tf
from exported_answers import weights_beside
from saved_models import SERVED_OPERATIONS, TEXT_OPERATIONS, operations_of
from served_models import CONFIG, KINDS, LENGTH, THRESHOLD, TOKENIZER

from bert_tf import FullTokenizer, Predictor, files, runtime
from bert_tf.checkpoints.loading import Weights
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.serving import export as export_module
from bert_tf.serving import predictor
from bert_tf.serving.export import CHECKSUMS, WARM_UP_FILE, export_checkpoint, export_run
from bert_tf.serving.options import ServingOptions

VARIABLES = "variables/variables.data-00000-of-00001"


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_one_that_tf_serving_has(exports, kind):
    operations = operations_of(exports[kind])
    control_flow = {"If", "While", "StatelessIf", "StatelessWhile", "Const", "PartitionedCall"}
    control_flow.add("StatefulPartitionedCall")
    assert not SERVED_OPERATIONS - control_flow - tf.raw_ops.__dict__.keys()  # TensorFlow's own
    assert not operations - SERVED_OPERATIONS - TEXT_OPERATIONS
    assert operations >= {"FastWordpieceTokenizeWithOffsets", "MatMul"}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_written_once(exports, kind):
    path = pathlib.Path(exports[kind])
    reader = tf.train.load_checkpoint(str(path / "variables/variables"))
    shapes = reader.get_variable_to_shape_map()
    written = sum(4 * math.prod(s) for name, s in shapes.items() if "CHECKPOINTABLE" not in name)
    without_pooler = kind in ("token_labels", "fill_mask", "question_answering", "no_answer")
    unused = r"cls/seq_relationship/" + "|bert/pooler/" * without_pooler
    weights = weights_beside(exports[kind])
    used = [name for name in weights.names if not re.match(unused, name)]
    assert written == sum(4 * math.prod(weights.shapes[name]) for name in used)
    assert (path / VARIABLES).stat().st_size < written + 20_000  # the object graph


# ---------------------------------------------------------------------------- cards


@pytest.mark.parametrize("kind", KINDS)
def test_what_accompanies_an_export(exports, answers, results, kind):
    """Answers as told, the vocabulary, the options, and no word of where it was made."""
    of_texts, _, of_ids, of_examples = answers[kind]
    found = {"serving_default": of_texts, "ids": of_ids, "examples": of_examples}
    if kind == "embeddings":
        found["tokens"] = results["pieces"][0]
    folder = pathlib.Path(exports[kind])
    metadata = json.loads((folder / "export.json").read_text())
    assert metadata["answers"].keys() == metadata["signatures"].keys() == found.keys()
    types = {"string": object, "float": np.float32, "int32": np.int32, "bool": np.bool_}
    for signature, arrays in found.items():
        told = metadata["answers"][signature]
        assert told.keys() == arrays.keys()
        for name, text in told.items():
            dtype, shape = re.match(r"(\w+) \[(.+?)\]", text).groups()
            assert arrays[name].dtype == types[dtype]
            assert arrays[name].ndim == len(shape.split(", "))
            if name.startswith("num_") or "S" in shape.split(", "):
                assert signature in metadata["padded"]
    for secret in (str(folder.parents[2]), os.uname().nodename):
        for name in ("README.md", "export.json", "saved_model.pb"):
            assert secret.encode() not in (folder / name).read_bytes(), (name, secret)
    assert metadata["source"] == "model.ckpt"
    pieces = (folder / "assets/vocab.txt").read_text().splitlines()
    assert pieces == list(TOKENIZER.inv_vocab.values())
    if kind == "no_answer":
        assert metadata["options"]["null_score_diff_threshold"] == THRESHOLD


def test_metrics_are_those_of_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "eval_results.txt"
    results.write_text("eval_accuracy = 0.75\nglobal_step = 7\n")
    wanted = {"eval_accuracy": "0.75", "global_step": "7"}
    for name in ("best", "1"):
        (tmp_path / name).mkdir()
    for path, metrics in (
        ("model.ckpt-7", wanted),
        ("model.ckpt-8", {}),
        ("bert_model.ckpt", wanted),  # its step is not known
        ("best/model.ckpt-7", wanted),
        ("best/model.ckpt-5", {}),
        ("1/model.ckpt-7", {}),
    ):
        for found in (f"{tmp_path}/{path}", path):
            assert export_module.metrics_of(found) == metrics, found
    results.write_text("eval_accuracy = 0.75\n")
    assert export_module.metrics_of(f"{tmp_path}/model.ckpt-8") == {"eval_accuracy": "0.75"}


def test_warm_up_requests_are_those_that_tf_serving_reads(exports):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    for path in exports.values():
        metadata = json.loads(pathlib.Path(path, "export.json").read_text())
        records = list(tf.data.TFRecordDataset(f"{path}/{WARM_UP_FILE}").as_numpy_iterator())
        assert len(records) > 3
        for record in records:
            request = logs.PredictionLog.FromString(record).predict_log.request
            spec = request.model_spec
            assert (spec.name, spec.signature_name) == ("export", "serving_default")
            types = {name: tf.make_ndarray(proto).dtype for name, proto in request.inputs.items()}
            assert types == dict.fromkeys(metadata["texts"], np.dtype(object))


def test_pieces_that_are_never_split(tmp_path):
    """The graph keeps them whole, as the Python tokenizer does, and the card says so."""
    kept = ("<e1>", "[X y]")
    pieces, text = [*small_squad.PIECES, *kept], "who<e1> founded [X y]it, <E1>."
    tokenizer = FullTokenizer("v", pieces=pieces, never_split=kept, strip_accents=False)
    kind = "classification"
    options, weights = served_models.options(kind), served_models.write_folder(kind, tmp_path / "m")
    path = export_checkpoint(weights, CONFIG, tokenizer, str(tmp_path / "e"), options=options)
    model = predictor.open_model(path)
    unexported = predictor.of_weights(weights, CONFIG, tokenizer, options)
    assert not operations_of(path) - SERVED_OPERATIONS - TEXT_OPERATIONS
    assert model.metadata["never_split"] == [*kept]
    assert model.tokenizer.tokenize(text) == tokenizer.tokenize(text)
    assert model.metadata["strip_accents"] is model.tokenizer.strip_accents is False
    asked = {"text": np.array([one.encode() for one in (text, "", "it")], object)}
    found, again = (one.run(asked) for one in (model, unexported))
    np.testing.assert_allclose(found["probabilities"], again["probabilities"], atol=1e-6)
    batch = tokenizer([text], max_length=LENGTH)
    assert {*map(pieces.index, kept)} <= {*batch["input_ids"][0].tolist()}
    by_ids = model.run(batch, "ids")["probabilities"]
    np.testing.assert_allclose(found["probabilities"][:1], by_ids, atol=1e-6)
    split = FullTokenizer("v", pieces=pieces)([text], max_length=LENGTH)
    assert np.abs(by_ids - model.run(split, "ids")["probabilities"]).max() > 1e-3


def test_added_words(tmp_path):
    """The graph finds them in raw text, in any case, as the Python tokenizer does."""
    words = ("Covid-19", "東it")
    pieces, text = [*small_squad.PIECES, *words], "whoCOVID-19 founded 東IT, Covid."
    tokenizer = FullTokenizer("v", pieces=pieces, added_words=words)
    kind = "classification"
    options, weights = served_models.options(kind), served_models.write_folder(kind, tmp_path / "m")
    path = export_checkpoint(weights, CONFIG, tokenizer, str(tmp_path / "e"), options=options)
    model = predictor.open_model(path)
    assert model.metadata["added_words"] == [*words]
    assert model.tokenizer.tokenize(text) == tokenizer.tokenize(text)
    batch = tokenizer([text], max_length=LENGTH)
    assert {*map(pieces.index, words)} <= {*batch["input_ids"][0].tolist()}
    by_texts = model.run({"text": np.array([text.encode()], object)})["probabilities"]
    np.testing.assert_allclose(by_texts, model.run(batch, "ids")["probabilities"], atol=1e-6)


# ---------------------------------------------------------------------------- checksums


@pytest.fixture
def copied(exports, tmp_path) -> pathlib.Path:
    """A copy of an export, to be damaged."""
    return pathlib.Path(shutil.copytree(exports["classification"], tmp_path / "1"))


def test_sha256sum_checks_every_file(copied):
    listed = {line.split("  ")[1] for line in (copied / CHECKSUMS).read_text().splitlines()}
    there = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert listed == there - {CHECKSUMS, "README.md"}
    assert {"saved_model.pb", VARIABLES, "assets/vocab.txt", "export.json"} <= listed
    if shutil.which("sha256sum"):
        check = ["sha256sum", "--strict", "--check", CHECKSUMS]
        assert subprocess.run(check, cwd=copied, stdout=subprocess.DEVNULL).returncode == 0


def test_who_loads_an_export_does_not_read_it_twice(copied):
    """Checksums are for `sha256sum`; the model card may be edited."""
    wanted = Predictor(copied).predict(["it"])
    (copied / "README.md").write_text("Our model of 2026.")
    (copied / CHECKSUMS).write_text("of another export")
    assert Predictor(copied).predict(["it"]) == wanted
    (copied / CHECKSUMS).unlink()
    assert Predictor(copied.parent).predict(["it"]) == wanted


# ---------------------------------------------------------------------------- versions


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Weights:
    """A small classifier, to be exported in many ways."""
    return served_models.write_folder("classification", tmp_path_factory.mktemp("w") / "model")


def export(weights: Weights, folder: pathlib.Path, **more) -> pathlib.Path:
    arguments = (weights, weights.config, TOKENIZER, str(folder))
    return pathlib.Path(export_checkpoint(*arguments, options=ServingOptions(), **more))


def names_in(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(message: str):
    def fail(*_, **__):
        raise tf.errors.FailedPreconditionError(None, None, message)

    return fail


def test_versions_are_counted_and_nothing_unfinished_is_left(weights, tmp_path, monkeypatch):
    mine = ["incomplete-8", ".7.incomplete"]
    (tmp_path / "other/7").mkdir(parents=True)
    (tmp_path / "other/7/model.onnx").touch()
    with pytest.raises(InputError, match=r"--format=saved_model for a folder with .*7/model\.onnx"):
        export(weights, tmp_path / "other")
    shutil.rmtree(tmp_path / "other")
    for name in ("1", "7", *mine):
        (tmp_path / name).mkdir()
    killed.leave(tmp_path / "8", None)
    assert export(weights, tmp_path).name == "8"
    assert names_in(tmp_path) == sorted(["1", "7", "8", *mine])
    monkeypatch.setattr(tf.saved_model, "save", failing("no space left"))
    with pytest.raises(InputError, match="no space left"):
        export(weights, tmp_path)
    assert names_in(tmp_path) == sorted(["1", "7", "8", *mine])
    left = killed.leave(tmp_path / "9", None)
    with (left / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="one process for one output"):
            export(weights, tmp_path)
    assert names_in(left) == [".lock", "9"]


def test_answers_are_proved_before_a_version_has_its_name(weights, tmp_path, monkeypatch):
    """Those of the SavedModel as it was written, on texts."""
    save = tf.saved_model.save

    def save_other(exported: tf.Module, folder: str, **more) -> None:
        table = exported.model.word_embeddings
        table.assign(table[::-1])
        save(exported, folder, **more)
        table.assign(table[::-1])

    monkeypatch.setattr(tf.saved_model, "save", save_other)
    with pytest.raises(InputError, match=r"answers of the written model that differ by \d"):
        export(weights, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_path_that_tensorflow_takes_for_a_pattern(weights, tmp_path, exports):
    """Is refused before any work, where the export is made and where it is loaded."""
    folder = tmp_path / "lr=[1e-4]"
    with pytest.raises(InputError, match=r"Received: .*lr=.*\nExpected: a path without square"):
        export(dataclasses.replace(weights, read=None), folder)
    assert not folder.exists()
    shutil.copytree(exports["classification"], folder / "1")
    with pytest.raises(InputError, match=r"/1\nExpected: a path without square brackets"):
        Predictor(folder)


def test_on_a_remote_file_system_what_makes_it_a_model_comes_last(weights, tmp_path, monkeypatch):
    copy, copied = tf.io.gfile.copy, []

    def noting(source, target, **more):
        if target.startswith(str(tmp_path)):
            copied.append(target)
        if should_fail and len(copied) == 3:
            failing("a changed generation")()
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", noting)
    monkeypatch.setattr(files, "is_remote", lambda _: True)
    should_fail = True
    with pytest.raises(InputError, match="a changed generation"):
        export(weights, tmp_path / "export")
    assert len(copied) == 3  # and not tried again under another number
    assert not [*(tmp_path / "export").iterdir()]
    should_fail = False
    copied.clear()
    path = export(weights, tmp_path / "export")
    names = [name.removeprefix(f"{path}/") for name in copied]
    assert names[-1] == "saved_model.pb"
    assert {"README.md", "export.json", "assets/vocab.txt", "variables/variables.index"} <= {*names}
    assert names_in(tmp_path / "export") == ["1"]


# ---------------------------------------------------------------------------- errors


def test_answers_that_are_no_numbers_are_not_exported(weights, tmp_path):
    def read(name: str) -> np.ndarray:
        value = np.array(weights.read(name))
        return np.full_like(value, np.nan) if name == "output_bias" else value

    broken = dataclasses.replace(weights, read=read)
    with pytest.raises(InputError, match=r"a model whose probabilit.* NaN or infinite"):
        export(broken, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    model = predictor.of_weights(broken, broken.config, TOKENIZER, ServingOptions())
    with pytest.raises(InputError, match="NaN or infinite"):
        Predictor(model).predict(["it"])


def test_the_best_checkpoint_of_a_run_is_exported_by_the_chief(weights, tmp_path, monkeypatch):
    asked, waited = [], []

    def export_of_run() -> str | None:
        arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
        return export_run(str(tmp_path / "run"), *arguments, options=ServingOptions())

    monkeypatch.setattr(
        export_module, "export_checkpoint", lambda source, *_, **__: asked.append(source.path)
    )
    export_of_run()
    tensors = {name: weights.read(name) for name in weights.names}
    for folder, step in (("run", 3), ("run/best", 2)):
        CheckpointFolder(str(tmp_path / folder)).save(step, tensors)
        export_of_run()
    names = ("run/model.ckpt-3", "run/best/model.ckpt-2")
    assert asked == [weights.path, *(str(tmp_path / name) for name in names)]
    monkeypatch.setattr(runtime, "is_chief", lambda: False)
    monkeypatch.setattr(runtime, "barrier", lambda: waited.append(True))
    assert export_of_run() is None
    assert (waited, len(asked)) == ([True], 3)
