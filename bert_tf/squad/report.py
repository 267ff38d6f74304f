"""report.html, one page that shows every answer:

    Who founded it?                              EM 0   F1 50.0
    predicted   Ruprecht                         1  Ruprecht     71.2 %
    gold        Ruprecht I                       2  Ruprecht I   20.4 %
    In 1386 [Ruprecht] I founded it.

Its template, report.html, draws this data, which `report_data` makes:

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

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadFile
from bert_tf.squad.evaluation import score_question
from bert_tf.training.report import page

NBEST_SHOWN = 10  # of a question's answers; all of them are in nbest_predictions.json
MAIN = {
    "exact_match": "Exact match",
    "exact": "Exact match",
    "f1": "F1",
    "best_exact": "Best exact match by a threshold",
    "best_f1": "Best F1 by a threshold",
}


def report_html(
    file: SquadFile, predictions: Sequence[Prediction], answers: Mapping[str, str], totals: Mapping
) -> str:
    """The page about all questions.

    Args:
      file: the questions. Their answers are scored and shown if it has gold answers.
      predictions: the answers to each of them, in order. Without n-best list the page shows the
        answer alone.
      answers: the decided ones by id, as in predictions.json.
      totals: figures by name for the top of the page, such as the scores of all questions;
        those under the best threshold are left out.

    Raises:
      ValueError: there are not as many predictions as questions.
    """
    count = len(file.examples)
    figures = {name: value for name, value in totals.items() if not name.startswith("at_best")}
    main = {MAIN[name]: f"{value:.1f} %" for name, value in figures.items() if name in MAIN}
    return page(
        title=f"Answers to {file.source.rsplit('/', 1)[-1]}",
        main={"Questions": f"{count:,}", **main},
        scores={"questions": count, **figures},
        data=report_data(file, predictions, answers),
        notes=f"At most the {NBEST_SHOWN} best answers to each question are shown.",
    )


def report_data(
    file: SquadFile, predictions: Sequence[Prediction], answers: Mapping[str, str]
) -> dict[str, Any]:
    """The data of the cards, as at the top of this file; arguments as for `report_html`."""
    places: dict[tuple[str, str], int] = {}  # of title and context
    questions = []
    for example, prediction in zip(file.examples, predictions, strict=True):
        answer = answers.get(example.qas_id)
        score = score_question(example, answer, version_2=file.version_2)
        golds = dict.fromkeys(example.answers) if file.has_golds else ()  # each once
        question = {
            "id": example.qas_id,
            "question": example.question_text,
            "context": places.setdefault((example.title, example.context), len(places)),
            "answer": answer or "",
            "span": predicted_span(example.context, answer or "", prediction.nbest),
            "golds": [{"text": g.text, "span": gold_span(example.context, g)} for g in golds],
            "exact": score.exact if file.has_golds else None,
            "f1": round(score.f1, 4) if file.has_golds else None,
            "nullOdds": prediction.null_odds and round(prediction.null_odds, 3),
            "nbest": [
                (text, round(probability, 4), round(start_logit, 2), round(end_logit, 2))
                for text, probability, start_logit, end_logit, _ in prediction.nbest[:NBEST_SHOWN]
            ],
        }
        questions.append(question)
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


def gold_span(context: str, answer: Answer) -> tuple[int, int] | None:
    """The characters of a gold answer; with a wrong offset the first place where it occurs."""
    start = answer.answer_start
    if answer.text and start is not None and start >= 0 and context.startswith(answer.text, start):
        return start, start + len(answer.text)
    return _find(context, answer.text)


def _find(context: str, text: str) -> tuple[int, int] | None:
    start = context.find(text) if text else -1
    return (start, start + len(text)) if start >= 0 else None
