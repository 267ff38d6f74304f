"""Metrics of an evaluation, and the files of predictions.

    eval_accuracy, eval_f1, ...  as GLUE and the tasks' papers define them
    test_results.tsv             probabilities, as the original writes them
    test_results_labeled.tsv     the same with ids, predicted labels and the names of the classes
    CoLA.tsv, MNLI-m.tsv, ...    for GLUE's server

scikit-learn, SciPy and seqeval compute the metrics. They are extras, imported when a metric is
computed. N examples, L labels, C choices, W words of a sentence:

    kind of labels     gold labels and predictions    probabilities
    classification     label ids [N]                  [N, L]
    multiple_choice    label ids [N]                  [N, C]
    multi_label        zeros and ones [N, L]          [N, L]
    regression         scores [N]                     the scores [N, 1]
    token_labels       a list of tags a sentence      [W, L] for each sentence

`Labels.for_metrics` returns the former for label ids and probabilities.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bert_tf.files import write_text
from bert_tf.heads import Labels
from bert_tf.heads.schemes import OUTSIDE, have_prefixes
from bert_tf.runtime import import_extra
from bert_tf.tasks.examples import AnyExample, WordsExample

# ---------------------------------------------------------------------------- metrics


SKLEARN = "sklearn.metrics"
SCIPY = "scipy.stats"
SEQEVAL = "seqeval.metrics"


def _accuracy(sklearn: Any, gold, predicted) -> float:
    """The share of right examples, for multi_label those with all labels right; of right tags."""
    if isinstance(gold, list):  # of sentences
        gold = np.concatenate([np.asarray(tags) for tags in gold])
        predicted = np.concatenate([np.asarray(tags) for tags in predicted])
    return sklearn.accuracy_score(gold, predicted)


def _f1(sklearn: Any, gold, predicted) -> float:
    """F1 of the second label; of MRPC and QQP it says "the same"."""
    return sklearn.f1_score(np.equal(gold, 1), np.equal(predicted, 1), zero_division=0)


def _f1_over_labels(average: str, sklearn: Any, gold, predicted) -> float:
    """F1 over all decisions (micro), or the mean of the F1 of the labels that occur (macro)."""
    labels = None
    if np.ndim(gold) == 2:
        if np.shape(gold)[1] == 1:
            # scikit-learn would take the yes and no of a single label for two classes.
            return sklearn.f1_score(np.ravel(gold), np.ravel(predicted), zero_division=0)
        if average == "macro":
            labels = np.flatnonzero(np.any(gold, axis=0) | np.any(predicted, axis=0))
            if not len(labels):
                return 0.0
    return sklearn.f1_score(gold, predicted, labels=labels, average=average, zero_division=0)


def _correlation(function: str, library: Any, gold, predicted) -> float:
    """The correlation that a function of the library computes.

    It is undefined if all gold labels or all predictions are equal. Then it is 0 for classes, as in
    scikit-learn, and NaN for scores.
    """
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0 if library.__name__ == SKLEARN else np.nan
    result = getattr(library, function)(gold, predicted)
    return getattr(result, "statistic", result)


def _entity_f1(seqeval: Any, gold: Sequence[Sequence[str]], predicted) -> dict[str, float]:
    """Precision, recall and F1 of whole entities, as CoNLL-2003's own script counts them.

    If tags have no prefixes, consecutive words of the same class are an entity. If no tag is O
    either, each word is an entity.
    """
    gold = [list(map(str, tags)) for tags in gold]
    predicted = [list(map(str, tags)) for tags in predicted]
    names = {*itertools.chain(*gold, *predicted)}
    if not have_prefixes(names):
        prefix = "I" if OUTSIDE in names else "B"
        prefixed = {name: f"{prefix}-{name}" for name in names} | {OUTSIDE: OUTSIDE}
        gold = [list(map(prefixed.__getitem__, tags)) for tags in gold]
        predicted = [list(map(prefixed.__getitem__, tags)) for tags in predicted]
    return {
        f"entity_{name}": getattr(seqeval, f"{name}_score")(gold, predicted, zero_division=0)
        for name in ("precision", "recall", "f1")
    }


class Metric(NamedTuple):
    """A metric.

    Attributes:
      function: takes the library, gold labels and predictions; returns a number, or several by
        name.
      label: the label of an axis, with the unit.
      library: the module that computes it.
    """

    function: Callable[[Any, Any, Any], float | dict[str, float]]
    label: str
    library: str = SKLEARN

    def load_library(self) -> Any:
        """Imports the library; raises `InputError` if it is not installed."""
        package = self.library.split(".")[0].replace("sklearn", "scikit-learn")
        return import_extra(self.library, package=package, extra="tasks", needed_by="an evaluation")


METRICS = {
    "accuracy": Metric(_accuracy, "accuracy (share of the examples)"),
    "matthews": Metric(
        partial(_correlation, "matthews_corrcoef"), "Matthews correlation (-1 to 1)"
    ),
    "f1": Metric(_f1, "F1 (0 to 1)"),
    "micro_f1": Metric(partial(_f1_over_labels, "micro"), "micro-averaged F1 (0 to 1)"),
    "macro_f1": Metric(partial(_f1_over_labels, "macro"), "macro-averaged F1 (0 to 1)"),
    "pearson": Metric(partial(_correlation, "pearsonr"), "Pearson correlation (-1 to 1)", SCIPY),
    "spearman": Metric(partial(_correlation, "spearmanr"), "Spearman correlation (-1 to 1)", SCIPY),
    "entity_f1": Metric(_entity_f1, "F1 of entities (0 to 1)", SEQEVAL),
}


def compute_metrics(names: Sequence[str], gold, predicted) -> dict[str, float]:
    """Metrics by their names in eval_results.txt: eval_accuracy, eval_f1, ...

    Args:
      names: keys of METRICS.
      gold, predicted: as `Labels.for_metrics` returns them.

    Returns:
      Python floats by name; NaN for a correlation of scores that are all equal.

    Raises:
      InputError: a library is not installed.
    """
    results = {}
    for name in names:
        metric = METRICS[name]
        value = metric.function(metric.load_library(), gold, predicted)
        results |= value if isinstance(value, dict) else {name: value}
    return {f"eval_{name}": float(value) for name, value in results.items()}


def check_libraries(names: Sequence[str]) -> None:
    """Raises `InputError` if a metric's library is not installed; call it before training."""
    for name in names:
        METRICS[name].load_library()


# ---------------------------------------------------------------------------- predictions


def write_probabilities(path: str, probabilities: Iterable[np.ndarray]) -> None:
    """Writes test_results.tsv: a row of tab-separated probabilities for each example.

    Args:
      path: the path of the file.
      probabilities: the probabilities of each example. A sentence [W, L] has a row for each word,
        then an empty line.
    """
    rows: list[list] = []
    for of_example in probabilities:
        if np.ndim(of_example) == 2:
            rows += map(_numbers, of_example)
            rows.append([])
        else:
            rows.append(_numbers(of_example))
    write_table(path, rows)


def by_confidence(probabilities: np.ndarray, gold: np.ndarray) -> list[tuple[float, int, float]]:
    """How often predictions are right whose probability is 0 to 0.1, 0.1 to 0.2, ... 0.9 to 1.

    Args:
      probabilities: [N, L].
      gold: label ids [N].

    Returns:
      For each tenth that has predictions: their mean probability, their number, the share of right
      ones.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == gold
    tenths = np.minimum((confidence * 10).astype(int), 9)
    rows = []
    for tenth in range(10):
        members = tenths == tenth
        count = int(members.sum())
        if count:
            rows.append((confidence[members].mean(), count, is_right[members].mean()))
    return rows


def calibration_error(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """The expected calibration error, from 0 to 1, over the tenths of `by_confidence`.

    Guo et al. (2017), "On Calibration of Modern Neural Networks", section 2, ECE.
    """
    tenths = by_confidence(probabilities, gold)
    return sum(count * abs(mean - right) for mean, count, right in tenths) / len(gold)


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """The number by which to divide logits [N, L] for the least cross entropy with `gold` [N].

    Guo et al., section 4.2. It is 1 if all predictions are right: then less would always be better.
    """
    if (logits.argmax(axis=1) == gold).all():
        return 1.0
    optimize = import_extra(
        "scipy.optimize", package="scipy", extra="tasks", needed_by="--calibrate"
    )

    def loss(exponent: float) -> float:
        scaled = logits.astype(np.float64) / np.exp(exponent)
        most = scaled.max(axis=1)
        sums = np.log(np.exp(scaled - most[:, None]).sum(axis=1)) + most
        return float(np.mean(sums - scaled[np.arange(len(gold)), gold]))

    best = optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded").x
    return float(np.exp(best))


def examples_text(examples: Sequence[AnyExample]) -> str:
    """A line of JSON for each example: id, text_a, text_b, label; the task jsonl reads it.

    text_a of a sentence is the list of its words.
    """
    keys_of_texts = {"guid": "id", "text_a": "text_a", "text_b": "text_b", "label": "label"}
    keys_of_words = {"guid": "id", "words": "text_a", "label": "label"}
    lines = []
    for example in examples:
        keys = keys_of_words if isinstance(example, WordsExample) else keys_of_texts
        values = {key: getattr(example, field) for field, key in keys.items()}
        values = {key: value for key, value in values.items() if value is not None}
        lines.append(json.dumps(values, ensure_ascii=False) + "\n")
    return "".join(lines)


def write_labeled(
    path: str,
    labels: Labels,
    examples: Sequence[AnyExample],
    probabilities: Sequence[np.ndarray],
    *,
    with_gold: bool = False,
) -> None:
    """Writes test_results_labeled.tsv: id, prediction, and each label's probability by its name.

    Of token_labels: a line for each word, and an empty one after each sentence.

    Args:
      path: the path of the file.
      labels: the labels of the task.
      examples: N of them.
      probabilities: the probabilities of each example.
      with_gold: whether to add a column `label` with the right labels.
    """
    header = ["id", "prediction", *labels.columns]
    if with_gold:
        header.insert(2, "label")
    if labels.is_per_word:
        header.insert(1, "word")
    rows = [header]
    for example, of_example in zip(examples, probabilities, strict=True):
        if labels.is_per_word:
            rows += _rows_of_words(labels, example, of_example, with_gold=with_gold)
            rows.append([])
        else:
            (decision,) = labels.decide(np.asarray(of_example)[None])
            row = [example.guid, labels.spell(decision), *_numbers(of_example)]
            if with_gold:
                row.insert(2, labels.spell_label(example.label))
            rows.append(row)
    write_table(path, rows)


def _rows_of_words(
    labels: Labels, example: WordsExample, probabilities: np.ndarray, *, with_gold: bool
) -> list[list]:
    """The rows of test_results_labeled.tsv for a sentence, of probabilities [W, L]."""
    predictions = map(labels.spell, labels.decide(probabilities))
    tags = example.label or [None] * len(example.words)
    rows = []
    for word, prediction, tag, of_word in zip(
        example.words, predictions, tags, probabilities, strict=True
    ):
        row = [example.guid, word, prediction, *_numbers(of_word)]
        if with_gold:
            row.insert(3, labels.spell_label(tag))
        rows.append(row)
    return rows


def write_submission(
    path: str, labels: Labels, guids: Sequence[str], probabilities: np.ndarray
) -> None:
    """Writes the file for GLUE's server: a header, then index and prediction of each example.

    Args:
      path: the path of the file, whose name must be the split's `submission`.
      labels: the labels of the task. Scores are clipped to its limits; STS-B's have three decimals.
      guids: ids of the examples; the server's are the numbers from 0.
      probabilities: [N, L], of regression the scores [N, 1].
    """
    predictions = map(labels.spell, labels.decide(probabilities))
    rows = list(zip(guids, predictions, strict=True))
    if all(guid.isdecimal() for guid in guids):  # a dataset may have another order
        rows.sort(key=lambda row: int(row[0]))
    write_table(path, [["index", "prediction"], *rows])


def _numbers(row: np.ndarray) -> list[np.float32]:
    """The cells of probabilities: float32, as in the original, which has nine digits at most."""
    return list(np.atleast_1d(row).astype(np.float32))


def write_table(path: str, rows: Iterable[Iterable[Any]]) -> None:
    """Writes rows of cells separated by tabs, the whole file or nothing; [] is an empty line."""
    lines = []
    for row in rows:
        # Ids and labels of CSV and JSON files may have tabs and line ends in them.
        cells = [re.sub(r"[\t\r\n]+", " ", str(cell)) for cell in row]
        lines.append("\t".join(cells) + "\n")
    write_text(path, "".join(lines))
