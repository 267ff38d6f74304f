"""Writes the results of a `TextRun` to files: evaluations, predictions, a report."""

from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.tasks.results import check_libraries, write_probabilities, write_submission
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.training.log import write_final_evaluation

FEWEST_ALIKE = 20  # of fewer predictions, all may well be the same


def warn_of_one_answer(run: TextRun, data: TextData) -> str:
    """Warns if all predictions of a split are the same, as by a model that ignores the texts.

    Args:
      run: whose model has predicted.
      data: with the probabilities of `TextRun.predict`.

    Returns:
      The warning, "" if there was none.
    """
    labels = run.task.labels
    predictions = set()
    for of_example in data.probabilities:
        rows = of_example if labels.is_per_word else np.asarray(of_example)[None]  # [W, L], [1, L]
        predictions.update(map(labels.spell, labels.decide(rows)))
    if len(predictions) != 1 or len(data.probabilities) < FEWEST_ALIKE:
        return ""
    (prediction,) = predictions
    examples = f"{len(data.probabilities)} {data.split.name} examples"
    sentence = f"All predictions for the {examples} are the same: {prediction or 'no label'}."
    logging.warning("%s", sentence)
    return sentence


def write_evaluation(
    run: TextRun, dev: Sequence[TextData], calibration: Mapping[str, float], *, report: bool
) -> None:
    """Writes eval_results.txt, and the predictions for each dev example beside its label.

    Args:
      run: whose model is evaluated.
      dev: the data; the results of all splits but the first have a suffix in their names.
      calibration: results of `TextRun.calibrate`, which come first in the file.
      report: whether to write report.html, too.
    """
    results = {"global_step": run.step, **calibration}
    for data in dev:
        ending = run.task.ending(data.split)
        scores = run.evaluate(data)
        doubt = warn_of_one_answer(run, data)
        results |= {f"{name}{ending}": value for name, value in scores.items()}
        run.write_labeled(data, f"{run.output_dir}/{data.split.name}_predictions.tsv")
        if report:
            from bert_tf.tasks.report import write_report

            scores |= calibration if data is dev[0] else {}
            write_report(run, data, scores, doubt=doubt)
    run.write_results(results)
    write_final_evaluation(run.output_dir, results)


def write_predictions(run: TextRun, data: TextData) -> None:
    """Predicts a split and writes the files of it.

    These are test_results.tsv, test_results_labeled.tsv, the file for GLUE's server if the split
    has one, and test_eval_results.txt if the examples have labels.
    """
    task = run.task
    split = data.split
    folder = run.output_dir
    ending = task.ending(split)
    logits = run.predict(data)
    warn_of_one_answer(run, data)
    write_probabilities(f"{folder}/test_results{ending}.tsv", data.probabilities)
    run.write_labeled(data, f"{folder}/test_results_labeled{ending}.tsv")
    if split.submission:
        guids = [example.guid for example in data.examples]
        path = f"{folder}/{split.submission}"
        write_submission(path, task.labels, guids, data.probabilities)
    if not data.has_labels:
        return
    try:
        check_libraries(task.metrics)
    except InputError as error:  # the predictions do not need these libraries
        logging.warning("No scores of the %s data: %s.", split.name, error.received)
        return
    results = {"global_step": run.step, **run.score(data, logits)}
    run.write_results(results, f"test_eval_results{ending}.txt")
