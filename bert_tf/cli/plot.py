"""Draws the curves of a training run: losses, and the scores of evaluations on the way.

bert-tf plot --output_dir=/models/mine --output_file=curves.png
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.options import Options, option
from bert_tf.runtime import import_extra

PICTURES = ("png", "svg", "pdf")
PRETRAINING_LOSSES = ("masked_lm_loss", "next_sentence_loss")  # "loss" is their sum


class Plot(Options):
    """The options of this command."""

    output_dir: str = option("The folder of the run.", path=True, original=True)
    output_file: str = option(
        "Where the picture goes: .png, .svg or .pdf.", path=True, original=True
    )

    def check(self) -> None:
        """Refuses a picture of another kind."""
        if kind_of(self.output_file) not in PICTURES:
            received = f"--output_file={self.output_file}"
            expected = "a name that ends in .png, .svg or .pdf"
            raise InputError(received, expected, "correct --output_file")


Curve = dict[int, float]  # value by step


class Line(NamedTuple):
    """A curve as it is drawn."""

    curve: Curve
    label: str
    style: str
    color: str


def main(options: Plot) -> None:
    """Summaries of a run -> curves -> picture."""
    panels = panels_of(read_curves(options.output_dir))
    if not panels:
        received = f"{options.output_dir}, where there are no summaries"
        raise InputError(received, "the output folder of a training run", "check --output_dir")
    picture = files.output(options.output_file, files.paths_in(options.output_dir, ""))
    with files.published(picture) as temporary:
        draw(panels, temporary, kind=kind_of(picture))
    print(f"Wrote {options.output_file}")


def kind_of(picture: str) -> str:
    """The kind of a picture, by its ending; png without one."""
    return os.path.splitext(picture)[1][1:].lower() or "png"


def read_curves(output_dir: str) -> dict[str, Curve]:
    """The summaries of a run: {"loss": {100: 7.1, ...}, "eval/loss": ...}.

    Of a step that was made twice, by a resumed run or a new one, the last values count: a file of
    training that begins at step s replaces the older values of steps from s on. Values other than
    float32 scalars are left out.

    Raises:
      InputError: a file of summaries holds something else.
    """
    curves: dict[str, Curve] = {}
    training_files = _read_files(output_dir)
    starts = [min(points) for points in training_files if points]
    for prefix, points_of_files in (
        ("", training_files),
        ("eval/", _read_files(f"{output_dir}/eval")),
    ):
        points = itertools.chain.from_iterable(points_of_files)
        for point in sorted(points, key=lambda point: point.time):  # names do not sort by time
            if not any(point.time < start.time and point.step >= start.step for start in starts):
                curves.setdefault(prefix + point.tag, {})[point.step] = point.value
    return curves


class Point(NamedTuple):
    """A scalar of a file of summaries."""

    time: float
    step: int
    tag: str
    value: float


def _read_files(folder: str) -> list[list[Point]]:
    """The points of each file of summaries in a folder."""
    paths = files.paths_in(folder, r"^events\.out\.tfevents\.")
    return [[*_read_points(path)] for path in paths]


def _read_points(path: str) -> Iterator[Point]:
    """Yields every scalar of a file, whose end may be missing, as in a killed run."""
    import tensorflow as tf

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
                    yield Point(event.wall_time, event.step, value.tag, number)


def panels_of(curves: dict[str, Curve]) -> dict[str, list[Line]]:
    """The lines of losses and of the scores of evaluations, by title; without empty panels."""
    losses: list[Line] = []
    parts = [name for name in PRETRAINING_LOSSES if {name, f"eval/{name}"} & curves.keys()]
    for number, name in enumerate(parts or ["loss"]):
        color = f"C{number}"
        if name in curves:
            losses.append(Line(curves[name], f"training {name}", "-", color))
        if f"eval/{name}" in curves:
            losses.append(Line(curves[f"eval/{name}"], f"evaluation {name}", "o--", color))
    scores: list[Line] = []
    for name in sorted(curves):
        if name.startswith("eval/") and "loss" not in name:
            scores.append(Line(curves[name], name.removeprefix("eval/"), "o-", f"C{len(scores)}"))
    panels = {"Loss": losses, "Evaluation": scores}
    return {title: lines for title, lines in panels.items() if lines}


def draw(panels: dict[str, list[Line]], picture: str, *, kind: str) -> None:
    """Draws the panels side by side into a file."""
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
        all_values = itertools.chain.from_iterable(line.curve.values() for line in lines)
        if title == "Loss":
            axes.set(ylabel="nats", ylim=(0, None))
        elif all(value <= 1 for value in all_values):
            axes.set_ylim(None, 1)  # shares; SQuAD's scores are in percent
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(picture, format=kind, dpi=120)
