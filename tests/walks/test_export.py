"""From training to serving: what an export answers is what the scripts have written."""

import json
import pathlib
import random

import numpy as np
import pytest
import served_models
from saved_models import batch_of, run_in_c
from walking import in_process

from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
NUM_QUESTIONS = 40
LENGTHS = {"max_seq_length": 17, "doc_stride": 5, "max_query_length": 4}


def squad_file() -> dict:
    """Contexts of up to six windows, some without a piece."""
    choose = random.Random(7)
    words = ["Ruprecht", "founded", "it", "in", "1386", "(1412)", "by", "the", "Café", "é中", "😀?"]
    paragraphs = []
    for number in range(NUM_QUESTIONS):
        context = " ".join(choose.choices(words, k=choose.choice((0, 1, 5, 12, 30))))
        question = " ".join(choose.choices(words, k=choose.randrange(6)))
        qas = [{"id": f"q{number}", "question": question, "answers": [], "is_impossible": True}]
        paragraphs.append({"context": context, "qas": qas})
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> pathlib.Path:
    """A folder with a model for questions, and questions."""
    folder = tmp_path_factory.mktemp("questions")
    served_models.write_folder("no_answer", folder / "model")
    (folder / "dev.json").write_text(json.dumps(squad_file()))
    return folder


def test_questions_are_answered_as_run_squad_does(questions, tmp_path):
    with in_process("run_squad.py") as main:
        main(
            *("--nolegacy_alignment", "--version_2_with_negative", "--do_predict", "--noxla"),
            **LENGTHS, null_score_diff_threshold=-0.5, init_checkpoint=questions / "model",
            predict_file=questions / "dev.json", output_dir=tmp_path,
            export_dir=tmp_path / "serving",
        )  # fmt: skip
    names = ("predictions.json", "null_odds.json")
    predictions, null_odds = (json.loads((tmp_path / name).read_text()) for name in names)
    asked = [
        {"question": paragraph["qas"][0]["question"], "context": paragraph["context"]}
        for paragraph in squad_file()["data"][0]["paragraphs"]
    ]
    path = str(tmp_path / "serving" / "1")
    (found,) = run_in_c([(path, "serving_default", batch_of(asked))], tmp_path)
    answers = [answer.decode() for answer in found["answer"]]
    assert answers == [predictions[f"q{n}"] for n in range(NUM_QUESTIONS)]
    assert 5 < sum(map(bool, answers)) < NUM_QUESTIONS - 5
    wanted = [null_odds[f"q{n}"] for n in range(NUM_QUESTIONS)]
    np.testing.assert_allclose(found["null_odds"], wanted, rtol=1e-6, atol=3e-5)


# ---------------------------------------------------------------------------- bert-tf export


def test_a_folder_is_exported_as_what_it_says_it_is(questions, tmp_path):
    with in_process("export") as export_model:
        export_model(init_checkpoint=questions / "model", export_dir=tmp_path, max_seq_length=17,
                     max_query_length=4, top_k=2)  # fmt: skip
        facts = json.loads((tmp_path / "1" / "export.json").read_text())
        assert facts["task"] == "question_answering"
        assert facts["options"]["max_seq_length"] == 17
        assert not facts["options"]["version_2_with_negative"]
        for changes, message in (
            ({"top_k": 21}, "--top_k=21"),
            ({"max_seq_length": 30}, "max_seq_length 30"),
            ({"max_query_length": 40}, "max_query_length=40"),
            ({"task": "fill_mask", "max_query_length": None}, "without a masked-LM head"),
            ({"task": "classification", "max_query_length": None}, "output_weights"),
            ({"task": "classification"}, "--max_query_length"),
            ({"pairs": True}, "--pairs"),
            ({"max_seq_length": 0}, "max_seq_length=0"),
        ):
            flags = {"init_checkpoint": questions / "model", "max_query_length": 4}
            flags["export_dir"] = tmp_path / "none"
            with pytest.raises(InputError, match=message):
                export_model(**flags | changes)
    assert not (tmp_path / "none").exists()
