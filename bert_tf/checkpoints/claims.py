"""What strangers' files claim, compared with what they hold before anything of that size is made.

    check_tensors    shapes of tensors, with the bytes of their file
    check_archive    sizes of a zip file's members, with the bytes of the file
    check_encoder    a configuration, with the shapes of the weights that a model of it is to have

No tensor is read for it. Keras's files: `keras_files.py`.
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

# Keras and PyTorch pack nothing. Who packs their files again gains little: weights become smaller
# by a tenth, vocabularies by a third or a half, moments that are still 0 vanish: two of three.
MOST_UNPACKED = 4
_COPY = "copy the file again, or give another one"


class Claim(NamedTuple):
    """A tensor as a file describes it."""

    shape: tuple[int, ...]
    bits: int  # of a number; of texts of any length the fewest

    @property
    def bytes(self) -> int:
        """What its numbers need."""
        return math.prod(self.shape) * self.bits // 8


def check_tensors(
    path: str, tensors: Mapping[str, Claim], *, stored: int, copies: Iterable[str] = ()
) -> None:
    """Compares the tensors of a file with its size.

    Args:
      path: the file, for messages.
      tensors: by their names in the file.
      stored: bytes of the file or files that have their numbers.
      copies: names of tensors that may share their bytes with others.

    Raises:
      InputError: a dimension is below 1, or the tensors need more bytes than are stored.
    """
    for name, claim in tensors.items():
        if any(size < 1 for size in claim.shape):
            received = f"{path}, whose {name} has the shape {claim.shape}"
            raise InputError(received, "1 or more in every dimension", _COPY)
    by_bytes = {name: claim.bytes for name, claim in tensors.items() if name not in {*copies}}
    needed = max(sum(by_bytes.values()), *(claim.bytes for claim in tensors.values()), 0)
    if needed > stored:
        largest = max(tensors, key=lambda name: tensors[name].bytes)
        shape = tensors[largest].shape
        received = f"{path}, whose tensors need {needed:,} bytes, as {largest} of the shape {shape}"
        raise InputError(received, f"at most the {stored:,} bytes that are stored", _COPY)


def check_archive(path: str, archive: zipfile.ZipFile, *, size: int) -> None:
    """Compares what a zip file unpacks to with its size.

    Args:
      path: the file, for messages.
      archive: the same, opened; no member is unpacked.
      size: its bytes.

    Raises:
      InputError: that is more than `MOST_UNPACKED` times the file.
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
    hidden, inner = config.hidden_size, config.intermediate_size
    embeddings, norms = "bert/embeddings", ["attention/output", "output"]
    shapes: dict[str, tuple[int, ...]] = {
        f"{embeddings}/word_embeddings": (config.vocab_size, hidden),
        f"{embeddings}/position_embeddings": (config.max_position_embeddings, hidden),
        f"{embeddings}/token_type_embeddings": (config.type_vocab_size, hidden),
    }
    kernels = {
        "attention/self/query": (hidden, hidden),
        "attention/self/key": (hidden, hidden),
        "attention/self/value": (hidden, hidden),
        "attention/output/dense": (hidden, hidden),
        "intermediate/dense": (hidden, inner),
        "output/dense": (inner, hidden),
    }
    scopes = [f"bert/encoder/layer_{number}" for number in range(config.num_hidden_layers)]
    for scope in scopes:
        for layer, shape in kernels.items():
            shapes |= {f"{scope}/{layer}/kernel": shape, f"{scope}/{layer}/bias": shape[1:]}
    for scope in [embeddings, *(f"{scope}/{norm}" for scope in scopes for norm in norms)]:
        shapes |= {f"{scope}/LayerNorm/{part}": (hidden,) for part in ("gamma", "beta")}
    return shapes


def check_encoder(weights: Weights, config: BertConfig, *, required: str | None = ENCODER) -> None:
    """Compares a configuration with weights before a model of it is made.

    Weights may have more layers than the configuration: the first ones are used.

    Args:
      weights: of which the shapes alone are looked at.
      config: that a model of them is to have.
      required: a pattern of the names of the encoder that must be there; None: of none.

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
      path: the file.
      lacking: names of these weights.
      unused: names of others that it has.
      count: how many they are, where not as many as named.
    """
    such, others = ", ".join(lacking[:3]), ", ".join(unused[:3])
    lacks = f"lacks {count or len(lacking)} of the model's weights, such as {such}"
    received = f"{path}, which {lacks}; its other weights: {others or 'none'}"
    rename = "; rename weights of the same layers that have other names" if unused else ""
    return InputError(received, "the weights of this model and its head", _REMEDY + rename)
