"""When training stops to log, save or evaluate, and what ends it early."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator

from bert_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervals:
    """Steps between logging, saving and evaluation."""

    iterations_per_loop: int = 1000  # the most steps in one call of the compiled loop
    log_steps: int = 100  # 0, here and below: only at the end
    save_checkpoints_steps: int = 1000
    eval_steps: int = 0

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            least = int(name == "iterations_per_loop")
            if value < least:
                raise InputError(f"--{name}={value}", f"{least} or more", f"correct --{name}")

    def next_stop(self, step: int, last: int) -> int:
        """The next step after `step` at which something is due."""
        intervals = (self.log_steps, self.save_checkpoints_steps, self.eval_steps)
        due = [(step // every + 1) * every for every in intervals if every]
        return min(last, step + self.iterations_per_loop, *due)

    @staticmethod
    def is_due(step: int, every: int) -> bool:
        """Whether something done every so many steps is due after `step`."""
        return every > 0 and step % every == 0


class StopTraining(Exception):  # noqa: N818  (no error: it is asked for)
    """Raised by an evaluation after which training shall not go on; says why."""


class Interrupted(SystemExit):
    """Raised by the training loop after a SIGTERM, when a checkpoint is written; exit code 0."""

    def __init__(self, step: int, output_dir: str):
        super().__init__(0)
        self.step, self.output_dir = step, output_dir


_sigterm = threading.Event()  # one has come, and nothing has ended by it yet


def sigterm_came() -> bool:
    """Whether a SIGTERM has come within `noticing_sigterm` that nothing has ended by yet."""
    return _sigterm.is_set()


@contextlib.contextmanager
def noticing_sigterm() -> Iterator[Callable[[], bool]]:
    """Within this context a SIGTERM does not end the process; gives a function: has one come?

    It is remembered beyond the context, unless that ends as it was asked to, by `Interrupted`.
    In another thread than the main one nothing is changed, and none ever has.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGTERM, lambda *_: _sigterm.set())
    try:
        yield sigterm_came
    except Interrupted:
        _sigterm.clear()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
