"""What the demo asks of the commands that it runs."""

import pathlib
import types

import pytest

from bert_tf.cli import demo


@pytest.mark.parametrize("steps", [1, 4, 11, 24, 25, 7500])
def test_a_demo_of_any_length_asks_for_what_pretrain_takes(monkeypatch, capsys, steps):
    asked = {}
    monkeypatch.setattr(demo, "run", lambda verb, **flags: asked.update(flags))
    monkeypatch.setattr(demo, "FLAGS", types.SimpleNamespace(num_train_steps=steps))
    demo.train(pathlib.Path("demo"))
    assert asked["num_train_steps"] == steps
    assert 1 <= asked["log_steps"] <= max(1, steps // 25)
    assert 0 <= asked["num_warmup_steps"] < steps
    assert 0 <= asked["eval_steps"] < steps
