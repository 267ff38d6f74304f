"""Tasks: from a row of a file to the model's inputs, and back to files.

registry.py  the tasks, each declared in a few lines: get_task, list_tasks, register
task.py      the class of these declarations; reads examples from files or datasets
examples.py  files and datasets -> rows, each with its place -> examples
features.py  examples -> features -> records; windows over long sentences of words
results.py   metrics: eval_accuracy, eval_f1, ...; predictions -> files
text_run.py  fine-tuning on texts; `squad.run` does so on questions
trials.py    a grid of such runs

From a cell of a CSV file to the loss, function by function: "A label" in CONTRIBUTING.md.

A task of your own: `register(Task(...))`; with a head of its own: docs/own_head.md.
"""

# ruff: noqa: F401
from bert_tf.tasks.examples import ChoiceColumns, TextColumns, WordColumns
from bert_tf.tasks.registry import get_task, list_tasks, register
from bert_tf.tasks.task import Task, splits
