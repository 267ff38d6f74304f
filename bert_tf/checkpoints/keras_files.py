"""Keras's own files, .keras and .weights.h5, of the models of this package."""

import contextlib
import os
import re
import tempfile

import h5py
import keras
import tensorflow as tf

from bert_tf.checkpoints.loading import weights_of
from bert_tf.checkpoints.metadata import CONFIG_FILE, Weights, damage_errors, read_model_files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import check_regular, is_remote
from bert_tf.heads import make_model


def open_keras(path: str) -> Weights:
    """Opens a model saved by `Model.save` or weights saved by `Model.save_weights`.

    A .weights.h5 holds no sizes: they are read from the bert_config.json beside it.

    Raises:
      InputError: the file cannot be read, or is of a model that is quantized, or not of this
        package.
    """
    check_regular(path)
    found = read_model_files(os.path.dirname(path))
    with contextlib.ExitStack() as at_end:
        local = path
        if is_remote(path):  # Keras reads local files
            folder = at_end.enter_context(tempfile.TemporaryDirectory())
            local = os.path.join(folder, os.path.basename(path))
            tf.io.gfile.copy(path, local)
        expected = "a whole file of a model of bert_tf, saved by Keras"
        at_end.enter_context(damage_errors(path, expected))
        if path.endswith(".keras"):
            model = keras.models.load_model(local, compile=False)
        else:
            model = _load_weights(local, path, found["config"])
    return weights_of(model, path=path, **found)


def _load_weights(local: str, path: str, config: BertConfig | None) -> keras.Model:
    """Builds the model that has the layers of a .weights.h5, and loads it."""
    remedy = f"put the {CONFIG_FILE} of this model there"
    if config is None:
        beside = os.path.join(os.path.dirname(path), CONFIG_FILE)
        received = f"{path} without a {CONFIG_FILE} beside it"
        raise InputError(received, f"the sizes of the model in {beside}", remedy)
    with h5py.File(local) as file:
        groups = file["layers"]
        names = set(groups.keys())
        num_classes = 0
        for classifier in {"sequence_classifier", "token_classifier", "next_sentence_head"} & names:
            num_classes = groups[f"{classifier}/vars/0"].shape[0]
    # Keras does not report layers in the file that the model does not have.
    depth = sum(re.fullmatch(r"encoder_block(_\d+)?", name) is not None for name in names)
    if depth != config.num_hidden_layers:
        expected = f"{config.num_hidden_layers}, the num_hidden_layers of the {CONFIG_FILE} there"
        raise InputError(f"{path} with {depth} encoder blocks", expected, remedy)
    if "masked_lm_head" in names:
        head = "pretraining" if num_classes else "fill_mask"
    elif "token_classifier" in names:
        head = "token_labels" if "dropout" in names else "question_answering"
    elif "merge_choices" in names:
        head = "multiple_choice"
    else:
        head = "classification" if num_classes else "embeddings"
    model = make_model(head, config, num_classes=num_classes)
    model.load_weights(local)
    return model
