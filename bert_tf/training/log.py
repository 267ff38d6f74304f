"""The output of a run: log lines, curves for TensorBoard, files of results."""

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
        self._batch_size = batch_size
        self._num_train_steps = num_train_steps
        self._totals: dict[str, float] = {}  # sums of losses over steps
        self._num_steps = 0  # the number of these steps
        self._timed = np.zeros(2)  # as of the last call of `write`

    def add(self, losses: Mapping[str, float], num_steps: int) -> None:
        """Adds the mean losses of `num_steps` steps, without skipped ones."""
        self._num_steps += num_steps
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * num_steps

    def write(self, step: int, learning_rate: float, timed: np.ndarray) -> None:
        """Logs speed, time left and mean losses of the steps since the last call.

        Args:
          step: the number of updates made.
          learning_rate: the learning rate of the last one.
          timed: `Programs.timed`, [steps, seconds].
        """
        num_timed, seconds = timed - self._timed
        steps_per_second = num_timed / max(seconds, 1e-9)
        examples_per_second = steps_per_second * self._batch_size
        means = {name: total / self._num_steps for name, total in self._totals.items()}
        loss = means.get("loss", math.nan)
        terms = {}
        for name, value in means.items():
            if name.endswith("_loss") and value != loss:  # a single term is the loss
                terms[name.removesuffix("_loss")] = value
        logging.info(
            "%s;%s loss %.4f%s, learning rate %.3g",
            progress_line("train", step, self._num_train_steps, "steps", steps_per_second),
            f" {examples_per_second:.1f} examples a second," if num_timed else "",
            loss,
            f" ({_listed(terms)})" if terms else "",
            learning_rate,
        )
        scalars = means | {"learning_rate": learning_rate}
        if num_timed:
            scalars["examples_per_second"] = examples_per_second
        _write_scalars(self._writer, step, scalars)
        self._totals = {}
        self._num_steps = 0
        self._timed = timed

    def write_evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Logs the results of an evaluation."""
        logging.info("evaluation at step %d: %s", step, _listed(dict(sorted(results.items()))))
        _write_scalars(self._eval_writer, step, results)


def write_eval_results(
    folder: str, results: Mapping[str, float], name: str = files.EVAL_RESULTS
) -> None:
    """Writes and logs eval_results.txt: lines `key = value`, as in the original."""
    path = tf.io.gfile.join(folder, name)
    text = "".join(f"{key} = {results[key]}\n" for key in sorted(results))
    logging.info("%s:\n%s", path, text.rstrip())
    files.write_text(path, text)


def write_final_evaluation(output_dir: str, results: Mapping[str, float]) -> None:
    """Writes the scores after training to TensorBoard, beside those of evaluations during training.

    Args:
      output_dir: the folder of the run.
      results: as in eval_results.txt, with their global_step.

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
    if runtime.is_chief():
        return tf.summary.create_file_writer(folder)
    return tf.summary.create_noop_writer()


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _write_scalars(writer: Any, step: int, values: Mapping[str, float]) -> None:
    # The same as tf.summary.scalar, which would need TensorBoard installed.
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
    writer.flush()


def with_null(scores: Mapping[Any, float]) -> dict[Any, float | None]:
    """Scores for JSON, with null for NaN and infinity."""
    return {name: score if math.isfinite(score) else None for name, score in scores.items()}


def with_nan(scores: Mapping[Any, float | None]) -> dict[Any, float]:
    """Scores from JSON, with NaN for null."""
    return {name: math.nan if score is None else score for name, score in scores.items()}
