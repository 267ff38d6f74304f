"""How training goes: a line now and then, and TensorBoard summaries, which can be read back."""

import math
import time
from collections.abc import Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf import cluster


class TrainingLog:
    """Lines and TensorBoard summaries of how training goes."""

    def __init__(self, output_dir: str, batch_size: int, num_train_steps: int, step: int):
        self._writer = _summary_writer(output_dir)
        self._eval_writer = _summary_writer(tf.io.gfile.join(output_dir, "eval"))
        self._batch_size = batch_size
        self._num_train_steps = num_train_steps
        self._last_step, self._last_time = step, time.monotonic()
        self._totals: dict[str, float] = {}
        self._num_steps = 0  # that they are totals of

    def add(self, losses: Mapping[str, float], num_steps: int) -> None:
        """Takes in the mean losses of `num_steps` steps; those that were skipped do not count."""
        self._num_steps += num_steps
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * num_steps

    def report(self, step: int, learning_rate: float) -> None:
        """Says how the steps since the last report went."""
        now = time.monotonic()
        seconds = (now - self._last_time) / (step - self._last_step)
        means = {name: total / self._num_steps for name, total in self._totals.items()}
        speed = self._batch_size / seconds
        left = (self._num_train_steps - step) * seconds
        terms = ", ".join(
            f"{name.removesuffix('_loss')} {value:.4f}"
            for name, value in means.items()
            if name.endswith("_loss")
        )
        logging.info(
            "step %d/%d  loss %.4f (%s)  learning rate %.3g  %.1f examples/s  %s left",
            step,
            self._num_train_steps,
            means.get("loss", math.nan),
            terms,
            learning_rate,
            speed,
            _duration(left),
        )
        with self._writer.as_default(step=step):
            for name, value in means.items():
                _write_scalar(name, value)
            _write_scalar("learning_rate", learning_rate)
            _write_scalar("examples_per_second", speed)
        self._writer.flush()
        self._last_step, self._last_time, self._totals, self._num_steps = step, now, {}, 0

    def report_evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Says what an evaluation gave; its time does not count as training."""
        listed = "  ".join(f"{name} {value:.4f}" for name, value in sorted(results.items()))
        logging.info("evaluation at step %d  %s", step, listed)
        with self._eval_writer.as_default(step=step):
            for name, value in results.items():
                _write_scalar(name, value)
        self._eval_writer.flush()
        self._last_time = time.monotonic()


def _summary_writer(folder: str) -> tf.summary.SummaryWriter:
    writes = cluster.is_chief()
    return tf.summary.create_file_writer(folder) if writes else tf.summary.create_noop_writer()


def _write_scalar(name: str, value: float) -> None:
    # As tf.summary.scalar does it, which needs TensorBoard; only looking at them shall need it.
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


Curve = dict[int, float]  # value by step


def read_curves(output_dir: str) -> dict[str, Curve]:
    """The summaries that a run wrote: {"loss": {100: 7.1, ...}, "eval/loss": ...}.

    Where a run was killed and resumed, the later value of a step counts.
    """
    curves: dict[str, Curve] = {}
    for prefix, folder in (("", output_dir), ("eval/", tf.io.gfile.join(output_dir, "eval"))):
        paths = tf.io.gfile.glob(tf.io.gfile.join(folder, "events.out.tfevents.*"))
        events = [event for path in paths for event in _read_events(path)]
        # The files' names do not always sort as they were written.
        for event in sorted(events, key=lambda event: event.wall_time):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                curves.setdefault(prefix + value.tag, {})[event.step] = number
    return curves


def _read_events(path: str) -> Iterator[tf.compat.v1.Event]:
    try:
        for serialized in tf.data.TFRecordDataset(path):
            yield tf.compat.v1.Event.FromString(serialized.numpy())
    except tf.errors.DataLossError:  # the run was killed while it wrote: what is before counts
        return
