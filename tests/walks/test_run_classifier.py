"""run_classifier.py from rows to predictions: learns, loses nothing, goes on."""

import csv
import json
import pathlib
import re

import numpy as np
import pytest
from walking import (
    contents,
    eagerly,
    in_process,
    read_results,
    read_tensors,
    results_of,
    write_encoder,
)

from bert_tf import BertConfig
from bert_tf.cli.plot import read_curves
from bert_tf.errors import InputError
from bert_tf.tasks.text_run import TextRun
from bert_tf.training import distribution

pytestmark = pytest.mark.walk
ROWS = {"train": 60, "dev": 21, "test": 13}
FLAGS = {
    "task_name": "csv", "text_a_column": "words", "label_column": "kind", "id_column": "key",
    "max_seq_length": 17, "learning_rate": "2e-3", "train_batch_size": 6, "num_train_epochs": 20,
    "save_checkpoints_steps": 10, "xla": "false",
}  # fmt: skip


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
    """Data, and a fresh encoder as if it had been pre-trained; test begins as dev does."""
    folder = tmp_path_factory.mktemp("classifier")
    for seed, (name, count) in enumerate(ROWS.items()):
        write_rows(folder / f"{name}.csv", count, seed=min(seed, 1))
    write_encoder(folder, scale=5, num_hidden_layers=1)
    return folder


@pytest.fixture(scope="module")
def classify():
    with in_process("run_classifier.py") as main:
        yield main


@pytest.fixture
def briefly(classify):
    """The same for a few steps, without graphs."""
    return eagerly()(classify)


def flags(inputs: pathlib.Path, output_dir: pathlib.Path, **changes) -> dict:
    given = {"data_dir": inputs, "output_dir": output_dir, "init_checkpoint": inputs}
    return FLAGS | given | changes


@pytest.fixture(scope="module")
def trained(inputs, classify, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    classify(**flags(inputs, folder, do_train=True, do_eval=True, do_predict=True, report=True))
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
    assert f"<dd>{results['eval_accuracy']:.3f}</dd>" in (trained / "report.html").read_text()
    drawn = read_curves(str(trained))["eval/eval_accuracy"]
    assert drawn == {200: pytest.approx(results["eval_accuracy"])}


def test_a_released_checkpoint_in_the_folder_of_a_run(inputs, classify, tmp_path):
    """With its file `checkpoint`, as archives of models have one; nothing is written."""
    write_encoder(tmp_path, num_hidden_layers=1)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "bert_model.ckpt"\n')
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"bert_model\.ckpt is, which no run has left") as caught:
        classify(**flags(inputs, tmp_path), do_train=True)
    assert f"--init_checkpoint={tmp_path}/bert_model.ckpt" in caught.value.remedy
    assert contents(tmp_path) == before


def test_every_row_is_predicted_in_order(trained):
    rows = read_table(trained / "test_results_labeled.tsv")
    assert [row["id"] for row in rows] == [f"test{n}" for n in range(ROWS["test"])]
    plain = np.loadtxt(trained / "test_results.tsv")
    assert plain.shape == (ROWS["test"], 2)
    assert plain.sum(axis=1) == pytest.approx(1.0)
    for row, values in zip(rows, plain, strict=True):
        assert [float(row["first"]), float(row["second"])] == pytest.approx(values.tolist())
        assert row["prediction"] == ("first", "second")[int(values.argmax())]
    of_dev = [row["prediction"] for row in read_table(trained / "dev_predictions.tsv")]
    assert [row["prediction"] for row in rows] == of_dev[: len(rows)]  # the same rows
    lines = (trained / "test_eval_results.txt").read_text().splitlines()  # these data have labels
    assert f"eval_accuracy = {share_of_right(rows)}" in lines


def test_long_texts_in_windows(inputs, briefly, tmp_path, caplog):
    """Trained on windows, scored by texts; whoever cuts the texts instead is warned."""
    out = tmp_path / "out"
    given = flags(inputs, out, max_seq_length=8, doc_stride=4)
    briefly(**given | {"num_train_epochs": 1, "train_batch_size": 20}, do_train=True, do_eval=True)
    with (inputs / "train.csv").open(newline="") as file:
        sizes = [len(row["words"].split()) for row in csv.DictReader(file)]
    windows = sum(1 + max(0, -(-(size - 6) // 4)) for size in sizes)  # of 6 words
    assert windows > ROWS["train"] + 20
    results = read_results(out)
    assert results["global_step"] == windows // 20
    rows = read_table(out / "dev_predictions.tsv")
    assert len(rows) == ROWS["dev"]
    assert share_of_right(rows) == pytest.approx(results["eval_accuracy"])
    export = {"doc_stride": 0, "do_predict": True, "export_dir": tmp_path / "serving"}
    briefly(**given | export)
    assert "was trained with doc_stride = 4; here it is None" in caplog.text
    assert "texts are cut to 8 tokens" in caplog.text


def test_the_end_of_a_run_is_not_that_of_other_settings(inputs, trained, classify):
    """Else its scores would be taken for theirs."""
    before = results_of(trained)
    for other in ({"learning_rate": "1e-3"}, {"train_file": "test.csv"}):
        name = "train_data" if "train_file" in other else "learning_rate"
        with pytest.raises(InputError, match=f"a finished run, with other settings: .*{name} "):
            classify(**flags(inputs, trained, do_train=True, do_eval=True) | other)
    after = results_of(trained)
    assert [p for p in before if after[p] != before[p] and not p.endswith("tf_record")] == []


def test_a_folder_of_other_labels_is_refused(inputs, trained, classify, tmp_path):
    """bert#326: "Assign requires shapes of both tensors to match. lhs [6,768] rhs [2,768]"."""
    before = results_of(trained)
    rows = "".join(f"{n},w{n},{n % 3}\n" for n in range(12))
    (tmp_path / "train.csv").write_text(f"key,words,kind\n{rows}")
    with pytest.raises(InputError, match=f"{trained}, where a model with another") as caught:
        classify(**flags(inputs, trained, data_dir=tmp_path, do_train=True))
    assert "another --output_dir" in caught.value.remedy
    assert results_of(trained) == before


def test_predictions_do_not_depend_on_batches_and_replicas(
    inputs, trained, classify, two_replicas, monkeypatch, caplog
):
    """Nor on a size that devices cannot share."""
    before = np.loadtxt(trained / "test_results.tsv")
    results = read_results(trained)
    monkeypatch.setattr(distribution, "make_strategy", lambda *_, **__: two_replicas)
    given = flags(inputs, trained, init_checkpoint=f"{trained}/", do_eval=True, do_predict=True)
    classify("--nobucket_by_length", **given, predict_batch_size=5, eval_batch_size=10)
    assert "Using the model in" not in caplog.text  # the same folder
    assert np.loadtxt(trained / "test_results.tsv") == pytest.approx(before, abs=1e-5)
    assert read_results(trained) == pytest.approx(results, abs=1e-5)


GRID = {
    "learning_rate": "1e-9,5e-3",
    "num_train_epochs": 15,
    "eval_steps": 30,  # of 150
    "early_stopping": 3,
    **dict.fromkeys(["bias_correction", "do_train", "do_eval"], True),
}
RECORDED = {  # the settings and data that decide a run, by which its folder is resumed or refused
    *("train_data", "dev_data", "labels", "num_records", "num_train_steps", "seed", "task"),
    *("pairs", "num_choices", "score_mean", "score_deviation"),
    *("learning_rate", "warmup_proportion", "layerwise_lr_decay"),
    *("train_batch_size", "num_train_epochs", "optimizer", "bias_correction", "freeze"),
    *("eval_steps", "early_stopping", "init_checkpoint", "precision"),
    *("max_seq_length", "doc_stride", "document_context", "bucket_by_length"),
    *("best_metric", "class_weights", "dev_share", "threshold", "positive_label"),
    *BertConfig(vocab_size=5).to_dict(),
}


def test_a_grid_keeps_the_best_also_where_it_was_interrupted(
    inputs, classify, tmp_path, caplog, monkeypatch
):
    """In the middle of its second trial; the first is not run again, and the end is the same."""
    evaluate, undisturbed, folder = TextRun.evaluate, tmp_path / "a", tmp_path / "b"
    caplog.set_level("INFO", logger="absl")
    given = {"bucket_by_length": "false", "verbosity": 0}
    classify(**flags(inputs, undisturbed, **GRID), **given)
    assert "The best trial: learning rate 0.005" in caplog.text
    assert "3 evaluations without a better eval_accuracy" in caplog.text  # 1e-9 never has one
    rows = read_table(undisturbed / "trials.tsv")
    assert [row["learning_rate"] for row in rows] == ["1e-09", "0.005"]
    scores = [float(row["eval_accuracy"]) for row in rows]
    assert scores[0] < scores[1] == pytest.approx(read_results(undisturbed)["eval_accuracy"])
    summary = read_table(undisturbed / "trials_summary.tsv")
    assert [float(row["best"]) for row in summary] == pytest.approx(scores, abs=1e-4)
    recorded = json.loads(read_tensors(undisturbed)["bert_tf/run_facts"])
    assert recorded.keys() == RECORDED
    assert recorded["bias_correction"] is True
    assert recorded["learning_rate"] == 5e-3

    def interrupted(self, *args, **named):
        if "Trial: learning rate 0.005" in caplog.text:
            raise InterruptedError
        return evaluate(self, *args, **named)

    caplog.clear()
    monkeypatch.setattr(TextRun, "evaluate", interrupted)
    with pytest.raises(InterruptedError):
        classify(**flags(inputs, folder, **GRID), **given)
    monkeypatch.undo()
    assert not (folder / "trials.tsv").exists()
    caplog.clear()
    classify(**flags(inputs, folder, **GRID), **given)
    assert "Trial: learning rate 0.005" in caplog.text
    assert "Trial: learning rate 1e-09" not in caplog.text
    assert "Loaded checkpoint" in caplog.text
    ours, theirs = results_of(folder), results_of(undisturbed)
    assert ours.keys() == theirs.keys()
    assert {"trials.tsv", "eval_results.txt", "dev_predictions.tsv"} <= ours.keys()
    assert any(path.startswith("model.ckpt-") for path in ours)
    assert [path for path in ours if ours[path] != theirs[path]] == []
    with pytest.raises(InputError, match=r"a trial with another .*max_seq_length"):
        classify(**flags(inputs, folder, **GRID) | {"max_seq_length": 15}, **given)
    assert results_of(folder)["model_facts.json"] == ours["model_facts.json"]


# ---------------------------------------------------------------------------- two dev sets


def mnli_rows(count: int, *, with_label: bool = True) -> str:
    """Which word the second sentence begins with decides."""
    lines = ["index\tsentence1\tsentence2" + "\tgold_label" * with_label]
    for n in range(count):
        label = ("contradiction", "entailment", "neutral")[n % 3]
        lines.append(f"{n}\tw{5 + n % 4} w7\tw{1 + n % 3} w8" + f"\t{label}" * with_label)
    return "\n".join(lines) + "\n"


def test_two_dev_sets_and_frozen_layers(briefly, tmp_path, caplog):
    inputs = tmp_path / "encoder"
    inputs.mkdir()
    write_encoder(inputs, scale=5)
    sizes = {"train": 36, "dev_matched": 9, "dev_mismatched": 8}
    for name, count in (sizes | {"test_matched": 7, "test_mismatched": 6}).items():
        (tmp_path / f"{name}.tsv").write_text(mnli_rows(count, with_label="test" not in name))
    out = tmp_path / "out"
    briefly(
        task_name="MNLI", data_dir=tmp_path, init_checkpoint=inputs, output_dir=out,
        max_seq_length=17, learning_rate="1e-3", train_batch_size=6, num_train_epochs=1,
        freeze="bert/embeddings,layer_0/", layerwise_lr_decay=0.9, xla="false",
        do_train=True, do_eval=True, do_predict=True,
    )  # fmt: skip
    results = read_results(out)
    assert results["global_step"] == 6
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
    (tmp_path / "dev_mismatched.tsv").unlink()
    again = {"task_name": "MNLI", "data_dir": tmp_path, "output_dir": out, "max_seq_length": 17}
    briefly(**again, do_eval=True, xla="false")
    assert f"No dev_mismatched.tsv in {tmp_path}: left out." in caplog.text


# ---------------------------------------------------------------------------- every other head


def table(names: str, row: str, labels: list[str], separator: str = ","):
    """Makes the rows of a file: {n} is a row's number, and its label stands in the last column."""

    def make(count: int, with_label: bool) -> str:
        rows = [row.format(n=n) + f",{labels[n % len(labels)]}" * with_label for n in range(count)]
        text = "\n".join([names if with_label else names.rpartition(",")[0], *rows]) + "\n"
        return text.replace(",", separator)

    return make


def conll_sentences(count: int, with_label: bool) -> str:
    rows = [f"w{n} NNP I-NP I-PER\nw4 VBD I-VP O\n" + "w5 . O O\n" * (9 * n) for n in range(count)]
    return "-DOCSTART- -X- -X- O\n\n" + "\n".join(rows)


ENDINGS = ",".join(f"ending{i}" for i in range(4))
TASKS = {  # files, rows, flags of the task, metrics of dev; columns and lines of predictions
    "swag": (
        ("train.csv", "val.csv", "test.csv"),
        table(f",video-id,fold-ind,startphrase,sent1,sent2,gold-source,{ENDINGS},label",
              "{n},v,f,w{n} w2 w3,w{n} w2,w3,gold,w4,w5 w6,w{n},w8", [*"0123"]),
        {}, {"accuracy"}, ["id", "prediction", "0", "1", "2", "3"], 4,
    ),
    "sts-b": (
        ("train.tsv", "dev.tsv", "test.tsv"),
        table("index,genre,sentence1,sentence2,score", "{n},g,w{n} w3,w4", ["0.2", "4.2"], "\t"),
        {}, {"spearman", "pearson"}, ["id", "prediction", "score"], 4,
    ),
    "ner": (
        ("eng.train", "eng.testa", "eng.testb"), conll_sentences,
        {"document_context": True}, {"entity_f1", "entity_precision", "entity_recall", "accuracy"},
        ["id", "word", "prediction", "label", "O", "B-PER", "I-PER"], 62,
    ),
    "tsv": (
        ("train.tsv", "dev.tsv", "test.tsv"),
        table("text_a,label", "w{n}", ["x", "", "y;x"], "\t"),
        {"label_kind": "multi_label"},
        {"micro_f1", "macro_f1", "accuracy"}, ["id", "prediction", "x", "y"], 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_every_head_from_its_official_files(inputs, briefly, tmp_path, task):
    """Trained, evaluated and predicted; again from the folder alone, with the same predictions."""
    files, rows, own, metrics, columns, count = TASKS[task]
    for name, rows_of_it in zip(files, (9, 6, 4), strict=True):
        (tmp_path / name).write_text(rows(rows_of_it, with_label=rows_of_it > 4))
    out = tmp_path / "out"
    given = own | {"task_name": task, "data_dir": tmp_path, "output_dir": out}
    given |= {"max_seq_length": 17, "do_eval": True, "do_predict": True, "xla": "false"}
    briefly(
        **given, init_checkpoint=inputs, do_train=True, num_train_epochs=1,
        train_batch_size=3, warmup_proportion=0, learning_rate="1e-4",
    )  # fmt: skip
    results = read_results(out)
    assert {name[5:] for name in results if name.startswith("eval_")} == {*metrics, "loss"}
    steps = 13 if task == "ner" else 3  # of 39 windows of sentences
    assert results["global_step"] == steps
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
    briefly(**given)
    again = [line for line in (out / "test_results.tsv").read_text().splitlines() if line]
    assert [float(x) for line in again for x in line.split()] == pytest.approx(
        [float(x) for line in plain for x in line.split()], abs=1e-6
    )


# ---------------------------------------------------------------------------- what is refused


RTE = "index\tsentence1\tsentence2\tlabel\n0\tw1\tw2\tentailment\n"
BAD = {  # task, dev.tsv, flags; what is refused
    "an unknown label": ("rte", RTE + "1\tw1\tw2\tmaybe\n", {}, "dev.tsv, line 3: the label"),
    "one label only": ("tsv", RTE, {"label_column": "label"}, "of the task tsv with the labels"),
    "no number": ("rte", RTE, {"learning_rate": "3e-5,much"}, "--learning_rate=3e-5,much"),
    "no update": ("rte", RTE, {"train_batch_size": 32}, "1 examples, --train_batch_size"),
    "nothing frozen": ("rte", RTE, {"freeze": "layer_7/"}, "'layer_7/', which is in the name"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_nothing_behind(inputs, classify, tmp_path, case):
    task, dev, own, received = BAD[case]
    text = dev.replace("sentence1", "text_a") if task == "tsv" else dev
    (tmp_path / "train.tsv").write_text(text.replace("maybe", "entailment"))
    (tmp_path / "dev.tsv").write_text(text)
    given = {"task_name": task, "data_dir": tmp_path, "output_dir": tmp_path / "out"}
    given |= {"init_checkpoint": inputs, "max_seq_length": 17, "train_batch_size": 1}
    with pytest.raises(InputError, match=re.escape(received)):
        classify(do_train=True, do_eval=True, **given | own)
    left = contents(tmp_path / "out") if (tmp_path / "out").exists() else {}
    assert not [path for path in left if "incomplete" in path or "result" in path or "ckpt" in path]
