"""Documents: their commands, flags and files exist, and their links lead somewhere."""

import ast
import json
import re
import unittest.mock

import pytest
from absl import flags as absl_flags
from documents import DOCUMENTS, ROOT, command_of, commands, commands_of_blocks, read
from walking import flags_of, in_process, module_of

from bert_tf.__main__ import VERBS


def written_down() -> dict[str, set[str]]:
    """The flags that documents use, by script or verb."""
    found: dict[str, set[str]] = {}
    for name in DOCUMENTS:
        for words in commands(read(name)):
            command, rest = command_of(words)
            flags = found.setdefault(command, set())
            before_others = rest[: rest.index("--")] if "--" in rest else rest
            flags |= {w[2:].partition("=")[0] for w in before_others if w.startswith("--")}
    # The pattern, the list of verbs, the program, and a name of before.
    without_verb = ("VERB", "--help", "bert_tf", "bert_tf.squad_evaluate")
    return {name: flags for name, flags in found.items() if name not in without_verb}


WRITTEN = written_down()


def known_flags(command: str) -> set[str]:
    """The flags of a script or verb, with absl's negations."""
    if not is_command(command):
        calls = [node for node in ast.walk(ast.parse(read(command))) if isinstance(node, ast.Call)]
        calls = [call for call in calls if getattr(call.func, "id", "") == "parse_options"]
        options = {option.arg for call in calls for option in call.keywords}
        return options | set(re.findall(r'"--(\w+)"', read(command)))
    names = {*absl_flags.FLAGS, *flags_of(command)}
    return names | {f"no{name}" for name in names} | {"help"}


def is_command(name: str) -> bool:
    """Whether it is a verb or a script that runs as one, not a program with argparse."""
    return name in VERBS or "from bert_tf.cli.main import run" in read(name)


def test_commands_are_found():
    assert {"run_classifier.py", "run_pretraining.py", "export", "convert"} <= WRITTEN.keys()
    assert "version_2_with_negative" in WRITTEN["squad"]
    text = "`bert-tf vocab\n  --c=2`\n```\na.txt | python x.py --a=1 \\\n    --b  # c\n```\n"
    assert [command_of(words) for words in commands(text)] == [
        ("x.py", ["--a=1", "--b"]),
        ("vocab", ["--c=2"]),
    ]
    assert command_of(["python", "-m", "bert_tf", "plan", "--fits"]) == ("plan", ["--fits"])


@pytest.mark.parametrize("command", sorted(WRITTEN.keys() - {"help", "--version"}))
def test_commands_and_flags_exist_and_are_accepted(command):
    """Values are of the flags' kinds, required flags are there, and none excludes another."""
    assert command in VERBS or (ROOT / command).is_file(), f"neither verb nor file: {command}"
    known = known_flags(command)
    assert WRITTEN[command] <= known, f"unknown: {WRITTEN[command] - known}"
    if not is_command(command):
        return  # it declares its flags to argparse
    words = [words for name in DOCUMENTS for words in commands_of_blocks(read(name))]
    calls = [command_of(words) for words in words if words[1] != "pairs.py"]  # which has own tasks
    with (
        in_process(command) as run,
        unittest.mock.patch.object(module_of(command), "main") as main,
    ):
        for words in (rest for name, rest in calls if name == command):
            run(*words)
            main.assert_called_once()
            main.reset_mock()


def test_measurements_have_a_command_that_exists_a_commit_and_a_machine():
    found = [json.loads(line) for line in read("docs/measurements.jsonl").splitlines()]
    assert len(found) > 300
    assert all(one.keys() > {"what", "command", "commit", "machine"} for one in found)
    for command in {one["command"] for one in found}:
        calls = commands(f"```\n{command}\n```\n")
        assert calls or re.fullmatch(r"make [\w.-]+", command), command
        for words in calls:
            name, rest = command_of(words)
            flags = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
            assert flags <= known_flags(name), command


def test_every_verb_that_is_mentioned_exists():
    """In documents, docstrings, messages, configurations; not in tests, which misspell some."""
    kinds = "*.md *.py benchmarks/*.py docs/*.md examples/*.* examples/*/*.* Makefile"
    paths = [path for kind in kinds.split() for path in ROOT.glob(kind)]
    paths += [path for top in ("bert_tf", "data_gen") for path in (ROOT / top).rglob("*.py")]
    mentioned = {}
    for path in paths:
        if path.parent.name != "__pycache__":
            text = path.read_text(encoding="utf-8")
            mentioned |= dict.fromkeys(re.findall(r"bert-tf ([a-z][a-z-]*)", text), path)
    assert {"convert", "export", "fill-mask"} <= mentioned.keys()
    assert not {verb: path for verb, path in mentioned.items() if verb not in {*VERBS, "help"}}


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files_and_headings(document):
    for link in re.findall(r"\]\(([^)]+)\)", read(document)):
        if re.match(r"\w+://", link):
            continue
        name, _, anchor = link.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), link
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), link


def test_files_that_are_named_exist():
    """In the map of the code, the paths through it, the tests of the results."""
    text = read("CONTRIBUTING.md") + read("docs/paper.md")
    named = set(re.findall(r"`((?:bert_tf|data_gen)/[\w/]*\.py)[:`]", text))
    named |= set(re.findall(r"`(tests/[\w/]+\.py)`", read("docs/results.md")))
    assert {"data_gen/pipeline.py", "bert_tf/data/records.py", "bert_tf/training/step.py"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_a_tpu_machine_gets_what_setup_py_asks_for():
    """But for TensorFlow, whose build for TPUs has another name and goes without dependencies."""
    declared = read("setup.py").partition("install_requires=[")[2].partition("]")[0]
    asked = {name for name in re.findall(r'"(\S+)"', declared) if "tensorflow" not in name}
    given = {line for line in read("requirements-tpu.txt").splitlines() if line[0] != "#"}
    assert len(asked) == 6
    assert {name for name in given if not re.match("tensorflow|libtpu", name)} == asked
