"""Scores of answers: exact match and F1 as SQuAD's official scripts define them.

    v1.1   exact_match and f1 in percent over all questions
    v2.0   exact, f1 and total over all, over those with an answer (HasAns) and without (NoAns);
           with null odds, the best scores of any threshold on them, and the thresholds

Answers are compared by their words: in lower case, without punctuation and articles. Of several
gold answers the one with the best score counts.
"""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import InputError
from bert_tf.squad.answers import Prediction, best_non_null, decide
from bert_tf.squad.data import SquadExample, SquadFile

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)  # of ASCII only
MAIN_SCORES = ("exact_match", "exact", "f1", "best_exact", "best_f1")  # in percent
LARGEST_STEP = 0.5  # from the best threshold to the one that is stored


class Score(NamedTuple):
    """The score of an answer, each from 0 to 1."""

    exact: float
    f1: float


def normalize_answer(text: str) -> str:
    """The words of a text as they are compared; consecutive ideographs are one word.

    >>> normalize_answer("The (Old)  Bridge's")
    'old bridges'
    """
    text = text.lower().translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def token_f1(prediction: str, gold: str, *, both_empty: float = 1.0) -> float:
    """Harmonic mean of precision and recall of the words, counted with repetitions.

    prediction "the Steve Smith", gold "Steve Lee Smith": 2 in common, of 2 and of 3   ->   0.8

    0 if only one of them has words; `both_empty` if neither has: 1 in the v2.0 script, 0 in the
    v1.1 script.

    >>> token_f1("the Steve Smith", "Steve Lee Smith")
    0.8
    """
    words = normalize_answer(prediction).split()
    gold_words = normalize_answer(gold).split()
    if not words or not gold_words:
        return both_empty if words == gold_words else 0.0
    common = (collections.Counter(words) & collections.Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words))


def score_question(
    example: SquadExample, prediction: str | None, *, version_2: bool = False
) -> Score:
    """The score of the answer to a question by the official script; 0 without a prediction.

    In v2.0 "" is right if no gold answer has a word that counts.

        gold answers   "Ruprecht I", "Ruprecht"     the best counts, for each score by itself
        prediction     "the Ruprecht"               exact 1, F1 1
        prediction     "Ruprecht II"                exact 0, F1 2/3

    >>> from bert_tf.squad.data import Answer
    >>> golds = (Answer("Ruprecht I", 0), Answer("Ruprecht", 0))
    >>> example = SquadExample("q1", "Who?", "Ruprecht I founded it.", golds)
    >>> tuple(score_question(example, "the Ruprecht", version_2=False))
    (1.0, 1.0)
    >>> tuple(score_question(example, "Ruprecht II", version_2=False))
    (0.0, 0.6666666666666666)
    """
    if prediction is None:
        return Score(0.0, 0.0)
    golds = [answer.text for answer in example.answers]
    if version_2:
        golds = [gold for gold in golds if normalize_answer(gold)] or [""]
    normalized = normalize_answer(prediction)
    both_empty = float(version_2)
    return Score(
        exact=float(any(normalized == normalize_answer(gold) for gold in golds)),
        f1=max(token_f1(prediction, gold, both_empty=both_empty) for gold in golds),
    )


# ---------------------------------------------------------------------------- all questions


def official_scores(
    file: SquadFile,
    predictions: Mapping[str, str],
    *,
    na_probs: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
) -> dict[str, float]:
    """Scores of all questions, under the official script's keys in its order.

    A question without a prediction scores 0 and is logged, as in the v1.1 script. (The v2.0 script
    fails there.)

    Args:
      file: questions with their gold answers, of v1.1 or v2.0.
      predictions: answers by id, "" for none.
      na_probs: v2.0 only: numbers by id, such as null odds, that are high if there is no answer.
      na_prob_thresh: an answer whose number is above it counts as "", except in the best scores.

    Raises:
      InputError: there are no questions or no gold answers, or na_probs lack a prediction's id.
    """
    check_golds(file)
    qas_ids = [example.qas_id for example in file.examples]
    missing = [qas_id for qas_id in qas_ids if qas_id not in predictions]
    if missing:
        text = "%d of %d questions have no prediction and score 0, such as %s"
        logging.warning(text, len(missing), len(file.examples), missing[0])
    num_unknown = len(predictions.keys() - set(qas_ids))
    if num_unknown:
        logging.warning("%d predictions have ids that are not in %s", num_unknown, file.source)
    if file.version_2:
        return _evaluate_v2(file, predictions, na_probs, na_prob_thresh)
    scores = [score_question(example, predictions.get(example.qas_id)) for example in file.examples]
    exact, f1 = _percentages(scores)
    return {"exact_match": exact, "f1": f1}


def check_golds(file: SquadFile) -> None:
    """Raises `InputError` if a file has no questions, or, like a test set, no gold answers."""
    if not file.examples:
        raise InputError(f"{file.source}, without a question", "at least one", "give another file")
    if not file.has_golds:
        received = f"{file.source}, whose questions have no answers to compare with"
        remedy = "give a file with answers, or leave out the evaluation"
        raise InputError(received, "answers, or is_impossible, in it", remedy)


def _percentages(scores: Iterable[Score]) -> tuple[float, float]:
    """The means of one or more scores, in percent: exact, F1."""
    exact, f1 = (100.0 * sum(column) / len(column) for column in zip(*scores, strict=True))
    return exact, f1


def _answerable(examples: Iterable[SquadExample]) -> dict[str, bool]:
    """Whether each question has an answer, by id."""
    return {example.qas_id: bool(example.answers) for example in examples}


# ---------------------------------------------------------------------------- v2.0


def _evaluate_v2(
    file: SquadFile, predictions: Mapping[str, str], na_probs: Mapping | None, na_prob_thresh: float
) -> dict[str, float]:
    """The scores of the v2.0 script; arguments as for `official_scores`."""
    scores = score_answers(file.examples, predictions)
    has_answer = _answerable(file.examples)
    best: dict[str, float] = {}
    if na_probs is not None:
        predicted = [qas_id for qas_id in scores if qas_id in predictions]
        missing = [qas_id for qas_id in predicted if qas_id not in na_probs]
        if missing:
            received = (
                f"no no-answer number for {len(missing)} questions of {file.source}, "
                f"the first {missing[0]!r}"
            )
            remedy = "give the null_odds.json of the same run as the predictions"
            raise InputError(received, "a number for each prediction", remedy)
        for qas_id in predicted:
            if na_probs[qas_id] > na_prob_thresh:  # the answer counts as ""
                is_right = float(not has_answer[qas_id])
                scores[qas_id] = Score(is_right, is_right)
        best = best_thresholds(file.examples, predictions, na_probs)
    groups = {
        "": list(scores.values()),
        "HasAns_": [score for qas_id, score in scores.items() if has_answer[qas_id]],
        "NoAns_": [score for qas_id, score in scores.items() if not has_answer[qas_id]],
    }
    result: dict[str, float] = {}
    for prefix, group in groups.items():
        if group:
            exact, f1 = _percentages(group)
            result |= {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(group)}
    return result | best


def score_answers(
    examples: Sequence[SquadExample], predictions: Mapping[str, str]
) -> dict[str, Score]:
    """The score of each question by id, as in v2.0; 0 where there is no prediction."""
    scores = {}
    for example in examples:
        prediction = predictions.get(example.qas_id)
        scores[example.qas_id] = score_question(example, prediction, version_2=True)
    return scores


def best_thresholds(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], na_probs: Mapping[str, float]
) -> dict[str, float]:
    """The best scores that any threshold on na_probs gives, and these thresholds.

    An answer stands if its number is at most the threshold. Otherwise it counts as "". The best
    threshold is found by letting one more answer stand at a time, from the lowest number on:

        question     number   predicted    gold        right   threshold   right in all
                                                                (none)          2  (q2, q4)
        q1           -5.0     "1386"       "1386"       +1       -5.0           3
        q2           -2.0     "1196"       no answer    -1       -2.0           2
        q3           -1.0     "Ruprecht"   "Ruprecht"   +1       -1.0           3
        q4            4.0     "Heidelberg" no answer    -1        4.0           2

        -> {"best_exact": 75.0, "best_exact_thresh": -5.0, ...}     the first of equal ones

    No threshold separates equal numbers, but like the official script this counts their answers one
    by one. As there, the threshold is 0 if it is best that no answer stands.

    Args:
      examples: questions with their gold answers.
      predictions: answers by id; for the best threshold of a model its best answers, which no
        threshold has made "".
      na_probs: as for `official_scores`.

    Returns:
      best_exact, best_exact_thresh, best_f1, best_f1_thresh; the scores in percent.
    """
    has_answer = _answerable(examples)
    num_unanswerable = float(sum(not answerable for answerable in has_answer.values()))
    scores = score_answers(examples, predictions)
    result = {}
    for metric in Score._fields:
        current = num_unanswerable  # the sum of the scores
        best = current
        threshold = 0.0
        for qas_id in sorted(na_probs, key=na_probs.__getitem__):
            if qas_id not in scores or qas_id not in predictions:
                continue
            if has_answer[qas_id]:
                current += getattr(scores[qas_id], metric)
            elif predictions[qas_id]:
                current -= 1
            if current > best:
                best = current
                threshold = na_probs[qas_id]
        result[f"best_{metric}"] = 100.0 * best / len(scores)
        result[f"best_{metric}_thresh"] = threshold
    return result


# ---------------------------------------------------------------------------- of a model


def decided(predictions: Sequence[Prediction], *, threshold: float = 0.0) -> dict[str, str]:
    """The answer to each question under a threshold, by id: the content of predictions.json."""
    return {
        prediction.qas_id: decide(prediction, null_score_diff_threshold=threshold)
        for prediction in predictions
    }


def scores(
    file: SquadFile, predictions: Sequence[Prediction], *, threshold: float = 0.0
) -> dict[str, float]:
    """The official scores of a model's answers; with null odds, also those of the best thresholds.

    exact, f1, HasAns_exact, ...      under `threshold`

    null_score_diff_threshold         `threshold`
    best_exact, best_exact_thresh     the best that any threshold gives, and that threshold
    best_f1, best_f1_thresh           the same for F1
    at_best_f1_exact, at_best_f1_f1,
    at_best_f1_HasAns_exact, ...      all scores under best_f1_thresh, or without any answer if that
                                      has the best F1

    Raises:
      InputError: there are no questions.
    """
    result = official_scores(file, decided(predictions, threshold=threshold))
    if any(prediction.null_odds is None for prediction in predictions):
        return result
    # The official search takes the best answer of each question that is not "".
    answers = {}
    odds = {}
    for prediction in predictions:
        entry = best_non_null(prediction.nbest)
        answers[prediction.qas_id] = entry.text if entry else ""
        odds[prediction.qas_id] = prediction.null_odds
    best = best_thresholds(file.examples, answers, odds)
    best_answers = decided(predictions, threshold=_best_threshold(file, predictions, best))
    at_best = official_scores(file, best_answers)
    return {
        **result,
        "null_score_diff_threshold": threshold,
        **best,
        **{f"at_best_f1_{name}": value for name, value in at_best.items()},
    }


def main_scores(results: Mapping[str, float]) -> dict[str, float]:
    """The scores of all questions together, which are shown as curves."""
    return {name: results[name] for name in MAIN_SCORES if name in results}


def _best_threshold(
    file: SquadFile, predictions: Sequence[Prediction], results: Mapping[str, float]
) -> float:
    """The threshold with the best F1; below all null odds if it is best to answer nothing."""
    has_answer = _answerable(file.examples).values()
    f1_without_answers = 100.0 * sum(not answerable for answerable in has_answer) / len(has_answer)
    lowest = min((prediction.null_odds for prediction in predictions), default=0.0)
    if results["best_f1"] == f1_without_answers and lowest <= 0.0:
        return lowest - 2 * LARGEST_STEP
    return results["best_f1_thresh"]


def threshold_to_keep(
    file: SquadFile, predictions: Sequence[Prediction], results: Mapping[str, float]
) -> float | None:
    """The threshold to store with a model: the best for F1, moved between two null odds.

    The official search returns the null odds of one question, which another computer may round to
    the other side. This threshold is half-way to the next greater null odds, but at most
    LARGEST_STEP away. It decides these questions alike:

        null odds        -8.0   -2.0          -1.4   4.0
        best_f1_thresh          -2.0
        to store                       -1.7

    None unless some questions have an answer and others have none.
    """
    kinds = {bool(example.answers) for example in file.examples}
    if len(kinds) < 2 or "best_f1" not in results:
        return None
    best = _best_threshold(file, predictions, results)
    greater = [p.null_odds for p in predictions if p.null_odds > best]
    if not greater:
        return best + LARGEST_STEP
    half_way = 0.5 * (min(greater) - best)
    return best + min(half_way, LARGEST_STEP)
