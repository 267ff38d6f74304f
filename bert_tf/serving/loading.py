"""An export or a checkpoint -> functions of arrays, the same for both.

EXPORT_DIR/1, /2, ...    the greatest version, or the one asked for
EXPORT_DIR/2             this version
a folder with weights    the functions that an export of it would have, without writing one
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.checkpoints.companions import config_of, tokenizer_of
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, damage_errors
from bert_tf.config import BertConfig, typed
from bert_tf.errors import InputError
from bert_tf.serving import export, model_card
from bert_tf.serving.checksums import check_files
from bert_tf.serving.export import METADATA_FILE, MODEL_FILES
from bert_tf.serving.options import DEFAULT, SAVED_MODEL, ServingOptions
from bert_tf.serving.registry import SERVING_TASKS, check_options, make_task
from bert_tf.serving.signatures import refuse_not_finite
from bert_tf.tokenization.wordpiece import (  # also registers operations of exports
    FullTokenizer,
    read_vocabulary,
)

Arrays = Mapping[str, np.ndarray]


class ServedModel:
    """A model that answers texts. It may be used by several threads.

    Attributes:
      path: the folder it was loaded from.
      metadata: as in export.json.
      model: holds the weights under the names of `inference.InferenceModel`.
    """

    def __init__(
        self,
        path: str,
        metadata: Mapping[str, Any],
        model: Any,
        *,
        function: Callable[[str], Callable[..., dict[str, tf.Tensor]]],
        tokenizer: Callable[[], FullTokenizer],
        keep: Any = None,
    ):
        """Sets the attributes.

        Args:
          path, metadata, model: the attributes.
          function: returns the function of a signature.
          tokenizer: returns the model's tokenizer.
          keep: an object that must live as long as this one.
        """
        self.path, self.metadata, self.model = path, metadata, model
        self._function, self._tokenizer, self._keep = function, tokenizer, keep
        self._lock = threading.Lock()  # one thread traces a function or reads a vocabulary

    def run(self, arrays: Arrays, signature: str = DEFAULT) -> dict[str, np.ndarray]:
        """Runs a signature; arrays of objects hold bytes. The answers come in the order of names.

        Raises:
          ValueError: there is no such signature.
          InputError: answers are NaN or infinite.
          tf.errors.InvalidArgumentError: the signature refuses the arrays.
        """
        if signature not in self.metadata["signatures"]:
            known = ", ".join(self.metadata["signatures"])
            raise ValueError(f"received the signature {signature!r}, expected one of {known}")
        with self._lock:
            function = self._function(signature)
        tensors = {name: tf.constant(value) for name, value in arrays.items()}
        answers = {name: value.numpy() for name, value in sorted(function(**tensors).items())}
        refuse_not_finite(answers)
        return answers

    @property
    def config(self) -> BertConfig:
        """The model's configuration."""
        return BertConfig.from_dict(self.metadata["config"])

    @property
    def tokenizer(self) -> FullTokenizer:
        """The tokenizer that the model was trained with."""
        with self._lock:
            return self._tokenizer()


def open_model(
    path: str | os.PathLike,
    *,
    version: int | None = None,
    options: ServingOptions | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> ServedModel:
    """Loads an export or a checkpoint.

    Args:
      path: of an export, of the folder of its versions, or of weights; local or remote.
      version: of the export; None: the greatest.
      options: what the files of a checkpoint do not say.
      bert_config_file, vocab_file, do_lower_case: likewise; None: as its files say.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    path = os.fspath(path).rstrip("/")
    with files.path_errors(path):
        versions = _versions(path, MODEL_FILES[SAVED_MODEL])
        if not versions:
            _refuse_other_formats(path)
    if versions:
        given = {
            **vars(options or ServingOptions()),
            "bert_config_file": bert_config_file,
            "vocab_file": vocab_file,
            "do_lower_case": do_lower_case,
        }
        own = vars(ServingOptions())
        named = [name for name, value in given.items() if value != own.get(name)]
        if options is not None or named:
            raise InputError(
                f"{', '.join(named) or 'options'} for the export {path}",
                "no such options: they were chosen when it was made",
                "leave them out, or give the folder of the checkpoint in place of the export",
            )
        return open_export(versions[_chosen(path, versions, version)])
    if version is not None:
        _chosen(path, versions, version)
    source = open_weights(path)
    options = options or ServingOptions()
    check_options(source, options)
    config = config_of(source, bert_config_file)
    tokenizer = tokenizer_of(source, config, vocab_file, do_lower_case)
    return of_weights(source, config, tokenizer, options)


def _versions(path: str, file: str) -> dict[int | None, str]:
    """The folders that hold `file`, by version; None is the version of `path` itself."""
    if tf.io.gfile.exists(tf.io.gfile.join(path, file)):
        return {None: path}
    if not tf.io.gfile.isdir(path):
        return {}
    return {
        version: folder
        for version, folder in export.versions(path).items()
        if tf.io.gfile.exists(tf.io.gfile.join(folder, file))
    }


def _refuse_other_formats(path: str) -> None:
    for file in MODEL_FILES.values():
        for folder in _versions(path, file).values():
            raise InputError(
                tf.io.gfile.join(folder, file),
                "a SavedModel or a checkpoint; this file needs its own runtime, and takes ids",
                "export the model with --format=saved_model",
            )


def _chosen(path: str, versions: Mapping[int | None, str], version: int | None) -> int | None:
    """The key of the version to load, the greatest if None."""
    if version is None:
        return max(versions, key=lambda one: one or 0)
    if version not in versions:
        numbers = ", ".join(str(one) for one in sorted(versions, key=lambda one: one or 0) if one)
        raise InputError(
            f"version {version} of {path}",
            f"one of its versions: {numbers}" if numbers else "a folder with versions",
            "name an existing version, or none for the greatest",
        )
    return version


def open_export(folder: str) -> ServedModel:
    """Loads one version of an export.

    Raises:
      InputError: `bert-tf export` has not written it, or it is damaged.
    """
    check_files(folder)
    path = tf.io.gfile.join(folder, METADATA_FILE)
    metadata = files.read_json(
        path,
        expected=f"the {METADATA_FILE} of an export of `bert-tf export`",
        remedy="export the model again; SavedModels of other programs cannot be used here",
    )
    described = typed(model_card.ExportMetadata, metadata, source=path)
    with damage_errors(folder, "an export as `bert-tf export` wrote it"):
        with contextlib.suppress(FileNotFoundError):  # else a traceback is logged
            tf.saved_model.experimental.read_fingerprint(folder)
        with export.without_chatter(logging.FATAL):  # which includes tracebacks
            loaded = tf.saved_model.load(folder)
        model, signatures = loaded.model, loaded.signatures
        inputs = {name: one.structured_input_signature[1] for name, one in signatures.items()}
        answers = {name: one.structured_outputs.keys() for name, one in signatures.items()}
    _check_description(path, metadata, inputs, answers)
    vocab_file = tf.io.gfile.join(folder, "assets", VOCAB_FILE)
    num_pieces = len(read_vocabulary(vocab_file))
    described.config.check_vocabulary_size(num_pieces, vocab_file=vocab_file)

    @functools.cache
    def tokenizer() -> FullTokenizer:
        lower, kept = described.do_lower_case, described.never_split
        return FullTokenizer(vocab_file, lower, never_split=kept)

    return ServedModel(
        folder, metadata, model, function=signatures.__getitem__, tokenizer=tokenizer, keep=loaded
    )


def _check_description(
    path: str,
    metadata: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, tf.TensorSpec]],
    answers: Mapping[str, Collection[str]],
) -> None:
    """Raises `InputError` where an export.json is not that of the model beside it."""
    task, outputs = SERVING_TASKS[metadata["task"]], metadata["outputs"].keys()
    specs = {
        name: {key: model_card.spec_of(spec) for key, spec in one.items()}
        for name, one in inputs.items()
    }
    fits = {
        "signatures": metadata["signatures"] == specs,
        "answers": {name: one.keys() for name, one in metadata["answers"].items()} == answers,
        "outputs": outputs == answers.get(DEFAULT),
        "task": task.outputs.keys() <= outputs,
        "texts": metadata["texts"].keys() == inputs.get(DEFAULT, {}).keys(),
        "options": all(metadata["options"].get(name) is not None for name in task.own_options),
    }
    if wrong := [name for name, fit in fits.items() if not fit]:
        raise InputError(
            f"{path}, whose {' and '.join(wrong)} do not fit the model beside it",
            "the file that was written with the model",
            "copy the folder again, or export the model again",
        )


def of_weights(
    source: Weights, config: BertConfig, tokenizer: FullTokenizer, options: ServingOptions
) -> ServedModel:
    """Loads a checkpoint as its export would be.

    Args:
      source: the checkpoint.
      config: of its model.
      tokenizer: with its vocabulary.
      options: what is not in the checkpoint.

    Raises:
      InputError: the checkpoint is of no such task, or something does not fit.
    """
    task = make_task(source, config, tokenizer, options)
    signatures = task.signatures()

    @functools.cache  # each takes seconds to trace: only when first used
    def function(name: str) -> Callable[..., dict[str, tf.Tensor]]:
        return signatures[name].traced()

    return ServedModel(
        source.path,
        model_card.metadata_of(task, source.path),
        task.model,
        function=function,
        tokenizer=lambda: tokenizer,
        keep=task,
    )
