"""What evaluation and prediction give: metrics, and the files of the predictions.

    eval_accuracy, eval_f1, ...  as GLUE and the tasks' papers define them
    test_results.tsv             probabilities, as the original writes them
    test_results_labeled.tsv     the same with ids, predicted labels and the names of the classes
    CoLA.tsv, MNLI-m.tsv, ...    for GLUE's server

scikit-learn, SciPy and seqeval compute the metrics: extras, imported when a metric is computed.
Gold labels and predictions are label ids [N], scores [N] of regression, zeros and ones [N, L] of
multi_label; of token_labels a list of tag sequences. `Labels` make them of label ids and
probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1], of token_labels
[W, L] for each sentence.

N examples, L labels, C choices, W words of a sentence.
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


SKLEARN, SCIPY, SEQEVAL = "sklearn.metrics", "scipy.stats", "seqeval.metrics"


def _accuracy(sklearn: Any, gold, predicted) -> float:
    """Share of the examples that are right, for multi_label in all their labels; of tags each."""
    if isinstance(gold, list):
        gold, predicted = (np.concatenate([np.asarray(s) for s in x]) for x in (gold, predicted))
    return sklearn.accuracy_score(gold, predicted)


def _f1(sklearn: Any, gold, predicted) -> float:
    """F1 of the second label, of MRPC and QQP: the one that says "the same"."""
    return sklearn.f1_score(np.equal(gold, 1), np.equal(predicted, 1), zero_division=0)


def _f1_over_labels(average: str, sklearn: Any, gold, predicted) -> float:
    """F1 over all decisions (micro), or the mean of the F1 of the labels that occur (macro)."""
    labels = None
    if np.ndim(gold) == 2:
        if np.shape(gold)[1] == 1:
            # Else scikit-learn takes the one label's yes and no for two classes.
            return sklearn.f1_score(np.ravel(gold), np.ravel(predicted), zero_division=0)
        if average == "macro":
            labels = np.flatnonzero(np.any(gold, axis=0) | np.any(predicted, axis=0))
            if not len(labels):
                return 0.0
    return sklearn.f1_score(gold, predicted, labels=labels, average=average, zero_division=0)


def _correlation(function: str, library: Any, gold, predicted) -> float:
    """A correlation. Where all values of one side are equal it is undefined.

    Then it is 0 for classes, as scikit-learn has it, and NaN for scores.
    """
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0 if library.__name__ == SKLEARN else np.nan
    found = getattr(library, function)(gold, predicted)
    return getattr(found, "statistic", found)


def _entity_f1(seqeval: Any, gold: Sequence[Sequence[str]], predicted) -> dict[str, float]:
    """Precision, recall and F1 of whole entities, as CoNLL-2003's own script counts them.

    Of tags without prefixes, words of the same class in a row are an entity; where no word is
    outside of entities, each word is one.
    """
    gold, predicted = ([list(map(str, tags)) for tags in side] for side in (gold, predicted))
    names = {*itertools.chain(*gold, *predicted)}
    if not have_prefixes(names):
        prefix = "I" if OUTSIDE in names else "B"
        of = {name: name if name == OUTSIDE else f"{prefix}-{name}" for name in names}
        gold, predicted = ([[of[x] for x in tags] for tags in side] for side in (gold, predicted))
    return {
        f"entity_{name}": getattr(seqeval, f"{name}_score")(gold, predicted, zero_division=0)
        for name in ("precision", "recall", "f1")
    }


class Metric(NamedTuple):
    """A metric.

    Attributes:
      function: of the library, gold labels and predictions; gives a number, or several by name.
      label: of an axis, with the unit.
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
    """Some metrics with the names of eval_results.txt: eval_accuracy, eval_f1, ...

    Args:
      names: keys of METRICS.
      gold, predicted: of the same length, as `Labels.for_metrics` gives them.

    Returns:
      Python floats by name; NaN for a correlation of scores that are all the same: it is undefined.

    Raises:
      InputError: a library is not installed.
    """
    results = {}
    for name in names:
        found = METRICS[name].function(METRICS[name].load_library(), gold, predicted)
        results |= found if isinstance(found, dict) else {name: found}
    return {f"eval_{name}": float(value) for name, value in results.items()}


def check_libraries(names: Sequence[str]) -> None:
    """Raises InputError before any training if a metric's library is not installed."""
    for name in names:
        METRICS[name].load_library()


# ---------------------------------------------------------------------------- predictions


def write_probabilities(path: str, probabilities: Iterable[np.ndarray]) -> None:
    """test_results.tsv: a row of tab-separated probabilities for each example, nothing else.

    Args:
      path: of the file.
      probabilities: of each example, as above; after a sentence stands an empty line.
    """
    rows = []
    for row in probabilities:
        rows += [*map(_numbers, row), []] if np.ndim(row) == 2 else [_numbers(row)]
    write_table(path, rows)


def by_confidence(probabilities: np.ndarray, gold: np.ndarray) -> list[tuple[float, int, float]]:
    """How often predictions are right whose probability is 0 to 0.1, 0.1 to 0.2, ... 0.9 to 1.

    Args:
      probabilities: [N, L].
      gold: label ids [N].

    Returns:
      For each tenth that has any: their mean probability, their number, the share that is right.
    """
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == gold
    tenths = np.minimum((sure * 10).astype(int), 9)
    members = (tenths == tenth for tenth in range(10))
    return [(sure[m].mean(), int(m.sum()), right[m].mean()) for m in members if m.any()]


def calibration_error(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """By how much, on average, a prediction's probability is not the share that is right.

    Over `by_confidence` (Guo et al., 2017, "On Calibration of Modern Neural Networks", ECE).
    """
    found = by_confidence(probabilities, gold)
    return sum(count * abs(mean - right) for mean, count, right in found) / len(gold)


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """The number by which logits [N, L] are to be divided for the least cross entropy.

    Guo et al., section 4.2. 1 if all predictions are right: then the surest would be the best, and
    nothing can be learned of how sure they should be.
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
    """A line of JSON for each example: id, text_a, text_b, label; to read with jsonl.

    Of a sentence in words, text_a is the list of these.
    """
    fields = {"guid": "id", "text_a": "text_a", "text_b": "text_b", "label": "label"}
    of_words = {"guid": "id", "words": "text_a", "label": "label"}
    lines = []
    for example in examples:
        names = of_words if isinstance(example, WordsExample) else fields
        values = {key: getattr(example, name) for name, key in names.items()}
        known = {key: value for key, value in values.items() if value is not None}
        lines.append(json.dumps(known, ensure_ascii=False) + "\n")
    return "".join(lines)


def write_labeled(
    path: str,
    labels: Labels,
    examples: Sequence[AnyExample],
    probabilities: Sequence[np.ndarray],
    *,
    with_gold: bool = False,
) -> None:
    """test_results_labeled.tsv: id, prediction, and the probability of each label under its name.

    Of token_labels a line for each word, and an empty one after each sentence.

    Args:
      path: of the file.
      labels: of the task.
      examples: N of them.
      probabilities: of each example, as above.
      with_gold: put the right labels in a column `label` beside the predictions.
    """
    per_word = labels.is_per_word
    rows = [["id", *["word"] * per_word, "prediction", *["label"] * with_gold, *labels.columns]]
    for example, of_example in zip(examples, probabilities, strict=True):
        words = [[word] for word in example.words] if per_word else [[]]
        gold = example.label if per_word and example.label else [example.label] * len(words)
        of_words = of_example if per_word else np.asarray(of_example)[None]  # [W, L]
        decided = map(labels.spell, labels.decide(of_words))
        for word, label, said, numbers in zip(words, gold, decided, of_words, strict=True):
            gold_cell = [labels.spell_label(label)] if with_gold else []
            rows.append([example.guid, *word, said, *gold_cell, *_numbers(numbers)])
        rows += [[]] * per_word
    write_table(path, rows)


def write_submission(
    path: str, labels: Labels, guids: Sequence[str], probabilities: np.ndarray
) -> None:
    """The file for GLUE's server: a header, then index and prediction of each example.

    Args:
      path: of the file, whose name must be the split's `submission`.
      labels: of the task. Scores are cut to the limits of the task; STS-B's have three decimals.
      guids: ids of the examples; the server's are the numbers from 0.
      probabilities: [N, L], of regression the scores [N, 1].
    """
    rows = [*zip(guids, map(labels.spell, labels.decide(probabilities)), strict=True)]
    if all(guid.isdecimal() for guid in guids):  # a dataset may have them in another order
        rows.sort(key=lambda row: int(row[0]))
    write_table(path, [["index", "prediction"], *rows])


def _numbers(row: np.ndarray) -> list[np.float32]:
    """As float32, which the original has: nine digits at most."""
    return list(np.atleast_1d(row).astype(np.float32))


def write_table(path: str, rows: Iterable[Iterable[Any]]) -> None:
    """Writes rows of cells with tabs between, the whole file or nothing; [] is an empty line."""
    # Ids and labels of a CSV or JSON file may hold what would end a cell or a line here.
    lines = ("\t".join(re.sub(r"[\t\r\n]+", " ", str(cell)) for cell in row) for row in rows)
    write_text(path, "".join(f"{line}\n" for line in lines))
