"""The results of a run on texts as files: evaluations, predictions, a page about them."""

from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.tasks.results import check_libraries, write_probabilities, write_submission
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.training.log import write_final_evaluation

FEWEST_ALIKE = 20  # answers that are all the same, from which on it is said


def warn_of_one_answer(run: TextRun, data: TextData) -> str:
    """Warns if all predictions of a split are the same: the model has learned nothing of the texts.

    Args:
      run: whose model has predicted.
      data: with the probabilities of `TextRun.predict`.

    Returns:
      The sentence that was logged, "" if none was.
    """
    labels = run.task.labels
    answers = set()
    for shares in data.probabilities:
        rows = shares if labels.is_per_word else np.asarray(shares)[None]  # [W, L] or [1, L]
        answers.update(map(labels.spell, labels.decide(rows)))
    if len(answers) != 1 or len(data.probabilities) < FEWEST_ALIKE:
        return ""
    (answer,) = answers
    examples = f"{len(data.probabilities)} {data.split.name} examples"
    sentence = f"All predictions for the {examples} are the same: {answer or 'no label'}."
    logging.warning("%s", sentence)
    return sentence


def write_evaluation(
    run: TextRun, dev: Sequence[TextData], calibration: Mapping[str, float], *, report: bool
) -> None:
    """eval_results.txt, and the predictions for each dev example beside its label.

    Args:
      run: whose model is evaluated.
      dev: the data; the names of the results of all but the first have an ending.
      calibration: results of `TextRun.calibrate`, with which it begins.
      report: whether report.html shows them.
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
    """test_results.tsv, the same with names, the submission file; scores if there are labels."""
    task, split, folder = run.task, data.split, run.output_dir
    logits = run.predict(data)
    ending = task.ending(split)
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
    except InputError as error:  # predictions alone need none
        logging.warning("No scores of the %s data: %s.", split.name, error.received)
        return
    results = {"global_step": run.step, **run.score(data, logits)}
    run.write_results(results, f"test_eval_results{ending}.txt")
