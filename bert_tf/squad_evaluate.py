"""Scores a predictions.json as SQuAD's official scripts do, v1.1 or v2.0 by the data.

    python -m bert_tf.squad_evaluate dev-v1.1.json predictions.json
    python -m bert_tf.squad_evaluate dev-v2.0.json predictions.json --na_prob_file=null_odds.json

Prints JSON with the official keys. Questions without a prediction score 0 and are reported on
standard error.
"""

import json
from collections.abc import Sequence

from absl import flags

from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.squad import evaluation, reading

FLAGS = flags.FLAGS


def define_flags(flag_values: flags.FlagValues = FLAGS) -> None:
    """The flags of this script, named as the official ones."""
    flags.DEFINE_string(
        "na_prob_file",
        None,
        "v2.0: null_odds.json; adds the best scores over thresholds on it.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "na_prob_thresh",
        1.0,
        "v2.0 with --na_prob_file: above it an answer is taken as none. (1.0, the official "
        "script's, is meant for probabilities; with null odds the predictions are decided already: "
        "give a large number to leave them as they are.)",
        flag_values=flag_values,
    )


def main(argv: Sequence[str]) -> None:
    """Questions, predictions -> scores."""
    if len(argv) != 3:
        raise InputError(
            received=f"{len(argv) - 1} files: {' '.join(argv[1:])}",
            expected="two: the questions with their answers, and the predictions",
            remedy="python -m bert_tf.squad_evaluate DEV_JSON PREDICTIONS_JSON",
        )
    na_probs = evaluation.read_na_probs(FLAGS.na_prob_file) if FLAGS.na_prob_file else None
    scores = evaluation.evaluate(
        reading.read_squad(argv[1]),
        evaluation.read_predictions(argv[2]),
        na_probs=na_probs,
        na_prob_thresh=FLAGS.na_prob_thresh,
    )
    print(json.dumps(scores, indent=2))


if __name__ == "__main__":
    define_flags()
    shared_flags.run(main)
