"""benchmarks/ablations.py: the tables of docs/paper.md are what its results in docs/ give."""

import subprocess
import sys

from documents import ROOT, read


def test_the_page_has_the_tables_of_the_results():
    words = ["--results=docs/ablations.jsonl", "--measure=none"]
    done = subprocess.run(
        [sys.executable, "benchmarks/ablations.py", *words],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line]
    assert sum(line.startswith("|---") for line in lines) >= 2
    assert [line for line in lines if line not in read("docs/paper.md").splitlines()] == []
