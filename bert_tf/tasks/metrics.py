"""Metrics, as GLUE and the tasks' papers have them, computed by scikit-learn, SciPy and seqeval.

The libraries are extras and imported when a metric is asked for. Gold labels and predictions are
label ids [N], scores [N] of regression, zeros and ones [N, L] of multi_label; of token_labels a
list of tag sequences. `evaluate` makes them of labels and probabilities.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.runtime import import_extra
from bert_tf.tasks.labels import Label, Labels


def _library(name: str) -> Any:
    package = name.split(".")[0].replace("sklearn", "scikit-learn")
    return import_extra(name, package=package, extra="tasks", needed_by="an evaluation")


def _accuracy(gold, predicted) -> dict[str, float]:
    """Share of the examples that are right, for multi_label in all their labels; of tags each."""
    if isinstance(gold, list):
        gold, predicted = (np.concatenate([np.asarray(s) for s in x]) for x in (gold, predicted))
    return {"accuracy": _library("sklearn.metrics").accuracy_score(gold, predicted)}


def _matthews(gold, predicted) -> dict[str, float]:
    """Matthews correlation, of CoLA and AX; 0 where all labels or predictions are the same."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return {"matthews": 0.0}
    return {"matthews": _library("sklearn.metrics").matthews_corrcoef(gold, predicted)}


def _f1(gold, predicted) -> dict[str, float]:
    """F1 of the second label, of MRPC and QQP: the one that says "the same"."""
    metrics = _library("sklearn.metrics")
    return {"f1": metrics.f1_score(np.equal(gold, 1), np.equal(predicted, 1), zero_division=0)}


def _f1_over_labels(gold, predicted, *, average: str, labels=None) -> float:
    metrics = _library("sklearn.metrics")
    if np.ndim(gold) == 2 and np.shape(gold)[1] == 1:
        # Else scikit-learn takes the one label's yes and no for two classes.
        return metrics.f1_score(np.ravel(gold), np.ravel(predicted), zero_division=0)
    return metrics.f1_score(gold, predicted, labels=labels, average=average, zero_division=0)


def _micro_f1(gold, predicted) -> dict[str, float]:
    """F1 over all decisions together."""
    return {"micro_f1": _f1_over_labels(gold, predicted, average="micro")}


def _macro_f1(gold, predicted) -> dict[str, float]:
    """Mean of the labels' F1, over those that occur as gold label or prediction."""
    labels = None
    if np.ndim(gold) == 2:
        labels = np.flatnonzero(np.any(gold, axis=0) | np.any(predicted, axis=0))
        if not len(labels):
            return {"macro_f1": 0.0}
    return {"macro_f1": _f1_over_labels(gold, predicted, average="macro", labels=labels)}


def _correlation(function: str, gold, predicted) -> float:
    """A correlation of SciPy's; 0 where one side is constant, where there is none."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return getattr(_library("scipy.stats"), function)(gold, predicted).statistic


def _pearson(gold, predicted) -> dict[str, float]:
    """Pearson's correlation, of STS-B."""
    return {"pearson": _correlation("pearsonr", gold, predicted)}


def _spearman(gold, predicted) -> dict[str, float]:
    """Spearman's rank correlation, of STS-B."""
    return {"spearman": _correlation("spearmanr", gold, predicted)}


def _entity_f1(gold: Sequence[Sequence[str]], predicted) -> dict[str, float]:
    """Precision, recall and F1 of whole entities, as CoNLL-2003's own script counts them."""
    metrics = _library("seqeval.metrics")
    gold, predicted = ([list(map(str, tags)) for tags in side] for side in (gold, predicted))
    return {
        "entity_precision": metrics.precision_score(gold, predicted, zero_division=0),
        "entity_recall": metrics.recall_score(gold, predicted, zero_division=0),
        "entity_f1": metrics.f1_score(gold, predicted, zero_division=0),
    }


METRICS: Mapping[str, Callable[[Any, Any], dict[str, float]]] = {
    "accuracy": _accuracy,
    "matthews": _matthews,
    "f1": _f1,
    "micro_f1": _micro_f1,
    "macro_f1": _macro_f1,
    "pearson": _pearson,
    "spearman": _spearman,
    "entity_f1": _entity_f1,
}


def compute_metrics(names: Sequence[str], gold, predicted) -> dict[str, float]:
    """Some metrics under the names of eval_results.txt: eval_accuracy, eval_f1, ...

    Args:
      names: keys of METRICS.
      gold, predicted: of the same length, as said at the top of this file.

    Returns:
      Python floats by name; every one is a number, also for a model that always says the same.

    Raises:
      InputError: a library is not installed.
      ValueError: the lengths differ, or there is no example.
    """
    if len(gold) != len(predicted) or not len(gold):
        raise ValueError(f"received {len(gold)} labels, {len(predicted)} predictions")
    results = {}
    for name in names:
        results |= METRICS[name](gold, predicted)
    return {f"eval_{name}": float(value) for name, value in results.items()}


def evaluate(
    names: Sequence[str], labels: Labels, gold: Sequence[Label], probabilities: Sequence
) -> dict[str, float]:
    """The metrics of a model.

    Args:
      names: keys of METRICS.
      labels: of the task.
      gold: the examples' labels, as they were read.
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1]; of
        token_labels for each sentence [W, L].

    Returns:
      As `compute_metrics`.
    """
    if labels.head == "token_labels":
        tags = [[labels.spell(i) for i in labels.decide(rows)] for rows in probabilities]
        return compute_metrics(names, list(gold), tags)
    numbers = np.asarray([labels.ids(label) for label in gold])
    decided = labels.decide(np.asarray(probabilities))
    if labels.head != "multi_label":
        numbers = numbers.reshape(len(gold))
    if labels.head == "classification":  # "1" is the second label for F1, also of a model with 1, 0
        ranks = np.argsort(np.argsort(labels.names))
        numbers, decided = ranks[numbers], ranks[decided]
    return compute_metrics(names, numbers, decided)


def check_libraries(names: Sequence[str]) -> None:
    """Raises InputError before any training if a metric's library is not installed."""
    libraries = {
        "pearson": "scipy.stats",
        "spearman": "scipy.stats",
        "entity_f1": "seqeval.metrics",
    }
    for name in names:
        _library(libraries.get(name, "sklearn.metrics"))
