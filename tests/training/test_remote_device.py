"""Devices of another process, as those of a TPU that is another machine, are fed from this one."""

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import remote_training
import small
from several import free_ports
from small_runs import RECORDS

from bert_tf.training import distribution

# A model this small trains no faster for being compiled well.
ENVIRONMENT = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}
SECONDS = 300


@contextlib.contextmanager
def started(log: pathlib.Path, *arguments: str) -> Iterator[subprocess.Popen]:
    """The program in a process that is killed if it does not end by itself."""
    command = [sys.executable, remote_training.__file__, *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[dict, dict]:
    """What `remote_training` finds, on both devices there and on this process's own."""
    folder = tmp_path_factory.mktemp("remote")
    ports = free_ports(2)
    address = f"127.0.0.1:{ports[0]}"
    # The worker has no way to the process that feeds it, as a TPU's may have none: no name ends
    # with .invalid.
    own_address = f"own.invalid:{ports[1]}"
    logs = [folder / "worker.log", folder / "train.log"]
    with (
        started(logs[0], "serve", address),
        started(logs[1], "train", address, own_address, str(folder)) as training,
    ):
        one = distribution.make_strategy("one")
        here = remote_training.results(one, str(folder / "here"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            training.wait(timeout=SECONDS)
    assert training.returncode == 0, "\n".join(log.read_text()[-3000:] for log in logs)
    return pickle.loads((folder / "results.pickle").read_bytes()), here


def test_a_run_on_remote_devices_is_one_on_the_own(runs):
    there, here = runs
    assert there["device"] == remote_training.DEVICES[0]
    assert here["device"].startswith("/job:localhost/")
    assert list(there["losses"]) == list(here["losses"]) == [4, 6]
    for step, losses in here["losses"].items():
        assert there["losses"][step] == pytest.approx(losses, rel=1e-5)
    assert there["evaluation"] == pytest.approx(here["evaluation"], rel=1e-5)
    np.testing.assert_array_equal(there["rows"], np.arange(RECORDS))
    small.close(there["predicted"], here["predicted"])
    assert there["checkpoint"].keys() == here["checkpoint"].keys()
    for name, value in here["checkpoint"].items():
        if value.dtype == np.float32:
            small.close(there["checkpoint"][name], value, tolerance=1e-5)
