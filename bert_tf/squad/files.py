"""Answers -> the original's three files.

predictions.json         {"q1": "Ruprecht"}
nbest_predictions.json   {"q1": [{"text": "Ruprecht", "probability": 0.98,
                                  "start_logit": 3.0, "end_logit": 2.0}, ...]}
null_odds.json           {"q1": -3.0}                   with --version_2_with_negative
"""

import json
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.files import path_errors, write_text
from bert_tf.squad.answers import NbestEntry, Prediction, decide

PREDICTIONS, NBEST, NULL_ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"


def prediction_files(
    predictions: Sequence[Prediction],
    *,
    version_2_with_negative: bool,
    null_score_diff_threshold: float = 0.0,
) -> dict[str, dict]:
    """The content of each file by its name, keys in the order of the questions."""
    threshold = null_score_diff_threshold
    files = {
        PREDICTIONS: {
            one.qas_id: decide(one, null_score_diff_threshold=threshold) for one in predictions
        },
        NBEST: {one.qas_id: [_as_json(entry) for entry in one.nbest] for one in predictions},
    }
    if version_2_with_negative:
        files[NULL_ODDS] = {one.qas_id: one.null_odds for one in predictions}
    return files


def _as_json(entry: NbestEntry) -> dict[str, str | float]:
    return {
        name: getattr(entry, name) for name in ("text", "probability", "start_logit", "end_logit")
    }


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
        tf.io.gfile.makedirs(output_dir)
        for path, text in texts.items():
            write_text(path, text)
    return list(texts)
