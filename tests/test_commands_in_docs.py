"""The commands that are written down have scripts and flags that there are."""

import pathlib
import re
import shlex

import pytest
from absl import flags as absl_flags
from walking import in_process

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = ["README.md", "serve/README.md"]
DOCUMENTS += [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
PASSES_ON = {"benchmarks/beam_data.py": "create_pretraining_data.py"}  # flags of another script


def commands(text: str) -> list[list[str]]:
    """Every call of Python in the blocks of a document, in words."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    calls = [line[line.index("python ") :] for line in lines if re.search(r"(^|[ |])python ", line)]
    return [shlex.split(call, comments=True) for call in calls]


def written_down() -> dict[str, set[str]]:
    """The flags that documents use, by script."""
    found: dict[str, set[str]] = {}
    for name in DOCUMENTS:
        for words in commands((ROOT / name).read_text(encoding="utf-8")):
            script, rest = words[1], words[2:]
            if script == "-m":
                script, rest = words[2], words[3:]
                script = script.replace(".", "/")
                is_package = (ROOT / script).is_dir()
                script += "/__main__.py" if is_package else ".py"
            flags = found.setdefault(script, set())
            before_others = rest[: rest.index("--")] if "--" in rest else rest
            flags |= {w[2:].partition("=")[0] for w in before_others if w.startswith("--")}
    return found


WRITTEN = written_down()


def known_flags(script: str) -> set[str]:
    """Those that a script takes, with absl's negations."""
    source = (ROOT / script).read_text(encoding="utf-8")
    if "define_flags" not in source:
        return set(re.findall(r'"--(\w+)"', source))
    with in_process(script):
        names = {*absl_flags.FLAGS}
    return names | {f"no{name}" for name in names}


def test_there_are_commands():
    assert {"run_classifier.py", "run_squad.py", "run_pretraining.py"} <= WRITTEN.keys()
    assert "version_2_with_negative" in WRITTEN["run_squad.py"]
    assert commands("```\na.txt | python x.py --a=1 \\\n    --b  # c\n```\n") == [
        ["python", "x.py", "--a=1", "--b"]
    ]


@pytest.mark.parametrize("script", sorted(WRITTEN))
def test_the_flags_of_a_command_are_there(script):
    known = known_flags(script)
    if script in PASSES_ON:
        known |= known_flags(PASSES_ON[script])
    assert WRITTEN[script] <= known, f"unknown: {WRITTEN[script] - known}"
