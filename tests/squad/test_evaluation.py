"""Scores against the official scripts' published results and cases worked out by hand."""

import json

import pytest
import small_squad as small
import walking

from bert_tf.errors import InputError
from bert_tf.squad import data, evaluation, files
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
    scores = evaluation.official_scores(file, files.read_predictions(str(path)))
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


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("the Steve Smith", "Steve Lee Smith", 0.8),  # 2 / 2 and 2 / 3
        ("May May", "May", 2 / 3),  # 1 / 2 and 1 / 1: repetitions count
        ("May", "June", 0.0),
        ("", "May", 0.0),
        ("the", "a", 1.0),
        ("", "", 1.0),
    ],
)
def test_token_f1(prediction, gold, expected):
    assert evaluation.token_f1(prediction, gold) == pytest.approx(expected)
    assert evaluation.token_f1(gold, prediction) == pytest.approx(expected)


def test_the_nearest_gold_answer_counts_for_each_score_by_itself():
    golds = ["Steve Smith", "the man Steve Lee Smith", "Smith"]
    assert evaluation.score_answer("a smith", golds) == (1.0, 1.0)
    score = evaluation.score_answer("Steve Lee", golds)
    assert score == (0.0, pytest.approx(2 * 2 / (2 + 4)))


# ---------------------------------------------------------------------------- v1.1


def test_v1_counts_what_is_missing_as_wrong(caplog):
    file = small.squad_file(question("q1", "1386"), question("q2", "1196"), question("q3", "x y"))
    scores = evaluation.official_scores(file, {"q1": "1386.", "q3": "x z", "other": "?"})
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(150 / 3)}
    assert "1 of 3 questions have no prediction and score 0: q2" in caplog.text
    assert "1 predictions have ids that are not in" in caplog.text
    assert evaluation.official_scores(file, {}) == {"exact_match": 0.0, "f1": 0.0}


def test_v1_gives_no_f1_where_there_are_no_words():
    file = small.squad_file(question("q1", "The"))
    assert evaluation.official_scores(file, {"q1": "an"}) == {"exact_match": 100.0, "f1": 0.0}


# ---------------------------------------------------------------------------- v2.0


def test_v2_with_and_without_answers():
    scores = evaluation.official_scores(FILE, PREDICTIONS | {"q2": "", "q3": "Ruprecht I"})
    assert scores == {
        "exact": 50.0,
        "f1": pytest.approx((1 + 1 + 2 / 3) * 25),
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": pytest.approx((1 + 2 / 3) * 50),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert list(scores)[:4] == ["exact", "f1", "total", "HasAns_exact"]


def test_v2_leaves_out_a_group_that_is_empty():
    only = small.squad_file(question("q2"), version_2=True)
    assert list(evaluation.official_scores(only, {"q2": ""})) == [
        *("exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total")
    ]


def test_v2_a_gold_answer_of_articles_alone_is_no_answer():
    # As an answer it still puts the question among those that have one.
    only = small.squad_file(question("q1", "the"), version_2=True)
    scores = evaluation.official_scores(only, {"q1": ""})
    assert (scores["exact"], scores["HasAns_exact"]) == (100.0, 100.0)


def test_v2_the_threshold_decides_but_not_for_the_best_scores():
    def exact(threshold):
        return evaluation.official_scores(
            FILE, PREDICTIONS, na_probs=NULL_ODDS, na_prob_thresh=threshold
        )

    assert exact(9.0)["exact"] == 50.0  # as predicted
    assert exact(1.0)["exact"] == 75.0  # q4 is taken as "", which is right
    assert exact(-1.5)["exact"] == 50.0  # q3 too, which is wrong
    assert exact(-5.0)["exact"] == 75.0  # and q2, which is right; q1 is not above it
    assert exact(-5.1)["exact"] == 50.0
    assert {exact(t)["best_exact"] for t in (9.0, 1.0, -9.0)} == {75.0}


def test_best_thresholds_the_drawn_example():
    assert evaluation.best_thresholds(QUESTIONS, PREDICTIONS, NULL_ODDS) == {
        "exact": 75.0,
        "exact_thresh": -5.0,
        "f1": 75.0,
        "f1_thresh": -5.0,
    }


def test_best_thresholds_of_exact_match_and_f1_differ():
    predictions = PREDICTIONS | {"q1": "in 1386"}  # half right
    best = evaluation.best_thresholds(QUESTIONS, predictions, NULL_ODDS | {"q2": 3.0})
    assert best["exact"] == 75.0
    assert best["exact_thresh"] == -1.0
    assert best["f1"] == pytest.approx((2 + 2 / 3 + 1) * 25)
    assert best["f1_thresh"] == -1.0
    best = evaluation.best_thresholds(QUESTIONS, predictions, NULL_ODDS)
    assert (best["exact"], best["exact_thresh"]) == (50.0, 0.0)  # nothing is better than none
    assert (best["f1"], best["f1_thresh"]) == (pytest.approx((2 + 2 / 3) * 25), -5.0)


def test_a_best_threshold_is_reached_by_deciding_with_it():
    threshold = evaluation.best_thresholds(QUESTIONS, PREDICTIONS, NULL_ODDS)["exact_thresh"]
    decided = {
        qas_id: "" if NULL_ODDS[qas_id] > threshold else text
        for qas_id, text in PREDICTIONS.items()
    }
    assert evaluation.official_scores(FILE, decided)["exact"] == 75.0


def test_v2_counts_what_is_missing_as_wrong():
    partial = {"q1": "1386", "q2": ""}
    scores = evaluation.official_scores(FILE, partial, na_probs={"q1": -5.0, "q2": -2.0, "q9": 0.0})
    assert (scores["exact"], scores["total"]) == (50.0, 4)
    assert scores["NoAns_exact"] == 50.0


def test_numbers_must_cover_the_predictions():
    with pytest.raises(InputError, match="'q4' and 0 more"):
        evaluation.official_scores(FILE, PREDICTIONS, na_probs={"q1": 0, "q2": 0, "q3": 0})


def test_no_questions():
    with pytest.raises(InputError, match=r"test\.json, without a question"):
        evaluation.official_scores(small.squad_file(), {})


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


def test_the_command_refuses_what_it_cannot_use(paths, run_command):
    dev, predictions, null_odds = paths
    with pytest.raises(InputError, match="1 files"):
        run_command(dev)
    with pytest.raises(InputError, match=r"null_odds\.json with q1 -5\.0\nExpected: a text"):
        run_command(dev, null_odds)
    with pytest.raises(InputError, match=r"predictions\.json with q1 '1386'\nExpected: a finite"):
        run_command(dev, predictions, f"--na_prob_file={predictions}")


def test_the_command_writes_a_page(tmp_path, capsys, paths, run_command):
    dev, predictions, null_odds = paths
    nbest = {"q1": [{"text": "in 1386", "probability": 0.25, "start_logit": 1.5, "end_logit": 2}]}
    nbest_file, report_file = tmp_path / "nbest_predictions.json", tmp_path / "report.html"
    nbest_file.write_text(json.dumps(nbest))
    run_command(dev, predictions, f"--report_file={report_file}")
    page = report_file.read_text(encoding="utf-8")
    assert "<dt>HasAns_exact</dt><dd>100.000</dd>" in page
    assert '"answer":"Heidelberg","span":null' in page
    assert '"nullOdds":null,"nbest":[]' in page
    flags = f"--na_prob_file={null_odds}", f"--nbest_file={nbest_file}"
    run_command(dev, predictions, f"--report_file={report_file}", *flags)
    page = report_file.read_text(encoding="utf-8")
    assert '"nullOdds":-5.0,"nbest":[["in 1386",0.25,1.5,2]]' in page
    assert '"nullOdds":4.0,"nbest":[]' in page
    assert len(capsys.readouterr().out.split("exact")) > 2  # the scores are printed all the same
