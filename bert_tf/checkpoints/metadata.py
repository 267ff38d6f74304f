"""What every format is read into: weights by the original's names, and what belongs to them."""

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.config import HEADS, BertConfig, check_fields, declared, size, typed
from bert_tf.errors import InputError, first_line
from bert_tf.files import gfile, read_json, write_text

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

CONFIG_FILE, VOCAB_FILE, METADATA_FILE = "bert_config.json", "vocab.txt", "model_facts.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"  # Hugging Face's weights
PARTS_INDEX = ".index.json"  # behind the name of a file that is cut into several
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}{PARTS_INDEX}", PICKLE, f"{PICKLE}{PARTS_INDEX}")
HEAD = r"output_(weights|bias)"  # of every kind of fine-tuned model
FORMATS = ("tf1", "bert_tf", "hugging_face")  # that are written
_SLOTS = re.compile("/adam_[mv]$|^AdamWeightDecayOptimizer|^global_step$|^bert_tf/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """What belongs to a model beside its sizes and weights; None: unknown.

    Raises:
      InputError: a value is not of its kind, or cannot be with another.
    """

    do_lower_case: bool | None = None  # of the text before it is cut into word pieces
    # Pieces that the tokenizer keeps whole wherever a text has them; None: as far as known, none.
    never_split: tuple[str, ...] | None = declared(None, filled=True, distinct=True)
    architecture: str | None = declared(None, filled=True)  # such as BertForMaskedLM
    labels: tuple[str, ...] | None = declared(None, filled=True, distinct=True)  # of classes
    null_score_diff_threshold: float | None = None  # of SQuAD v2.0: no answer above these null odds
    task: str | None = declared(None, choices=tuple(HEADS))  # where the architecture has several
    # As the model was trained:
    pairs: bool | None = None  # on pairs of texts
    num_choices: int | None = size(None)  # sequences of a record of multiple choice
    max_seq_length: int | None = size(None)  # word pieces of a sequence at most
    doc_stride: int | None = size(None)  # from the beginning of a window to that of the next
    document_context: bool | None = None  # sentences in words among the others of their document
    max_query_length: int | None = declared(None, low=0, high=2**31 - 1)  # pieces of a question
    version_2_with_negative: bool | None = None  # on questions that may have no answer

    def __post_init__(self):
        check_fields(self)
        if None not in (self.max_query_length, self.max_seq_length) and (
            self.max_query_length >= self.max_seq_length
        ):
            raise InputError(
                f"max_query_length {self.max_query_length} with max_seq_length "
                f"{self.max_seq_length}",
                "questions that leave room for a text",
                "correct one of the two",
            )

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
    def num_classes(self) -> int:
        """The classes of a classifier's head; 2 if there is none."""
        return self.shapes.get("output_weights", (2,))[0]

    @property
    def head(self) -> str | None:
        """The head that architecture and names of the weights show: one of `HEADS`.

        None: the head is of another architecture. Heads for one label, a score and any number
        of labels look alike; which it is may be in the metadata's `task`.
        """
        architecture, shapes = self.metadata.architecture, self.shapes
        heads = [name for name, known in HEADS.items() if known == architecture]
        if len(heads) == 1:
            return heads[0]
        if not heads and architecture and any(re.match(f"{HEAD}|cls/", name) for name in shapes):
            return None
        if heads or "output_weights" in shapes:
            return "regression" if self.num_classes == 1 else "classification"
        if "cls/squad/output_weights" in shapes:
            return "question_answering"
        if "cls/predictions/output_bias" in shapes:
            return "pretraining" if "cls/seq_relationship/output_weights" in shapes else "fill_mask"
        return "embeddings"

    @property
    def names(self) -> list[str]:
        """Names of the weights, without an optimizer's slots and counters."""
        return sorted(name for name in self.shapes if not _SLOTS.search(name))

    @property
    def slots(self) -> list[str]:
        """Names of everything else: Adam's moments, the step, the settings of a run."""
        return sorted(name for name in self.shapes if _SLOTS.search(name))


def read_model_files(folder: str) -> dict[str, Any]:
    """Reads configuration, vocabulary and metadata of a folder, as arguments of `Weights`."""
    from bert_tf.tokenization.wordpiece import read_vocabulary  # not at the top: loads TensorFlow

    config_file, vocab_file = os.path.join(folder, CONFIG_FILE), os.path.join(folder, VOCAB_FILE)
    has_config, has_vocabulary = gfile().exists(config_file), gfile().exists(vocab_file)
    return {
        "config": BertConfig.from_json_file(config_file) if has_config else None,
        "pieces": tuple(read_vocabulary(vocab_file)) if has_vocabulary else None,
        "vocab_file": vocab_file if has_vocabulary else None,
        "metadata": ModelMetadata.from_json_file(os.path.join(folder, METADATA_FILE)),
    }


def vocabulary_text(pieces: Iterable[str]) -> str:
    """The text of a vocab.txt.

    Raises:
      InputError: a word piece cannot stand on a line of its own.
    """
    pieces = list(pieces)
    for number, piece in enumerate(pieces):
        if piece != piece.strip() or "\n" in piece:
            raise InputError(
                f"a vocabulary whose piece {number} is {piece!r}",
                f"word pieces without white space around them, each a line of {VOCAB_FILE}",
                "take the piece out of the model's tokenizer; BERT's never gives it",
            )
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


def refused_model(source: str, received: str, expected: str) -> InputError:
    """The error for a model that is no BERT; `source` names the file that says so."""
    return InputError(
        f"{source} with {received}", expected, "give a BERT; others compute something else"
    )


def write_model_files(
    folder: str, config: BertConfig, tokenizer: "FullTokenizer", metadata: ModelMetadata
) -> None:
    """Writes what makes a run's folder a whole model, beside its checkpoints."""
    texts = {
        CONFIG_FILE: config.to_json_string(),
        VOCAB_FILE: vocabulary_text(tokenizer.pieces),
        METADATA_FILE: metadata.to_json_string(),
    }
    for name, text in texts.items():
        write_text(os.path.join(folder, name), text)


# ---------------------------------------------------------------------------- the index of TF1

_FOOTER_BYTES = 48  # at its end, of which 8 are a mark
_MOST_DIMENSIONS = 64  # of an array in NumPy
_RESTART_INTERVAL = 16  # LevelDB writes the first of so many keys whole


def read_index(prefix: str) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """The dtype and shape of every tensor of a TF1 checkpoint, from its .index file.

    TensorFlow's own reader of it takes the entries as it finds them: a wrong type or size, or an
    error of the disk, ends the process, without an error to catch, or takes any amount of memory.

    Raises:
      Exception: of any kind; the file is damaged or cannot be read.
    """
    import tensorflow as tf  # not at the top: takes seconds

    with gfile().GFile(f"{prefix}.index", "rb") as file:
        content = file.read()
    bundle = importlib.import_module("tensorflow.core.protobuf.tensor_bundle_pb2")
    entries = dict(_read_table(content))
    header = bundle.BundleHeaderProto.FromString(entries.pop(b""))
    names = (f"{prefix}.data-{n:05}-of-{header.num_shards:05}" for n in range(header.num_shards))
    lengths = [gfile().stat(name).length for name in names]
    found = {}
    for key, value in entries.items():
        entry = bundle.BundleEntryProto.FromString(value)
        dtype = tf.dtypes.as_dtype(entry.dtype)
        _check_entry(entry, dtype, lengths)
        if not key.startswith(b"\0"):  # a part of a tensor that has several
            found[key.decode()] = dtype, tuple(dim.size for dim in entry.shape.dim)
    return found


def _check_entry(entry: Any, dtype: Any, lengths: Sequence[int]) -> None:
    """Checks the type, shape and place of a tensor against the lengths of the files."""
    shape = [dim.size for dim in entry.shape.dim]
    elements, least = math.prod(shape), max(dtype.size, 1)  # a text has a byte for its length
    extents = [one for part in entry.slices for one in part.extent]
    if (
        not dtype.is_numpy_compatible
        or entry.dtype != dtype.base_dtype.as_datatype_enum  # a reference
        or entry.shape.unknown_rank
        or len(shape) > _MOST_DIMENSIONS
        or min(shape, default=0) < 0
        or not 0 <= entry.shard_id < len(lengths)
        or min(entry.offset, entry.size) < 0
        or entry.offset + entry.size > lengths[entry.shard_id]
        or elements * least > (sum(lengths) if entry.slices else entry.size)
        or min((n for one in extents for n in (one.start, one.length)), default=0) < 0
    ):
        raise ValueError(f"an entry of {dtype.name} {shape} with {entry.size} bytes")


def _read_table(content: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a sorted table of LevelDB's: blocks, one that lists them, its place."""
    places = _varints(content, len(content) - _FOOTER_BYTES, 4)  # of two blocks, and the end
    handles = [_varints(handle, 0, 2)[:2] for _, handle in _read_block(content, *places[2:4])]
    if sum(size for _, size in handles) > len(content):
        raise ValueError("blocks that overlap")
    return [pair for handle in handles for pair in _read_block(content, *handle)]


def _read_block(content: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """A block: entries, whose keys leave out what they share with the key before; restarts."""
    block, is_compressed = content[offset : offset + size], content[offset + size]
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 - 4 * num_restarts
    restarts = set(struct.unpack(f"<{num_restarts}I", block[end:-4]))
    at, key, found, key_bytes = 0, b"", [], 0
    while at < end and key_bytes <= _RESTART_INTERVAL * len(block):
        start = at
        shared, rest, length, at = _varints(block, at, 3)
        key = key[:shared] + block[at : at + rest]
        key_bytes += len(key)
        found.append((key, block[at + rest : at + rest + length]))
        at += rest + length
        if not shared:
            restarts.discard(start)
    if is_compressed or at != end or restarts - {0}:  # TensorFlow has never compressed one
        raise ValueError("a block that is damaged or compressed")
    return found


def _varints(content: bytes, at: int, count: int) -> tuple[int, ...]:
    """That many numbers of 7 bits a byte from a place on, and the place behind them."""
    numbers = []
    for _ in range(count):
        size = next(n for n in range(1, 11) if content[at + n - 1] < 128)
        sevens = (byte & 127 for byte in reversed(content[at : at + size]))
        numbers.append(functools.reduce(lambda high, low: high << 7 | low, sevens))
        at += size
    return (*numbers, at)
