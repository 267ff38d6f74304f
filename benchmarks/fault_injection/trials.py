"""One fault in one command: what it may do, and that the same command then ends as if undisturbed.

A trial is described by a `Spec`, a JSON object, from which it can be repeated.
"""

import dataclasses
import os
import pathlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalogue import COMMANDS, TEXTS, Command
from processes import ROOT, Ended, Fault, Nursery
from trees import (
    EVENTS,
    RANDOM,
    Tree,
    damage,
    differences,
    empty,
    has_parts,
    is_temporary,
    mount,
    tree,
    unmount,
    write_tree,
    wrong_state,
)

Spec = Mapping[str, Any]
NEVER_SAID = ("Traceback", "Exception ignored", "Fatal Python error", "terminate called",
              "Segmentation fault", "*** ")  # fmt: skip
CHECKSUMMED = (".tfrecord", ".tf_record", ".index", ".data-00000-of-00001")
ROOM = "size=256m"  # of a file system in memory, for all that a command writes
CHANGES = ("create", "write", "flush", "close", "rename", "remove", "mkdir", "truncate")  # calls
OF_NAMES = ("create", "rename", "remove", "mkdir")
HERE, OUTPUTS = ("in",), ("out", "tmp")  # folders in which calls are counted apart


@dataclasses.dataclass(frozen=True)
class Clean:
    """What a command does when nothing disturbs it."""

    inputs: Tree
    files: Tree
    stdout: str
    seconds: float
    counts: Mapping[tuple[str, ...], Mapping[str, int]]  # calls, by folders and kind


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    spec: Spec
    fired: bool
    end: str  # finished, refused, stopped or killed
    failures: tuple[str, ...]
    place: str  # the call and the file at which it happened
    said: str  # on the error stream, where something failed
    seconds: float


class Slot:
    """A folder in which one trial after the other is made.

    Attributes:
      folder: with in/, out/ and tmp/.
    """

    def __init__(self, folder: pathlib.Path, library: pathlib.Path):
        self._nursery = Nursery(folder, library)
        self.folder = self._nursery.folder
        self._clean: dict[str, Clean] = {}

    def close(self) -> None:
        """Ends its processes."""
        self._nursery.close()
        unmount(self.folder / "out")

    # ------------------------------------------------------------------------ without faults

    def clean(self, name: str) -> Clean:
        """The undisturbed run of a command; made twice, which must give the same."""
        if name not in self._clean:
            runs, inputs = [], self._inputs(COMMANDS[name])
            for where in (HERE, OUTPUTS):
                self._prepare(inputs)
                ended = self._start(COMMANDS[name], Fault(where=where)).wait()
                if ended.code or ended.hung:
                    raise RuntimeError(f"{name} without a fault: {ended.code}\n{ended.stderr}")
                runs.append((ended, tree(self.folder / "out"), tree(self.folder / "tmp")))
            (first, files, _), (second, again, left) = runs
            differ = differences(again, files) + sorted(left)
            if differ or first.stdout != second.stdout:
                raise RuntimeError(f"{name} twice without a fault: {differ or 'other output'}")
            if hidden := [path for path in files if is_temporary(path)]:
                raise RuntimeError(f"{name} without a fault leaves {hidden}")
            counts = {HERE: first.calls.counts, OUTPUTS: second.calls.counts}
            seconds = min(first.seconds, second.seconds)
            self._clean[name] = Clean(inputs, files, second.stdout, seconds, counts)
        return self._clean[name]

    def _inputs(self, command: Command) -> Tree:
        files = {name: TEXTS[name]().encode() for name in command.texts}
        for maker in command.given:
            made = {"": b""} | self.clean(maker).files
            files |= {f"{maker}/{path}": content for path, content in made.items()}
        return files

    def _prepare(self, inputs: Tree, old: Tree | None = None) -> None:
        """Empty folders, but for the input and what is in the place of the output."""
        unmount(self.folder / "out")
        for name in ("in", "out", "tmp"):
            empty(self.folder / name)
        write_tree(self.folder / "in", inputs)
        write_tree(self.folder / "out", old or {})

    def _start(self, command: Command, fault: Fault | None = None, *, cold=False, **how: Any):
        words = [command.verb, *command.words]
        if cold:
            script = [str(ROOT / command.script)] if command.script else None
            words = [*(script or ["-m", "bert_tf", command.verb]), *command.words]
        return self._nursery.start(words, fault, cold=cold, **how)

    # ------------------------------------------------------------------------ with a fault

    def moments(
        self, command: Command, inputs: Tree, calls: Sequence[str] = CHANGES
    ) -> Iterator[Tree]:
        """What is in out/ before each call of these kinds, and at the end.

        It is what a kill at that moment would leave.

        Raises:
          RuntimeError: the command fails.
        """
        self._prepare(inputs)
        running = self._start(command, Fault(("out",), calls, action="stop", sticky=True))
        while running.wait_until_stopped():
            yield tree(self.folder / "out")
            running.signal_after(0, signal.SIGCONT)
        if (ended := running.wait()).code:
            raise RuntimeError(ended.stderr)
        yield tree(self.folder / "out")

    def go_on(self, command: Command, inputs: Tree, left: Tree) -> tuple[Ended, Tree]:
        """Runs a command where out/ has what is left of it; its end, and what is there then."""
        self._prepare(inputs, left)
        return self._start(command).wait(), tree(self.folder / "out")

    def run(self, spec: Spec) -> Outcome:
        """Makes the trial that is described."""
        command, clean = COMMANDS[spec["command"]], self.clean(spec["command"])
        trial = Trial(self, command, clean, spec)
        self._prepare(clean.inputs, trial.old)
        fired, all_ended = trial.disturb()
        ended = all_ended[0]
        failures = [text for one in all_ended for text in trial.judge_end(one)]
        failures += trial.judge_files(all_ended)
        if not trial.damaged and tree(self.folder / "in") != clean.inputs:
            failures.append("the input was changed")
        end = trial.kind_of_end(ended)
        said = "".join(one.stderr for one in all_ended)
        again = trial.give_again(finished=end == "finished")
        if problems := trial.judge_again(again):
            failures += [f"again: {text}" for text in problems]
            said += f"\n--- again\n{again.stderr}"
        calls = ended.calls
        place = f"{calls.kind} {calls.path}" if calls.fired else ""
        place += " (a worker)" * (calls.fired > 0 and calls.pid != ended.pid)
        seconds = sum(one.seconds for one in (*all_ended, again))
        return Outcome(spec, fired, end, tuple(failures), place, said if failures else "", seconds)


class Trial:
    """The steps of a trial in a prepared slot.

    Attributes:
      old: what was in the place of the output.
      damaged: the file of the input that the fault has damaged, or "".
    """

    def __init__(self, slot: Slot, command: Command, clean: Clean, spec: Spec):
        self._slot, self._command, self._clean, self._spec = slot, command, clean, spec
        self._out = slot.folder / "out"
        self.old = {path: f"old {path}".encode() for path in clean.files} if spec.get("old") else {}
        self.damaged = ""

    def _start(self, fault: Fault | None = None, **how: Any):
        return self._slot._start(self._command, fault, cold=self._spec["cold"], **how)

    def disturb(self) -> tuple[bool, list[Ended]]:
        """Runs the command with the fault; whether it came to pass, and the ends."""
        return getattr(self, f"_{self._spec['kind']}")()

    # ------------------------------------------------------------------------ kinds of faults

    def _call(self) -> tuple[bool, list[Ended]]:
        names = ("calls", "nth", "action", "sticky", "where")
        given = {name: self._spec[name] for name in names if name in self._spec}
        for name in ("calls", "where"):
            given[name] = tuple(given.get(name) or ("in", "out", "tmp"))
        ended = self._start(Fault(**given)).wait()
        if ended.calls.fired and self._spec["action"] in ("vanish", "halve"):
            self.damaged = os.path.relpath(ended.calls.path, self._slot.folder / "in")
        return ended.calls.fired > 0, [ended]

    def _time(self) -> tuple[bool, list[Ended]]:
        running = self._start()
        sent = running.signal_after(self._spec["seconds"], self._spec["signal"])
        return sent, [running.wait()]

    def _damage(self) -> tuple[bool, list[Ended]]:
        self.damaged = self._spec["file"].removeprefix("in/")
        damage(self._slot.folder / self._spec["file"], self._spec)
        return True, [self._start().wait()]

    def _resume(self) -> tuple[bool, list[Ended]]:
        """Killed on its way; then something is wrong with a file that it has written."""
        fault = Fault(("out",), ("rename",), self._spec["nth"], f"signal-{signal.SIGKILL}")
        killed = self._start(fault).wait()
        files = [path for path in tree(self._out) if not (path.endswith("/") or EVENTS in path)]
        if not killed.calls.fired or not files:
            return False, [killed]
        name = files[int(self._spec["choice"] * len(files))]
        path = self._out / name
        content = path.read_bytes()
        damage(path, self._spec)
        ended = self._start().wait()
        if ended.code or name.startswith("model.ckpt-"):  # an old one is not read
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)
        return True, [ended]

    def _twice(self) -> tuple[bool, list[Ended]]:
        """Two starts; the first one is held up at a call."""
        fault = Fault(("out",), tuple(self._spec["calls"]), self._spec["nth"], "pause-1000")
        first = self._start(fault)
        first.signal_after(self._spec["seconds"], 0)
        second = self._start()
        ends = [first.wait(), second.wait()]
        return ends[0].calls.fired > 0, ends

    def _limit(self) -> tuple[bool, list[Ended]]:
        ended = self._start(limits={self._spec["resource"]: self._spec["most"]}).wait()
        return ended.code != 0, [ended]

    def _disk(self) -> tuple[bool, list[Ended]]:
        """A file system of its own for the output, which is full soon, or cannot be written."""
        if self._spec["read_only"]:
            mount(self._out, ROOM)
            write_tree(self._out, self.old)
            mount(self._out, "remount,ro")
        else:
            mount(self._out, f"size={self._spec['bytes']}")
        ended = self._start().wait()
        mount(self._out, f"remount,rw,{ROOM}")
        return ended.code != 0, [ended]

    def _streams(self) -> tuple[bool, list[Ended]]:
        streams = {int(number): path for number, path in self._spec["streams"].items()}
        return True, [self._start(streams=streams).wait()]

    def _cpu(self) -> tuple[bool, list[Ended]]:
        return True, [self._start(cpus=(min(os.sched_getaffinity(0)),)).wait()]

    # ------------------------------------------------------------------------ what may come of it

    def kind_of_end(self, ended: Ended) -> str:
        """How a run ended: finished, stopped by SIGTERM on its way, killed or refused."""
        if ended.code == 0:
            return "finished"
        if "ended by SIGTERM, with a checkpoint" in ended.stderr:
            return "stopped"
        return "killed" if ended.code < 0 or ended.code > 128 else "refused"

    def judge_end(self, ended: Ended) -> list[str]:
        """What is wrong with how a run ended."""
        found = ["it hangs"] * ended.hung + [f"{line!r} outlives it" for line in ended.orphans]
        found += [f"it says {text!r}" for text in NEVER_SAID if text in ended.stderr]
        signals = [self._spec["signal"]] if "signal" in self._spec else []
        signals += [signal.SIGPIPE] if "|" in self._spec.get("streams", {}).values() else []
        if ended.code < 0 and -ended.code not in signals:
            found.append(f"it ends by signal {-ended.code}")
        elif ended.code > 128 and ended.code - 128 not in signals:
            found.append(f"exit code {ended.code}")
        elif 0 < ended.code <= 128 and self._is_read(ended) and not has_parts(ended.stderr):
            found.append(f"exit code {ended.code} without a message in three parts")
        return found

    def _is_read(self, ended: Ended) -> bool:
        """Whether a message would have come through."""
        return self._spec.get("streams", {}).get("2", "") == ""

    def judge_files(self, all_ended: list[Ended]) -> list[str]:
        """What is wrong with the files that are there."""
        there = tree(self._out)
        ends = [self.kind_of_end(one) for one in all_ended]
        if "finished" in ends:
            if self._may_differ():
                return []
            wrong = self._wrong(there, complete=True)
            wrong += ["it prints something else"] * (self._prints_otherwise(all_ended))
            return [f"exit code 0, but {text}" for text in wrong]
        found = [] if ends[0] != "killed" and self._may_differ() else self._wrong(there)
        kept = f"{self._command.keeps}/"
        left = sorted(path for path in there if is_temporary(path) and not path.startswith(kept))
        if left and self._tidies(all_ended):
            found.append(f"it leaves {left}")
        if len(ends) > 1:
            found.append(f"neither of two finishes: {ends}")
        return found

    def _prints_otherwise(self, all_ended: list[Ended]) -> bool:
        finished = [one for one in all_ended if self.kind_of_end(one) == "finished"]
        wanted = self._clean.stdout
        return self._spec["kind"] != "streams" and all(one.stdout != wanted for one in finished)

    def _may_differ(self) -> bool:
        """Whether other input may rightly give other output: no checksum tells of the damage."""
        return self.damaged != "" and not self.damaged.endswith(CHECKSUMMED)

    def _tidies(self, all_ended: list[Ended]) -> bool:
        """Whether the run could have removed its temporary files."""
        one_error = self._spec["kind"] == "call" and not self._spec.get("sticky")
        calls = self._spec.get("calls", ())
        undone = {"remove", "lock"} & {*calls}
        return one_error and not undone and all(0 < e.code <= 128 for e in all_ended)

    def _wrong(self, there: Tree, *, complete: bool = False) -> list[str]:
        """Files that are neither whole nor what was there before."""
        wanted = self._clean.files
        found = []
        for path, content in there.items():
            if is_temporary(path) or content in (wanted.get(path), self.old.get(path)):
                continue
            if EVENTS in path or path.endswith(RANDOM):
                continue
            if path in self._command.saves and not complete:
                found += wrong_state(self._out, path)
            elif path.endswith("/") and path.rstrip("/") != self._command.whole:
                found.append(f"the folder {path} is there")
            elif not path.endswith("/"):
                found.append(f"{path} is neither the old nor the new one ({len(content)} bytes)")
        needed = [path for path in wanted if EVENTS not in path]
        if not complete:
            whole = f"{self._command.whole}/"
            needed = [path for path in needed if path.startswith(whole) and whole in there]
        return found + [f"{path} is missing" for path in needed if path not in there]

    # ------------------------------------------------------------------------ once more

    def give_again(self, *, finished: bool) -> Ended:
        """The same command without the fault."""
        if tree(self._slot.folder / "in") != self._clean.inputs:
            empty(self._slot.folder / "in")
            write_tree(self._slot.folder / "in", self._clean.inputs)
        there = self._command.whole and (self._out / self._command.whole).exists()
        if there or (finished and self._may_differ()):
            empty(self._out)
        empty(self._slot.folder / "tmp")
        return self._slot._start(self._command).wait()

    def judge_again(self, ended: Ended) -> list[str]:
        """What is wrong with the undisturbed end."""
        if ended.code or ended.hung:
            return [f"exit code {ended.code}, hung: {ended.hung}"]
        found = [f"it says {text!r}" for text in NEVER_SAID if text in ended.stderr]
        left = tree(self._out)
        if self._spec.get("calls") == ["remove"]:  # what cannot be removed stays
            left = {path: content for path, content in left.items() if not is_temporary(path)}
        found += differences(left, self._clean.files)
        found += [f"{path} is left in tmp" for path in tree(self._slot.folder / "tmp")]
        if ended.stdout != self._clean.stdout:
            found.append("it prints something else")
        return found
