"""Weights out: as an original checkpoint, ours, or a folder of Hugging Face."""

import json
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.checkpoints import hugging_face, hugging_face_tokenizer, tf1
from bert_tf.checkpoints.loading import config_of, tokenizer_of
from bert_tf.checkpoints.metadata import (
    CONFIG_FILE,
    METADATA_FILE,
    VOCAB_FILE,
    ModelMetadata,
    Weights,
    join,
    vocabulary_text,
)
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import copy_folder, is_remote, path_errors, write_text
from bert_tf.tokenization.wordpiece import FullTokenizer

FORMATS = ("tf1", "bert_tf", "hugging_face")  # that are written


CHECKPOINT_NAME = "bert_model.ckpt"


_LAST_FILES = {  # without which a folder is no model
    "tf1": f"{CHECKPOINT_NAME}.index",
    "bert_tf": f"{CHECKPOINT_NAME}.index",
    "hugging_face": hugging_face.SAFETENSORS,
}


def save_weights(path: str, weights: Weights, *, to_format: str) -> str:
    """Writes weights and all that belongs to them; nothing appears before it is whole.

    Args:
      path: a folder that is not there yet.
      weights: what to write.
      to_format: tf1, which the original reads; bert_tf, the same with configurations that it does
        not know; or hugging_face.

    Returns:
      The path to give to `open_weights`.

    Raises:
      InputError: the folder is there, cannot be written, or the format cannot hold the model.
    """
    path = path.rstrip("/")
    with path_errors(path):
        taken = tf.io.gfile.exists(path)
    if taken:
        raise InputError(
            received=f"{path}, which is there already",
            expected="a folder that is still to be made",
            remedy="choose another path, or remove the folder",
        )
    if weights.config is None:
        config_of(weights)  # says what is missing
    if to_format == "hugging_face":
        files = _hugging_face_files(weights)
    else:
        files = _our_files(weights, to_format)
    temporary = f"{path}.incomplete"
    try:
        _write_folder(temporary, files, weights, to_format)
        if is_remote(path):  # where a folder is renamed file by file
            copy_folder(temporary, path, last=_LAST_FILES[to_format])
        else:
            tf.io.gfile.rename(temporary, path)
    except (tf.errors.OpError, OSError) as error:
        raise InputError(
            received=f"{path}, which cannot be written ({str(error).splitlines()[0]})",
            expected="a path where a folder can be made, with space for the weights",
            remedy="choose another path, or change its permissions",
        ) from None
    finally:
        with path_errors(path):
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.rmtree(temporary)
    return path if to_format == "hugging_face" else join(path, CHECKPOINT_NAME)


def _write_folder(folder: str, files: Mapping[str, str], weights: Weights, to_format: str) -> None:
    if tf.io.gfile.exists(folder):  # of a process that was killed
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.makedirs(folder)
    for name, text in files.items():
        with tf.io.gfile.GFile(join(folder, name), "w") as file:
            file.write(text)
    if to_format == "hugging_face":
        names = [n for n in weights.names if hugging_face.hugging_face_name(n)]
        with tf.io.gfile.GFile(join(folder, hugging_face.SAFETENSORS), "wb") as file:
            file.write(hugging_face.write_tensors(weights, names))
    else:
        tf1.write_checkpoint(
            join(folder, CHECKPOINT_NAME),
            {name: weights.read(name) for name in weights.shapes},
            temporary=join(folder, "incomplete"),
        )


def _our_files(weights: Weights, to_format: str) -> dict[str, str]:
    config = weights.config
    if to_format == "tf1":
        _check_original_can(config, weights.path)
    values = config.to_dict()
    if to_format == "tf1":  # the original takes any key, but has this number in its code
        del values["layer_norm_eps"]
    files = {CONFIG_FILE: json.dumps(values, indent=2, sort_keys=True) + "\n"}
    if weights.pieces is not None:
        files[VOCAB_FILE] = vocabulary_text(weights.pieces)
    if weights.metadata != ModelMetadata():
        files[METADATA_FILE] = weights.metadata.to_json_string()
    return files


def _check_original_can(config: BertConfig, path: str) -> None:
    lacks = []
    if config.hidden_act == "gelu_erf":
        lacks.append("the exact gelu; its own is the tanh form")
    if config.layer_norm_eps != 1e-12:
        lacks.append(f"layer_norm_eps {config.layer_norm_eps}; its own is 1e-12")
    if lacks:
        raise InputError(
            received=f"{path} to be written as tf1",
            expected=f"a model that the original can compute; it lacks {' and '.join(lacks)}",
            remedy="use --to_format=bert_tf, the same file format for this package alone",
        )


def _hugging_face_files(weights: Weights) -> dict[str, str]:
    values = hugging_face.write_config(weights.config, weights.metadata, weights.shapes)
    files = {hugging_face.CONFIG: json.dumps(values, indent=2, sort_keys=True) + "\n"}
    if weights.pieces is not None:
        tokenizer = tokenizer_of(weights, weights.config)
        files |= hugging_face_tokenizer.write_tokenizer(
            weights.pieces, tokenizer.do_lower_case, weights.config.max_position_embeddings
        )
    return files


def write_model_files(
    folder: str, config: BertConfig, tokenizer: FullTokenizer, metadata: ModelMetadata
) -> None:
    """What makes a run's folder a whole model, beside its checkpoints."""
    pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
    texts = {
        CONFIG_FILE: config.to_json_string(),
        VOCAB_FILE: vocabulary_text(pieces),
        METADATA_FILE: metadata.to_json_string(),
    }
    for name, text in texts.items():
        write_text(join(folder, name), text)
