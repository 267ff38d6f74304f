"""Answers -> report.html: one page that shows them and loads nothing from elsewhere.

    Who founded it?                              EM 0   F1 50.0
    predicted   Ruprecht                         1  Ruprecht     71.2 %
    gold        Ruprecht I                       2  Ruprecht I   20.4 %
    In 1386 [Ruprecht] I founded it.

The template, report.html, draws this data, which is made here:

    {"hasGold": true,
     "contexts": [{"title": "Heidelberg", "text": "In 1386 ..."}],            each context once
     "questions": [{"id": "q1", "question": "Who founded it?", "context": 0,
                    "answer": "Ruprecht", "span": [8, 16],
                    "golds": [{"text": "Ruprecht I", "span": [8, 18]}],
                    "exact": 0, "f1": 0.5, "nullOdds": null,
                    "nbest": [["Ruprecht", 0.712, 3.1, 2.4], ...]}]}

An entry of the n-best list is text, probability, start logit, end logit. A span is the first
character and the one behind the last, in code points of the context.
"""

import html
import importlib.resources
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.files import LONE_SURROGATE, write_text
from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadExample, SquadFile
from bert_tf.squad.evaluation import score_question
from bert_tf.squad.thresholds import decided

NBEST_SHOWN = 10  # of a question's answers; all of them are in nbest_predictions.json
TEMPLATE = "report.html"
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def write_report(
    path: str,
    file: SquadFile,
    predictions: Sequence[Prediction],
    threshold: float,
    scores: Mapping[str, float],
) -> None:
    """Writes report.html: every question with its answers, to look at in a browser.

    Args:
      path: of the page.
      file, predictions: as for `report_html`.
      threshold: of null odds, by which the answers are decided.
      scores: of all questions; those under the best threshold are left out.
    """
    page = report_html(
        file,
        predictions,
        decided(predictions, null_score_diff_threshold=threshold),
        totals={name: n for name, n in scores.items() if not name.startswith("at_best")},
    )
    write_text(path, page)
    logging.info("Wrote %s", path)


def report_html(
    file: SquadFile,
    predictions: Sequence[Prediction],
    answers: Mapping[str, str],
    *,
    totals: Mapping[str, float],
) -> str:
    """The page about all questions.

    Args:
      file: the questions. Their answers are scored and shown if it has gold answers.
      predictions: the answers to each of them, in order. Without n-best list the page shows the
        answer alone.
      answers: the decided ones by id, as in predictions.json.
      totals: figures by name for the top of the page, such as the scores of all questions.

    Raises:
      ValueError: there are not as many predictions as questions.
    """
    name = LONE_SURROGATE.sub("?", file.source.rsplit("/", 1)[-1])
    figures = {
        key: f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
        for key, value in {"questions": len(file.examples), **totals}.items()
    }
    texts = {
        "title": html.escape(f"Answers to {name}"),
        "totals": "\n".join(
            f"<div><dt>{html.escape(key)}</dt><dd>{value}</dd></div>"
            for key, value in figures.items()
        ),
        "notes": f"At most the {NBEST_SHOWN} best answers to each question are shown.",
        "data": script_json(report_data(file, predictions, answers)),
    }
    template = importlib.resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    # In one go, so that what looks like a slot in a text stays a text.
    return _SLOT.sub(lambda slot: texts[slot[1]], template)


def script_json(value: Any) -> str:
    """JSON for a script element in UTF-8: without `<` nothing in it ends the element.

    >>> print(script_json("</script>"))
    "\\u003c/script>"
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return LONE_SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def report_data(
    file: SquadFile, predictions: Sequence[Prediction], answers: Mapping[str, str]
) -> dict[str, Any]:
    """The data drawn at the top of this file; arguments as for `report_html`."""
    places: dict[tuple[str, str], int] = {}  # of title and context
    questions = []
    for example, prediction in zip(file.examples, predictions, strict=True):
        answer = answers.get(example.qas_id, "")
        scores, shown = None, prediction.nbest[:NBEST_SHOWN]
        if file.has_golds:
            given = answers.get(example.qas_id)
            scores = score_question(example, given, version_2=file.version_2)
        questions.append(
            {
                "id": example.qas_id,
                "question": example.question_text,
                "context": places.setdefault((example.title, example.context), len(places)),
                "answer": answer,
                "span": predicted_span(example.context, answer, prediction.nbest),
                "golds": gold_answers(example) if file.has_golds else [],
                "exact": scores.exact if scores else None,
                "f1": round(scores.f1, 4) if scores else None,
                "nullOdds": prediction.null_odds and round(prediction.null_odds, 3),
                "nbest": [
                    (text, round(probability, 4), round(start_logit, 2), round(end_logit, 2))
                    for text, probability, start_logit, end_logit, _ in shown
                ],
            }
        )
    contexts = [{"title": title, "text": context} for title, context in places]
    return {"hasGold": file.has_golds, "contexts": contexts, "questions": questions}


def predicted_span(
    context: str, answer: str, nbest: Sequence[NbestEntry]
) -> tuple[int, int] | None:
    """The characters of the predicted answer; None if they are unknown.

    context "May, the May of May", answer "May"

        n-best entry "May" with the characters (9, 12)    ->   (9, 12)
        no such entry                                     ->   (0, 3)    where it occurs first
        answer "June" or ""                               ->   None
    """
    known = (e.characters for e in nbest if answer and e.text == answer and e.characters)
    return next(known, None) or _find(context, answer)


def gold_answers(example: SquadExample) -> list[dict[str, Any]]:
    """The different gold answers of a question, each with its characters.

    With a wrong offset these are the first place where the answer occurs, or none.
    """
    return [
        {"text": answer.text, "span": _gold_span(example.context, answer)}
        for answer in dict.fromkeys(example.answers)
    ]


def _gold_span(context: str, answer: Answer) -> tuple[int, int] | None:
    start = answer.answer_start
    if answer.text and start is not None and start >= 0 and context.startswith(answer.text, start):
        return start, start + len(answer.text)
    return _find(context, answer.text)


def _find(context: str, text: str) -> tuple[int, int] | None:
    start = context.find(text) if text else -1
    return (start, start + len(text)) if start >= 0 else None
