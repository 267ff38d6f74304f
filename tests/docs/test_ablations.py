"""benchmarks/ablations.py: the tables of docs/paper.md are what its results in docs/ give."""

import subprocess
import sys

import pytest
from documents import ROOT, read


@pytest.mark.parametrize(
    "words",
    [
        ["--results=docs/ablations.jsonl"],
        ["--results=docs/ablations_gpu.jsonl", "--scale=gpu", "--steps=6000"],
    ],
)
def test_the_page_has_the_tables_of_the_results(words):
    done = subprocess.run(
        [sys.executable, "benchmarks/ablations.py", *words, "--measure=none"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert sum(row.startswith("|---") for row in rows) >= 2
    assert [row for row in rows if row not in read("docs/paper.md").splitlines()] == []
