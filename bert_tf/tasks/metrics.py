"""Metrics, as GLUE and the tasks' papers have them, computed by scikit-learn, SciPy and seqeval.

The libraries are extras, imported when a metric is computed. Gold labels and predictions are label
ids [N], scores [N] of regression, zeros and ones [N, L] of multi_label; of token_labels a list of
tag sequences. `score_labels` makes them of label ids and probabilities.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.heads.labels import Labels
from bert_tf.runtime import import_extra


def _library(name: str = "sklearn.metrics") -> Any:
    package = name.split(".")[0].replace("sklearn", "scikit-learn")
    return import_extra(name, package=package, extra="tasks", needed_by="an evaluation")


def _accuracy(gold, predicted) -> float:
    """Share of the examples that are right, for multi_label in all their labels; of tags each."""
    if isinstance(gold, list):
        gold, predicted = (np.concatenate([np.asarray(s) for s in x]) for x in (gold, predicted))
    return _library().accuracy_score(gold, predicted)


def _matthews(gold, predicted) -> float:
    """Matthews correlation; 0 where all labels or predictions are the same."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return _library().matthews_corrcoef(gold, predicted)


def _f1(gold, predicted) -> float:
    """F1 of the second label, of MRPC and QQP: the one that says "the same"."""
    return _library().f1_score(np.equal(gold, 1), np.equal(predicted, 1), zero_division=0)


def _f1_over_labels(average: str, gold, predicted) -> float:
    """F1 over all decisions (micro), or the mean of the F1 of the labels that occur (macro)."""
    labels = None
    if np.ndim(gold) == 2:
        if np.shape(gold)[1] == 1:
            # Else scikit-learn takes the one label's yes and no for two classes.
            return _library().f1_score(np.ravel(gold), np.ravel(predicted), zero_division=0)
        if average == "macro":
            labels = np.flatnonzero(np.any(gold, axis=0) | np.any(predicted, axis=0))
            if not len(labels):
                return 0.0
    score = _library().f1_score
    return score(gold, predicted, labels=labels, average=average, zero_division=0)


def _correlation(function: str, gold, predicted) -> float:
    """A correlation of SciPy's; 0 where one side is constant, where it is undefined."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return getattr(_library("scipy.stats"), function)(gold, predicted).statistic


def _entity_f1(gold: Sequence[Sequence[str]], predicted) -> dict[str, float]:
    """Precision, recall and F1 of whole entities, as CoNLL-2003's own script counts them."""
    library = _library("seqeval.metrics")
    gold, predicted = ([list(map(str, tags)) for tags in side] for side in (gold, predicted))
    return {
        f"entity_{name}": getattr(library, f"{name}_score")(gold, predicted, zero_division=0)
        for name in ("precision", "recall", "f1")
    }


class Metric(NamedTuple):
    """Computes a number, or several by name; `label` is that of an axis, with its unit."""

    function: Callable[[Any, Any], float | dict[str, float]]
    label: str
    library: str = "sklearn.metrics"


METRICS = {
    "accuracy": Metric(_accuracy, "accuracy (share of the examples)"),
    "matthews": Metric(_matthews, "Matthews correlation (-1 to 1)"),
    "f1": Metric(_f1, "F1 (0 to 1)"),
    "micro_f1": Metric(functools.partial(_f1_over_labels, "micro"), "micro-averaged F1 (0 to 1)"),
    "macro_f1": Metric(functools.partial(_f1_over_labels, "macro"), "macro-averaged F1 (0 to 1)"),
    "pearson": Metric(
        functools.partial(_correlation, "pearsonr"), "Pearson correlation (-1 to 1)", "scipy.stats"
    ),
    "spearman": Metric(
        functools.partial(_correlation, "spearmanr"),
        "Spearman correlation (-1 to 1)",
        "scipy.stats",
    ),
    "entity_f1": Metric(_entity_f1, "F1 of entities (0 to 1)", "seqeval.metrics"),
}


def compute_metrics(names: Sequence[str], gold, predicted) -> dict[str, float]:
    """Some metrics with the names of eval_results.txt: eval_accuracy, eval_f1, ...

    Args:
      names: keys of METRICS.
      gold, predicted: of the same length, as described at the top of this file.

    Returns:
      Python floats by name; all finite, also for a model that always predicts the same.

    Raises:
      InputError: a library is not installed.
      ValueError: the lengths differ, or there is no example.
    """
    if len(gold) != len(predicted) or not len(gold):
        raise ValueError(f"received {len(gold)} labels, {len(predicted)} predictions")
    results = {}
    for name in names:
        found = METRICS[name].function(gold, predicted)
        results |= found if isinstance(found, dict) else {name: found}
    return {f"eval_{name}": float(value) for name, value in results.items()}


def score_labels(
    names: Sequence[str], labels: Labels, label_ids: Sequence, probabilities: Sequence
) -> dict[str, float]:
    """The metrics of a model, as `compute_metrics`.

    Args:
      names: keys of METRICS.
      labels: of the task.
      label_ids: of each example, as `Labels.ids` gives them.
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1]; of
        token_labels for each sentence [W, L].
    """
    return compute_metrics(names, *labels.head.for_metrics(labels, label_ids, probabilities))


def check_libraries(names: Sequence[str]) -> None:
    """Raises InputError before any training if a metric's library is not installed."""
    for name in names:
        _library(METRICS[name].library)
