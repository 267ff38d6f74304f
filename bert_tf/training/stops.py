"""What is done where the steps of a run stop: save, evaluate, end."""

from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.runtime import Interrupted
from bert_tf.terminal.watchdog import WATCHDOG
from bert_tf.training.logging import TrainingLog
from bert_tf.training.settings import Intervals


class StopTraining(Exception):  # noqa: N818  (not an error)
    """Raised by an evaluation to end training; its message is the reason."""


class Stops:
    """Saves and evaluates when it is due, and ends training when it is asked to.

    A checkpoint is written while the next steps are computed.

    Attributes:
      is_last: whether an evaluation has made this stop the last one.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        log: TrainingLog,
        intervals: Intervals,
        num_train_steps: int,
        *,
        state: Callable[[int], Mapping[str, Any]],
        evaluate: Callable[[int], Mapping[str, float]] | None,
    ):
        """Takes what `Trainer.train` is given; `state` gives the tensors of a step's checkpoint."""
        self._folder, self._log, self._intervals = folder, log, intervals
        self._num_train_steps, self._state, self._evaluate = num_train_steps, state, evaluate
        self.is_last = False

    def is_due(self, step: int, every: int) -> bool:
        """Whether something done every so many steps, and at the end, is due after `step`."""
        return step == self._num_train_steps or self._intervals.is_due(step, every)

    def at(self, step: int, sigterm_came: Callable[[], bool]) -> None:
        """Saves and evaluates if it is due after `step` updates.

        Raises:
          InputError: the checkpoint could not be written.
          Interrupted: a SIGTERM came to one of the processes; a checkpoint has been written.
        """
        with WATCHDOG.watched(f"train, after step {step}: save or evaluate"):
            if saves := self.is_due(step, self._intervals.save_checkpoints_steps):
                self._save(step)
            interrupted = cluster.any_process(sigterm_came())
            if not interrupted:  # otherwise the resumed run evaluates here
                self.evaluate(step)
                interrupted = cluster.any_process(sigterm_came())
            if (self.is_last or interrupted) and not saves:
                self._save(step)
            if interrupted:
                self._folder.wait()
                raise Interrupted(step, self._folder.path)

    def evaluate(self, step: int) -> None:
        """Evaluates if it is due, and logs the results."""
        if self._evaluate and self._intervals.is_due(step, self._intervals.eval_steps):
            try:
                self._log.write_evaluation(step, self._evaluate(step))
            except StopTraining as reason:
                logging.info("Training stops at step %d: %s", step, reason)
                self.is_last = True

    def _save(self, step: int) -> None:
        self._folder.wait()  # before the state is copied: there is one copy at a time
        self._folder.start_saving(step, self._state(step))
