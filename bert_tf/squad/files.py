"""Answers -> the original's three files and a report, and back; the threshold kept with a model.

predictions.json         {"q1": "Ruprecht"}
nbest_predictions.json   {"q1": [{"text": "Ruprecht", "probability": 0.98,
                                  "start_logit": 3.0, "end_logit": 2.0}, ...]}
null_odds.json           {"q1": -3.0}                   with --version_2_with_negative
report.html              one page that shows the answers and loads nothing from elsewhere:

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

import dataclasses
import html
import importlib.resources
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.declarations import OtherKeys, typed
from bert_tf.files import LONE_SURROGATE, read_json, write_text
from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.data import Answer, SquadFile
from bert_tf.squad.evaluation import score_question

REMEDY = "give a file that run_squad.py or another system has written in this form"
NBEST_SHOWN = 10  # of a question's answers; all of them are in nbest_predictions.json
TEMPLATE = "report.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedEntry(OtherKeys):
    """An entry of an n-best list."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


def write_prediction_files(
    output_dir: str, predictions: Sequence[Prediction], answers: Mapping[str, str]
) -> None:
    """Writes the files, each whole or not at all, keys in the order of the questions.

    Args:
      output_dir: the folder of a run.
      predictions: of all questions; their null odds are written if they have some.
      answers: the decided ones by id.

    Raises:
      InputError: the folder cannot be written to.
    """
    names = [field.name for field in dataclasses.fields(ListedEntry)]
    nbest = {
        one.qas_id: [dict(zip(names, entry, strict=False)) for entry in one.nbest]
        for one in predictions
    }
    contents = {"predictions.json": answers, "nbest_predictions.json": nbest}
    odds = {one.qas_id: one.null_odds for one in predictions}
    if odds and None not in odds.values():
        contents["null_odds.json"] = odds
    for name, content in contents.items():
        write_text(f"{output_dir}/{name}", json.dumps(content, indent=4) + "\n")
    logging.info("Wrote %s to %s", ", ".join(contents), output_dir)


def store_threshold(output_dir: str, threshold: float) -> None:
    """Stores a threshold with the model in a run's folder, if there is one without a threshold.

    That is the best one of a run that keeps it.

    A threshold stored for these weights before is kept: these questions may be a test set.
    """
    if not tf1.has_checkpoints(output_dir):
        logging.info("No model in %s to store null_score_diff_threshold %s", output_dir, threshold)
        return
    path = f"{os.path.dirname(tf1.find_checkpoint(output_dir))}/{METADATA_FILE}"
    metadata = ModelMetadata.from_json_file(path)
    own = metadata.null_score_diff_threshold
    if own is None:
        metadata = dataclasses.replace(metadata, null_score_diff_threshold=threshold)
        write_text(path, metadata.to_json_string())
    logging.info(
        "The best null_score_diff_threshold of these questions is %.4g; that in %s is %.4g.",
        *(threshold, path, threshold if own is None else own),
    )


# ---------------------------------------------------------------------------- back


def read_predictions(path: str) -> dict[str, str]:
    """Answers by id, from a predictions.json.

    Raises:
      InputError: the file is not a JSON object of texts.
    """
    return _read(path, dict[str, str], 'answers by id, {"q1": "Ruprecht", "q2": ""}')


def read_na_probs(path: str) -> dict[str, float]:
    """Numbers by id, from a null_odds.json.

    Raises:
      InputError: the file is not a JSON object of numbers.
    """
    return _read(path, dict[str, float], 'numbers by id, {"q1": -3.0}')


def read_nbest(path: str) -> dict[str, list[NbestEntry]]:
    """n-best lists by id, from a nbest_predictions.json; it lacks the places of the answers.

    Raises:
      InputError: the file is not a JSON object of such lists.
    """
    expected = 'n-best lists by id, {"q1": [{"text": "Ruprecht", "probability": 0.9, ...}]}'
    lists = _read(path, dict[str, tuple[ListedEntry, ...]], expected)
    return {
        qas_id: [NbestEntry(*dataclasses.astuple(entry)) for entry in entries]
        for qas_id, entries in lists.items()
    }


def _read(path: str, kind: Any, expected: str) -> Any:
    return typed(kind, read_json(path, expected=expected, remedy=REMEDY), source=path)


# ---------------------------------------------------------------------------- report.html


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
    name = LONE_SURROGATE.sub("?", file.source.rsplit("/", 1)[-1])
    figures = {"questions": len(file.examples), **totals}
    texts = {
        "title": html.escape(f"Answers to {name}"),
        "totals": "\n".join(
            f"<div><dt>{html.escape(key)}</dt><dd>{round(value, 3):,}</dd></div>"
            for key, value in figures.items()
            if not key.startswith("at_best")
        ),
        "notes": f"At most the {NBEST_SHOWN} best answers to each question are shown.",
        "data": script_json(report_data(file, predictions, answers)),
    }
    template = importlib.resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    # In one go, so that what looks like a slot in a text stays a text.
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: texts[slot[1]], template)


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
