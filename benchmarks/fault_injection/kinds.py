"""Kinds of faults: how one is drawn at random for a command."""

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable

from catalogue import COMMANDS, Command
from trees import EVENTS
from trials import HERE, OUTPUTS, Clean, Spec

# Errors that a kind of call may have: (where, calls, errors)
ERRORS = (
    (OUTPUTS, ("write", "flush", "close", "sync", "truncate"), ("EIO", "ENOSPC", "EDQUOT")),
    (OUTPUTS, ("create", "mkdir", "rename", "remove"), ("EIO", "EROFS", "EACCES", "ENOSPC")),
    (OUTPUTS, ("create", "open", "list"), ("EMFILE", "ENFILE", "EIO")),
    (OUTPUTS, ("read", "map", "lock"), ("EIO", "ENOMEM", "ENOLCK")),
    (HERE, ("open", "list"), ("EMFILE", "EACCES", "EIO")),
    (HERE, ("read", "map"), ("EIO", "ENOMEM")),
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MEGABYTE = 1 << 20
COLD = 0.05  # share of trials in a new interpreter, where a kind leaves the choice
STREAMS = (  # as in `nursery.reopen`
    {"0": None}, {"1": None}, {"2": None}, {"0": None, "1": None, "2": None},
    {"1": "/dev/full"}, {"2": "/dev/full"}, {"1": "|"}, {"2": "|"},
)  # fmt: skip


def draw(name: str, kind: str, clean: Clean, seed: str) -> Spec | None:
    """A fault of that kind for a command; None if the command has no place for one."""
    rng = random.Random(seed)
    command = COMMANDS[name]
    drawn = _KINDS[kind][0](rng, command, clean)
    if drawn is None:
        return None
    spec = {"command": name, "fault": kind} | drawn
    if command.overwrites and spec["kind"] not in ("resume", "streams"):
        spec["old"] = rng.random() < 0.3
    return {"cold": rng.random() < COLD} | spec


def _call_of(rng: random.Random, clean: Clean, where: tuple, calls: tuple) -> dict | None:
    """A kind of call that the command makes there, and which one of these calls."""
    counts = clean.counts[where]
    made = [call for call in calls if counts[call]]
    if not made:
        return None
    call = rng.choice(made)
    return {"kind": "call", "where": where, "calls": [call], "nth": rng.randint(1, counts[call])}


def _error(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    where, calls, errors = rng.choice(ERRORS)
    found = _call_of(rng, clean, where, calls)
    action = f"error-{getattr(errno, rng.choice(errors))}"
    return found and found | {"action": action, "sticky": rng.random() < 0.3}


def _short(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    where, call = rng.choice([(HERE, "read"), (OUTPUTS, "read"), (OUTPUTS, "write")])
    found = _call_of(rng, clean, where, (call,))
    return found and found | {"action": "short"}


def _signal(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    """A signal at a call."""
    where = rng.choice([HERE, OUTPUTS, OUTPUTS, OUTPUTS])
    found = _call_of(rng, clean, where, tuple(clean.counts[where]))
    number, after = int(rng.choice(SIGNALS)), rng.choice(["", "after-"])
    return found and found | {"action": f"signal-{after}{number}", "signal": number}


def _time(rng: random.Random, command: Command, clean: Clean) -> dict:
    """A signal at any time."""
    cold = rng.random() < COLD
    most = clean.seconds * 1.1 + 4 * cold
    number = int(rng.choice(SIGNALS))
    return {"kind": "time", "seconds": rng.uniform(0, most), "signal": number, "cold": cold}


def _vanish(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    found = _call_of(rng, clean, HERE, ("open", "read", "close"))
    return found and found | {"action": rng.choice(["vanish", "halve"])}


def _damage(rng: random.Random, command: Command, clean: Clean) -> dict:
    files = [path for path in clean.inputs if not path.endswith("/") and EVENTS not in path]
    return {"kind": "damage", "file": f"in/{rng.choice(files)}"} | _how(rng)


def _how(rng: random.Random) -> dict:
    how = rng.choice(["flip", "flip", "cut", "cut", "gone", "folder"])
    return {"how": how, "share": rng.random(), "bit": rng.randrange(8)}


def _resume(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    if not command.trains:
        return None
    nth = rng.randint(1, clean.counts[OUTPUTS]["rename"])
    return {"kind": "resume", "nth": nth, "choice": rng.random()} | _how(rng)


def _twice(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    found = _call_of(rng, clean, OUTPUTS, ("create", "write", "close", "rename"))
    if command.verb == "export":
        return None  # both succeed: each makes a version of its own
    return found and found | {"kind": "twice", "seconds": rng.uniform(0, clean.seconds)}


def _limit(rng: random.Random, command: Command, clean: Clean) -> dict:
    resource = rng.choice(["AS", "FSIZE", "NOFILE"])
    largest = max(map(len, clean.files.values()), default=0)
    most = {  # less memory or fewer files stop Python before the first of our lines
        "AS": rng.randint(400, 6000) * MEGABYTE,
        "FSIZE": rng.randint(0, largest),
        "NOFILE": rng.randint(5, 30),
    }
    cold = resource == "AS" or rng.random() < 0.2
    return {"kind": "limit", "resource": resource, "most": most[resource], "cold": cold}


def _disk(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    if os.geteuid() or not shutil.which("mount"):
        return None
    size = 4096 * rng.randint(2, 3 + sum(map(len, clean.files.values())) // 4096)
    return {"kind": "disk", "bytes": size, "read_only": rng.random() < 0.2}


def _clock(rng: random.Random, command: Command, clean: Clean) -> dict | None:
    found = _call_of(rng, clean, HERE, ("clock",))
    seconds = rng.choice([3600, 86400, 10 * 365 * 86400]) * rng.choice([1, -1])
    return found and found | {"action": f"jump-{seconds}"}


def _streams(rng: random.Random, command: Command, clean: Clean) -> dict:
    return {"kind": "streams", "streams": rng.choice(STREAMS), "cold": True}


def _cpu(rng: random.Random, command: Command, clean: Clean) -> dict:
    return {"kind": "cpu"}


_Draw = Callable[[random.Random, Command, Clean], dict | None]
_KINDS: dict[str, tuple[_Draw, float]] = {  # how one is drawn, and how often
    "error of a call": (_error, 6),
    "short call": (_short, 1),
    "signal at a call": (_signal, 4),
    "signal at any time": (_time, 2),
    "input vanishes": (_vanish, 2),
    "input damaged": (_damage, 2),
    "run damaged": (_resume, 1),
    "two starts": (_twice, 1),
    "limit": (_limit, 1),
    "disk": (_disk, 1),
    "clock jumps": (_clock, 0.7),
    "streams": (_streams, 0.5),
    "one CPU": (_cpu, 0.2),
}
KINDS = tuple(_KINDS)
WEIGHTS = {kind: weight for kind, (_, weight) in _KINDS.items()}
