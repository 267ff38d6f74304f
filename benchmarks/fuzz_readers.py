"""Fuzzes every reader of what users and other programs give: a million damaged inputs, in process.

    python benchmarks/fuzz_readers.py --inputs=1000000 --processes=2
    python benchmarks/fuzz_readers.py --readers=squad,tokenizers --inputs=50000 --seed=7
    python benchmarks/fuzz_readers.py --readers=squad --seed=7 --number=4711     one input again

The readers, their valid files and the kinds of damage are those of tests/helpers/readers.py, and
of what is typed and asked those of fault_injection/readers_of_requests.py. An input is accepted,
and its values are then as declared, or refused by a message in three parts that names the file.
Everything else is a failure: another exception, a process that dies, an input that takes more than
--seconds or more than --megabytes at once, memory that grows from input to input.

Each reader gets a hundredth of the inputs at least; those that take long no more than that. The
inputs of a reader run in chunks, in processes that are started anew when they die or hang. The same
seed gives the same inputs, in any number of processes.

Prints what is done, a table, and a command to repeat each failure; exits with 1 if there is one.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import queue
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
SLOW = (
    "keras_files",
    "plan",
    "summaries",
    "run_settings",
    "flags",
    "export",
    "tf1_checkpoint",
    "pretraining_blocks",
    "block_index",
)  # milliseconds each
LEAST_SHARE = 0.01  # of all inputs, for each reader
CHUNK, SLOW_CHUNK = 5_000, 1_250  # inputs of a reader in a row
WARM_UP = 300  # inputs of a chunk before its memory is measured
PATIENCE = 4  # times --seconds, until a process that answers no signal is killed
START = 120  # seconds more until the first input
MEMORY = pathlib.Path("/dev/shm")
SHOWN = 3  # failures of the same kind at the same place


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive inputs of a reader."""

    reader: str
    first: int
    last: int  # behind the last


def main() -> None:
    """Runs all chunks, prints the table."""
    options = parse_options()
    further = ROOT / "benchmarks" / "fault_injection"  # readers of requests and command lines
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(further)]
    if options.child:
        serve(options)
        return
    start = time.monotonic()
    run = Run(options)
    run.finish(chunks_of(options))
    sys.stdout.reconfigure(errors="backslashreplace")
    print("\n".join(run.table()))
    seconds = time.monotonic() - start
    print(f"{sum(run.totals('inputs').values()):,} inputs in {seconds:.0f} s, seed {options.seed}")
    print("\n".join(run.shown_failures()) or "no failure")
    sys.exit(1 if run.failures else 0)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--readers", default="", help="names with commas between; default: all")
    parser.add_argument("--number", type=int, help="of the one input to read")
    parser.add_argument("--seconds", type=float, default=10.0, help="for an input, at most")
    parser.add_argument("--megabytes", type=int, default=500, help="that an input may take")
    parser.add_argument("--growth", type=int, default=150, help="megabytes, over a chunk")
    parser.add_argument("--group", default="", help="a module with further MAKERS")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def chunks_of(options: argparse.Namespace) -> list[Chunk]:
    """The chunks of all readers, which take turns."""
    names = options.readers.split(",") if options.readers else known_readers(options)
    if options.number is not None:
        return [Chunk(name, options.number, options.number + 1) for name in names]
    least = max(1, round(options.inputs * LEAST_SHARE))
    slow = [name for name in names if name in SLOW]
    quick = [name for name in names if name not in SLOW]
    share = (options.inputs - least * len(slow)) // max(len(quick), 1)
    sizes = dict.fromkeys(slow, least if quick else options.inputs // len(slow))
    sizes |= dict.fromkeys(quick, max(share, 1))
    chunks = [
        Chunk(name, first, min(first + step, size))
        for name, size in sizes.items()
        for step in [SLOW_CHUNK if name in SLOW else CHUNK]
        for first in range(0, size, step)
    ]
    return sorted(chunks, key=lambda chunk: chunk.first / sizes[chunk.reader])


def known_readers(options: argparse.Namespace) -> list[str]:
    """The names of all readers; of the further group alone, if there is one."""
    import readers

    return list(readers.makers(options.group))


# -------------------------------------------------------------------------------- the parent


class Run:
    """The chunks that are done, and what came of them."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.done: list[dict[str, Any]] = []  # the counts of each chunk, or of its part
        self.failures: list[dict[str, Any]] = []
        self._chunks: queue.Queue[Chunk] = queue.Queue()
        self._lock = threading.Lock()
        self._start_time = time.monotonic()

    def finish(self, chunks: list[Chunk]) -> None:
        """Runs the chunks in as many processes as asked for."""
        for chunk in chunks:
            self._chunks.put(chunk)
        threads = [threading.Thread(target=self._work) for _ in range(self.options.processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        base = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=base, prefix="fuzz_readers") as folder:
            child = None
            while not self._chunks.empty():
                with contextlib.suppress(queue.Empty):
                    child = self._run_chunk(self._chunks.get_nowait(), child, folder)
            if child:
                child.close()

    def _run_chunk(self, chunk: Chunk, child: "Child | None", folder: str) -> "Child | None":
        """Runs a chunk; the input that a process dies or hangs on is left out by the next one."""
        while chunk.first < chunk.last:
            child = child or Child(self.options, pathlib.Path(folder), self._note)
            kind = child.run(chunk)
            if not kind:
                return child
            at = child.place()
            note = {"reader": chunk.reader, "number": at, "kind": kind, "text": child.last_words()}
            self._note(note)
            self._note({"reader": chunk.reader, kind: 1, "inputs": max(at + 1 - chunk.first, 0)})
            child, chunk = None, dataclasses.replace(chunk, first=at + 1)
            if at < 0:  # its files could not be made
                break
        return child

    def _note(self, note: dict[str, Any]) -> None:
        """Keeps a failure, or the counts of a chunk, and shows it on the error stream."""
        shown = f"{time.monotonic() - self._start_time:6.0f} s  {note['reader']:22}"
        with self._lock:
            if "kind" in note:
                self.failures.append(note)
                shown += f"{note['kind']} at --number={note['number']}"
            else:
                self.done.append(note)
                shown += f"{note['inputs']:9,} inputs"
            print(shown, file=sys.stderr, flush=True)

    def totals(self, name: str) -> dict[str, int]:
        """A count by reader."""
        found: dict[str, int] = collections.Counter()
        for one in self.done:
            found[one["reader"]] += one.get(name, 0)
        return found

    def table(self) -> Iterator[str]:
        """A line for each reader."""
        columns = ("inputs", "accepted", "refused", "crash", "hang", "death", "memory")
        yield (
            f"{'reader':22}"
            + "".join(f"{name:>10}" for name in columns)
            + (f"{'ms each':>9}{'peak MB':>9}{'growth':>8}")
        )
        counts = {name: self.totals(name) for name in columns}
        seconds = self.totals("seconds")
        for reader in counts["inputs"]:
            of_reader = [one for one in self.done if one["reader"] == reader]
            peak, growth = (max(one.get(n, 0) for one in of_reader) for n in ("peak", "growth"))
            each = 1000 * seconds[reader] / max(counts["inputs"][reader], 1)
            yield (
                f"{reader:22}"
                + "".join(f"{counts[n][reader]:10,}" for n in columns)
                + (f"{each:9.2f}{peak:9,}{growth:8,}")
            )

    def shown_failures(self) -> Iterator[str]:
        """The first failures of each kind at each place, and how to repeat them."""
        seen: dict = collections.Counter()
        for one in self.failures:
            key = (one["reader"], one["kind"], one.get("place", one["text"][:60]))
            seen[key] += 1
            if seen[key] <= SHOWN:
                yield f"\n{one['kind']}: {one['text']}\n" + self._command(one)
        more = sum(max(count - SHOWN, 0) for count in seen.values())
        if more:
            yield f"\nand {more} more like these"

    def _command(self, failure: dict[str, Any]) -> str:
        group = f" --group={self.options.group}" if self.options.group else ""
        return (
            f"    python benchmarks/fuzz_readers.py --readers={failure['reader']} "
            f"--seed={self.options.seed} --number={failure['number']}{group}"
        )


class Child:
    """A process that reads inputs, chunk after chunk."""

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path, note: Callable):
        """Starts it; `note` is called with the failures and counts that it prints."""
        self._options, self._folder, self._note = options, folder, note
        self._place, self._ends = folder / "place", queue.Queue()
        self._place.write_bytes(struct.pack("<q", -1))
        command = [sys.executable, __file__, f"--child={folder}", f"--seed={options.seed}"]
        command += [f"--seconds={options.seconds}", f"--growth={options.growth}"]
        command += [f"--group={options.group}", f"--megabytes={options.megabytes}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("wb"),
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        )
        threading.Thread(target=self._listen).start()

    def run(self, chunk: Chunk) -> str:
        """Reads a chunk; returns "hang" or "death" if the process did not end it."""
        shutil.rmtree(self._folder / "files", ignore_errors=True)
        self._place.write_bytes(struct.pack("<q", -1))
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(dataclasses.asdict(chunk)).encode() + b"\n")
            self._process.stdin.flush()
        last, since = -1, time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                return self._ends.get(timeout=1)
            if (now := self.place()) != last:
                last, since = now, time.monotonic()
            patience = PATIENCE * self._options.seconds + START * (now < 0)
            if time.monotonic() - since > patience:
                self._process.kill()
                self._ends.get()
                return "hang"

    def place(self) -> int:
        """The number of the input that it reads; -1 before the first."""
        return struct.unpack("<q", self._place.read_bytes())[0]

    def last_words(self) -> str:
        """How a process ended that is dead."""
        errors = (self._folder / "errors").read_text(errors="replace")[-600:]
        return f"the process ended with {self._process.wait()}: {errors}"

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()

    def _listen(self) -> None:
        """Passes on what it prints; a chunk is done when its counts are there."""
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # what a library prints
                note = json.loads(line)
                self._note(note)
                if "kind" not in note:
                    self._ends.put("")
        self._ends.put("death")


# -------------------------------------------------------------------------------- the child


class Hang(BaseException):
    """An input took too long; no `except Exception` takes it for an error of its own."""


def serve(options: argparse.Namespace) -> None:
    """In its own process: reads the chunks that the parent names, prints what came of them."""
    from absl import logging

    def too_long(*_: Any) -> None:
        raise Hang(f"more than {options.seconds} s")

    logging.set_verbosity(logging.FATAL)
    signal.signal(signal.SIGALRM, too_long)
    folder = pathlib.Path(options.child)
    with (folder / "place").open("r+b") as file, mmap.mmap(file.fileno(), 8) as place:
        for line in sys.stdin:
            for note in read_chunk(Chunk(**json.loads(line)), options, folder, place):
                print(json.dumps(note), flush=True)
    os._exit(0)


def read_chunk(
    chunk: Chunk, options: argparse.Namespace, folder: pathlib.Path, place: mmap.mmap
) -> Iterator[dict[str, Any]]:
    """Reads a chunk; yields its failures, then its counts."""
    import readers

    reader = readers.make(chunk.reader, folder / "files", options.group)
    limit_memory(8 * options.megabytes << 20)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    counts: dict = collections.Counter()
    start, warm, peak = time.monotonic(), 0, megabytes("VmHWM")
    for number in range(chunk.first, chunk.last):
        place[:] = struct.pack("<q", number)
        failure = outcome(chunk.reader, reader, options, number, counts)
        before, peak = peak, megabytes("VmHWM")
        if not failure and peak - before > options.megabytes:
            failure = {"kind": "memory", "text": f"{peak - before} MB for an input"}
        if failure:
            counts[failure["kind"]] += 1
            yield {"reader": chunk.reader, "number": number, **failure}
        if number - chunk.first == WARM_UP:
            warm = megabytes("VmRSS")
    inputs, growth = chunk.last - chunk.first, max(megabytes("VmRSS") - warm, 0) if warm else 0
    if growth > options.growth:
        counts["memory"] += 1
        text = f"{growth} MB more after {inputs} inputs"
        yield {"reader": chunk.reader, "number": chunk.first, "kind": "memory", "text": text}
    seconds = time.monotonic() - start
    measured = {"inputs": inputs, "seconds": seconds, "peak": peak, "growth": growth}
    yield {"reader": chunk.reader, **counts, **measured}


def outcome(
    name: str, reader: Any, options: argparse.Namespace, number: int, counts: dict
) -> dict[str, str] | None:
    """Reads one input; counts it, or returns the failure."""
    import readers

    rng = random.Random(f"{options.seed}/{name}/{number}")
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    try:
        counts[readers.attempt(reader, rng)] += 1
    except Hang as error:
        return {"kind": "hang", "text": str(error), "place": place_of(error)}
    except BaseException as error:
        text = "".join(traceback.format_exception(error, limit=-6))[-3000:]
        return {"kind": "crash", "text": text, "place": place_of(error)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def place_of(error: BaseException) -> str:
    """The kind of an error and the last line of this project that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if str(ROOT) in f.filename]
    return f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}"


def limit_memory(size: int) -> None:
    """Lets the process take that many bytes more than it has mapped."""
    mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + size, most))


def megabytes(name: str) -> int:
    """Of memory that the process has (VmRSS), or has had at most (VmHWM)."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
