"""The decision on no answer: scores at the used and at the best threshold, stored with a model."""

import dataclasses

import pytest
import small_squad as small

from bert_tf.squad import thresholds
from bert_tf.squad.answers import CERTAINLY_NULL, NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadExample

# The drawn example: question -> best answer, gold answer, null odds.
ROWS = {
    "q1": ("1386", "1386", -8.0),
    "q2": ("1196", None, -2.0),
    "q3": ("Ruprecht", "Ruprecht I", 0.5),
    "q4": ("Heidelberg", None, 4.0),
}


def question(qas_id: str, gold: str | None) -> SquadExample:
    answers = () if gold is None else (Answer(gold, 0),)
    return SquadExample(qas_id, "?", "context", answers, gold is None)


def prediction(qas_id: str, text: str, odds: float | None) -> Prediction:
    entries = [NbestEntry("", 0.6, 0.0, 0.0), NbestEntry(text, 0.4, 0.0, 0.0)]
    return Prediction(qas_id, entries if text else entries[:1], odds)


FILE = small.squad_file(*(question(i, gold) for i, (_, gold, _) in ROWS.items()), version_2=True)
PREDICTIONS = [prediction(i, text, odds) for i, (text, _, odds) in ROWS.items()]


def test_decided_the_drawn_example():
    found = thresholds.decided(PREDICTIONS, null_score_diff_threshold=0.5)
    assert found == {"q1": "1386", "q2": "1196", "q3": "Ruprecht", "q4": ""}
    found = thresholds.decided(PREDICTIONS, null_score_diff_threshold=-2.0)
    assert list(found.values()) == ["1386", "1196", "", ""]


def test_scores_under_the_used_threshold_and_the_best():
    found = thresholds.scores(FILE, PREDICTIONS, null_score_diff_threshold=-2.0)
    f1 = 2 * 1 / (1 + 2)
    assert found == {
        "exact": 50.0,
        "f1": 50.0,
        "total": 4,  # q1 and q4 are right
        "HasAns_exact": 50.0,
        "HasAns_f1": 50.0,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        "null_score_diff_threshold": -2.0,
        # q1 alone stands: q1, q2 and q4 are right.
        "best_exact": 75.0,
        "best_exact_thresh": -8.0,
        "best_f1": 75.0,
        "best_f1_thresh": -8.0,
        "at_best_f1_exact": 75.0,
        "at_best_f1_f1": 75.0,
        "at_best_f1_total": 4,
        "at_best_f1_HasAns_exact": 50.0,
        "at_best_f1_HasAns_f1": 50.0,
        "at_best_f1_NoAns_exact": 100.0,
        "at_best_f1_NoAns_f1": 100.0,
        "at_best_f1_HasAns_total": 2,
        "at_best_f1_NoAns_total": 2,
    }
    all_stand = thresholds.scores(FILE, PREDICTIONS, null_score_diff_threshold=9.0)
    assert all_stand["exact"] == 25.0
    assert all_stand["f1"] == pytest.approx((1 + f1) * 25)
    assert all_stand["best_f1"] == 75.0
    assert thresholds.main_scores(found) == {
        "exact": 50.0, "f1": 50.0, "best_exact": 75.0, "best_f1": 75.0
    }  # fmt: skip


def test_the_search_takes_the_best_answers_whatever_the_threshold_in_use():
    # "" is first in every n-best list, and still the answers behind it are tried.
    assert thresholds.search(FILE, PREDICTIONS)["best_f1_thresh"] == -8.0
    none = [prediction(i, "", CERTAINLY_NULL) for i in ROWS]
    assert thresholds.search(FILE, none) == {
        "best_exact": 50.0,
        "best_exact_thresh": 0.0,
        "best_f1": 50.0,
        "best_f1_thresh": 0.0,
    }


def test_only_questions_of_both_kinds_tell_a_threshold():
    results = {"best_f1": 99.0, "best_f1_thresh": -8.0}
    assert thresholds.threshold_to_keep(FILE, PREDICTIONS, results) == -7.5
    for half in (FILE.examples[::2], FILE.examples[1::2]):
        file = dataclasses.replace(FILE, examples=half)
        assert thresholds.threshold_to_keep(file, PREDICTIONS, results) is None


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
    found = thresholds.threshold_to_keep(FILE, predictions, results)
    assert found == pytest.approx(kept)
    answers = thresholds.decided(predictions, null_score_diff_threshold=best)
    assert thresholds.decided(predictions, null_score_diff_threshold=found) == answers


@pytest.mark.parametrize(
    ("odds", "kept"),
    [((-2.0, -1.0, 3.0), -2.5), ((0.0, 1.0, 3.0), -0.5), ((2.0, 5.0, 3.0), 0.5)],
)
def test_where_no_answer_at_all_is_best_the_threshold_says_so(odds, kept):
    golds = (None, "1386", None)  # the answer to the second is wrong
    file = small.squad_file(*(question(f"q{i}", gold) for i, gold in enumerate(golds)))
    file = dataclasses.replace(file, version_2=True)
    predictions = [prediction(f"q{i}", "1196", value) for i, value in enumerate(odds)]
    found = thresholds.scores(file, predictions)
    assert found["best_f1"] == found["at_best_f1_f1"] == pytest.approx(200 / 3)
    assert found["best_f1_thresh"] == found["best_exact_thresh"] == 0.0  # the official one
    assert thresholds.threshold_to_keep(file, predictions, found) == kept
    answers = thresholds.decided(predictions, null_score_diff_threshold=kept)
    assert set(answers.values()) == {""}
