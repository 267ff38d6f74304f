"""examples/demo.sh: the commands that it calls, its exit code, and a short run of all of them."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import unittest.mock

import pytest
from walking import COMPILE_QUICKLY, SECONDS, in_process, module_of

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "demo.sh"
VERBS = ["vocab", "data", "data", "pretrain", "fill-mask", "plot", "classify", "predict"]
# In place of bert-tf: notes how it is called; a vocabulary is read by the script itself.
STAND_IN = """\
import json, pathlib, sys

with open("calls.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "vocab":
    pathlib.Path(sys.argv[3].removeprefix("--output_file=")).write_text("[PAD]\\n[UNK]\\n")
sys.exit(7 * (sys.argv[1] == "plot" and "fails" in sys.argv[2]))
"""


def run_demo(*words: str, cwd: pathlib.Path, program: str) -> subprocess.CompletedProcess:
    added = {"BERT_TF": program, "PYTHONPATH": str(SCRIPT.parents[1])}
    env = {**os.environ, **COMPILE_QUICKLY, **added}
    options = {"cwd": cwd, "env": env, "timeout": SECONDS, "capture_output": True, "text": True}
    return subprocess.run([SCRIPT, *words], **options)


@pytest.fixture
def call(tmp_path):
    """Runs the script with the stand-in; returns what ended, and the calls."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)

    def run(*words: str) -> tuple[subprocess.CompletedProcess, list[list[str]]]:
        calls = tmp_path / "calls.jsonl"
        calls.write_text("")
        ended = run_demo(*words, cwd=tmp_path, program=f"{sys.executable} stand_in.py")
        return ended, [*map(json.loads, calls.read_text().splitlines())]

    return run


def test_what_is_shown_is_what_is_called(call, tmp_path):
    ended, calls = call("my folder/[it's] mine", "60")
    assert ended.returncode == 0, ended.stderr
    assert [verb for verb, *_ in calls] == VERBS
    shown = [line for line in ended.stdout.splitlines() if line.startswith("$ ")]
    assert [shlex.split(line)[2:] for line in shown] == calls
    folder = tmp_path / "my folder" / "[it's] mine"
    assert json.loads((folder / "bert_config.json").read_text())["vocab_size"] == 2
    assert len([*folder.glob("sample_text/*.txt")]) == 4


@pytest.mark.parametrize("steps", ["1", "24", ""])
def test_the_commands_take_its_flags(call, steps):
    """Whatever the number of steps."""
    for verb, *words in call("demo", *filter(None, [steps]))[1]:
        with in_process(verb) as run, unittest.mock.patch.object(module_of(verb), "main") as main:
            run(*words)
            main.assert_called_once()
        if verb == "pretrain":
            asked = dict(word.removeprefix("--").split("=") for word in words if "=" in word)
            assert asked["num_train_steps"] == (steps or "7500")
            assert int(asked["log_steps"]) >= 1
            assert int(asked["num_warmup_steps"]) < int(asked["num_train_steps"])


def test_it_ends_where_a_command_fails(call):
    ended, calls = call("fails")
    assert (ended.returncode, calls[-1][0]) == (7, "plot")
    for words in (["--help"], ["demo", "0"], ["demo", "x"], ["demo", "1", "2"]):
        ended, calls = call(*words)
        assert (ended.returncode, calls) == (2, [])
        assert ended.stderr.startswith("usage: ")


@pytest.mark.walk
def test_all_of_it_runs(tmp_path):
    ended = run_demo("a folder", "4", cwd=tmp_path, program=f"{sys.executable} -m bert_tf")
    assert ended.returncode == 0, ended.stderr
    assert "bert-tf playground 'a folder/topics'" in ended.stdout.partition("=== Done in ")[2]
    assert ended.stdout.count("[MASK] 1: ") == 5
    assert (tmp_path / "a folder/curves.png").stat().st_size > 1000
    assert "accuracy = " in (tmp_path / "a folder/topics/eval_results.txt").read_text()
