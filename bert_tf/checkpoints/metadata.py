"""`Weights`, into which every format is read: tensors by the original's names, and metadata."""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.declarations import check_fields, declared, size, typed
from bert_tf.errors import InputError, first_line
from bert_tf.files import gfile, is_remote, paths_in, read_json, write_text
from bert_tf.heads import NAMES, OUTPUT

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"
METADATA_FILE = "model_facts.json"
TF1_INDEX = "bert_model.ckpt.index"
SAFETENSORS = "model.safetensors"  # Hugging Face's weights
PICKLE = "pytorch_model.bin"  # the same by PyTorch
PARTS_INDEX = ".index.json"  # the end of the name of an index of several files
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}{PARTS_INDEX}", PICKLE, f"{PICKLE}{PARTS_INDEX}")


class Format(NamedTuple):
    """A format of weights. Its modules are imported when they are first used."""

    reader: str  # module:function, which returns `Weights`
    writer: str = ""  # the module with `texts_of` and `write_tensors`; "" if it is only read
    file: str = ""  # the file that makes a folder a model; written last


# In the order in which paths are compared with them: by `file`, or as `loading.RECOGNIZED` says.
FORMATS = {
    "hub": Format("bert_tf.checkpoints.hub:open_hub"),
    "keras": Format("bert_tf.checkpoints.keras_files:open_keras"),
    "hugging_face": Format(
        "bert_tf.checkpoints.hugging_face:open_hugging_face",
        "bert_tf.checkpoints.hugging_face",
        SAFETENSORS,
    ),
    "tf2": Format("bert_tf.checkpoints.tf2:open_tf2"),
    "tf1": Format("bert_tf.checkpoints.tf1:open_tf1", "bert_tf.checkpoints.saving", TF1_INDEX),
    "bert_tf": Format("bert_tf.checkpoints.tf1:open_tf1", "bert_tf.checkpoints.saving", TF1_INDEX),
}
WRITTEN = tuple(name for name, file_format in FORMATS.items() if file_format.writer)
DEFAULT_FORMAT = "hugging_face"  # of saved models
ORIGINAL_EPS = 1e-12  # layer_norm_eps in the original's code
_OWN_HEAD = "for a head of your own run the program that registers it, else correct task"
# Names of what an optimizer or a run keeps: of the original's and ours, and counters of any.
_SLOTS = re.compile("/adam_[mv]$|^AdamWeightDecayOptimizer|^global_step$|^bert_tf/")
_COUNTERS = re.compile(
    r"(.*/)?(global_step|local_step|iter(ations)?|beta_?[12](_power)?|learning_rate|decay"
    r"|(current_)?loss_scale|good_steps)(_\d+)?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Facts about a model beside its sizes and weights; None means unknown.

    Roles of fields:
      of_part: a Keras model stores the value in its tokenizer, its labels or a layer.
      of_weights: the value belongs to these weights, and does not hold after further training.
      of_sequences: it says how a text is made a sequence.
      of_windows: it says how a long text is split into windows.

    Raises:
      InputError: a value has the wrong type or is out of range.
    """

    # Whether texts are lower-cased before they are cut into word pieces.
    do_lower_case: bool | None = declared(None, of_part=True)
    # Whether accents are stripped; None: as do_lower_case.
    strip_accents: bool | None = declared(None, of_part=True)
    # Pieces that the tokenizer keeps whole wherever a text has them; None: none is known.
    never_split: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # The same in normalized text: without capitals and accents, if the model has none.
    added_words: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # The class in transformers, such as BertForMaskedLM.
    architecture: str | None = declared(None, filled=True, of_part=True)
    # Names of the classes, in order.
    labels: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # For SQuAD v2.0: with higher null odds a question has no answer.
    null_score_diff_threshold: float | None = declared(None, of_weights=True)
    # For any number of labels: the probability from which on each label applies.
    thresholds: dict[str, float] | None = dataclasses.field(
        default=None, metadata={"low": 0.0, "high": 1.0, "of_weights": True}
    )
    origin: str | None = declared(None, filled=True)  # hf:OWNER/NAME@COMMIT of the first weights
    # Which task, where an architecture is used for several.
    task: str | None = declared(None, choices=NAMES, remedy=_OWN_HEAD)
    # What follows is as the model was trained.
    pairs: bool | None = None  # whether on pairs of texts
    # The columns of its texts: names, or positions in files without a header.
    columns: tuple[str | int, ...] | None = declared(None, filled=True, distinct=True)
    score_mean: float | None = None  # regression: the weights give (score - mean) / deviation
    score_deviation: float | None = declared(None, above=0)
    temperature: float | None = declared(None, above=0)  # logits of classes are divided by it
    num_choices: int | None = size(None)  # sequences in a record of multiple choice
    # Maximum number of word pieces of a sequence.
    max_seq_length: int | None = size(None, of_part=True, of_sequences=True)
    # Word pieces from the beginning of a window to that of the next.
    doc_stride: int | None = size(None, of_windows=True, of_sequences=True)
    # Whether sentences in words are read with other sentences of their document around them.
    document_context: bool | None = declared(None, of_windows=True, of_sequences=True)
    # Maximum number of word pieces of a question.
    max_query_length: int | None = declared(None, low=0, high=2**31 - 1, of_sequences=True)
    # Whether questions may have no answer.
    version_2_with_negative: bool | None = declared(None, of_sequences=True)

    def __post_init__(self):
        check_fields(self)

    def known(self) -> dict[str, Any]:
        """The known values by name."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None}

    def to_json_string(self) -> str:
        """The text of a model_facts.json: the known values."""
        return json_text(self.known())

    @classmethod
    def from_json_file(cls, path: str) -> "ModelMetadata":
        """Reads a model_facts.json; if there is no file, all values are unknown."""
        values = read_json(path) if gfile().exists(path) else {}
        return typed(cls, values, source=path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights by their names in the original's checkpoints, and what belongs to them.

    Attributes:
      path: the path of the weights, for messages.
      format: tf1, tf2, keras or hugging_face.
      shapes: the shapes of all tensors by name, the optimizer's included.
      read: reads the tensor of a name from the file.
      config: sizes of the model, if the files have them.
      pieces: the vocabulary in order, if there is one beside the weights.
      vocab_file: the path of the vocabulary, for messages.
      metadata: further facts about the model.
      ignored: names in the file that are no weights, or are copies of others.
      file_names: the names in the file by the original's names, where they differ.
    """

    path: str
    format: str
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(repr=False)
    read: Callable[[str], np.ndarray]
    config: BertConfig | None = None
    pieces: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)
    vocab_file: str | None = None
    metadata: ModelMetadata = ModelMetadata()
    ignored: tuple[str, ...] = ()
    file_names: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def name_in_file(self, name: str) -> str:
        """The name in the file of a weight with this original name, for messages."""
        return self.file_names.get(name, name)

    @property
    def num_classes(self) -> int:
        """The number of classes of a classifier's head; without one, of labels; else 2."""
        if "output_weights" in self.shapes:
            return self.shapes["output_weights"][0]
        return len(self.metadata.labels) if self.metadata.labels else 2

    @property
    def names(self) -> list[str]:
        """Names of the weights, without an optimizer's slots and counters."""
        return sorted(self.shapes.keys() - {*self.slots})

    @property
    def slots(self) -> list[str]:
        """Names of all tensors that are no weights: Adam's moments, the step, a run's settings."""
        return sorted(name for name in self.shapes if self._is_slot(name))

    def _is_slot(self, name: str) -> bool:
        """Whether a tensor is a counter, or has the name of a weight within its own, and its shape.

        Any optimizer's moments are named so, and so are averages: WEIGHT/Adam_1, SCOPE/WEIGHT/m.
        """
        is_number = math.prod(self.shapes[name]) == 1
        if _SLOTS.search(name) or (is_number and _COUNTERS.fullmatch(name)):
            return True
        parts = name.split("/")
        for begin, end in itertools.combinations(range(len(parts)), 2):  # never with the last part
            weight = "/".join(parts[begin:end])
            if self.shapes.get(weight) == self.shapes[name]:
                return True
        return False

    def in_scores(self) -> "Weights":
        """The weights with a head that answers in the units of the labels.

        A head of regression that learned (score - mean) / deviation then gives scores; the logits
        of a calibrated head are divided by its temperature.
        """
        mean = self.metadata.score_mean or 0.0
        factor = self.metadata.score_deviation
        if temperature := self.metadata.temperature:
            factor = 1 / temperature
        if not factor:
            return self

        def read(name: str) -> np.ndarray:
            value = self.read(name)
            if not re.fullmatch(OUTPUT, name):
                return value
            return value * factor + mean * (name == "output_bias")

        applied = dict.fromkeys(("score_mean", "score_deviation", "temperature"))
        metadata = dataclasses.replace(self.metadata, **applied)
        return dataclasses.replace(self, read=read, metadata=metadata)


_OF_MODELS = re.compile(
    r"checkpoint|vocab\.txt|tokenizer.*|(.*config|model_facts|export|modules|added_tokens)\.json"
    r"|special_tokens_map\.json|.*\.(index|data-\d+-of-\d+|meta|safetensors|bin|h5|keras|pb|tflite)"
)


def model_files(path: str) -> list[str]:
    """The local files that belong to a model of any format, by their names.

    Args:
      path: a folder, which is searched with all folders in it; or a file or prefix, whose folder is
        searched.
    """
    if is_remote(path):
        return []
    paths = []
    if os.path.isdir(path):
        for folder, _, names in os.walk(path):
            paths += [os.path.join(folder, name) for name in names]
    else:
        paths = paths_in(os.path.dirname(path) or ".", "")
    return [file for file in paths if _OF_MODELS.fullmatch(os.path.basename(file))]


def read_model_files(folder: str) -> dict[str, Any]:
    """Reads configuration, vocabulary and metadata of a folder, as arguments of `Weights`."""
    from bert_tf.tokenization.wordpiece import read_vocabulary  # not at the top: loads TensorFlow

    fields: dict[str, Any] = {"config": None, "pieces": None, "vocab_file": None}
    config_file = os.path.join(folder, CONFIG_FILE)
    if gfile().exists(config_file):
        fields["config"] = BertConfig.from_json_file(config_file)
    vocab_file = os.path.join(folder, VOCAB_FILE)
    if gfile().exists(vocab_file):
        fields["pieces"] = tuple(read_vocabulary(vocab_file))
        fields["vocab_file"] = vocab_file
    fields["metadata"] = ModelMetadata.from_json_file(os.path.join(folder, METADATA_FILE))
    return fields


def vocabulary_text(pieces: Sequence[str]) -> str:
    """The text of a vocab.txt.

    Raises:
      InputError: a word piece has a line end, or white space around it.
    """
    for number, piece in enumerate(pieces):
        if piece != piece.strip() or "\n" in piece:
            received = f"a vocabulary whose piece {number} is {piece!r}"
            expected = f"word pieces without white space around them, each a line of {VOCAB_FILE}"
            raise InputError(received, expected, "take it out of the tokenizer; no text has it")
    return "".join(f"{piece}\n" for piece in pieces)


def json_text(values: Mapping[str, Any]) -> str:
    """The text of a JSON file, keys sorted."""
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def damage_errors(path: str, expected: str) -> Iterator[None]:
    """Turns any error of a library that reads a damaged file into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        received = f"{path}, which cannot be read ({first_line(error)})"
        raise InputError(received, expected, "copy it again, or give another one") from None


def model_texts(
    config: BertConfig, pieces: Sequence[str] | None, metadata: ModelMetadata
) -> dict[str, str]:
    """The texts of the files beside a TF1 checkpoint, by the files' names.

    Raises:
      InputError: a word piece has a line end, or white space around it.
    """
    values = config.to_dict()
    if config.layer_norm_eps == ORIGINAL_EPS:
        del values["layer_norm_eps"]  # a key that the original does not have
    texts = {CONFIG_FILE: json_text(values)}
    if pieces is not None:
        texts[VOCAB_FILE] = vocabulary_text(pieces)
    if metadata != ModelMetadata():
        texts[METADATA_FILE] = metadata.to_json_string()
    return texts


def write_model_files(
    folder: str, config: BertConfig, tokenizer: "FullTokenizer | None", metadata: ModelMetadata
) -> None:
    """Writes configuration, vocabulary and metadata into a run's folder, beside its checkpoints.

    Raises:
      InputError: the folder has another vocabulary and no checkpoint. The file is then the user's.
    """
    pieces = tokenizer and tokenizer.pieces
    path = os.path.join(folder, VOCAB_FILE)
    has_checkpoint = gfile().exists(os.path.join(folder, "checkpoint"))
    if pieces and not has_checkpoint and read_model_files(folder)["pieces"] not in (None, pieces):
        received = f"{path}, another vocabulary than the model's"
        expected = "a folder without it, where the model's is written"
        raise InputError(received, expected, "move it, or choose another --output_dir")
    for name, text in model_texts(config, pieces, metadata).items():
        write_text(os.path.join(folder, name), text)
