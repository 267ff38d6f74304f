"""What is written: operations, weights, cards, versions, and what is refused."""

import concurrent.futures
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
from exported_answers import (
    weights_beside,
)
from saved_models import SERVED_OPERATIONS, TEXT_OPERATIONS, operations_of
from served_models import KINDS, TOKENIZER

from bert_tf import Predictor, cluster, locks
from bert_tf.checkpoints import saving
from bert_tf.checkpoints.loading import Weights
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.serving import export as export_module
from bert_tf.serving import loading
from bert_tf.serving.export import export_checkpoint, export_run
from bert_tf.serving.options import ServingOptions


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_one_that_tf_serving_has(exports, kind):
    operations = operations_of(exports[kind])
    assert not operations - SERVED_OPERATIONS - TEXT_OPERATIONS
    assert operations >= {"FastWordpieceTokenizeWithOffsets", "MatMul"}


def test_operations_of_this_list_are_tensorflows_own():
    registered = tf.raw_ops.__dict__
    control_flow = {"If", "While", "StatelessIf", "StatelessWhile", "Const"}
    calls = {"PartitionedCall", "StatefulPartitionedCall"}
    assert not [name for name in SERVED_OPERATIONS - control_flow - calls if name not in registered]


def test_warm_up_requests_can_be_answered(results):
    assert [result for result in results["warm_up"] if isinstance(result, str)] == []


def test_weights_are_written_once(exports):
    for kind, path in exports.items():
        written = sum(4 * math.prod(shape) for shape in read_weights(path).values())
        size = (pathlib.Path(path) / "variables/variables.data-00000-of-00001").stat().st_size
        unused = r"cls/seq_relationship/"
        if kind in ("token_labels", "fill_mask", "question_answering", "no_answer"):
            unused += "|bert/pooler/"
        weights = weights_beside(path)
        used = [name for name in weights.names if not re.match(unused, name)]
        assert written == sum(4 * math.prod(weights.shapes[name]) for name in used)
        assert size < written + 20_000  # the object graph


def read_weights(path: str) -> dict[str, list[int]]:
    reader = tf.train.load_checkpoint(f"{path}/variables/variables")
    shapes = reader.get_variable_to_shape_map()
    return {name: shape for name, shape in shapes.items() if "CHECKPOINTABLE" not in name}


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
    assert "as long as the longest row asked" in card


def test_versions_are_counted_and_nothing_unfinished_is_left(tmp_path, monkeypatch, caplog):
    path = pathlib.Path(served_models.export("classification", tmp_path))
    assert path.name == "1"
    weights = weights_beside(str(path))
    (path.parent / "7").mkdir()
    mine = ["incomplete-8", ".version-00000007.incomplete"]
    for name in mine:
        (path.parent / name).mkdir()
    killed.leave_lock(path.parent / ".version-00000008.lock")
    (path.parent / killed.left_name("version-00000008")).mkdir()  # of a process that was killed
    (path.parent / ".version-00000005.lock").touch()  # of one that had made nothing yet
    writing = f".version-00000009.{'f' * 16}-89abcdef.incomplete"
    (path.parent / writing).mkdir()  # of one that is writing it
    (tmp_path / "model/eval_results.txt").write_text("eval_accuracy = 0.75\nloss = 1.0\n")
    arguments = (weights, weights.config, TOKENIZER, str(path.parent))
    with (path.parent / ".version-00000009.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = export_checkpoint(*arguments, options=ServingOptions())
    left = sorted(["1", "7", "8", writing, *mine])
    assert sorted(p.name for p in path.parent.iterdir() if p.name[-5:] != ".lock") == left
    monkeypatch.setattr(locks, "take_lock", lambda *_: None)  # as where there are no locks
    with caplog.at_level("WARNING", logger="absl"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert f"{path.parent}/{writing} is of an export that was killed" in caplog.text
    monkeypatch.undo()
    assert pathlib.Path(second).name == "8"
    assert "eval_accuracy: 0.75" in (path.parent / "8/README.md").read_text()

    def fail(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(InputError, match="no space left"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([*left, "9"])


def test_two_exports_at_once_are_two_versions(tmp_path, monkeypatch):
    """Each writes its own folder; whoever comes second takes the next number."""
    weights = served_models.write_folder("classification", tmp_path / "model")
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    save, paths = tf.saved_model.save, []

    def save_after_another(*args, **kwargs):
        monkeypatch.setattr(tf.saved_model, "save", save)
        options = ServingOptions(labels=served_models.LABELS[::-1])
        with concurrent.futures.ThreadPoolExecutor() as another:
            paths.append(another.submit(export_checkpoint, *arguments, options=options).result())
        save(*args, **kwargs)

    monkeypatch.setattr(tf.saved_model, "save", save_after_another)
    paths.append(export_checkpoint(*arguments, options=ServingOptions()))
    assert [pathlib.Path(path).name for path in paths] == ["1", "2"]
    labels = [json.loads(pathlib.Path(p, "export.json").read_text())["options"] for p in paths]
    assert [one["labels"] for one in labels] == [
        [*served_models.LABELS[::-1]],
        [*served_models.LABELS],
    ]

    taken = iter([1, 1, 3])
    monkeypatch.setattr(export_module, "_next_version", lambda _: next(taken))
    third = export_checkpoint(*arguments, options=ServingOptions())
    assert pathlib.Path(third).name == "3"
    assert sorted(p.name for p in (tmp_path / "export").iterdir()) == ["1", "2", "3"]


def test_a_folder_that_cannot_be_moved_is_no_version(tmp_path, monkeypatch):
    """Refused once, and not tried for ever."""
    weights = served_models.write_folder("classification", tmp_path / "model")

    rename, moved = tf.io.gfile.rename, []

    def fail(source, target, **more):
        if not tf.io.gfile.isdir(source):
            rename(source, target, **more)
            return
        moved.append(target)
        raise tf.errors.FailedPreconditionError(None, None, "not here")

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(InputError, match="not here"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert moved == [str(tmp_path / "export/1")]
    assert list((tmp_path / "export").iterdir()) == []


def test_on_a_remote_file_system_what_makes_it_a_model_comes_last(tmp_path, monkeypatch):
    weights = served_models.write_folder("classification", tmp_path / "model")
    copy, copied = tf.io.gfile.copy, []

    def noting(source, target, **more):
        copied.append(target)
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", noting)
    monkeypatch.setattr(saving, "is_remote", lambda _: True)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    path = export_checkpoint(*arguments, options=ServingOptions())
    names = [name.removeprefix(f"{path}/") for name in copied if name.startswith(path)]
    assert names[-1] == "saved_model.pb"
    wanted = {"README.md", "export.json", "assets/vocab.txt", "variables/variables.index"}
    assert wanted <= {*names}
    assert [p.name for p in (tmp_path / "export").iterdir()] == ["1"]
    assert Predictor(path).predict(["it"])


def test_a_copy_to_a_remote_file_system_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """And is not tried again under another number."""
    weights = served_models.write_folder("classification", tmp_path / "model")
    copy, copied = tf.io.gfile.copy, []

    def fail_at_the_third(source, target, **more):
        if target.startswith(str(tmp_path / "export/1/")):
            copied.append(target)
            if len(copied) == 3:
                raise tf.errors.FailedPreconditionError(None, None, "a changed generation")
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", fail_at_the_third)
    monkeypatch.setattr(saving, "is_remote", lambda _: True)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(InputError, match="a changed generation"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert len(copied) == 3
    assert list((tmp_path / "export").iterdir()) == []


def with_no_numbers(weights: Weights) -> Weights:
    def read(name: str) -> np.ndarray:
        value = np.array(weights.read(name))
        return np.full_like(value, np.nan) if name == "output_bias" else value

    return dataclasses.replace(weights, read=read)


def test_a_model_that_has_lost_its_way_is_not_exported(tmp_path):
    weights = with_no_numbers(served_models.write_folder("classification", tmp_path / "model"))
    arguments = (weights, weights.config, TOKENIZER)
    with pytest.raises(InputError, match=r"a model whose probabilit.* NaN or infinite"):
        export_checkpoint(*arguments, str(tmp_path / "export"), options=ServingOptions())
    assert list((tmp_path / "export").iterdir()) == []
    model = loading.of_weights(*arguments, ServingOptions())
    with pytest.raises(InputError, match="NaN or infinite"):
        Predictor(model).predict(["it"])


def test_versions_of_another_format_are_refused(tmp_path):
    """TF Serving would load the greatest, and have no model."""
    path = pathlib.Path(served_models.export("classification", tmp_path))
    weights = weights_beside(str(path))
    arguments = (weights, weights.config, TOKENIZER, str(path.parent))
    with pytest.raises(InputError, match=r"where version 1 has a saved_model\.pb"):
        export_checkpoint(*arguments, options=ServingOptions(), file_format="onnx")
    assert [p.name for p in path.parent.iterdir()] == ["1"]


def test_what_a_model_has_no_memory_for_is_no_fault_of_the_path(tmp_path, monkeypatch):
    weights = served_models.write_folder("classification", tmp_path / "model")

    def fail(_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    monkeypatch.setattr(export_module, "concrete_functions", fail)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert list((tmp_path / "export").iterdir()) == []


# ---------------------------------------------------------------------------- of a run


def export_of_run(folder: pathlib.Path, source: Weights) -> str | None:
    return export_run(
        str(folder / "run"), source, source.config, TOKENIZER, str(folder / "export"),
        options=ServingOptions(),
    )  # fmt: skip


def test_the_best_checkpoint_of_a_run_is_exported(tmp_path, monkeypatch):
    source = served_models.write_folder("classification", tmp_path / "model")
    tensors = {name: source.read(name) for name in source.names}
    asked = []
    monkeypatch.setattr(
        export_module, "export_checkpoint", lambda source, *_, **__: asked.append(source.path)
    )
    export_of_run(tmp_path, source)
    for folder, step in (("run", 3), ("run/best", 2)):
        CheckpointFolder(str(tmp_path / folder)).save(step, tensors)
        export_of_run(tmp_path, source)
    assert asked == [
        str(tmp_path / name)
        for name in ("model/model.ckpt", "run/model.ckpt-3", "run/best/model.ckpt-2")
    ]


def test_of_several_processes_the_chief_exports(tmp_path, monkeypatch):
    source = served_models.write_folder("classification", tmp_path / "model")
    waited = []
    monkeypatch.setattr(cluster, "is_chief", lambda: False)
    monkeypatch.setattr(cluster, "barrier", lambda: waited.append(True))
    assert export_of_run(tmp_path, source) is None
    assert waited == [True]
    assert not (tmp_path / "export").exists()
