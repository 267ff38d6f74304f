"""Draws the curves of a training run: losses, and the scores of evaluations on the way.

bert-tf plot --output_dir=/models/mine --picture=curves.png
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.files import whole_file
from bert_tf.runtime import import_extra

FLAGS = flags.FLAGS
LOSSES = ("loss", "masked_lm_loss", "next_sentence_loss")


def define_flags() -> None:
    """The flags of this script."""
    flags.DEFINE_string("output_dir", None, "The folder of the run.")
    flags.DEFINE_string("picture", None, "Where the picture goes: .png, .svg or .pdf.")
    shared_flags.mark_required("output_dir", "picture")


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from bert_tf.training.trainer import Curve, read_curves


class Line(NamedTuple):
    """A curve as it is drawn."""

    curve: Curve
    label: str
    style: str


def main(_: Sequence[str]) -> None:
    """Summaries of the run -> picture."""
    panels = panels_of(read_curves(FLAGS.output_dir))
    if not panels:
        raise InputError(
            received=f"{FLAGS.output_dir}, where there are no summaries",
            expected="the output folder of a training run",
            remedy="check --output_dir",
        )
    with whole_file(FLAGS.picture) as temporary:
        draw(panels, temporary, kind=os.path.splitext(FLAGS.picture)[1][1:] or "png")
    print(f"Wrote {FLAGS.picture}")


def panels_of(curves: dict[str, Curve]) -> dict[str, list[Line]]:
    """The losses and the scores of evaluations, by title; a run without one has no such panel."""
    losses, scores = [], []
    for name in LOSSES:
        for whole, kind, style in ((name, "training", "-"), (f"eval/{name}", "evaluation", "o--")):
            if whole in curves:
                losses.append(Line(curves[whole], f"{kind} {name}", style))
    for name in sorted(curves):
        if name.startswith("eval/") and "loss" not in name:
            scores.append(Line(curves[name], name.removeprefix("eval/"), "o-"))
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
            axes.plot(steps, values, style, label=line.label, markersize=4)
        axes.set(xlabel="step", title=title)
        if title == "Loss":
            axes.set(ylabel="nats", ylim=(0, None))
        elif all(value <= 1 for line in lines for value in line.curve.values()):
            axes.set_ylim(None, 1)  # shares; SQuAD's scores are in percent
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(picture, format=kind, dpi=120)


if __name__ == "__main__":
    cli.run(main)
