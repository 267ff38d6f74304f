"""tensorflow-datasets, an optional package: one split of a dataset, for tasks and SQuAD."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import InputError
from bert_tf.runtime import import_extra


class DatasetSplit(NamedTuple):
    """A split of a dataset.

    Attributes:
      rows: in the dataset's order, each with a value for every feature: NumPy scalars and arrays,
        texts as bytes.
      features: the library's description of each feature.
      source: dataset and split, for messages.
    """

    rows: Iterable[Mapping[str, Any]]
    features: Mapping[str, Any]
    source: str

    def label_names(self, feature: str) -> list[str] | None:
        """The names of the classes of a label, or of a sequence of labels; None if it has none."""
        label = self.features.get(feature)
        return getattr(getattr(label, "feature", label), "names", None)


def read_split(name: str, split: str, *, purpose: str, data_dir: str | None = None) -> DatasetSplit:
    """A split of a dataset, downloaded and prepared if need be.

    Args:
      name: of the dataset, such as glue/mrpc or squad/v2.0:3.0.0.
      split: its name, or several with | between: the first that the dataset has.
      purpose: what it is for, in messages.
      data_dir: where datasets are kept; None for the library's own folder.

    Raises:
      InputError: the library is not installed, or the dataset has no such split.
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
    found = next((one for one in split.split("|") if one in builder.info.splits), None)
    if found is None:
        raise InputError(
            f"the dataset {name} with the splits {', '.join(builder.info.splits)}",
            f"{split.replace('|', ' or ')}, {purpose}",
            "give another dataset, or leave the step out",
        )
    rows = library.as_numpy(untuned(builder.as_dataset(split=found, shuffle_files=False)))
    return DatasetSplit(rows, dict(builder.info.features.items()), f"{name}, {found}")


def plain(value: Any, place: str) -> Any:
    """A value of a dataset as a value of Python.

    Raises:
      InputError: bytes in it are not UTF-8; `place` says where.
    """
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, place) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            received = f"{place}: bytes that are not UTF-8 ({value[:40]!r})"
            raise InputError(received, "text in UTF-8", "make the dataset again") from None
    return value
