"""The options of exports and predictions. Loads no TensorFlow."""

import dataclasses
import math
from typing import Any

from bert_tf.checkpoints.options import ModelFiles
from bert_tf.declarations import size
from bert_tf.heads import NAMES
from bert_tf.options import Options, Reading, option
from bert_tf.tables import KINDS

TASKS = tuple(sorted(set(NAMES) - {"pretraining"}))  # --task
DEFAULT, FROM_IDS, FROM_EXAMPLES = "serving_default", "ids", "examples"  # signatures
EXPORT_FORMATS = ("saved_model", "litert", "onnx")
SAVED_MODEL, LITERT, ONNX = EXPORT_FORMATS
POOLINGS = ("none", "cls", "mean")  # of feature extraction
EMBEDDINGS = "embeddings"  # as a layer: the input of the first encoder block
FEATURE_FORMATS = ("jsonl", "npz", "tfrecord")  # of extracted features
DEFAULT_CHOICES = 4  # sequences in a record of multiple choice, as in SWAG
MASK = "[MASK]"
TABLES = ("csv", "tsv")  # of answers, besides JSON lines
FLOAT32, BFLOAT16 = ANSWER_PRECISIONS = ("float32", "bfloat16")


class AnswerFiles(Options):
    """The files with a model's inputs and its answers."""

    input_file: str | None = option(
        "The inputs, one a line; default: standard input.", default=None, path=True, original=True
    )
    output_file: str | None = option(
        "JSON lines; default: standard output.", default=None, path=True, original=True
    )
    batch_size: int = option("Rows computed at a time.", default=32, low=1, original=True)


class InputRows(Options):
    """How the rows of the inputs are found."""

    input_format: str | None = option(
        "Default: what the content shows. text: a text a line. csv, tsv: a table with columns. "
        "jsonl: JSON strings or objects. conll: a word a line.",
        default=None,
        choices=KINDS,
    )
    text_a_column: str | None = option(
        "The column of the text; default: as the model was trained, or text_a or text.",
        default=None,
    )
    skip_bad_rows: bool = option(
        "Go on at rows that cannot be read, with an empty answer in their place, instead of "
        "refusing the file.",
        default=False,
    )
    reading: Reading = Reading()


class AnswerPrecision(Options):
    """The precision of answers that a command computes from weights."""

    precision: str = option(
        "What answers are computed in. bfloat16 is faster on CPUs that multiply it.",
        default=FLOAT32,
        choices=ANSWER_PRECISIONS,
    )


class WeightsOptions(ModelFiles):
    """What the files of a folder with weights may not say."""

    task: str | None = option(
        "Of a folder with weights: what the model does, where its files do not say it.",
        default=None,
        choices=TASKS,
    )
    labels: tuple[str, ...] | None = option(
        "Of a folder with weights: names of the classes, in order where its files do not name "
        "them.",
        default=None,
        filled=True,
    )
    pairs: bool | None = option(
        "Of a folder with weights: it was trained on pairs of texts.", default=None
    )
    max_seq_length: int | None = option(
        "Of a folder with weights: most tokens of a text.", default=None, low=1, original=True
    )

    precision: str | None = option(
        "Of a folder with weights: what answers are computed in; default: float32. bfloat16 is "
        "faster on CPUs that multiply it.",
        default=None,
        choices=ANSWER_PRECISIONS,
    )

    def arguments(self) -> dict[str, Any]:
        """The arguments of a `Predictor` by name; None where nothing is given."""
        return {name: getattr(self, name) for name in vars(self)}


class ServingOptions(Options):
    """Choices at export, which are also options of the command `export`.

    None means not chosen: the value then comes from the checkpoint's files. If they have none or
    belong to another task, it is the default that the option names. Task, labels and pairs that
    contradict the files are refused.

    Attributes:
      num_choices: sequences in a record of multiple choice; default: DEFAULT_CHOICES.
    """

    task: str | None = option("What the model does; default: as its files say.", default=None)
    labels: tuple[str, ...] | None = option(
        "Names of the classes, in their order unless the model's files name them; default: the "
        "model's own, else numbers.",
        default=None,
        filled=True,
    )
    pairs: bool | None = option(
        "The model was trained on pairs of texts; default: as trained, else single texts.",
        default=None,
    )
    max_seq_length: int | None = option(
        "Most tokens of a sequence; longer texts are cut, contexts of questions and texts with "
        "token labels are cut into windows; default: as trained, else 384 for questions, and the "
        "model's maximum for the rest.",
        default=None,
        low=1,
        original=True,
    )
    doc_stride: int | None = option(
        "Tokens from the start of a window to the next; default: as trained, else 128.",
        default=None,
        low=1,
        original=True,
    )
    max_query_length: int | None = option(
        "Most tokens of a question; default: as trained, else 64; where a window has no room "
        "beside that, half of it.",
        default=None,
        low=0,
        original=True,
    )
    top_k: int = option(
        "Tokens to list for each [MASK], or answers for each question.", default=5, low=1
    )
    n_best_size: int = option(
        "Starts and ends tried in a window; answers ranked for a question.",
        default=20,
        low=1,
        original=True,
    )
    max_answer_length: int = option("Most tokens of an answer.", default=30, low=1, original=True)
    version_2_with_negative: bool | None = option(
        "Questions may have no answer. Default: yes if a threshold is given; otherwise as the "
        "model was trained; otherwise if one is stored.",
        default=None,
        original=True,
    )
    null_score_diff_threshold: float | None = option(
        "No answer if its score is above the best one's by more; default: as stored, else 0.",
        default=None,
        infinite=True,
        below=math.inf,
        original=True,
    )
    precision: str = option(
        "What weights are stored and answers computed in; norms stay in float32, and so does the "
        "head, except that of masked words. bfloat16 is half the size, and faster on CPUs that "
        "multiply it.",
        default=FLOAT32,
        choices=ANSWER_PRECISIONS,
    )
    num_choices: int | None = dataclasses.field(default=None, metadata=size().metadata)
