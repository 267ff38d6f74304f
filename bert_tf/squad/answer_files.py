"""The files of answers of run_squad.py or of any system -> answers, to be scored and shown.

predictions.json         {"q1": "Ruprecht"}
nbest_predictions.json   {"q1": [{"text": "Ruprecht", "probability": 0.98,
                                  "start_logit": 3.0, "end_logit": 2.0}, ...]}
null_odds.json           {"q1": -3.0}
"""

import dataclasses
from typing import Any

from bert_tf.declarations import OtherKeys, typed
from bert_tf.files import read_json
from bert_tf.squad.answers import NbestEntry

REMEDY = "give a file that run_squad.py or another system has written in this form"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedEntry(OtherKeys):
    """An entry of an n-best list."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


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
