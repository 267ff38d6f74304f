"""What every format is read into: weights by the original's names, and what belongs to them."""

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

CONFIG_FILE, VOCAB_FILE, METADATA_FILE = "bert_config.json", "vocab.txt", "model_facts.json"
TF1_INDEX = "bert_model.ckpt.index"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"  # Hugging Face's weights
PARTS_INDEX = ".index.json"  # behind the name of a file that is cut into several
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}{PARTS_INDEX}", PICKLE, f"{PICKLE}{PARTS_INDEX}")


class Format(NamedTuple):
    """A format of weights. Its modules are imported at their first use."""

    reader: str  # module:function, which gives `Weights`
    writer: str = ""  # the module with `texts_of` and `write_tensors`; "" if it is not written
    file: str = ""  # without which a folder is no model; written last


# In the order in which a path is recognized, by `file` unless `loading.RECOGNIZED` knows better.
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
WRITTEN = tuple(name for name, one in FORMATS.items() if one.writer)
DEFAULT_FORMAT = "hugging_face"  # of what is written
ORIGINAL_EPS = 1e-12  # layer_norm_eps in the original's code
_OWN_HEAD = "for a head of your own run the program that registers it, else correct task"
# The original's and ours; and numbers that any optimizer keeps for all weights.
_SLOTS = re.compile("/adam_[mv]$|^AdamWeightDecayOptimizer|^global_step$|^bert_tf/")
_COUNTERS = re.compile(
    r"(.*/)?(global_step|local_step|iter(ations)?|beta_?[12](_power)?|learning_rate|decay"
    r"|(current_)?loss_scale|good_steps)(_\d+)?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """What belongs to a model beside its sizes and weights; None: unknown.

    Roles of fields: `of_part`, a layer, the labels or the tokenizer of a Keras model has it;
    `of_weights`, it is right for these weights alone, not for those of further training;
    `of_windows` and `of_sequences`, it says how texts become sequences (by windows).

    Raises:
      InputError: a value is not of its kind.
    """

    # Of the text before it is cut into word pieces.
    do_lower_case: bool | None = declared(None, of_part=True)
    # None: as do_lower_case.
    strip_accents: bool | None = declared(None, of_part=True)
    # Pieces that the tokenizer keeps whole wherever a text has them; None: as far as known, none.
    never_split: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # Pieces that it keeps whole wherever a normalized text has them; None: as far as known, none.
    added_words: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # Such as BertForMaskedLM.
    architecture: str | None = declared(None, filled=True, of_part=True)
    # Of classes.
    labels: tuple[str, ...] | None = declared(None, filled=True, distinct=True, of_part=True)
    # Of SQuAD v2.0: no answer above these null odds.
    null_score_diff_threshold: float | None = declared(None, of_weights=True)
    # Of each of any number of labels: the probability from which on it applies.
    thresholds: dict[str, float] | None = dataclasses.field(
        default=None, metadata={"low": 0.0, "high": 1.0, "of_weights": True}
    )
    origin: str | None = declared(None, filled=True)  # hf:OWNER/NAME@COMMIT of the first weights
    # Where the architecture has several.
    task: str | None = declared(None, choices=NAMES, remedy=_OWN_HEAD)
    # As the model was trained:
    pairs: bool | None = None  # on pairs of texts
    # The columns of its texts: names, or positions in files without a header.
    columns: tuple[str | int, ...] | None = declared(None, filled=True, distinct=True)
    score_mean: float | None = None  # of regression, whose weights give (score - mean) / deviation
    score_deviation: float | None = declared(None, above=0)
    temperature: float | None = declared(None, above=0)  # by which logits of classes are divided
    num_choices: int | None = size(None)  # sequences of a record of multiple choice
    # Word pieces of a sequence at most.
    max_seq_length: int | None = size(None, of_part=True, of_sequences=True)
    # From the beginning of a window to that of the next.
    doc_stride: int | None = size(None, of_windows=True, of_sequences=True)
    # Sentences in words among the others of their document.
    document_context: bool | None = declared(None, of_windows=True, of_sequences=True)
    # Pieces of a question.
    max_query_length: int | None = declared(None, low=0, high=2**31 - 1, of_sequences=True)
    # On questions that may have no answer.
    version_2_with_negative: bool | None = declared(None, of_sequences=True)

    def __post_init__(self):
        check_fields(self)

    def known(self) -> dict[str, Any]:
        """What is known, by name."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    def to_json_string(self) -> str:
        """The text of a model_facts.json: what is known."""
        return json_text(self.known())

    @classmethod
    def from_json_file(cls, path: str) -> "ModelMetadata":
        """Reads a model_facts.json; without the file nothing is known."""
        values = read_json(path) if gfile().exists(path) else {}
        return typed(cls, values, source=path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights by their names in the original's checkpoints, and what belongs to them.

    Attributes:
      path: where they are, for messages.
      format: tf1, tf2, keras or hugging_face.
      shapes: of every tensor, the optimizer's included.
      read: gives the tensor of a name; only then is it read from the file.
      config: sizes of the model, if the files have them.
      pieces: the vocabulary in order, if there is one beside the weights.
      vocab_file: where that is, for messages.
      metadata: what else is known.
      ignored: names in the file that are no weights, or are copies of others.
      file_names: how the file names its weights, where not as the original does.
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
        """How the file names a weight of this original name, for messages."""
        return self.file_names.get(name, name)

    @property
    def num_classes(self) -> int:
        """The classes of a classifier's head; without one, its labels, or 2 if it has none."""
        labels = self.metadata.labels
        return self.shapes.get("output_weights", (len(labels) if labels else 2,))[0]

    @property
    def names(self) -> list[str]:
        """Names of the weights, without an optimizer's slots and counters."""
        return sorted(self.shapes.keys() - {*self.slots})

    @property
    def slots(self) -> list[str]:
        """Names of everything else: Adam's moments, the step, the settings of a run."""
        return sorted(name for name in self.shapes if self._is_slot(name))

    def _is_slot(self, name: str) -> bool:
        """Whether a tensor is a counter, or has the shape of a weight whose name is within its own.

        So any optimizer's moments are named, and means over steps: WEIGHT/Adam_1, SCOPE/WEIGHT/m.
        """
        is_number = math.prod(self.shapes[name]) == 1
        if _SLOTS.search(name) or (is_number and _COUNTERS.fullmatch(name)):
            return True
        parts = name.split("/")
        inside = itertools.combinations(range(len(parts)), 2)  # the last part is of no weight
        weights = ("/".join(parts[begin:end]) for begin, end in inside)
        return any(self.shapes.get(weight) == self.shapes[name] for weight in weights)

    def in_scores(self) -> "Weights":
        """These weights; those of a head that learned (score - mean) / deviation give scores.

        And those of one that is calibrated give logits divided by its temperature.
        """
        mean, deviation = self.metadata.score_mean or 0.0, self.metadata.score_deviation
        if temperature := self.metadata.temperature:
            deviation = 1 / temperature
        if not deviation:
            return self

        def read(name: str) -> np.ndarray:
            value = self.read(name)
            is_scaled = re.fullmatch(OUTPUT, name)
            return value * deviation + mean * (name == "output_bias") if is_scaled else value

        done = dict.fromkeys(("score_mean", "score_deviation", "temperature"))
        metadata = dataclasses.replace(self.metadata, **done)
        return dataclasses.replace(self, read=read, metadata=metadata)


_OF_MODELS = re.compile(
    r"checkpoint|vocab\.txt|tokenizer.*|(.*config|model_facts|export|modules|added_tokens)\.json"
    r"|special_tokens_map\.json|.*\.(index|data-\d+-of-\d+|meta|safetensors|bin|h5|keras|pb|tflite)"
)


def model_files(path: str) -> list[str]:
    """The local files that belong to a model of any format, by their names.

    Args:
      path: a folder, with all that is in it, or a file or prefix, with what lies beside it.
    """
    if is_remote(path):
        return []
    if os.path.isdir(path):
        inside = [os.path.join(home, name) for home, _, names in os.walk(path) for name in names]
    else:
        inside = paths_in(os.path.dirname(path) or ".", "")
    return [file for file in inside if _OF_MODELS.fullmatch(os.path.basename(file))]


def read_model_files(folder: str) -> dict[str, Any]:
    """Reads configuration, vocabulary and metadata of a folder, as arguments of `Weights`."""
    from bert_tf.tokenization.wordpiece import read_vocabulary  # not at the top: loads TensorFlow

    paths = (os.path.join(folder, name) for name in (CONFIG_FILE, VOCAB_FILE))
    config_file, vocab_file = (path if gfile().exists(path) else None for path in paths)
    return {
        "config": config_file and BertConfig.from_json_file(config_file),
        "pieces": vocab_file and tuple(read_vocabulary(vocab_file)),
        "vocab_file": vocab_file,
        "metadata": ModelMetadata.from_json_file(os.path.join(folder, METADATA_FILE)),
    }


def vocabulary_text(pieces: Sequence[str]) -> str:
    """The text of a vocab.txt.

    Raises:
      InputError: a word piece cannot stand on a line of its own.
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
    """Raises `InputError` for whatever a library raises while it reads a damaged file."""
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
    """The files beside a TF1 checkpoint, text by name.

    Raises:
      InputError: a word piece cannot stand on a line of its own.
    """
    values = config.to_dict()
    if config.layer_norm_eps == ORIGINAL_EPS:
        del values["layer_norm_eps"]  # the original does not know the key
    texts = {CONFIG_FILE: json_text(values)}
    if pieces is not None:
        texts[VOCAB_FILE] = vocabulary_text(pieces)
    if metadata != ModelMetadata():
        texts[METADATA_FILE] = metadata.to_json_string()
    return texts


def write_model_files(
    folder: str, config: BertConfig, tokenizer: "FullTokenizer | None", metadata: ModelMetadata
) -> None:
    """Writes what makes a run's folder a whole model, beside its checkpoints.

    Raises:
      InputError: it has another vocabulary, and no checkpoint: the file is the user's.
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
