"""What can be chosen when a model is exported or asked. Flags are made of it: no TensorFlow."""

import dataclasses
from typing import Any

from bert_tf.checkpoints.options import ModelFiles
from bert_tf.declarations import size
from bert_tf.heads import NAMES
from bert_tf.options import Options, option, values_of

TASKS = tuple(sorted(set(NAMES) - {"pretraining"}))  # --task
DEFAULT, FROM_IDS, FROM_EXAMPLES = "serving_default", "ids", "examples"  # signatures
EXPORT_FORMATS = ("saved_model", "litert", "onnx")
SAVED_MODEL, LITERT, ONNX = EXPORT_FORMATS
INPUT_FORMATS = ("text", "tsv", "csv", "jsonl", "conll")  # of questions to a model
POOLINGS = ("none", "cls", "mean")  # of feature extraction
EMBEDDINGS = "embeddings"  # as a layer: the input of the first encoder block
FEATURE_FORMATS = ("jsonl", "npz", "tfrecord")  # of extracted features
DEFAULT_CHOICES = 4  # sequences in a record of multiple choice, as in SWAG
MASK = "[MASK]"
STDIN = "standard input"
TABLES = ("csv", "tsv")  # of answers, besides JSON lines


class AnswerFiles(Options):
    """What a model is asked, and where its answers go."""

    input_file: str | None = option(
        "The inputs, one a line; default: standard input.", default=None, path=True, original=True
    )
    output_file: str | None = option(
        "JSON lines; default: standard output.", default=None, path=True, original=True
    )
    batch_size: int = option("Rows computed at a time.", default=32, low=1, original=True)


class WeightsOptions(ModelFiles):
    """What the files of a folder with weights may not say."""

    task: str | None = option(
        "Of a folder with weights: what the model does, where its files do not say it.",
        default=None,
        choices=TASKS,
    )
    labels: tuple[str, ...] = option(
        "Of a folder with weights: names of the classes, in order where its files do not name "
        "them.",
        default=(),
    )
    pairs: bool | None = option(
        "Of a folder with weights: it was trained on pairs of texts.", default=None
    )
    max_seq_length: int | None = option(
        "Of a folder with weights: most tokens of a text.", default=None, low=1, original=True
    )

    def arguments(self) -> dict[str, Any]:
        """The arguments of a `Predictor` by name; None where nothing is given."""
        return values_of(self) | {"labels": self.labels or None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Choices at export, named like the flags.

    None means not chosen: the value then comes from the checkpoint's files or, if they have none
    or belong to another task, is the default given here. Task, labels and pairs that contradict
    the files are refused.

    Attributes:
      task: one of TASKS, or a head of your own; default: what the weights show.
      labels: class names, in the order of the classes unless the checkpoint names them; default:
        numbers.
      pairs: the model was trained on pairs of texts; default: it was not.
      num_choices: sequences in a record of multiple choice; default: DEFAULT_CHOICES.
      max_seq_length: maximum sequence length in tokens; default: 384 for questions, otherwise the
        model's maximum.
      doc_stride, max_query_length: as in run_squad.py; default: 128 and 64.
      n_best_size, max_answer_length: as in run_squad.py.
      version_2_with_negative: as in run_squad.py; default: whether there is a threshold.
      null_score_diff_threshold: as in run_squad.py; default: 0.
      top_k: tokens listed for each [MASK], or answers listed for a question.
    """

    task: str | None = None
    labels: tuple[str, ...] | None = None
    pairs: bool | None = None
    num_choices: int | None = size(None)
    max_seq_length: int | None = size(None)
    doc_stride: int | None = size(None)
    max_query_length: int | None = None
    n_best_size: int = size(20)
    max_answer_length: int = size(30)
    version_2_with_negative: bool | None = None
    null_score_diff_threshold: float | None = None
    top_k: int = size(5)
