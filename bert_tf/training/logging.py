"""How training goes: log lines, and TensorBoard summaries, which can be read back."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints.metadata import damage_errors
from bert_tf.data.records import untuned
from bert_tf.files import path_errors
from bert_tf.terminal import WATCHDOG, announced, progress_line


class TrainingLog:
    """Log lines and TensorBoard summaries of a run.

    train: 400 of 4000 steps, 5.1 a second, 11 min 46 s left; 163.2 examples a second, loss 7.1873
    (masked_lm 6.5102, next_sentence 0.6771), learning rate 4.5e-05
    """

    def __init__(self, output_dir: str, batch_size: int, num_train_steps: int, step: int):
        self._writer = _summary_writer(output_dir)
        self._eval_writer = _summary_writer(tf.io.gfile.join(output_dir, "eval"))
        self._batch_size, self._num_train_steps = batch_size, num_train_steps
        self._last_step, self._last_time = step, time.monotonic()
        self._totals: dict[str, float] = {}
        self._num_steps = 0  # of which they are totals

    def add(self, losses: Mapping[str, float], num_steps: int) -> None:
        """Adds the mean losses of `num_steps` steps; skipped steps do not count."""
        self._num_steps += num_steps
        for name, value in losses.items():
            self._totals[name] = self._totals.get(name, 0.0) + value * num_steps

    def write(self, step: int, learning_rate: float) -> None:
        """Logs rate, time left and mean losses of the steps since the last call."""
        now = time.monotonic()
        rate = (step - self._last_step) / (now - self._last_time)
        means = {name: total / self._num_steps for name, total in self._totals.items()}
        terms = ", ".join(
            f"{name.removesuffix('_loss')} {value:.4f}"
            for name, value in means.items()
            if name.endswith("_loss")
        )
        logging.info(
            "%s; %.1f examples a second, loss %.4f (%s), learning rate %.3g",
            progress_line("train", step, self._num_train_steps, "steps", rate),
            *(rate * self._batch_size, means.get("loss", math.nan), terms, learning_rate),
        )
        speed = {"learning_rate": learning_rate, "examples_per_second": rate * self._batch_size}
        _write_scalars(self._writer, step, means | speed)
        self._last_step, self._last_time, self._totals, self._num_steps = step, now, {}, 0

    def write_evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Logs the results of an evaluation, whose time does not count as training."""
        listed = ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items()))
        logging.info("evaluation at step %d: %s", step, listed)
        _write_scalars(self._eval_writer, step, results)
        self._last_time = time.monotonic()


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
    with path_errors(folder, "written"):
        writer = _summary_writer(folder)
        _write_scalars(writer, int(results["global_step"]), scores)
        writer.close()


class Pace:
    """How many steps to make in a call of the compiled loop, for progress every second.

    The first call makes one, as it compiles; later ones as many as took a second before. Processes
    of one run must all make the same calls: collective operations are numbered within a call.
    """

    def __init__(self):
        self._num_steps, self._is_new = 1, True
        self._seconds_per_step = 0.0  # of the last call; 0: unknown

    @contextlib.contextmanager
    def call(self, step: int, stop: int, *, whole: bool) -> Iterator[int]:
        """Gives the number of steps to make in this context, up to `stop`; all if `whole`."""
        most, start = stop - step, time.monotonic()
        number = most if whole and not self._is_new else min(self._num_steps, most)
        what, usual = f"train, steps {step + 1} to {step + number}", number * self._seconds_per_step
        with (
            announced("compile: train", when=self._is_new),
            WATCHDOG.watched(what, usual=usual, compiles=self._is_new),
        ):
            yield number
        seconds = max(time.monotonic() - start, 1e-6)
        if not self._is_new:
            self._seconds_per_step = seconds / number
            if not whole:
                self._num_steps = max(1, min(int(number / seconds), 4 * number))
        self._is_new = False


def _summary_writer(folder: str) -> tf.summary.SummaryWriter:
    writes = runtime.is_chief()
    return tf.summary.create_file_writer(folder) if writes else tf.summary.create_noop_writer()


def _write_scalars(
    writer: tf.summary.SummaryWriter, step: int, values: Mapping[str, float]
) -> None:
    # As tf.summary.scalar does, which needs TensorBoard; only looking at summaries should.
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default(step=step):
        for name, value in values.items():
            tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
    writer.flush()


Curve = dict[int, float]  # value by step


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
