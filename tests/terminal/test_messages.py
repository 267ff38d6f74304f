"""Tables of scores, log lines, the last line."""

import doctest
import logging

import pytest

from bert_tf import terminal


def test_the_drawn_examples():
    assert doctest.testmod(terminal).failed == 0


@pytest.mark.parametrize(
    ("scores", "lines"),
    [
        (
            {"global_step": 343, "loss": 0.5, "eval_f1": 0.9, "eval_accuracy": 1.0},
            ["eval_f1          0.9000", "eval_accuracy    1.0000", "loss             0.5000",
             "global_step    343"],
        ),
        (  # in percent; counts stay counts
            {"exact_match": 9.0909, "f1": 15.6612, "total": 10570, "eval_loss": 2.25},
            ["exact_match      9.09", "f1              15.66", "total        10570",
             "eval_loss        2.2500"],
        ),
        (  # a threshold is no percentage
            {"best_f1": 57.654321, "best_f1_thresh": 0.0049},
            ["best_f1         57.65", "best_f1_thresh   0.0049"],
        ),
        ({"loss": 2.0, "eval_loss": 3.0}, ["loss       2.0000", "eval_loss  3.0000"]),
        ({}, []),
    ],
)  # fmt: skip
def test_what_matters_comes_first_and_points_are_below_each_other(scores, lines):
    assert terminal.scores_table(scores) == [f"  {line}" for line in lines]


@pytest.mark.parametrize(("level", "shown"), [("INFO", ""), ("WARNING", "WARNING: ")])
@pytest.mark.parametrize("process", ["", "[worker 1] "])
def test_a_line_has_a_short_prefix(monkeypatch, level, shown, process):
    monkeypatch.setattr(terminal, "_process", [])
    if process:
        terminal.name_process("worker 0")  # of a run before
        terminal.name_process("worker 1")
    record = logging.LogRecord(
        "absl", getattr(logging, level), "file.py", 7, "%d of %s", (3, "x"), None
    )
    record.created = 0.0
    line = terminal.LineFormatter().format(record)
    assert line.partition(" ")[0] in ("01-01", "12-31")
    assert line[15:] == f"{process}{shown}3 of x"


def test_what_to_type_next(monkeypatch):
    said = []
    info = lambda text, *values: said.append(text % values)  # noqa: E731
    monkeypatch.setattr(terminal.logging, "info", info)
    terminal.log_end("Wrote a", "fill-mask", "A [MASK].", init_checkpoint="my model", labels=None)
    assert said == ["Wrote a. Next: bert-tf fill-mask 'A [MASK].' --init_checkpoint='my model'"]
