"""The verbs that show results: plot, and evaluate-squad, which loads no TensorFlow."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import flags

from bert_tf import files
from bert_tf.cli.flags import Number, Path, verb
from bert_tf.errors import InputError
from bert_tf.runtime import import_extra

FLAGS = flags.FLAGS
PRETRAINING_LOSSES = ("masked_lm_loss", "next_sentence_loss")  # "loss" is their sum


class Plot:
    """The flags of plot.

    Attributes:
      output_dir: The folder of the run.
      output_file: Where the picture goes: .png, .svg or .pdf.
    """

    output_dir = Path(required=True)
    output_file = Path(required=True)


Curve = dict[int, float]  # value by step


class Line(NamedTuple):
    """A curve as it is drawn."""

    curve: Curve
    label: str
    style: str
    color: str


@verb(Plot)
def plot(_: Sequence[str]) -> None:
    """Draws the curves of a training run: losses, and the scores of evaluations on the way.

    bert-tf plot --output_dir=/models/mine --output_file=curves.png
    """
    panels = panels_of(read_curves(FLAGS.output_dir))
    if not panels:
        received = f"{FLAGS.output_dir}, where there are no summaries"
        raise InputError(received, "the output folder of a training run", "check --output_dir")
    with files.published(FLAGS.output_file) as temporary:
        draw(panels, temporary, kind=os.path.splitext(FLAGS.output_file)[1][1:] or "png")
    print(f"Wrote {FLAGS.output_file}")


def read_curves(output_dir: str) -> dict[str, Curve]:
    """The summaries of a run: {"loss": {100: 7.1, ...}, "eval/loss": ...}.

    Steps that were made again, after a resume or by a run that began anew, count as made last: a
    file of training that begins at step s replaces what was written before it of steps from s on.
    Values other than float32 scalars are left out.

    Raises:
      InputError: a file of summaries has something else in it.
    """
    curves: dict[str, Curve] = {}
    for prefix, folder in (("", output_dir), ("eval/", f"{output_dir}/eval")):
        paths = files.paths_in(folder, r"^events\.out\.tfevents\.")
        points = [[*_read_points(path)] for path in paths]
        if not prefix:  # time and step of the first point of each file of training
            starts = [min(one)[:2] for one in points if one]
        # File names do not always sort by time.
        ordered = sorted((point for one in points for point in one), key=lambda point: point[0])
        for time, step, tag, number in ordered:
            if not any(time < begun and step >= first for begun, first in starts):
                curves.setdefault(prefix + tag, {})[step] = number
    return curves


def _read_points(path: str) -> Iterator[tuple[float, int, str, float]]:
    """Time, step, name and number of every scalar; the end may be cut off, of a killed run."""
    import tensorflow as tf  # evaluate-squad needs none

    from bert_tf.checkpoints.metadata import damage_errors

    with (
        damage_errors(path, "the summaries of a training run"),
        contextlib.suppress(tf.errors.DataLossError),
    ):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                is_scalar = not value.tensor.tensor_shape.dim
                if is_scalar and value.tensor.dtype == tf.float32.as_datatype_enum:
                    number = float(tf.make_ndarray(value.tensor))
                    yield event.wall_time, event.step, value.tag, number


def panels_of(curves: dict[str, Curve]) -> dict[str, list[Line]]:
    """The losses and the scores of evaluations, by title; a run without one has no such panel."""
    losses, scores = [], []
    parts = [name for name in PRETRAINING_LOSSES if {name, f"eval/{name}"} & curves.keys()]
    for number, name in enumerate(parts or ["loss"]):
        for whole, kind, style in ((name, "training", "-"), (f"eval/{name}", "evaluation", "o--")):
            if whole in curves:
                losses.append(Line(curves[whole], f"{kind} {name}", style, f"C{number}"))
    for name in sorted(curves):
        if name.startswith("eval/") and "loss" not in name:
            scores.append(Line(curves[name], name.removeprefix("eval/"), "o-", f"C{len(scores)}"))
    return {title: lines for title, lines in (("Loss", losses), ("Evaluation", scores)) if lines}


def draw(panels: dict[str, list[Line]], picture: str, *, kind: str) -> None:
    """The panels side by side."""
    plt = import_extra(
        "matplotlib.pyplot", package="matplotlib", extra="plot", needed_by="a picture"
    )
    plt.switch_backend("agg")
    size = (5.5 * len(panels), 4)
    figure, row = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axes, (title, lines) in zip(row[0], panels.items(), strict=True):
        for line in lines:
            steps = sorted(line.curve)
            values = [line.curve[step] for step in steps]
            style = line.style if len(steps) > 1 else "o"  # a line needs two points
            axes.plot(steps, values, style, color=line.color, label=line.label, markersize=4)
        axes.set(xlabel="step", title=title)
        if title == "Loss":
            axes.set(ylabel="nats", ylim=(0, None))
        elif all(value <= 1 for line in lines for value in line.curve.values()):
            axes.set_ylim(None, 1)  # shares; SQuAD's scores are in percent
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(picture, format=kind, dpi=120)


# ---------------------------------------------------------------------------- evaluate-squad


class Scoring:
    """The flags of evaluate-squad, named as the official scripts'.

    Attributes:
      na_prob_file: v2.0: null_odds.json; adds the best scores over thresholds on it.
      na_prob_thresh: v2.0 with --na_prob_file: above it an answer is taken as none. (1.0, the
        official script's, is meant for probabilities; with null odds the predictions are decided
        already: give a large number to leave them as they are.)
    """

    _acts = """
        na_prob_file: na_prob_thresh"""
    na_prob_file = Path()
    na_prob_thresh = Number(1.0, most=math.inf)


def two_files(words: Sequence[str]) -> None:
    """Refuses all but two files."""
    if len(words) != 2:
        raise InputError(
            f"{len(words) or 'no'} files {' '.join(words)}".strip(),
            "two: the questions with their answers, and the predictions",
            "bert-tf evaluate-squad DEV_JSON PREDICTIONS_JSON",
        )


@verb(Scoring, check=two_files, needs_tensorflow=False)
def evaluate_squad(argv: Sequence[str]) -> None:
    """Scores a predictions.json as SQuAD's official scripts do, v1.1 or v2.0 by the data.

        bert-tf evaluate-squad dev-v1.1.json predictions.json
        bert-tf evaluate-squad dev-v2.0.json predictions.json --na_prob_file=null_odds.json

    Prints JSON with the official keys. Questions without a prediction score 0 and are reported on
    standard error.
    """
    from bert_tf.squad import data, evaluation
    from bert_tf.squad.answer_files import read_na_probs, read_predictions

    dev_file, predictions_file = map(files.own_path, argv[1:])
    questions, answers = data.read_squad(dev_file), read_predictions(predictions_file)
    na_probs = read_na_probs(FLAGS.na_prob_file) if FLAGS.na_prob_file else None
    scores = evaluation.official_scores(
        questions, answers, na_probs=na_probs, na_prob_thresh=FLAGS.na_prob_thresh
    )
    print(json.dumps(scores, indent=2))
