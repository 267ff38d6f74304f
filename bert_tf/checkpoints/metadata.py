"""What the weights of every format are read into."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import read_json

CONFIG_FILE, VOCAB_FILE, METADATA_FILE = "bert_config.json", "vocab.txt", "model_facts.json"
_SLOTS = re.compile("/adam_[mv]$|^AdamWeightDecayOptimizer|^global_step$|^bert_tf/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """What belongs to a model and is in neither its sizes nor its weights; None: not known."""

    do_lower_case: bool | None = None  # of the text before it is cut into pieces
    architecture: str | None = None  # Hugging Face's name of the class, such as BertForMaskedLM
    labels: tuple[str, ...] | None = None  # names of the classes of a head, by number
    null_score_diff_threshold: float | None = None  # of SQuAD v2.0: no answer above these null odds
    task: str | None = None  # a kind of bert_tf.serving.kinds, where the architecture has several
    # As the model was trained:
    pairs: bool | None = None  # on pairs of texts
    num_choices: int | None = None  # sequences of a record of multiple choice
    max_seq_length: int | None = None  # pieces of a sequence at most
    doc_stride: int | None = None  # how far each window of a context began behind the one before
    max_query_length: int | None = None  # pieces of a question at most
    version_2_with_negative: bool | None = None  # on questions that may have no answer

    def to_json_string(self) -> str:
        """The text of a model_facts.json: what is known."""
        known = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return json.dumps(known, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json_file(cls, path: str) -> "ModelMetadata":
        """Reads a model_facts.json; without the file nothing is known."""
        if not tf.io.gfile.exists(path):
            return cls()
        values = read_json(path)
        unknown = sorted(values.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise InputError(
                received=f"{path} with the unknown keys {', '.join(unknown)}",
                expected=f"only {', '.join(f.name for f in dataclasses.fields(cls))}",
                remedy="correct the spelling, or remove the file",
            )
        if values.get("labels") is not None:
            values["labels"] = tuple(values["labels"])
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights by their names in the original's checkpoints, and what belongs to them.

    Attributes:
      path: where they are, for messages.
      format: tf1, tf2, keras or hugging_face.
      shapes: of every tensor, the optimizer's included.
      read: gives the tensor of a name; only then is it read from the file.
      config: sizes of the model, where the files say them.
      pieces: the vocabulary in order, where there is one beside them.
      vocab_file: where that is, for messages.
      metadata: what else is known.
      ignored: names in the file that are no weights, or are the copy of another.
    """

    path: str
    format: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    config: BertConfig | None = None
    pieces: tuple[str, ...] | None = None
    vocab_file: str | None = None
    metadata: ModelMetadata = ModelMetadata()
    ignored: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the weights, without an optimizer's slots and counters."""
        return sorted(name for name in self.shapes if not is_slot(name))

    @property
    def slots(self) -> list[str]:
        """Names of the optimizer's slots, counters and notes of a run."""
        return sorted(name for name in self.shapes if is_slot(name))


def is_slot(name: str) -> bool:
    """Whether a name in a checkpoint is that of no weight: Adam's moments, the step, notes."""
    return bool(_SLOTS.search(name))


def vocabulary_text(pieces: Iterable[str]) -> str:
    """The text of a vocab.txt.

    Raises:
      InputError: a piece cannot stand on a line of its own.
    """
    pieces = list(pieces)
    for number, piece in enumerate(pieces):
        if piece != piece.strip() or "\n" in piece:
            raise InputError(
                received=f"a vocabulary whose piece {number} is {piece!r}",
                expected=f"pieces without white space around them, each a line of {VOCAB_FILE}",
                remedy="take the piece out of the model's tokenizer; BERT's never gives it",
            )
    return "".join(f"{piece}\n" for piece in pieces)


@contextlib.contextmanager
def damage_errors(path: str, expected: str) -> Iterator[None]:
    """Raises `InputError` for whatever a library raises while it reads a damaged file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        says = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path}, which cannot be read ({says})", expected, "copy it again, or give another one"
        ) from None


def refused_model(source: str, received: str, expected: str) -> InputError:
    """The error for a model that is no BERT; `source` names the file that says so."""
    return InputError(
        received=f"{source} with {received}",
        expected=expected,
        remedy="give a model of the architecture BERT; others compute something else",
    )


def join(folder: str, name: str) -> str:
    """The path of a file in a folder; a folder of no name is the current one."""
    return tf.io.gfile.join(folder, name) if folder else name


def folder_of(path: str) -> str:
    """The folder that a file is in; empty for the current one."""
    return path.rpartition("/")[0] + ("/" if path.startswith("/") and path.count("/") == 1 else "")


def first_of(*paths: str) -> str | None:
    """The first of these files that is there."""
    return next((path for path in paths if tf.io.gfile.exists(path)), None)


def read_model_files(folder: str) -> dict[str, Any]:
    """Configuration, vocabulary and metadata that our folders and the original's have."""
    from bert_tf.tokenization.wordpiece import read_vocabulary

    config_file, vocab_file = join(folder, CONFIG_FILE), first_of(join(folder, VOCAB_FILE))
    has_config = tf.io.gfile.exists(config_file)
    return {
        "config": BertConfig.from_json_file(config_file) if has_config else None,
        "pieces": tuple(read_vocabulary(vocab_file)) if vocab_file else None,
        "vocab_file": vocab_file,
        "metadata": ModelMetadata.from_json_file(join(folder, METADATA_FILE)),
    }
