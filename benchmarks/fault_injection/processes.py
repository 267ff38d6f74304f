"""Commands as processes: started cold or in the nursery, watched, ended; and what they did."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

import psutil

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 120  # a command that takes longer hangs
END = b"\0end\0"  # of what a stream says
POLL_SECONDS = 0.002
SECONDS_TO_END = 30  # for workers whose command was killed; they may just load TensorFlow
# Models this small train no faster for being compiled well.
VARIABLES = {
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",  # AutoGraph would leave files in tmp/
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "CUDA_VISIBLE_DEVICES": "-1",
}

KINDS = ("open", "create", "read", "write", "flush", "close", "rename", "sync", "remove", "mkdir",
         "truncate", "map", "list", "lock", "clock")  # fmt: skip
STATE = struct.Struct(f"{len(KINDS)}QQQqq1024s")  # `struct state` of faults.c


def compile_shim(folder: pathlib.Path) -> pathlib.Path:
    """Compiles faults.c.

    Raises:
      FileNotFoundError: there is no C compiler.
    """
    library = folder / "faults.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "faults.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


@dataclasses.dataclass(frozen=True)
class Calls:
    """What the shim has seen of a command and all its processes."""

    counts: Mapping[str, int]  # by kind
    fired: int
    pid: int  # of the process, the kind of call and the file at which it fired first
    kind: str
    path: str

    @classmethod
    def read(cls, path: pathlib.Path) -> "Calls":
        """Reads the file that the processes share."""
        *counts, _, fired, pid, kind, name = STATE.unpack(path.read_bytes())
        return cls(
            dict(zip(KINDS, counts, strict=True)),
            fired,
            pid,
            KINDS[kind],
            name.split(b"\0")[0].decode(errors="replace"),
        )


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done at calls of the C library; without an action they are counted.

    Attributes:
      where: folders below the current one whose files count.
      calls: kinds of `KINDS`.
      nth: at which of these calls, from 1.
      action: as faults.c has it.
      sticky: at all later ones, too.
    """

    where: tuple[str, ...] = ("in", "out", "tmp")
    calls: tuple[str, ...] = ()
    nth: int = 1
    action: str = ""
    sticky: bool = False

    def variables(self, folder: pathlib.Path, state: pathlib.Path) -> dict[str, str]:
        """The environment of a process that meets it."""
        return {
            "FAULTS_PREFIX": ":".join(str(folder / name) for name in self.where),
            "FAULTS_CALLS": ",".join(self.calls),
            "FAULTS_NTH": str(self.nth),
            "FAULTS_ACTION": self.action,
            "FAULTS_STICKY": str(int(self.sticky)),
            "FAULTS_STATE": str(state),
        }


def error(name: str) -> str:
    """The action of a call that fails.

    >>> error("EIO")
    'error-5'
    """
    return f"error-{getattr(errno, name)}"


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    pid: int
    code: int  # negative: the signal
    stdout: str
    stderr: str
    calls: Calls
    seconds: float
    hung: bool  # it had to be killed
    orphans: tuple[str, ...]  # command lines of processes that outlived it


class Nursery:
    """A process that starts the commands of one folder.

    Attributes:
      folder: the commands' current folder, with in/, out/ and tmp/.
    """

    def __init__(self, folder: pathlib.Path, library: pathlib.Path):
        """Starts it; takes seconds."""
        self.folder = folder.resolve()
        for name in ("in", "out", "tmp", "streams"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._started = 0
        self._codes: dict[int, int] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env={
                **os.environ,
                **VARIABLES,
                "LD_PRELOAD": str(library),
                "TMPDIR": str(self.folder / "tmp"),
            },
        )
        self._answers = threading.Condition()
        self._pids: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._answers:
                if "code" in answer:
                    self._codes[answer["pid"]] = answer["code"]
                else:
                    self._codes.pop(answer["pid"], None)  # of an earlier process of that number
                    self._pids.append(answer["pid"])
                self._answers.notify_all()

    def start(
        self,
        words: list[str],
        fault: Fault | None = None,
        *,
        cold: bool = False,
        limits: Mapping[str, int] | None = None,
        cpus: tuple[int, ...] = (),
        streams: Mapping[int, str | None] | None = None,
    ) -> "Running":
        """Starts a command.

        Args:
          words: what follows `bert-tf` or, if it is cold, the interpreter.
          fault: what happens at its calls.
          cold: whether a new interpreter is started.
          limits: of resources, by their names without RLIMIT_.
          cpus: to run on; empty for all.
          streams: of 0, 1 and 2 those that are no files; see `nursery.reopen`.
        """
        self._started += 1
        base = self.folder / "streams" / f"{self._started}"
        files = {0: "/dev/null", 1: f"{base}.1", 2: f"{base}.2"}
        pipes = [Pipe(path) for path in (files[1], files[2])]
        state = pathlib.Path(f"{base}.state")
        state.write_bytes(bytes(STATE.size))
        request = {
            "words": words,
            "cold": cold,
            "folder": str(self.folder),
            "variables": (fault or Fault()).variables(self.folder, state),
            "streams": list((files | dict(streams or {})).values()),
            "limits": dict(limits or {}),
            "cpus": cpus,
        }
        with self._answers:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            if not self._answers.wait_for(lambda: self._pids, SECONDS):
                raise TimeoutError("the nursery does not answer")
            return Running(self, self._pids.pop(), state, pipes)

    def code(self, pid: int, seconds: float) -> int | None:
        """The exit code of a process, or None if it still runs after so many seconds."""
        with self._answers:
            self._answers.wait_for(lambda: pid in self._codes, seconds)
            return self._codes.get(pid)

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Pipe:
    """A pipe with a name that is read from now on: no full disk holds up what comes."""

    def __init__(self, path: str):
        self._path, self._content = pathlib.Path(path), b""
        os.mkfifo(path)
        # Opened for both: nobody waits for a writer, and no writer for a reader.
        self._end = os.open(path, os.O_RDWR)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._content.endswith(END):
            self._content += os.read(self._end, 1 << 16)

    def text(self) -> str:
        """All that came; called when no process writes any more."""
        os.write(self._end, END)
        self._reader.join()
        os.close(self._end)
        self._path.unlink()
        return self._content.removesuffix(END).decode(errors="replace")


class Running:
    """A command that runs.

    Attributes:
      pid: of its first process, which leads a session of its own.
    """

    def __init__(self, nursery: Nursery, pid: int, state: pathlib.Path, pipes: list[Pipe]):
        self.pid, self._nursery, self._state, self._pipes = pid, nursery, state, pipes
        self._begin = time.monotonic()

    def signal_after(self, seconds: float, number: int) -> bool:
        """Waits, then sends a signal; whether the command still ran."""
        if self._nursery.code(self.pid, seconds) is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return True

    def wait_until_stopped(self) -> bool:
        """Waits until a signal has stopped it; False where it ends before."""
        process = psutil.Process(self.pid)
        while self._nursery.code(self.pid, POLL_SECONDS) is None:
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    return True
        return False

    def wait(self, seconds: float = SECONDS) -> Ended:
        """Waits for its end, and kills what is left of it."""
        code = self._nursery.code(self.pid, seconds)
        taken, hung = time.monotonic() - self._begin, code is None
        if hung:
            os.kill(self.pid, signal.SIGKILL)
            code = self._nursery.code(self.pid, SECONDS)
        orphans = self._end_session()
        calls = Calls.read(self._state)
        self._state.unlink()
        texts = [pipe.text() for pipe in self._pipes]
        return Ended(self.pid, code, *texts, calls, taken, hung, orphans)

    def _end_session(self) -> tuple[str, ...]:
        deadline = time.monotonic() + SECONDS_TO_END
        while (left := self._session()) and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
                process.kill()
        return tuple(lines)

    def _session(self) -> list[psutil.Process]:
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
                if os.getsid(pid) == self.pid:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found
