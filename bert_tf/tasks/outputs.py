"""What evaluation, prediction and a sweep write; every file appears whole or not at all.

    test_results.tsv           probabilities, as the original writes them
    test_results_labeled.tsv   the same with ids, predicted labels and the names of the classes
    CoLA.tsv, MNLI-m.tsv, ...  for GLUE's server
    trials.tsv                 of a sweep: the results of every trial
    trials_summary.tsv         of each learning rate: mean, deviation, best
    trials.png                 the same as a strip of points for each learning rate

N examples, L labels, C choices, W words of a sentence.
"""

import io
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.files import whole_file, write_text
from bert_tf.heads.labels import Labels
from bert_tf.tasks.examples import AnyExample
from bert_tf.tasks.metrics import METRICS
from bert_tf.terminal import aligned

SPREAD = 0.3  # of a strip: the distance of its outermost points from its middle; strips are 1 apart

# ---------------------------------------------------------------------------- predictions


def write_probabilities(path: str, probabilities: Iterable[np.ndarray]) -> None:
    """test_results.tsv: a row of tab-separated probabilities for each example, nothing else.

    Args:
      path: of the file.
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1]; or for
        token_labels an array [W, L] for each sentence, with an empty line after each.
    """
    lines = []
    for row in probabilities:
        lines += [*map(_numbers, row), ""] if np.ndim(row) == 2 else [_numbers(row)]
    _write(path, lines)


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
      probabilities: [N, L], of multiple choice [N, C], of regression the scores [N, 1]; of
        token_labels for each sentence [W, L].
      with_gold: put the right labels in a column `label` beside the predictions.
    """
    per_word = labels.head.is_per_word
    names = labels.head.columns(labels)
    lines = [_row(["id", *["word"] * per_word, "prediction", *["label"] * with_gold, *names])]
    for example, row in zip(examples, probabilities, strict=True):
        words = [[word] for word in example.words] if per_word else [[]]
        gold = example.label if per_word and example.label else [example.label] * len(words)
        rows = row if per_word else np.asarray(row)[None]  # [W, L]
        decided = map(labels.spell, labels.head.decide(rows))
        for word, label, said, numbers in zip(words, gold, decided, rows, strict=True):
            gold_cell = [labels.spell_label(label)] if with_gold else []
            lines.append(f"{_row([example.guid, *word, said, *gold_cell])}\t{_numbers(numbers)}")
        lines += [""] * per_word
    _write(path, lines)


def write_submission(
    path: str, labels: Labels, guids: Sequence[str], probabilities: np.ndarray
) -> None:
    """The file for GLUE's server: a header, then index and prediction of each example.

    Args:
      path: of the file, whose name must be the split's `submission`.
      labels: of the task. Scores are cut to the limits of the task and have three decimals.
      guids: ids of the examples; the server's are the numbers from 0.
      probabilities: [N, L], of regression the scores [N, 1].
    """
    rows = [*zip(guids, map(labels.spell, labels.head.decide(probabilities)), strict=True)]
    if all(guid.isdecimal() for guid in guids):  # a dataset may have them in another order
        rows.sort(key=lambda row: int(row[0]))
    _write(path, [_row(["index", "prediction"]), *map(_row, rows)])


def _numbers(row: np.ndarray) -> str:
    """As float32, which the original has: nine digits at most."""
    return "\t".join(str(number) for number in np.atleast_1d(row).astype(np.float32))


def _row(cells: Iterable[Any]) -> str:
    # Ids and labels of a CSV or JSON file may hold what would end a cell or a line here.
    return "\t".join(re.sub(r"[\t\r\n]+", " ", str(cell)) for cell in cells)


def _write(path: str, lines: Sequence[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


# ---------------------------------------------------------------------------- a sweep


def write_sweep(
    results: Mapping[tuple[float, int], Mapping[str, float]],
    *,
    task: str,
    metric: str,
    output_dir: str,
) -> None:
    """Writes trials.tsv, trials_summary.tsv and trials.png.

    Args:
      results: of every trial, by learning rate and seed.
      task: its name.
      metric: the task's first, a key of METRICS; in the results it is eval_<metric>.
      output_dir: the folder.
    """
    names = sorted(set.intersection(*map(set, results.values())))
    rows = [["learning_rate", "seed", *names]]
    scores: dict[float, list[float]] = {}
    for (rate, seed), found in results.items():
        rows.append([f"{rate:g}", seed, *(found[name] for name in names)])
        scores.setdefault(rate, []).append(found[f"eval_{metric}"])
    _write(tf.io.gfile.join(output_dir, "trials.tsv"), [*map(_row, rows)])
    rows = [["learning_rate", "trials", f"mean_{metric}", "deviation", "best"]]
    for rate, values in scores.items():
        numbers = (statistics.fmean(values), _deviation(values), max(values))
        rows.append([f"{rate:g}", len(values), *(f"{number:.4f}" for number in numbers)])
    _write(tf.io.gfile.join(output_dir, "trials_summary.tsv"), [*map(_row, rows)])
    logging.info("eval_%s over the trials:\n%s", metric, "\n".join(aligned(rows)))
    try:
        picture = draw_sweep(scores, task=task, metric=metric)
    except ImportError:
        logging.info("No trials.png: it needs matplotlib, pip install 'bert-tf[plot]'.")
        return
    path = tf.io.gfile.join(output_dir, "trials.png")
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(picture)


def draw_sweep(scores: Mapping[float, Sequence[float]], *, task: str, metric: str) -> bytes:
    """A PNG with a strip of points for each learning rate, the mean marked.

    The same scores give the same bytes.

    Args:
      scores: for each learning rate the metric of its trials, in the order of their seeds.
      task: its name.
      metric: a key of METRICS.

    Raises:
      ImportError: matplotlib is not installed (the extra `plot`).
    """
    from matplotlib.figure import Figure

    width = max(4.8, 1.0 + 1.35 * len(scores))  # inches; a label below each strip needs its room
    figure = Figure(figsize=(width, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for place, values in enumerate(scores.values()):
        _draw_strip(axes, place, values)
    seeds, label = max(map(len, scores.values())), METRICS[metric].label
    below = "mean ± standard deviation" if seeds > 1 else "score"
    axes.set(
        xlabel=f"peak learning rate; {below} below it",
        ylabel=label,
        xlim=(-0.6, len(scores) - 0.4),
    )
    title = f"{task}: {label.partition(' (')[0]} on dev, {seeds} seed{'s' * (seeds > 1)} each"
    axes.set_title(title, fontsize=11, pad=24)  # above the legend, which must hide no point
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.set_xticks(range(len(scores)), [_tick_label(*item) for item in scores.items()])
    axes.margins(y=0.12)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(axis="y", alpha=0.3)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def _draw_strip(axes: Any, place: int, values: Sequence[float]) -> None:
    """Points side by side in the order of the seeds, so that equal ones are visible."""
    spread = SPREAD if len(values) > 1 else 0
    places = np.linspace(place - spread, place + spread, len(values))
    labels = ("one trial", "mean") if place == 0 else (None, None)  # one entry each in the legend
    axes.plot(places, values, "o", color="tab:blue", alpha=0.75, label=labels[0], zorder=3)
    ends, mean = [place - SPREAD - 0.1, place + SPREAD + 0.1], statistics.fmean(values)
    axes.plot(ends, [mean, mean], color="tab:orange", linewidth=2, label=labels[1])


def _tick_label(learning_rate: float, values: Sequence[float]) -> str:
    deviation = f" ± {_deviation(values):.3f}" if len(values) > 1 else ""
    return f"{learning_rate:g}\n{statistics.fmean(values):.3f}{deviation}"


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
