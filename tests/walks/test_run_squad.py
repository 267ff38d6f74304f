"""run_squad.py from questions to scored answers, with questions that have none."""

import json
import pathlib

import numpy as np
import pytest
from walking import run, write_config, write_vocabulary

from bert_tf import BertConfig, bert_encoder
from bert_tf.checkpoints import checkpoint_name, write_checkpoint

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


def test_questions_are_answered_and_scored(inputs, tmp_path):
    flags = {
        "predict_file": inputs / "dev.json",
        "output_dir": tmp_path,
        "version_2_with_negative": True,
        "max_seq_length": 17,
        "doc_stride": 6,
        "max_query_length": 4,
        "do_predict": True,
        "do_eval": True,
    }
    run(
        "run_squad.py",
        do_train=True,
        train_file=inputs / "train.json",
        init_checkpoint=inputs,
        train_batch_size=8,
        num_train_epochs=2,
        log_steps=5,
        **flags,
    )
    predictions, nbest, null_odds = read_files(tmp_path)
    ids = [f"q{n}" for n in range(17)]
    assert list(predictions) == list(nbest) == list(null_odds) == ids
    for qas_id, entries in nbest.items():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0)
        assert predictions[qas_id] in {entry["text"] for entry in entries}
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    results = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
    assert results["total"] == 17
    assert results["global_step"] == int(41 / 8 * 2)
    assert results["best_exact"] >= results["exact"]

    # Again, from the folder alone, in other batches: the same answers.
    run("run_squad.py", predict_batch_size=3, **flags)
    again = read_files(tmp_path)
    assert again[0] == predictions
    assert list(again[2].values()) == pytest.approx(list(null_odds.values()), abs=1e-5)
