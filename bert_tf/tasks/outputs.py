"""What evaluation and prediction leave behind; every file appears whole or not at all.

    test_results.tsv           probabilities, as the original writes them
    test_results_labeled.tsv   the same with ids, predicted labels and the names of the classes
    CoLA.tsv, MNLI-m.tsv, ...  what GLUE's server takes

N examples, L labels, C choices, W words of a sentence.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.files import write_text
from bert_tf.tasks.examples import WordsExample
from bert_tf.tasks.labels import Label, Labels


def write_probabilities(path: str, probabilities: Iterable[np.ndarray]) -> None:
    """test_results.tsv: a row of tab-separated probabilities for each example, nothing else.

    Args:
      path: of the file.
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1]; or for
        token_labels an array [W, L] for each sentence, with an empty line after each.
    """
    lines = []
    for row in probabilities:
        if np.ndim(row) == 2:
            lines += [*map(_numbers, row), ""]
        else:
            lines.append(_numbers(row))
    _write(path, lines)


def write_labeled(
    path: str,
    labels: Labels,
    guids: Sequence[str],
    probabilities: np.ndarray,
    *,
    gold: Sequence[Label | None] | None = None,
) -> None:
    """test_results_labeled.tsv: id, prediction, and the probability of each label under its name.

    Args:
      path: of the file.
      labels: of the task.
      guids: ids of the examples.
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1].
      gold: the right labels, for a column `label` beside the predictions.
    """
    columns = ["score"] if labels.head == "regression" else list(labels.names)
    gold_column = [] if gold is None else ["label"]
    lines = [_row(["id", "prediction", *gold_column, *columns])]
    decided = labels.decide(probabilities)
    for i, (guid, row) in enumerate(zip(guids, probabilities, strict=True)):
        gold_cell = [] if gold is None else [labels.spell_label(gold[i])]
        lines.append(f"{_row([guid, labels.spell(decided[i]), *gold_cell])}\t{_numbers(row)}")
    _write(path, lines)


def write_labeled_words(
    path: str,
    labels: Labels,
    examples: Sequence[WordsExample],
    probabilities: Sequence[np.ndarray],
    *,
    with_gold: bool = False,
) -> None:
    """The same for token_labels: a line for each word, an empty one after each sentence.

    Args:
      path: of the file.
      labels: of the task.
      examples: the sentences.
      probabilities: for each sentence [W, L].
      with_gold: put the right tags in a column `label` beside the predictions.
    """
    gold_column = ["label"] if with_gold else []
    lines = [_row(["id", "word", "prediction", *gold_column, *labels.names])]
    for example, rows in zip(examples, probabilities, strict=True):
        decided = labels.decide(rows)
        for i, (word, row) in enumerate(zip(example.words, rows, strict=True)):
            gold_cell = [example.label[i] if example.label else ""] if with_gold else []
            cells = [example.guid, word, labels.spell(decided[i]), *gold_cell]
            lines.append(f"{_row(cells)}\t{_numbers(row)}")
        lines.append("")
    _write(path, lines)


def write_submission(
    path: str, labels: Labels, guids: Sequence[str], probabilities: np.ndarray
) -> None:
    """The file that GLUE's server takes: a header, then index and prediction of each example.

    Args:
      path: of the file, whose name must be the split's `submission`.
      labels: of the task. Scores are cut to the limits of the task and have three decimals.
      guids: ids of the examples; the server's are the numbers from 0.
      probabilities: [N, L], of regression the scores [N, 1].
    """
    rows = [*zip(guids, map(labels.spell, labels.decide(probabilities)), strict=True)]
    if all(guid.isdecimal() for guid in guids):  # a dataset may have them in another order
        rows.sort(key=lambda row: int(row[0]))
    lines = [_row(["index", "prediction"]), *map(_row, rows)]
    _write(path, lines)


def _numbers(row: np.ndarray) -> str:
    """As float32, which the original has: nine digits at most."""
    return "\t".join(str(number) for number in np.atleast_1d(row).astype(np.float32))


def _row(cells: Iterable[str]) -> str:
    # Ids and labels of a CSV or JSON file may hold what would end a cell or a line here.
    return "\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in cells)


def _write(path: str, lines: Sequence[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))
