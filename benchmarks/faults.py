"""Injects faults into commands on a tiny model, for some minutes, and says what came of them.

    python benchmarks/faults.py --minutes=40
    python benchmarks/faults.py --repeat='vocab/error of a call/17'

Each trial runs a command with one fault and checks how it ends and what it leaves; then it gives
the same command again, which has to end as if it had never been disturbed. Prints how many trials
of each command and kind were tried, in how many the fault came to pass, and how the command ended
the first time: finished in spite of it, refused with a message, or killed. Then the failures, each
with the words that repeat it. Ends with code 1 if there is one. Needs Linux and a C compiler.
"""

import collections
import dataclasses
import errno
import itertools
import json
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from faulty_processes import Ended, Fault, Nursery, Tree, tree, write_tree
from measuring import parse_options, print_rows, print_titles

# ---------------------------------------------------------------------------- commands

WORDS = [f"w{number}" for number in range(30)]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONFIG = {
    "vocab_size": len(SPECIAL) + 1 + len(WORDS), "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 24,
    "type_vocab_size": 2,
}  # fmt: skip


def _text(sentences: int) -> str:
    """Sentences, a line each, and an empty line after each seventh."""
    rng = random.Random(sentences)
    lines = (" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) + "." for _ in range(sentences))
    return "".join(f"{line}\n" + "\n" * (n % 7 == 0) for n, line in enumerate(lines, 1))


def _rows(count: int) -> str:
    rng = random.Random(count)
    rows = (f"{' '.join(rng.choices(WORDS, k=9))},{'ab'[n % 2]}" for n in range(count))
    return "\n".join(["words,kind", *rows]) + "\n"


TEXTS = {  # files of in/
    "text.txt": _text(60),
    "blocks.txt": _text(52_000),  # two blocks of data generation
    "vocab.txt": "".join(f"{piece}\n" for piece in (*SPECIAL, ".", *WORDS)),
    "bert_config.json": json.dumps(CONFIG),
    "train.csv": _rows(11),
    "dev.csv": _rows(5),
}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and what is known of its files; it reads in/, writes out/, and has tmp/.

    Attributes:
      line: the words of `bert-tf`.
      needs: files of `TEXTS`, and commands that made in/NAME.
      saves: files below out/ that change while it runs: a run's list of checkpoints, say.
      whole: a folder below out/ that appears with all its files or not at all.
      keeps: a folder below out/ that an error leaves, for the same command to go on with.
      overwrites: whether it replaces files that are there.
    """

    line: str
    needs: tuple[str, ...]
    saves: tuple[str, ...] = ()
    whole: str | None = None
    keeps: str | None = None
    overwrites: bool = False


_SIZES = "--max_seq_length=17 --max_predictions_per_seq=5 --vocab_file=in/vocab.txt"
_TRAINING = """--do_train --noxla --strategy=one --train_batch_size=4 --save_checkpoints_steps=2
    --keep_checkpoint_max=0 --log_steps=2 --output_dir=out --do_eval"""
_RUN_FILES = ("checkpoint", "model_facts.json")
COMMANDS = {
    "data": Command(
        f"""data --input_file=in/text.txt --output_file=out/a.tfrecord,out/b.tfrecord
        --num_workers=1 {_SIZES}""",
        ("text.txt", "vocab.txt"),
        overwrites=True,
    ),
    "data_shards": Command(
        """data --input_file=in/blocks.txt --output_file=out/x --num_shards=3 --num_workers=1
        --dupe_factor=1 --max_seq_length=128 --max_predictions_per_seq=20
        --vocab_file=in/vocab.txt""",
        ("blocks.txt", "vocab.txt"),
        keeps=".x.working",
    ),
    "vocab": Command(
        """vocab --input_file=in/text.txt --output_file=out/vocab.txt --vocab_size=60
        --num_workers=1""",
        ("text.txt",),
        overwrites=True,
    ),
    "pretrain": Command(
        f"""pretrain --input_file=in/data/*.tfrecord --eval_input_file=in/data/a.tfrecord
        --bert_config_file=in/bert_config.json --max_eval_steps=2 --num_train_steps=6
        --num_warmup_steps=1 {_TRAINING} {_SIZES}""",
        ("bert_config.json", "vocab.txt", "data"),
        saves=_RUN_FILES,
    ),
    "classify": Command(
        f"""classify --task_name=csv --text_a_column=words --label_column=kind --data_dir=in
        --max_seq_length=17 --num_train_epochs=2 --init_checkpoint=in/pretrain
        {_TRAINING}""",
        ("train.csv", "dev.csv", "pretrain"),
        saves=_RUN_FILES,
    ),
    "export": Command(
        "export --init_checkpoint=in/pretrain --export_dir=out", ("pretrain",), whole="1"
    ),
    "convert": Command("convert --from=in/pretrain --to=out/model", ("pretrain",), whole="model"),
}

# ---------------------------------------------------------------------------- faults

HERE, OUTPUTS = ("in",), ("out", "tmp")  # folders in which calls are counted apart
ERRORS = (  # that a kind of call may have: where, calls, errors; half of the bytes
    (OUTPUTS, ("read", "write"), ("short",)),
    (OUTPUTS, ("write", "flush", "close", "sync", "truncate"), ("EIO", "ENOSPC", "EDQUOT")),
    (OUTPUTS, ("create", "mkdir", "rename", "remove"), ("EIO", "EROFS", "EACCES", "ENOSPC")),
    (OUTPUTS, ("read", "map", "lock", "list"), ("EIO", "ENOMEM", "ENOLCK")),
    (HERE, ("open", "read", "map", "list"), ("EMFILE", "EACCES", "EIO")),
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CHANGES = ("create", "write", "flush", "close", "rename", "remove", "mkdir", "truncate")  # calls
OF_NAMES = ("create", "rename", "remove", "mkdir")
NEVER_SAID = ("Traceback", "Exception ignored", "Fatal Python error", "terminate called",
              "Segmentation fault", "*** ")  # fmt: skip
STAYS = "bert_config.json"  # of `vocab`: one that is there is not replaced
CHECKSUMMED = (".tfrecord", ".index", ".data-00000-of-00001")
PARTS = ("Received: ", "Expected: ", "To do: ")
EVENTS = re.compile(r"events\.out\.tfevents|(^|/)run\.json")  # which tell the time
RANDOM = ("fingerprint.pb", "SHA256SUMS")  # TensorFlow draws a number; and its checksum


@dataclasses.dataclass(frozen=True)
class Clean:
    """What a command does when nothing disturbs it."""

    inputs: Tree
    files: Tree
    stdout: str
    seconds: float
    counts: dict[tuple[str, ...], dict[str, int]]  # calls, by folders and kind


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    fired: str  # the fault that came to pass, or ""
    end: str  # finished, refused or killed
    failures: list[str]
    said: str  # on the error streams


class Slot:
    """A folder in which one trial after the other is made."""

    def __init__(self, folder: pathlib.Path):
        """Starts the process that its commands come from."""
        self._nursery = Nursery(folder)
        self.folder = self._nursery.folder
        self._runs: dict[tuple, tuple[Ended, Tree]] = {}

    def close(self) -> None:
        """Ends its process."""
        self._nursery.close()

    def inputs(self, name: str) -> Tree:
        """The files of in/ that a command needs."""
        inputs = {}
        for need in COMMANDS[name].needs:
            if need in TEXTS:
                inputs[need] = TEXTS[need].encode()
            else:
                made = {"": b""} | self.made(need)
                inputs |= {f"{need}/{path}": content for path, content in made.items()}
        return inputs

    def made(self, name: str) -> Tree:
        """The files that a command makes when nothing disturbs it."""
        return self._undisturbed(name, OUTPUTS)[1]

    def clean(self, name: str) -> Clean:
        """The undisturbed run of a command; made twice, which must give the same."""
        runs = {where: self._undisturbed(name, where) for where in (HERE, OUTPUTS)}
        (first, files), (second, again) = runs.values()
        if differ := differences(again, files):
            raise RuntimeError(f"{name} twice without a fault: {differ}")
        counts = {where: ended.counts for where, (ended, _) in runs.items()}
        seconds = min(first.seconds, second.seconds)
        return Clean(self.inputs(name), files, second.stdout, seconds, counts)

    def _undisturbed(self, name: str, where: tuple[str, ...]) -> tuple[Ended, Tree]:
        """The end of a command without a fault, which counts calls in `where`, and its files."""
        if (name, where) not in self._runs:
            self._prepare(self.inputs(name))
            ended, files = self._ended(COMMANDS[name], Fault(where=where))
            if ended.code:
                raise RuntimeError(f"{name} without a fault: {ended.code}\n{ended.stderr}")
            self._runs[name, where] = ended, files
        return self._runs[name, where]

    def _prepare(self, inputs: Tree, left: Tree | None = None) -> None:
        for name, files in (("in", inputs), ("out", left or {}), ("tmp", {})):
            write_tree(self.folder / name, files)

    def _ended(self, command: Command, fault: Fault | None = None) -> tuple[Ended, Tree]:
        return self._nursery.start(command.line.split(), fault).wait(), tree(self.folder / "out")

    def moments(
        self, command: Command, inputs: Tree, calls: Sequence[str] = CHANGES
    ) -> Iterator[Tree]:
        """What is in out/ before each call of these kinds, and at the end.

        It is what a kill at that moment would leave.

        Raises:
          RuntimeError: the command fails.
        """
        self._prepare(inputs)
        fault = Fault(("out",), tuple(calls), action="stop", sticky=True)
        running = self._nursery.start(command.line.split(), fault)
        while running.wait_until_stopped():
            yield tree(self.folder / "out")
            running.signal_after(0, signal.SIGCONT)
        if (ended := running.wait()).code:
            raise RuntimeError(ended.stderr)
        yield tree(self.folder / "out")

    def go_on(self, command: Command, inputs: Tree, left: Tree) -> tuple[Ended, Tree]:
        """Runs a command where out/ has what is left of it; its end, and what is there then."""
        self._prepare(inputs, left)
        return self._ended(command)

    def run(self, name: str, kind: str, seed: int) -> Outcome | None:
        """A trial with a fault that is drawn; None if the command has no place for one."""
        rng, command = random.Random(f"{name}/{kind}/{seed}"), COMMANDS[name]
        clean = self.clean(name)
        is_old = command.overwrites and rng.random() < 0.3
        replaced = [path for path in clean.files if path != STAYS]
        old = {path: f"old {path}".encode() for path in replaced} if is_old else {}
        self._prepare(clean.inputs, old)
        disturbed = KINDS[kind](self, rng, command, clean)
        if disturbed is None:
            return None
        ended, fired, fault = disturbed
        # Other input may rightly give other output, if no checksum tells of the damage.
        may_differ = kind == "input damaged" and not fired.endswith(CHECKSUMMED)
        if kind != "input damaged" and tree(self.folder / "in") != clean.inputs:
            raise RuntimeError(f"{name}/{kind}/{seed} changes its input")
        trial = Trial(command, clean, old, fault, may_differ)
        end = trial.kind_of_end(ended)
        failures = trial.judge_end(ended) + trial.judge_files(self.folder / "out", ended)
        there = command.whole and (self.folder / "out" / command.whole).exists()
        left = {} if there or (end == "finished" and may_differ) else tree(self.folder / "out")
        again, files = self.go_on(command, clean.inputs, left)
        failures += [f"again: {text}" for text in trial.judge_again(again, files)]
        return Outcome(fired, end, failures, ended.stderr + again.stderr)

    # ------------------------------------------------------------------------ kinds of faults

    def _at_call(self, rng: random.Random, command: Command, clean: Clean, where, calls, **how):
        """A fault at one of the calls that the command makes there."""
        counts = clean.counts[where]
        made = [call for call in calls if counts[call]]
        if not made:
            return None
        call = rng.choice(made)
        fault = Fault(where, (call,), rng.randint(1, counts[call]), **how)
        ended, _ = self._ended(command, fault)
        return ended, ended.fired, fault

    def _error(self, rng: random.Random, command: Command, clean: Clean):
        where, calls, errors = rng.choice(ERRORS)
        name = rng.choice(errors)
        action = name if name == "short" else f"error-{getattr(errno, name)}"
        sticky = rng.random() < 0.3
        return self._at_call(rng, command, clean, where, calls, action=action, sticky=sticky)

    def _signal(self, rng: random.Random, command: Command, clean: Clean):
        where = rng.choice([HERE, OUTPUTS, OUTPUTS, OUTPUTS])
        action = f"signal-{rng.choice(['', 'after-'])}{int(rng.choice(SIGNALS))}"
        return self._at_call(rng, command, clean, where, [*clean.counts[where]], action=action)

    def _time(self, rng: random.Random, command: Command, clean: Clean):
        """A signal at any time."""
        seconds, number = rng.uniform(0, clean.seconds * 1.1), int(rng.choice(SIGNALS))
        running = self._nursery.start(command.line.split())
        fired = "any time" * running.signal_after(seconds, number)
        return running.wait(), fired, Fault(action=f"signal-{number}")

    def _damage(self, rng: random.Random, command: Command, clean: Clean):
        """A bit of an input flipped, or it is cut off, or missing."""
        name = rng.choice([n for n in clean.inputs if not n.endswith("/") and not EVENTS.search(n)])
        path, content = self.folder / "in" / name, bytearray(clean.inputs[name])
        place, how = rng.randrange(len(content) or 1), rng.choice(["flip", "cut", "gone"])
        if how == "flip" and content:
            content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content[:place] if how == "cut" else content)
        if how == "gone":
            path.unlink()
        return self._ended(command)[0], name, Fault()


KINDS = {
    "error of a call": Slot._error,
    "signal at a call": Slot._signal,
    "signal at any time": Slot._time,
    "input damaged": Slot._damage,
}

# ---------------------------------------------------------------------------- what may come of it


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was done, by which its results are judged."""

    command: Command
    clean: Clean
    old: Tree  # what was in the place of the output
    fault: Fault
    may_differ: bool

    def kind_of_end(self, ended: Ended) -> str:
        """How a run ended."""
        return "finished" if not ended.code else "refused" if 0 < ended.code <= 128 else "killed"

    def judge_end(self, ended: Ended) -> list[str]:
        """What is wrong with how a run ended."""
        found = [*ended.problems, *(f"it says {t!r}" for t in NEVER_SAID if t in ended.stderr)]
        sent = self.fault.action.rpartition("-")[2] if "signal" in self.fault.action else "0"
        if ended.code not in range(129) and {-ended.code, ended.code - 128}.isdisjoint({int(sent)}):
            found.append(f"it ends with {ended.code}")
        places = [ended.stderr.rfind(f"\n{part}") for part in PARTS]
        if 0 < ended.code <= 128 and not -1 < places[0] < places[1] < places[2]:
            found.append(f"exit code {ended.code} without a message in three parts")
        return found

    def judge_files(self, out: pathlib.Path, ended: Ended) -> list[str]:
        """What is wrong with the files that are there."""
        end, there = self.kind_of_end(ended), tree(out)
        found = [] if self.may_differ and end != "killed" else self._wrong(out, there, end)
        left = [path for path in there if is_temporary(path)]
        left = [path for path in left if not path.startswith(f"{self.command.keeps}/")]
        could_tidy = not self.fault.sticky and not {"remove", "lock"} & {*self.fault.calls}
        if left and end == "refused" and could_tidy:
            found.append(f"it leaves {left}")
        if end == "finished" and not self.may_differ and ended.stdout != self.clean.stdout:
            found.append("it prints something else")
        return found

    def _wrong(self, out: pathlib.Path, there: Tree, end: str) -> list[str]:
        """Files that are neither whole nor what was there before, and missing ones."""
        wanted, found, whole = self.clean.files, [], f"{self.command.whole}/"
        for path, content in there.items():
            known = content in (wanted.get(path), self.old.get(path))
            if known or is_temporary(path) or EVENTS.search(path) or path.endswith(RANDOM):
                continue
            if path in self.command.saves and end != "finished":
                found += wrong_state(out, path)
            elif path != whole:
                found.append(f"{path} is neither the old nor the new one ({len(content)} bytes)")
        needed = [path for path in wanted if not EVENTS.search(path)]
        if end != "finished":
            needed = [path for path in needed if path.startswith(whole) and whole in there]
        return found + [f"{path} is missing" for path in needed if path not in there]

    def judge_again(self, ended: Ended, files: Tree) -> list[str]:
        """What is wrong with the undisturbed end."""
        if ended.code:
            return [f"exit code {ended.code}"]
        if self.fault.calls == ("remove",):  # what cannot be removed stays
            files = {path: content for path, content in files.items() if not is_temporary(path)}
        found = [*ended.problems, *differences(files, self.clean.files)]
        return found + ["it prints something else"] * (ended.stdout != self.clean.stdout)


def is_temporary(path: str) -> bool:
    """Whether a name says that the file is not whole."""
    return any(part.startswith(".") or "incomplete" in part for part in path.split("/"))


def wrong_state(folder: pathlib.Path, name: str) -> list[str]:
    """What is wrong with a file that changes meanwhile: JSON, or a list of checkpoints."""
    text = (folder / name).read_text(errors="replace")
    if name.endswith(".json"):
        try:
            json.loads(text)
        except ValueError:
            return [f"{name} is no JSON"]
        return []
    prefixes = [line.partition(": ")[2].strip('"') for line in text.splitlines()] or [""]
    return [f"{name} names {p!r}" for p in prefixes if not (folder / f"{p}.index").exists()]


def differences(found: Tree, wanted: Tree) -> list[str]:
    """How files differ from what they should be; TensorBoard's may."""
    names = sorted(path for path in found.keys() | wanted.keys() if not EVENTS.search(path))
    return [
        f"{path} differs, is missing or left"
        for path in names
        if (path in found) != (path in wanted)
        or (found[path] != wanted[path] and not path.endswith(RANDOM))
    ]


# ---------------------------------------------------------------------------- many trials


def main() -> None:
    """Trials -> a table."""
    options = parse_options(__doc__, minutes=40.0, seed=1, commands=tuple(COMMANDS), repeat=None)
    counts, failed = collections.Counter(), []
    with tempfile.TemporaryDirectory(prefix="faults_") as folder:
        slot = Slot(pathlib.Path(folder) / "slot")
        deadline = time.monotonic() + 60 * options.minutes
        rounds = itertools.count(options.seed)
        trials = ((n, k, seed) for seed in rounds for n in options.commands for k in KINDS)
        for name, kind, seed in [options.repeat.split("/")] if options.repeat else trials:
            if time.monotonic() > deadline:
                break
            if outcome := slot.run(name, kind, int(seed)):
                counts[name, kind, "tried"] += 1
                counts[name, kind, "fired"] += bool(outcome.fired)
                counts[name, kind, outcome.end] += 1
                failed += [f"{name}/{kind}/{seed}"] if outcome.failures else []
                if outcome.failures or options.repeat:
                    print(f"--repeat='{name}/{kind}/{seed}'", outcome.fired, outcome.end, sep="\n")
                    print(*outcome.failures, outcome.said, sep="\n", flush=True)
        slot.close()
    titles = ("tried", "fired", "finished", "refused", "killed")
    print_titles("command", "fault", *titles)
    for name, kind in itertools.product(options.commands, KINDS):
        print_rows([name, kind, *(counts[name, kind, title] for title in titles)])
    sys.exit(f"{len(failed)} trials failed" if failed else 0)


if __name__ == "__main__":
    main()
