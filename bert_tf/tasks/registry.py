"""The tasks: each declares its files, columns, labels, metrics and submission.

A new task is an entry of `_TASKS`:

    Task(
        name="snli",
        title="Does one sentence follow from another?",
        layout=TextColumns(
            text_a="sentence1",
            text_b="sentence2",
            label="gold_label",
            disputed="-",
        ),
        labels=Labels(names=("contradiction", "entailment", "neutral")),
        metrics=("accuracy",),
        splits=splits("train.tsv", "dev.tsv", "test.tsv", labelled=OPTIONAL),
    )
"""

import functools
import re
from collections.abc import Callable
from typing import Any

from bert_tf import heads
from bert_tf.errors import InputError
from bert_tf.heads import Choices, Labels, Scores, Tags
from bert_tf.options import Options, Reading, option
from bert_tf.tables import Column
from bert_tf.tasks.examples import (
    NONE,
    OPTIONAL,
    OWN_FORMATS,
    ChoiceColumns,
    Layout,
    TextColumns,
    WordColumns,
)
from bert_tf.tasks.task import Split, Task, splits
from bert_tf.tasks.word_files import WordFile

GLUE_FILES = ("train.tsv", "dev.tsv", "test.tsv")
NLI_LABELS = Labels(names=("contradiction", "entailment", "neutral"))  # the original's order
TWO_SENTENCES = {"text_a": "sentence1", "text_b": "sentence2"}
ENDINGS = ("ending0", "ending1", "ending2", "ending3")
OWN_HINT = "; --text_a_column, --label_column and so on name the columns"
FIRST_COLUMN = ""  # the first column of SWAG has no name
YES_NO = Labels(names=("entailment", "not_entailment"))


def _no_yes(no: str, yes: str) -> Labels:
    """The labels 0 and 1, with their names in tensorflow-datasets and published models."""
    return Labels(names=("0", "1"), synonyms={no: "0", yes: "1"})


def _glue(
    name: str,
    title: str,
    texts: dict[str, str],
    labels: Labels,
    metrics: tuple[str, ...] = ("accuracy",),
    *,
    tfds_texts: dict[str, str] | None = None,
    files: tuple[str, str, str] = GLUE_FILES,
    **columns,
) -> Task:
    """A task of GLUE with the usual three files.

    Args:
      name, title, labels, metrics: of the task.
      texts: the columns of its texts.
      tfds_texts: the same in tensorflow-datasets, where they have other names.
      files: the files of train, dev and test.
      **columns: the other columns, if they are not called label and index.
    """
    columns = {"label": "label", "id": "index"} | columns
    tfds_columns = columns | {"label": "label", "id": "idx"}
    return Task(
        name=name,
        title=f"{title} (GLUE)",
        layout=TextColumns(**texts, **columns),
        labels=labels,
        metrics=metrics,
        splits=splits(*files, submission=f"{name.upper()}.tsv"),
        tfds_layout=TextColumns(**(tfds_texts or texts), **tfds_columns),
    )


_MNLI_POSITIONS = {"text_a": 8, "text_b": 9, "label": -1}
_MNLI_PAIR = TextColumns(
    **TWO_SENTENCES, label="gold_label", id="index", positions=_MNLI_POSITIONS, disputed="-"
)
_MNLI_TFDS = TextColumns(text_a="premise", text_b="hypothesis", label="label", id="idx")

_TASKS = (
    Task(
        name="cola",
        title="Is the sentence grammatical? (GLUE)",
        layout=TextColumns(text_a=3, label=1),
        labels=_no_yes("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"),
        splits=splits(
            *GLUE_FILES,
            submission="CoLA.tsv",
            layout=TextColumns(text_a="sentence", id="index"),  # only this file has a header
        ),
        tfds_layout=TextColumns(text_a="sentence", label="label", id="idx"),
    ),
    _glue(
        "sst-2",
        "Is the opinion good or bad?",
        {"text_a": "sentence"},
        _no_yes("negative", "positive"),
    ),
    _glue(
        "mrpc",
        "Do two sentences of news say the same?",
        {"text_a": "#1 String", "text_b": "#2 String"},
        _no_yes("not_equivalent", "equivalent"),
        ("f1", "accuracy"),
        tfds_texts=TWO_SENTENCES,
        label="Quality",
        positions={"label": 0, "text_a": 3, "text_b": 4},
    ),
    _glue(
        "sts-b",
        "How alike are two sentences, from 0 to 5?",
        TWO_SENTENCES,
        Scores(limits=(0.0, 5.0)),
        ("spearman", "pearson"),
        label="score",
        # As in GLUE, or as the STS benchmark itself is published.
        files=("train.tsv|sts-train.csv", "dev.tsv|sts-dev.csv", "test.tsv|sts-test.csv"),
        headless={"label": 4, "text_a": 5, "text_b": 6},
    ),
    _glue(
        "qqp",
        "Do two questions ask the same?",
        {"text_a": "question1", "text_b": "question2"},
        _no_yes("not_duplicate", "duplicate"),
        ("f1", "accuracy"),
        label="is_duplicate",
        id="id",
        # In the published files some questions are empty, and a line end inside a question cuts
        # its row in two.
        skip_flawed=True,
    ),
    Task(
        name="mnli",
        title="Does a sentence follow from another, contradict it, or neither? (GLUE)",
        layout=_MNLI_PAIR,
        labels=NLI_LABELS,
        metrics=("accuracy",),
        splits=(
            Split("train", "train.tsv", "train"),
            Split("dev", "dev_matched.tsv", "validation_matched"),
            Split("dev_mismatched", "dev_mismatched.tsv", "validation_mismatched"),
            Split("test", "test_matched.tsv", "test_matched", NONE, "MNLI-m.tsv"),
            Split("test_mismatched", "test_mismatched.tsv", "test_mismatched", NONE, "MNLI-mm.tsv"),
        ),
        tfds_layout=_MNLI_TFDS,
    ),
    _glue(
        "qnli",
        "Does the sentence answer the question?",
        {"text_a": "question", "text_b": "sentence"},
        YES_NO,
    ),
    _glue("rte", "Does a sentence follow from another?", TWO_SENTENCES, YES_NO),
    _glue(
        "wnli",
        "Is this what the pronoun means?",
        TWO_SENTENCES,
        _no_yes("not_entailment", "entailment"),
    ),
    Task(
        name="ax",
        title="GLUE's diagnostic set, to be predicted by a model for mnli",
        layout=_MNLI_PAIR,
        labels=NLI_LABELS,
        metrics=("matthews", "accuracy"),
        splits=(Split("test", "diagnostic.tsv|AX.tsv", "test", NONE, "AX.tsv"),),
        tfds_layout=_MNLI_TFDS,
    ),
    Task(
        name="swag",
        title="Which of several endings goes on from here?",
        layout=ChoiceColumns(
            text_a="sent1", start="sent2", endings=ENDINGS, label="label", id=FIRST_COLUMN
        ),
        labels=Choices(names=("0", "1", "2", "3")),
        metrics=("accuracy",),
        splits=splits("train.csv", "val.csv|dev.csv", "test.csv", labelled=OPTIONAL),
    ),
    Task(
        name="ner",
        title="The entities of a text in words, in the format of CoNLL-2003",
        layout=WordColumns(),
        labels=Tags(),
        metrics=("entity_f1", "accuracy"),
        splits=splits(
            "train.txt|eng.train",
            "dev.txt|valid.txt|eng.testa",
            "test.txt|eng.testb",
            labelled=OPTIONAL,
        ),
    ),
)


def _xnli(*, language: str = "zh") -> Task:
    """XNLI in one language: trained on the translated MNLI (original: `XnliProcessor`).

    Of tensorflow-datasets, xnli has the dev and test data, and xtreme_xnli has training data that
    another system translated.
    """
    training = f"multinli/multinli.train.{language}.tsv"
    return Task(
        name="xnli",
        title="mnli in 15 languages: Chinese, or that of xnli-de, say",
        layout=TextColumns(**TWO_SENTENCES, label="gold_label", only=("language", language)),
        labels=Labels(names=NLI_LABELS.names, synonyms={"contradictory": "contradiction"}),
        metrics=("accuracy",),
        splits=(
            Split(
                "train",
                f"{training}|XNLI-MT-1.0/{training}",
                "train",
                layout=TextColumns(text_a="premise", text_b="hypo", label="label"),
            ),
            Split("dev", "xnli.dev.tsv|XNLI-1.0/xnli.dev.tsv", "validation"),
            Split("test", "xnli.test.tsv|XNLI-1.0/xnli.test.tsv", "test"),
        ),
        tfds_layout=TextColumns(
            text_a=f"premise/{language}", text_b=f"hypothesis/{language}", label="label"
        ),
    )


OF_OWN_FILES = (
    "task_name=csv or task_name=tsv or task_name=jsonl or train_file or dev_file or test_file"
)


class OwnTexts(Reading, title="Of your own files (the tasks csv, tsv, jsonl)", acts=OF_OWN_FILES):
    """How a user's own files are decoded."""


class OwnFiles(Options, title="Of your own files (the tasks csv, tsv, jsonl)", acts=OF_OWN_FILES):
    """A user's own files; the options of the tasks csv, tsv and jsonl."""

    text_a_column: str = option("The column of the text.", default="text_a")
    text_b_column: str | None = option("The column of a second text.", default=None)
    label_column: str = option("The column of the label.", default="label")
    sentence_column: str | None = option(
        "Of a table with a word a row: the column that numbers sentences, or is empty but for the "
        "first word. Default: empty rows part them.",
        default=None,
        acts="label_kind=tags or task_name=ner",
    )
    id_column: str | None = option("The column of an id.", default=None)
    has_header: bool = option("The first line names the columns.", default=True)
    label_kind: str = option(
        "A label is a name, a number, names with a comma, ; or | between (in jsonl also a list of "
        "names), or a tag of each word: of a word a line (CoNLL) or a row of a table, in jsonl "
        "lists of words and tags, or a text and spans of start, end and label.",
        default="classes",
        choices=tuple(heads.LABEL_KINDS),
    )
    labels: tuple[str, ...] = option(
        "The labels' names; default: those of the training data.", default=()
    )
    train_file: str | None = option(
        "The training data. Default: train.csv, .tsv or .jsonl in --data_dir, by --task_name; "
        "likewise the dev and test files.",
        default=None,
        path=True,
        original=True,
    )
    dev_file: str | None = option("The dev data.", default=None, path=True)
    test_file: str | None = option("The test data.", default=None, path=True)
    dev_share: float = option(
        "The share of each label's training rows that is dev data instead of a file: chosen by "
        "--seed, equal texts together, and written to dev.jsonl in --output_dir. 0: a file has "
        "them.",
        default=0.0,
        low=0.0,
        high=0.9,
        acts="do_eval",
        recorded=True,
    )
    reading: OwnTexts = OwnTexts()
    skip_bad_rows: bool = option(
        "Leave out rows that cannot be used, instead of refusing the file.", default=False
    )

    @property
    def first(self) -> str | None:
        """The first file that is named; None if none is."""
        return self.train_file or self.dev_file or self.test_file

    def names(self, file_format: str) -> tuple[str, str, str]:
        """The files of train, dev and test; by default train.csv and so on, by the format."""
        return (
            self.train_file or f"train.{file_format}",
            self.dev_file or f"dev.{file_format}",
            self.test_file or f"test.{file_format}",
        )


def _own_files(file_format: str, own: OwnFiles | None = None, **options) -> Task:
    """The task of a user's own files."""
    own_files = own or OwnFiles(**options)
    kind = heads.LABEL_KINDS[own_files.label_kind]
    columns = _own_columns(own_files, kind, file_format)
    shared: dict[str, Any] = {
        "file_format": "",
        "skip_bad_rows": own_files.skip_bad_rows,
        "reading": own_files.reading,
    }
    layout: Layout
    if kind is Tags:
        layout = _own_words(own_files, shared)
    else:
        hint = OWN_HINT if kind is Scores else f"{OWN_HINT}, --labels all the labels"
        layout = TextColumns(**columns, id_required=True, hint=hint, **shared)
    return Task(
        name=file_format,
        title=f"a user's own {file_format} files: see the column flags",
        layout=layout,
        labels=kind(names=tuple(own_files.labels)),
        metrics=heads.head_named(kind.head).metrics,
        splits=splits(*own_files.names(file_format), labelled=OPTIONAL),
    )


def _own_columns(own_files: OwnFiles, kind: type[Labels], file_format: str) -> dict[str, Column]:
    """The columns of a user's own files by field: names, or positions without a header.

    Raises:
      InputError: two fields have the same column, or a position is no number.
    """
    columns = {"text_a": own_files.text_a_column, "label": own_files.label_column}
    if own_files.text_b_column is not None:
        columns["text_b"] = own_files.text_b_column
    if own_files.id_column is not None:
        columns["id"] = own_files.id_column
    if kind is Tags and own_files.sentence_column is not None:
        columns["sentence"] = own_files.sentence_column
    are_names = own_files.has_header or (file_format == "jsonl" and kind is not Tags)
    are_numbers = all(column.isascii() and column.isdigit() for column in columns.values())
    are_different = len({*columns.values()}) == len(columns)
    if not are_different or not (are_names or are_numbers):
        listed = ", ".join(f"{field}={column}" for field, column in columns.items())
        expected = "different ones: names, or positions from 0 if the files have no header"
        raise InputError(f"the columns {listed}", expected, "correct the column flags")
    if are_names:
        return {**columns}
    return {field: int(column) for field, column in columns.items()}


def _own_words(own_files: OwnFiles, shared: dict[str, Any]) -> WordColumns:
    """The layout of a user's own files of words and tags."""
    defaults = OwnFiles()
    are_chosen = (
        own_files.text_a_column != defaults.text_a_column,
        own_files.label_column != defaults.label_column,
    )
    if own_files.text_b_column is not None:
        received = f"--text_b_column={own_files.text_b_column} with --label_kind=tags"
        raise InputError(received, "sentences in words", "leave it out")
    file = WordFile(
        own_files.text_a_column,
        own_files.label_column,
        sentence=own_files.sentence_column,
        id=own_files.id_column,
        are_chosen=are_chosen,
        has_header=own_files.has_header,
        hint=OWN_HINT,
    )
    has_id = own_files.id_column is not None
    return WordColumns(
        file=file, id=own_files.id_column, id_required=has_id, hint=OWN_HINT, **shared
    )


_ALL: dict[str, Task | Callable[..., Task]] = {
    **{task.name: task for task in _TASKS},
    "xnli": _xnli,
    **{file_format: functools.partial(_own_files, file_format) for file_format in OWN_FORMATS},
}
_BUILT_IN = frozenset(_ALL)


def register(task: Task) -> None:
    """Makes a task known to the commands by its name.

    Raises:
      InputError: a task of this package has that name, or the head of its labels is not registered.
    """
    if task.name in _BUILT_IN:
        raise InputError(f"a task with the name {task.name}", "a new name", "rename the task")
    heads.head_named(task.labels.head)
    _ALL[task.name] = task


def list_tasks() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_ALL)


def describe_tasks() -> str:
    """All tasks for --help: title, metrics, and the files in --data_dir."""
    lines = []
    for task in map(get_task, list_tasks()):
        files = " ".join(dict.fromkeys(split.files for split in task.splits))
        lines += [f"{task.name}: {task.title}", f"  [{', '.join(task.metrics)}] {files}"]
    return "\n".join(lines)


def get_task(name: str, **options) -> Task:
    """The task of that name; case and hyphens are ignored.

    Args:
      name: one of `list_tasks()`.
      **options: xnli: language. csv, tsv, jsonl: own, an `OwnFiles`, or its fields.

    Raises:
      InputError: there is no such task, or its columns or labels are invalid.
    """
    task = _ALL[find_name(name)]
    if not isinstance(task, Task):
        return task(**options)
    if options:
        raise ValueError(f"the task {name} takes no options, received {options}")
    return task


def find_name(name: str) -> str:
    """The name as in `list_tasks()`, of any case and hyphens; `InputError` if there is none."""
    plain_name = _plain(name)
    if re.fullmatch(r"xnli[a-z]{2}", plain_name):
        return "xnli"
    names = {_plain(task_name): task_name for task_name in _ALL}
    if plain_name not in names:
        remedy = "correct --task_name; for your own files use csv, tsv or jsonl"
        raise InputError(f"the task {name!r}", f"one of {', '.join(_ALL)}", remedy)
    return names[plain_name]


def language_of(name: str) -> str:
    """The language in a task's name such as xnli-de; of xnli Chinese, as in the original."""
    return _plain(name).removeprefix("xnli") or "zh"


def _plain(name: str) -> str:
    """A task's name in lower case, without hyphens and underscores."""
    return re.sub("[-_]", "", name.lower())
