"""examples/demo.sh: the commands that it calls, its exit code, and a short run of all of them."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from walking import eagerly, in_process

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


@pytest.fixture
def call(tmp_path):
    """Runs the script with the stand-in; returns what ended, and the calls."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    env = os.environ | {"BERT_TF": f"{sys.executable} stand_in.py"}

    def run(*words: str) -> tuple[subprocess.CompletedProcess, list[list[str]]]:
        calls = tmp_path / "calls.jsonl"
        calls.write_text("")
        ended = subprocess.run(
            [SCRIPT, *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
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
def test_any_number_of_steps_will_do(call, steps):
    _, calls = call("demo", *filter(None, [steps]))
    (words,) = [words for verb, *words in calls if verb == "pretrain"]
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


QUICKLY = {
    "data": ("--dupe_factor=1", "--num_workers=1"),
    "classify": ("--num_train_epochs=1", "--train_batch_size=80"),
}


@pytest.mark.walk
def test_all_of_it_runs(call, tmp_path, monkeypatch, capsys):
    """Its commands after one another, on the files that it has made."""
    ended, calls = call("a folder", "4")
    assert "bert-tf serve 'a folder/topics'" in ended.stdout.partition("=== Done in ")[2]
    folder = tmp_path / "a folder"
    monkeypatch.chdir(tmp_path)
    for verb, *words in calls:
        with in_process(verb) as run, eagerly():
            run(*words, *QUICKLY.get(verb, ()))
        if verb == "vocab":  # the script's own counts the pieces of the stand-in
            config = json.loads((folder / "bert_config.json").read_text())
            config["vocab_size"] = len((folder / "vocab.txt").read_text().splitlines())
            (folder / "bert_config.json").write_text(json.dumps(config))
    assert config["vocab_size"] == 1500
    shown = capsys.readouterr().out
    assert shown.count("[MASK] 1: ") == 5
    assert len(re.findall(r"animals|food|travel|weather", shown)) >= 3  # an answer a sentence
    assert (folder / "curves.png").stat().st_size > 1000
    assert "accuracy = " in (folder / "topics/eval_results.txt").read_text()
