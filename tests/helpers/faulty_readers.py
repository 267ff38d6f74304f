"""Readers with the faults that benchmarks/fuzz_readers.py must notice."""

import os
import pathlib
import signal
import time
from collections.abc import Callable

from readers import Reader

from bert_tf.errors import InputError


def _faulty(fault: Callable[[], object]) -> Callable[[pathlib.Path], Reader]:
    """A reader with this fault on damaged input."""

    def make(folder: pathlib.Path) -> Reader:
        (folder / "file").write_bytes(b"whole")

        def read(folder: pathlib.Path) -> None:
            if (folder / "file").read_bytes() != b"whole":
                fault()
                raise InputError(f"{folder}/file", "whole", "make it whole")

        return Reader(folder, {"file": "bytes"}, read)

    return make


def _refuse_without_a_name() -> None:
    raise InputError("something", "something else", "give it")


def _sleep_through_alarms() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(99)


MAKERS = {
    "sound": _faulty(int),
    "raising": _faulty(lambda: {}["key"]),
    "nameless": _faulty(_refuse_without_a_name),
    "slow": _faulty(lambda: time.sleep(99)),
    "deaf": _faulty(_sleep_through_alarms),
    "dying": _faulty(os.abort),
    "greedy": _faulty(lambda: len(b"x" * (90 << 20))),
    "boundless": _faulty(lambda: len(b"x" * (1 << 40))),
}
