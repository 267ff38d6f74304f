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

import argparse
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = (
    *("bert_tf/modeling", "bert_tf/heads", "bert_tf/tokenization", "bert_tf/training"),
    *("bert_tf/data", "bert_tf/tasks", "bert_tf/squad"),
    *("data_gen/masking.py", "data_gen/instances.py"),
)
TESTS_OF = {"bert_tf/heads": ["modeling", "tasks"]}  # the others: the folder of the same name
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
    own = [name / f"test_{path.stem}.py" for name in tests]
    for chosen in filter(None, ([file for file in own if file.exists()], tests)):
        words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, chosen)]
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
        if ended.returncode:
            return "killed"
    return "SURVIVES"


def copy_of(checkout: pathlib.Path, parts: str) -> pathlib.Path:
    """A checkout's files in a folder of their own."""
    copied = pathlib.Path(tempfile.mkdtemp(dir=parts)) / "checkout"
    ignored = shutil.ignore_patterns(".git", ".venv*", "build", "demo")
    return shutil.copytree(checkout, copied, ignore=ignored)


def main() -> None:
    """The core's places -> a sample -> killed or not, by each checkout's tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", type=pathlib.Path, help="a checkout of another commit")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    checkouts = [ROOT, *([options.beside.resolve()] if options.beside else [])]
    found = [places_of(checkout) for checkout in checkouts]
    in_all = [key for key in found[0] if all(key in places for places in found)]
    chosen = random.Random(options.seed).sample(in_all, options.count)
    total, killed = collections.Counter(), collections.Counter()
    killed_beside = 0
    local = threading.local()

    def tried(key: tuple) -> list[str]:
        if not hasattr(local, "copies"):
            local.copies = [copy_of(checkout, parts) for checkout in checkouts]
        says = []
        for where, copied in zip(found, local.copies, strict=True):
            path, place = where[key]
            source = (copied / path).read_text(encoding="utf-8")
            (copied / path).write_text(with_change(source, place), encoding="utf-8")
            says.append(outcome(copied, path))
            (copied / path).write_text(source, encoding="utf-8")
            if says[0] != "SURVIVES":
                break
        return says

    with (
        tempfile.TemporaryDirectory() as parts,
        concurrent.futures.ThreadPoolExecutor(options.processes) as pool,
    ):
        folders = [{where[key][0].parent / "-" for key in chosen} for where in found]
        unchanged = [
            (copied, folder)
            for checkout, paths in zip(checkouts, folders, strict=True)
            for copied in [copy_of(checkout, parts)]
            for folder in sorted(paths)
        ]
        for one, says in zip(
            unchanged, pool.map(lambda one: outcome(*one, seconds=None), unchanged), strict=True
        ):
            if says != "SURVIVES":
                sys.exit(f"the tests of {one[1].parent} fail without a change in {one[0]}")
        for key, says in zip(chosen, pool.map(tried, chosen), strict=True):
            path, place = found[0][key]
            total[str(path.parent)] += 1
            killed[str(path.parent)] += says[0] != "SURVIVES"
            killed_beside += len(says) == 2 and says[1] != "SURVIVES"
            words = " ".join(f"{one:8}" for one in says)
            print(f"{words} {path}:{place[0]} {place[-1].splitlines()[0][:70]}", flush=True)
    for folder in sorted(total):
        print(f"{folder:24} {killed[folder]:4} of {total[folder]:4}")
    share = killed.total() / total.total()
    print(f"{'all':24} {killed.total():4} of {total.total():4}, {share:.1%}")
    if options.beside:
        print(f"{killed_beside} of those that survive are killed in {options.beside}")


if __name__ == "__main__":
    main()
