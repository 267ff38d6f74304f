"""What version 0.1.0 wrote is read, resumed and served (tests/fixtures/version_0_1_0/README.md)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from walking import contents, in_process, read_tensors

from bert_tf.training.logging import read_curves

ROOT = pathlib.Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "version_0_1_0"
pytestmark = pytest.mark.walk
PRETRAINING = {
    "input_file": "pretraining/train.tfrecord",
    "eval_input_file": "pretraining/held_out.tfrecord",
    "bert_config_file": "pretraining/bert_config.json",
    "vocab_file": "pretraining/vocab.txt",
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "do_train": True,
    "do_eval": True,
    "train_batch_size": 4,
    "eval_batch_size": 4,
    "num_train_steps": 8,
    "num_warmup_steps": 2,
    "learning_rate": "1e-3",
    "strategy": "one",
    "save_checkpoints_steps": 4,
    "keep_checkpoint_max": 1,
    "log_steps": 2,
}
CLASSIFIER = {
    "task_name": "csv",
    "data_dir": "classifier/data",
    "text_a_column": "text",
    "do_train": True,
    "do_eval": True,
    "do_predict": True,
    "init_checkpoint": "pretraining/finished",
    "max_seq_length": 32,
    "train_batch_size": 6,
    "num_train_epochs": 30,
    "learning_rate": "5e-3",
    "strategy": "one",
    "eval_steps": 30,
    "save_checkpoints_steps": 30,
    "keep_checkpoint_max": 1,
    "log_steps": 30,
}
SQUAD = {
    "strategy": "one",
    "version_2_with_negative": True,
    "predict_file": "squad/data/dev.json",
    "do_predict": True,
    "do_eval": True,
    "max_seq_length": 48,
    "doc_stride": 16,
    "max_query_length": 14,
    "n_best_size": 3,
}
WEIGHTS = ("finished", "hugging_face", "keras/model.keras", "keras/model.weights.h5")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """A copy of what was written, and the current folder, as its checkpoints name files in it."""
    shutil.copytree(FIXTURES, tmp_path / "old")
    for archive in (tmp_path / "old").rglob("*.tar.xz"):
        with tarfile.open(archive) as packed:
            packed.extractall(archive.parent, filter="data")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def results(path: pathlib.Path) -> dict[str, float]:
    """An eval_results.txt."""
    lines = (line.split(" = ") for line in path.read_text().splitlines())
    return {name: float(value) for name, value in lines}


def assert_same_run(ended: pathlib.Path, expected: pathlib.Path, *besides: str) -> None:
    """The same checkpoint; another way of compiling may change the last digits."""
    ours, theirs = read_tensors(ended), read_tensors(expected)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if name == "bert_tf/run_facts":
            settings, old = json.loads(ours[name]), json.loads(value)
            for changed in besides:
                del old[changed]
            assert old.items() <= settings.items()
        else:
            np.testing.assert_allclose(ours[name], value, atol=1e-3, err_msg=name)


def test_pretraining_is_resumed(folder):
    for summaries in (folder / "pretraining/stopped").glob("events.*"):
        summaries.unlink()
    with in_process("run_pretraining.py") as main:
        main(**PRETRAINING, output_dir="pretraining/stopped")
    assert read_curves("pretraining/stopped")["loss"].keys() == {6, 8}  # none before step 4
    stopped, finished = folder / "pretraining/stopped", folder / "pretraining/finished"
    assert_same_run(stopped, finished, "train_data")  # by now train_records, of other sizes
    scores, expected = (results(path / "eval_results.txt") for path in (stopped, finished))
    assert scores == pytest.approx(expected, abs=1e-3)


def test_the_end_of_pretraining_is_known(folder):
    finished = folder / "pretraining/finished"
    before = contents(finished)
    with in_process("run_pretraining.py") as main:
        main(**PRETRAINING | {"do_eval": False}, output_dir="pretraining/finished")
    assert contents(finished) == before  # nothing is trained


def test_a_classifier_is_resumed_and_its_end_is_known(folder):
    with in_process("run_classifier.py") as main:
        main(**CLASSIFIER, output_dir="classifier/stopped")
        assert_same_run(folder / "classifier/stopped/best", folder / "classifier/finished/best")
        before = read_tensors(folder / "classifier/finished")
        main(**CLASSIFIER, output_dir="classifier/finished")  # it has ended: nothing is trained
    after = read_tensors(folder / "classifier/finished")
    assert before["bert_tf/run_facts"] == after["bert_tf/run_facts"]
    old = FIXTURES / "classifier/finished"
    for name in ("eval_results.txt", "test_eval_results.txt"):
        new_scores = results(folder / "classifier/finished" / name)
        assert new_scores == pytest.approx(results(old / name), abs=1e-5)


def test_questions_are_answered_by_the_stored_threshold(folder):
    expected = folder / "squad/with_stored_threshold"
    with in_process("run_squad.py") as main:
        main(**SQUAD, output_dir="squad/finished")
    found = json.loads((folder / "squad/finished/predictions.json").read_text())
    assert found == json.loads((expected / "predictions.json").read_text())
    scores = results(folder / "squad/finished/eval_results.txt")
    assert scores == pytest.approx(results(expected / "eval_results.txt"), abs=1e-3)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_every_format_are_read(folder, capsys, name):
    with in_process("fill-mask") as main:
        text = "The boat left the [MASK] in the morning."
        main(text, init_checkpoint=f"pretraining/{name}")
    assert capsys.readouterr().out == (folder / "pretraining/filled.txt").read_text()
    with in_process("extract_features.py") as main:
        main(
            init_checkpoint=f"pretraining/{name}",
            input_file="pretraining/two_lines.txt",
            output_file="vectors.npz",
            pooling="mean",
            output_format="npz",
            max_seq_length=32,
        )
    found, expected = (
        np.load(folder / path)["embeddings"]
        for path in ("vectors.npz", "pretraining/two_lines.npz")
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "asked"), [("classifier", "texts.txt"), ("squad", "questions.jsonl")]
)
def test_exports_answer(folder, kind, asked):
    with in_process("predict") as main:
        main(
            model=f"exports/{kind}",
            input_file=f"exports/{kind}_{asked}",
            output_file="answers.jsonl",
        )
    found, expected = (
        [json.loads(line) for line in (folder / path).read_text().splitlines()]
        for path in ("answers.jsonl", f"exports/{kind}_answers.jsonl")
    )
    assert same(found, expected)


def same(a, b) -> bool:
    """Equal, numbers up to rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return abs(a - b) < 1e-4 if isinstance(a, float) else a == b


def test_keras_loads_a_model_after_one_import(folder):
    program = (
        "import bert_tf.library, keras; "
        "print(keras.models.load_model('pretraining/keras/model.keras', compile=False)"
        ".count_params())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.stdout.strip() == "3146", ended.stderr
