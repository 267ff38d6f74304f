"""Starts commands, also in processes that have TensorFlow loaded: that saves its import.

Run by `processes.Nursery` as a process of its own. A line of JSON comes in for each command; its
process id goes out, and its status when it has ended. Only packages of others are imported here:
the modules of a command are loaded in its own process.
"""

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys

from bert_tf import __main__ as bert_tf_main
from bert_tf import runtime

PACKAGES = ("tensorflow", "keras", "scipy", "safetensors.numpy", "tokenizers", "matplotlib.pyplot")
POLL_SECONDS = 0.01


def serve() -> dict:
    """Forks a process for each request; only there it returns, with the request."""
    running: set[int] = set()
    begun = b""
    while True:
        for pid in [*running]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})
        if not select.select([0], [], [], POLL_SECONDS)[0]:
            continue
        block = os.read(0, 1 << 16)
        if not block:
            os._exit(0)
        *lines, begun = (begun + block).split(b"\n")
        for line in lines:
            pid = os.fork()
            if not pid:
                return json.loads(line)
            running.add(pid)
            say({"pid": pid})


def say(answer: dict) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def become(request: dict) -> None:
    """Makes this the process of the command: its session, folder, files, limits, faults.

    SIGINT has its effect, though a shell ignores it for what it starts in the background.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL if request["cold"] else signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.update(request["variables"])
    for number, path in enumerate(request["streams"]):
        reopen(number, path)
    if request["cpus"]:
        os.sched_setaffinity(0, request["cpus"])
    if request["cold"]:
        limit(request["limits"])
        os.execv(sys.executable, [sys.executable, *request["words"]])
    renew_streams()
    ctypes.CDLL(None).faults_configure()
    limit(request["limits"])
    sys.argv = ["bert-tf", *request["words"]]


def reopen(number: int, path: str | None) -> None:
    """A standard stream: a file, None for a closed one, or | for one that nobody reads."""
    if path is None:
        os.close(number)
        return
    if path == "|":
        reads, opened = os.pipe()
        os.close(reads)
    else:
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
    os.dup2(opened, number)  # open streams of 0 to 2: another number
    os.close(opened)


def renew_streams() -> None:
    """Makes Python's streams as at its start; the nursery's are of other kinds of files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        how = {"mode": "w", "buffering": 1, "errors": "backslashreplace"} if number == 2 else {}
        stream = open(number, **({"mode": "rw"[number > 0]} | how), closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)  # which keeps it open


def limit(limits: dict[str, int]) -> None:
    """Sets limits of resources by their names after RLIMIT_."""
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


if __name__ == "__main__":
    runtime.prepare_process()
    for package in PACKAGES:
        importlib.import_module(package)
    become(serve())
    sys.exit(bert_tf_main.main())
