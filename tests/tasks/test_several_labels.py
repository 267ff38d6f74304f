"""Any number of labels with thresholds: one training, and all that answers with its model."""

import json

import numpy as np
import pytest
from walking import eagerly, in_process, read_results, untraced, write_encoder

import bert_tf
from bert_tf.errors import InputError
from bert_tf.heads.multi_label import best_threshold
from bert_tf.serving import portable

NAMES = ("Arts, culture", "Rare", "Sport")
SHARES = {"Arts, culture": 0.5, "Rare": 0.1, "Sport": 0.3}  # of the texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder, and texts whose labels nothing explains."""
    folder = tmp_path_factory.mktemp("several")
    write_encoder(folder, num_hidden_layers=1, scale=5)
    rng = np.random.default_rng(1)
    rows = []
    for number in range(90):
        text = " ".join(f"w{n}" for n in rng.integers(0, 90, 9))
        labels = [name for name in NAMES if rng.random() < SHARES[name]]
        rows.append({"id": f"n{number}", "text_a": text, "label": labels})
    for name, part in (("train", rows[:60]), ("dev", rows[60:])):
        lines = [json.dumps(row) for row in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def given(folder, out: str, **more) -> dict:
    return {
        "task_name": "jsonl",
        "data_dir": folder,
        "label_kind": "multi_label",
        "id_column": "id",
        "output_dir": folder / out,
        "max_seq_length": 17,
        "do_eval": True,
        **more,
    }


def training(folder) -> dict:
    return {
        "do_train": True,
        "init_checkpoint": folder,
        "train_batch_size": 12,
        "learning_rate": "1e-3",
        "num_train_epochs": 2,
        "xla": "false",
    }


def predictions_of(out) -> dict[str, str]:
    """The predicted labels of each dev row, as dev_predictions.tsv has them."""
    lines = (out / "dev_predictions.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: line.split("\t")[1] for line in lines}


@pytest.mark.walk
def test_thresholds_are_the_models_wherever_it_is_used(folder, tmp_path):
    out = folder / "out"
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    texts = [row["text_a"] for row in rows]

    def thresholds() -> dict | None:
        return json.loads((out / "model_facts.json").read_text()).get("thresholds")

    with in_process("classify") as classify, eagerly():
        classify(**given(folder, "out", **training(folder)))
        assert thresholds() is None
        at_half = read_results(out)["eval_macro_f1"]
        asked = training(folder) | {"threshold": "dev", "report": True}
        classify(**given(folder, "out", **asked, export_dir=folder / "saved"))  # is finished
        results, chosen = read_results(out), thresholds()
        wanted = predictions_of(out)
        classify(**given(folder, "out"))  # alone, by what the model's folder says
        assert read_results(out) == pytest.approx(results)
    assert chosen.keys() == {*NAMES}
    assert results["eval_macro_f1"] > at_half
    report = (out / "report.html").read_text()
    assert f"{results['eval_macro_f1']:.3f}" in report.split("macro avg")[1][:60]
    lines = (out / "dev_predictions.tsv").read_text().splitlines()[1:]
    table = [line.split("\t") for line in lines]
    shares = np.array([[float(cell) for cell in cells[3:]] for cells in table])  # [N, L]
    gold = np.array([[name in row["label"] for name in NAMES] for row in rows])
    for number, name in enumerate(NAMES):
        assert chosen[name] == pytest.approx(best_threshold(shares[:, number], gold[:, number]))
    assert {"", "Arts, culture"} < {*wanted.values()} or any(";" in x for x in wanted.values())
    assert [";".join(row["label"]) for row in rows] == [cells[2] for cells in table]
    for model in (out, folder / "saved"):
        predictor = bert_tf.Predictor(model)
        assert predictor.model.metadata["thresholds"] == chosen
        with untraced():
            answers = predictor.predict(texts)
        for row, answer in zip(rows, answers, strict=True):
            assert named(answer) == wanted[row["id"]]
    lines = ["id,text_a", *(f"{row['id']},{row['text_a']}" for row in rows)]
    (tmp_path / "texts.csv").write_text("\n".join(lines))
    with in_process("predict") as predict, untraced():
        predict(
            model=out, input_file=tmp_path / "texts.csv", output_file=tmp_path / "answers.jsonl"
        )
    answered = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    for row, answer in zip(rows, answered, strict=True):
        assert named(answer) == wanted[row["id"]]
    path = portable_model(out, folder / "portable")
    run = portable.FORMATS["onnx"].load(path, 1)
    tokenizer = bert_tf.Predictor(out).model.tokenizer
    for row in rows[:9]:
        ids = tokenizer([row["text_a"]])
        answer = run({name: np.asarray(value, np.int32) for name, value in ids.items()})
        assert named({"labels": NAMES, "applies": answer["applies"][0]}) == wanted[row["id"]]


def named(answer) -> str:
    """The labels that apply, as files have them: one name has a comma."""
    pairs = zip(answer["labels"], answer["applies"], strict=True)
    return ";".join(name for name, applies in pairs if applies)


def portable_model(model, export_dir) -> str:
    """The path of a model's ONNX file."""
    pytest.importorskip("tf2onnx")
    with in_process("export") as export:
        export(init_checkpoint=model, export_dir=export_dir, format="onnx")
    return str(export_dir / "1" / "model.onnx")


REFUSED = [
    ({"threshold": "1.5"}, "--threshold=1.5"),
    ({"threshold": "best"}, "--threshold=best"),
    ({"threshold": "dev", "do_eval": False}, "--threshold=dev without --do_eval"),
    (
        {"threshold": "0.3", "label_kind": "regression"},
        "--threshold=0.3 for the labels of regression",
    ),
    ({"positive_label": "Rare"}, "--positive_label=Rare for the labels of multi_label"),
]


@pytest.mark.parametrize(("flags", "received"), REFUSED)
def test_what_has_no_effect_is_refused(folder, flags, received):
    with in_process("classify") as classify, pytest.raises(InputError) as caught:
        classify(**given(folder, "refused", **training(folder)) | flags)
    assert caught.value.received.startswith(received)
    assert not (folder / "refused").exists() or not any((folder / "refused").glob("model*"))


@pytest.mark.walk
def test_a_threshold_that_selected_the_model_may_not_change(folder):
    """Evaluations during training are by it; without them another one may be recorded."""
    out = folder / "selected"
    asked = given(folder, "selected", **training(folder), eval_steps=4)
    with in_process("classify") as classify, eagerly():
        classify(**asked, threshold="0.25")
        facts = json.loads((out / "best" / "model_facts.json").read_text())
        assert facts["thresholds"] == dict.fromkeys(NAMES, 0.25)
        with pytest.raises(InputError) as caught:
            classify(**asked, threshold="0.3")
    assert "threshold 0.3 (it had 0.25)" in caught.value.received
