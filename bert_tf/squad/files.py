"""Answers -> the original's three files; the threshold kept with a model.

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

LISTED = NbestEntry._fields[:4]  # without the place in the context


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
    nbest = {
        one.qas_id: [dict(zip(LISTED, entry, strict=False)) for entry in one.nbest]
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
        "The best null_score_diff_threshold, between the null odds of two questions where "
        "best_f1_thresh is those of one, is %.4g; that in %s is %.4g.",
        *(threshold, path, threshold if own is None else own),
    )
