"""A task: where its data are, what its labels are, how it is scored and submitted.

Split   a part of the data (train, dev, test) and its file
Task    layout, labels, metrics and splits; reads its examples from files or datasets
"""

import collections
import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import logging

from bert_tf import files
from bert_tf.data.tfds import read_split
from bert_tf.errors import InputError
from bert_tf.heads import Head, Labels, head_named
from bert_tf.heads.labels import DECIMAL, MISSING_ELSEWHERE, look_alikes
from bert_tf.heads.multi_label import BINARY
from bert_tf.tasks.examples import NONE, REQUIRED, AnyExample, ChoiceColumns, Layout, TextColumns
from bert_tf.tasks.results import METRICS

MOST_GRADES = 10  # so many different numbers may well be classes
MOST_RARE = 5  # labels with one example that a warning names
ENOUGH = 10  # examples of a label, on average, from which on a label with one example is rare


@dataclasses.dataclass(frozen=True)
class Split:
    """A part of a task's data.

    Attributes:
      name: train, dev or test; with a suffix where there are several (dev_mismatched).
      files: the name of its file in the folder of the data; or several separated by |, of which the
        first that exists is read.
      tfds_split: its name in tensorflow-datasets, or several separated by |.
      labelled: whether its examples have labels: required, optional or none.
      submission: the name of its file for GLUE's server.
      layout: where it differs from the task's.
    """

    name: str
    files: str
    tfds_split: str
    labelled: str = REQUIRED
    submission: str | None = None
    layout: Layout | None = None

    @property
    def kind(self) -> str:
        """Its purpose: train, dev or test."""
        return self.name.split("_")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task.

    Attributes:
      name: the value of --task_name.
      title: a line about it.
      layout: where in a file texts and labels are.
      labels: what the labels are, and the head for them.
      metrics: names in results.METRICS; the first one selects the best model.
      splits: its data.
      tfds_layout: names of the features in tensorflow-datasets, where they differ.
    """

    name: str
    title: str
    layout: Layout
    labels: Labels
    metrics: tuple[str, ...]
    splits: tuple[Split, ...]
    tfds_layout: Layout | None = None

    def __post_init__(self):
        if not self.metrics or not METRICS.keys() >= {*self.metrics}:
            raise ValueError(f"received the metrics {self.metrics}, expected some of {[*METRICS]}")

    @property
    def head(self) -> Head:
        """The model's head for the labels."""
        return head_named(self.labels.head)

    @property
    def num_choices(self) -> int:
        """C, the sequences of an example: 1 except for multiple choice."""
        return len(self.layout.endings) if isinstance(self.layout, ChoiceColumns) else 1

    @property
    def has_pairs(self) -> bool:
        """Whether an example may have a second text."""
        return isinstance(self.layout, TextColumns) and self.layout.text_b is not None

    def with_metric(self, name: str) -> "Task":
        """This task with a further metric; itself if it has the metric already, or for loss and "".

        Raises:
          InputError: there is no such metric for its labels.
        """
        if name in ("", "loss", *self.metrics):
            return self
        known = (*self.head.metrics, *self.head.further_metrics) or self.metrics
        if name not in known:
            expected = f"loss or one of {', '.join(known)}"
            raise InputError(f"--best_metric={name}", expected, "correct --best_metric")
        return dataclasses.replace(self, metrics=(*self.metrics, name))

    def with_positive_label(self, name: str) -> "Task":
        """This task with the metric f1, of the label `name`; `check_f1` checks the name.

        Raises:
          InputError: its labels have no such metric.
        """
        if "f1" not in (*self.head.metrics, *self.head.further_metrics):
            received = f"--positive_label={name} for the labels of {self.labels.head}"
            raise InputError(received, "labels of which a text has one", "leave it out")
        labels = dataclasses.replace(self.labels, positive=name)
        return dataclasses.replace(self, labels=labels).with_metric("f1")

    def check_f1(self) -> "Task":
        """This task with the name of the label of f1, which is logged; itself if it has no f1.

        The labels must be known.

        Raises:
          InputError: there are more than two labels, or f1 is of none of them.
        """
        if "f1" not in self.metrics:
            return self
        labels = self.labels
        if labels.size > 2:
            received = f"f1, the F1 of one label, for {labels.size} labels"
            remedy = "take macro_f1 or micro_f1: --best_metric=macro_f1; leave out --positive_label"
            raise InputError(received, "two labels, or a metric of all", remedy)
        try:
            positive = labels.name_of(labels.label_of_f1)
        except ValueError as error:
            received = f"--positive_label={labels.positive}"
            raise InputError(received, str(error), "correct --positive_label") from None
        logging.info("f1 is that of the label %r; --positive_label chooses it.", positive)
        return dataclasses.replace(self, labels=dataclasses.replace(labels, positive=positive))

    def with_choices_in(self, data_dir: str) -> "Task":
        """This task with as many endings as its first file in a folder has, if it has endings."""
        paths = (self.find_file(data_dir, split) for split in self.splits)
        path = next(filter(None, paths), None)
        if not isinstance(self.layout, ChoiceColumns) or not path:
            return self
        layout = self.layout.fitted(path)
        names = tuple(map(str, range(len(layout.endings))))
        labels = dataclasses.replace(self.labels, names=names)
        return dataclasses.replace(self, layout=layout, labels=labels)

    # ------------------------------------------------------------------------ examples

    def splits_of(self, kind: str) -> tuple[Split, ...]:
        """The splits for training (train), evaluation (dev) or prediction (test)."""
        return tuple(split for split in self.splits if split.kind == kind)

    def ending(self, split: Split) -> str:
        """The suffix in the names of a split's results: "" for the first of its kind."""
        is_first = split == self.splits_of(split.kind)[0]
        return "" if is_first else split.name.removeprefix(split.kind)

    def split(self, name: str) -> Split:
        """The split of that name.

        Raises:
          InputError: the task has no such split.
        """
        splits = {split.name: split for split in self.splits}
        if name not in splits:
            received = f"{name} data of the task {self.name}, which has none"
            remedy = "leave the step out, or use another task (a model for ax is trained on mnli)"
            raise InputError(received, f"one of its parts: {', '.join(splits)}", remedy)
        return splits[name]

    def find_file(self, data_dir: str, split: Split) -> str | None:
        """The path of a split's file; None if none of its names exists."""
        gfile = files.gfile()
        paths = [gfile.join(data_dir, name) for name in split.files.split("|")]
        return next((path for path in paths if gfile.exists(path)), None)

    def read(self, data_dir: str, name: str) -> list[AnyExample]:
        """The examples of the split of that name, from its file in `data_dir`.

        Raises:
          InputError: there is no such split or file, or something in it cannot be used.
        """
        split = self.split(name)
        path = self.find_file(data_dir, split)
        if path is None:
            received = f"{data_dir}, where there is no {split.files.replace('|', ' or ')}"
            remedy = "check --data_dir"
            if self.layout.hint:
                remedy += f"; --{name}_file names this one"
            raise InputError(received, f"the {name} data of the task {self.name}", remedy)
        layout = split.layout or self.layout
        return layout.read(path, self.labels, labelled=split.labelled)

    def read_tfds(self, dataset: str, name: str) -> list[AnyExample]:
        """The examples of a split, from a dataset of tensorflow-datasets, an extra.

        The dataset is downloaded and prepared if need be.

        Args:
          dataset: such as glue/mrpc or glue/mrpc:2.0.0.
          name: the name of the task's split; the dataset's is its `tfds_split`.

        Raises:
          InputError: there is no such dataset or split, or it has other features.
        """
        split = self.split(name)
        layout = self.tfds_layout or self.layout
        purpose = f"the {name} data of the task {self.name}"
        data = read_split(dataset, split.tfds_split, purpose=purpose)
        has_classes = bool(self.labels.names) or not self.labels.are_fixed  # false for scores
        names = data.label_names(layout.label) if has_classes else None
        return layout.from_dicts(data.source, data.rows, self.labels, split.labelled, names or ())

    # ------------------------------------------------------------------------ labels

    def with_labels_of(self, examples: Iterable[AnyExample]) -> "Task":
        """This task with the label names of its training data, unless its names are fixed.

        Warns of names that look like a mistake.

        Raises:
          InputError: there are fewer names than training needs, they are 0 and 1 of a vector, or a
            tag is not among fixed names.
        """
        examples_labels = [example.label for example in examples]
        labels = self.labels.with_names_in(examples_labels)
        self._check_names(labels, examples_labels)
        if labels.scale:
            text = "Scores are learned as (score - %g) / %g; predictions are scores again."
            logging.info(text, *labels.scale)
        if not self.labels.are_fixed:
            counts: collections.Counter[str] = collections.Counter()
            if labels.names:
                for label in examples_labels:
                    counts.update([label] if isinstance(label, str) else label)
            shown = ", ".join(f"{name!r} ({counts[name]})" for name in labels.names)
            logging.info("The labels of the training data: %s", shown)
            for doubt in doubts(labels, counts):
                logging.warning("%s", doubt)
        return dataclasses.replace(self, labels=labels)

    def _check_names(self, labels: Labels, examples_labels: Sequence) -> None:
        """Raises `InputError` as `with_labels_of` says; `labels` has the names of the examples."""
        data = f"training data of the task {self.name}"
        if labels.is_per_word:
            unknown = labels.names_in(examples_labels) - {*labels.names}
            if unknown:
                received = f"{data} with the tag {min(unknown)}"
                raise InputError(received, labels.describe(), "correct the rows")
        if self.labels.are_fixed:
            return
        if len(labels.names) < self.head.least_names:
            received = f"{data} with the labels {', '.join(labels.names) or 'none'}"
            expected = f"{self.head.least_names} or more different labels"
            raise InputError(received, expected, "check which column holds the labels")
        if labels.may_be_empty and BINARY.issuperset(labels.names):
            names = ",".join(labels.names)
            expected = "names of labels, with commas between, not a vector of 0 and 1"
            remedy = f"write the names; if these are the names, add --labels={names}"
            raise InputError(f"{data} with the labels {names}", expected, remedy)

    def names_of_model(self, names: Sequence[str]) -> tuple[str, ...]:
        """A model's names of labels in the spelling of this task."""
        names_of_task = self.labels.names
        spellings = {**self.labels.synonyms, **{name.lower(): name for name in names_of_task}}
        return tuple(
            name if name in names_of_task else spellings.get(name.lower(), name) for name in names
        )

    def with_labels_of_model(
        self, names: Sequence[str] | None, *, source: str, is_originals: bool = False
    ) -> "Task":
        """This task with the labels of a trained model, in the task's order if it names them.

        Args:
          names: the names in the model's files; None if there are none.
          source: where the model is, for messages.
          is_originals: whether the original may have trained it, whose models have the task's
            order.

        Raises:
          InputError: neither the model nor the task names the labels, or they name different ones.
        """
        names_of_task = self.labels.names
        if not self.head.has_names:
            return self
        if not names and not names_of_task:
            received = f"{source}, which does not say the names of its classes"
            expected = "labels in a model_facts.json or config.json beside the weights"
            remedy = f"give the folder that the model was trained in{self.layout.hint}"
            raise InputError(received, expected, remedy)
        if not names:
            if not is_originals:
                logging.warning(
                    "%s does not name its classes. They are assumed to be, in this order: %s. If "
                    "they are others, name them in its config.json (id2label).",
                    source,
                    ", ".join(names_of_task),
                )
            return self
        names_of_model = self.names_of_model(names)
        if names_of_task and set(names_of_model) != set(names_of_task):
            received = f"{source}, a model of the labels {', '.join(names)}"
            expected = f"one of the task {self.name}: {', '.join(names_of_task)}"
            raise InputError(received, expected, "give a model that was trained for this task")
        labels = dataclasses.replace(self.labels, names=names_of_task or names_of_model)
        return dataclasses.replace(self, labels=labels)

    def with_thresholds(self, thresholds: Mapping[str, float]) -> "Task":
        """This task with a model's thresholds, by the model's names of the labels.

        Raises:
          InputError: the thresholds are of other labels.
        """
        if not thresholds:
            return self
        names = self.names_of_model([*thresholds])
        thresholds = dict(zip(names, thresholds.values(), strict=True))
        return dataclasses.replace(self, labels=self.labels.with_thresholds(thresholds))


def doubts(labels: Labels, counts: Mapping[str, int]) -> Iterator[str]:
    """Warnings about the labels of training data, a sentence each.

    Args:
      labels: with their names.
      counts: how often each name occurs.
    """
    total = sum(counts.values())
    if len(counts) == total >= ENOUGH:
        yield f"Each of the {len(counts)} examples has a label of its own. Is it the right column?"
    for name in sorted(MISSING_ELSEWHERE.intersection(labels.names)):
        yield f"The label {name!r} ({counts[name]}) is a missing value to pandas: is it a label?"
    if total >= ENOUGH * len(counts):
        rare = [name for name in labels.names if counts[name] == 1]
        frequent = [name for name in counts if counts[name] > 1]
        for name in rare[:MOST_RARE]:
            sentence = f"The label {name!r} has one example."
            if alike := difflib.get_close_matches(name, frequent, n=1, cutoff=0.7):
                sentence += f" Is it {alike[0]!r}?"
            yield sentence
    numbers = [float(name) for name in labels.names if DECIMAL.fullmatch(name)]
    spread = max(numbers, default=0) - min(numbers, default=0)  # small if they number classes
    are_many = len(numbers) > max(MOST_GRADES, 0.9 * len(labels.names))
    if are_many and spread >= len(numbers) and not labels.may_be_empty:
        yield f"{len(numbers)} numbers are a class each. Is it --label_kind=regression?"
    for names in look_alikes(labels.names):
        shown = ", ".join(map(repr, names))  # a character without width is shown as \\u200b
        yield f"These labels look alike, but are different classes: {shown}."


def splits(train: str, dev: str, test: str, **options) -> tuple[Split, ...]:
    """The usual three splits.

    Args:
      train, dev, test: the file of each, or several names separated by |.
      **options: further attributes of the test split, which has no labels unless they say so.
    """
    return (
        Split("train", train, "train"),
        Split("dev", dev, "validation|dev"),
        Split("test", test, "test", **({"labelled": NONE} | options)),
    )
