"""Weights out: edited, written as an original checkpoint, ours or a folder of Hugging Face.

    without_slots                                   of a checkpoint of a run
    add_pieces, extend_positions                    longer tables
    save_weights                                    every format
    outputs_of, difference_of_outputs               the proof of a conversion

A run in training saves by `tf1.CheckpointFolder`.
"""

import dataclasses
import importlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.keras_files import weights_of
from bert_tf.checkpoints.loading import config_of, load_weights, refuse_swapped
from bert_tf.checkpoints.metadata import (
    DEFAULT_FORMAT,
    FORMATS,
    ORIGINAL_EPS,
    TF1_INDEX,
    WRITTEN,
    ModelMetadata,
    Weights,
    model_texts,
)
from bert_tf.checkpoints.shown_heads import OUTPUT_BIAS, POOLER, heads_of
from bert_tf.config import BertConfig
from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.files import new_path, path_errors, published, refuse_pattern
from bert_tf.heads import head_named

_PREFIX = TF1_INDEX.removesuffix(tf1.INDEX)
WORD_TABLE = "bert/embeddings/word_embeddings"
POSITION_TABLE = "bert/embeddings/position_embeddings"
COMPARED_LENGTH = 19  # of the longest sequence that two models are compared on
NEVER = -10000.0  # the output bias of a row that is no word piece: its probability is 0


# ---------------------------------------------------------------------------- writing


def save_weights(
    model: keras.Model | Weights,
    path: str | os.PathLike,
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002
) -> str:
    """Writes weights and all that belongs to them; nothing appears before it is whole.

    Args:
      model: a model, whose LoRA is merged, or what `open_weights` gave; what the model's attributes
        `tokenizer`, `labels` and `metadata` say is written too.
      path: a folder that is not there yet.
      format: hugging_face; tf1, which the original reads; or bert_tf, the same with configurations
        that it does not know.

    Returns:
      The path to give to `open_weights`.

    Raises:
      InputError: the folder is there or cannot be written, TensorFlow takes its path for a pattern,
        the format is unknown or cannot hold the model, a weight is not finite, the model is
        quantized, or model and path are swapped.
    """
    refuse_swapped("save_weights", model, path)
    check("format", format, str, choices=WRITTEN)
    weights = model if isinstance(model, Weights) else weights_of(model)
    return write_weights(weights, os.fspath(path), format)


def write_weights(
    weights: Weights,
    path: str,
    file_format: str,
    *,
    prove: Callable[[str], None] | None = None,
) -> str:
    """Writes weights as `save_weights` does.

    Args:
      weights: with all that belongs to them.
      path: a folder that is not there yet.
      file_format: one of `WRITTEN`.
      prove: is called with the folder under a temporary name; what it raises leaves nothing.

    Returns:
      The path to give to `open_weights`.

    Raises:
      InputError: as `save_weights`.
    """
    path = new_path(path)
    how = FORMATS[file_format]
    if how.file == TF1_INDEX:
        refuse_pattern(path)
    config = config_of(weights, required=None)
    if weights.pieces is not None:
        config.check_vocabulary_size(len(weights.pieces), vocab_file=str(weights.vocab_file))
    if file_format == "tf1":
        _check_original_can_compute(config, weights.path)
    writer = importlib.import_module(how.writer)
    texts = writer.texts_of(weights)  # raises InputError if the format cannot hold them
    with (
        path_errors(path, "written"),
        published(path, prove, folder=True, last=how.file) as folder,
    ):
        for name, text in texts.items():
            with tf.io.gfile.GFile(os.path.join(folder, name), "w") as file:
                file.write(text)
        writer.write_tensors(folder, _finite(weights))
    return os.path.join(path, _PREFIX) if how.file == TF1_INDEX else path


def texts_of(weights: Weights) -> dict[str, str]:
    """The files beside a TF1 checkpoint, text by name; raises as `model_texts`."""
    return model_texts(config_of(weights, required=None), weights.pieces, weights.metadata)


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes all tensors, an optimizer's too, as a TF1 checkpoint."""
    tf1.write_checkpoint(
        os.path.join(folder, _PREFIX),
        {name: weights.read(name) for name in weights.shapes},
        temporary=os.path.join(folder, "incomplete"),
    )


def _finite(weights: Weights) -> Weights:
    """The weights; one with NaN or infinity is refused when it is read, by its name in the file."""

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        if tf.as_dtype(value.dtype).is_floating and not np.isfinite(value).all():
            received = f"{weights.path}, whose {weights.name_in_file(name)} has NaN or infinity"
            remedy = "nothing was written; give weights from before they were damaged"
            raise InputError(received, "finite numbers in every weight", remedy)
        return value

    return dataclasses.replace(weights, read=read)


def _check_original_can_compute(config: BertConfig, path: str) -> None:
    has = {
        "the exact gelu": config.hidden_act == "gelu_erf",
        f"layer_norm_eps {config.layer_norm_eps}": config.layer_norm_eps != ORIGINAL_EPS,
    }
    if any(has.values()):
        received = f"{path} with {' and '.join(name for name in has if has[name])}, for tf1"
        remedy = "use bert_tf (--format=bert_tf), the same file format for this package alone"
        raise InputError(received, "a model that the original can compute", remedy)


# ---------------------------------------------------------------------------- strip


def without_slots(weights: Weights) -> Weights:
    """The weights alone: no moments, counters or settings of a run."""
    return dataclasses.replace(weights, shapes={n: weights.shapes[n] for n in weights.names})


# ---------------------------------------------------------------------------- longer tables


def add_pieces(weights: Weights, pieces: Sequence[str], *, seed: int = 12345) -> Weights:
    """The weights of a vocabulary with these word pieces after its last one.

    Rows that the table has beyond its vocabulary are used first. A new piece's vector is drawn as a
    fresh model's is; its output bias is 0.

    Raises:
      InputError: there is no vocabulary, or it has a piece already.
    """
    known = weights.pieces or ()
    if not known:
        received = f"--extra_tokens for {weights.path} without a vocabulary"
        raise InputError(received, "the vocabulary to add to", "name it with --vocab_file")

    if wrong := [piece for piece in pieces if piece in known or pieces.count(piece) > 1]:
        received = f"--extra_tokens with {', '.join(map(repr, wrong))}"
        raise InputError(received, "tokens that are new, each once", "leave them out")
    old_rows, width = weights.shapes[WORD_TABLE]
    stddev = weights.config.initializer_range if weights.config else 0.02
    own = zlib.crc32("\n".join(pieces).encode(), seed % 2**32)  # a later call draws others
    draw = keras.initializers.TruncatedNormal(stddev=stddev, seed=own)
    drawn = np.asarray(draw((len(pieces), width)))
    rows = max(old_rows, len(known) + len(pieces))
    longer = _with_rows(weights, rows, dict(enumerate(drawn, len(known))))
    return dataclasses.replace(longer, pieces=(*known, *pieces))


def extend_positions(weights: Weights, positions: int) -> Weights:
    """The weights with a longer table of positions, for longer sequences.

        rows before    p0 p1 p2
        for 8          p0 p1 p2 p0 p1 p2 p0 p1

    New rows are copies of the old ones in their order, as Longformer's began (Beltagy et al.,
    2020), and are to be trained further. Adam's moments of the new rows are 0.

    Raises:
      InputError: there are more positions already.
    """
    old_rows = weights.shapes[POSITION_TABLE][0]
    if positions < old_rows:
        received = f"--max_position_embeddings={positions} for {weights.path}, which has {old_rows}"
        remedy = "--max_seq_length makes sequences shorter"
        raise InputError(received, f"{old_rows} or more", remedy)
    if positions == old_rows:
        return weights
    says = (
        "%s: positions %d to %d are copies of the first ones. Train the model further on long "
        "sequences before use; give --max_seq_length there, if it was trained with less."
    )
    logging.warning(says, weights.path, old_rows, positions - 1)

    def grow(name: str, value: np.ndarray) -> np.ndarray:
        if name == POSITION_TABLE:
            return value[np.arange(positions) % old_rows]
        return np.pad(value, [(0, positions - old_rows), (0, 0)])

    return _grown(weights, (POSITION_TABLE,), grow, max_position_embeddings=positions)


def _with_rows(weights: Weights, rows: int, vectors: Mapping[int, np.ndarray]) -> Weights:
    """The word table with so many rows: those of `vectors` filled, other new ones never guessed."""

    def grow(name: str, value: np.ndarray) -> np.ndarray:
        filler = NEVER if name == OUTPUT_BIAS else 0.0
        new = np.full((rows, *value.shape[1:]), filler, value.dtype)
        new[: len(value)] = value
        for row, vector in vectors.items():
            new[row] = vector if name == WORD_TABLE else 0.0
        return new

    return _grown(weights, (WORD_TABLE, OUTPUT_BIAS), grow, vocab_size=rows)


def _grown(
    weights: Weights,
    tables: tuple[str, ...],
    grow: Callable[[str, np.ndarray], np.ndarray],
    **size: Any,
) -> Weights:
    """The weights with longer tables: `grow` gives them and their moments, `size` their rows."""
    (rows,) = size.values()

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        return grow(name, value) if name.startswith(tables) else value

    return dataclasses.replace(
        weights,
        shapes={
            n: (rows, *s[1:]) if n.startswith(tables) else s for n, s in weights.shapes.items()
        },
        read=read,
        config=weights.config and dataclasses.replace(weights.config, **size),
    )


# ---------------------------------------------------------------------------- the proof


def difference_of_outputs(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], *, rows: int | None = None
) -> dict[str, float]:
    """The greatest difference of each output.

    Args:
      one: outputs by name.
      other: the same of another model.
      rows: how many of the vocabulary are compared; None for those that both have.
    """

    def difference(name: str) -> float:
        a, b = one[name], other[name]
        if name == "masked_lm_logits":
            shared = rows or min(a.shape[-1], b.shape[-1])
            a, b = a[..., :shared], b[..., :shared]
        return float(np.max(np.abs(a.astype(np.float64) - b)))

    return {name: difference(name) for name in sorted(one)}


def outputs_of(weights: Weights, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs, by name, of models with all heads of these weights.

    Raises:
      InputError: the weights do not fit their configuration.
    """
    outputs: dict[str, np.ndarray] = {}
    plain = dataclasses.replace(weights, metadata=ModelMetadata())  # of whatever task the head is
    for head in heads_of(weights.shapes):
        model = head_named(head).model(config_of(weights), num_classes=weights.num_classes)
        load_weights(model, plain)
        own = {name: inputs[name] for name in model.input}
        outputs |= {n: np.asarray(v) for n, v in model(own, training=False).items()}
    needed = {  # without these weights an output says nothing
        "pooled_output": POOLER,
        "next_sentence_logits": POOLER,
        "masked_lm_logits": OUTPUT_BIAS,
    }
    return {n: value for n, value in outputs.items() if needed.get(n, n) in {n, *weights.shapes}}


def random_inputs(
    config: BertConfig, *, rows: int | None = None, length: int = COMPARED_LENGTH
) -> dict[str, np.ndarray]:
    """The same examples of all lengths at every call.

    Args:
      config: of the model.
      rows: token ids are below this, if given.
      length: of the longest example; at most the model's positions.
    """
    random = np.random.default_rng(1)
    batch, length = 3, min(length, config.max_position_embeddings)
    lengths = random.integers(1, length + 1, (batch, 1))

    def ids(high: int, *shape: int) -> np.ndarray:
        return random.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(rows or config.vocab_size, batch, length),
        "input_mask": (np.arange(length) < lengths).astype(np.int32),
        "segment_ids": ids(config.type_vocab_size, batch, length),
        "masked_lm_positions": ids(length, batch, 2),
    }
