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
from absl import flags as absl_flags
from walking import (
    attempt,
    contents,
    end_all,
    in_process,
    read_results,
    read_tensors,
    start,
    write_config,
    write_vocabulary,
)

from bert_tf import BertConfig, BertModel
from bert_tf.checkpoints.tf1 import checkpoint_name, write_checkpoint
from bert_tf.errors import InputError
from bert_tf.training import distribution
from bert_tf.training.logging import read_curves

pytestmark = pytest.mark.walk
ROWS = {"train": 60, "dev": 21, "test": 13}
FLAGS = {
    "task_name": "csv",
    "text_a_column": "words",
    "label_column": "kind",
    "id_column": "key",
    "max_seq_length": 17,
    "learning_rate": "2e-3",
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
    encoder = BertModel(config)
    tensors = {checkpoint_name(v): v.numpy() * 5 for v in encoder.trainable_variables}
    tensors = {name: v / 5 if "LayerNorm" in name else v for name, v in tensors.items()}
    write_checkpoint(str(folder / "bert_model.ckpt"), tensors, temporary=str(folder / "new"))
    return folder


@pytest.fixture(scope="module")
def classify():
    with in_process("run_classifier.py") as main:
        yield main


def flags(inputs: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    given = {"data_dir": inputs, "output_dir": output_dir, "init_checkpoint": inputs}
    return FLAGS | {"strategy": "one"} | given | changes


@pytest.fixture(scope="module")
def trained(inputs, classify, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    classify(**flags(inputs, folder, do_train=True, do_eval=True, do_predict=True))
    return folder


def read_table(path: pathlib.Path) -> list[dict]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def share_of_right(rows: list[dict]) -> float:
    return np.mean([row["prediction"] == row["label"] for row in rows])


def test_it_learns_and_says_so(trained):
    results = read_results(trained)
    assert results["global_step"] == 200
    assert results["eval_accuracy"] > 0.85
    assert results["eval_loss"] == results["loss"]
    rows = read_table(trained / "dev_predictions.tsv")
    assert len(rows) == ROWS["dev"]
    assert share_of_right(rows) == pytest.approx(results["eval_accuracy"])
    drawn = read_curves(str(trained))["eval/eval_accuracy"]
    assert drawn == {200: pytest.approx(results["eval_accuracy"])}


def test_every_row_is_predicted_in_order(trained):
    rows = read_table(trained / "test_results_labeled.tsv")
    assert [row["id"] for row in rows] == [f"test{n}" for n in range(ROWS["test"])]
    plain = np.loadtxt(trained / "test_results.tsv")
    assert plain.shape == (ROWS["test"], 2)
    assert plain.sum(axis=1) == pytest.approx(1.0)
    for row, values in zip(rows, plain, strict=True):
        assert [float(row["first"]), float(row["second"])] == pytest.approx(values.tolist())
        assert row["prediction"] == ("first", "second")[int(values.argmax())]
    lines = (trained / "test_eval_results.txt").read_text().splitlines()  # these data have labels
    assert f"eval_accuracy = {share_of_right(rows)}" in lines


def test_long_texts_in_windows(inputs, classify, tmp_path, caplog):
    """Trained on windows, scored by texts; whoever cuts the texts instead is warned."""
    out = tmp_path / "out"
    given = flags(inputs, out, max_seq_length=8, doc_stride=4)
    classify("--noxla", **given | {"num_train_epochs": 1}, do_train=True, do_eval=True)
    with (inputs / "train.csv").open(newline="") as file:
        sizes = [len(row["words"].split()) for row in csv.DictReader(file)]
    windows = sum(1 + max(0, -(-(size - 6) // 4)) for size in sizes)  # of 6 words
    assert windows > ROWS["train"] + 20
    results = read_results(out)
    assert results["global_step"] == windows // 6
    rows = read_table(out / "dev_predictions.tsv")
    assert len(rows) == ROWS["dev"]
    assert share_of_right(rows) == pytest.approx(results["eval_accuracy"])
    with caplog.at_level("WARNING", logger="absl"):
        export = {"doc_stride": 0, "do_predict": True, "export_dir": tmp_path / "serving"}
        classify("--noxla", **given | export)
    assert "was trained with doc_stride = 4; here it is None" in caplog.text
    assert "A served model cuts them to 8 tokens" in caplog.text


def results_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files but the curves, in which the time of day and the speed are."""
    return {path: b for path, b in contents(folder).items() if "events.out" not in path}


@pytest.mark.parametrize(
    "other", [{"learning_rate": "1e-3"}, {"seed": 7}, {"train_file": "dev.csv"}]
)
def test_the_end_of_a_run_is_not_that_of_other_settings(inputs, trained, classify, other):
    """Else its scores would be taken for theirs."""
    before = results_of(trained)
    (name,) = other
    name = "train_data" if name == "train_file" else name
    with pytest.raises(InputError, match=f"a finished run, with other settings: .*{name} "):
        classify(**flags(inputs, trained, do_train=True, do_eval=True) | other)
    after = results_of(trained)
    for path in before.keys() - {"train.tf_record", "eval.tf_record"}:
        assert after[path] == before[path], path


def test_predictions_do_not_depend_on_batches_and_replicas(
    inputs, trained, classify, two_replicas, monkeypatch
):
    """Nor on a size that devices cannot share."""
    before = np.loadtxt(trained / "test_results.tsv")
    results = read_results(trained)
    monkeypatch.setattr(distribution, "make_strategy", lambda *_, **__: two_replicas)
    given = flags(inputs, trained, init_checkpoint=None, do_eval=True, do_predict=True)
    classify("--nobucket_by_length", **given, predict_batch_size=5, eval_batch_size=10)
    assert np.loadtxt(trained / "test_results.tsv") == pytest.approx(before, abs=1e-5)
    assert read_results(trained) == pytest.approx(results, abs=1e-5)


GRID = {
    "learning_rate": "1e-9,2e-3",
    "num_train_epochs": 15,
    "eval_steps": 30,  # of 150
    "early_stopping": 3,
    **dict.fromkeys(["bias_correction", "legacy_shuffle", "do_train", "do_eval"], True),
}
RECORDED = {  # the settings and data that decide a run, by which its folder is resumed or refused
    *("train_data", "dev_data", "labels", "num_records", "num_train_steps", "seed", "task"),
    *("pairs", "num_choices"),
    *("learning_rate", "end_learning_rate", "warmup_proportion", "layerwise_lr_decay"),
    *("train_batch_size", "num_train_epochs", "optimizer", "bias_correction", "freeze"),
    *("eval_steps", "early_stopping", "init_checkpoint", "precision", "clip_per_replica"),
    *("max_seq_length", "doc_stride", "document_context", "bucket_by_length", "legacy_shuffle"),
    *BertConfig(vocab_size=5).to_dict(),
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
    assert "The best trial: learning rate 0.002" in said
    assert "3 evaluations without a better eval_accuracy" in said  # 1e-9 never has one
    rows = read_table(folder / "trials.tsv")
    assert [row["learning_rate"] for row in rows] == ["1e-09", "0.002"]
    scores = [float(row["eval_accuracy"]) for row in rows]
    assert scores[0] < scores[1] == pytest.approx(read_results(folder)["eval_accuracy"])
    summary = read_table(folder / "trials_summary.tsv")
    assert [float(row["best"]) for row in summary] == pytest.approx(scores, abs=1e-4)
    assert (folder / "trials.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((folder / "model_facts.json").read_text())
    assert facts["labels"] == ["first", "second"]
    recorded = json.loads(read_tensors(folder)["bert_tf/run_facts"])
    assert recorded.keys() == RECORDED
    assert recorded["legacy_shuffle"] is recorded["bias_correction"] is True
    assert recorded["learning_rate"] == 2e-3


def test_a_grid_that_was_killed_ends_the_same(inputs, grid, tmp_path):
    """In the middle of its second trial; the first is not run again."""
    undisturbed, _ = grid
    process = start_grid(inputs, tmp_path)
    second = tmp_path / "learning_rate_0.002_seed_12345"
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
    assert "Trial: learning rate 0.002" in said
    assert "Trial: learning rate 1e-09" not in said
    assert "Loaded checkpoint" in said
    ours, theirs = results_of(tmp_path), results_of(undisturbed)
    assert ours.keys() == theirs.keys()
    assert {"trials.tsv", "trials.png", "eval_results.txt", "dev_predictions.tsv"} <= ours.keys()
    assert any(path.startswith("model.ckpt-") for path in ours)
    assert [path for path in ours if ours[path] != theirs[path]] == []


def test_a_refused_grid_leaves_what_is_noted_of_the_winner(inputs, grid, classify):
    """Its model was trained with 17 pieces."""
    folder, _ = grid
    before = (folder / "model_facts.json").read_bytes()
    with pytest.raises(InputError, match=r"a trial with another .*max_seq_length"):
        classify(**flags(inputs, folder, **GRID) | {"max_seq_length": 15})
    assert (folder / "model_facts.json").read_bytes() == before


# ---------------------------------------------------------------------------- two dev sets


def mnli_rows(count: int, *, with_label: bool = True) -> str:
    """Which word the second sentence begins with decides."""
    lines = ["index\tsentence1\tsentence2" + "\tgold_label" * with_label]
    for n in range(count):
        label = ("contradiction", "entailment", "neutral")[n % 3]
        lines.append(f"{n}\tw{5 + n % 4} w7\tw{1 + n % 3} w8" + f"\t{label}" * with_label)
    return "\n".join(lines) + "\n"


def test_two_dev_sets_and_frozen_layers(inputs, classify, tmp_path):
    sizes = {"train": 36, "dev_matched": 9, "dev_mismatched": 8}
    for name, count in (sizes | {"test_matched": 7, "test_mismatched": 6}).items():
        (tmp_path / f"{name}.tsv").write_text(mnli_rows(count, with_label="test" not in name))
    out = tmp_path / "out"
    classify(
        task_name="MNLI", data_dir=tmp_path, init_checkpoint=inputs, output_dir=out,
        max_seq_length=17, learning_rate="1e-3", train_batch_size=6, num_train_epochs=4,
        freeze="bert/embeddings,layer_0/", layerwise_lr_decay=0.9, strategy="one",
        do_train=True, do_eval=True, do_predict=True,
    )  # fmt: skip
    results = read_results(out)
    assert results["global_step"] == 24
    for name, rows in (("dev", 9), ("dev_mismatched", 8)):
        predicted = read_table(out / f"{name}_predictions.tsv")
        assert [row["id"] for row in predicted] == [str(n) for n in range(rows)]
        share = results[f"eval_accuracy{name.removeprefix('dev')}"]
        assert share_of_right(predicted) == pytest.approx(share)
    for file, ending, rows in (("MNLI-m", "", 7), ("MNLI-mm", "_mismatched", 6)):
        lines = (out / f"{file}.tsv").read_text().splitlines()
        named = read_table(out / f"test_results_labeled{ending}.tsv")
        assert lines == ["index\tprediction"] + [f"{r['id']}\t{r['prediction']}" for r in named]
        assert np.loadtxt(out / f"test_results{ending}.tsv").shape == (rows, 3)
    before, after = read_tensors(inputs), read_tensors(out)
    frozen = [n for n in before if n.startswith(("bert/embeddings/", "bert/encoder/layer_0/"))]
    for name, value in before.items():
        assert np.array_equal(after[name], value) == (name in frozen), name
        assert (f"{name}/adam_m" in after) == (name not in frozen), name
    facts = json.loads(after["bert_tf/run_facts"])
    assert (facts["freeze"], facts["layerwise_lr_decay"]) == (["bert/embeddings", "layer_0/"], 0.9)


# ---------------------------------------------------------------------------- every other head


def swag_rows(count: int, *, with_label: bool) -> str:
    names = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
    names += [f"ending{i}" for i in range(4)] + ["label"] * with_label
    rows = [
        f"{n},v,f,w{n} w2 w3,w{n} w2,w3,gold,w4,w5 w6,w{n + 7},w8" + f",{n % 4}" * with_label
        for n in range(count)
    ]
    return "\n".join([",".join(names), *rows]) + "\n"


def sts_b_rows(count: int, *, with_score: bool) -> str:
    names = ["index", "genre", "sentence1", "sentence2"] + ["score"] * with_score
    rows = [f"{n}\tg\tw{n} w3\tw4" + f"\t{n % 5}.200" * with_score for n in range(count)]
    return "\n".join(["\t".join(names), *rows]) + "\n"


def conll_sentences(count: int) -> str:
    rows = [f"w{n} NNP I-NP I-PER\nw4 VBD I-VP O\n" + "w5 . O O\n" * (9 * n) for n in range(count)]
    return "-DOCSTART- -X- -X- O\n\n" + "\n".join(rows)


def jsonl_rows(count: int, *, with_labels: bool) -> str:
    labels = ["x"], [], ["y", "x"]
    rows = [{"text_a": f"w{n}", "label": labels[n % 3]} for n in range(count)]
    rows = rows if with_labels else [{"text_a": row["text_a"]} for row in rows]
    return "".join(json.dumps(row) + "\n" for row in rows)


# Official names of the files, flags of the task, metrics of dev; columns and lines of predictions.
TASKS = {
    "swag": (
        {"train.csv": swag_rows(9, with_label=True), "val.csv": swag_rows(5, with_label=True),
         "test.csv": swag_rows(4, with_label=False)},
        {}, {"accuracy"}, ["id", "prediction", "0", "1", "2", "3"], 4,
    ),
    "sts-b": (
        {"train.tsv": sts_b_rows(9, with_score=True), "dev.tsv": sts_b_rows(6, with_score=True),
         "test.tsv": sts_b_rows(7, with_score=False)},
        {}, {"spearman", "pearson"}, ["id", "prediction", "score"], 7,
    ),
    "ner": (
        {"eng.train": conll_sentences(6), "eng.testa": conll_sentences(4),
         "eng.testb": conll_sentences(3)},
        {"document_context": True}, {"entity_f1", "entity_precision", "entity_recall", "accuracy"},
        ["id", "word", "prediction", "label", "O", "B-PER", "I-PER"], 33,
    ),
    "jsonl": (
        {"train.jsonl": jsonl_rows(9, with_labels=True),
         "dev.jsonl": jsonl_rows(6, with_labels=True),
         "test.jsonl": jsonl_rows(5, with_labels=False)},
        {"label_kind": "multi_label"}, {"micro_f1", "macro_f1", "accuracy"},
        ["id", "prediction", "x", "y"], 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_every_head_from_its_official_files(inputs, classify, tmp_path, task):
    """Trained, evaluated and predicted; again from the folder alone, with the same predictions."""
    files, own, metrics, columns, count = TASKS[task]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "out"
    given = own | {"task_name": task, "data_dir": tmp_path, "output_dir": out, "strategy": "one"}
    given |= {"max_seq_length": 17, "do_eval": True, "do_predict": True}
    classify(
        "--noxla", **given, init_checkpoint=inputs, do_train=True, num_train_epochs=1,
        train_batch_size=3, warmup_proportion=0, learning_rate="1e-4",
    )  # fmt: skip
    results = read_results(out)
    assert {name[5:] for name in results if name.startswith("eval_")} == {*metrics, "loss"}
    assert results["global_step"] == (2 if task == "ner" else 3)
    rows = read_table(out / "test_results_labeled.tsv")
    assert list(rows[0]) == columns
    rows = [row for row in rows if row["prediction"] is not None]
    plain = [line for line in (out / "test_results.tsv").read_text().splitlines() if line]
    assert len(rows) == len(plain) == count
    names = [name for name in columns if name not in ("id", "word", "prediction", "label")]
    numbers = [[row[name] for name in names] for row in rows]
    assert ["\t".join(row) for row in numbers] == plain
    gold = read_table(out / "dev_predictions.tsv")
    assert "label" in gold[0]
    if task == "sts-b":
        submission = read_table(out / "STS-B.tsv")
        assert [row["index"] for row in submission] == [str(n) for n in range(count)]
        scores = [min(max(float(line), 0.0), 5.0) for line in plain]
        assert [float(r["prediction"]) for r in submission] == pytest.approx(scores, abs=5e-4)
    classify("--noxla", **given)
    again = [line for line in (out / "test_results.tsv").read_text().splitlines() if line]
    assert [float(x) for line in again for x in line.split()] == pytest.approx(
        [float(x) for line in plain for x in line.split()], abs=1e-6
    )


def test_another_kind_of_labels_than_it_was_trained_for(inputs, classify, tmp_path):
    """Nothing in the weights tells one head from the other."""
    for name, text in TASKS["jsonl"][0].items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "out"
    given = {"task_name": "jsonl", "data_dir": tmp_path, "output_dir": out, "max_seq_length": 17}
    classify(
        "--noxla", **given, label_kind="multi_label", init_checkpoint=inputs, do_train=True,
        num_train_epochs=1, train_batch_size=9, strategy="one",
    )  # fmt: skip
    with pytest.raises(InputError, match="task = multi_label"):
        classify(**given, do_predict=True, strategy="one")
    assert not (out / "test_results.tsv").exists()


def test_a_label_that_dev_never_has_is_said(inputs, classify, tmp_path, caplog):
    (tmp_path / "train.csv").write_text("words,kind\nw1,a\nw2,b\nw3,c\n")
    (tmp_path / "dev.csv").write_text("words,kind\nw1,a\nw2,c\n")
    with caplog.at_level("WARNING", logger="absl"):
        classify(
            "--noxla", task_name="csv", text_a_column="words", label_column="kind", do_eval=True,
            data_dir=tmp_path, output_dir=tmp_path / "out", init_checkpoint=inputs, do_train=True,
            max_seq_length=17, num_train_epochs=1, train_batch_size=3, strategy="one",
        )  # fmt: skip
    assert "No example of the dev data has the label b:" in caplog.text


# ---------------------------------------------------------------------------- the flags

ORIGINAL_FLAGS = {  # and their defaults
    "do_lower_case": True,
    "max_seq_length": 128,
    "do_train": False,
    "do_eval": False,
    "do_predict": False,
    "train_batch_size": 32,
    "eval_batch_size": 8,
    "predict_batch_size": 8,
    "learning_rate": ["5e-5"],  # several for a grid
    "num_train_epochs": 3.0,
    "warmup_proportion": 0.1,
    "save_checkpoints_steps": 1000,
    "iterations_per_loop": 1000,
    "use_tpu": False,
    "num_tpu_cores": 8,
    **dict.fromkeys(["data_dir", "bert_config_file", "task_name", "vocab_file", "output_dir"]),
    **dict.fromkeys(["init_checkpoint", "tpu_name", "tpu_zone", "gcp_project", "master"]),
}


def test_every_flag_of_the_original_has_its_default(classify):
    assert {name: absl_flags.FLAGS[name].default for name in ORIGINAL_FLAGS} == ORIGINAL_FLAGS


@pytest.mark.parametrize(
    "given",
    [
        {"task_name": "mrpc", "dev_file": "mine.tsv"},
        {"task_name": "mrpc", "label_kind": "multi_label"},
        {"task_name": "swag", "doc_stride": 5},
        {"task_name": "csv", "xnli_language": "de"},
        {"task_name": "csv", "data_dir": None, "tfds_name": "own", "test_file": "test.csv"},
        {"task_name": "csv", "label_kind": "regression", "labels": "a,b"},
        {"task_name": "csv", "label_separator": ";"},
        {"task_name": "jsonl", "has_header": True},
        {"task_name": "csv", "tfds_data_dir": "datasets"},
    ],
)
def test_flags_without_effect_are_refused(inputs, classify, tmp_path, given):
    flag = list(given)[-1]
    with pytest.raises(InputError, match=f"--{flag} for the task {given['task_name']}"):
        classify(**{"data_dir": inputs, "output_dir": tmp_path / "out"} | given, do_predict=True,
                 init_checkpoint=inputs, max_seq_length=17, strategy="one")  # fmt: skip


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


RTE = "index\tsentence1\tsentence2\tlabel\n0\tw1\tw2\tentailment\n"
BAD = {  # task, dev.tsv; what is refused
    "an unknown label": ("rte", RTE + "1\tw1\tw2\tmaybe\n", "dev.tsv, line 3: the label"),
    "no labels in dev": ("rte", RTE.replace("label", "x"), "dev.tsv, line 1: the columns"),
    "one label only": ("csv", "", "training data of the task csv with the labels first"),
    "no number": ("rte", "bad", "--learning_rate with 'much'"),
    "nothing frozen": ("rte", RTE, "--freeze with 'layer_7/', which is in the name of no"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_nothing_behind(inputs, classify, tmp_path, case):
    task, dev, received = BAD[case]
    (tmp_path / "train.tsv").write_text(RTE)
    (tmp_path / "dev.tsv").write_text(dev)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("key,words,kind\na,w1,first\nb,w2,first\n")
    freeze = {"freeze": "layer_0/,layer_7/"} if case == "nothing frozen" else {}
    given = flags(inputs, tmp_path / "out", data_dir=tmp_path, task_name=task, train_batch_size=1)
    if case == "no number":
        given |= {"learning_rate": "3e-5,much"}  # refused before any file is read
    if task != "csv":
        given = {name: value for name, value in given.items() if not name.endswith("_column")}
    with pytest.raises(InputError, match=re.escape(received)):
        classify(do_train=True, do_eval=True, **given, **freeze)
    left = contents(tmp_path / "out") if (tmp_path / "out").exists() else {}
    assert not [path for path in left if "incomplete" in path or "result" in path or "ckpt" in path]
    assert not left or freeze
