"""The plan of a run: its steps, the records of each step, and when to log, save and evaluate.

    fine-tuning    epochs   int(examples / batch * epochs) steps, as the original  `of_epochs`
    pre-training   steps    --num_train_steps                                      `RunPlan`
    `fit`          epochs   Keras's, each of which may end with a short batch      `steps_of_fit`

A run orders its records by a seed, one epoch after the other. Step t reads the records at positions
`position(t)` to `position(t + 1)` - 1 of this order: the records of a resumed run depend on its
step alone. Loads no TensorFlow.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

from bert_tf.errors import InputError
from bert_tf.training.options import Intervals


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The steps of a run.

    Attributes:
      num_records: R, in the files; windows, if texts are cut into windows.
      batch_size: B, records of a step, over all devices and micro-batches.
      num_train_steps: T, of the learning rate's schedule.
      last_step: the step at which training ends, at most T.
      seed: the seed of the order of the records.
      intervals: steps between logging, saving and evaluation.
      order_batch_size: the batch size that the order is made for: the first one of the run.
      offset: added to positions if the batch size has changed.
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
        """Sets the defaults that depend on other attributes."""
        defaults = {
            "order_batch_size": self.order_batch_size or self.batch_size,
            "intervals": self.intervals.of_run(self.last_step),
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)  # the class is frozen

    @classmethod
    def of_epochs(
        cls, *, num_records: int, num_counted: int, batch_size: int, num_epochs: float, **rest: Any
    ) -> Self:
        """The plan of so many epochs: int(num_counted / batch_size * num_epochs) steps.

        Args:
          num_records: the number of records in the files.
          num_counted: items of an epoch: records, or for SQuAD questions, as in the original.
          batch_size: records of a step.
          num_epochs: may be a fraction.
          **rest: further attributes.

        Raises:
          InputError: there would be no step.
        """
        steps = int(num_counted / batch_size * num_epochs)
        if steps < 1:
            flags = f"--train_batch_size={batch_size}, --num_train_epochs={num_epochs}"
            received = f"{num_counted} examples, {flags}"
            remedy = "use a smaller batch or more epochs"
            raise InputError(received, "enough for one update", remedy)
        return cls(
            num_records=num_records,
            batch_size=batch_size,
            num_train_steps=steps,
            last_step=steps,
            **rest,
        )

    # ------------------------------------------------------------------------ records

    def position(self, step: int) -> int:
        """The position of the first record of a step in the order of the records."""
        return step * self.batch_size + self.offset

    @property
    def times_read(self) -> float:
        """How often the run reads each record, on average."""
        return self.position(self.last_step) / self.num_records

    def describe(self) -> str:
        """A sentence for the log."""
        steps = f"{self.last_step} steps of {self.batch_size} of {self.num_records} records"
        text = f"{steps} train on each record {self.times_read:.2f} times"
        if self.times_read < 0.995:
            text += f": on {self.times_read:.0%} of them once, on the rest never"
        return f"{text}."

    def resumed(self, step: int, saved: Mapping[str, Any]) -> Self:
        """The plan of a resumed pre-training, whose batch size may differ.

        A run with 8 records a step that is resumed after step 50 with 16 has read 400 records, as
        if there had been 25 steps: its offset is -400. The order stays that of the first size.

        Args:
          step: the step of the checkpoint.
          saved: the settings in the checkpoint of a run on the same records.
        """
        last_size = saved["train_batch_size"]
        order_batch_size, offset = saved.get("data_order", (last_size, 0))
        offset += step * (last_size - self.batch_size)
        return dataclasses.replace(self, order_batch_size=order_batch_size, offset=offset)

    def check_resumed(self, folder: str, saved: Mapping[str, Any]) -> None:
        """Refuses another batch size for a resumed fine-tuning.

        Args:
          folder: the folder of the run, for messages.
          saved: the settings of the run that is resumed.

        Raises:
          InputError: the batch size differs; some records would be read twice, and others not.
        """
        size = saved.get("train_batch_size", self.batch_size)
        if size != self.batch_size:
            raise InputError(
                f"--train_batch_size={self.batch_size} in {folder}, where a run began with {size}",
                "the same size to the end of the run",
                f"give {size}, with --gradient_accumulation_steps if memory is short, or another "
                "--output_dir",
            )

    def settings(self) -> dict[str, Any]:
        """The attributes that affect the trained weights, as recorded in checkpoints."""
        settings: dict[str, Any] = {"num_records": self.num_records}
        order = (self.order_batch_size, self.offset)
        if order != (self.batch_size, 0):
            settings["data_order"] = order
        return settings

    # ------------------------------------------------------------------------ what is due

    def stops(self, step: int) -> Iterator[int]:
        """The later steps at which the compiled loop stops to log, save, evaluate or end."""
        intervals = self.intervals
        lengths = (intervals.log_steps, intervals.save_checkpoints_steps, intervals.eval_steps)
        while step < self.last_step:
            candidates = [self.last_step, step + intervals.iterations_per_loop]
            for length in lengths:
                if length:
                    candidates.append((step // length + 1) * length)
            step = min(candidates)
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


def _is_due(step: int, interval: int | None) -> bool:
    """Whether a step is a multiple of an interval; 0 and None: never."""
    return bool(interval) and step % interval == 0


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
    """The number of updates of a call of Keras's `fit`, at least 1.

    Args:
      num_rows: the number of rows of arrays; None: the data are batches.
      num_batches: the number of batches of a dataset; None: unknown.
      batch_size, validation_split, steps_per_epoch, epochs, initial_epoch: as for `fit`.

    Raises:
      InputError: the data have no length.
    """
    steps = steps_per_epoch or num_batches
    if steps is None and num_rows is not None:
        rows = math.floor(num_rows * (1 - validation_split))  # as Keras splits
        steps = math.ceil(rows / (batch_size or 32))
    if steps is None:
        expected = "the number of steps, for the schedule"
        remedy = "give steps_per_epoch, or compile the model"
        raise InputError("data of unknown length", expected, remedy)
    return max(1, steps * (epochs - initial_epoch))  # Keras itself refuses empty data
