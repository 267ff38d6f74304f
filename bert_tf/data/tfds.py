"""tensorflow-datasets, an extra that is imported only where a dataset is asked for."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bert_tf.errors import InputError
from bert_tf.runtime import import_extra


class DatasetPart(NamedTuple):
    """A part of a dataset, such as its training data.

    Attributes:
      rows: each with a value for every feature, of numpy's types or bytes; in the dataset's order.
      features: what the library says of them, by name.
      source: name and part, for messages.
    """

    rows: Iterable[Mapping[str, Any]]
    features: Mapping[str, Any]
    source: str


def read_part(name: str, part: str, *, purpose: str, data_dir: str | None = None) -> DatasetPart:
    """A part of a dataset that is prepared on this machine, or can be.

    Args:
      name: of the dataset, such as glue/mrpc or squad/v2.0:3.0.0.
      part: train, validation, test or another, or several with | between: the first there is.
      purpose: what it is for, in messages.
      data_dir: where datasets are kept; None for the library's own folder.

    Raises:
      InputError: the library is not installed, or there is no such dataset or part.
    """
    library = import_extra(
        "tensorflow_datasets",
        package="tensorflow-datasets",
        extra="tfds",
        needed_by="--tfds_name",
        otherwise="give the files themselves",
    )
    try:
        builder = library.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # of many kinds, the network's among them
        raise InputError(
            received=f"the dataset {name} ({type(error).__name__}: {str(error)[:200]})",
            expected="one that tensorflow-datasets has or can prepare",
            remedy="check --tfds_name and the folder of the datasets, or give the files themselves",
        ) from error
    there = next((one for one in part.split("|") if one in builder.info.splits), None)
    if there is None:
        raise InputError(
            received=f"the dataset {name} with the parts {', '.join(builder.info.splits)}",
            expected=f"{part.replace('|', ' or ')}, {purpose}",
            remedy="give another dataset, or leave the step out",
        )
    dataset = builder.as_dataset(split=there, shuffle_files=False)
    features = dict(builder.info.features.items())
    return DatasetPart(library.as_numpy(dataset), features, f"{name}, {there}")
