"""Changes the core at random places, one at a time, and counts the changes that the tests find.

    python benchmarks/mutants.py --count=300 --seed=1
    python benchmarks/mutants.py --count=300 --seed=1 --beside=../before

A mutant differs in one place: a comparison, an operator, a number, a condition, a returned value.
It is killed if one of the tests of its folder fails or runs into the limit; those of its own module
come first. --beside takes lines that stand in both checkouts, word for word, and asks the other's
tests about those that survive here: how many more they may find, at most. Prints a line for each
mutant and the share killed, by folder; the survivors are to be looked at. The places depend on the
code and the seed alone. Each process works on a copy; the tests of the unchanged code have to pass
first.
"""

import ast
import collections
import concurrent.futures
import copy
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

from measuring import ROOT, parse_options

CORE = (
    *("bert_tf/modeling", "bert_tf/heads", "bert_tf/tokenization", "bert_tf/training"),
    *("bert_tf/data", "bert_tf/tasks", "bert_tf/squad"),
    *("data_gen/masking.py", "data_gen/instances.py", "data_gen/serialization.py"),
)
TESTS_OF = {"bert_tf/heads": ["modeling", "tasks"]}  # the others: the folder of the same name
SECONDS = 900  # for the tests of a folder: those of training take 250
NO_TESTS = 5  # pytest's exit code where all were passed before
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutated(node: ast.AST) -> ast.AST | None:
    """The node with one change; None for a node of another kind."""
    node = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            node.ops = [SWAPS[type(operator)]()]
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            node.op = SWAPS[type(operator)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value += 1
        case ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.AST()):
            node.value = ast.Constant(None)
        case _:
            return None
    return node


def places(path: pathlib.Path) -> Iterator[tuple[int, int, int, int, str]]:
    """Where a file can be changed: begin and end as line and column, and the new text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        tests = [node.test] if isinstance(node, ast.If | ast.While) else []
        for place, new in [(node, mutated(node)), *((t, ast.UnaryOp(ast.Not(), t)) for t in tests)]:
            if new is not None:
                text = ast.unparse(new)
                text = text if isinstance(place, ast.stmt) else f"({text})"
                end = place.end_lineno, place.end_col_offset
                yield place.lineno, place.col_offset, *end, text


def with_change(source: str, place: tuple[int, int, int, int, str]) -> str:
    """The source with the text of a place replaced; columns count bytes."""
    first, begin, last, end, text = place
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    before, after = lines[first - 1][:begin], lines[last - 1][end:]
    lines[first - 1 : last] = [before + text.encode() + after]
    return b"".join(lines).decode()


def places_of(checkout: pathlib.Path) -> dict[tuple, tuple[pathlib.Path, tuple]]:
    """The places of a checkout's core by what stands there; lines that stand twice are left out."""
    found = collections.defaultdict(list)
    for part in CORE:
        at = checkout / part
        for file in [at] if at.is_file() else sorted(at.rglob("*.py")):
            lines = file.read_text(encoding="utf-8").splitlines()
            for place in places(file):
                first, begin, last, _, text = place
                line = lines[first - 1]
                indent = len(line) - len(line.lstrip())
                key = line.strip(), begin - indent, last - first, text
                found[key].append((file.relative_to(checkout), place))
    return {key: where[0] for key, where in found.items() if len(where) == 1}


def outcome(folder: pathlib.Path, path: pathlib.Path, seconds: int | None = SECONDS) -> str:
    """What the tests of a file's folder say in a copy: killed, limit or SURVIVES."""
    names = TESTS_OF.get(str(path.parent)) or [path.parent.name]
    tests = [folder / "tests" / name for name in names]
    own = [file for name in tests if (file := name / f"test_{path.stem}.py").exists()]
    for chosen, passed in ((own, []), (tests, own)) if own else ((tests, []),):
        words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, chosen)]
        words += [f"--ignore={file}" for file in passed]
        try:
            ended = subprocess.run(
                [sys.executable, *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(folder)},  # for the processes of tests, too
                capture_output=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return "limit"
        if ended.returncode not in (0, NO_TESTS if passed else 0):
            if seconds is None:  # nothing was changed
                print(ended.stdout.decode()[-3000:], flush=True)
            return "killed"
    return "SURVIVES"


class Trials:
    """Checkouts, their places, and copies of them, one for each thread."""

    def __init__(self, checkouts: list[pathlib.Path], folder: str):
        """Takes a folder for the copies."""
        self.checkouts, self._folder, self._local = checkouts, folder, threading.local()
        self.places = [places_of(checkout) for checkout in checkouts]

    def copies(self) -> list[pathlib.Path]:
        """Of the checkouts, for this thread."""
        if not hasattr(self._local, "copies"):
            ignored = shutil.ignore_patterns(".git", ".venv*", "build", "demo")
            self._local.copies = []
            for checkout in self.checkouts:
                copied = pathlib.Path(tempfile.mkdtemp(dir=self._folder)) / "checkout"
                self._local.copies.append(shutil.copytree(checkout, copied, ignore=ignored))
        return self._local.copies

    def unchanged(self, folder: pathlib.Path) -> None:
        """Fails unless the tests of a folder pass in all checkouts."""
        for copied in self.copies():
            if (copied / folder).exists() and outcome(copied, folder / "-", None) != "SURVIVES":
                sys.exit(f"the tests of {folder} fail without a change")

    def tried(self, key: tuple) -> list[str]:
        """What the tests of each checkout say of a change, as long as it survives."""
        says = []
        for where, copied in zip(self.places, self.copies(), strict=True):
            path, place = where[key]
            source = (copied / path).read_text(encoding="utf-8")
            (copied / path).write_text(with_change(source, place), encoding="utf-8")
            says.append(outcome(copied, path))
            (copied / path).write_text(source, encoding="utf-8")
            if says[0] != "SURVIVES":
                break
        return says


def main() -> None:
    """The core's places -> a sample -> killed or not, by each checkout's tests."""
    options = parse_options(__doc__, beside=None, count=300, seed=1, processes=2)
    checkouts = [ROOT, *([pathlib.Path(options.beside).resolve()] if options.beside else [])]
    total, killed = collections.Counter(), collections.Counter()
    killed_beside = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.processes) as pool,
    ):
        trials = Trials(checkouts, folder)
        in_all = [key for key in trials.places[0] if all(key in where for where in trials.places)]
        chosen = random.Random(options.seed).sample(in_all, options.count)
        found = [trials.places[0][key] for key in chosen]
        list(pool.map(trials.unchanged, sorted({path.parent for path, _ in found})))
        for (path, place), says in zip(found, pool.map(trials.tried, chosen), strict=True):
            total[str(path.parent)] += 1
            killed[str(path.parent)] += says[0] != "SURVIVES"
            killed_beside += len(says) == 2 and says[1] != "SURVIVES"
            words = " ".join(f"{one:8}" for one in says)
            print(f"{words} {path}:{place[0]} {place[-1].splitlines()[0][:70]}", flush=True)
    for name in sorted(total):
        print(f"{name:24} {killed[name]:4} of {total[name]:4}")
    share = killed.total() / total.total()
    print(f"{'all':24} {killed.total():4} of {total.total():4}, {share:.1%}")
    if options.beside:
        print(f"{killed_beside} of those that survive are killed in {options.beside}")


if __name__ == "__main__":
    main()
