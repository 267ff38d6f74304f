"""What is written: operations, weights, cards, versions, and what is refused."""

import dataclasses
import fcntl
import json
import math
import pathlib
import re

import killed
import numpy as np
import pytest
import served_models
import tensorflow as tf
from exported_answers import weights_beside
from saved_models import SERVED_OPERATIONS, TEXT_OPERATIONS, operations_of
from served_models import KINDS, TOKENIZER

from bert_tf import Predictor, runtime
from bert_tf.checkpoints import saving
from bert_tf.checkpoints.loading import Weights
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.serving import export as export_module
from bert_tf.serving import loading
from bert_tf.serving.export import export_checkpoint, export_run
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.signatures import Signature


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_one_that_tf_serving_has(exports, kind):
    operations = operations_of(exports[kind])
    assert not operations - SERVED_OPERATIONS - TEXT_OPERATIONS
    assert operations >= {"FastWordpieceTokenizeWithOffsets", "MatMul"}


def test_operations_of_this_list_are_tensorflows_own():
    control_flow = {"If", "While", "StatelessIf", "StatelessWhile", "Const"}
    calls = {"PartitionedCall", "StatefulPartitionedCall"}
    assert not SERVED_OPERATIONS - control_flow - calls - tf.raw_ops.__dict__.keys()


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
    size = (path / "variables/variables.data-00000-of-00001").stat().st_size
    assert size < written + 20_000  # the object graph


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_that_the_card_tells(exports, answers, results, kind):
    of_texts, _, of_ids, of_examples = answers[kind]
    found = {"serving_default": of_texts, "ids": of_ids, "examples": of_examples}
    if kind == "embeddings":
        found["tokens"] = results["pieces"][0]
    metadata = json.loads((pathlib.Path(exports[kind]) / "export.json").read_text())
    card = (pathlib.Path(exports[kind]) / "README.md").read_text()
    assert metadata["answers"].keys() == metadata["signatures"].keys() == found.keys()
    types = {"string": object, "float": np.float32, "int32": np.int32, "bool": np.bool_}
    for signature, arrays in found.items():
        told = metadata["answers"][signature]
        assert told.keys() == arrays.keys()
        for name, text in told.items():
            dtype, shape = re.match(r"(\w+) \[(.+?)\]", text).groups()
            assert arrays[name].dtype == types[dtype]
            assert arrays[name].ndim == len(shape.split(", "))
            assert f"- `{name}`: {text}" in card


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
    results = pathlib.Path(weights.path).with_name("eval_results.txt")
    results.write_text("eval_accuracy = 0.75\nloss = 1.0\n")
    mine = ["incomplete-8", ".7.incomplete"]
    for name in ("1", "7", *mine):
        (tmp_path / name).mkdir()
    killed.leave_lock(tmp_path / ".lock")
    (tmp_path / killed.left_name("8")).mkdir()  # of a process that was killed
    path = export(weights, tmp_path)
    results.unlink()
    assert path.name == "8"
    assert names_in(tmp_path) == sorted(["1", "7", "8", *mine])
    assert "eval_accuracy: 0.75" in (path / "README.md").read_text()
    with pytest.raises(InputError, match=r"where version 8 has a saved_model\.pb"):
        export(weights, tmp_path, file_format="onnx")
    monkeypatch.setattr(tf.saved_model, "save", failing("no space left"))
    with pytest.raises(InputError, match="no space left"):
        export(weights, tmp_path)
    assert names_in(tmp_path) == sorted(["1", "7", "8", *mine])


def test_one_process_at_a_time_exports_into_a_folder(weights, tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="one process for one output"):
            export(weights, tmp_path)
    assert names_in(tmp_path) == [".lock"]


def test_a_folder_that_cannot_be_moved_is_no_version(weights, tmp_path, monkeypatch):
    rename = tf.io.gfile.rename

    def fail_for_folders(source, target, **more):
        (failing("not here") if tf.io.gfile.isdir(source) else rename)(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "rename", fail_for_folders)
    with pytest.raises(InputError, match="not here"):
        export(weights, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_on_a_remote_file_system_what_makes_it_a_model_comes_last(weights, tmp_path, monkeypatch):
    copy, copied = tf.io.gfile.copy, []

    def noting(source, target, **more):
        if target.startswith(str(tmp_path)):
            copied.append(target)
        if should_fail and len(copied) == 3:
            failing("a changed generation")()
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", noting)
    monkeypatch.setattr(saving, "is_remote", lambda _: True)
    should_fail = True
    with pytest.raises(InputError, match="a changed generation"):
        export(weights, tmp_path / "export")
    assert len(copied) == 3  # and not tried again under another number
    assert not (tmp_path / "export").exists()
    should_fail = False
    copied.clear()
    path = export(weights, tmp_path / "export")
    names = [name.removeprefix(f"{path}/") for name in copied]
    assert names[-1] == "saved_model.pb"
    assert {"README.md", "export.json", "assets/vocab.txt", "variables/variables.index"} <= {*names}
    assert names_in(tmp_path / "export") == ["1"]
    assert Predictor(path).predict(["it"])


# ---------------------------------------------------------------------------- errors


def test_answers_that_are_no_numbers_are_not_exported(weights, tmp_path):
    def read(name: str) -> np.ndarray:
        value = np.array(weights.read(name))
        return np.full_like(value, np.nan) if name == "output_bias" else value

    broken = dataclasses.replace(weights, read=read)
    with pytest.raises(InputError, match=r"a model whose probabilit.* NaN or infinite"):
        export(broken, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    model = loading.of_weights(broken, broken.config, TOKENIZER, ServingOptions())
    with pytest.raises(InputError, match="NaN or infinite"):
        Predictor(model).predict(["it"])


def test_what_a_model_has_no_memory_for_is_no_fault_of_the_path(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(Signature, "traced", failing("OOM when allocating"))
    with pytest.raises(tf.errors.FailedPreconditionError, match="OOM"):
        export(weights, tmp_path / "export")
    assert not (tmp_path / "export").exists()


# ---------------------------------------------------------------------------- of a run


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
