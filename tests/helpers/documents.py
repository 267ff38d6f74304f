"""The documents: their text, and the commands and snippets in them."""

import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CHANGELOG.md", "serve/README.md", "data_gen/sample_text/README.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
MODULES = {"bert_tf.squad_evaluate": "evaluate-squad", "bert_tf.playground": "playground"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:^|[ |])((?:python|bert-tf) .*)")


def read(name: str) -> str:
    """A document."""
    return (ROOT / name).read_text(encoding="utf-8")


def commands_of_blocks(text: str) -> list[list[str]]:
    """The calls of Python and of bert-tf in a document's blocks, in words."""
    lines = "\n".join(block for _, block in BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    return [shlex.split(call[1], comments=True) for call in map(CALL.search, lines) if call]


def commands(text: str) -> list[list[str]]:
    """Those of its blocks and of its `code spans`."""
    spans = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    calls = [" ".join(span.split()) for span in spans if span.startswith(("python ", "bert-tf "))]
    return commands_of_blocks(text) + [shlex.split(call, comments=True) for call in calls]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """The script or verb of a call, and what follows it."""
    match words:
        case ["python", "-m", "bert_tf", verb, *rest] | ["bert-tf", verb, *rest]:
            return verb, rest
        case ["python", "-m", module, *rest]:
            return MODULES.get(module, module), rest
        case ["python", script, *rest]:
            return script, rest
    raise AssertionError(f"no command: {words}")


def snippets(text: str) -> str:
    """The Python of a document's blocks, as one program."""
    return "\n".join(block for language, block in BLOCK.findall(text) if language == "python")
