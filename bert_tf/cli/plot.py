"""Draws the curves of a training run: losses, and the scores of evaluations on the way.

bert-tf plot --output_dir=/models/mine --picture=curves.png
"""

import os
from collections.abc import Iterator, Sequence
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

import tensorflow as tf

from bert_tf.checkpoints.metadata import damage_errors
from bert_tf.data.records import untuned

Curve = dict[int, float]  # value by step


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


def read_curves(output_dir: str) -> dict[str, Curve]:
    """The summaries of a run: {"loss": {100: 7.1, ...}, "eval/loss": ...}.

    If a step was made again after a resume, its later value counts. Values that are no scalars are
    left out.

    Raises:
      InputError: a file of summaries has something else in it.
    """
    curves: dict[str, Curve] = {}
    for prefix, folder in (("", output_dir), ("eval/", tf.io.gfile.join(output_dir, "eval"))):
        paths = tf.io.gfile.glob(tf.io.gfile.join(folder, "events.out.tfevents.*"))
        points = [point for path in paths for point in _read_points(path)]
        # File names do not always sort by time.
        for _, step, tag, number in sorted(points, key=lambda point: point[0]):
            curves.setdefault(prefix + tag, {})[step] = number
    return curves


def _read_points(path: str) -> Iterator[tuple[float, int, str, float]]:
    """Time, step, name and number of every scalar."""
    with damage_errors(path, "the summaries of a training run"):
        try:
            for serialized in untuned(tf.data.TFRecordDataset(path)):
                event = tf.compat.v1.Event.FromString(serialized.numpy())
                for value in event.summary.value:
                    if not value.tensor.tensor_shape.dim:
                        number = float(tf.make_ndarray(value.tensor))
                        yield event.wall_time, event.step, value.tag, number
        except tf.errors.DataLossError:  # the run was killed while it wrote
            return
