"""Commands as processes that meet faults, and the files that they leave.

`Nursery` starts a process that loads TensorFlow once, and forks for each command. A fault happens
at a call of the C library on a file in one of the folders in/, out/ and tmp/ of the command:
`faults.c`, loaded by LD_PRELOAD, counts these calls in all processes of the command. Needs Linux
and a C compiler.
"""

import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import pathlib
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping

import psutil

HERE = pathlib.Path(__file__).parent
SECONDS = 120  # a command that takes longer hangs
SECONDS_TO_END = 30  # for workers whose command was killed; they may just load TensorFlow
POLL_SECONDS = 0.002
PACKAGES = ("tensorflow", "keras", "safetensors.numpy", "tokenizers")
# Models this small train no faster for being compiled well.
VARIABLES = {
    "PYTHONPATH": str(HERE.parent),
    "PYTHONDONTWRITEBYTECODE": "1",  # AutoGraph would leave files in tmp/
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "CUDA_VISIBLE_DEVICES": "-1",
}
KINDS = ("open", "create", "read", "write", "flush", "close", "rename", "sync", "remove", "mkdir",
         "truncate", "map", "list", "lock")  # fmt: skip
STATE = struct.Struct(f"{len(KINDS)}QQQqq1024s")  # `struct state` of faults.c
Tree = dict[str, bytes]  # contents by path; folders end with a slash


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


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # negative: the signal
    stdout: str
    stderr: str
    counts: Mapping[str, int]  # calls, by kind
    fired: str  # the call and the file at which the fault happened, or ""
    seconds: float
    problems: tuple[str, ...]  # it hung; processes that outlived it


class Nursery:
    """A process that starts the commands of one folder, one after the other.

    Attributes:
      folder: the commands' current folder, with in/, out/ and tmp/.
    """

    def __init__(self, folder: pathlib.Path):
        """Starts it; takes seconds.

        Raises:
          FileNotFoundError: there is no C compiler.
        """
        self.folder = folder.resolve()
        for name in ("in", "out", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        library, source = self.folder / "faults.so", HERE / "faults.c"
        words = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        subprocess.run(words, check=True, capture_output=True)
        own = {"LD_PRELOAD": str(library), "TMPDIR": str(self.folder / "tmp")}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=self.folder,
            env=os.environ | VARIABLES | own,
        )  # fmt: skip

    def start(self, words: list[str], fault: Fault | None = None) -> "Running":
        """Starts `bert-tf` with these words."""
        state = self.folder / "state"
        state.write_bytes(bytes(STATE.size))
        variables = (fault or Fault()).variables(self.folder, state)
        line = json.dumps({"words": words, "variables": variables}) + "\n"
        self._process.stdin.write(line.encode())
        return Running(self, self.answer(SECONDS))

    def answer(self, seconds: float) -> int | None:
        """What it says: the id of a process, later its exit code; None if nothing in that time."""
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Running:
    """A command that runs."""

    def __init__(self, nursery: Nursery, pid: int):
        """Takes the first process, which leads a session of its own."""
        self._pid, self._nursery, self._code = pid, nursery, None
        self._begin = time.monotonic()

    def signal_after(self, seconds: float, number: int) -> bool:
        """Waits, then sends a signal; whether the command still ran."""
        if self._has_ended(seconds):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)
        return True

    def wait_until_stopped(self) -> bool:
        """Waits until a signal has stopped it; False where it ends before."""
        process = psutil.Process(self._pid)
        while not self._has_ended(POLL_SECONDS):
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    return True
        return False

    def _has_ended(self, seconds: float) -> bool:
        if self._code is None:
            self._code = self._nursery.answer(seconds)
        return self._code is not None

    def wait(self) -> Ended:
        """Waits for its end, and kills what is left of it."""
        problems = []
        if not self._has_ended(SECONDS):
            problems.append("it hangs")
            os.kill(self._pid, signal.SIGKILL)
            self._has_ended(SECONDS)
        seconds = time.monotonic() - self._begin
        problems += [f"{line!r} outlives it" for line in self._end_session()]
        folder = self._nursery.folder
        *counts, _, fired, _, kind, name = STATE.unpack((folder / "state").read_bytes())
        place = f"{KINDS[kind]} {name.split(bytes(1))[0].decode(errors='replace')}"
        texts = [(folder / f"stream{n}").read_text(errors="replace") for n in (1, 2)]
        by_kind = dict(zip(KINDS, counts, strict=True))
        return Ended(self._code, *texts, by_kind, place if fired else "", seconds, tuple(problems))

    def _end_session(self) -> list[str]:
        deadline, lines = time.monotonic() + SECONDS_TO_END, []
        while (left := self._session()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in left:
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
                process.kill()
        return lines

    def _session(self) -> list[psutil.Process]:
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
                if os.getsid(pid) == self._pid:
                    process = psutil.Process(pid)
                    found += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        return found


# ---------------------------------------------------------------------------- files


def tree(folder: pathlib.Path) -> Tree:
    """All files and folders below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found |= {f"{name}/": b""} if path.is_dir() else {name: path.read_bytes()}
    return found


def write_tree(folder: pathlib.Path, files: Tree) -> None:
    """Makes a folder what `tree` has read."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(content)


# ---------------------------------------------------------------------------- the nursery


def serve() -> dict:
    """Forks a process for each request; only there it returns, with the request."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            return json.loads(line)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)


def become(request: dict) -> None:
    """Makes this the process of the command: its session, streams and faults.

    SIGINT has its effect, though a shell ignores it for what it starts in the background.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(request["variables"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        path, mode = (f"stream{number}", "w") if number else (os.devnull, "r")
        opened = open(path, mode)  # noqa: SIM115
        os.dup2(opened.fileno(), number)
        how = {"buffering": 1, "errors": "backslashreplace"} if number == 2 else {}
        stream = open(number, mode, closefd=False, **how)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)  # which keeps it open
    ctypes.CDLL(None).faults_configure()
    sys.argv = ["bert-tf", *request["words"]]


if __name__ == "__main__":
    from bert_tf import __main__ as bert_tf_main
    from bert_tf import runtime

    runtime.prepare_process()
    for package in PACKAGES:
        importlib.import_module(package)
    become(serve())
    sys.exit(bert_tf_main.main())
