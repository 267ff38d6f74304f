"""Answers -> the original's three files, and back.

predictions.json         {"q1": "Ruprecht"}
nbest_predictions.json   {"q1": [{"text": "Ruprecht", "probability": 0.98,
                                  "start_logit": 3.0, "end_logit": 2.0}, ...]}
null_odds.json           {"q1": -3.0}                   with --version_2_with_negative
"""

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import cluster
from bert_tf.errors import InputError
from bert_tf.files import path_errors, read_json, write_text
from bert_tf.squad.answers import NbestEntry, Prediction
from bert_tf.squad.thresholds import decided

PREDICTIONS, NBEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"
ENTRY = ("text", "probability", "start_logit", "end_logit")  # keys of an entry of an n-best list
REMEDY = "give a file that run_squad.py or another system has written in this form"


def prediction_files(
    predictions: Sequence[Prediction],
    *,
    version_2_with_negative: bool,
    null_score_diff_threshold: float = 0.0,
) -> dict[str, dict]:
    """The content of each file by its name, keys in the order of the questions."""
    answers = decided(predictions, null_score_diff_threshold=null_score_diff_threshold)
    files = {
        PREDICTIONS: answers,
        NBEST: {one.qas_id: [_as_json(entry) for entry in one.nbest] for one in predictions},
    }
    if version_2_with_negative:
        files[NULL_ODDS] = {one.qas_id: one.null_odds for one in predictions}
    return files


def _as_json(entry: NbestEntry) -> dict[str, str | float]:
    return {name: getattr(entry, name) for name in ENTRY}


def write_prediction_files(
    output_dir: str,
    predictions: Sequence[Prediction],
    *,
    version_2_with_negative: bool,
    null_score_diff_threshold: float = 0.0,
) -> list[str]:
    """Writes the files, each whole or not at all; returns their paths.

    Raises:
      InputError: the folder cannot be written to.
    """
    files = prediction_files(
        predictions,
        version_2_with_negative=version_2_with_negative,
        null_score_diff_threshold=null_score_diff_threshold,
    )
    texts = {
        tf.io.gfile.join(output_dir, name): json.dumps(content, indent=4) + "\n"
        for name, content in files.items()
    }
    with path_errors(output_dir, "written"):
        if cluster.is_chief():
            tf.io.gfile.makedirs(output_dir)
        for path, text in texts.items():
            write_text(path, text)
    return list(texts)


# ---------------------------------------------------------------------------- back


def read_predictions(path: str) -> dict[str, str]:
    """Answers by id, from a predictions.json.

    Raises:
      InputError: the file is no JSON, or no object of texts.
    """
    return _read_values(path, str, 'answers by id, {"q1": "Ruprecht", "q2": ""}')


def read_na_probs(path: str) -> dict[str, float]:
    """Numbers by id, from a null_odds.json.

    Raises:
      InputError: the file is no JSON, or no object of numbers.
    """
    return _read_values(path, (int, float), 'numbers by id, {"q1": -3.0}')


def _read_values(path: str, kind: Any, expected: str) -> dict:
    values = read_json(path, expected=expected, remedy=REMEDY)
    for key, value in values.items():
        if not isinstance(value, kind):
            raise InputError(
                received=f"{path}: question {key!r}: {value!r:.80}",
                expected=expected,
                remedy=REMEDY,
            )
    return values


def read_nbest(path: str) -> dict[str, list[NbestEntry]]:
    """n-best lists by id, from a nbest_predictions.json; where answers are is not in it.

    Raises:
      InputError: the file is no JSON, or no object of such lists.
    """
    expected = 'n-best lists by id, {"q1": [{"text": "Ruprecht", "probability": 0.9, ...}]}'
    lists = _read_values(path, list, expected)
    try:
        return {
            qas_id: [NbestEntry(*(entry[name] for name in ENTRY)) for entry in entries]
            for qas_id, entries in lists.items()
        }
    except (KeyError, TypeError) as error:
        raise InputError(
            received=f"{path}, with an entry that is not as expected ({error!r})",
            expected=expected,
            remedy=REMEDY,
        ) from None
