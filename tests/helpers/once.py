"""What takes long to make, made once by the processes that share the tests."""

import fcntl
import os
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest


def make_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], Any]
) -> Any:
    """What `make` returns for a new folder; the first process makes it, the others wait for it."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = base / f"{name}.pickle"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            value = make(factory.mktemp(name))
            made.write_bytes(pickle.dumps(value))
        return pickle.loads(made.read_bytes())
