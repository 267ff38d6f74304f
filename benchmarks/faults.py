"""Injects faults into the commands, for as long as it is given, and says what came of them.

    python benchmarks/faults.py --minutes=40 --report=faults.jsonl
    python benchmarks/faults.py --repeat='{"command": "vocab", ...}'

Each trial runs a command on a tiny model with one fault, checks how it ends and what it leaves,
then gives the same command again, which has to end as if it had never been disturbed. Commands,
kinds of faults and checks are in fault_injection/: kinds.py draws the faults, trials.py says what
may come of one. Needs Linux and a C compiler; as root also full and read-only disks are
tried.

Prints a table of commands and kinds of faults: tried, fired (a fault that did not come to pass
shows nothing), and how the command ended the first time: finished in spite of it, refused with a
message, or killed. Then the failures, each with the command that repeats it. Ends with code 1 if
there is one.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import pathlib
import random
import shlex
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent / "fault_injection"))

import kinds
import processes
import trials
from catalogue import COMMANDS


def main() -> int:
    """Arguments -> trials -> table; the exit code."""
    args = parse()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults_"))
    try:
        library = processes.compile_shim(folder)
        if args.repeat:
            return repeat(json.loads(args.repeat), folder, library)
        campaign = Campaign(args)
        workers = [
            threading.Thread(target=campaign.work, args=(folder / f"{number}", library))
            for number in range(args.processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return campaign.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="commas between")
    parser.add_argument("--kinds", default=",".join(kinds.KINDS), help="of faults, commas between")
    parser.add_argument("--processes", type=int, default=2, help="commands at a time")
    parser.add_argument("--report", help="a file for all outcomes, JSON lines")
    parser.add_argument("--repeat", help="one trial, as a report or a failure gives it")
    return parser.parse_args()


def repeat(spec: trials.Spec, folder: pathlib.Path, library: pathlib.Path) -> int:
    """Makes one trial again and prints all of it."""
    slot = trials.Slot(folder / "slot", library)
    outcome = slot.run(spec)
    slot.close()
    print(outcome.said)
    print(json.dumps({**dataclasses.asdict(outcome), "said": ""}, indent=2))
    return 1 if outcome.failures else 0


class Campaign:
    """Trials by several workers, each drawn from the seed and its number."""

    def __init__(self, args: argparse.Namespace):
        self._args, self._begin = args, time.monotonic()
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._outcomes: list[trials.Outcome] = []
        self._broken: list[str] = []  # what went wrong beside the commands
        self._report = open(args.report, "w") if args.report else None  # noqa: SIM115  (`end`)

    def work(self, folder: pathlib.Path, library: pathlib.Path) -> None:
        """Makes trials in a folder until the time is over."""
        try:
            slot = trials.Slot(folder, library)
            while time.monotonic() - self._begin < 60 * self._args.minutes:
                self._one(slot, f"{self._args.seed}/{next(self._numbers)}")
            slot.close()
        except Exception:  # of the suite itself: the other worker goes on
            self._broken.append(traceback.format_exc())

    def _one(self, slot: trials.Slot, seed: str) -> None:
        rng = random.Random(seed)
        commands, chosen = self._args.commands.split(","), self._args.kinds.split(",")
        (name,) = rng.choices(commands, [COMMANDS[name].weight for name in commands])
        (kind,) = rng.choices(chosen, [kinds.WEIGHTS[kind] for kind in chosen])
        spec = kinds.draw(name, kind, slot.clean(name), f"{seed}/fault")
        if spec is None:
            return
        outcome = slot.run(spec)
        with self._lock:
            self._outcomes.append(outcome)
            if self._report:
                self._report.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
                self._report.flush()
            for text in outcome.failures:
                print(f"{name}, {kind}: {text}\n    {command_of(spec)}", flush=True)

    def end(self) -> int:
        """Prints the table; the exit code."""
        if self._report:
            self._report.close()
        print(table(self._outcomes))
        failed = [one for one in self._outcomes if one.failures]
        fired = sum(one.fired for one in self._outcomes)
        minutes = (time.monotonic() - self._begin) / 60
        print(
            f"{len(self._outcomes)} trials in {minutes:.0f} minutes, {fired} faults fired, "
            f"{len(failed)} failures; seed {self._args.seed}"
        )
        for one in failed:
            print(f"\n{'; '.join(one.failures)}\n    {command_of(one.spec)}")
        print(*self._broken, sep="\n")
        return 1 if failed or self._broken else 0


def command_of(spec: trials.Spec) -> str:
    """The command that repeats a trial."""
    return f"python benchmarks/faults.py --repeat={shlex.quote(json.dumps(spec))}"


def table(outcomes: list[trials.Outcome]) -> str:
    """Commands and kinds of faults: how many were tried and fired, and what came of them."""
    counts: dict[tuple[str, str], collections.Counter] = collections.defaultdict(
        collections.Counter
    )
    for one in outcomes:
        for row in (
            (one.spec["command"], one.spec["fault"]),
            (one.spec["command"], "all"),
            ("all", one.spec["fault"]),
            ("all", "all"),
        ):
            ended = one.end if one.fired else "not fired"
            counts[row].update(tried=1, fired=one.fired, failed=bool(one.failures), **{ended: 1})
    columns = ("tried", "fired", "finished", "refused", "killed", "stopped", "failed")
    lines = [f"{'command':<16}{'fault':<20}" + "".join(f"{name:>10}" for name in columns)]
    for command in (*COMMANDS, "all"):
        for kind in (*kinds.KINDS, "all"):
            if found := counts.get((command, kind)):
                numbers = "".join(f"{found[name]:>10}" for name in columns)
                lines.append(f"{command:<16}{kind:<20}{numbers}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
