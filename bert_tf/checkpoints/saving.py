"""Edits weights, and writes them as a TF1 checkpoint or a folder of Hugging Face.

    without_slots                        drops what an optimizer and a run keep
    add_pieces, extend_positions         make tables longer
    save_weights                         writes every format
    outputs_of, difference_of_outputs    compare models after a conversion

A run in training saves with `tf1.CheckpointFolder`.
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
COMPARED_LENGTH = 19  # of the longest sequence in a comparison of two models
NEVER = -10000.0  # the output bias of a row without a word piece: its probability is 0


# ---------------------------------------------------------------------------- writing


def save_weights(
    model: keras.Model | Weights,
    path: str | os.PathLike,
    *,
    format: str = DEFAULT_FORMAT,  # noqa: A002
) -> str:
    """Writes weights with configuration, vocabulary and metadata into a new folder.

    The folder appears when it is complete.

    Args:
      model: a model, or what `open_weights` returned. Of a model, the factors of LoRA are merged
        into its kernels, and its attributes `tokenizer`, `labels` and `metadata` are written too.
      path: the path of the folder, which must not exist.
      format: hugging_face; tf1, which the original reads; or bert_tf, the same file format with
        configurations that the original does not know.

    Returns:
      The path for `open_weights`.

    Raises:
      InputError: the folder exists or cannot be written, TensorFlow takes its path for a pattern,
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
      weights: with their configuration, vocabulary and metadata.
      path: the path of the folder, which must not exist.
      file_format: one of `WRITTEN`.
      prove: is called with the complete folder under a temporary name. If it raises an error, the
        folder is removed.

    Returns:
      The path for `open_weights`.

    Raises:
      InputError: as `save_weights`.
    """
    path = new_path(path)
    format_of_files = FORMATS[file_format]
    is_tf1 = format_of_files.file == TF1_INDEX
    if is_tf1:
        refuse_pattern(path)
    config = config_of(weights, required=None)
    if weights.pieces is not None:
        config.check_vocabulary_size(len(weights.pieces), vocab_file=str(weights.vocab_file))
    if file_format == "tf1":
        _check_original_can_compute(config, weights.path)
    writer = importlib.import_module(format_of_files.writer)
    texts = writer.texts_of(weights)  # raises InputError if the format cannot hold them
    with (
        path_errors(path, "written"),
        published(path, prove, folder=True, last=format_of_files.file) as folder,
    ):
        for name, text in texts.items():
            with tf.io.gfile.GFile(os.path.join(folder, name), "w") as file:
                file.write(text)
        writer.write_tensors(folder, _finite(weights))
    return os.path.join(path, _PREFIX) if is_tf1 else path


def texts_of(weights: Weights) -> dict[str, str]:
    """The texts of the files beside a TF1 checkpoint, as from `model_texts`."""
    return model_texts(config_of(weights, required=None), weights.pieces, weights.metadata)


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes all tensors, with those of an optimizer, as a TF1 checkpoint."""
    tf1.write_checkpoint(
        os.path.join(folder, _PREFIX),
        {name: weights.read(name) for name in weights.shapes},
        temporary=os.path.join(folder, "incomplete"),
    )


def _finite(weights: Weights) -> Weights:
    """The weights; reading NaN or infinity raises `InputError` with the name in the file."""

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        if tf.as_dtype(value.dtype).is_floating and not np.isfinite(value).all():
            received = f"{weights.path}, whose {weights.name_in_file(name)} has NaN or infinity"
            remedy = "nothing was written; give weights from before they were damaged"
            raise InputError(received, "finite numbers in every weight", remedy)
        return value

    return dataclasses.replace(weights, read=read)


def _check_original_can_compute(config: BertConfig, path: str) -> None:
    """Raises `InputError` if the original does not have what a configuration asks for."""
    unknown = []
    if config.hidden_act == "gelu_erf":
        unknown.append("the exact gelu")
    if config.layer_norm_eps != ORIGINAL_EPS:
        unknown.append(f"layer_norm_eps {config.layer_norm_eps}")
    if unknown:
        received = f"{path} with {' and '.join(unknown)}, for tf1"
        remedy = "use bert_tf (--format=bert_tf), the same file format for this package alone"
        raise InputError(received, "a model that the original can compute", remedy)


# ---------------------------------------------------------------------------- strip


def without_slots(weights: Weights) -> Weights:
    """The weights without an optimizer's moments, counters and the settings of a run."""
    shapes = {name: weights.shapes[name] for name in weights.names}
    return dataclasses.replace(weights, shapes=shapes)


# ---------------------------------------------------------------------------- longer tables


def add_pieces(weights: Weights, pieces: Sequence[str], *, seed: int = 12345) -> Weights:
    """The weights with further word pieces at the end of the vocabulary.

    Rows that the table has beyond its vocabulary are used first. The vector of a new piece is drawn
    as in a fresh model; its output bias is 0.

    Raises:
      InputError: there is no vocabulary, it already has a piece, or a piece is given twice.
    """
    old_pieces = weights.pieces or ()
    if not old_pieces:
        received = f"--extra_tokens for {weights.path} without a vocabulary"
        raise InputError(received, "the vocabulary to add to", "name it with --vocab_file")
    not_new = [piece for piece in pieces if piece in old_pieces or pieces.count(piece) > 1]
    if not_new:
        received = f"--extra_tokens with {', '.join(map(repr, not_new))}"
        raise InputError(received, "tokens that are new, each once", "leave them out")
    old_rows, width = weights.shapes[WORD_TABLE]
    stddev = weights.config.initializer_range if weights.config else 0.02
    # The seed depends on the pieces, so that a second call does not draw the same vectors.
    seed_of_pieces = zlib.crc32("\n".join(pieces).encode(), seed % 2**32)
    draw = keras.initializers.TruncatedNormal(stddev=stddev, seed=seed_of_pieces)
    vectors = np.asarray(draw((len(pieces), width)))
    num_rows = max(old_rows, len(old_pieces) + len(pieces))
    extended = _with_rows(weights, num_rows, dict(enumerate(vectors, len(old_pieces))))
    return dataclasses.replace(extended, pieces=(*old_pieces, *pieces))


def extend_positions(weights: Weights, positions: int) -> Weights:
    """The weights with a longer table of positions, for longer sequences.

        rows before    p0 p1 p2
        for 8          p0 p1 p2 p0 p1 p2 p0 p1

    New rows are copies of the old ones in their order, as in Longformer (Beltagy et al., 2020), and
    must be trained further. Adam's moments of the new rows are 0.

    Raises:
      InputError: the table already has more positions.
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
    """The weights with `rows` rows in the word table.

    Args:
      weights: with fewer rows, or as many.
      rows: the rows of the new table.
      vectors: rows of new word pieces. Other new rows are 0, and the head never predicts them.
    """

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
    """The weights with longer tables.

    Args:
      weights: with shorter ones.
      tables: names of the tables; names of their moments begin with them.
      grow: returns the longer table, from its name and the shorter one.
      **size: the field of the configuration that is the number of rows, and its new value.
    """
    (rows,) = size.values()

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        return grow(name, value) if name.startswith(tables) else value

    shapes = {}
    for name, shape in weights.shapes.items():
        shapes[name] = (rows, *shape[1:]) if name.startswith(tables) else shape
    config = weights.config and dataclasses.replace(weights.config, **size)
    return dataclasses.replace(weights, shapes=shapes, read=read, config=config)


# ---------------------------------------------------------------------------- the proof


def difference_of_outputs(
    outputs: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    *,
    rows: int | None = None,
) -> dict[str, float]:
    """The greatest absolute difference of each output.

    Args:
      outputs: the outputs of a model, by name.
      others: the same of another model.
      rows: the number of compared word pieces; None for those that both models have.
    """
    differences = {}
    for name in sorted(outputs):
        output = outputs[name]
        other = others[name]
        if name == "masked_lm_logits":
            shared = rows or min(output.shape[-1], other.shape[-1])
            output = output[..., :shared]
            other = other[..., :shared]
        differences[name] = float(np.max(np.abs(output.astype(np.float64) - other)))
    return differences


def outputs_of(weights: Weights, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs, by name, of models with all heads of these weights.

    Raises:
      InputError: the weights do not fit their configuration.
    """
    outputs: dict[str, np.ndarray] = {}
    # Without metadata a head is accepted whatever task it was trained for.
    without_task = dataclasses.replace(weights, metadata=ModelMetadata())
    for head in heads_of(weights.shapes):
        model = head_named(head).model(config_of(weights), num_classes=weights.num_classes)
        load_weights(model, without_task)
        model_inputs = {name: inputs[name] for name in model.input}
        for name, value in model(model_inputs, training=False).items():
            outputs[name] = np.asarray(value)
    # Without these weights an output is computed by fresh ones.
    needed = {
        "pooled_output": POOLER,
        "next_sentence_logits": POOLER,
        "masked_lm_logits": OUTPUT_BIAS,
    }
    for name, weight in needed.items():
        if weight not in weights.shapes:
            outputs.pop(name, None)
    return outputs


def random_inputs(
    config: BertConfig, *, rows: int | None = None, length: int = COMPARED_LENGTH
) -> dict[str, np.ndarray]:
    """Random inputs of a model, of several lengths; the same at every call.

    Args:
      config: the configuration of the model.
      rows: token ids are below this; None: below the vocabulary size.
      length: the length of the longest example; at most the model's positions.
    """
    random = np.random.default_rng(1)
    batch = 3
    length = min(length, config.max_position_embeddings)
    lengths = random.integers(1, length + 1, (batch, 1))

    def ids(high: int, *shape: int) -> np.ndarray:
        return random.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(rows or config.vocab_size, batch, length),
        "input_mask": (np.arange(length) < lengths).astype(np.int32),
        "segment_ids": ids(config.type_vocab_size, batch, length),
        "masked_lm_positions": ids(length, batch, 2),
    }
