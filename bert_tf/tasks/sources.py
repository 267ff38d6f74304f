"""Where the data of a task come from: options -> the task, and the examples of its splits.

Loads no TensorFlow before something is read.
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
NER = "ner"  # the task whose files may be one's own
DEV_FILE = "dev.jsonl"  # in the folder of a run: the rows of --dev_share


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
        """The folder of the files: the current one if some are named."""
        return self.data_dir or ("." if self.own.first and not self.tfds_name else None)

    @property
    def is_own(self) -> bool:
        """Whether the files are the user's own."""
        name = registry.find_name(self.task_name) if self.task_name else None
        return name in (None, *OWN_FORMATS) or (name == NER and bool(self.own.first))

    def check(self) -> None:
        """Refuses data of no source, or of two."""
        are_own_named = self.own.first and not self.tfds_name
        if not self.task_name and not are_own_named:
            expected = "--task_name=mrpc, say, or a file of your own: --train_file=tickets.csv"
            raise InputError("no --task_name", expected, "add one of the two")
        if not self.folder and not self.tfds_name:
            received = "neither --data_dir nor --tfds_name"
            raise InputError(received, "at least one of them", "add one of them")
        self._refuse_unread()

    def _refuse_unread(self) -> None:
        """Refuses files that the task does not read: the scores would be those of other data."""
        own = self.own
        unread: dict[str, object] = {}
        source = f"--task_name={self.task_name}"
        named = {
            "train_file": own.train_file,
            "dev_file": own.dev_file,
            "test_file": own.test_file,
        }
        if self.tfds_name:
            source = f"--tfds_name={self.tfds_name}"
            unread = {**named, "data_dir": self.data_dir}
        elif not self.is_own:
            unread = named
        if own.dev_share and (unread or own.dev_file):
            other = f"--dev_file={own.dev_file}" if own.dev_file else source
            expected = "dev data of one source: a file, or a share of your own training file"
            raise InputError(f"--dev_share with {other}", expected, "leave out one of the two")
        if unread:
            reading = own.reading
            errors = reading.encoding_errors != type(reading)().encoding_errors
            unread |= {"encoding": reading.encoding, "skip_bad_rows": own.skip_bad_rows}
            unread |= {"encoding_errors": reading.encoding_errors if errors else None}
        for name, value in unread.items():
            if value:
                received = f"--{name}={value} with {source}, which does not read it"
                remedy = "leave out one of the two; a file of your own: --task_name=csv, tsv or "
                raise InputError(received, "data from one source", remedy + "jsonl")

    def own_paths(self) -> dict[str, str]:
        """The paths of the user's own files by split; of no format yet, those that are named."""
        if self.tfds_name or not self.is_own:
            return {}
        own = self.own
        names: tuple[str | None, ...] = (own.train_file, own.dev_file, own.test_file)
        if self.task_name and registry.find_name(self.task_name) != NER:
            names = own.names(registry.find_name(self.task_name))
        given = zip(("train", "dev", "test"), names, strict=True)
        return {split: os.path.join(self.folder or "", name) for split, name in given if name}

    def refuse_trained_dev_file(self) -> None:
        """Refuses a file of dev data that is the training file, under whatever name."""
        paths = self.own_paths()
        train, dev = paths.get("train"), paths.get("dev")
        if train and dev and not self.own.dev_share and files.are_same(train, dev):
            received = f"{dev} as the dev data, which is the training file {train}"
            expected = "dev data that the model is not trained on"
            remedy = "give another --dev_file, or --dev_share=0.1 instead of it"
            raise InputError(received, expected, remedy)


def task_of(data: TaskData, best_metric: str) -> Task:
    """The task of the options.

    Args:
      data: with its name, or with files whose content shows it.
      best_metric: which it has as well; "" for none.

    Raises:
      InputError: there is no such task or metric.
    """
    name = registry.find_name(data.task_name) if data.task_name else None
    options: dict[str, Any] = {}
    if data.is_own:
        name, own = _own_files_of(data, name)
        options = {"own": own}
    elif name == "xnli":
        options = {"language": registry.language_of(data.task_name)}
    task = registry.get_task(name, **options)
    if data.folder:
        task = task.with_choices_in(data.folder)
    return task.with_metric(best_metric)


def _own_files_of(data: TaskData, name: str | None) -> tuple[str, OwnFiles]:
    """The task of one's own files and their options, as is said, or as the first of them shows."""
    own = data.own
    kind = ""
    paths = [*data.own_paths().values()]
    if own.label_kind != Tags.kind and name != NER and paths and (not name or is_file(paths[0])):
        is_default = own.label_kind == OwnFiles().label_kind
        texts = Texts(are_tagged=are_words if is_default else None)
        kind = registry.get_task("csv", own=own).layout.kind_of(paths[0], texts)
    if kind == CONLL or own.label_kind == Tags.kind or name == NER:
        return (JSONL if name in (None, NER) else name), replaced(own, label_kind=Tags.kind)
    return name or (JSONL if kind == JSON else kind), own


def splits_of(data: TaskData, task: Task, kind: str) -> tuple[Split, ...]:
    """The splits of a kind that are there; the first is required."""
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
      task: whose they are.
      split: which.
      seed: of what is dev data, with --dev_share.

    Raises:
      InputError: they are not there, or something cannot be used.
    """
    share = data.own.dev_share
    is_cut = share and split.kind in ("train", "dev")
    if data.tfds_name:
        return task.read_tfds(data.tfds_name, split.name)
    rows = task.read(data.folder, "train" if is_cut else split.name)
    if not is_cut:
        return rows
    train, dev = split_by_label(rows, share, seed)
    if not dev:
        received = f"--dev_share={share} of {len(rows)} examples, none of which can be dev data"
        expected = "two different texts of some label: equal texts stay together, and so does a "
        expected += "label with one text"
        raise InputError(received, expected, "check --label_column, or give a --dev_file")
    chosen = train if split.kind == "train" else dev
    text = "%s data: %d of the %d examples of the training data, by --dev_share and --seed"
    logging.info(text, split.name, len(chosen), len(rows))
    if split.kind == "dev":  # which all commands with --dev_share read, once
        say_copies(rows)
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
    """Compares the dev data with the file of them that is in the folder of the run.

    Without training they must be its rows. With training a file of other rows must be one that a
    command has written there.

    Args:
      output_dir: the folder of the run.
      rows: of the dev data.
      share, seed: by which they were chosen, for messages.
      is_trained: whether the command trains.
      written: the SHA-256 of the files that commands have written there.

    Raises:
      InputError: the model was trained with others, or the file is the user's own.
    """
    path, digest = f"{output_dir}/{DEV_FILE}", None
    if files.gfile(path).exists(path):
        digest = files.digest_of(path)
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
    """Writes the rows that were not trained on into the folder of the run."""
    files.write_text(f"{output_dir}/{DEV_FILE}", examples_text(rows))


def with_labels(task: Task, train: list[AnyExample] | None, source: Weights) -> Task:
    """The task with its label names: its own, those of the training data, or of the model.

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
    """Warns where every text is a word: with tags as labels these are sentences."""
    if any(len(text.split()) > 1 for example in train for text in texts_of(example)):
        return
    says = "Each text is a word, and the labels are tags (%s): --label_kind=tags reads sentences, "
    says += "in which every word has a tag."
    logging.warning(says, ", ".join(task.labels.names[:MOST_TAGS]))
