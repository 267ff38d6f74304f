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
character and the one after the last, in code points of the context.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.squad.answers import Prediction
from bert_tf.squad.data import SquadFile
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
      file: the questions; with gold answers, the page has these, and the scores of the answers.
      predictions: the predictions of each question, in order. Without an n-best list the page has
        the answer only.
      answers: by id, as in predictions.json.
      totals: figures by name for the top of the page, such as the scores of all questions; those
        at the best threshold are left out.

    Raises:
      ValueError: the numbers of predictions and questions differ.
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
    numbers: dict[tuple[str, str], int] = {}  # of the contexts, by title and context
    questions = []
    for example, prediction in zip(file.examples, predictions, strict=True):
        answer = answers.get(example.qas_id)
        score = score_question(example, answer, version_2=file.version_2)
        golds = []
        for gold in dict.fromkeys(example.answers) if file.has_golds else ():  # each once
            span = span_of(example.context, gold.text, gold.answer_start)
            golds.append({"text": gold.text, "span": span})
        spans = (e.characters for e in prediction.nbest if e.characters and e.text == answer)
        question = {
            "id": example.qas_id,
            "question": example.question_text,
            "context": numbers.setdefault((example.title, example.context), len(numbers)),
            "answer": answer or "",
            "span": next(spans, None) or span_of(example.context, answer or ""),
            "golds": golds,
            "exact": score.exact if file.has_golds else None,
            "f1": round(score.f1, 4) if file.has_golds else None,
            "nullOdds": prediction.null_odds and round(prediction.null_odds, 3),
            "nbest": [
                (text, round(probability, 4), round(start_logit, 2), round(end_logit, 2))
                for text, probability, start_logit, end_logit, _ in prediction.nbest[:NBEST_SHOWN]
            ],
        }
        questions.append(question)
    contexts = [{"title": title, "text": context} for title, context in numbers]
    return {"hasGold": file.has_golds, "contexts": contexts, "questions": questions}


def span_of(context: str, text: str, start: int | None = None) -> tuple[int, int] | None:
    """The place of a text: `start` if it is there, otherwise where it occurs first, or None.

    context "May, the May of May", text "May":   start 9 -> (9, 12);   start 3 or None -> (0, 3)
    """
    if not text:
        return None
    if start is None or start < 0 or not context.startswith(text, start):
        start = context.find(text)
    return (start, start + len(text)) if start >= 0 else None
