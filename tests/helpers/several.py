"""A script in several processes that make up one run, as a supervisor would start them."""

import json
import multiprocessing
import os
import pathlib
import runpy
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from walking import COMPILE_QUICKLY, SECONDS, command

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # as commands set it before TensorFlow loads
# Processes are forked from one that has loaded TensorFlow, which takes seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tensorflow", "keras"])


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run_script(line: Sequence[str], log: pathlib.Path, variables: Mapping[str, str]) -> None:
    """Runs a script in this process, as `python` would run it in a new one.

    Args:
      line: the script's path and its flags.
      log: a file to which its output is appended.
      variables: of its environment.
    """
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(variables)
    sys.argv = [*line]
    try:
        runpy.run_path(line[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as Python ends a program; multiprocessing would not
        sys.exit(1)


class Processes:
    """The processes of one run; what each says goes to a file."""

    def __init__(self, count: int, folder: pathlib.Path, script: str, **flags: Any):
        """Starts them.

        Args:
          count: how many.
          folder: of their files; made if it is not there.
          script: by its name.
          flags: the same for all.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._line = command(script, **flags)[1:]
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._processes = [self._start(index) for index in range(count)]

    def _start(self, index: int) -> multiprocessing.Process:
        cluster = {"worker": self._addresses}
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        variables = {**os.environ, **COMPILE_QUICKLY, **QUIET, "TF_CONFIG": json.dumps(config)}
        self._log(index).touch()
        process = FORKS.Process(
            target=run_script, args=(self._line, self._log(index), variables), daemon=True
        )
        process.start()
        return process

    def _log(self, index: int) -> pathlib.Path:
        return self._folder / f"process_{index}.log"

    def said(self, index: int) -> str:
        """All that a process has said so far, also before it began again."""
        return self._log(index).read_text()

    def wait_until_said(self, index: int, text: str, *, times: int = 1) -> None:
        """Waits until a process has said something so often."""
        deadline = time.monotonic() + SECONDS
        while self.said(index).count(text) < times:
            assert time.monotonic() < deadline, self.all_said()
            assert self._processes[index].is_alive(), self.all_said()
            time.sleep(0.02)

    def threads(self, index: int) -> int:
        """How many threads a process has."""
        return len(os.listdir(f"/proc/{self._processes[index].pid}/task"))

    def signal(self, index: int, number: int) -> None:
        """Sends a signal to a process."""
        os.kill(self._processes[index].pid, number)

    def start_again(self, index: int) -> int | None:
        """What a supervisor does when a process has ended; returns the exit code."""
        code = self._code(index)
        self._processes[index] = self._start(index)
        return code

    def wait(self) -> list[int | None]:
        """Waits for the end of all; their exit codes, None for one that hangs."""
        return [self._code(index) for index in range(len(self._processes))]

    def _code(self, index: int) -> int | None:
        self._processes[index].join(SECONDS)
        return self._processes[index].exitcode

    def all_said(self) -> str:
        """For messages: the end of what every process said."""
        return "\n".join(f"--- {i}\n{self.said(i)[-4000:]}" for i in range(len(self._processes)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
            process.join()
