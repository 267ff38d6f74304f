"""Makes what takes long to make once for all processes that share the tests."""

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
    """Returns `make(new folder)`, pickled by the first process and read by the others.

    Args:
      factory: makes the folder.
      name: a name, the same in all processes.
      make: writes into the folder; its result can be pickled.
    """
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    result_file = base / f"{name}.pickle"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result_file.exists():
            value = make(factory.mktemp(name))
            result_file.write_bytes(pickle.dumps(value))
        return pickle.loads(result_file.read_bytes())
