"""Questions from tensorflow-datasets, an extra (`--tfds_name=squad` or `squad/v2.0`)."""

from bert_tf.data.tfds import read_split
from bert_tf.errors import InputError
from bert_tf.squad.data import SquadFile, example_of_row

TRAIN, PREDICT = "train", "validation"  # the parts that training and prediction use
FEATURES = ("id", "question", "context", "answers")


def read_squad_tfds(name: str, part: str, *, data_dir: str | None = None) -> SquadFile:
    """The questions of a part of a dataset of SQuAD's kind, prepared on this machine or to be.

    Args:
      name: of the dataset, such as squad or squad/v2.0.
      part: train, validation or another that it has.
      data_dir: where datasets are kept; None for the library's own folder.

    Raises:
      InputError: there is no such dataset or part, or it is not of SQuAD's kind.
    """
    found = read_split(name, part, purpose="questions about contexts", data_dir=data_dir)
    lacking = [feature for feature in FEATURES if feature not in found.features]
    if lacking:
        raise InputError(
            received=f"{found.source}, with the features {', '.join(found.features)}",
            expected=f"SQuAD's: {', '.join(FEATURES)}",
            remedy="give a dataset of SQuAD's kind, such as --tfds_name=squad",
        )
    examples = [example_of_row(row) for row in found.rows]
    says_so = "is_impossible" in found.features
    version_2 = says_so or any(not one.answers for one in examples)
    has_golds = any(one.answers or (says_so and one.is_impossible) for one in examples)
    return SquadFile(examples, version_2, found.source, has_golds=has_golds or not examples)
