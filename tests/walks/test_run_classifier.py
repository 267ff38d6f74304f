"""run_classifier.py from rows to predictions: learns, loses nothing, goes on when killed."""

import csv
import json
import os
import pathlib
import signal
import time

import keras
import numpy as np
import pytest
from walking import (
    attempt,
    end_all,
    read_tensors,
    run,
    start,
    write_config,
    write_vocabulary,
)

from bert_tf import BertConfig, bert_encoder
from bert_tf.checkpoints import checkpoint_name, write_checkpoint

pytestmark = pytest.mark.walk
ROWS = {"train": 60, "dev": 21, "test": 13}
FLAGS = {
    "task_name": "csv",
    "text_a_column": "words",
    "label_column": "kind",
    "id_column": "key",
    "max_seq_length": 17,
    "learning_rate": "5e-3",
    "train_batch_size": 6,
    "num_train_epochs": 20,
    "save_checkpoints_steps": 10,
    "log_steps": 20,
}


def write_rows(path: pathlib.Path, num_rows: int, *, seed: int) -> None:
    """Texts of 1 to 14 words; `first` if w1 is among them, else `second`."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "words", "kind"])
        for number in range(num_rows):
            words = [f"w{n}" for n in random.integers(2, 9, random.integers(1, 14))]
            kind = ["second", "first"][random.integers(2)]
            if kind == "first":
                words.insert(random.integers(len(words) + 1), "w1")
            writer.writerow([f"{path.stem}{number}", " ".join(words), kind])


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    """Data, and a fresh encoder as if it had been pre-trained."""
    folder = tmp_path_factory.mktemp("classifier")
    for seed, (name, count) in enumerate(ROWS.items()):
        write_rows(folder / f"{name}.csv", count, seed=seed)
    config = BertConfig.from_json_file(write_config(folder / "bert_config.json"))
    write_vocabulary(folder / "vocab.txt")
    keras.utils.set_random_seed(3)
    encoder = bert_encoder(config)
    tensors = {checkpoint_name(v): v.numpy() * 5 for v in encoder.trainable_variables}
    tensors = {name: v / 5 if "LayerNorm" in name else v for name, v in tensors.items()}
    write_checkpoint(str(folder / "bert_model.ckpt"), tensors, temporary=str(folder / "new"))
    return folder


def flags(inputs: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    given = {"data_dir": inputs, "output_dir": output_dir, "init_checkpoint": inputs}
    return FLAGS | given | changes


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    run("run_classifier.py", **flags(inputs, folder, do_train=True, do_eval=True, do_predict=True))
    return folder


def read_results(folder: pathlib.Path) -> dict[str, float]:
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def read_table(path: pathlib.Path) -> list[dict]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_it_learns_and_says_so(trained):
    results = read_results(trained)
    assert results["global_step"] == 200
    assert results["eval_accuracy"] > 0.85
    assert results["eval_loss"] == results["loss"]
    rows = read_table(trained / "dev_predictions.tsv")
    assert len(rows) == ROWS["dev"]
    right = [row["prediction"] == row["label"] for row in rows]
    assert np.mean(right) == pytest.approx(results["eval_accuracy"])


def test_every_row_is_predicted_in_order(trained):
    rows = read_table(trained / "test_results_labeled.tsv")
    assert [row["id"] for row in rows] == [f"test{n}" for n in range(ROWS["test"])]
    plain = np.loadtxt(trained / "test_results.tsv")
    assert plain.shape == (ROWS["test"], 2)
    assert plain.sum(axis=1) == pytest.approx(1.0)
    for row, values in zip(rows, plain, strict=True):
        assert [float(row["first"]), float(row["second"])] == pytest.approx(values.tolist())
        assert row["prediction"] == ("first", "second")[int(values.argmax())]


def test_predictions_do_not_depend_on_batches_and_replicas(inputs, trained):
    before = np.loadtxt(trained / "test_results.tsv")
    results = read_results(trained)
    run(
        "run_classifier.py",
        "--nobucket_by_length",
        **flags(
            inputs,
            trained,
            init_checkpoint=None,
            do_eval=True,
            do_predict=True,
            predict_batch_size=4,
            eval_batch_size=10,
            strategy="mirrored",
            num_cpu_devices=2,
        ),
    )
    assert np.loadtxt(trained / "test_results.tsv") == pytest.approx(before, abs=1e-6)
    assert read_results(trained) == pytest.approx(results, abs=1e-6)


def finish(inputs, folder) -> str:
    """Trains to the end; compiled as the process that is killed is."""
    process = start("run_classifier.py", **flags(inputs, folder, do_train=True))
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


def test_killed_and_resumed_ends_the_same(inputs, tmp_path):
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    process = start("run_classifier.py", **flags(inputs, killed, do_train=True))
    try:
        while not (killed / "model.ckpt-20.index").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (killed / "model.ckpt-200.index").exists()
        assert "Going on from" in finish(inputs, killed)
        finish(inputs, undisturbed)
    finally:
        end_all()
    ours, theirs = read_tensors(killed), read_tensors(undisturbed)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert np.asarray(ours[name]).tobytes() == np.asarray(value).tobytes(), name


def test_several_trials_keep_the_best(inputs, tmp_path):
    given = flags(
        inputs, tmp_path, learning_rate="5e-3,1e-9", eval_steps=50,
        early_stopping=2, do_train=True, do_eval=True,
    )  # fmt: skip
    ended = run("run_classifier.py", **given)
    assert "The best trial: learning rate 0.005" in ended.stderr
    rows = read_table(tmp_path / "trials.tsv")
    assert [row["learning_rate"] for row in rows] == ["0.005", "1e-09"]
    best = max(float(row["eval_accuracy"]) for row in rows)
    assert read_results(tmp_path)["eval_accuracy"] == pytest.approx(best)
    facts = json.loads((tmp_path / "model_facts.json").read_text())
    assert facts["labels"] == ["first", "second"]


def test_a_bad_row_is_named(inputs, tmp_path):
    (tmp_path / "train.csv").write_text("key,words,kind\na,w1 w2,first\nb,w3\n")
    ended = attempt(
        "run_classifier.py", **flags(inputs, tmp_path / "out", data_dir=tmp_path, do_train=True)
    )
    assert ended.returncode == 1
    assert "train.csv, line 3" in ended.stderr
    assert "Traceback" not in ended.stderr
