"""Tasks: from a row of a file to the model's inputs, and back to files.

registry.py  the tasks, each declared in a few lines: get_task, list_tasks, register
task.py      what such a declaration is; reads its examples from files or datasets
tables.py    files -> rows (TSV, CSV, JSON lines, CoNLL), each with its place
examples.py  rows -> examples
features.py  examples -> features -> records; windows over long sentences of words
metrics.py   label ids and predictions -> eval_accuracy, eval_f1, ...
run.py       fine-tuning in one folder, whatever the task: records, training, predictions
best.py      its best checkpoint, early stopping
text_run.py  fine-tuning on texts; `squad.run` does so on questions
sweep.py     several learning rates and seeds, the best by the dev data
outputs.py   predictions, and the results of a sweep -> files

For a task of one's own, and a head: `register(Task(...))`, see docs/own_head.md.
"""

import importlib
from typing import Any

_HOMES = {
    "ChoiceColumns": "examples",
    "TextColumns": "examples",
    "WordColumns": "examples",
    "Task": "task",
    "splits": "task",
    "get_task": "registry",
    "list_tasks": "registry",
    "register": "registry",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Loads a public name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = globals()[name] = getattr(home, name)
    return value
