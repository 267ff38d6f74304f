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


class StopTraining(Exception):  # noqa: N818  (not an error)
    """Raised by an evaluation to end training; its message is the reason."""


class Interrupted(SystemExit):
    """Raised by the training loop after a SIGTERM, once a checkpoint is saved; exit code 0."""

    def __init__(self, step: int, output_dir: str):
        super().__init__(0)
        self.step, self.output_dir = step, output_dir


_sigterm = threading.Event()  # set from a SIGTERM to the `Interrupted` that answers it


def sigterm_came() -> bool:
    """Whether a SIGTERM came within `noticing_sigterm` and has not yet ended a run."""
    return _sigterm.is_set()


@contextlib.contextmanager
def noticing_sigterm() -> Iterator[Callable[[], bool]]:
    """Defers SIGTERM: within this context it does not end the process. Gives `sigterm_came`.

    The signal is remembered beyond the context, unless that ends by `Interrupted`. In a thread
    other than the main one the handling of signals cannot be changed, and the function is False.
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
