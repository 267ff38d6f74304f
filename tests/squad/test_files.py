"""Files of answers, written and read again; report.html: no text gets out of its place."""

import dataclasses
import json
import re

import pytest
import small_squad as small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.errors import InputError
from bert_tf.squad import answer_files, files, report
from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadExample


@pytest.mark.parametrize("odds", ["1", True, float("nan")])
def test_null_odds_that_are_none(tmp_path, odds):
    """True is no number, and NaN would decide by chance."""
    path = tmp_path / "null_odds.json"
    path.write_text(json.dumps({"q1": -1.0, "q2": odds}))
    with pytest.raises(InputError, match=r"null_odds\.json"):
        answer_files.read_na_probs(str(path))


def test_files_come_back_as_they_were_written(tmp_path):
    entries = [NbestEntry("Süd", 0.75, 2.0, 3.5, (0, 3)), NbestEntry("", 0.25, 1.0, 1.0)]
    predictions = [Prediction("q1", entries, -1.0)]
    files.write_prediction_files(str(tmp_path), predictions, {"q1": "Süd"})
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts["predictions.json"] == '{\n    "q1": "S\\u00fcd"\n}\n'
    assert answer_files.read_predictions(f"{tmp_path}/predictions.json") == {"q1": "Süd"}
    assert answer_files.read_na_probs(f"{tmp_path}/null_odds.json") == {"q1": -1.0}
    (first, second) = json.loads(texts["nbest_predictions.json"])["q1"]
    assert first == {"text": "Süd", "probability": 0.75, "start_logit": 2.0, "end_logit": 3.5}
    assert (second["text"], second["probability"]) == ("", 0.25)


# ---------------------------------------------------------------------------- report.html

CONTEXT = "In 1386 Ruprecht I founded it."
QUESTIONS = [
    SquadExample("q1", "Who founded it?", CONTEXT, (Answer("Ruprecht I", 8),), title="Heidelberg"),
    SquadExample("q2", "When?", CONTEXT, (Answer("1386", 3),) * 2, title="Heidelberg"),
    SquadExample("q3", "Where?", CONTEXT, (), True, "Heidelberg"),
    SquadExample("q4", "Who?", "😀 Süd </script><!--<script>", (Answer("Süd", 2),), title="<b>"),
]  # fmt: skip
PREDICTIONS = [
    Prediction("q1", [NbestEntry("Ruprecht", 0.7123456, 3.123, 2.4, (8, 16))], -3.5),
    Prediction("q2", [NbestEntry("", 0.6, 1.0, 1.0), NbestEntry("1386", 0.4, 1.0, 0.5)], 0.5),
    Prediction("q3", [NbestEntry("", 1.0, 1.0, 1.0)], 1e6),
    Prediction("q4", [NbestEntry("Süd", 1.0, 1.0, 1.0, (2, 5))] * 13, 0.0),
]
ANSWERS = {"q1": "Ruprecht", "q2": "", "q3": "", "q4": "Süd"}
FILE = small.squad_file(*QUESTIONS, version_2=True)


def page(with_golds: bool = True, file=FILE, predictions=PREDICTIONS, answers=ANSWERS) -> str:
    return report.report_html(
        dataclasses.replace(file, has_golds=with_golds),
        predictions,
        answers,
        totals={"exact": 62.5, "total": 10570},
    )


def data_in(text: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_data_of_the_page():
    data = data_in(page())
    assert data["hasGold"]
    assert data["contexts"] == [
        {"title": "Heidelberg", "text": CONTEXT},
        {"title": "<b>", "text": QUESTIONS[3].context},
    ]
    assert data["questions"][0] == {
        "id": "q1", "question": "Who founded it?", "context": 0, "answer": "Ruprecht",
        "span": [8, 16], "golds": [{"text": "Ruprecht I", "span": [8, 18]}], "exact": 0.0,
        "f1": 0.6667, "nullOdds": -3.5, "nbest": [["Ruprecht", 0.7123, 3.12, 2.4]],
    }  # fmt: skip
    second, third, fourth = data["questions"][1:]
    assert (second["answer"], second["span"], second["exact"]) == ("", None, 0.0)
    assert second["golds"] == [{"text": "1386", "span": [3, 7]}]  # annotators agree: once
    assert (third["golds"], third["exact"], third["context"]) == ([], 1.0, 0)
    assert (fourth["span"], fourth["context"], fourth["nullOdds"]) == ([2, 5], 1, 0.0)
    assert len(fourth["nbest"]) == report.NBEST_SHOWN
    for name, value in (("questions", "4"), ("exact", "62.5"), ("total", "10,570")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page()


def test_without_gold_answers_nothing_is_scored():
    data = data_in(page(with_golds=False))
    assert not data["hasGold"]
    for question in data["questions"]:
        assert (question["golds"], question["exact"], question["f1"]) == ([], None, None)


def test_v1_is_scored_as_the_official_script_of_v1():
    one = SquadExample("q1", "?", "the", (Answer("the", 0),))
    prediction = Prediction("q1", [NbestEntry("a", 1.0, 0, 0)])
    for version_2, f1 in ((False, 0.0), (True, 1.0)):
        file = small.squad_file(one, version_2=version_2)
        (question,) = data_in(page(True, file, [prediction], {"q1": "a"}))["questions"]
        assert (question["exact"], question["f1"]) == (1.0, f1)


def test_places_of_answers():
    """Where it is known; otherwise where it occurs first."""
    text = "May, the May of May"
    golds = {("May", 9): (9, 12), ("of May", 999): (13, 19), ("May", -3): (0, 3)}
    golds |= {("May", None): (0, 3), ("June", 0): None, ("", 0): None}
    for gold, span in golds.items():
        assert report.span_of(text, *gold) == span
    one = SquadExample("q", "?", text)
    nbest = [NbestEntry("the", 1, 0, 0, (5, 8)), NbestEntry("May", 1, 0, 0, (9, 12))]
    for entries, span in ((nbest, [9, 12]), ([], [0, 3])):
        content = page(
            True, small.squad_file(one, version_2=True), [Prediction("q", entries)], {"q": "May"}
        )
        assert data_in(content)["questions"][0]["span"] == span


MARKUP = ("<", ">", "</script>", "<script>", "<!--", "-->", "]]>", "{{data}}", "&lt;", '"', "\\u")
markup = st.lists(small.texts | st.sampled_from(MARKUP), max_size=6).map("".join)


@settings(max_examples=60)
@given(markup, markup, markup, markup)
def test_no_text_gets_out_of_its_place(qas_id, question, context, answer):
    example = SquadExample(qas_id, question, context, (Answer(answer, 0),), False, question)
    file = small.squad_file(example)
    text = page(True, file, [Prediction(qas_id, [NbestEntry(answer, 1.0, 0, 0)])], {qas_id: answer})
    text.encode("utf-8")  # lone surrogates are escaped
    what_ends_it = re.compile("</?script|<!--", re.IGNORECASE)
    assert what_ends_it.findall(text) == what_ends_it.findall(page())
    data = data_in(text)
    assert data["contexts"] == [{"title": question, "text": context}]
    (row,) = data["questions"]
    assert [row[name] for name in ("id", "question", "answer")] == [qas_id, question, answer]


def test_the_name_of_the_file_is_escaped():
    file = small.squad_file(version_2=True)
    file = type(file)([], True, "/data/<i>{{totals}}.json")
    assert "<h1>Answers to &lt;i&gt;{{totals}}.json</h1>" in page(True, file, [], {})
    file = type(file)([], True, "/data/\udcff.json")  # a name that is not UTF-8
    assert "<h1>Answers to ?.json</h1>" in page(True, file, [], {})


@pytest.mark.parametrize(("own", "kept"), [(None, -1.5), (0.25, 0.25)])
def test_a_threshold_is_stored_once_with_a_model_if_there_is_one(tmp_path, own, kept):
    files.store_threshold(str(tmp_path), -1.5)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model.ckpt-3.index").touch()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"')
    path = tmp_path / METADATA_FILE
    path.write_text(ModelMetadata(null_score_diff_threshold=own).to_json_string())
    files.store_threshold(str(tmp_path), -1.5)
    assert ModelMetadata.from_json_file(str(path)).null_score_diff_threshold == kept
