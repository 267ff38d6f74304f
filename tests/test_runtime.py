"""bert_tf/runtime.py: the progress line."""

import doctest
import sys

import pytest

from bert_tf import runtime


def test_the_drawn_examples():
    assert doctest.testmod(runtime).failed == 0


def test_progress_says_how_long_it_will_take(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = []
    monkeypatch.setattr(runtime.logging, "info", lambda text, *values: lines.append(text % values))
    progress = runtime.Progress("read", 60, "MB")
    for now, done in ((101.0, 1), (120.0, 15), (121.0, 16), (150.0, 40)):  # noqa: B007
        progress.update(done, note="; all well")
    now = 300.0
    progress.finish(60)
    assert lines == [
        "read: 15 of 60 MB, 0.75 a second, 1 min 0 s left; all well",
        "read: 40 of 60 MB, 0.8 a second, 25 s left; all well",
        "read: 60 MB in 3 min 20 s",
    ]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["run_squad.py", "--a=b c", "--d"], "python run_squad.py '--a=b c' --d"),
        (["bert-tf export", "--init_checkpoint=model"], "bert-tf export --init_checkpoint=model"),
    ],
)
def test_a_command_can_be_typed_again(monkeypatch, argv, line):
    monkeypatch.setattr(sys, "argv", argv)
    assert runtime.command_line() == line
