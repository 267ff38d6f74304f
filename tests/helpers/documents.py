"""The text of the documents, and the commands and snippets in it."""

import contextlib
import importlib.util
import pathlib
import re
import shlex
from types import ModuleType

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CHANGELOG.md", "examples/serving/README.md"]
DOCUMENTS += [f"data_gen/sample_{name}/README.md" for name in ("text", "topics")]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
# Scripts that add heads or tasks and take a verb of bert-tf.
WITH_VERBS = ("pairs.py", "benchmarks/heads_of_ones_own.py")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NO_SHELL = ("csv", "json", "python", "text")  # all other blocks are commands
PROGRAMS = ("python", "bert-tf")


def read(name: str) -> str:
    """The text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def docs_script(name: str) -> ModuleType:
    """A program of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shell_commands(text: str) -> list[list[str]]:
    """The commands of a document's blocks, in words; a pipe or `a && b` is one command."""
    split_commands = []
    command = ""
    shell = "\n".join(block for name, block in BLOCK.findall(text) if name not in NO_SHELL)
    for line in shell.replace("\\\n", " ").replace("|\n", "| ").splitlines():
        command += f"{line}\n"
        with contextlib.suppress(ValueError):  # a quotation goes on in the next line
            split_commands.append(shlex.split(command, comments=True))
            command = ""
    assert not command, f"a quotation without an end: {command}"
    return [words for words in split_commands if words]


def commands_of_blocks(text: str) -> list[list[str]]:
    """The calls of Python and of bert-tf in a document's blocks, in words."""
    calls = map(call_of, shell_commands(text))
    return [call for call in calls if call]


def call_of(words: list[str]) -> list[str]:
    """The words of a command from its first `python` or `bert-tf` on; [] without them."""
    for number, word in enumerate(words):
        if word in PROGRAMS:
            return words[number:]
    return []


def commands(text: str) -> list[list[str]]:
    """The calls in a document's blocks and in its `code spans`, in words."""
    spans = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    calls = [" ".join(span.split()) for span in spans if span.startswith(("python ", "bert-tf "))]
    return commands_of_blocks(text) + [shlex.split(call, comments=True) for call in calls]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """The script or verb of a call, and the words after it."""
    match words:
        case ["python", "-m", "bert_tf", verb, *rest] | ["bert-tf", verb, *rest]:
            return verb, rest
        case ["python", "-m", module, *rest]:
            return module, rest
        case ["python", script, verb, *rest] if script in WITH_VERBS:
            return verb, rest
        case ["python", script, *rest]:
            return script, rest
    raise AssertionError(f"no command: {words}")


def blocks(text: str, language: str) -> list[str]:
    """A document's blocks of a language."""
    return [block for name, block in BLOCK.findall(text) if name == language]


def snippets(text: str) -> str:
    """The Python of a document's blocks, as one program."""
    return "\n".join(blocks(text, "python"))
