"""Scores a predictions.json as SQuAD's official scripts do, v1.1 or v2.0 by the data.

    bert-tf evaluate-squad dev-v1.1.json predictions.json
    bert-tf evaluate-squad dev-v2.0.json predictions.json --na_prob_file=null_odds.json

Prints JSON with the official keys. Questions without a prediction score 0 and are reported on
standard error.
"""

import json

from bert_tf.errors import InputError
from bert_tf.files import own_path
from bert_tf.options import Options, option
from bert_tf.terminal import number_of

LOADS_TENSORFLOW = False
WORDS = "DEV_JSON PREDICTIONS_JSON"
FILES = "the questions with their answers, and the predictions"


class EvaluateSquad(Options):
    """The options of this command, named as the official scripts'."""

    files: tuple[str, ...] = option(FILES, default=(), words=WORDS)
    na_prob_file: str | None = option(
        "v2.0: null_odds.json; adds the best scores over thresholds on it.", default=None, path=True
    )
    na_prob_thresh: float = option(
        "v2.0 with --na_prob_file: above it an answer is taken as none. (1.0, the official "
        "script's, is meant for probabilities; with null odds the predictions are decided already: "
        "give a large number to leave them as they are.)",
        default=1.0,
        infinite=True,
        acts="na_prob_file",
    )

    def check(self) -> None:
        """Refuses all but two files."""
        if len(self.files) != 2:
            received = " ".join([number_of(len(self.files), "files"), *self.files])
            raise InputError(received, f"two: {FILES}", f"bert-tf evaluate-squad {WORDS}")


def main(options: EvaluateSquad) -> None:
    """Questions, predictions -> scores -> standard output."""
    from bert_tf.squad import data, evaluation
    from bert_tf.squad.answer_files import read_na_probs, read_predictions

    dev_file, predictions_file = map(own_path, options.files)
    questions = data.read_squad(dev_file)
    answers = read_predictions(predictions_file)
    na_probs = read_na_probs(options.na_prob_file) if options.na_prob_file else None
    scores = evaluation.official_scores(
        questions, answers, na_probs=na_probs, na_prob_thresh=options.na_prob_thresh
    )
    print(json.dumps(scores, indent=2))
