"""Examples from tensorflow-datasets, an extra (`--tfds_name=glue/mrpc`)."""

from bert_tf.data.tfds import read_split
from bert_tf.tasks.examples import AnyExample
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
    purpose = f"the {split.name} data of the task {task.name}"
    dataset = read_split(name, split.tfds_split, purpose=purpose, data_dir=data_dir)
    return task.from_dicts(
        dataset.rows,
        split,
        source=dataset.source,
        label_names=dataset.label_names((task.tfds_layout or task.layout).label),
    )
