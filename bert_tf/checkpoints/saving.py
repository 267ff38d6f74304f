"""Weights out: as an original checkpoint, ours, or a folder of Hugging Face.

A run in training saves by `tf1.CheckpointFolder`.
"""

import importlib
import os

import keras
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.companions import config_of
from bert_tf.checkpoints.loading import weights_of
from bert_tf.checkpoints.metadata import ORIGINAL_EPS, SAFETENSORS, Weights, model_texts
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import is_remote, locked, path_errors, synced, temporary

CHECKPOINT_NAME = "bert_model.ckpt"
# The formats: the module whose `texts_of` and `write_tensors` write one, imported only then, and
# the file without which a folder is no model.
WRITERS = {
    "tf1": (__name__, f"{CHECKPOINT_NAME}{tf1.INDEX}"),
    "bert_tf": (__name__, f"{CHECKPOINT_NAME}{tf1.INDEX}"),
    "hugging_face": ("bert_tf.checkpoints.hugging_face", SAFETENSORS),
}


def save_weights(path: str | os.PathLike, weights: Weights | keras.Model, *, to_format: str) -> str:
    """Writes weights and all that belongs to them; nothing appears before it is whole.

    Args:
      path: a folder that is not there yet.
      weights: what `open_weights` gave, or a model, whose LoRA is merged; what its attributes
        `tokenizer`, `labels` and `metadata` say is written too.
      to_format: tf1, which the original reads; bert_tf, the same with configurations that it does
        not know; or hugging_face.

    Returns:
      The path to give to `open_weights`.

    Raises:
      InputError: the folder is there, cannot be written, or the format cannot hold the model; or
        the model is quantized.
    """
    if isinstance(weights, keras.Model):
        weights = weights_of(weights)
    path = str(path).rstrip("/")
    with path_errors(path):
        if tf.io.gfile.exists(path):
            remedy = "choose another path, or remove it"
            raise InputError(f"{path}, which already exists", "a new folder", remedy)
    config = config_of(weights)
    if weights.pieces is not None:
        config.check_vocabulary_size(len(weights.pieces), vocab_file=str(weights.vocab_file))
    if to_format == "tf1":
        _check_original_can_compute(config, weights.path)
    module, last_file = WRITERS[to_format]
    writer = importlib.import_module(module)
    texts = writer.texts_of(weights)  # raises InputError if the format cannot hold them
    with (
        locked(path, parents=True),
        path_errors(path, "written"),
        temporary(path, folder=True) as folder,
    ):
        for name, text in texts.items():
            with tf.io.gfile.GFile(os.path.join(folder, name), "w") as file:
                file.write(text)
        writer.write_tensors(folder, weights)
        publish_folder(folder, path, last=last_file)
    return path if to_format == "hugging_face" else os.path.join(path, CHECKPOINT_NAME)


def publish_folder(temporary: str, path: str, *, last: str) -> None:
    """Gives a complete folder its name, once it is on the disk.

    Remote file systems rename a folder file by file: there it is copied, and the file `last`, which
    makes it a model, after all others.
    """
    if is_remote(path):
        _copy_folder(temporary, path, last=last)
        return
    for folder, _, names in os.walk(temporary):
        for name in (*names, ""):
            synced(os.path.join(folder, name))
    tf.io.gfile.rename(temporary, path)
    synced(os.path.dirname(path) or ".")


def _copy_folder(source: str, target: str, *, last: str) -> None:
    """Copies all files or none."""
    names = [
        tf.io.gfile.join(folder, name).removeprefix(source).lstrip("/")
        for folder, _, found in tf.io.gfile.walk(source)
        for name in found
    ]
    try:
        for name in sorted(names, key=lambda name: (name == last, name)):
            path = tf.io.gfile.join(target, name)
            tf.io.gfile.makedirs(path.rpartition("/")[0])
            tf.io.gfile.copy(tf.io.gfile.join(source, name), path)
    except BaseException:
        if tf.io.gfile.exists(target):
            tf.io.gfile.rmtree(target)
        raise


def texts_of(weights: Weights) -> dict[str, str]:
    """The files beside a TF1 checkpoint, text by name; raises as `model_texts`."""
    return model_texts(weights.config, weights.pieces, weights.metadata)


def _check_original_can_compute(config: BertConfig, path: str) -> None:
    lacks = []
    if config.hidden_act == "gelu_erf":
        lacks.append("the exact gelu; its own is the tanh form")
    if config.layer_norm_eps != ORIGINAL_EPS:
        lacks.append(f"layer_norm_eps {config.layer_norm_eps}; its own is {ORIGINAL_EPS}")
    if lacks:
        raise InputError(
            f"{path} to be written as tf1",
            f"a model that the original can compute; it lacks {' and '.join(lacks)}",
            "use --to_format=bert_tf, the same file format for this package alone",
        )


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes all tensors, an optimizer's too, as a TF1 checkpoint."""
    tf1.write_checkpoint(
        os.path.join(folder, CHECKPOINT_NAME),
        {name: weights.read(name) for name in weights.shapes},
        temporary=os.path.join(folder, "incomplete"),
    )
