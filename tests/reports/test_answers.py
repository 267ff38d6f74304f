"""Public reports on answers: questions, vectors, masks, scores."""

import json

import pytest
import served_models

from bert_tf import Predictor
from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError
from bert_tf.squad.data import parse_squad, read_squad
from bert_tf.squad.evaluation import official_scores

# ------------------------------------------------------------------------------ questions


def squad(golds, **qa) -> dict:
    context = " ".join(golds) or "x"
    answers = [{"text": gold, "answer_start": context.index(gold)} for gold in golds]
    question = {"id": "q", "question": "?", "answers": answers} | qa
    return {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}


@pytest.mark.parametrize(
    ("golds", "prediction", "exact", "f1"),
    [
        (["A"], "A", 100.0, 0.0),  # as the official script of v1.1: no word is left to share
        (["A"], "b", 0.0, 0.0),
        (["The A"], "", 100.0, 0.0),
        (["The Who"], "who", 100.0, 100.0),
    ],
)
def test_answers_that_are_articles(golds, prediction, exact, f1):
    """UltraRAG#510: a gold answer "A" is empty after normalization, and made all right."""
    found = official_scores(parse_squad(squad(golds), "a.json"), {"q": prediction})
    assert found == {"exact_match": exact, "f1": f1}


def test_rows_of_datasets_are_not_the_files_form(write):
    """Rows of the datasets library: one object a question; SQuAD's files nest them."""
    row = {"id": "1", "context": "w1 w2", "question": "w2?"}
    row["answers"] = {"text": ["w1"], "answer_start": [0]}
    for content in (json.dumps([row]), json.dumps(row) + "\n" + json.dumps(row)):
        with pytest.raises(InputError, match=r"a\.json, which is not JSON as expected") as caught:
            read_squad(write("a.json", content))
        assert caught.value.expected.startswith("SQuAD's format")
    with pytest.raises(InputError, match=r"a\.json"):
        read_squad(write("a.json", json.dumps({"data": [row]})))


def test_contexts_without_a_word_and_wide_gaps(tmp_path):
    """transformers#2623: a crash for an empty context; FARM#756, haystack#3526: blank answers."""
    folder = tmp_path / "no_answer"
    served_models.write_folder("no_answer", folder)
    asked = served_models.open_kind(open_weights(folder), "no_answer")
    gaps = "  Ruprecht \n\n\n\n  founded\t it in   1386. "
    rows = [("who?", ""), ("who?", " \n"), ("", gaps), ("who founded it?", gaps)]
    found = Predictor(asked).predict(rows)
    assert [(one["answer"], one["has_answer"]) for one in found[:2]] == [("", False)] * 2
    for one in found[2:]:
        spans = zip(one["nbest_starts"], one["nbest_ends"], strict=True)
        cut = [gaps[start:end] for start, end in spans]
        assert one["nbest_answers"] == cut
        assert cut == [answer.strip() for answer in cut]
        assert all(cut)
