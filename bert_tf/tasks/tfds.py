"""Examples from tensorflow-datasets, an extra (`--tfds_name=glue/mrpc`)."""

import importlib
from typing import Any

from bert_tf.errors import InputError
from bert_tf.tasks.reading import AnyExample
from bert_tf.tasks.task import Split, Task


def read_tfds(
    task: Task, name: str, split: str | Split, *, data_dir: str | None = None
) -> list[AnyExample]:
    """The examples of a split of a dataset that is prepared on this machine, or can be.

    Args:
      task: whose declaration names the features.
      name: of the dataset, such as glue/mrpc or glue/mrpc:2.0.0.
      split: of the task, or its name; the dataset's is the split's `tfds_split`.
      data_dir: where datasets are kept; None for the library's own folder.

    Raises:
      InputError: there is no such dataset or split, or its features are others.
    """
    split = task.split(split) if isinstance(split, str) else split
    library = _library()
    try:
        builder = library.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # of many kinds, the network's among them
        raise InputError(
            received=f"the dataset {name} ({type(error).__name__}: {str(error)[:200]})",
            expected="one that tensorflow-datasets has or can prepare",
            remedy="check --tfds_name and the folder of the datasets, or give the files themselves",
        ) from error
    if split.tfds_split not in builder.info.splits:
        raise InputError(
            received=f"the dataset {name} with the parts {', '.join(builder.info.splits)}",
            expected=f"{split.tfds_split}, the {split.name} data of the task {task.name}",
            remedy="give another dataset, or leave the step out",
        )
    dataset = builder.as_dataset(split=split.tfds_split, shuffle_files=False)
    return task.from_dicts(
        library.as_numpy(dataset),
        split,
        source=f"{name}, {split.tfds_split}",
        label_names=_label_names(builder.info.features, (task.tfds_layout or task.layout).label),
    )


def _library() -> Any:
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError:
        raise InputError(
            received="--tfds_name, but tensorflow-datasets is not installed",
            expected="the extra `tfds`",
            remedy="pip install 'bert-tf[tfds]', or give the files with --data_dir",
        ) from None


def _label_names(features: Any, label: str) -> list[str] | None:
    """The names of a label, or of the labels of a sequence; None where labels are no numbers."""
    feature = dict(features.items()).get(label)
    feature = getattr(feature, "feature", feature)
    return getattr(feature, "names", None)
