"""Runs a script in several processes of one run, as a supervisor would start them."""

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
# Processes are forked from a process that has loaded TensorFlow, because loading takes seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tensorflow", "keras"])


def free_ports(count: int) -> list[int]:
    """Different ports that no process listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("127.0.0.1", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def run_script(line: Sequence[str], log: pathlib.Path, variables: Mapping[str, str]) -> None:
    """Runs a script in this process, as `python` would run it in a new one.

    Args:
      line: the script's path and its flags.
      log: the file to which its output is appended.
      variables: the variables of its environment.
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
        # As Python does; multiprocessing would print the traceback in another form.
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


class Processes:
    """The processes of one run; the output of each goes to a file."""

    def __init__(self, count: int, folder: pathlib.Path, script: str, **flags: Any):
        """Starts the processes.

        Args:
          count: the number of processes.
          folder: the folder for the files of their output; made if it is missing.
          script: the name of the script.
          **flags: the flags, the same for all processes.
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
        """The output of a process so far, including that before it was started again."""
        return self._log(index).read_text()

    def wait_until_said(self, index: int, text: str, *, times: int = 1) -> None:
        """Waits until a text is in the output of a process `times` times."""
        deadline = time.monotonic() + SECONDS
        while self.said(index).count(text) < times:
            assert time.monotonic() < deadline, self.all_said()
            assert self._processes[index].is_alive(), self.all_said()
            time.sleep(0.02)

    def threads(self, index: int) -> int:
        """The number of threads of a process."""
        return len(os.listdir(f"/proc/{self._processes[index].pid}/task"))

    def signal(self, index: int, number: int) -> None:
        """Sends a signal to a process."""
        os.kill(self._processes[index].pid, number)

    def start_again(self, index: int) -> int | None:
        """Waits for the end of a process and starts it again; returns the exit code."""
        code = self._code(index)
        self._processes[index] = self._start(index)
        return code

    def wait(self) -> list[int | None]:
        """Waits for the end of all processes; returns their exit codes, None for one that hangs."""
        return [self._code(index) for index in range(len(self._processes))]

    def _code(self, index: int) -> int | None:
        self._processes[index].join(SECONDS)
        return self._processes[index].exitcode

    def all_said(self) -> str:
        """The end of the output of every process, for messages."""
        return "\n".join(f"--- {i}\n{self.said(i)[-4000:]}" for i in range(len(self._processes)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            process.kill()
            process.join()
