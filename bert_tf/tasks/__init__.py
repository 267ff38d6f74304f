"""Sentence tasks: from a row of a file to the model's inputs, and back to files.

registry.py  the tasks, each declared in a few lines: get_task, list_tasks
task.py      what such a declaration is; reads its examples from files or datasets
tables.py    files -> rows (TSV, CSV, JSON lines, CoNLL), each with its place
examples.py  rows -> examples
labels.py    labels: parsed, named by the training data, as numbers, decided, spelled
features.py  examples -> features -> records; windows over long sentences of words
metrics.py   label ids and predictions -> eval_accuracy, eval_f1, ...
run.py       one task in one folder: records, model and loss of each head, evaluation, prediction
sweep.py     several learning rates and seeds, the best by the dev data
outputs.py   predictions, and the results of a sweep -> files
"""
