"""Damaged files, made of valid ones, for every reader: what becomes of the process that reads them.

    python benchmarks/hostile_files.py --count=200
    python benchmarks/hostile_files.py --readers=tf1_checkpoint,safetensors --count=2000 --seed=7

The readers and the ways of damage are those of tests/helpers (readers.py, damage.py), of which
`make test` tries a share. Each reader has a process of its own, which damages a file, reads it, and
makes it whole again. A file is read, and then its values are as declared, or refused by a message
that names it. Prints how many were refused, the longest time of one, the most memory that reading
took beyond that of reading the valid files, the bytes of these, and what went wrong: a process that
ended, another error, or a minute.
"""

import importlib
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from measuring import ROOT, command, parse_options, print_rows, print_titles

HELPERS = ROOT / "tests/helpers"
SECONDS = 60  # for a file
MEGABYTE = 1 << 20


def main() -> None:
    """Every reader -> a row."""
    options = parse_options(__doc__, readers=(), count=200, seed=1, part="", folder="")
    sys.path[:0] = [str(HELPERS), str(ROOT)]
    if options.part:
        read_damaged(options.part, pathlib.Path(options.folder), options)
        return
    names = options.readers or tuple(importlib.import_module("readers").makers())
    print_titles("reader", "files", "refused", "longest s", "memory MB", "valid MB", "wrong")
    wrong = 0
    for name in names:
        row = try_reader(name, options)
        wrong += row[-1] != "none"
        print_rows(row)
    sys.exit(f"{wrong} readers failed" if wrong else 0)


def try_reader(name: str, options) -> list:
    """The row of a reader, tried in a process."""
    with tempfile.TemporaryDirectory() as folder:
        flags = {"part": name, "folder": folder, "count": options.count, "seed": options.seed}
        words = command(__file__, **flags)
        limit = SECONDS * 10 + options.count
        ended = subprocess.run(words, capture_output=True, timeout=limit, check=False)
    stdout, stderr = (stream.decode(errors="replace") for stream in (ended.stdout, ended.stderr))
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    told = lines[-1] if lines else {"tried": 0}
    if ended.returncode:
        said = (stderr.strip().splitlines() or [""])[-1][:200]
        return [name, told["tried"], "", "", "", "", f"exit {ended.returncode}: {said}"]
    memory, valid = told["memory"] / MEGABYTE, told["valid"] / MEGABYTE
    slow = f"{told['longest']:.0f} s" if told["longest"] > SECONDS else ""
    cells = [told["tried"], told["refused"], f"{told['longest']:.2f}", f"{memory:.0f}"]
    return [name, *cells, f"{valid:.2f}", slow or "none"]


def read_damaged(name: str, folder: pathlib.Path, options) -> None:
    """In a reader's process: tries so many files; a line of JSON after each."""
    import logging

    import readers

    logging.disable(logging.CRITICAL)
    reader = readers.make(name, folder / "files")
    for _ in range(3):  # what libraries keep
        reader.read(reader.folder)
    rng = random.Random(f"{name} {options.seed}")
    valid = sum(map(len, reader.valid.values()))
    begin = peak()
    told = {"tried": 0, "refused": 0, "longest": 0.0, "memory": 0, "valid": valid}
    for _ in range(options.count):
        start = time.perf_counter()
        result = readers.attempt(reader, rng)
        told["longest"] = max(told["longest"], time.perf_counter() - start)
        told["tried"] += 1
        told["refused"] += result == readers.REFUSED
        told["memory"] = peak() - begin
        print(json.dumps(told), flush=True)


def peak() -> int:
    """The most memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main()
