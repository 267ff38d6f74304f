"""When training looks up from its steps: to log, to save, to evaluate, to stop."""

import dataclasses

from bert_tf.errors import InputError


class StopTraining(Exception):  # noqa: N818  (no error: it is asked for)
    """Raised by an evaluation after which training shall not go on; says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """How often the host looks up from training; all in steps."""

    iterations_per_loop: int = 1000  # at most so many in one call of the compiled loop
    log_steps: int = 100  # 0, here and below: only at the end
    save_checkpoints_steps: int = 1000
    eval_steps: int = 0

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            least = 1 if name == "iterations_per_loop" else 0
            if value < least:
                raise InputError(
                    received=f"--{name}={value}",
                    expected=f"{least} or more",
                    remedy=f"correct --{name}",
                )

    def next_stop(self, step: int, last: int) -> int:
        """The next step after `step` at which there is something to do."""
        stops = [last, step + self.iterations_per_loop]
        for every in (self.log_steps, self.save_checkpoints_steps, self.eval_steps):
            if every:
                stops.append((step // every + 1) * every)
        return min(stops)

    @staticmethod
    def is_due(step: int, every: int) -> bool:
        """Whether what comes every so many steps comes after `step`."""
        return every > 0 and step % every == 0
