"""Makes options.md, a table of the options of every command, from their declarations.

python docs/options.py > docs/options.md
"""

import importlib
import re
from collections.abc import Iterator

from bert_tf.__main__ import VERBS
from bert_tf.cli.command_line import default_of, groups_of, text_of
from bert_tf.cli.main import options_class
from bert_tf.options import Option, Options

INTRODUCTION = """# Options of every command

What `bert-tf VERB --help` says, for all verbs. A switch is given as `--name` or `--noname`, all
others as `--name=VALUE`; `--flagfile=FILE` names a file with a flag a line. Options of
google-research/bert have its names and defaults."""
SCRIPTS = {  # verbs that are also scripts of the repository
    "data": "create_pretraining_data.py",
    "pretrain": "run_pretraining.py",
    "classify": "run_classifier.py",
    "squad": "run_squad.py",
    "features": "extract_features.py",
}


def main() -> None:
    """Prints the page."""
    print("\n\n".join(page()))


def page() -> Iterator[str]:
    """The parts of the page: a section for each verb, a table for each group of its options."""
    yield INTRODUCTION
    for verb, (module, summary) in VERBS.items():
        cls = options_class(importlib.import_module(module).main)
        script = f", or `python {SCRIPTS[verb]}`" if verb in SCRIPTS else ""
        yield f"## {verb}\n\n`bert-tf {verb}`{script}: {in_cell(summary)}"
        for title, options in groups_of(cls).items():
            rows = [row(option, cls) for option in options]
            yield "\n".join([f"{title}:\n", "| option | default | |", "|---|---|---|", *rows])


def row(option: Option, cls: type[Options]) -> str:
    """The row of an option: its flag, its default, what it does."""
    flag = f"--[no]{option.flag}" if option.kind is bool else f"--{option.flag}"
    default = "required" if option.is_required else default_of(option)
    if option.kind is bool:
        default = "yes" if option.shown else ""
    shown = f"`{default}`" if default not in ("", "required", "yes") else default
    text, *more = text_of(option, cls).replace(" (default: yes)", "").splitlines()
    if more:
        text += f" {len(more)} lines of `--help` list them."
    return f"| `{flag}` | {shown} | {in_cell(text)} |"


def in_cell(text: str) -> str:
    """A text as it is, in a cell of a table."""
    return re.sub(r"([\\*_\[\]|<>])", r"\\\1", text)


if __name__ == "__main__":
    main()
