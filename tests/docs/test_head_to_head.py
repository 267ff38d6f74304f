"""benchmarks/head_to_head.py: its table by hand, and what its results in docs/ show."""

import importlib.util
import statistics

import pytest
from documents import ROOT

SPEC = importlib.util.spec_from_file_location("head", ROOT / "benchmarks/head_to_head.py")
head = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(head)
RESULTS = head.read(ROOT / "docs/head_to_head.jsonl")


def ends(side: str, name: str) -> list[float]:
    """The last values of all seeds."""
    return [line[name][-1] for line in RESULTS if line["side"] == side]


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


@pytest.mark.parametrize("name", [*head.METRICS, "training_loss"])
def test_the_ends_differ_by_less_than_seeds_do(name):
    sides = [ends(side, name) for side in head.SIDES]
    error = sum(statistics.variance(side) / len(side) for side in sides) ** 0.5
    assert abs(statistics.fmean(sides[0]) - statistics.fmean(sides[1])) < 3 * error
