"""How sure must a model be that there is no answer? The scores under a threshold, and the best one.

    null odds = score of no answer - score of the best answer

    question         q1       q2       q3           q4
    null odds        -8.0     -2.0     0.5          4.0
    best answer      "1386"   "1196"   "Ruprecht"   "Heidelberg"
    threshold -2.0   "1386"   "1196"   ""           ""
    threshold  0.5   "1386"   "1196"   "Ruprecht"   ""

Null odds are differences of logits, not probabilities: a threshold is one too, of any sign, and is
what --null_score_diff_threshold means. The official search over "no-answer probabilities" needs
nothing but their order, so that what it finds on null odds is on their scale.
"""

from collections.abc import Mapping, Sequence

from bert_tf.squad.answers import Prediction, best_non_null, decide
from bert_tf.squad.data import SquadFile
from bert_tf.squad.evaluation import best_thresholds, official_scores

MAIN_SCORES = ("exact_match", "exact", "f1", "best_exact", "best_f1")  # in percent
LARGEST_STEP = 0.5  # from the best threshold to the one that is kept


def decided(
    predictions: Sequence[Prediction], *, null_score_diff_threshold: float = 0.0
) -> dict[str, str]:
    """What is answered to each question, by id, in order: the content of predictions.json."""
    return {
        one.qas_id: decide(one, null_score_diff_threshold=null_score_diff_threshold)
        for one in predictions
    }


def scores(
    file: SquadFile, predictions: Sequence[Prediction], *, null_score_diff_threshold: float = 0.0
) -> dict[str, float]:
    """The official scores of a model's answers, and where answers may be lacking, the best ones.

    exact, f1, HasAns_exact, ...    under this threshold
    null_score_diff_threshold       which it was
    best_exact, best_exact_thresh   the best that any threshold gives, and the threshold
    best_f1, best_f1_thresh         the same for F1
    at_best_f1_exact, at_best_f1_f1, at_best_f1_HasAns_exact, ...     all scores under that one, or
                                                                      without any answer if best

    Without null odds there are the first only.

    Raises:
      InputError: there are no questions.
    """
    threshold = null_score_diff_threshold
    result = official_scores(file, decided(predictions, null_score_diff_threshold=threshold))
    if any(one.null_odds is None for one in predictions):
        return result
    found = search(file, predictions)
    best = _best_threshold(file, predictions, found)
    at_best = decided(predictions, null_score_diff_threshold=best)
    return {
        **result,
        "null_score_diff_threshold": threshold,
        **found,
        **{f"at_best_f1_{name}": value for name, value in official_scores(file, at_best).items()},
    }


def main_scores(results: Mapping[str, float]) -> dict[str, float]:
    """The scores of all questions together: those that belong into a curve."""
    return {name: results[name] for name in MAIN_SCORES if name in results}


def search(file: SquadFile, predictions: Sequence[Prediction]) -> dict[str, float]:
    """The official search of the best thresholds: best_exact, best_exact_thresh, best_f1, ...

    It starts from each question's best non-empty answer; the threshold decides which become "".
    """
    entries = {one.qas_id: best_non_null(one.nbest) for one in predictions}
    answers = {qas_id: entry.text if entry else "" for qas_id, entry in entries.items()}
    odds = {one.qas_id: one.null_odds for one in predictions}
    found = best_thresholds(file.examples, answers, odds)
    return {f"best_{name}": value for name, value in found.items()}


def _best_threshold(
    file: SquadFile, predictions: Sequence[Prediction], results: Mapping[str, float]
) -> float:
    """The threshold with the best F1; below all null odds if it is best to answer nothing."""
    answers = {one.qas_id: one.answers for one in file.examples}
    without = 100.0 * sum(not golds for golds in answers.values()) / len(answers)
    lowest = min((one.null_odds for one in predictions), default=0.0)
    if results["best_f1"] == without and lowest <= 0.0:
        return lowest - 2 * LARGEST_STEP
    return results["best_f1_thresh"]


def threshold_to_keep(
    file: SquadFile, predictions: Sequence[Prediction], results: Mapping[str, float]
) -> float | None:
    """The best threshold for F1, if these questions can tell: some have an answer, others not.

    The official search gives the null odds of one question, which another computer may round to
    the other side. The one to keep is half-way to the next greater ones, but no further than
    LARGEST_STEP, and so decides these questions alike:

        null odds        -8.0   -2.0          -1.4   4.0
        best_f1_thresh          -2.0
        to keep                        -1.7
    """
    kinds = {bool(example.answers) for example in file.examples}
    if len(kinds) < 2 or "best_f1" not in results:
        return None
    best = _best_threshold(file, predictions, results)
    gaps = [one.null_odds - best for one in predictions if one.null_odds > best]
    return best + min(0.5 * min(gaps, default=2 * LARGEST_STEP), LARGEST_STEP)
