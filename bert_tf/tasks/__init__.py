"""Tasks: from a row of a file to the model's inputs, and back to files.

registry.py  the tasks, each declared in a few lines: get_task, list_tasks, register
task.py      what such a declaration is; reads its examples from files or datasets
examples.py  files and datasets -> rows, each with its place -> examples
features.py  examples -> features -> records; windows over long sentences of words
results.py   metrics: eval_accuracy, eval_f1, ...; predictions -> files
text_run.py  fine-tuning on texts, once or in a grid; `squad.run` does so on questions

The way of a label from a cell of a CSV file to the loss, in the order of the calls:

    run_classifier.py        main, read_split        flags -> the task csv and its data
    tasks/registry.py        _own_files              which column it is in, what it may be
    tasks/task.py            Task.read               the file of the split
    tasks/examples.py        Layout.read, _label     cells -> Example(label="yes")
    heads/labels.py          Labels.parse            asks the head of the task:
    heads/task_heads.py      LabelHead.parse         is "yes" a label?
    training/fine_tuning.py  Run.train, prepare      writes the records that are trained on
    tasks/text_run.py        TextRun.rows            the values of each record
    tasks/features.py        make_features           "yes" -> label_ids [1]
    data/records.py          Record.serialize        -> train.tf_record; Record.checked: -> a batch
    training/step.py         Steps                   a batch -> logits, loss, update
    heads/task_heads.py      Classification.losses   label_ids [B, 1], logits [B, L] -> losses [B]

For a task of one's own, and a head: `register(Task(...))`, see docs/own_head.md.
"""

# ruff: noqa: F401
from bert_tf.tasks.examples import ChoiceColumns, TextColumns, WordColumns
from bert_tf.tasks.registry import get_task, list_tasks, register
from bert_tf.tasks.task import Task, splits
