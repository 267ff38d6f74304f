"""The picture of a grid of trials: a strip of points for each learning rate, the mean marked.

matplotlib is the extra `plot`, imported when a picture is drawn.
"""

import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SPREAD = 0.3  # how far the points of a strip lie apart from its middle; strips are 1 apart
AXIS_LABELS = {  # of what eval_results.txt calls eval_<metric>; each with its unit
    "accuracy": "accuracy (share of the examples)",
    "matthews": "Matthews correlation (-1 to 1)",
    "f1": "F1 (0 to 1)",
    "micro_f1": "micro-averaged F1 (0 to 1)",
    "macro_f1": "macro-averaged F1 (0 to 1)",
    "pearson": "Pearson correlation (-1 to 1)",
    "spearman": "Spearman correlation (-1 to 1)",
    "entity_f1": "F1 of entities (0 to 1)",
}


def draw_trials(scores: Mapping[float, Sequence[float]], *, task: str, metric: str) -> bytes:
    """A strip plot as a PNG; the same bytes for the same scores.

    Args:
      scores: for each learning rate the metric of its trials, in the order of their seeds.
      task: its name.
      metric: a key of `metrics.METRICS`.

    Raises:
      ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    width = max(4.8, 1.0 + 1.35 * len(scores))  # inches; a label below each strip needs its room
    figure = Figure(figsize=(width, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for place, values in enumerate(scores.values()):
        _draw_strip(axes, place, values)
    seeds = max(map(len, scores.values()))
    label = AXIS_LABELS.get(metric, metric)
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
    """Points side by side in the order of the seeds, so that equal ones are seen too."""
    step = 2 * SPREAD / max(1, len(values) - 1)
    places = [place - SPREAD + step * i for i in range(len(values))] if len(values) > 1 else [place]
    labels = ("one trial", "mean") if place == 0 else (None, None)  # one entry each in the legend
    axes.plot(places, values, "o", color="tab:blue", alpha=0.75, label=labels[0], zorder=3)
    ends = [place - SPREAD - 0.1, place + SPREAD + 0.1]
    mean = statistics.fmean(values)
    axes.plot(ends, [mean, mean], color="tab:orange", linewidth=2, label=labels[1])


def _tick_label(learning_rate: float, values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.3f}"
    if len(values) > 1:
        mean += f" ± {statistics.stdev(values):.3f}"
    return f"{learning_rate:g}\n{mean}"
