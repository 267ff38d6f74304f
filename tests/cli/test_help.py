"""What --help prints."""

import re

import pytest
from answering import answers

from bert_tf.__main__ import VERBS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The page of every verb, and of one script."""
    commands = [["bert-tf", verb, "--help"] for verb in VERBS if verb != "beam-data"]
    commands.append(["run_classifier.py", "--help"])
    return {
        words[-2]: answer.text for words, answer in zip(commands, answers(*commands), strict=True)
    }


def groups(text: str) -> dict[str, list[str]]:
    """The names of the flags under each title."""
    found, title = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][^.]*:", line):
            title = line[:-1]
        elif name := re.match(r"  --(?:\[no\])?(\w+)", line):
            found.setdefault(title, []).append(name[1])
    return found


def test_what_is_used_most_stands_first_and_nothing_twice(pages):
    found = groups(pages["run_classifier.py"])
    titles = list(found)
    assert titles[0] == "Most used"
    assert found["Most used"][:4] == ["task_name", "data_dir", "init_checkpoint", "output_dir"]
    assert titles[1] == "Of this command"
    assert {"Model", "Training", "Fine-tuning", "Devices"} <= {*titles}
    listed = [name for names in found.values() for name in names]
    assert len(listed) == len(set(listed)) > 60
    assert "verbosity" not in listed  # absl's
    assert groups(pages["classify"]) == found


def test_every_verb_has_its_flags(pages):
    for page in pages.values():
        assert next(iter(groups(page))) in ("Most used", "Of this command")


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_lines_fit_a_terminal(columns):
    (answer,) = answers(["bert-tf", "export", "--help"], columns=columns)
    flags = answer.text[answer.text.index("Most used") : answer.text.rindex("Further flags")]
    assert max(map(len, flags.splitlines())) <= min(100, max(60, columns))


def test_defaults_and_choices_are_shown(pages):
    lines = pages["export"].splitlines()
    (line,) = (line for line in lines if line.startswith("  --format="))
    assert line.split()[:5] == ["--format=saved_model", "saved_model", "|", "litert", "|"]
    assert any(line.startswith("  --top_k=5 ") for line in lines)
