"""run_squad.py from questions to scored answers, with questions that have none."""

import json
import pathlib

import numpy as np
import pytest
import small_squad
from absl import flags as absl_flags
from walking import in_process, run, write_config, write_vocabulary

from bert_tf import BertConfig, bert_encoder
from bert_tf.checkpoints import checkpoint_name, write_checkpoint
from bert_tf.errors import InputError

pytestmark = pytest.mark.walk


def squad_file(num_questions: int, *, seed: int) -> dict:
    """Which word follows w1? A third of the contexts have no w1, and so no answer."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for number in range(num_questions):
        words = [f"w{n}" for n in random.integers(2, 60, random.integers(3, 30))]
        answers = []
        impossible = bool(random.integers(3) == 0)
        if not impossible:
            place = int(random.integers(len(words) - 1))
            words[place] = "w1"
            start = len(" ".join(words[: place + 1])) + 1
            answers = [{"text": words[place + 1], "answer_start": start}]
        question = {
            "id": f"q{number}",
            "question": "w1 w60",
            "answers": answers,
            "is_impossible": impossible,
        }
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("squad")
    for seed, (name, count) in enumerate({"train": 41, "dev": 17}.items()):
        (folder / f"{name}.json").write_text(json.dumps(squad_file(count, seed=seed)))
    config = BertConfig.from_json_file(write_config(folder / "bert_config.json"))
    write_vocabulary(folder / "vocab.txt")
    tensors = {checkpoint_name(v): v.numpy() for v in bert_encoder(config).trainable_variables}
    write_checkpoint(str(folder / "bert_model.ckpt"), tensors, temporary=str(folder / "new"))
    return folder


def read_files(folder: pathlib.Path) -> list[dict]:
    names = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    return [json.loads((folder / name).read_text()) for name in names]


def read_results(folder: pathlib.Path) -> dict[str, float]:
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def decided(nbest: dict, null_odds: dict, threshold: float) -> dict[str, str]:
    """The answers under a threshold, by the rule itself."""
    return {
        qas_id: ""
        if odds > threshold
        else next((entry["text"] for entry in nbest[qas_id] if entry["text"]), "")
        for qas_id, odds in null_odds.items()
    }


def test_questions_are_answered_and_scored(inputs, tmp_path):
    flags = {
        "predict_file": inputs / "dev.json",
        "output_dir": tmp_path,
        "version_2_with_negative": True,
        "max_seq_length": 17,
        "doc_stride": 6,
        "max_query_length": 4,
        "do_predict": True,
    }
    run(
        "run_squad.py",
        do_train=True,
        train_file=inputs / "train.json",
        init_checkpoint=inputs,
        train_batch_size=8,
        num_train_epochs=2,
        log_steps=5,
        do_eval=True,
        report=True,
        **flags,
    )
    predictions, nbest, null_odds = read_files(tmp_path)
    ids = [f"q{n}" for n in range(17)]
    assert list(predictions) == list(nbest) == list(null_odds) == ids
    for qas_id, entries in nbest.items():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0)
        assert predictions[qas_id] in {entry["text"] for entry in entries}
    assert predictions == decided(nbest, null_odds, 0.0)
    results = read_results(tmp_path)
    assert results["total"] == 17
    assert results["global_step"] == int(41 / 8 * 2)
    assert results["best_exact"] >= results["exact"]
    assert results["best_f1"] >= results["f1"]
    assert results["null_score_diff_threshold"] == 0.0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f'"id":"{qas_id}"' in page for qas_id in ids)
    assert f"<dt>best_f1</dt><dd>{results['best_f1']:,.3f}</dd>" in page

    # The best threshold is stored with the model, and is what later answers are decided by.
    facts = json.loads((tmp_path / "model_facts.json").read_text())
    threshold = facts["null_score_diff_threshold"]
    assert threshold not in null_odds.values()
    if results["at_best_f1_NoAns_f1"] < 100.0:
        assert results["best_f1_thresh"] < threshold <= results["best_f1_thresh"] + 0.5
        best = decided(nbest, null_odds, results["best_f1_thresh"])
        assert decided(nbest, null_odds, threshold) == best
    assert facts["doc_stride"] == flags["doc_stride"]
    (tmp_path / "eval_results.txt").unlink()
    ended = run("run_squad.py", predict_batch_size=3, **flags)
    again = read_files(tmp_path)
    assert list(again[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
    assert again[0] == decided(again[1], again[2], threshold)
    assert f"null_score_diff_threshold {threshold} (stored with" in ended.stderr
    assert not (tmp_path / "eval_results.txt").exists()

    # A threshold that is given wins; on two devices, with the questions from a prepared dataset,
    # the answers are those of the beginning.
    pytest.importorskip("tensorflow_datasets")
    content = json.loads((inputs / "dev.json").read_text())
    small_squad.write_tfds(str(tmp_path / "tfds"), "v2.0", validation=content)
    flags |= {"predict_file": None, "tfds_name": "squad/v2.0", "tfds_data_dir": tmp_path / "tfds"}
    run(
        "run_squad.py",
        null_score_diff_threshold=0.0,
        num_cpu_devices=2,
        predict_batch_size=4,
        do_eval=True,
        **flags,
    )
    third = read_files(tmp_path)
    assert third[0] == predictions
    assert json.loads((tmp_path / "model_facts.json").read_text()) == facts  # its own threshold
    assert list(third[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
    again = read_results(tmp_path)
    assert again.keys() == results.keys()
    assert list(again.values()) == pytest.approx(list(results.values()), abs=1e-4)


ORIGINAL_FLAGS = {  # and their defaults
    "do_lower_case": True,
    "max_seq_length": 384,
    "doc_stride": 128,
    "max_query_length": 64,
    "do_train": False,
    "do_predict": False,
    "train_batch_size": 32,
    "predict_batch_size": 8,
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "warmup_proportion": 0.1,
    "save_checkpoints_steps": 1000,
    "iterations_per_loop": 1000,
    "n_best_size": 20,
    "max_answer_length": 30,
    "use_tpu": False,
    "num_tpu_cores": 8,
    "verbose_logging": False,
    "version_2_with_negative": False,
    "null_score_diff_threshold": 0.0,
    **dict.fromkeys(["bert_config_file", "vocab_file", "output_dir", "train_file"]),
    **dict.fromkeys(["predict_file", "init_checkpoint"]),
    **dict.fromkeys(["tpu_name", "tpu_zone", "gcp_project", "master"]),
}


def test_every_flag_of_the_original_has_its_default():
    with in_process("run_squad.py"):
        assert {name: absl_flags.FLAGS[name].default for name in ORIGINAL_FLAGS} == ORIGINAL_FLAGS


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "neither --do_train nor --do_predict"),
        ({"do_train": True}, "--do_train without --train_file"),
        ({"do_predict": True}, "--do_predict without --predict_file"),
        ({"do_train": True, "train_file": "x", "do_eval": True}, "--do_eval without --do_predict"),
        ({"do_train": True, "train_file": "x", "report": True}, "--report without --do_predict"),
        ({"do_predict": True, "predict_file": "x", "n_best_size": 0}, "--n_best_size=0"),
        (
            {"do_predict": True, "predict_file": "x", "null_score_diff_threshold": "nan"},
            "--null_score_diff_threshold=nan",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, flags, says):
    with in_process("run_squad.py") as run_squad, pytest.raises(InputError) as error:
        run_squad(output_dir=tmp_path / "new", **flags)
    assert says in error.value.received
    assert not (tmp_path / "new").exists()
