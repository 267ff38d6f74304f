"""Draws the curves of a training run: losses, and the scores of evaluations on the way.

bert-tf plot --output_dir=/models/mine --picture=curves.png
"""

import os
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.files import whole_file
from bert_tf.runtime import import_extra

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script."""
    flags.DEFINE_string("output_dir", None, "The folder of the run.")
    flags.DEFINE_string("picture", None, "Where the picture goes: .png, .svg or .pdf.")
    shared_flags.mark_required("output_dir", "picture")


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from bert_tf.training.logging import Curve, read_curves


def main(_: Sequence[str]) -> None:
    """Summaries of the run -> picture."""
    curves = read_curves(FLAGS.output_dir)
    if not curves:
        raise InputError(
            received=f"{FLAGS.output_dir}, where there are no summaries",
            expected="the output folder of a training run",
            remedy="check --output_dir",
        )
    with whole_file(FLAGS.picture) as temporary:
        draw(curves, temporary, kind=os.path.splitext(FLAGS.picture)[1][1:] or "png")
    print(f"Wrote {FLAGS.picture}")


def draw(curves: dict[str, Curve], picture: str, *, kind: str) -> None:
    """Two panels side by side: losses, and scores of evaluations."""
    plt = import_extra(
        "matplotlib.pyplot", package="matplotlib", extra="plot", needed_by="a picture"
    )
    plt.switch_backend("agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name in ("loss", "masked_lm_loss", "next_sentence_loss"):
        draw_curve(left, curves, name, f"training {name}")
        draw_curve(left, curves, f"eval/{name}", f"evaluation {name}", style="o--")
    for name in sorted(curves):
        if name.startswith("eval/") and not name.endswith("loss"):
            draw_curve(right, curves, name, name.removeprefix("eval/"), style="o-")
    left.set(xlabel="step", ylabel="nats", title="Loss", ylim=(0, None))
    right.set(xlabel="step", title="Evaluation", ylim=(None, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    figure.savefig(picture, format=kind, dpi=120)


def draw_curve(axes, curves: dict[str, Curve], name: str, label: str, style: str = "-") -> None:
    """One curve, if the run has it."""
    if name in curves:
        steps = sorted(curves[name])
        axes.plot(steps, [curves[name][s] for s in steps], style, label=label, markersize=4)


if __name__ == "__main__":
    cli.run(main)
