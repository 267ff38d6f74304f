"""Scores of answers: exact match and F1 as SQuAD's official scripts define them.

    v1.1   exact_match and f1 in percent over all questions
    v2.0   exact, f1 and total over all, over those with an answer (HasAns) and without (NoAns);
           with null odds, the best scores of any threshold on them, and the thresholds

Answers are compared by their words: lower case, without punctuation and articles. Of several gold
answers the nearest counts.
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
LARGEST_STEP = 0.5  # from the best threshold to the one that is kept


class Score(NamedTuple):
    """The score of an answer, each from 0 to 1."""

    exact: float
    f1: float


def normalize_answer(text: str) -> str:
    """The form that is compared: words without articles and punctuation; ideographs are one word.

    >>> normalize_answer("The (Old)  Bridge's")
    'old bridges'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def token_f1(prediction: str, gold: str, *, both_empty: float = 1.0) -> float:
    """Harmonic mean of precision and recall of the words, counted with repetitions.

    prediction "the Steve Smith", gold "Steve Lee Smith": 2 in common, of 2 and of 3   ->   0.8

    0 if one of them has no words, `both_empty` if neither has: 1 in the v2.0 script, 0 in v1.1's.

    >>> token_f1("the Steve Smith", "Steve Lee Smith")
    0.8
    """
    words, gold_words = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if not words or not gold_words:
        return both_empty if words == gold_words else 0.0
    common = (collections.Counter(words) & collections.Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words))


def score_question(
    example: SquadExample, prediction: str | None, *, version_2: bool = False
) -> Score:
    """The score of the answer to one question, by the official script of that version; None: 0.

    In v2.0 "" is right where there is no gold answer, or none with a word that counts.

        gold answers   "Ruprecht I", "Ruprecht"     the nearest counts, for each score by itself
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
    normalized, both_empty = normalize_answer(prediction), float(version_2)
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

    A question without a prediction scores 0 and is reported, as in the v1.1 script. (The v2.0
    script fails there.)

    Args:
      file: questions with their gold answers, of v1.1 or v2.0.
      predictions: answers by id, "" for none.
      na_probs: v2.0 only: by id a number that is higher the less likely there is an answer, such as
        null odds.
      na_prob_thresh: above it an answer is taken as "", in all scores but the best ones.

    Raises:
      InputError: there are no questions, no gold answers, or na_probs do not cover a prediction.
    """
    check_golds(file)
    if missing := [one.qas_id for one in file.examples if one.qas_id not in predictions]:
        counts = (len(missing), len(file.examples), missing[0])
        logging.warning("%d of %d questions have no prediction and score 0, such as %s", *counts)
    if others := len(predictions.keys() - {one.qas_id for one in file.examples}):
        logging.warning("%d predictions have ids that are not in %s", others, file.source)
    if file.version_2:
        return _evaluate_v2(file, predictions, na_probs, na_prob_thresh)
    scores = [score_question(one, predictions.get(one.qas_id)) for one in file.examples]
    exact, f1 = _percentages(scores)
    return {"exact_match": exact, "f1": f1}


def check_golds(file: SquadFile) -> None:
    """Refuses a file without questions, or without gold answers, such as a test set.

    Raises:
      InputError: it is one.
    """
    if not file.examples:
        raise InputError(f"{file.source}, without a question", "at least one", "give another file")
    if not file.has_golds:
        received = f"{file.source}, whose questions have no answers to compare with"
        remedy = "give a file with answers, or leave out the evaluation"
        raise InputError(received, "answers, or is_impossible, in it", remedy)


def _percentages(scores: Iterable[Score]) -> tuple[float, float]:
    """The means of at least one score, in percent: exact, F1."""
    exact, f1 = (100.0 * sum(column) / len(column) for column in zip(*scores, strict=True))
    return exact, f1


# ---------------------------------------------------------------------------- v2.0


def _evaluate_v2(
    file: SquadFile, predictions: Mapping[str, str], na_probs: Mapping | None, na_prob_thresh: float
) -> dict[str, float]:
    scores = score_answers(file.examples, predictions)
    has_answer = {one.qas_id: bool(one.answers) for one in file.examples}
    best = {}
    if na_probs is not None:
        predicted = [qas_id for qas_id in scores if qas_id in predictions]
        if lacking := [qas_id for qas_id in predicted if qas_id not in na_probs]:
            received = (
                f"no no-answer number for {len(lacking)} questions of {file.source}, "
                f"the first {lacking[0]!r}"
            )
            remedy = "give the null_odds.json of the same run as the predictions"
            raise InputError(received, "a number for each prediction", remedy)
        for qas_id in predicted:
            if na_probs[qas_id] > na_prob_thresh:  # taken as ""
                is_right = float(not has_answer[qas_id])
                scores[qas_id] = Score(is_right, is_right)
        best = best_thresholds(file.examples, predictions, na_probs)
    result = {}
    for prefix, kinds in {"": (True, False), "HasAns_": (True,), "NoAns_": (False,)}.items():
        if some := [scores[qas_id] for qas_id in scores if has_answer[qas_id] in kinds]:
            exact, f1 = _percentages(some)
            result |= {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(some)}
    return result | best


def score_answers(
    examples: Sequence[SquadExample], predictions: Mapping[str, str]
) -> dict[str, Score]:
    """The score of each question by id, as in v2.0; 0 where there is no prediction."""
    return {
        one.qas_id: score_question(one, predictions.get(one.qas_id), version_2=True)
        for one in examples
    }


def best_thresholds(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], na_probs: Mapping[str, float]
) -> dict[str, float]:
    """The best scores that a threshold on na_probs can give, and these thresholds.

    An answer is kept if its number is at most the threshold. The best threshold is found by keeping
    one answer more at a time, from the lowest number on:

        question     number   predicted    gold        right   threshold   right in all
                                                                (none)          2  (q2, q4)
        q1           -5.0     "1386"       "1386"       +1       -5.0           3
        q2           -2.0     "1196"       no answer    -1       -2.0           2
        q3           -1.0     "Ruprecht"   "Ruprecht"   +1       -1.0           3
        q4            4.0     "Heidelberg" no answer    -1        4.0           2

        -> {"best_exact": 75.0, "best_exact_thresh": -5.0, ...}     the first of equal ones

    No threshold separates equal numbers, but like the official script this counts their answers one
    by one. The threshold is 0, as there, if no answer at all scores best.

    Args:
      examples: questions with their gold answers.
      predictions: answers by id. For the best threshold of a model give its best answers, not those
        decided by a threshold.
      na_probs: as for `official_scores`.

    Returns:
      best_exact, best_exact_thresh, best_f1, best_f1_thresh; the scores in percent.
    """
    has_answer = {one.qas_id: bool(one.answers) for one in examples}
    scores = score_answers(examples, predictions)
    result = {}
    for metric in Score._fields:
        current = best = float(sum(not answered for answered in has_answer.values()))
        threshold = 0.0
        for qas_id in sorted(na_probs, key=na_probs.__getitem__):
            if qas_id not in scores or qas_id not in predictions:
                continue
            if has_answer[qas_id]:
                current += getattr(scores[qas_id], metric)
            elif predictions[qas_id]:
                current -= 1
            if current > best:
                best, threshold = current, na_probs[qas_id]
        percent = 100.0 * best / len(scores)
        result |= {f"best_{metric}": percent, f"best_{metric}_thresh": threshold}
    return result


# ---------------------------------------------------------------------------- of a model


def decided(predictions: Sequence[Prediction], *, threshold: float = 0.0) -> dict[str, str]:
    """What is answered to each question, by id, in order: the content of predictions.json."""
    return {one.qas_id: decide(one, null_score_diff_threshold=threshold) for one in predictions}


def scores(
    file: SquadFile, predictions: Sequence[Prediction], *, threshold: float = 0.0
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
    result = official_scores(file, decided(predictions, threshold=threshold))
    if any(one.null_odds is None for one in predictions):
        return result
    # The official search starts from each best non-empty answer; a threshold makes some "".
    best = {one.qas_id: best_non_null(one.nbest) for one in predictions}
    answers = {qas_id: entry.text if entry else "" for qas_id, entry in best.items()}
    odds = {one.qas_id: one.null_odds for one in predictions}
    found = best_thresholds(file.examples, answers, odds)
    at_best = decided(predictions, threshold=_best_threshold(file, predictions, found))
    return {
        **result,
        "null_score_diff_threshold": threshold,
        **found,
        **{f"at_best_f1_{name}": value for name, value in official_scores(file, at_best).items()},
    }


def main_scores(results: Mapping[str, float]) -> dict[str, float]:
    """The scores of all questions together: those that belong in a curve."""
    return {name: results[name] for name in MAIN_SCORES if name in results}


def _best_threshold(
    file: SquadFile, predictions: Sequence[Prediction], results: Mapping[str, float]
) -> float:
    """The threshold with the best F1; below all null odds if it is best to answer nothing."""
    has_answer = {one.qas_id: bool(one.answers) for one in file.examples}.values()
    without = 100.0 * sum(not has for has in has_answer) / len(has_answer)
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
