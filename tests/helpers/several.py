"""A script in several processes that make up one run, as a supervisor would start them."""

import json
import os
import pathlib
import socket
import subprocess
import time
from typing import Any

from walking import COMPILE_QUICKLY, SECONDS, command

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # as commands set it before TensorFlow loads


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


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
        self._folder, self._command = folder, command(script, **flags)
        self._addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._popens = [self._start(index) for index in range(count)]

    def _start(self, index: int) -> subprocess.Popen:
        cluster = {"worker": self._addresses}
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        with self._log(index).open("a") as log:
            return subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, **COMPILE_QUICKLY, **QUIET, "TF_CONFIG": json.dumps(config)},
            )

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
            assert self._popens[index].poll() is None, self.all_said()
            time.sleep(0.02)

    def threads(self, index: int) -> int:
        """How many threads a process has."""
        return len(os.listdir(f"/proc/{self._popens[index].pid}/task"))

    def signal(self, index: int, number: int) -> None:
        """Sends a signal to a process."""
        self._popens[index].send_signal(number)

    def start_again(self, index: int) -> int:
        """What a supervisor does when a process has ended; returns the exit code."""
        code = self._popens[index].wait(timeout=SECONDS)
        self._popens[index] = self._start(index)
        return code

    def wait(self) -> list[int]:
        """Waits for the end of all; their exit codes."""
        return [popen.wait(timeout=SECONDS) for popen in self._popens]

    def all_said(self) -> str:
        """For messages: the end of what every process said."""
        return "\n".join(f"--- {i}\n{self.said(i)[-4000:]}" for i in range(len(self._popens)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for popen in self._popens:
            if popen.poll() is None:
                popen.kill()
                popen.wait()
