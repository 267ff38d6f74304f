"""What is said of a grid of trials: a table of all, one of the learning rates, and a picture."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.files import whole_file, write_text
from bert_tf.tasks.pictures import draw_trials

TABLE, SUMMARY, PICTURE = "trials.tsv", "trials_summary.tsv", "trials.png"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One learning rate with one seed, and what came of it."""

    learning_rate: float
    seed: int
    folder: str
    results: Mapping[str, float] = dataclasses.field(default_factory=dict)


def write_reports(trials: Sequence[Trial], *, task: str, metric: str, output_dir: str) -> None:
    """Writes trials.tsv, trials_summary.tsv and trials.png.

    Args:
      trials: all of a grid, with their results.
      task: its name.
      metric: the task's first; of the results it is eval_<metric>.
      output_dir: the folder.
    """
    write_text(tf.io.gfile.join(output_dir, TABLE), _table(trials))
    scores: dict[float, list[float]] = {}
    for trial in trials:
        scores.setdefault(trial.learning_rate, []).append(trial.results[f"eval_{metric}"])
    summary = _summary(scores, metric)
    write_text(tf.io.gfile.join(output_dir, SUMMARY), summary)
    logging.info("eval_%s over the trials:\n%s", metric, summary.expandtabs(12))
    try:
        picture = draw_trials(scores, task=task, metric=metric)
    except ImportError:
        logging.info("No %s: it needs matplotlib, pip install 'bert-tf[plot]'.", PICTURE)
        return
    path = tf.io.gfile.join(output_dir, PICTURE)
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(picture)


def _table(trials: Sequence[Trial]) -> str:
    """A line for each trial, with all its results."""
    names = sorted(trials[0].results)
    lines = ["\t".join(["learning_rate", "seed", *names])]
    for trial in trials:
        cells = [f"{trial.learning_rate:g}", trial.seed, *(trial.results[n] for n in names)]
        lines.append("\t".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def _summary(scores: Mapping[float, Sequence[float]], metric: str) -> str:
    """A line for each learning rate; the deviation is that of a sample, 0 for one trial."""
    lines = ["\t".join(["learning_rate", "trials", f"mean_{metric}", "deviation", "best"])]
    for rate, values in scores.items():
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        numbers = (statistics.fmean(values), deviation, max(values))
        cells = [f"{rate:g}", str(len(values)), *(f"{number:.4f}" for number in numbers)]
        lines.append("\t".join(cells))
    return "\n".join(lines) + "\n"
