"""The training loop: batches -> steps -> losses, checkpoints, evaluations.

Data position, dropout and learning rate are pure functions of the step, so a resumed run ends with
the same weights as an uninterrupted one. With several processes each runs this loop on its part of
every batch, and only the chief writes files.
"""

import contextlib
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import load_weights
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError
from bert_tf.heads.head import Head
from bert_tf.terminal import Progress
from bert_tf.training import distribution
from bert_tf.training.compilation import Programs, compiled_parts, described
from bert_tf.training.distribution import HANGS
from bert_tf.training.evaluation import Evaluate, Evaluations, Evaluator
from bert_tf.training.log import TrainingLog
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.options import StepConfig
from bert_tf.training.plan import RunPlan
from bert_tf.training.step import LossScale, Steps, layer_precision


class Trainer(Evaluator):
    """Trains a model under a `tf.distribute` strategy; also an `Evaluator` of it."""

    def __init__(
        self,
        model_fn: Callable[[], keras.Model],
        head: Head,
        optimizer: AdamWeightDecay,
        *,
        strategy: tf.distribute.Strategy,
        seed: int,
        freeze: Sequence[str] = (),
        step_config: StepConfig | None = None,
    ):
        """Builds the model and the optimizer's moments on the strategy's devices.

        Args:
          model_fn: builds the model; its initial weights are drawn from `seed`.
          head: loss, metrics and predictions.
          optimizer: the update rule.
          strategy: the devices.
          seed: the seed of initial weights and dropout.
          freeze: patterns of the names of weights that are not trained, as for `trained_names`.
            These have no moments, and no gradients are computed for them.
          step_config: precision, micro-batches, compilation.
        """
        self.strategy = strategy
        self.head = head
        self.optimizer = optimizer
        self.step_config = config = step_config or StepConfig()
        with strategy.scope(), layer_precision(config.precision):
            keras.utils.set_random_seed(seed % 2**32)
            self.model = model_fn()
            self.steps = Steps(
                self.model, head, optimizer, strategy, config, seed=seed, freeze=freeze
            )
        by_shape = any(compiled_parts(config, strategy)) or runtime.clusters_graphs()
        self.programs = Programs(by_shape=by_shape)

    # ------------------------------------------------------------------ training

    def train(
        self,
        batches: Batches,
        plan: RunPlan,
        *,
        folder: tf1.CheckpointFolder,
        run_settings: Mapping[str, Any],
        on_begin: Callable[[], None] | None = None,
        evaluate: Evaluate | None = None,
    ) -> None:
        """Trains up to `plan.last_step`, from the last checkpoint of the folder if there is one.

        Args:
          batches: batch t is that of step t.
          plan: the steps, including those before a resume, and the steps at which to log, save and
            evaluate.
          folder: where checkpoints are written, each while the next steps are computed.
          run_settings: the settings that affect the trained weights; recorded in checkpoints, and
            compared on resume.
          on_begin: called before the first step, unless the run has ended already.
          evaluate: called at the steps of the plan, also before the first one, with the step and a
            function that writes its checkpoint and waits for it; returns results to log. Raises
            `StopTraining` to end training at that step.

        Raises:
          InputError: loss, gradients or initial weights are not finite, a record is invalid, or a
            checkpoint could not be written; the last checkpoint is kept. Or the folder has a
            finished run with other settings.
          Interrupted: SIGTERM or Ctrl-C came to one of the processes; a checkpoint is written.
        """
        step = self._begin(batches, plan, folder, run_settings)
        if step >= plan.last_step:
            return
        if on_begin:
            on_begin()
        log = TrainingLog(folder.path, plan.batch_size, plan.last_step)
        save = Saver(self, folder, run_settings)
        evaluations = Evaluations(plan, log, save, evaluate)
        # After a resume, too: the run may have been killed before this evaluation.
        stops = () if evaluations.end_at(step) else plan.stops(step)
        iterator = distribution.distributed_batches(self.strategy, batches, start=step)
        with self._running(step, plan.last_step, folder) as progress:
            for stop in stops:
                first = step
                with batches.record_errors():
                    step, losses = self.run_steps(iterator, first, stop, progress)
                checked_losses, num_steps = self._checked(losses, first, step, folder)
                log.add(checked_losses, num_steps)
                if plan.is_to_log(step):
                    log.write(step, self.optimizer.schedule.rate(step - 1), self.programs.timed)
                if plan.is_to_save(step):
                    save(step)
                # Before an evaluation, which may take long: the resumed run makes it.
                self._end_if_signalled(step, save)
                ends = evaluations.end_at(step)
                self._end_if_signalled(step, save)
                if ends:
                    save(step)
                    break

    def _end_if_signalled(self, step: int, save: "Saver") -> None:
        """Saves a checkpoint and ends the run if a signal came to one of its processes.

        Raises:
          Interrupted: a signal came.
        """
        signal = runtime.signal_of_run()
        if signal:
            name = runtime.name_of_signal(signal)
            logging.info("%s: this ends with a checkpoint of step %d.", name, step)
            save(step, whole=True)
            raise runtime.Interrupted(step, save.folder.path, signal)

    def _begin(
        self,
        batches: Batches,
        plan: RunPlan,
        folder: tf1.CheckpointFolder,
        run_settings: Mapping[str, Any],
    ) -> int:
        """Restores the last checkpoint, and checks the arguments of `train`; returns the step."""
        self.step_config.check_batch_size(plan.batch_size, self.strategy.num_replicas_in_sync)
        step = self.restore(folder, run_settings)
        if runtime.has_peers():
            intervals = dataclasses.asdict(plan.intervals)
            self._check_same_everywhere(batches, {**run_settings, **intervals})
        if step >= plan.last_step:
            tf1.check_finished_run(folder.latest(), run_settings)
            logging.info("Already trained for %d steps of %d.", step, plan.last_step)
        else:
            logging.info("%s", plan.describe())
            products = described(self.step_config, self.strategy)
            if products:
                logging.info("%s", products)
            self._check_beginning()
        self.programs.begin(batches.shape)
        return step

    @contextlib.contextmanager
    def _running(
        self, step: int, last_step: int, folder: tf1.CheckpointFolder
    ) -> Iterator[Progress]:
        """A context that notices signals, shows progress, and waits for the last checkpoint."""
        with (
            runtime.noticing_signals(),
            Progress("train", last_step, "steps", done=step) as progress,
            folder.whole_at_end(),
        ):
            yield progress

    def run_steps(
        self, iterator: Iterator, step: int, stop: int, progress: Progress | None = None
    ) -> tuple[int, dict[str, float]]:
        """Makes the updates of steps `step` to `stop` - 1.

        Args:
          iterator: the iterator of `distributed_batches`; the next batch is that of `step`.
          step: number of updates made before.
          stop: number of updates made afterwards.
          progress: updated about every second; a process without peers then also checks for
            signals, and stops early.

        Returns:
          The number of updates made afterwards; and by name the mean of each loss over the steps
          that were not skipped, and their number as kept_steps.
        """
        totals = np.zeros(len(self.steps.loss_names) + 1, np.float32)
        # Processes must make the same calls: collective operations are numbered within a call.
        whole = progress is None or runtime.has_peers()
        is_remote = distribution.remote_hosts(self.strategy)
        train = self._train_remotely if is_remote else self.steps.train
        while step < stop:
            num_steps = self.programs.steps_of_call(step, stop, whole=whole)
            with self.programs.call(step, num_steps):
                totals = train(totals, iterator, tf.constant(step), tf.constant(num_steps))
                totals = totals.numpy()  # waits for the devices
            step += num_steps
            means = totals[:-1] / max(totals[-1], np.float32(1))
            if progress:
                if step == stop:
                    progress.said()  # mostly a log line follows
                progress.update(step, f", loss {means[0]:.4f}")
            if not whole and runtime.signal_came():
                break
        losses = dict(zip(self.steps.loss_names, means.tolist(), strict=True))
        return step, losses | {"kept_steps": float(totals[-1])}

    def _train_remotely(
        self, totals: np.ndarray, iterator: Iterator, step: tf.Tensor, num_steps: tf.Tensor
    ) -> tf.Tensor:
        """As `Steps.train`, on the devices of another host: this process makes the batches."""
        first_step = int(step)
        for number in range(first_step, first_step + int(num_steps)):
            batch = next(iterator)
            with distribution.on_remote_host(self.strategy):
                so_far = tf.convert_to_tensor(totals)
                totals = self.steps.train_on(so_far, batch, tf.constant(number))
        return totals

    def _checked(
        self, losses: dict[str, float], first: int, step: int, folder: tf1.CheckpointFolder
    ) -> tuple[dict[str, float], int]:
        """The losses of steps `first` to `step` - 1, and the number of those not skipped.

        Raises:
          InputError: the losses are not finite, or a checkpoint could not be written.
        """
        folder.raise_error()
        kept_steps = round(losses.pop("kept_steps"))
        scale = self.steps.loss_scale  # None unless steps may be skipped
        if kept_steps == 0 and scale.scale.numpy() > scale.LEAST:
            losses = {}  # the next steps have a lower scale
        elif kept_steps == 0 or not np.isfinite(list(losses.values())).all():
            received = "a loss of {loss} with gradients of norm {gradient_norm}".format(**losses)
            if kept_steps == 0:
                received = "gradients beyond float16 in every step, with the least loss scale,"
            rate = max(map(self.optimizer.schedule.rate, (first, step - 1)))
            raise InputError(
                f"{received} between steps {first} and {step}, at a learning rate of {rate:g}",
                "finite numbers; the learning rate is most likely too high",
                f"start again with {'--precision=bfloat16, or ' if scale else ''}a lower "
                f"--learning_rate or a longer warm-up; last saved: {folder.latest() or 'none'}",
            )
        num_steps = step - first
        if kept_steps < num_steps:
            logging.warning(
                "%d of %d steps up to %d were skipped, beyond float16. The loss scale is now %g.",
                num_steps - kept_steps,
                num_steps,
                step,
                scale.scale.numpy(),
            )
        return losses, kept_steps

    def _check_beginning(self) -> None:
        """Refuses initial weights that are not finite; logs warnings and sizes."""
        for name, weight in (self.steps.weights | self.steps.frozen).items():
            if not np.isfinite(weight.numpy()).all():
                received = f"initial weights with NaN or infinity in {name}"
                raise InputError(received, "finite numbers", "give an earlier checkpoint")
        if warning := self.optimizer.schedule.warning():
            logging.warning("%s", warning)
        trained = sum(weight.shape.num_elements() for weight in self.steps.weights.values())
        logging.info("%d of %d parameters are trained.", trained, self.model.count_params())

    def _check_same_everywhere(self, batches: Batches, settings: Mapping[str, Any]) -> None:
        """Raises InputError if processes of the run differ in settings, data or weights."""
        # The path of the same weights may differ between hosts.
        settings = {name: value for name, value in settings.items() if name != "init_checkpoint"}
        weights = 0
        for weight in (self.steps.weights | self.steps.frozen).values():
            weights = zlib.crc32(weight.numpy().tobytes(), weights)
        flags = zlib.crc32(json.dumps(settings, sort_keys=True).encode())
        records = batches.fingerprint()  # first: it is one of the settings, too
        runtime.check_same({"records": records, "flags": flags, "first weights": weights})

    # ------------------------------------------------------------------ checkpoints

    def state(self, step: int, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a checkpoint: weights, moments, step, and settings to compare on resume.

        The values are in this host's memory, and later steps do not change them: TensorFlow copies
        a weight on a CPU if a step updates it while its value is still in use.
        """
        variables = self.steps.weights | self.steps.frozen | self.steps.slots
        return {
            tf1.GLOBAL_STEP: np.int64(step),
            tf1.RUN_SETTINGS: json.dumps(dict(run_settings), sort_keys=True),
            **{name: distribution.on_this_host(variable) for name, variable in variables.items()},
        }

    def restore(self, folder: tf1.CheckpointFolder, run_settings: Mapping[str, Any]) -> int:
        """Loads the folder's latest checkpoint into model and moments; returns its step, or 0.

        Raises:
          InputError: the checkpoint is damaged, of another model, or was not written by a run.
        """
        prefix = folder.latest()
        runtime.check_same({"latest checkpoint in --output_dir": tf1.step_of(prefix or "")})
        if prefix is None:
            return 0
        reader = tf1.CheckpointReader(prefix)
        tf1.check_of_run(reader)
        tf1.warn_of_changed_settings(reader.run_settings(), run_settings)
        # No weights are required: the run saved those that its model has.
        load_weights(self.model, tf1.open_tf1(prefix), required="")
        for name, slot in self.steps.slots.items():
            if name in reader.shapes:
                slot.assign(reader.read(name))
            else:
                initial = LossScale.FIRST if name == LossScale.NAME else 0
                logging.warning("%s has no %s; it starts at %g.", prefix, name, initial)
                slot.assign(tf.cast(tf.fill(slot.shape, initial), slot.dtype))
        step = int(reader.read(tf1.GLOBAL_STEP))
        logging.info("Loaded checkpoint %s, step %d.", prefix, step)
        return step


@dataclasses.dataclass
class Saver:
    """Saves the state of a trainer in a folder, once for each step.

    Attributes:
      last: the step that was saved last.
    """

    trainer: Trainer
    folder: tf1.CheckpointFolder
    run_settings: Mapping[str, Any]
    last: int = -1

    def __call__(self, step: int, *, whole: bool = False) -> None:
        """Starts to write the checkpoint of a step; `whole`: and waits until it is written."""
        with HANGS.watched(f"save the checkpoint of step {step}"):
            if step != self.last:
                self.folder.wait()  # until the previous one is written: memory for one copy
                self.folder.start_saving(step, self.trainer.state(step, self.run_settings))
                self.last = step
            if whole:
                self.folder.wait()
