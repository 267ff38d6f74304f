"""The record of `make speed`."""

import importlib.util
import json
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("train_step", ROOT / "benchmarks/train_step.py")
train_step = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(train_step)


def test_a_slower_step_is_warned_of(tmp_path, capsys, monkeypatch):
    path = tmp_path / "speed.jsonl"

    def said(size: str, speed: float) -> str:
        train_step.record(path, size, speed)
        return capsys.readouterr().out

    assert said("2x128", 200.0) == ""
    assert said("4x256", 20.0) == ""
    assert said("2x128", 172.0).startswith("2x128    -14% against ")
    assert "\nWARNING: slower. " in said("2x128", 145.0)
    monkeypatch.setattr(train_step.platform, "node", lambda: "another machine")
    assert said("2x128", 1.0) == ""
    monkeypatch.undo()
    assert said("2x128", 290.0).startswith("2x128    +100% against ")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["examples_per_second"] for line in lines] == [200, 20, 172, 145, 1, 290]
    assert all(line["time"] and "commit" in line for line in lines)
