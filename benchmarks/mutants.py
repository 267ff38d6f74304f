"""Changes the core at random places, one at a time, and counts the changes that the tests find.

    python benchmarks/mutants.py --count=300 --seed=1
    python benchmarks/mutants.py --count=300 --seed=1 --checkout=../before     another commit's

A mutant differs in one place: a comparison, an operator, a number, a condition, a returned value.
It is killed if one of the tests of its folder fails or runs into the limit; those of its own module
come first. Prints a line for each mutant and the share killed, by folder; the survivors are to be
looked at. The places depend on the code and the seed alone. Each process works on a copy.
"""

import argparse
import ast
import collections
import concurrent.futures
import copy
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = (
    *("bert_tf/modeling", "bert_tf/heads", "bert_tf/tokenization", "bert_tf/training"),
    *("bert_tf/data", "bert_tf/tasks", "bert_tf/squad"),
    *("data_gen/masking.py", "data_gen/instances.py"),
)
SECONDS = 400  # for the tests of a folder
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


def is_killed(folder: pathlib.Path, path: pathlib.Path) -> bool:
    """Whether the tests of a file's folder fail in a copy."""
    tests = folder / "tests" / pathlib.Path(*path.parts[path.parts[0] == "bert_tf" : -1])
    own = tests / f"test_{path.stem}.py"
    for chosen in ([own] if own.exists() else []) + [tests]:
        words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(chosen)]
        try:
            ended = subprocess.run(
                [sys.executable, *words], cwd=folder, capture_output=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return True
        if ended.returncode:
            return True
    return False


def main() -> None:
    """The core's places -> a sample -> killed or not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=pathlib.Path, default=ROOT)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    found = [root / part for root in [options.checkout.resolve()] for part in CORE]
    files = sorted(f for part in found for f in ([part] if part.is_file() else part.rglob("*.py")))
    every = [(file, place) for file in files for place in places(file)]
    chosen = random.Random(options.seed).sample(every, options.count)
    killed, total = collections.Counter(), collections.Counter()
    local = threading.local()

    def try_one(mutant: tuple) -> tuple[pathlib.Path, tuple, bool]:
        file, place = mutant
        if not hasattr(local, "copy"):
            local.copy = pathlib.Path(tempfile.mkdtemp(dir=parts)) / "checkout"
            ignored = shutil.ignore_patterns(".git", ".venv*", "build", "demo")
            shutil.copytree(options.checkout, local.copy, ignore=ignored)
        path = file.relative_to(options.checkout.resolve())
        source = file.read_text(encoding="utf-8")
        (local.copy / path).write_text(with_change(source, place), encoding="utf-8")
        try:
            return path, place, is_killed(local.copy, path)
        finally:
            (local.copy / path).write_text(source, encoding="utf-8")

    with (
        tempfile.TemporaryDirectory() as parts,
        concurrent.futures.ThreadPoolExecutor(options.processes) as pool,
    ):
        for path, place, is_found in pool.map(try_one, chosen):
            folder = str(path.parent)
            killed[folder] += is_found
            total[folder] += 1
            says = "killed  " if is_found else "SURVIVES"
            print(f"{says} {path}:{place[0]} {place[-1].splitlines()[0][:70]}", flush=True)
    for folder in sorted(total):
        print(f"{folder:24} {killed[folder]:4} of {total[folder]:4}")
    share = killed.total() / total.total()
    print(f"{'all':24} {killed.total():4} of {total.total():4}, {share:.1%}")


if __name__ == "__main__":
    main()
