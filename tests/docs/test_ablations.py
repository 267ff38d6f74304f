"""benchmarks/ablations.py: the figures of docs/paper.md are what its results in docs/ give."""

import subprocess
import sys

from documents import ROOT, read


def printed(*words: str) -> list[str]:
    """The rows of its tables."""
    done = subprocess.run(
        [sys.executable, "benchmarks/ablations.py", *words, "--measure=none"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line.startswith("|")]


def test_the_page_has_the_scores_on_a_gpu():
    """Without the columns of the paper."""
    rows = printed("--results=docs/ablations_gpu.jsonl", "--scale=gpu", "--steps=6000")
    table = [f"{'|'.join(row.split('|')[:7])}|" for row in rows[:5]]
    assert table[0].endswith("| MRPC |")
    assert [row for row in table if row not in read("docs/paper.md").splitlines()] == []


def test_the_page_has_figure_5():
    rows = printed("--results=docs/ablations.jsonl")
    assert sum(row.startswith("|---") for row in rows) == 3
    figures = ", ".join(row.split(" | ")[1] for row in rows[2:6])
    assert f"{figures} after 0, 10, 30, 100 % of the steps" in read("docs/paper.md")
