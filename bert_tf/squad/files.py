"""Writes answers to the original's three files, and stores a threshold with a model.

predictions.json         {"q1": "Ruprecht"}
nbest_predictions.json   {"q1": [{"text": "Ruprecht", "probability": 0.98,
                                  "start_logit": 3.0, "end_logit": 2.0}, ...]}
null_odds.json           {"q1": -3.0}                   with --version_2_with_negative
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.files import write_text
from bert_tf.squad.answers import NbestEntry, Prediction

LISTED = NbestEntry._fields[:4]  # all fields but the place in the context


def write_prediction_files(
    output_dir: str, predictions: Sequence[Prediction], answers: Mapping[str, str]
) -> None:
    """Writes the files, each whole or not at all, with keys in the order of the questions.

    Args:
      output_dir: the folder of a run.
      predictions: the predictions of all questions; null_odds.json is written if all have null
        odds.
      answers: by id, as `evaluation.decided` returns them.

    Raises:
      InputError: the folder cannot be written to.
    """
    nbest = {}
    odds = {}
    for prediction in predictions:
        entries = [dict(zip(LISTED, entry, strict=False)) for entry in prediction.nbest]
        nbest[prediction.qas_id] = entries
        odds[prediction.qas_id] = prediction.null_odds
    contents = {"predictions.json": answers, "nbest_predictions.json": nbest}
    if odds and None not in odds.values():
        contents["null_odds.json"] = odds
    for name, content in contents.items():
        write_text(f"{output_dir}/{name}", json.dumps(content, indent=4) + "\n")
    logging.info("Wrote %s to %s", ", ".join(contents), output_dir)


def store_threshold(output_dir: str, threshold: float) -> None:
    """Stores a threshold with the model in a run's folder, with the best one if the run has it.

    A threshold that is stored there already stays, as these questions may be a test set. A folder
    without a model stays as it is.
    """
    if not tf1.has_checkpoints(output_dir):
        logging.info("No model in %s to store null_score_diff_threshold %s", output_dir, threshold)
        return
    path = f"{os.path.dirname(tf1.find_checkpoint(output_dir))}/{METADATA_FILE}"
    metadata = ModelMetadata.from_json_file(path)
    stored = metadata.null_score_diff_threshold
    if stored is None:
        stored = threshold
        metadata = dataclasses.replace(metadata, null_score_diff_threshold=threshold)
        write_text(path, metadata.to_json_string())
    logging.info(
        "The best null_score_diff_threshold, between the null odds of two questions where "
        "best_f1_thresh is those of one, is %.4g; that in %s is %.4g.",
        threshold,
        path,
        stored,
    )
