"""run_squad.py from questions to scored answers, with questions that have none."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from walking import eagerly, in_process, read_results, squad_file, write_encoder

from bert_tf.cli.plot import read_curves
from bert_tf.errors import InputError
from bert_tf.squad.data import read_squad
from bert_tf.squad.evaluation import official_scores
from bert_tf.training import distribution

pytestmark = pytest.mark.walk
SMALL = {"max_seq_length": 17, "doc_stride": 6, "max_query_length": 4, "xla": "false"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("squad")
    for seed, (name, count) in enumerate({"train": 41, "dev": 17}.items()):
        (folder / f"{name}.json").write_text(json.dumps(squad_file(count, seed=seed)))
    write_encoder(folder, num_hidden_layers=1)
    return folder


@pytest.fixture(scope="module")
def squad():
    with in_process("run_squad.py") as main:
        yield main


@pytest.fixture
def briefly(squad):
    """The same for a few steps, without graphs."""
    return eagerly()(squad)


@pytest.fixture
def asking(inputs, tmp_path) -> dict:
    """Flags of questions that may have no answer."""
    flags = {"predict_file": inputs / "dev.json", "output_dir": tmp_path / "out"}
    return SMALL | flags | {"do_predict": True, "version_2_with_negative": True}


@pytest.fixture
def training(inputs, asking) -> dict:
    flags = {"do_train": True, "train_file": inputs / "train.json", "init_checkpoint": inputs}
    return asking | flags | {"train_batch_size": 8, "num_train_epochs": 2}


def read_files(folder: pathlib.Path) -> list[dict]:
    names = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    return [json.loads((folder / name).read_text()) for name in names]


def facts_of(folder: pathlib.Path, **changes) -> dict:
    """Its model_facts.json, after changes."""
    path = folder / "model_facts.json"
    facts = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(facts))
    return facts


def decided(nbest: dict, null_odds: dict, threshold: float) -> dict[str, str]:
    """The answers under a threshold, by the rule itself."""
    return {
        qas_id: ""
        if odds > threshold
        else next((entry["text"] for entry in nbest[qas_id] if entry["text"]), "")
        for qas_id, odds in null_odds.items()
    }


def test_questions_are_answered_and_scored(
    inputs, squad, asking, training, tmp_path, two_replicas, monkeypatch, caplog
):
    out = tmp_path / "out"
    squad(**training, log_steps=5, do_eval=True, report=True)
    predictions, nbest, null_odds = read_files(out)
    ids = [f"q{n}" for n in range(17)]
    assert list(predictions) == list(nbest) == list(null_odds) == ids
    for qas_id, entries in nbest.items():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0)
        assert predictions[qas_id] in {entry["text"] for entry in entries}
    assert predictions == decided(nbest, null_odds, 0.0)
    results = read_results(out)
    assert (results["total"], results["global_step"]) == (17, int(41 / 8 * 2))
    assert results["best_exact"] >= results["exact"]
    assert results["best_f1"] >= results["f1"]
    assert results["null_score_diff_threshold"] == 0.0
    curves = read_curves(str(out))
    for name in ("exact", "f1", "best_exact", "best_f1"):
        assert curves[f"eval/{name}"] == {10: pytest.approx(results[name])}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(f'"id":"{qas_id}"' in page for qas_id in ids)
    assert f"<dt>best_f1</dt><dd>{results['best_f1']:,.3f}</dd>" in page

    # The best threshold is stored with the model, and is what later answers are decided by.
    facts = facts_of(out)
    threshold = facts["null_score_diff_threshold"]
    assert threshold not in null_odds.values()
    questions = read_squad(str(inputs / "dev.json"))
    under_it = official_scores(questions, decided(nbest, null_odds, threshold))
    assert under_it["f1"] == pytest.approx(results["best_f1"])
    assert facts["doc_stride"] == SMALL["doc_stride"]
    (out / "eval_results.txt").unlink()
    with caplog.at_level("INFO", logger="absl"):
        squad("--verbosity=0", predict_batch_size=3, **asking)
    again = read_files(out)
    assert list(again[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
    assert again[0] == decided(again[1], again[2], threshold)
    assert f"null_score_diff_threshold {threshold} (stored with" in caplog.text
    assert not (out / "eval_results.txt").exists()

    # A threshold that is given wins; on two devices the answers are those of the beginning.
    monkeypatch.setattr(distribution, "make_strategy", lambda *_, **__: two_replicas)
    squad(**asking, null_score_diff_threshold=0.0, predict_batch_size=4, do_eval=True)
    third = read_files(out)
    assert third[0] == predictions
    assert facts_of(out) == facts  # its own threshold
    assert list(third[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
    assert read_results(out) == pytest.approx(results, abs=1e-4)


def test_version_1_1(inputs, briefly, tmp_path):
    """Every question is answered, with as many words as are allowed, and scored by its script.

    Pieces that are never split go with the model, and answers beside them are found.
    """
    content = json.loads((inputs / "dev.json").read_text())
    paragraphs = content["data"][0]["paragraphs"]
    paragraphs = [one for one in paragraphs if one["qas"][0]["answers"]]
    for one in paragraphs:
        del one["qas"][0]["is_impossible"]
    (tmp_path / "v1.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    shutil.copytree(inputs, tmp_path / "model")
    (tmp_path / "model/model_facts.json").write_text('{"never_split": ["w3"]}')
    out = tmp_path / "out"
    briefly(
        **SMALL, train_file=tmp_path / "v1.json", predict_file=tmp_path / "v1.json",
        init_checkpoint=tmp_path / "model", output_dir=out, do_train=True, do_predict=True,
        do_eval=True, train_batch_size=4, num_train_epochs=1, n_best_size=12, max_answer_length=3,
        do_lower_case=True, report=True,
    )  # fmt: skip
    assert facts_of(out)["never_split"] == ["w3"]
    assert not (out / "null_odds.json").exists()
    nbest = json.loads((out / "nbest_predictions.json").read_text())
    assert max(len(entries) for entries in nbest.values()) == 12
    words = {len(entry["text"].split()) for entries in nbest.values() for entry in entries}
    assert words == {1, 2, 3}
    assert read_results(out).keys() == {"exact_match", "f1", "global_step"}
    predictions = json.loads((out / "predictions.json").read_text())
    golds = {one["qas"][0]["id"]: one["qas"][0]["answers"][0]["text"] for one in paragraphs}
    right = [predictions[qas_id] == gold for qas_id, gold in golds.items()]
    assert read_results(out)["exact_match"] == pytest.approx(100 * np.mean(right))


def test_a_finished_run_keeps_its_threshold(briefly, asking, training, tmp_path, caplog):
    """It answers by it when it is only asked, as its export does; run again, as the first time."""
    out, export = tmp_path / "out", tmp_path / "export"
    training["num_train_epochs"] = 0.5
    briefly(**training)
    threshold = sorted(read_files(out)[2].values())[8] + 1e-4
    facts = facts_of(out, null_score_diff_threshold=threshold)
    with caplog.at_level("INFO", logger="absl"):
        briefly("--verbosity=0", **training)
        predictions, nbest, null_odds = read_files(out)
        assert predictions == decided(nbest, null_odds, 0.0)
        assert facts_of(out) == facts
        briefly("--verbosity=0", **asking)
        place = f"stored with {out}/model.ckpt-2"
        assert f"null_score_diff_threshold {threshold} ({place})" in caplog.text
        predictions, nbest, null_odds = read_files(out)
        assert predictions == decided(nbest, null_odds, threshold)
        assert 0 < sum(answer == "" for answer in predictions.values()) < 17
        del asking["version_2_with_negative"]
        briefly(**asking | {"doc_stride": 5}, export_dir=export)
    assert "was trained with version_2_with_negative = True; here it is False" in caplog.text
    assert "was trained with doc_stride = 6; here it is 5" in caplog.text
    options = json.loads((export / "1/export.json").read_text())["options"]
    assert (options["null_score_diff_threshold"], options["doc_stride"]) == (threshold, 5)


def test_the_best_checkpoint_answers(inputs, briefly, asking, training, tmp_path, caplog):
    """It is that of the evaluation with the best score, has its own threshold, and is resumed.

    Each evaluation is under the threshold that is given: here no question is answered.
    """
    out = tmp_path / "out"
    training |= {"do_eval": True, "eval_steps": 4, "learning_rate": 3e-3}
    with caplog.at_level("INFO", logger="absl"):
        briefly("--verbosity=0", **training, null_score_diff_threshold=-1e6)
    examples = read_squad(str(inputs / "dev.json")).examples
    unanswerable = 100 * sum(not one.answers for one in examples) / 17
    curves = read_curves(str(out))
    assert 0 < unanswerable < 100
    for name in ("eval/exact", "eval/f1"):
        assert [*curves[name].values()] == pytest.approx([unanswerable] * len(curves[name]))
    windows = sum(1 for _ in tf.data.TFRecordDataset(str(out / "train.tf_record")))
    assert f"train.tf_record: {windows} records of 41 examples" in caplog.text
    share = 80 / windows
    assert f"records train on each record {share:.2f} times: on {share:.0%} of them" in caplog.text
    values = json.loads((out / "best/evaluations.json").read_text())
    assert [*values] == ["4", "8", "10"]
    results = read_results(out)
    best_step = max(values, key=values.get)
    assert results["global_step"] == int(best_step)
    assert results["best_f1"] == pytest.approx(values[best_step])
    curve = curves["eval/best_f1"]
    assert {0, 4, 8, int(best_step)} == curve.keys()
    assert all(curve[int(s)] == pytest.approx(values[s]) for s in ("4", "8", best_step))
    threshold = facts_of(out / "best")["null_score_diff_threshold"]
    assert threshold is not None
    null_odds = read_files(out)[2]

    briefly(**asking)  # the best one, by its own threshold
    again = read_files(out)
    assert list(again[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
    assert again[0] == decided(again[1], again[2], threshold)
    with pytest.raises(InputError, match="dev_data"):
        briefly(**training | {"n_best_size": 3, "null_score_diff_threshold": -1e6})


ASKED, TRAINED = {"do_predict": True, "predict_file": "x"}, {"do_train": True, "train_file": "x"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "neither --do_train nor --do_predict"),
        ({"do_train": True}, "--do_train without --train_file"),
        ({"do_predict": True}, "--do_predict without --predict_file"),
        (TRAINED | {"do_eval": True}, "--do_eval without --do_predict"),
        (TRAINED | {"report": True}, "--report without --do_predict"),
        (ASKED | {"eval_steps": 5}, "--eval_steps without"),
        (ASKED | {"n_best_size": 0}, "--n_best_size=0"),
        (ASKED | {"doc_stride": 0}, "--doc_stride=0"),
        (ASKED | {"null_score_diff_threshold": "nan"}, "--null_score_diff_threshold=nan"),
    ],
)
def test_what_makes_no_sense_is_refused(squad, tmp_path, flags, says):
    with pytest.raises(InputError) as error:
        squad(output_dir=tmp_path / "new", **flags)
    assert says in error.value.received
    assert not (tmp_path / "new").exists()
