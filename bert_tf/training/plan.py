"""How a run reads its records: how many steps, which records a step reads, when what is due.

    fine-tuning    epochs   int(examples / batch * epochs) steps, as the original  `of_epochs`
    pre-training   steps    as many as are given                                   `RunPlan`
    `fit`          epochs   Keras's, each of which may end with a short batch      `steps_of_fit`

Every training asks this for its steps. A run orders its records by a seed; step t reads those at
the positions `position(t)` to `position(t + 1)` - 1 of this order, whose epochs follow each other.
So what a resumed run reads is a function of its step alone. Loads no TensorFlow.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

from bert_tf.errors import InputError
from bert_tf.training.options import Intervals


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run does at which step.

    Attributes:
      num_records: R, in the files: windows where texts or sentences are cut into windows.
      batch_size: B, records of a step, over all devices and micro-batches.
      num_train_steps: T, of the learning rate's schedule.
      last_step: where training ends, at most T.
      seed: of the order of the records.
      intervals: how often to log, save and evaluate.
      order_batch_size: the batch size by which the records are ordered, that the run began with.
      offset: of positions, where the batch size has changed.
    """

    num_records: int
    batch_size: int
    num_train_steps: int
    last_step: int
    seed: int
    intervals: Intervals = dataclasses.field(default_factory=Intervals)
    order_batch_size: int = 0
    offset: int = 0

    def __post_init__(self):
        """Completes what follows from the rest."""
        values = {"order_batch_size": self.order_batch_size or self.batch_size}
        values["intervals"] = self.intervals.of_run(self.last_step)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_epochs(
        cls, *, num_records: int, num_counted: int, batch_size: int, num_epochs: float, **rest: Any
    ) -> Self:
        """The plan of epochs, as of the original: int(num_counted / batch_size * num_epochs) steps.

        Args:
          num_records: in the files.
          num_counted: what an epoch counts: records, or of SQuAD the questions, as the original.
          batch_size: records of a step.
          num_epochs: may be a fraction.
          **rest: further attributes.

        Raises:
          InputError: there would be no step.
        """
        steps = int(num_counted / batch_size * num_epochs)
        if steps < 1:
            sizes = f"{batch_size}, --num_train_epochs={num_epochs}"
            received = f"{num_counted} examples, --train_batch_size={sizes}"
            remedy = "use a smaller batch or more epochs"
            raise InputError(received, "enough for one update", remedy)
        sizes = {"num_records": num_records, "batch_size": batch_size}
        return cls(**sizes, num_train_steps=steps, last_step=steps, **rest)

    # ------------------------------------------------------------------------ records

    def position(self, step: int) -> int:
        """The position in the order of the records at which step t begins."""
        return step * self.batch_size + self.offset

    @property
    def times_read(self) -> float:
        """How often the run reads each record, on average."""
        return self.position(self.last_step) / self.num_records

    def describe(self) -> str:
        """In words, for the log."""
        steps = f"{self.last_step} steps of {self.batch_size} of {self.num_records} records"
        described = f"{steps} train on each record {self.times_read:.2f} times"
        if self.times_read < 0.995:
            described += f": on {self.times_read:.0%} of them once, on the rest never"
        return f"{described}."

    def resumed(self, step: int, saved: Mapping[str, Any]) -> Self:
        """The plan of a pre-training that goes on, perhaps with another batch size.

        A run of 8 records a step that goes on after step 50 with 16 has read 400 records, as if
        there had been 25 steps: its offset is -400, and the first size orders the records.

        Args:
          step: of the checkpoint.
          saved: the settings of the run that wrote it, of the same records.
        """
        last_size = saved["train_batch_size"]
        order_batch_size, offset = saved.get("data_order", (last_size, 0))
        offset += step * (last_size - self.batch_size)
        return dataclasses.replace(self, order_batch_size=order_batch_size, offset=offset)

    def check_resumed(self, folder: str, saved: Mapping[str, Any]) -> None:
        """Refuses to go on with another batch size in fine-tuning, whose epochs end with the run.

        Args:
          folder: of the run, for messages.
          saved: the settings of the run that is resumed.

        Raises:
          InputError: its batches were of another size: records would be read twice, and others not.
        """
        size = saved.get("train_batch_size", self.batch_size)
        if size != self.batch_size:
            received = f"--train_batch_size={self.batch_size} in {folder}, where a run began with "
            remedy = f"give {size}, with --gradient_accumulation_steps if memory is short, or "
            remedy += "another --output_dir"
            raise InputError(f"{received}{size}", "the same size to the end of the run", remedy)

    def settings(self) -> dict[str, Any]:
        """What of the plan decides the weights; recorded in checkpoints."""
        settings: dict[str, Any] = {"num_records": self.num_records}
        order = self.order_batch_size, self.offset
        if order != (self.batch_size, 0):
            settings["data_order"] = order
        return settings

    # ------------------------------------------------------------------------ what is due

    def stops(self, step: int) -> Iterator[int]:
        """The steps after `step`, up to the last one, at which something is due."""
        intervals = self.intervals
        regular = (intervals.log_steps, intervals.save_checkpoints_steps, intervals.eval_steps)
        while step < self.last_step:
            due = [(step // every + 1) * every for every in regular if every]
            step = min(self.last_step, step + intervals.iterations_per_loop, *due)
            yield step

    def is_to_log(self, step: int) -> bool:
        """Whether losses are logged after a step."""
        return step == self.last_step or _is_due(step, self.intervals.log_steps)

    def is_to_save(self, step: int) -> bool:
        """Whether a checkpoint is written after a step."""
        return step == self.last_step or _is_due(step, self.intervals.save_checkpoints_steps)

    def is_to_evaluate(self, step: int) -> bool:
        """Whether the model is evaluated after a step; at step 0 before the first one."""
        return _is_due(step, self.intervals.eval_steps)


def _is_due(step: int, every: int | None) -> bool:
    """Whether something done every so many steps, 0 for never, is due after a step."""
    return bool(every) and step % every == 0


def steps_of_fit(
    num_rows: int | None,
    num_batches: int | None = None,
    *,
    batch_size: int | None = None,
    validation_split: float = 0.0,
    steps_per_epoch: int | None = None,
    epochs: int = 1,
    initial_epoch: int = 0,
) -> int:
    """The updates of a call of Keras's `fit`, at least 1; steps_per_execution does not change them.

    Args:
      num_rows: of arrays; None of batches.
      num_batches: of a dataset; None if that is unknown.
      batch_size, validation_split, steps_per_epoch, epochs, initial_epoch: as of `fit`.

    Raises:
      InputError: the data have no length.
    """
    steps = steps_per_epoch or num_batches
    if steps is None and num_rows is not None:
        rows = math.floor(num_rows * (1 - validation_split))  # as Keras splits
        steps = math.ceil(rows / (batch_size or 32))
    if steps is None:
        received, expected = "data of unknown length", "the number of steps, for the schedule"
        remedy = "give steps_per_epoch, or compile the model"
        raise InputError(received, expected, remedy)
    return max(1, steps * (epochs - initial_epoch))  # of none Keras says it
