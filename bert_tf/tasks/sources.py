"""Where the data of a task come from: options -> the task, and the examples of its splits.

TensorFlow is loaded only when data are read.
"""

import hashlib
import os
from collections.abc import Collection
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.checkpoints.metadata import Weights
from bert_tf.data.options import Datasets
from bert_tf.errors import InputError
from bert_tf.files import is_file
from bert_tf.heads import Labels
from bert_tf.heads.schemes import have_prefixes
from bert_tf.heads.tags import Tags
from bert_tf.options import option, replaced
from bert_tf.tables import CONLL, JSON, JSONL, Texts
from bert_tf.tasks import registry
from bert_tf.tasks.equal_texts import say_copies, split_by_label
from bert_tf.tasks.examples import OWN_FORMATS, AnyExample, texts_of
from bert_tf.tasks.registry import OwnFiles
from bert_tf.tasks.results import examples_text
from bert_tf.tasks.task import Split, Task
from bert_tf.tasks.word_files import are_words

MOST_TAGS = 5  # in a message
NER = "ner"  # a published task that also reads a user's own files
DEV_FILE = "dev.jsonl"  # the rows of --dev_share, in the folder of a run


class TaskData(Datasets):
    """A task and its data."""

    task_name: str | None = option(
        "Of your own files by default what their content shows; else one of:\n"
        f"{registry.describe_tasks()}",
        default=None,
        original=True,
    )
    data_dir: str | None = option(
        "The folder of the task's files.", default=None, path=True, original=True
    )
    own: OwnFiles = OwnFiles()

    @property
    def folder(self) -> str | None:
        """The folder of the files; the current one if files are named, None for a dataset."""
        if self.data_dir:
            return self.data_dir
        return "." if self.own.first and not self.tfds_name else None

    @property
    def is_own(self) -> bool:
        """Whether the files are the user's own."""
        name = registry.find_name(self.task_name) if self.task_name else None
        return name in (None, *OWN_FORMATS) or (name == NER and bool(self.own.first))

    def check(self) -> None:
        """Refuses options that name no source of data, or two."""
        has_own_file = self.own.first and not self.tfds_name
        if not self.task_name and not has_own_file:
            expected = "--task_name=mrpc, say, or a file of your own: --train_file=tickets.csv"
            raise InputError("no --task_name", expected, "add one of the two")
        if not self.folder and not self.tfds_name:
            received = "neither --data_dir nor --tfds_name"
            raise InputError(received, "at least one of them", "add one of them")
        self._refuse_unread()

    def _refuse_unread(self) -> None:
        """Refuses options of files that the task does not read: its scores are of other data."""
        own_files = self.own
        source = f"--task_name={self.task_name}"
        if self.tfds_name:
            source = f"--tfds_name={self.tfds_name}"
        reads_own_files = not self.tfds_name and self.is_own
        if own_files.dev_share and (own_files.dev_file or not reads_own_files):
            second = f"--dev_file={own_files.dev_file}" if own_files.dev_file else source
            expected = "dev data of one source: a file, or a share of your own training file"
            raise InputError(f"--dev_share with {second}", expected, "leave out one of the two")
        if reads_own_files:
            return
        unread: dict[str, object] = {
            "train_file": own_files.train_file,
            "dev_file": own_files.dev_file,
            "test_file": own_files.test_file,
        }
        if self.tfds_name:
            unread["data_dir"] = self.data_dir
        unread["encoding"] = own_files.reading.encoding
        unread["skip_bad_rows"] = own_files.skip_bad_rows
        if own_files.reading.encoding_errors != type(own_files.reading)().encoding_errors:
            unread["encoding_errors"] = own_files.reading.encoding_errors
        for name, value in unread.items():
            if value:
                received = f"--{name}={value} with {source}, which does not read it"
                remedy = (
                    "leave out one of the two; a file of your own: --task_name=csv, tsv or jsonl"
                )
                raise InputError(received, "data from one source", remedy)

    def own_paths(self) -> dict[str, str]:
        """The paths of the user's own files by split.

        If the task, and so the format, is not named, only files that are named.
        """
        if self.tfds_name or not self.is_own:
            return {}
        own_files = self.own
        names: tuple[str | None, ...] = (
            own_files.train_file,
            own_files.dev_file,
            own_files.test_file,
        )
        if self.task_name and registry.find_name(self.task_name) != NER:
            names = own_files.names(registry.find_name(self.task_name))
        paths = {}
        for split, name in zip(("train", "dev", "test"), names, strict=True):
            if name:
                paths[split] = os.path.join(self.folder or "", name)
        return paths

    def refuse_trained_dev_file(self) -> None:
        """Refuses dev data that are the training file, under whatever name."""
        paths = self.own_paths()
        train = paths.get("train")
        dev = paths.get("dev")
        if train and dev and not self.own.dev_share and files.are_same(train, dev):
            received = f"{dev} as the dev data, which is the training file {train}"
            expected = "dev data that the model is not trained on"
            remedy = "give another --dev_file, or --dev_share=0.1 instead of it"
            raise InputError(received, expected, remedy)


def task_of(data: TaskData, best_metric: str) -> Task:
    """The task of the options.

    Args:
      data: has the name of the task, or files whose content shows it.
      best_metric: a metric to add to the task's; "" for none.

    Raises:
      InputError: there is no such task or metric.
    """
    name = registry.find_name(data.task_name) if data.task_name else None
    options: dict[str, Any] = {}
    if data.is_own:
        name, own_files = _own_files_of(data, name)
        options = {"own": own_files}
    elif name == "xnli":
        options = {"language": registry.language_of(data.task_name)}
    task = registry.get_task(name, **options)
    if data.folder:
        task = task.with_choices_in(data.folder)
    return task.with_metric(best_metric)


def _own_files_of(data: TaskData, name: str | None) -> tuple[str, OwnFiles]:
    """The task of a user's own files, and their options.

    Args:
      data: the files.
      name: the name of the task; None: the content of the first file decides.
    """
    own_files = data.own
    are_tags = own_files.label_kind == Tags.kind or name == NER
    kind = ""
    paths = [*data.own_paths().values()]
    if not are_tags and paths and (not name or is_file(paths[0])):
        is_default = own_files.label_kind == OwnFiles().label_kind
        texts = Texts(are_tagged=are_words if is_default else None)
        kind = registry.get_task("csv", own=own_files).layout.kind_of(paths[0], texts)
    if are_tags or kind == CONLL:
        if name in (None, NER):
            name = JSONL
        return name, replaced(own_files, label_kind=Tags.kind)
    if not name:
        name = JSONL if kind == JSON else kind
    return name, own_files


def splits_of(data: TaskData, task: Task, kind: str) -> tuple[Split, ...]:
    """The splits of a kind (train, dev, test) whose files exist; the first is required."""
    splits = task.splits_of(kind) or (task.split(kind),)
    if data.tfds_name:
        return splits
    absent = [split for split in splits[1:] if not task.find_file(data.folder, split)]
    for split in absent:
        logging.warning("No %s in %s: left out.", split.files.replace("|", " or "), data.folder)
    return tuple(split for split in splits if split not in absent)


def read_examples(data: TaskData, task: Task, split: Split, *, seed: int) -> list[AnyExample]:
    """The examples of a split, from files or a dataset.

    Args:
      data: where they are.
      task: the task.
      split: the split.
      seed: decides which examples are dev data, with --dev_share.

    Raises:
      InputError: the data are missing, or something in them cannot be used.
    """
    if data.tfds_name:
        return task.read_tfds(data.tfds_name, split.name)
    share = data.own.dev_share
    if not share or split.kind not in ("train", "dev"):
        return task.read(data.folder, split.name)
    examples = task.read(data.folder, "train")
    train, dev = split_by_label(examples, share, seed)
    if not dev:
        received = f"--dev_share={share} of {len(examples)} examples, none of which can be dev data"
        expected = (
            "two different texts of some label: equal texts stay together, and so does a "
            "label with one text"
        )
        raise InputError(received, expected, "check --label_column, or give a --dev_file")
    chosen = train if split.kind == "train" else dev
    text = "%s data: %d of the %d examples of the training data, by --dev_share and --seed"
    logging.info(text, split.name, len(chosen), len(examples))
    if split.kind == "dev":  # every command with --dev_share reads it, so this is logged once
        say_copies(examples)
    return chosen


def check_dev_rows(
    output_dir: str,
    rows: list[AnyExample],
    *,
    share: float,
    seed: int,
    is_trained: bool,
    written: Collection[str],
) -> None:
    """Compares the dev data with the file of dev data in the folder of the run.

    A command that does not train must have the rows of the file. A command that trains may have
    others, if the file is an earlier command's, which it then replaces.

    Args:
      output_dir: the folder of the run.
      rows: the dev data.
      share, seed: by which they were chosen, for messages.
      is_trained: whether the command trains.
      written: the SHA-256 of the files that commands have written there.

    Raises:
      InputError: the model was trained with other dev data, or the file is the user's own.
    """
    path = f"{output_dir}/{DEV_FILE}"
    digest = files.digest_of(path) if files.gfile(path).exists(path) else None
    if digest == hashlib.sha256(examples_text(rows).encode()).hexdigest():
        return
    if not is_trained:
        received = f"--dev_share={share} --seed={seed} without --do_train"
        expected = f"the rows of {path}, which the model was not trained on"
        remedy = f"give the flags and file of the training, or --task_name=jsonl --dev_file={path}"
        raise InputError(received, expected, remedy)
    if digest and digest not in written:
        received = f"{path}, a file that no command has written there"
        expected = f"no other {DEV_FILE} where --dev_share writes its rows"
        raise InputError(received, expected, "move it, or choose another --output_dir")


def write_dev_rows(output_dir: str, rows: list[AnyExample]) -> None:
    """Writes the dev data of --dev_share into the folder of the run."""
    files.write_text(f"{output_dir}/{DEV_FILE}", examples_text(rows))


def with_labels(task: Task, train: list[AnyExample] | None, source: Weights) -> Task:
    """The task with its label names: those it has, those of the training data, or of the model.

    Args:
      task: the task.
      train: the training data; None if nothing is trained.
      source: the model.
    """
    if train is not None:
        task = task.with_labels_of(train)
    else:
        task = task.with_labels_of_model(
            source.metadata.labels, source=source.path, is_originals=source.format == "tf1"
        )
        task = task.with_thresholds(source.metadata.thresholds or {})
    if train and type(task.labels) is Labels and have_prefixes(task.labels.names):
        _doubt_single_words(task, train)
    names = ", ".join(task.labels.names) or "none (regression)"
    logging.info("Classes, in their order: %s", names)
    return task.check_f1()


def _doubt_single_words(task: Task, train: list[AnyExample]) -> None:
    """Warns if every text is a single word: with tags as labels these may be sentences in words."""
    if any(len(text.split()) > 1 for example in train for text in texts_of(example)):
        return
    message = (
        "Each text is a word, and the labels are tags (%s): --label_kind=tags reads sentences, "
        "in which every word has a tag."
    )
    logging.warning(message, ", ".join(task.labels.names[:MOST_TAGS]))
