"""report.html of a task: scores, mistakes with their texts, lengths; all from one evaluation.

    kind      a label is        above the examples
    classes   one of several    which label is taken for which, scores of each
    words     a tag of a word   the same of words; the tagged words are marked in the sentences
    several   any of several    scores of each label
    numbers   a number          the absolute errors

The data of the cards:

    {"kind": "classes", "labels": ["politics", "sport"],
     "examples": [{"id": "0", "texts": ["A late goal."], "gold": "sport", "answer": "politics",
                   "shares": [0.9, 0.1]}]}

Of words, texts, gold and answer are lists of the words and their tags.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from sklearn import metrics

from bert_tf.files import write_text
from bert_tf.tasks.results import METRICS, by_confidence, calibration_error
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.terminal import aligned
from bert_tf.training.report import page

MOST_CHARACTERS = 4_000  # of a text that are shown


def write_report(
    run: TextRun, data: TextData, scores: Mapping[str, float], *, doubt: str = ""
) -> None:
    """Writes the page about labelled data.

    Args:
      run: with the model.
      data: as `run.evaluate` leaves them, with probabilities.
      scores: which that returned.
      doubt: a sentence above all, if there is one.
    """
    kind, golds, answers, compared = _compared(run, data)
    sections = {"To be looked at": doubt} if doubt else {}
    sections |= compared
    is_sentence = run.task.labels.is_per_word
    parts = {
        "id": [one.guid for one in data.examples],
        "gold": golds,
        "answer": answers,
        "shares": [np.round(share, 4).tolist() for share in data.probabilities],
        "texts": [
            [text[:MOST_CHARACTERS] for text in (one.words if is_sentence else _texts(one)) if text]
            for one in data.examples
        ],
    }
    cards = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    named = {name: METRICS[name].label.partition(" (")[0] for name in run.task.metrics}
    if "f1" in named:
        named["f1"] += f" of {run.task.labels.label_of_f1}"
    main = {label: f"{scores[f'eval_{name}']:.3f}" for name, label in named.items()}
    path = f"{run.output_dir}/report{run.task.ending(data.split)}.html"
    text = page(
        title=f"Task {run.task.name}: predictions of the {data.split.name} data",
        main={"examples": f"{len(cards):,}", **main},
        scores=scores,
        sections=sections | {"Lengths": _lengths(data, run.batching.max_seq_length)},
        data={"kind": kind, "labels": [*run.task.labels.columns], "examples": cards},
        notes="The worst mistakes come first.",
    )
    write_text(path, text)
    logging.info("Wrote %s", path)


def _texts(example: Any) -> tuple[str | None, ...]:
    """The first text, then the second of each pair."""
    return example.pairs[0][0], *(b for _, b in example.pairs)


def _compared(run: TextRun, data: TextData) -> tuple[str, Sequence, Sequence, dict[str, str]]:
    """The kind of the labels; gold labels and predictions, spelled; what they have in common."""
    labels, shares = run.task.labels, data.probabilities
    golds = [one.label for one in data.examples]
    if labels.is_per_word:
        golds, answers = labels.for_metrics(golds, shares)
        return (
            "words",
            golds,
            answers,
            _matrix(*(list(itertools.chain(*x)) for x in (golds, answers))),
        )
    decided = labels.decide(np.asarray(shares))
    ids = np.reshape(labels.unscaled([labels.ids(gold) for gold in golds]), decided.shape)
    answers = [labels.spell(one) for one in decided]
    if decided.dtype.kind == "f":
        golds = [labels.spell_label(gold) for gold in golds]
        errors = np.abs(ids - decided.clip(*labels.limits))  # as the predictions are spelled
        text = f"absolute error: mean {errors.mean():.3g}, greatest {errors.max():.3g}"
        return "numbers", golds, answers, {"Labels and predictions": text}
    golds = [labels.spell(gold) for gold in ids]
    if decided.ndim > 1 and len(labels.columns) > 1:
        # As macro F1 has it: labels that are nowhere do not count.
        occurring = np.flatnonzero(np.any(ids, axis=0) | np.any(decided, axis=0))
        names = [labels.columns[number] for number in occurring]
        each = _each(ids, decided, labels=occurring, target_names=names) if names else "none"
        return "several", golds, answers, {"Scores of each label": each}
    sections = _matrix(golds, answers)
    if len(labels.columns) > 1 and np.ndim(shares) == 2:
        sections["How sure, how often right"] = _calibration(np.asarray(shares), ids.ravel())
    return "classes", golds, answers, sections


def _calibration(shares: np.ndarray, gold: np.ndarray) -> str:
    """How often predictions of each confidence are right."""
    rows = [["probability", "examples", "right"]]
    for mean, count, right in by_confidence(shares, gold):
        rows.append([f"{mean:.1%}", f"{count:,}", f"{right:.1%}"])
    error = f"calibration error: {calibration_error(shares, gold):.4f}"
    return "\n".join([*aligned(rows), "", error])


def _each(golds: Any, answers: Any, **names: Any) -> str:
    return metrics.classification_report(golds, answers, digits=3, zero_division=0, **names)


def _matrix(golds: list[str], answers: list[str]) -> dict[str, str]:
    """Which label is taken for which, and the scores of each."""
    names, counts = sorted({*golds, *answers}), metrics.confusion_matrix(golds, answers)
    rows = [["label \\ predicted", *names], *zip(names, *counts.T, strict=True)]
    matrix = "\n".join(aligned(rows))
    return {"Labels and predictions": matrix, "Scores of each label": _each(golds, answers)}


def _lengths(data: TextData, most: int) -> str:
    """How long the sequences are."""
    lengths = data.lengths
    ends, cut = f"{min(lengths)} to {max(lengths)}", f"{data.num_cut:,} of {len(data.examples):,}"
    return (
        f"{len(lengths):,} sequences of {ends} tokens, median {np.median(lengths):g}\n"
        f"{cut} examples had more than {most} and were cut"
    )
