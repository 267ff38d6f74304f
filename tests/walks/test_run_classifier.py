"""run_classifier.py from rows to predictions: learns, loses nothing, goes on when killed."""

import csv
import json
import os
import pathlib
import re
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from walking import (
    attempt,
    contents,
    end_all,
    in_process,
    read_tensors,
    run,
    start,
    write_config,
    write_vocabulary,
)

from bert_tf import BertConfig, bert_encoder
from bert_tf.checkpoints import checkpoint_name, write_checkpoint
from bert_tf.errors import InputError

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
    """Texts of 1 to 14 words; `first` if w1 is among them, else `second`.

    With a byte order mark and Windows line ends, as a spreadsheet writes them.
    """
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
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


GRID = {
    "learning_rate": "1e-9,5e-3",
    "num_train_epochs": 9,
    "eval_steps": 18,  # of 90
    "early_stopping": 3,
    "bias_correction": True,
    "legacy_shuffle": True,
    "do_train": True,
    "do_eval": True,
}


def start_grid(inputs, folder):
    """Two trials, with the original's batches."""
    return start("run_classifier.py", "--nobucket_by_length", **flags(inputs, folder, **GRID))


def run_grid(inputs, folder) -> str:
    """To their end; what was said."""
    process = start_grid(inputs, folder)
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def grid(inputs, tmp_path_factory) -> tuple[pathlib.Path, str]:
    folder = tmp_path_factory.mktemp("grid")
    return folder, run_grid(inputs, folder)


def test_several_trials_keep_the_best(grid):
    folder, said = grid
    assert "The best trial: learning rate 0.005" in said
    assert "3 evaluations without a better eval_accuracy" in said  # 1e-9 never has one
    rows = read_table(folder / "trials.tsv")
    assert [row["learning_rate"] for row in rows] == ["1e-09", "0.005"]
    scores = [float(row["eval_accuracy"]) for row in rows]
    assert scores[0] < scores[1] == pytest.approx(read_results(folder)["eval_accuracy"])
    summary = read_table(folder / "trials_summary.tsv")
    assert [float(row["best"]) for row in summary] == pytest.approx(scores, abs=1e-4)
    assert (folder / "trials.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((folder / "model_facts.json").read_text())
    assert facts["labels"] == ["first", "second"]
    kept = read_tensors(folder)
    assert json.loads(kept["bert_tf/run_facts"])["legacy_shuffle"] is True
    assert json.loads(kept["bert_tf/run_facts"])["learning_rate"] == 5e-3


def results_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files but the curves, in which the time of day and the speed are."""
    return {path: b for path, b in contents(folder).items() if "events.out" not in path}


def test_a_grid_that_was_killed_ends_the_same(inputs, grid, tmp_path):
    """In the middle of its second trial; the first is not run again."""
    undisturbed, _ = grid
    process = start_grid(inputs, tmp_path)
    second = tmp_path / "learning_rate_0.005_seed_12345"
    try:
        while not (second / "model.ckpt-20.index").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (second / "model.ckpt-60.index").exists()
        assert not (tmp_path / "trials.tsv").exists()
        said = run_grid(inputs, tmp_path)
    finally:
        end_all()
    assert "Trial: learning rate 0.005" in said
    assert "Trial: learning rate 1e-09" not in said
    assert "Going on from" in said
    ours, theirs = results_of(tmp_path), results_of(undisturbed)
    assert ours.keys() == theirs.keys()
    assert {"trials.tsv", "trials.png", "eval_results.txt", "dev_predictions.tsv"} <= ours.keys()
    assert any(path.startswith("model.ckpt-") for path in ours)
    assert [path for path in ours if ours[path] != theirs[path]] == []


# ---------------------------------------------------------------------------- from a dataset


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> pathlib.Path:
    """glue/mnli as the library would prepare it; whether w1 is in the hypothesis decides."""
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = tmp_path_factory.mktemp("datasets")
    random = np.random.default_rng(5)
    parts = {"train": 36, "validation_matched": 9, "validation_mismatched": 8}
    parts |= {"test_matched": 7, "test_mismatched": 6}
    columns = {}
    for part, count in parts.items():
        labels = random.integers(3, size=count)
        words = [[f"w{n}" for n in random.integers(5, 9, 4)] for _ in labels]
        columns[part] = {
            "idx": np.arange(count, dtype=np.int32),
            "label": np.full(count, -1) if "test" in part else labels,
            "premise": [" ".join(some) for some in words],
            "hypothesis": [f"w{n + 1} {some[0]}" for n, some in zip(labels, words, strict=True)],
        }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="glue",
        config="mnli",
        version="2.0.0",
        features=tfds.features.FeaturesDict(
            {
                "idx": np.int32,
                "label": tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"]),
                "premise": tfds.features.Text(),
                "hypothesis": tfds.features.Text(),
            }
        ),
        split_datasets={
            part: tf.data.Dataset.from_tensor_slices(values) for part, values in columns.items()
        },
        data_dir=str(folder),
        disable_shuffling=True,
    )
    return folder


def test_a_dataset_with_two_halves_and_frozen_layers(inputs, datasets, tmp_path):
    said = run(
        "run_classifier.py",
        task_name="MNLI", tfds_name="glue/mnli", tfds_data_dir=datasets, init_checkpoint=inputs,
        output_dir=tmp_path, max_seq_length=17, learning_rate="1e-3", train_batch_size=6,
        num_train_epochs=4, freeze="bert/embeddings,layer_0/", layerwise_lr_decay=0.9,
        do_train=True, do_eval=True, do_predict=True,
    ).stderr  # fmt: skip
    results = read_results(tmp_path)
    assert results["global_step"] == 24
    assert results.keys() >= {"eval_accuracy", "eval_loss", "eval_accuracy_mismatched"}
    for name, rows in (("dev", 9), ("dev_mismatched", 8)):
        predicted = read_table(tmp_path / f"{name}_predictions.tsv")
        assert [row["id"] for row in predicted] == [str(n) for n in range(rows)]
        share = np.mean([row["prediction"] == row["label"] for row in predicted])
        ending = name.removeprefix("dev")
        assert share == pytest.approx(results[f"eval_accuracy{ending}"])
    for file, ending, rows in (("MNLI-m", "", 7), ("MNLI-mm", "_mismatched", 6)):
        lines = (tmp_path / f"{file}.tsv").read_text().splitlines()
        named = read_table(tmp_path / f"test_results_labeled{ending}.tsv")
        assert lines == ["index\tprediction"] + [f"{r['id']}\t{r['prediction']}" for r in named]
        assert [row["id"] for row in named] == [str(n) for n in range(rows)]
        assert {row["prediction"] for row in named} <= {"contradiction", "entailment", "neutral"}
        assert np.loadtxt(tmp_path / f"test_results{ending}.tsv").shape == (rows, 3)
    before, after = read_tensors(inputs), read_tensors(tmp_path)
    frozen = [n for n in before if n.startswith(("bert/embeddings/", "bert/encoder/layer_0/"))]
    for name, value in before.items():
        assert np.array_equal(after[name], value) == (name in frozen), name
        assert (f"{name}/adam_m" in after) == (name not in frozen), name
    assert " parameters are trained." in said
    facts = json.loads(after["bert_tf/run_facts"])
    assert (facts["freeze"], facts["layerwise_lr_decay"]) == (["bert/embeddings", "layer_0/"], 0.9)


# ---------------------------------------------------------------------------- what is refused


def test_a_bad_row_is_named(inputs, tmp_path):
    (tmp_path / "train.csv").write_text("key,words,kind\na,w1 w2,first\nb,w3\n")
    ended = attempt(
        "run_classifier.py", **flags(inputs, tmp_path / "out", data_dir=tmp_path, do_train=True)
    )
    assert ended.returncode == 1
    assert "train.csv, line 3" in ended.stderr
    for part in ("Received: ", "Expected: ", "To do: "):
        assert part in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


STS_B = "index\tsentence1\tsentence2\tscore\n0\tw1\tw2\t3.5\n"
RTE = "index\tsentence1\tsentence2\tlabel\n0\tw1\tw2\tentailment\n"
BAD = {  # task, train.tsv, dev.tsv; which line of which
    "NaN in dev": ("sts-b", STS_B, STS_B + "1\tw1\tw2\tnan\n", "dev.tsv, line 3: the label 'nan'"),
    "an unknown label": ("rte", RTE, RTE + "1\tw1\tw2\tmaybe\n", "dev.tsv, line 3: the label"),
    "no labels in dev": ("rte", RTE, RTE.replace("label", "x"), "dev.tsv, line 1: the columns"),
    "not UTF-8": ("rte", RTE + "1\tw1\t\xe9\tentailment\n", RTE, "train.tsv, line 3: bytes"),
    "an empty text": ("rte", RTE + "1\t\tw2\tentailment\n", RTE, "train.tsv, line 3: an empty"),
    "duplicate ids": ("rte", RTE, RTE + "0\tw1\tw2\tentailment\n", "dev.tsv, line 3: the id '0'"),
    "a header": ("cola", "source\tlabel\tmark\ttext\n", "", "train.tsv, line 1: 'text | label', a"),
    "one label only": ("csv", "", "", "training data of the task csv with the labels first"),
    "nothing frozen": ("rte", RTE, RTE, "--freeze with 'layer_7/', which is in the name of no"),
}  # fmt: skip


@pytest.fixture(scope="module")
def classify():
    with in_process("run_classifier.py") as main:
        yield main


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_nothing_behind(inputs, classify, tmp_path, case):
    task, train, dev, received = BAD[case]
    for name, text in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.tsv").write_bytes(text.encode("latin-1"))
        (tmp_path / f"{name}.csv").write_text("key,words,kind\na,w1,first\nb,w2,first\n")
    freeze = {"freeze": "layer_0/,layer_7/"} if case == "nothing frozen" else {}
    given = flags(inputs, tmp_path / "out", data_dir=tmp_path, task_name=task, train_batch_size=1)
    with pytest.raises(InputError, match=re.escape(received)):
        classify(do_train=True, do_eval=True, strategy="one", **given, **freeze)
    left = contents(tmp_path / "out") if (tmp_path / "out").exists() else {}
    assert not [path for path in left if "incomplete" in path or "result" in path or "ckpt" in path]
    assert not left or freeze
