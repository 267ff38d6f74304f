"""Keras's own files, .keras and .weights.h5, of the models of this package."""

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator

import h5py
import keras
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import CONFIG_FILE, Weights, folder_of, join, read_model_files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.files import is_remote
from bert_tf.modeling import layers, models

ENDINGS = (".keras", ".weights.h5")
_ARCHITECTURES = {  # Hugging Face's names of what no name of a weight shows
    "bert_choice": "BertForMultipleChoice",
    "bert_token_classifier": "BertForTokenClassification",
}


def open_keras_file(path: str) -> Weights:
    """Opens a model saved by `Model.save` or weights saved by `Model.save_weights`.

    A .weights.h5 holds no sizes: the bert_config.json beside it says them.

    Raises:
      InputError: the file cannot be read, or is of a model that is not of this package.
    """
    found = read_model_files(folder_of(path))
    with _local(path) as local:
        try:
            if path.endswith(".keras"):
                model = keras.models.load_model(local, compile=False)
            else:
                model = _load_weights(local, path, found["config"])
        except InputError:
            raise
        except Exception as error:  # a damaged archive can raise anything
            says = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                received=f"{path}, which cannot be read ({says})",
                expected="a model of bert_tf, saved by Keras",
                remedy="save it again with Model.save from a model of bert_tf.models",
            ) from None
    encoder = [layer for layer in model.layers if isinstance(layer, layers.Embeddings)]
    if not encoder:
        raise InputError(
            received=f"{path}, a model of the layers "
            f"{', '.join(layer.name for layer in model.layers[:5])}",
            expected="a model of bert_tf.models",
            remedy="give a checkpoint of another format; those of other Keras libraries are not "
            "read",
        )
    variables = {tf1.checkpoint_name(v): v for v in model.trainable_variables}
    if found["metadata"].architecture is None:
        metadata = dataclasses.replace(
            found["metadata"], architecture=_ARCHITECTURES.get(model.name)
        )
        found = found | {"metadata": metadata}
    return Weights(
        path=path,
        format="keras",
        shapes={name: tuple(v.shape) for name, v in variables.items()},
        read=lambda name: keras.ops.convert_to_numpy(variables[name]),
        **(found | {"config": encoder[0].config}),
    )


@contextlib.contextmanager
def _local(path: str) -> Iterator[str]:
    """The file itself, or a copy of a remote one that lasts as long as it is looked at."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = f"{folder}/{path.rpartition('/')[2]}"
        tf.io.gfile.copy(path, local)
        yield local


def _load_weights(local: str, path: str, config: BertConfig | None) -> keras.Model:
    """The model that a .weights.h5 is of: whichever of ours has its layers."""
    if config is None:
        raise InputError(
            received=f"{path} without a {CONFIG_FILE} beside it",
            expected=f"the sizes of the model in {join(folder_of(path), CONFIG_FILE)}",
            remedy="put the model's bert_config.json there",
        )
    with h5py.File(local) as file:
        groups = file["layers"]
        names = set(groups.keys())
        _check_depth(names, config, path)
        num_classes = 0
        for classifier in {"sequence_classifier", "token_classifier"} & names:
            num_classes = groups[f"{classifier}/vars/0"].shape[0]
    model = _model_with(config, names, num_classes)
    model.load_weights(local)
    return model


def _check_depth(names: set[str], config: BertConfig, path: str) -> None:
    """Keras itself says nothing of layers in the file that the model does not have."""
    depth = sum(re.fullmatch(r"encoder_block(_\d+)?", name) is not None for name in names)
    if depth != config.num_hidden_layers:
        raise InputError(
            received=f"{path} with {depth} encoder blocks",
            expected=f"{config.num_hidden_layers}, the num_hidden_layers of the {CONFIG_FILE} "
            "beside it",
            remedy=f"put the {CONFIG_FILE} of this model there",
        )


def _model_with(config: BertConfig, names: set[str], num_classes: int) -> keras.Model:
    if "masked_lm_head" in names:
        return models.pretraining_model(config, next_sentence=num_classes > 0)
    if "token_classifier" in names and "dropout" in names:
        return models.token_model(config, num_classes=num_classes)
    if "token_classifier" in names:
        return models.span_model(config)
    if "merge_choices" in names:
        return models.choice_model(config, num_choices=1)  # weights are the same for any number
    if num_classes:
        return models.classifier_model(config, num_classes=num_classes)
    return models.bert_encoder(config)
