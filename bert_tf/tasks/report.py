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
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.runtime import import_extra
from bert_tf.tasks.results import METRICS, SKLEARN
from bert_tf.tasks.task import Task
from bert_tf.tasks.text_run import TextData
from bert_tf.terminal import aligned
from bert_tf.training.report import page, picture

MOST_CHARACTERS = 4_000  # of a text that are shown
MOST_DRAWN = 30  # labels in a matrix with numbers
LAST_DRAWN = "\u058f"  # matplotlib's own font has few characters behind it


def report_html(
    task: Task, data: TextData, scores: Mapping[str, float], *, max_seq_length: int
) -> str:
    """The page about labelled data.

    Args:
      task: with its label names.
      data: with the probabilities that `TextRun.evaluate` set.
      scores: which that returned.
      max_seq_length: of the records.
    """
    labels, head, shares = task.labels, task.head, data.probabilities
    golds = [labels.ids(one.label) for one in data.examples]
    if head.is_per_word:
        kind, (golds, answers) = "words", head.for_metrics(labels, golds, shares)
        content = _matrix(*(list(itertools.chain(*tags)) for tags in (golds, answers)))
    else:
        answers = head.decide(np.asarray(shares))
        golds = np.reshape(golds, answers.shape)
        named = [[labels.spell(one) for one in side] for side in (golds, answers)]
        if answers.dtype.kind == "f":
            kind, content = "numbers", _points(golds, answers)
        elif answers.ndim > 1 and answers.shape[1] > 1:
            kind, content = "several", _each(golds, answers, target_names=labels.names)
        else:
            kind, content = "classes", _matrix(*named)
        golds, answers = named
    cards = []
    for one, gold, answer, share in zip(data.examples, golds, answers, shares, strict=True):
        pairs = () if head.is_per_word else one.pairs
        texts = one.words if head.is_per_word else (pairs[0][0], *(b for _, b in pairs if b))
        card = {"id": one.guid, "texts": [text[:MOST_CHARACTERS] for text in texts]}
        card |= {"gold": gold, "answer": answer, "shares": np.round(share, 4).tolist()}
        cards.append(card)
    main = {METRICS[name].label: f"{scores[f'eval_{name}']:.3f}" for name in task.metrics}
    return page(
        title=f"Task {task.name}: predictions of the {data.split.name} data",
        main={"examples": f"{len(cards):,}", **main},
        scores=scores,
        sections=content + _lengths(data, max_seq_length),
        data={"kind": kind, "labels": [*head.columns(labels)], "examples": cards},
        notes="The worst mistakes come first.",
    )


def _sklearn() -> Any:
    return import_extra(SKLEARN, package="scikit-learn", extra="tasks", needed_by="a report")


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def _text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _each(golds: Any, answers: Any, **names: Any) -> str:
    """The scores of each label."""
    found = _sklearn().classification_report(golds, answers, digits=3, zero_division=0, **names)
    return _section("Scores of each label", _text(found))


def _matrix(golds: list[str], answers: list[str]) -> str:
    """Which label is taken for which, and the scores of each."""
    sklearn, names = _sklearn(), sorted({*golds, *answers})
    shown = [f"{name:.24}".replace("$", r"\$") for name in names]  # no formulas

    def draw(axes: Any) -> None:
        sklearn.ConfusionMatrixDisplay.from_predictions(
            *(golds, answers),
            normalize="true",
            values_format=".2f",
            include_values=len(names) <= MOST_DRAWN,
            display_labels=shown,
            xticks_rotation="vertical",
            cmap="Blues",
            ax=axes,
        )
        axes.set(xlabel="predicted", ylabel="label; shares of its examples")

    side = min(3 + 0.5 * len(names), 20)
    is_drawn = max("".join(names), default="") <= LAST_DRAWN
    image = is_drawn and picture(draw, (side + 1, side), "Labels in rows, predictions in columns")
    if not image:
        rows = zip(names, *sklearn.confusion_matrix(golds, answers).T, strict=True)
        image = _text("\n".join(aligned([["label \\ predicted", *names], *rows])))
    return _section("Labels and predictions", image) + _each(golds, answers)


def _points(golds: np.ndarray, answers: np.ndarray) -> str:
    def draw(axes: Any) -> None:
        _sklearn().PredictionErrorDisplay.from_predictions(
            *(golds.ravel(), answers.ravel()), kind="actual_vs_predicted", ax=axes
        )
        axes.set(xlabel="predicted", ylabel="label")

    errors = np.abs(golds - answers)
    text = f"Absolute errors: mean {errors.mean():.3g}, greatest {errors.max():.3g}."
    image = picture(draw, (5, 5), "A point for each example: its prediction and its label")
    return _section("Labels and predictions", image, text)


def _lengths(data: TextData, most: int) -> str:
    lengths = data.lengths

    def draw(axes: Any) -> None:
        axes.hist(lengths, bins=range(0, most + 2, max(1, most // 32)))
        axes.set(xlabel="tokens", ylabel="sequences", xlim=(0, most + 1))

    text = (
        f"{len(lengths):,} sequences of {min(lengths)} to {max(lengths)} tokens, median "
        f"{np.median(lengths):g}, at most {most} (--max_seq_length). {data.num_cut:,} of "
        f"{len(data.examples):,} examples were longer and were cut."
    )
    return _section("Lengths", picture(draw, (5, 3.5), "How many sequences are how long"), text)
