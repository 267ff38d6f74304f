"""The tasks: each a declaration of its files, columns, labels, metrics and submission.

A new task is one entry more in `_FIXED`:

    Task(
        name="snli",
        title="Does one sentence follow from another?",
        layout=TextColumns(text_a="sentence1", text_b="sentence2", label="gold_label"),
        labels=Labels(names=("contradiction", "entailment", "neutral")),
        metrics=("accuracy",),
        splits=splits("train.tsv", "dev.tsv", "test.tsv"),
    )
"""

import dataclasses
from collections.abc import Callable, Sequence

from bert_tf.errors import InputError
from bert_tf.tasks.examples import NONE, OPTIONAL, ChoiceColumns, TextColumns, WordColumns
from bert_tf.tasks.labels import Labels
from bert_tf.tasks.tables import FORMATS, Column
from bert_tf.tasks.task import Split, Task, splits

NLI_LABELS = Labels(names=("contradiction", "entailment", "neutral"))  # the original's order


def _glue(name: str, title: str, *, pair: tuple[str, str], tfds: str, **declaration) -> Task:
    """A pair task of GLUE with the usual three files; `tfds`: its two texts there."""
    first, second = tfds.split()
    own = {"label": "label", "id": "index"} | declaration.pop("layout", {})
    return Task(
        name=name,
        title=title,
        layout=TextColumns(text_a=pair[0], text_b=pair[1], **own),
        splits=splits("train.tsv", "dev.tsv", "test.tsv", submission=f"{name.upper()}.tsv"),
        tfds_layout=TextColumns(
            text_a=first,
            text_b=second,
            label="label",
            id="idx",
            skip_flawed=own.get("skip_flawed", False),
        ),
        **declaration,
    )


_MNLI_PAIR = TextColumns(
    text_a="sentence1",
    text_b="sentence2",
    label="gold_label",
    id="index",
    positions={"text_a": 8, "text_b": 9, "label": -1},
)
_MNLI_TFDS = TextColumns(text_a="premise", text_b="hypothesis", label="label", id="idx")
_TWO = ("0", "1")
_YES_NO = Labels(names=("entailment", "not_entailment"))


def _mnli_splits() -> tuple[Split, ...]:
    parts = [Split(name="train", files=("train.tsv",), tfds_split="train")]
    for suffix, genre, short in (("", "matched", "m"), ("_mismatched", "mismatched", "mm")):
        dev, test = f"dev_{genre}.tsv", f"test_{genre}.tsv"
        parts += [
            Split(name=f"dev{suffix}", files=(dev,), tfds_split=f"validation_{genre}"),
            Split(
                name=f"test{suffix}",
                files=(test,),
                labelled=NONE,
                submission=f"MNLI-{short}.tsv",
                tfds_split=f"test_{genre}",
            ),
        ]
    return tuple(parts)


_FIXED = (
    Task(
        name="cola",
        title="Is the sentence grammatical? (GLUE)",
        layout=TextColumns(text_a=3, label=1),
        labels=Labels(names=_TWO, synonyms={"unacceptable": "0", "acceptable": "1"}),
        metrics=("matthews", "accuracy"),
        splits=(
            Split(name="train", files=("train.tsv",), tfds_split="train"),
            Split(name="dev", files=("dev.tsv",), tfds_split="validation"),
            Split(
                name="test",
                files=("test.tsv",),
                labelled=NONE,
                submission="CoLA.tsv",
                # This file has a header.
                layout=TextColumns(text_a="sentence", id="index"),
                tfds_split="test",
            ),
        ),
        tfds_layout=TextColumns(text_a="sentence", label="label", id="idx"),
    ),
    Task(
        name="sst-2",
        title="Is the opinion good or bad? (GLUE)",
        layout=TextColumns(text_a="sentence", label="label", id="index"),
        labels=Labels(names=_TWO, synonyms={"negative": "0", "positive": "1"}),
        metrics=("accuracy",),
        splits=splits("train.tsv", "dev.tsv", "test.tsv", submission="SST-2.tsv"),
        tfds_layout=TextColumns(text_a="sentence", label="label", id="idx"),
    ),
    _glue(
        "mrpc",
        "Do two sentences of news say the same? (GLUE)",
        pair=("#1 String", "#2 String"),
        layout={"label": "Quality", "positions": {"label": 0, "text_a": 3, "text_b": 4}},
        labels=Labels(names=_TWO, synonyms={"not_equivalent": "0", "equivalent": "1"}),
        metrics=("f1", "accuracy"),
        tfds="sentence1 sentence2",
    ),
    _glue(
        "sts-b",
        "How alike are two sentences, from 0 to 5? (GLUE)",
        pair=("sentence1", "sentence2"),
        layout={"label": "score"},
        labels=Labels(head="regression", limits=(0.0, 5.0)),
        metrics=("spearman", "pearson"),
        tfds="sentence1 sentence2",
    ),
    _glue(
        "qqp",
        "Do two questions ask the same? (GLUE)",
        pair=("question1", "question2"),
        # The published files have rows that a line end inside a question cut in two, and some
        # questions that are empty.
        layout={"label": "is_duplicate", "id": "id", "skip_flawed": True},
        labels=Labels(names=_TWO, synonyms={"not_duplicate": "0", "duplicate": "1"}),
        metrics=("f1", "accuracy"),
        tfds="question1 question2",
    ),
    Task(
        name="mnli",
        title="Does a sentence follow from another, contradict it, or neither? (GLUE)",
        layout=_MNLI_PAIR,
        labels=NLI_LABELS,
        metrics=("accuracy",),
        splits=_mnli_splits(),
        tfds_layout=_MNLI_TFDS,
    ),
    _glue(
        "qnli",
        "Does the sentence answer the question? (GLUE)",
        pair=("question", "sentence"),
        labels=_YES_NO,
        metrics=("accuracy",),
        tfds="question sentence",
    ),
    _glue(
        "rte",
        "Does a sentence follow from another? (GLUE)",
        pair=("sentence1", "sentence2"),
        labels=_YES_NO,
        metrics=("accuracy",),
        tfds="sentence1 sentence2",
    ),
    _glue(
        "wnli",
        "Is this what the pronoun means? (GLUE)",
        pair=("sentence1", "sentence2"),
        labels=Labels(names=_TWO, synonyms={"not_entailment": "0", "entailment": "1"}),
        metrics=("accuracy",),
        tfds="sentence1 sentence2",
    ),
    Task(
        name="ax",
        title="GLUE's diagnostic set, to be predicted by a model for mnli",
        layout=_MNLI_PAIR,
        labels=NLI_LABELS,
        metrics=("matthews", "accuracy"),
        splits=(
            Split(
                name="test",
                files=("diagnostic.tsv", "AX.tsv"),
                labelled=NONE,
                submission="AX.tsv",
                tfds_split="test",
            ),
        ),
        tfds_layout=_MNLI_TFDS,
    ),
    Task(
        name="swag",
        title="Which of four endings goes on from here?",
        layout=ChoiceColumns(
            text_a="sent1",
            start="sent2",
            endings=("ending0", "ending1", "ending2", "ending3"),
            label="label",
            id="",  # the first column has no name
        ),
        labels=Labels(head="multiple_choice", names=("0", "1", "2", "3")),
        metrics=("accuracy",),
        splits=splits("train.csv", "val.csv|dev.csv", "test.csv", test_labels=OPTIONAL),
    ),
    Task(
        name="ner",
        title="The entities of a text in words, in the format of CoNLL-2003",
        layout=WordColumns(),
        labels=Labels(head="token_labels"),
        metrics=("entity_f1", "accuracy"),
        splits=splits(
            "train.txt|eng.train",
            "dev.txt|valid.txt|eng.testa",
            "test.txt|eng.testb",
            test_labels=OPTIONAL,
        ),
    ),
)


def _xnli(*, language: str = "zh") -> Task:
    """XNLI in one language: trained on the translated MNLI (original: `XnliProcessor`).

    In tensorflow-datasets xnli has the dev and test data, xtreme_xnli a translation of the
    training data by another system.
    """
    held_out = TextColumns(
        text_a="sentence1",
        text_b="sentence2",
        label="gold_label",
        only=("language", language),
    )
    return Task(
        name="xnli",
        title="mnli in 15 languages (--xnli_language)",
        layout=held_out,
        labels=dataclasses.replace(NLI_LABELS, synonyms={"contradictory": "contradiction"}),
        metrics=("accuracy",),
        splits=(
            Split(
                name="train",
                files=(f"multinli/multinli.train.{language}.tsv",),
                layout=TextColumns(text_a="premise", text_b="hypo", label="label"),
                tfds_split="train",
            ),
            Split(name="dev", files=("xnli.dev.tsv",), tfds_split="validation"),
            Split(name="test", files=("xnli.test.tsv",), tfds_split="test"),
        ),
        tfds_layout=TextColumns(
            text_a=f"premise/{language}", text_b=f"hypothesis/{language}", label="label"
        ),
    )


_HEAD_OF_LABEL_KIND = {"classes": "classification"}  # the others have the name of the head
_METRICS_OF_OWN = {
    "classes": ("accuracy", "macro_f1", "matthews"),
    "regression": ("spearman", "pearson"),
    "multi_label": ("micro_f1", "macro_f1", "accuracy"),
}


def _own_files(
    name: str,
    *,
    text_a: str = "text_a",
    text_b: str | None = None,
    label: str = "label",
    id_column: str | None = None,
    has_header: bool = True,
    label_kind: str = "classes",
    labels: Sequence[str] = (),
    label_separator: str = ",",
    train_file: str | None = None,
    dev_file: str | None = None,
    test_file: str | None = None,
) -> Task:
    """A user's own files; columns are names, or in files without a header positions from 0."""
    if label_kind not in _METRICS_OF_OWN:
        raise InputError(
            received=f"{label_kind!r} for the labels of the task {name}",
            expected=f"one of {', '.join(_METRICS_OF_OWN)}",
            remedy="correct the flag; for words with tags use the task ner",
        )
    if len(set(labels)) < len(labels) or "" in labels:
        raise InputError(
            received=f"the labels {', '.join(map(repr, labels))}",
            expected="different names",
            remedy="correct the flag",
        )
    columns = _columns_of_own(
        {"text_a": text_a, "text_b": text_b, "label": label, "id": id_column},
        by_name=has_header or name == "jsonl",
    )
    files = (train_file or f"train.{name}", dev_file or f"dev.{name}", test_file or f"test.{name}")
    return Task(
        name=name,
        title=f"a user's own {name} files: see the column flags",
        layout=TextColumns(**columns, id_required=True, file_format=name),
        labels=Labels(
            head=_HEAD_OF_LABEL_KIND.get(label_kind, label_kind),
            names=tuple(labels),
            separator=label_separator,
        ),
        metrics=_METRICS_OF_OWN[label_kind],
        splits=splits(*files, test_labels=OPTIONAL),
    )


def _columns_of_own(columns: dict[str, str | None], *, by_name: bool) -> dict[str, Column | None]:
    """What the column flags say, checked."""
    given = {role: column for role, column in columns.items() if column is not None}
    are_numbers = all(column.isascii() and column.isdigit() for column in given.values())
    if len(set(given.values())) < len(given) or not (by_name or are_numbers):
        raise InputError(
            received=f"the columns {', '.join(f'{k}={v}' for k, v in given.items())}",
            expected="different ones: names, or positions from 0 if the files have no header",
            remedy="correct the column flags",
        )
    return columns if by_name else {role: int(column) for role, column in given.items()}


_MADE: dict[str, Callable[..., Task]] = {"xnli": _xnli} | {
    file_format: lambda file_format=file_format, **options: _own_files(file_format, **options)
    for file_format in FORMATS
}


def list_tasks() -> tuple[str, ...]:
    """The names of all tasks."""
    return (*(task.name for task in _FIXED), *_MADE)


def describe_tasks() -> str:
    """All tasks for --help: what is asked, the metrics, and the files in --data_dir."""
    lines = []
    for task in map(get_task, list_tasks()):
        files = " ".join(dict.fromkeys("|".join(split.files) for split in task.splits))
        lines += [f"{task.name}: {task.title}", f"  [{', '.join(task.metrics)}] {files}"]
    return "\n".join(lines)


def get_task(name: str, **options) -> Task:
    """The task of a name; case and hyphens do not count.

    Args:
      name: one of `list_tasks()`.
      **options: xnli: language. csv, tsv, jsonl: those of `_own_files`: text_a, text_b, label,
        id_column, has_header, label_kind, labels, label_separator, train_file, dev_file, test_file.

    Raises:
      InputError: there is no such task, or its columns or head cannot be.
    """
    name = find_name(name)
    if name in _MADE:
        return _MADE[name](**options)
    if options:
        raise ValueError(f"the task {name} takes no options, received {options}")
    return next(task for task in _FIXED if task.name == name)


def find_name(name: str) -> str:
    """The name in `list_tasks()`; case and hyphens do not count. Raises InputError if none is."""

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for known in list_tasks():
        if plain(known) == plain(name):
            return known
    raise InputError(
        received=f"the task {name!r}",
        expected=f"one of {', '.join(list_tasks())}",
        remedy="correct --task_name; for your own files use csv, tsv or jsonl",
    )
