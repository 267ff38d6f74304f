"""Scores a predictions.json as SQuAD's official scripts do, v1.1 or v2.0 by the data.

    bert-tf evaluate-squad dev-v1.1.json predictions.json
    bert-tf evaluate-squad dev-v2.0.json predictions.json --na_prob_file=null_odds.json

    bert-tf evaluate-squad dev-v1.1.json predictions.json --report_file=report.html

Prints JSON with the official keys. Questions without a prediction score 0 and are reported on
standard error. --report_file adds a page to look at the answers of any system.
"""

import math
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command, named as the official scripts'."""
    flags.DEFINE_string(
        "na_prob_file", None, "v2.0: null_odds.json; adds the best scores over thresholds on it."
    )
    shared_flags.define_number(
        "na_prob_thresh",
        1.0,
        "v2.0 with --na_prob_file: above it an answer is taken as none. (1.0, the official "
        "script's, is meant for probabilities; with null odds the predictions are decided already: "
        "give a large number to leave them as they are.)",
        upper_bound=math.inf,
    )
    flags.DEFINE_string("report_file", None, "Write a page to look at the answers.")
    flags.DEFINE_string(
        "nbest_file", None, "With --report_file: nbest_predictions.json, to show further answers."
    )


def check_flags(words: Sequence[str]) -> None:
    """Refuses all but two files."""
    if len(words) != 2:
        raise InputError(
            f"{len(words)} files: {' '.join(words)}",
            "two: the questions with their answers, and the predictions",
            "bert-tf evaluate-squad DEV_JSON PREDICTIONS_JSON",
        )
    shared_flags.require("nbest_file", "report_file")


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

import json
from collections.abc import Mapping

from bert_tf.files import write_text
from bert_tf.squad import data, evaluation, files
from bert_tf.squad.answers import Prediction


def main(argv: Sequence[str]) -> None:
    """Questions, predictions -> scores, report."""
    questions, answers = data.read_squad(argv[1]), files.read_predictions(argv[2])
    if FLAGS.na_prob_file and not questions.version_2:
        raise InputError(
            f"--na_prob_file for {questions.source}, where every question has an answer",
            "questions of SQuAD v2.0's kind",
            "leave out --na_prob_file",
        )
    na_probs = files.read_na_probs(FLAGS.na_prob_file) if FLAGS.na_prob_file else None
    scores = evaluation.official_scores(
        questions, answers, na_probs=na_probs, na_prob_thresh=FLAGS.na_prob_thresh
    )
    if FLAGS.report_file:
        counted = {
            qas_id: "" if (na_probs or {}).get(qas_id, 0.0) > FLAGS.na_prob_thresh else answer
            for qas_id, answer in answers.items()
        }
        write_report(questions, counted, na_probs or {}, scores)
    print(json.dumps(scores, indent=2))


def write_report(
    questions: data.SquadFile,
    answers: Mapping[str, str],
    na_probs: Mapping[str, float],
    scores: Mapping[str, float],
) -> None:
    """The page about these answers."""
    nbest = files.read_nbest(FLAGS.nbest_file) if FLAGS.nbest_file else {}
    predictions = [
        Prediction(one.qas_id, nbest.get(one.qas_id, []), na_probs.get(one.qas_id))
        for one in questions.examples
    ]
    page = files.report_html(questions, predictions, answers, totals=scores)
    write_text(FLAGS.report_file, page)


if __name__ == "__main__":
    cli.run(main)
