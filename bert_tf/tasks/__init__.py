"""Sentence tasks: from a row of a file to the numbers a model is given, and back to files.

declarations.py  the tasks, each declared in a few lines: get_task, list_tasks
task.py          what such a declaration is; reads its examples from files or datasets
tables.py        files -> rows (TSV, CSV, JSON lines, CoNLL), each with its place
reading.py       rows -> examples
labels.py        what the labels are: parsed, found in the training data, as numbers, decided
features.py      examples -> features -> records; windows over long sentences of words
heads.py         the model and the loss of each head
metrics.py       labels and predictions -> eval_accuracy, eval_f1, ...
runs.py          a task's data and a model together: records, evaluation, prediction
trials.py        several learning rates and seeds, the best by the dev data
reports.py       what is said of these trials; pictures.py draws them
outputs.py       predictions -> files
tfds.py          examples from tensorflow-datasets
"""
