"""What a task is: where its data are, what its labels are, how it is judged and handed in.

Split   a part of the data (train, dev, test) and the file that it is in
Task    layout, labels, metrics and splits; reads its examples from files or datasets
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tasks.examples import NONE, REQUIRED, AnyExample, ChoiceColumns, Layout, TextColumns
from bert_tf.tasks.labels import Labels
from bert_tf.tasks.metrics import METRICS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """A part of a task's data.

    Attributes:
      name: train, dev or test; with _ and more where there are several (dev_mismatched).
      files: names in the folder of the data; the first that is there is read.
      labelled: whether its examples have labels: required, optional or none.
      submission: the file that GLUE's server takes for it.
      layout: its own, where it differs from the task's.
      tfds_split: its name in tensorflow-datasets, or several with | between.
    """

    name: str
    files: tuple[str, ...]
    labelled: str = REQUIRED
    submission: str | None = None
    layout: Layout | None = None
    tfds_split: str

    @property
    def kind(self) -> str:
        """What it is for: train, dev or test."""
        return self.name.split("_")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task.

    Attributes:
      name: of --task_name.
      title: a line about it.
      layout: where in a file texts and labels are.
      labels: what the labels are; their head says what the model has for them.
      metrics: names in metrics.METRICS; by the first the best model is chosen.
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
        unknown = set(self.metrics) - set(METRICS)
        if unknown or not self.metrics:
            raise ValueError(f"received the metrics {self.metrics}, expected some of {[*METRICS]}")

    @property
    def head(self) -> str:
        """What the model has for the labels: a name in config.HEADS."""
        return self.labels.head

    @property
    def num_choices(self) -> int:
        """C, sequences of an example: 1 but for multiple choice."""
        return len(self.layout.endings) if isinstance(self.layout, ChoiceColumns) else 1

    @property
    def has_pairs(self) -> bool:
        """Whether an example may have a second text."""
        return isinstance(self.layout, TextColumns) and self.layout.text_b is not None

    def splits_of(self, kind: str) -> tuple[Split, ...]:
        """The splits for training (train), evaluation (dev) or prediction (test)."""
        return tuple(split for split in self.splits if split.kind == kind)

    def split(self, name: str) -> Split:
        """One split by its name.

        Raises:
          InputError: the task has no such data.
        """
        for split in self.splits:
            if split.name == name:
                return split
        raise InputError(
            received=f"{name} data of the task {self.name}, which has none",
            expected=f"one of its parts: {', '.join(split.name for split in self.splits)}",
            remedy="leave the step out, or use another task (a model for ax is trained on mnli)",
        )

    def find_file(self, data_dir: str, split: Split) -> str | None:
        """The path of a split's file, None if none of its names is there."""
        gfile = files.gfile()
        paths = [gfile.join(data_dir, name) for name in split.files]
        return next((path for path in paths if gfile.exists(path)), None)

    def read(self, data_dir: str, split: str | Split) -> list[AnyExample]:
        """The examples of a split, from its file.

        Args:
          data_dir: the folder of the task's data.
          split: it, or its name.

        Raises:
          InputError: the file is not there, or something in it cannot be used.
        """
        split = self.split(split) if isinstance(split, str) else split
        path = self.find_file(data_dir, split)
        if path is None:
            raise InputError(
                received=f"{data_dir}, where there is no {' or '.join(split.files)}",
                expected=f"the {split.name} data of the task {self.name}",
                remedy="check --data_dir, which names the folder of this one task",
            )
        layout = split.layout or self.layout
        return layout.read(path, self.labels, labelled=split.labelled)

    def from_dicts(
        self,
        dicts: Iterable[Mapping],
        split: str | Split,
        *,
        source: str,
        label_names: Sequence[str] | None = None,
    ) -> list[AnyExample]:
        """The examples of a split, from a dataset.

        Args:
          dicts: features by name: text as str or bytes, labels as numbers of `label_names` or as
            in the task's files; arrays and eager tensors too.
          split: it, or its name.
          source: what the dataset is called, for messages.
          label_names: the names that numbers stand for.

        Raises:
          InputError: a feature is missing, or cannot be used.
        """
        split = self.split(split) if isinstance(split, str) else split
        layout = self.tfds_layout or self.layout
        if label_names and self.head != "regression" and split.labelled != NONE:
            dicts = (_with_names(values, layout.label, label_names) for values in dicts)
        return layout.from_dicts(source, dicts, self.labels, labelled=split.labelled)

    def with_labels_of(self, examples: Iterable[AnyExample]) -> "Task":
        """This task with the label names found in its training data, if it does not know them.

        Raises:
          InputError: there are too few to learn anything.
        """
        found = self.labels.found_in(example.label for example in examples)
        least = 1 if self.head == "multi_label" else 2
        if not self.labels.are_found and len(found.names) < least:
            raise InputError(
                received=f"training data of the task {self.name} with the labels "
                f"{', '.join(found.names) or 'none'}",
                expected=f"{least} or more different labels",
                remedy="check which column holds the labels",
            )
        return dataclasses.replace(self, labels=found)

    def in_order_of(self, names: Sequence[str] | None) -> "Task":
        """This task with its labels in a model's order, if `names` are the same labels."""
        own = self.names_of_model(names or ())
        if self.labels.size == 1 or sorted(own) != sorted(self.labels.names):
            return self
        return dataclasses.replace(self, labels=dataclasses.replace(self.labels, names=own))

    def names_of_model(self, names: Sequence[str]) -> tuple[str, ...]:
        """A model's names of labels, as this task spells them."""
        own = self.labels.names
        known = {**self.labels.synonyms, **{name.lower(): name for name in own}}
        return tuple(name if name in own else known.get(name.lower(), name) for name in names)

    def with_labels_of_model(
        self, names: Sequence[str] | None, *, source: str, is_originals: bool = False
    ) -> "Task":
        """This task with the labels of a trained model, in the order of its classes.

        Args:
          names: as the model's files say them; None if they do not.
          source: where the model is, for messages.
          is_originals: whether it may be of the original, which has the task's order.

        Raises:
          InputError: neither says them, or the two are not the same labels.
        """
        if self.head in ("regression", "multiple_choice"):
            return self
        if not names:
            if self.labels.are_found:
                if not is_originals:
                    logging.warning(
                        "%s does not name its classes. They are taken to be, in this order: %s. "
                        "If they are others, name them in its config.json (id2label).",
                        *(source, ", ".join(self.labels.names)),
                    )
                return self
            raise InputError(
                received=f"{source}, which does not say the names of its classes",
                expected="labels in a model_facts.json or config.json beside the weights",
                remedy="give the folder that the model was trained in, or name them with --labels",
            )
        own = self.names_of_model(names)
        if self.labels.are_found and set(own) != set(self.labels.names):
            raise InputError(
                received=f"{source}, a model of the labels {', '.join(names)}",
                expected=f"one of the task {self.name}: {', '.join(self.labels.names)}",
                remedy="give a model that was trained for this task",
            )
        return dataclasses.replace(self, labels=dataclasses.replace(self.labels, names=own))


def _with_names(values: Mapping, label: str, names: Sequence[str]) -> dict:
    """Numbers of labels -> their names."""

    def name(value):
        if isinstance(value, list):
            return [name(one) for one in value]
        is_known = isinstance(value, int) and 0 <= value < len(names)
        return names[value] if is_known else value

    value = values.get(label)
    value = value.numpy() if hasattr(value, "numpy") else value
    return {**values, label: name(value.tolist() if hasattr(value, "tolist") else value)}


def splits(
    train: str, dev: str, test: str, *, test_labels: str = NONE, submission: str | None = None
) -> tuple[Split, ...]:
    """The usual three splits; each argument names a file, or several with | between."""
    return (
        Split(name="train", files=tuple(train.split("|")), tfds_split="train"),
        Split(name="dev", files=tuple(dev.split("|")), tfds_split="validation|dev"),
        Split(
            name="test",
            files=tuple(test.split("|")),
            labelled=test_labels,
            submission=submission,
            tfds_split="test",
        ),
    )
