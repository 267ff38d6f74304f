"""Checks the sizes that a file from a stranger claims, before memory of that size is allocated.

    check_tensors    compares shapes of tensors with the bytes of their file
    check_archive    compares sizes of a zip file's members with the bytes of the file
    check_encoder    compares a configuration with the shapes of the weights

No tensor is read for it. Checks of Keras's files are in `keras_files.py`.
"""

import math
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_tf.checkpoints.metadata import Weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import ENCODER

# Keras and PyTorch compress nothing. A user who compresses their files gains little: weights become
# a tenth smaller, vocabularies a third or a half. Moments that are still 0 vanish, two thirds of a
# file.
MOST_UNPACKED = 4  # times the bytes of the file
_COPY = "copy the file again, or give another one"


class Claim(NamedTuple):
    """A tensor as a file describes it."""

    shape: tuple[int, ...]
    bits: int  # of a number; of a text of any length the fewest

    @property
    def bytes(self) -> int:
        """The bytes of its numbers."""
        return math.prod(self.shape) * self.bits // 8


def check_tensors(
    path: str, tensors: Mapping[str, Claim], *, stored: int, copies: Iterable[str] = ()
) -> None:
    """Compares the tensors of a file with its size.

    Args:
      path: the file, for messages.
      tensors: by their names in the file.
      stored: the bytes of the file or files that hold the numbers.
      copies: names of tensors that may share their bytes with others.

    Raises:
      InputError: a dimension is below 1, or the tensors need more bytes than are stored.
    """
    for name, claim in tensors.items():
        if any(size < 1 for size in claim.shape):
            received = f"{path}, whose {name} has the shape {claim.shape}"
            raise InputError(received, "1 or more in every dimension", _COPY)
    may_share = {*copies}
    total = sum(claim.bytes for name, claim in tensors.items() if name not in may_share)
    needed = max([total, *(claim.bytes for claim in tensors.values())])
    if needed > stored:
        largest = max(tensors, key=lambda name: tensors[name].bytes)
        shape = tensors[largest].shape
        received = f"{path}, whose tensors need {needed:,} bytes, as {largest} of the shape {shape}"
        raise InputError(received, f"at most the {stored:,} bytes that are stored", _COPY)


def check_archive(path: str, archive: zipfile.ZipFile, *, size: int) -> None:
    """Compares the unpacked size of a zip file with the bytes of the file.

    Args:
      path: the file, for messages.
      archive: the opened file; no member is unpacked.
      size: the size of the file, in bytes.

    Raises:
      InputError: the unpacked size is more than `MOST_UNPACKED` times the file.
    """
    members = archive.infolist()
    if sum(member.file_size for member in members) > MOST_UNPACKED * size:
        largest = max(members, key=lambda member: member.file_size - member.compress_size)
        sizes = f"{largest.file_size:,} bytes out of {largest.compress_size:,}"
        received = f"{path}, whose member {largest.filename} unpacks to {sizes}"
        expected = f"members of {MOST_UNPACKED * size:,} bytes in all at most, {MOST_UNPACKED} "
        raise InputError(received, f"{expected}times the file", "give the file as it was saved")


# ---------------------------------------------------------------------------- configurations


def encoder_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of an encoder, without its pooler, by the original's names."""
    hidden = config.hidden_size
    inner = config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
    }
    kernels = {
        "attention/self/query": (hidden, hidden),
        "attention/self/key": (hidden, hidden),
        "attention/self/value": (hidden, hidden),
        "attention/output/dense": (hidden, hidden),
        "intermediate/dense": (hidden, inner),
        "output/dense": (inner, hidden),
    }
    scopes_of_norms = ["bert/embeddings"]
    for number in range(config.num_hidden_layers):
        scope = f"bert/encoder/layer_{number}"
        for layer, shape in kernels.items():
            shapes[f"{scope}/{layer}/kernel"] = shape
            shapes[f"{scope}/{layer}/bias"] = shape[1:]
        scopes_of_norms += [f"{scope}/attention/output", f"{scope}/output"]
    for scope in scopes_of_norms:
        shapes[f"{scope}/LayerNorm/gamma"] = (hidden,)
        shapes[f"{scope}/LayerNorm/beta"] = (hidden,)
    return shapes


def check_encoder(weights: Weights, config: BertConfig, *, required: str | None = ENCODER) -> None:
    """Compares a configuration with the shapes of weights, before a model is made.

    Weights may have more layers than the configuration: the first ones are used.

    Args:
      weights: of which no tensor is read.
      config: the configuration of the model.
      required: a pattern of the names of the encoder's weights that must be there; None for none.

    Raises:
      InputError: a weight has another shape than the configuration says, or a required one is
        missing.
    """
    shapes = encoder_shapes(config)
    if "output_weights" in weights.shapes:
        shapes["output_weights"] = (*weights.shapes["output_weights"][:1], config.hidden_size)
    for name, shape in shapes.items():
        if tuple(weights.shapes.get(name, shape)) != shape:
            raise other_shape(weights, name, shape)
    if required is not None:
        missing = [
            name for name in shapes if re.match(required, name) and name not in weights.shapes
        ]
        if missing:
            unused = [name for name in weights.names if name not in shapes]
            raise lacking_weights(weights.path, missing, unused)


_REMEDY = "use a model that was trained for this, and the bert_config_file that belongs to it"


def other_shape(weights: Weights, name: str, expected: tuple[int, ...]) -> InputError:
    """The error for a weight whose shape is not the one of the configuration."""
    received = f"{weights.path}, whose {name} has the shape {tuple(weights.shapes[name])}"
    return InputError(received, f"{expected}, as the configuration says", _REMEDY)


def lacking_weights(
    path: str, lacking: Sequence[str], unused: Sequence[str], count: str = ""
) -> InputError:
    """The error for weights that a model needs and a file lacks.

    Args:
      path: the path of the file.
      lacking: names of these weights.
      unused: names of other weights in the file.
      count: the word for their number; "": the number of names in `lacking`.
    """
    examples = ", ".join(lacking[:3])
    others = ", ".join(unused[:3]) or "none"
    lacks = f"lacks {count or len(lacking)} of the model's weights, such as {examples}"
    received = f"{path}, which {lacks}; its other weights: {others}"
    rename = "; rename weights of the same layers that have other names" if unused else ""
    return InputError(received, "the weights of this model and its head", _REMEDY + rename)
