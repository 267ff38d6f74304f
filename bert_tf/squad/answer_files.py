"""Reads files of answers, of run_squad.py or of any system.

predictions.json         {"q1": "Ruprecht"}
null_odds.json           {"q1": -3.0}
"""

from typing import Any

from bert_tf.declarations import typed
from bert_tf.files import read_json

REMEDY = "give a file that run_squad.py or another system has written in this form"


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


def _read(path: str, kind: Any, expected: str) -> Any:
    """The content of a JSON file, checked to be of that kind."""
    return typed(kind, read_json(path, expected=expected, remedy=REMEDY), source=path)
