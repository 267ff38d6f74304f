"""What the benchmarks share: options, commands, contenders that take turns, tables, kept results.

Imports neither bert_tf nor TensorFlow: a contender may run in a Python that has neither.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]

# ------------------------------------------------------------------------ options and commands


def parse_options(doc: str, /, **defaults: Any) -> argparse.Namespace:
    """The command line: --NAME for each default, of its type.

    A tuple is words with commas, False a switch, None a text that need not be given.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        given: dict[str, Any] = {"default": default}
        if default is False:
            given["action"] = "store_true"
        elif isinstance(default, tuple):
            kind = type(default[0]) if default else str
            given["type"] = lambda text, kind=kind: tuple(map(kind, text.split(",")))
        else:
            given["type"] = type(default) if default is not None else str
        parser.add_argument(f"--{name}", help=f"default: {default}", **given)
    return parser.parse_args()


def data_dir() -> pathlib.Path:
    """The folder of the real data."""
    return pathlib.Path(os.environ["BERT_TF_DATA"])


def command(*words: object, python: str = sys.executable, **flags: object) -> list[str]:
    """A command line of Python: a script or -m MODULE, words, then flags; True is a switch."""
    given = [f"--{k}" if v is True else f"--{k}={v}" for k, v in flags.items() if v is not None]
    return [python, *map(str, words), *given]


def run(*words: object, python: str = sys.executable, cwd: object = ROOT, **flags: object) -> str:
    """Runs such a command; returns what it prints, or ends with the end of what it says."""
    ended = subprocess.run(
        command(*words, python=python, **flags), cwd=cwd, capture_output=True, text=True
    )
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{ended.stderr[-3000:]}")
    return ended.stdout


def verb(name: str, *words: object, **flags: object) -> str:
    """Runs a verb of `bert-tf`, as `run` does."""
    return run("-m", "bert_tf", name, *words, **flags)


# ------------------------------------------------------------------------ turns


class Contender:
    """A process that answers lines of JSON (`serve`), one at a time."""

    def __init__(self, words: Sequence[str], **environment: str):
        """Starts it, by a command."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(words, env=os.environ | environment, **pipes)

    def ask(self, question: Any) -> Any:
        """The answer, once it is there."""
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        return json.loads(line) if line else sys.exit(f"{self._process.args} has ended")

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()


def serve(answer: Callable[[Any], Any]) -> None:
    """In a contender's process: answers each line of the standard input."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def in_turn(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Each name in every round; in the reverse order in every other one."""
    names = [*names]
    for number in range(rounds):
        yield from names[:: -1 if number % 2 else 1]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of ours to theirs."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


# ------------------------------------------------------------------------ results


def print_rows(*rows: Sequence[object]) -> None:
    """Rows of a Markdown table; a float has four digits."""
    for row in rows:
        cells = (f"{x:,.4g}" if isinstance(x, float) and x < 1000 else
                 f"{x:,.0f}" if isinstance(x, float) else str(x) for x in row)  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)


def print_titles(*titles: str) -> None:
    """The head of such a table."""
    print(f"| {' | '.join(titles)} |".replace("|  |", "| |"))
    print("|---" * len(titles) + "|", flush=True)


def print_rates(unit: str, rates: Mapping[str, Sequence[float]], *, ours: str = "") -> None:
    """Least, median and greatest rate of each contender; the first one's or `ours` to each."""
    ours = ours or next(iter(rates))
    print_titles(unit, "min", "median", "max", f"{ours} is")
    for name, found in rates.items():
        spread = float(min(found)), float(statistics.median(found)), float(max(found))
        print_rows([name, *spread, f"{ratio(rates[ours], found):.3f} times"])


class Results:
    """Measurements as lines of JSON in a file, each kept as soon as it is made."""

    def __init__(self, path: str | pathlib.Path):
        """Reads those of earlier runs."""
        self._path, self._lock = pathlib.Path(path), threading.Lock()
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        self.lines: list[dict] = [json.loads(line) for line in text.splitlines()]

    def find(self, **key: Any) -> list[dict]:
        """The lines that have all of these values."""
        return [line for line in [*self.lines] if key.items() <= line.items()]

    def add(self, line: dict) -> None:
        """Appends a line; later runs need not measure it again."""
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            self.lines.append(line)
            print(json.dumps(line), file=file)
        print(line, flush=True)


def scores_in(path: pathlib.Path) -> dict[str, float]:
    """The numbers of an eval_results.txt; none without the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}
