"""Reads a split of a dataset of tensorflow-datasets, an optional package, for tasks and SQuAD."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import InputError
from bert_tf.runtime import import_extra


class DatasetSplit(NamedTuple):
    """A split of a dataset.

    Attributes:
      rows: the rows in the dataset's order; each has a value for every feature: a NumPy scalar or
        array, a text as bytes.
      features: the package's description of each feature.
      source: names the dataset and the split, for messages.
    """

    rows: Iterable[Mapping[str, Any]]
    features: Mapping[str, Any]
    source: str

    def label_names(self, feature: str) -> list[str] | None:
        """The class names of a label, or of a sequence of labels; None for other features."""
        description = self.features.get(feature)
        label = getattr(description, "feature", description)  # the element of a sequence
        return getattr(label, "names", None)


def read_split(name: str, split: str, *, purpose: str, data_dir: str | None = None) -> DatasetSplit:
    """A split of a dataset, downloaded and prepared if need be.

    Args:
      name: the name of the dataset, such as glue/mrpc or squad/v2.0:3.0.0.
      split: the name of the split; or several separated by |, of which the dataset's first is read.
      purpose: what the split is for, in messages.
      data_dir: where datasets are stored; None for the package's own folder.

    Raises:
      InputError: the package is not installed, or the dataset has no such split.
    """
    from bert_tf.data.shards import untuned  # loads TensorFlow, which takes seconds

    library = import_extra(
        "tensorflow_datasets",
        package="tensorflow-datasets",
        extra="tfds",
        needed_by="--tfds_name",
        otherwise="give the files themselves",
    )
    builder = library.builder(name, data_dir=data_dir)
    builder.download_and_prepare()
    split_name = next((name for name in split.split("|") if name in builder.info.splits), None)
    if split_name is None:
        raise InputError(
            f"the dataset {name} with the splits {', '.join(builder.info.splits)}",
            f"{split.replace('|', ' or ')}, {purpose}",
            "give another dataset, or leave the step out",
        )
    rows = library.as_numpy(untuned(builder.as_dataset(split=split_name, shuffle_files=False)))
    return DatasetSplit(rows, dict(builder.info.features.items()), f"{name}, {split_name}")


def plain(value: Any, place: str) -> Any:
    """A value of a dataset as a Python value: arrays as lists, bytes as text.

    Raises:
      InputError: bytes in it are not UTF-8; `place` says where.
    """
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(element, place) for element in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            received = f"{place}: bytes that are not UTF-8 ({value[:40]!r})"
            raise InputError(received, "text in UTF-8", "make the dataset again") from None
    return value
