"""Tasks: from a row of a file to the model's inputs, and back to files.

registry.py  the tasks, each declared in a few lines: get_task, list_tasks, register
task.py      what such a declaration is; reads its examples from files or datasets
examples.py  files and datasets -> rows, each with its place -> examples
features.py  examples -> features -> records; windows over long sentences of words
results.py   metrics: eval_accuracy, eval_f1, ...; predictions -> files
run.py       fine-tuning in one folder, whatever the task; its best checkpoint, early stopping
text_run.py  fine-tuning on texts, once or in a grid; `squad.run` does so on questions

For a task of one's own, and a head: `register(Task(...))`, see docs/own_head.md.
"""

import importlib
from typing import Any

_HOMES = {
    "examples": ("ChoiceColumns", "TextColumns", "WordColumns"),
    "task": ("Task", "splits"),
    "registry": ("get_task", "list_tasks", "register"),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str) -> Any:
    """Loads a public name from its module."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
