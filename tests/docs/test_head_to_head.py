"""benchmarks/head_to_head.py: its table by hand, and that of its results in docs/."""

import head_to_head as head
import pytest
from documents import ROOT, read
from measuring import Results

RESULTS = Results(ROOT / "docs/head_to_head.jsonl").lines


def test_the_table_by_hand(capsys):
    names, values = (*head.METRICS, "training_loss"), {"original": (1, 3), "ours": (2, 4, 6)}
    lines = [
        {"side": side, **{name: [9, end] for name in names}}
        for side, column in values.items()
        for end in column
    ]
    head.print_table(lines)
    # The error: root of 2 / 2 + 4 / 3.
    row = "| masked_lm_loss | 2.0000 ± 1.4142 | 4.0000 ± 2.0000 | +2.0000 | 1.5275 |"
    assert row in capsys.readouterr().out


def test_both_sides_are_measured_alike():
    runs = {(line["side"], line["seed"]) for line in RESULTS}
    assert runs == {(side, seed) for side in head.SIDES for seed in (1, 2, 3)}
    for line in RESULTS:
        assert line["steps"] == list(range(0, 3001, 250))
        if line["side"] == "original":  # the same weights
            for name in head.METRICS:
                assert line["evaluated_by_ours"][name] == pytest.approx(line[name][-1], abs=3e-5)


def test_the_page_has_the_table(capsys):
    head.print_table(RESULTS)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 7
    assert [line for line in lines if line not in read("docs/paper.md").splitlines()] == []
