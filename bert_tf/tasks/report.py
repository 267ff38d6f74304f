"""report.html of a task: scores, mistakes with their texts, lengths; all from one evaluation.

    kind      a label is        above the examples
    classes   one of several    scores of each label, the confusion matrix
    words     a tag of a word   the same of words; the tagged words are marked in the sentences
    several   any of several    scores of each label
    numbers   a number          a point for each example: label and prediction

Pictures need matplotlib, the extra `plot`; without it the matrix is a table. The data of the cards:

    {"kind": "classes", "labels": ["politics", "sport"],
     "examples": [{"id": "0", "texts": ["A late goal."], "gold": "sport", "answer": "politics",
                   "shares": [0.9, 0.1]}]}

Of words, texts, gold and answer are lists of the words and their tags.
"""

import html
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from sklearn import metrics

from bert_tf.files import write_text
from bert_tf.tasks.results import METRICS
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.terminal import aligned
from bert_tf.training.report import page, picture

MOST_CHARACTERS = 4_000  # of a text that are shown
MOST_DRAWN = 30  # labels in a matrix with numbers
LAST_DRAWN = "\u058f"  # matplotlib's own font has few characters behind it


def write_report(run: TextRun, data: TextData, scores: Mapping[str, float]) -> None:
    """Writes the page about labelled data.

    Args:
      run: with the model.
      data: as `run.evaluate` leaves them, with probabilities.
      scores: which that returned.
    """
    head, labels, shares = run.head, run.task.labels, data.probabilities
    columns, golds = [*head.columns(labels)], [one.label for one in data.examples]
    if head.is_per_word:
        kind, (golds, answers) = "words", head.for_metrics(labels, golds, shares)
        sections = _matrix(*(list(itertools.chain(*tags)) for tags in (golds, answers)))
        texts = [one.words for one in data.examples]
    else:
        decided = head.decide(np.asarray(shares))
        own = [labels.ids(gold) for gold in golds]
        ids = np.reshape(labels.unscaled(own), decided.shape)
        golds, answers = ([labels.spell(one) for one in side] for side in (ids, decided))
        texts = [(one.pairs[0][0], *(b for _, b in one.pairs if b)) for one in data.examples]
        if decided.dtype.kind == "f":
            kind, sections = "numbers", _points(ids.ravel(), decided.ravel().clip(*labels.limits))
        elif decided.ndim > 1 and len(columns) > 1:
            kind, sections = "several", _each(ids, decided, target_names=columns)
        else:
            kind, sections = "classes", _matrix(golds, answers)
    parts = {
        "id": [one.guid for one in data.examples],
        "gold": golds,
        "answer": answers,
        "shares": [np.round(share, 4).tolist() for share in shares],
        "texts": [[part[:MOST_CHARACTERS] for part in of_one] for of_one in texts],
    }
    cards = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    named = {name: METRICS[name].label.partition(" (")[0] for name in run.task.metrics}
    main = {label: f"{scores[f'eval_{name}']:.3f}" for name, label in named.items()}
    path = f"{run.output_dir}/report{run.task.ending(data.split)}.html"
    text = page(
        title=f"Task {run.task.name}: predictions of the {data.split.name} data",
        main={"examples": f"{len(cards):,}", **main},
        scores=scores,
        sections=sections + _lengths(data, run.batching.max_seq_length),
        data={"kind": kind, "labels": columns, "examples": cards},
        notes="The worst mistakes come first.",
    )
    write_text(path, text)
    logging.info("Wrote %s", path)


def _section(title: str, draw: Callable[[Any], None] | None, size: Sequence, text: str) -> str:
    """A picture and a text, or where it cannot be drawn, the text alone."""
    image = draw and picture(draw, size, title)
    wide = ' class="wide"' if image and size[0] > 8 else ""
    text = html.escape(text)
    return f"<section{wide}><h2>{title}</h2>{image or ''}<pre>{text}</pre></section>"


def _each(golds: Any, answers: Any, **names: Any) -> str:
    """The scores of each label."""
    text = metrics.classification_report(golds, answers, digits=3, zero_division=0, **names)
    return _section("Scores of each label", None, (), text)


def _matrix(golds: list[str], answers: list[str]) -> str:
    """Which label is taken for which, and the scores of each."""
    names = sorted({*golds, *answers})
    counts, most = metrics.confusion_matrix(golds, answers), len(names)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shown = [f"{name:.24}".replace("$", r"\$") for name in names]  # no formulas

    def draw(axes: Any) -> None:
        matrix = metrics.ConfusionMatrixDisplay(shares, display_labels=shown)
        look = {"xticks_rotation": "vertical", "cmap": "Blues", "values_format": ".2f"}
        matrix.plot(ax=axes, include_values=most <= MOST_DRAWN, **look)
        axes.set(xlabel="predicted", ylabel="label; shares of each row")

    side, is_drawn = min(3 + 0.5 * most, 20), max("".join(names), default="") <= LAST_DRAWN
    rows = [["label \\ predicted", *names], *zip(names, *counts.T, strict=True)]
    shape, text = (side + 1, side), "\n".join(aligned(rows))
    matrix = _section("Labels and predictions", draw if is_drawn else None, shape, text)
    return matrix + _each(golds, answers)


def _points(golds: np.ndarray, answers: np.ndarray) -> str:
    """A point for each example."""

    def draw(axes: Any) -> None:
        axes.scatter(answers, golds, alpha=0.8, s=16)
        axes.axline((golds[0], golds[0]), slope=1, color="black", linestyle="--", linewidth=1)
        axes.set(xlabel="predicted", ylabel="label")

    errors = np.abs(golds - answers)
    text = f"absolute error: mean {errors.mean():.3g}, greatest {errors.max():.3g}"
    return _section("Labels and predictions", draw, (5, 4), text)


def _lengths(data: TextData, most: int) -> str:
    """How long the sequences are."""
    lengths = data.lengths

    def draw(axes: Any) -> None:
        axes.hist(lengths, bins=range(0, most + 2, max(1, most // 32)))
        axes.set(xlabel="tokens", ylabel="sequences", xlim=(0, most + 1))

    ends, cut = f"{min(lengths)} to {max(lengths)}", f"{data.num_cut:,} of {len(data.examples):,}"
    text = (
        f"{len(lengths):,} sequences of {ends} tokens, median {np.median(lengths):g}\n"
        f"{cut} examples had more than {most} and were cut"
    )
    return _section("Lengths", draw, (5, 3.5), text)
