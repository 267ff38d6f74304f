"""What --help prints."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from bert_tf.__main__ import VERBS

ROOT = pathlib.Path(__file__).parents[2]


def page(command: str, columns: int = 100) -> str:
    start = [command] if command.endswith(".py") else ["-m", "bert_tf", command]
    environment = {**os.environ, "COLUMNS": str(columns)}
    ended = subprocess.run(
        [sys.executable, *start, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def groups(text: str) -> dict[str, list[str]]:
    """The names of the flags under each title."""
    found, title = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][^.]*:", line):
            title = line[:-1]
        elif name := re.match(r"  --(?:\[no\])?(\w+)", line):
            found.setdefault(title, []).append(name[1])
    return found


def test_what_is_used_most_stands_first_and_nothing_twice():
    found = groups(page("run_classifier.py"))
    titles = list(found)
    assert titles[0] == "Most used"
    assert found["Most used"][:4] == ["task_name", "data_dir", "init_checkpoint", "output_dir"]
    assert {"Texts and labels", "Training", "Devices"} <= {*titles}
    assert "Others" not in titles
    listed = [name for names in found.values() for name in names]
    assert len(listed) == len(set(listed)) > 60
    assert "verbosity" not in listed  # absl's


def test_a_verb_and_its_script_have_the_same_page():
    verb, script = page("classify"), page("run_classifier.py")
    assert groups(verb) == groups(script)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("beam-data", "classify")])
def test_every_verb_has_its_flags(verb):
    found = groups(page(verb))
    assert found
    assert next(iter(found)) in ("Most used", "Flags")


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_lines_fit_a_terminal(columns):
    text = page("export", columns)
    flags = text[text.index("Most used") : text.rindex("Further flags")]
    assert max(map(len, flags.splitlines())) <= min(100, max(60, columns))


def test_defaults_and_choices_are_shown():
    lines = page("export").splitlines()
    (line,) = (line for line in lines if line.startswith("  --format="))
    assert line.split()[:5] == ["--format=saved_model", "saved_model", "|", "litert", "|"]
    assert any(line.startswith("  --top_k=5 ") for line in lines)
