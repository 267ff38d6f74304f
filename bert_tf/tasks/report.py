"""report.html of a task: scores, mistakes with their texts, lengths; all from one evaluation.

    kind      a label is        above the examples
    classes   one of several    which label is taken for which, scores of each
    words     a tag of a word   the same of words; the tagged words are marked in the sentences
    several   any of several    scores of each label
    numbers   a number          the absolute errors

The examples are shown as cards, made of these data:

    {"kind": "classes", "labels": ["politics", "sport"],
     "examples": [{"id": "0", "texts": ["A late goal."], "gold": "sport", "answer": "politics",
                   "shares": [0.9, 0.1]}]}

Of kind words, texts, gold and answer are lists of the words and their tags.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from sklearn import metrics

from bert_tf.files import write_text
from bert_tf.heads import Labels
from bert_tf.tasks.examples import AnyExample, WordsExample
from bert_tf.tasks.results import METRICS, by_confidence, calibration_error
from bert_tf.tasks.task import Task
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.terminal import aligned
from bert_tf.training.report import page

MOST_CHARACTERS = 4_000  # of a text, in a card


class Comparison(NamedTuple):
    """Gold labels and predictions, spelled, and what the page says of them."""

    kind: str
    golds: Sequence
    answers: Sequence
    sections: dict[str, str]  # text by title


def write_report(
    run: TextRun, data: TextData, scores: Mapping[str, float], *, doubt: str = ""
) -> None:
    """Writes the page about labelled data.

    Args:
      run: with the model.
      data: as `run.evaluate` leaves them, with probabilities.
      scores: the scores that it returned.
      doubt: a warning, which stands above the rest; "" for none.
    """
    task = run.task
    comparison = _compare(task.labels, data)
    sections = {"To be looked at": doubt} if doubt else {}
    sections |= comparison.sections
    sections["Lengths"] = _lengths(data, run.batching.max_seq_length)
    cards = _cards(data, comparison)
    path = f"{run.output_dir}/report{task.ending(data.split)}.html"
    text = page(
        title=f"Task {task.name}: predictions of the {data.split.name} data",
        main={"examples": f"{len(cards):,}", **_main_scores(task, scores)},
        scores=scores,
        sections=sections,
        data={"kind": comparison.kind, "labels": [*task.labels.columns], "examples": cards},
        notes="The worst mistakes come first.",
    )
    write_text(path, text)
    logging.info("Wrote %s", path)


def _main_scores(task: Task, scores: Mapping[str, float]) -> dict[str, str]:
    """The task's metrics as they stand at the top of the page, by their labels."""
    main = {}
    for name in task.metrics:
        label = METRICS[name].label.partition(" (")[0]
        if name == "f1":
            label += f" of {task.labels.label_of_f1}"
        main[label] = f"{scores[f'eval_{name}']:.3f}"
    return main


def _cards(data: TextData, comparison: Comparison) -> list[dict[str, Any]]:
    """The data of the cards, as above."""
    cards = []
    for example, gold, answer, shares in zip(
        data.examples, comparison.golds, comparison.answers, data.probabilities, strict=True
    ):
        card = {
            "id": example.guid,
            "gold": gold,
            "answer": answer,
            "shares": np.round(shares, 4).tolist(),
            "texts": [text[:MOST_CHARACTERS] for text in _texts(example) if text],
        }
        cards.append(card)
    return cards


def _texts(example: AnyExample) -> Sequence[str | None]:
    """The words of a sentence; otherwise the first text, then the second of each pair."""
    if isinstance(example, WordsExample):
        return example.words
    first_text, _ = example.pairs[0]
    return [first_text, *(second_text for _, second_text in example.pairs)]


def _compare(labels: Labels, data: TextData) -> Comparison:
    """Compares gold labels and predictions by the kind of the labels."""
    gold_labels = [example.label for example in data.examples]
    if labels.is_per_word:
        golds, answers = labels.for_metrics(gold_labels, data.probabilities)
        words = _matrix(list(itertools.chain(*golds)), list(itertools.chain(*answers)))
        return Comparison("words", golds, answers, words)
    probabilities = np.asarray(data.probabilities)
    decisions = labels.decide(probabilities)
    answers = [labels.spell(decision) for decision in decisions]
    label_ids = labels.unscaled([labels.ids(label) for label in gold_labels])
    label_ids = np.reshape(label_ids, decisions.shape)
    if decisions.dtype.kind == "f":
        golds = [labels.spell_label(label) for label in gold_labels]
        errors = np.abs(label_ids - decisions.clip(*labels.limits))  # predictions as spelled
        text = f"absolute error: mean {errors.mean():.3g}, greatest {errors.max():.3g}"
        return Comparison("numbers", golds, answers, {"Labels and predictions": text})
    golds = [labels.spell(label_id) for label_id in label_ids]
    if decisions.ndim > 1 and len(labels.columns) > 1:
        sections = {"Scores of each label": _scores_of_occurring(labels, label_ids, decisions)}
        return Comparison("several", golds, answers, sections)
    sections = _matrix(golds, answers)
    if len(labels.columns) > 1 and probabilities.ndim == 2:
        calibration = _calibration(probabilities, label_ids.ravel())
        sections["How sure, how often right"] = calibration
    return Comparison("classes", golds, answers, sections)


def _scores_of_occurring(labels: Labels, label_ids: np.ndarray, decisions: np.ndarray) -> str:
    """The scores of each label that occurs among gold labels or predictions, as in macro F1."""
    occurring = np.flatnonzero(np.any(label_ids, axis=0) | np.any(decisions, axis=0))
    names = [labels.columns[number] for number in occurring]
    if not names:
        return "none"
    return _scores_of_each(label_ids, decisions, labels=occurring, target_names=names)


def _calibration(probabilities: np.ndarray, gold: np.ndarray) -> str:
    """How often predictions of each confidence are right."""
    rows = [["probability", "examples", "right"]]
    for mean, count, right in by_confidence(probabilities, gold):
        rows.append([f"{mean:.1%}", f"{count:,}", f"{right:.1%}"])
    error = f"calibration error: {calibration_error(probabilities, gold):.4f}"
    return "\n".join([*aligned(rows), "", error])


def _scores_of_each(golds: Any, answers: Any, **names: Any) -> str:
    """scikit-learn's report: precision, recall and F1 of each label."""
    return metrics.classification_report(golds, answers, digits=3, zero_division=0, **names)


def _matrix(golds: list[str], answers: list[str]) -> dict[str, str]:
    """Sections: how often each label is predicted as each, and the scores of each."""
    names = sorted({*golds, *answers})
    counts = metrics.confusion_matrix(golds, answers)
    rows = [["label \\ predicted", *names], *zip(names, *counts.T, strict=True)]
    return {
        "Labels and predictions": "\n".join(aligned(rows)),
        "Scores of each label": _scores_of_each(golds, answers),
    }


def _lengths(data: TextData, most: int) -> str:
    """How long the sequences are, and how many examples had more than `most` tokens."""
    lengths = data.lengths
    extremes = f"{min(lengths)} to {max(lengths)}"
    num_cut = f"{data.num_cut:,} of {len(data.examples):,}"
    return (
        f"{len(lengths):,} sequences of {extremes} tokens, median {np.median(lengths):g}\n"
        f"{num_cut} examples had more than {most} and were cut"
    )
