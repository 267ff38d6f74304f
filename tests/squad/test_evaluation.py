"""Scores against the official scripts' published results and cases worked out by hand."""

import dataclasses
import json
import pathlib

import pytest
import small_squad as small
import walking

from bert_tf.errors import InputError
from bert_tf.squad import answer_files, data, evaluation
from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadExample


def question(qas_id: str, *golds: str) -> SquadExample:
    answers = tuple(Answer(gold, 0) for gold in golds)
    return SquadExample(qas_id, "?", "context", answers, not golds)


# The drawn example of `best_thresholds`.
QUESTIONS = [question("q1", "1386"), question("q2"), question("q3", "Ruprecht"), question("q4")]
FILE = small.squad_file(*QUESTIONS, version_2=True)
PREDICTIONS = {"q1": "1386", "q2": "1196", "q3": "Ruprecht", "q4": "Heidelberg"}
NULL_ODDS = {"q1": -5.0, "q2": -2.0, "q3": -1.0, "q4": 4.0}


@pytest.mark.parametrize(
    ("system", "exact_match", "f1"),
    [("bert-ensemble", 86.20624, 92.19558), ("logreg", 40.14191, 50.98154)],
)
def test_published_predictions_on_all_of_dev(data_dir, system, exact_match, f1):
    file = data.read_squad(str(data_dir / "squad" / "dev-v1.1.json"))
    path = data_dir / "squad" / "predictions" / f"{system}-dev-v1.1.json"
    scores = evaluation.official_scores(file, answer_files.read_predictions(str(path)))
    assert list(scores) == ["exact_match", "f1"]
    assert scores["exact_match"] == pytest.approx(exact_match, abs=1e-5)
    assert scores["f1"] == pytest.approx(f1, abs=1e-5)


# ---------------------------------------------------------------------------- one answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('The (Old)  "Bridge\'s"', "old bridges"),
        ("a an the", ""),
        ("theatre, an-other A.", "theatre another"),  # "an-other": the hyphen goes first
        ("U.S.A.", "usa"),
        ("the\u00a0end\u3000of", "end of"),
        ("“Süd” ¡中國。", "“süd” ¡中國。"),  # only ASCII punctuation is taken off
        ("the中", "the中"),  # no border between letters
        ("", ""),
    ],
)
def test_normalize_answer(text, expected):
    assert evaluation.normalize_answer(text) == expected


# ---------------------------------------------------------------------------- v1.1


def test_v1_counts_what_is_missing_as_wrong(caplog):
    file = small.squad_file(question("q1", "1386"), question("q2", "1196"), question("q3", "x y"))
    scores = evaluation.official_scores(file, {"q1": "1386.", "q3": "x z", "other": "?"})
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(150 / 3)}
    assert "1 of 3 questions have no prediction and score 0, such as q2" in caplog.text
    assert "1 predictions have ids that are not in" in caplog.text
    assert evaluation.official_scores(file, {}) == {"exact_match": 0.0, "f1": 0.0}
    file = small.squad_file(question("q1", "The"))  # of no word that counts F1 is 0
    assert evaluation.official_scores(file, {"q1": "an"}) == {"exact_match": 100.0, "f1": 0.0}


# ---------------------------------------------------------------------------- v2.0


def test_v2_with_and_without_answers():
    scores = evaluation.official_scores(FILE, PREDICTIONS | {"q2": "", "q3": "Ruprecht I"})
    assert scores == {
        "exact": 50.0, "f1": pytest.approx((1 + 1 + 2 / 3) * 25), "total": 4, "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx((1 + 2 / 3) * 50), "HasAns_total": 2, "NoAns_exact": 50.0,
        "NoAns_f1": 50.0, "NoAns_total": 2,
    }  # fmt: skip
    assert list(scores)[:4] == ["exact", "f1", "total", "HasAns_exact"]


def test_groups_and_questions_that_are_missing():
    only = small.squad_file(question("q2"), version_2=True)
    assert [*evaluation.official_scores(only, {"q2": ""})][3:] == [
        *("NoAns_exact", "NoAns_f1", "NoAns_total")
    ]
    # An answer of articles alone is none, but its question is among those that have one.
    only = small.squad_file(question("q1", "the"), version_2=True)
    scores = evaluation.official_scores(only, {"q1": ""})
    assert (scores["exact"], scores["HasAns_exact"]) == (100.0, 100.0)
    odds = {"q1": -5.0, "q2": -2.0, "q9": 0.0}
    scores = evaluation.official_scores(FILE, {"q1": "1386", "q2": ""}, na_probs=odds)
    assert (scores["exact"], scores["total"], scores["NoAns_exact"]) == (50.0, 4, 50.0)
    with pytest.raises(InputError, match=r"2 questions of test\.json, the first 'q3'"):
        evaluation.official_scores(FILE, PREDICTIONS, na_probs=odds)
    with pytest.raises(InputError, match=r"test\.json, without a question"):
        evaluation.official_scores(small.squad_file(), {})


# q1: an answer; q2, q3: none, written as annotation tools do; q4: an empty list.
WRITTEN = {
    "q1": [{"text": "1386", "answer_start": 0}],
    "q2": [{"text": "", "answer_start": 0}],
    "q3": [{"text": "yes", "answer_start": -1}, {"text": " ", "answer_start": 0}],
    "q4": [],
}
WRITTEN_QUESTIONS = [
    {"id": qas_id, "question": "?", "answers": answers, "is_impossible": False}
    for qas_id, answers in WRITTEN.items()
]
WRITTEN_FILE = {"data": [{"paragraphs": [{"context": "1386", "qas": WRITTEN_QUESTIONS}]}]}


def test_answers_that_are_none_count_as_without_an_answer():
    file = data.parse_squad(WRITTEN_FILE, "dev.json")
    predicted = {"q1": "1386", "q2": "", "q3": "yes", "q4": ""}
    scores = evaluation.official_scores(file, predicted)
    assert scores == {
        "exact": 75.0, "f1": 75.0, "total": 4, "HasAns_exact": 100.0, "HasAns_f1": 100.0,
        "HasAns_total": 1, "NoAns_exact": pytest.approx(200 / 3),
        "NoAns_f1": pytest.approx(200 / 3), "NoAns_total": 3,
    }  # fmt: skip
    odds = {"q1": -5.0, "q2": -6.0, "q3": 2.0, "q4": 3.0}  # above 1, "yes" is taken as ""
    scores = evaluation.official_scores(file, predicted, na_probs=odds, na_prob_thresh=1.0)
    assert (scores["exact"], scores["NoAns_exact"]) == (100.0, 100.0)
    # 3 without an answer, and q1; q2's answer is empty, and costs nothing.
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (100.0, -5.0)


def test_a_file_of_answers_that_are_none_can_be_scored():
    content = {"data": [{"paragraphs": [{"context": "c", "qas": WRITTEN_QUESTIONS[1:3]}]}]}
    scores = evaluation.official_scores(data.parse_squad(content, "d"), {"q2": "", "q3": "yes"})
    assert (scores["exact"], scores["NoAns_total"]) == (50.0, 2)
    assert "HasAns_total" not in scores


# ---------------------------------------------------------------------------- thresholds

ROWS = {
    "q1": ("1386", "1386", -8.0),
    "q2": ("1196", None, -2.0),
    "q3": ("Ruprecht", "Ruprecht I", 0.5),
    "q4": ("Heidelberg", None, 4.0),
}


def prediction(qas_id: str, text: str, odds: float | None) -> Prediction:
    entries = [NbestEntry("", 0.6, 0.0, 0.0), NbestEntry(text, 0.4, 0.0, 0.0)]
    return Prediction(qas_id, entries if text else entries[:1], odds)


GOLDS = [question(i, *[gold] * (gold is not None)) for i, (_, gold, _) in ROWS.items()]
ODDS_FILE = small.squad_file(*GOLDS, version_2=True)
MODEL = [prediction(i, text, odds) for i, (text, _, odds) in ROWS.items()]


def test_decided_the_drawn_example():
    found = evaluation.decided(MODEL, threshold=0.5)
    assert found == {"q1": "1386", "q2": "1196", "q3": "Ruprecht", "q4": ""}
    found = evaluation.decided(MODEL, threshold=-2.0)
    assert list(found.values()) == ["1386", "1196", "", ""]


def test_scores_under_the_used_threshold_and_the_best():
    found = evaluation.scores(ODDS_FILE, MODEL, threshold=-2.0)
    of_all = {"exact": 50.0, "f1": 50.0, "total": 4}  # q1 and q4 are right
    by_kind = {f"{kind}_{name}": 50.0 for kind in ("HasAns", "NoAns") for name in ("exact", "f1")}
    totals = {"HasAns_total": 2, "NoAns_total": 2}
    # At the best threshold q1 alone stands: q1, q2 and q4 are right.
    best = {"best_exact": 75.0, "best_f1": 75.0}
    thresholds = {"best_exact_thresh": -8.0, "best_f1_thresh": -8.0}
    at_best = {"exact": 75.0, "f1": 75.0, "total": 4, **by_kind, **totals}
    at_best |= {"NoAns_exact": 100.0, "NoAns_f1": 100.0}
    at_best = {f"at_best_f1_{name}": value for name, value in at_best.items()}
    used = {"null_score_diff_threshold": -2.0}
    assert found == of_all | by_kind | totals | used | best | thresholds | at_best
    f1 = 2 * 1 / (1 + 2)
    all_stand = evaluation.scores(ODDS_FILE, MODEL, threshold=9.0)
    assert all_stand["exact"] == 25.0
    assert all_stand["f1"] == pytest.approx((1 + f1) * 25)
    assert all_stand["best_f1"] == 75.0
    assert evaluation.main_scores(found) == {"exact": 50.0, "f1": 50.0} | best


def test_only_questions_of_both_kinds_tell_a_threshold():
    results = {"best_f1": 99.0, "best_f1_thresh": -8.0}
    assert evaluation.threshold_to_keep(ODDS_FILE, MODEL, results) == -7.5
    for half in (ODDS_FILE.examples[::2], ODDS_FILE.examples[1::2]):
        file = dataclasses.replace(ODDS_FILE, examples=half)
        assert evaluation.threshold_to_keep(file, MODEL, results) is None


@pytest.mark.parametrize(
    ("odds", "best", "kept"),
    [
        ([-8.0, -2.0, -1.4, 4.0], -2.0, -1.7),  # the drawn example
        ([-8.0, -2.0, 0.5, 4.0], -2.0, -1.5),
        ([-8.0, -2.0, 0.5, 4.0], 4.0, 4.5),
    ],
)
def test_the_threshold_that_is_kept_is_not_that_of_a_question(odds, best, kept):
    predictions = [prediction(i, "a", value) for i, value in zip(ROWS, odds, strict=True)]
    results = {"best_f1": 99.0, "best_f1_thresh": best}
    found = evaluation.threshold_to_keep(ODDS_FILE, predictions, results)
    assert found == pytest.approx(kept)
    answers = evaluation.decided(predictions, threshold=best)
    assert evaluation.decided(predictions, threshold=found) == answers


@pytest.mark.parametrize(
    ("odds", "kept"), [((-2.0, -1.0, 3.0), -2.5), ((0.0, 1.0, 3.0), -0.5), ((2.0, 5.0, 3.0), 0.5)]
)
def test_where_no_answer_at_all_is_best_the_threshold_says_so(odds, kept):
    golds = (None, "1386", None)  # the answer to the second is wrong
    asked = [question(f"q{i}", *[gold] * (gold is not None)) for i, gold in enumerate(golds)]
    file = small.squad_file(*asked, version_2=True)
    predictions = [prediction(f"q{i}", "1196", value) for i, value in enumerate(odds)]
    found = evaluation.scores(file, predictions)
    assert found["best_f1"] == found["at_best_f1_f1"] == pytest.approx(200 / 3)
    assert found["best_f1_thresh"] == found["best_exact_thresh"] == 0.0  # the official one
    assert evaluation.threshold_to_keep(file, predictions, found) == kept
    answers = evaluation.decided(predictions, threshold=kept)
    assert set(answers.values()) == {""}


# ---------------------------------------------------------------------------- the command


@pytest.fixture
def paths(tmp_path):
    qas = [
        {
            "id": one.qas_id,
            "question": "?",
            "answers": [answer._asdict() for answer in one.answers],
            "is_impossible": one.is_impossible,
        }
        for one in QUESTIONS
    ]
    contents = {
        "dev.json": {"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]},
        "predictions.json": PREDICTIONS,
        "null_odds.json": NULL_ODDS,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    return [str(tmp_path / name) for name in contents]


@pytest.fixture(scope="module")
def run_command():
    with walking.in_process("evaluate-squad") as main:
        yield main


def test_the_command_prints_the_official_keys(capsys, paths, run_command):
    dev, predictions, null_odds = paths
    run_command(dev, predictions)
    scores = json.loads(capsys.readouterr().out)
    assert scores == evaluation.official_scores(FILE, PREDICTIONS)
    run_command(dev, predictions, f"--na_prob_file={null_odds}")
    scores = json.loads(capsys.readouterr().out)
    assert list(scores)[-4:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert (scores["exact"], scores["best_exact"]) == (75.0, 75.0)


def test_the_command_says_which_answers_are_none(capsys, caplog, paths, run_command):
    pathlib.Path(paths[0]).write_text(json.dumps(WRITTEN_FILE))
    run_command(*paths[:2])
    assert json.loads(capsys.readouterr().out)["NoAns_total"] == 3
    assert "dev.json: 2 questions have an empty text, or one at answer_start -1" in caplog.text
    assert "such as 'yes' to question 'q3'" in caplog.text


def test_a_threshold_without_numbers_is_refused(paths, run_command):
    for thresh in ("-0.5", "0"):  # 1.0 is the default
        with pytest.raises(InputError, match=r"--na_prob_thresh .*--na_prob_file"):
            run_command(*paths[:2], f"--na_prob_thresh={thresh}")
    run_command(*paths[:2], "--na_prob_thresh=1.0", f"--na_prob_file={paths[2]}")
