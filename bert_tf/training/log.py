"""What a run tells: a line of progress now and then, curves for TensorBoard, results as a file."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, runtime
from bert_tf.terminal import progress_line


class TrainingLog:
    """Log lines and TensorBoard summaries of a run.

    train: 400 of 4000 steps, 5.1 a second, 11 min 46 s left; 163.2 examples a second, loss 7.1873
    (masked_lm 6.5102, next_sentence 0.6771), learning rate 4.5e-05
    """

    def __init__(self, output_dir: str, batch_size: int, num_train_steps: int):
        self._writer = _summary_writer(output_dir)
        self._eval_writer = _summary_writer(tf.io.gfile.join(output_dir, "eval"))
        self._batch_size, self._num_train_steps = batch_size, num_train_steps
        self._totals: dict[str, float] = {}
        self._num_steps = 0  # of which they are totals
        self._timed = np.zeros(2)

    def add(self, losses: Mapping[str, float], num_steps: int) -> None:
        """Adds the mean losses of `num_steps` steps; skipped steps do not count."""
        self._num_steps += num_steps
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * num_steps

    def write(self, step: int, learning_rate: float, timed: np.ndarray) -> None:
        """Logs rate, time left and mean losses of the steps since the last call.

        `timed` is a number of steps so far, not those that were compiled, and their seconds.
        """
        number, seconds = timed - self._timed
        rate = number / max(seconds, 1e-9)
        means = {name: total / self._num_steps for name, total in self._totals.items()}
        loss = means.get("loss", math.nan)
        terms = {n[:-5]: v for n, v in means.items() if n.endswith("_loss") and v != loss}
        logging.info(
            "%s;%s loss %.4f%s, learning rate %.3g",
            progress_line("train", step, self._num_train_steps, "steps", rate),
            f" {rate * self._batch_size:.1f} examples a second," if rate else "",
            *(loss, f" ({_listed(terms)})" if terms else "", learning_rate),
        )
        speed = {"examples_per_second": rate * self._batch_size} if rate else {}
        _write_scalars(self._writer, step, means | {"learning_rate": learning_rate} | speed)
        self._totals, self._num_steps, self._timed = {}, 0, timed

    def write_evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Logs the results of an evaluation, whose time does not count as training."""
        logging.info("evaluation at step %d: %s", step, _listed(dict(sorted(results.items()))))
        _write_scalars(self._eval_writer, step, results)


def write_eval_results(
    folder: str, results: Mapping[str, float], name: str = files.EVAL_RESULTS
) -> None:
    """Writes and logs eval_results.txt, lines `key = value` as the original writes it."""
    path = tf.io.gfile.join(folder, name)
    text = "".join(f"{key} = {results[key]}\n" for key in sorted(results))
    logging.info("%s:\n%s", path, text.rstrip())
    files.write_text(path, text)


def write_final_evaluation(output_dir: str, results: Mapping[str, float]) -> None:
    """Writes the scores after training as summaries beside those of evaluations on the way.

    Args:
      output_dir: the folder of the run.
      results: as in eval_results.txt, with the global_step at which they belong.

    Raises:
      InputError: the folder cannot be written to.
    """
    folder = tf.io.gfile.join(output_dir, "eval")
    scores = {name: value for name, value in results.items() if name != "global_step"}
    with files.path_errors(folder, "written"):
        writer = _summary_writer(folder)
        _write_scalars(writer, int(results["global_step"]), scores)
        writer.close()


def _summary_writer(folder: str) -> tf.summary.SummaryWriter:
    writes = runtime.is_chief()
    return tf.summary.create_file_writer(folder) if writes else tf.summary.create_noop_writer()


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _write_scalars(writer: Any, step: int, values: Mapping[str, float]) -> None:
    # As tf.summary.scalar does, which needs TensorBoard; only looking at summaries should.
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
    writer.flush()


def with_null(scores: Mapping[Any, float]) -> dict[Any, float | None]:
    """Scores for JSON, which has neither NaN nor infinity: undefined."""
    return {name: score if math.isfinite(score) else None for name, score in scores.items()}


def with_nan(scores: Mapping[Any, float | None]) -> dict[Any, float]:
    """Scores from JSON."""
    return {name: math.nan if score is None else score for name, score in scores.items()}
