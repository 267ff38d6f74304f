"""An export, or a checkpoint -> functions of arrays, the same for both.

EXPORT_DIR/1, /2, ...    the greatest version, or the one that is asked for
EXPORT_DIR/2             this one
a folder with weights    the functions that an export of it would have, without writing one
"""

import functools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints.loading import config_of, open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.serving import export, model_card
from bert_tf.serving.export import FACTS, MODEL_FILES
from bert_tf.serving.options import SAVED_MODEL, ServingOptions
from bert_tf.serving.registry import check_options, make_task
from bert_tf.serving.signatures import DEFAULT, refuse_no_numbers
from bert_tf.tokenization.wordpiece import (
    FullTokenizer,  # it also registers the operations of exports
)

Arrays = Mapping[str, np.ndarray]


class ServedModel:
    """A model that answers texts. It may be used by several threads.

    Attributes:
      path: the folder that it is from.
      facts: as in export.json.
      model: holds the weights under the names of `inference.InferenceModel`.
    """

    def __init__(
        self,
        path: str,
        facts: Mapping[str, Any],
        model: Any,
        *,
        function: Callable[[str], Callable[..., dict[str, tf.Tensor]]],
        tokenizer: Callable[[], FullTokenizer],
        keep: Any = None,
    ):
        """Takes in what belongs together.

        Args:
          path, facts, model: the attributes.
          function: gives that of a signature.
          tokenizer: gives that of the model.
          keep: what must live as long as this.
        """
        self.path, self.facts, self.model = path, facts, model
        self._function, self._tokenizer, self._keep = function, tokenizer, keep
        self._lock = threading.Lock()  # tracing a function, reading a vocabulary: by one thread

    def run(self, arrays: Arrays, signature: str = DEFAULT) -> dict[str, np.ndarray]:
        """What a signature answers; arrays of objects are of bytes.

        Raises:
          ValueError: there is no such signature.
          InputError: the answers are infinite or no numbers.
          tf.errors.InvalidArgumentError: it refuses the arrays.
        """
        if signature not in self.facts["signatures"]:
            known = ", ".join(self.facts["signatures"])
            raise ValueError(f"received the signature {signature!r}, expected one of {known}")
        with self._lock:
            function = self._function(signature)
        tensors = {name: tf.constant(value) for name, value in arrays.items()}
        answers = {name: value.numpy() for name, value in function(**tensors).items()}
        refuse_no_numbers(answers)
        return answers

    @property
    def config(self) -> BertConfig:
        """The model's configuration."""
        return BertConfig.from_dict(self.facts["config"])

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
      bert_config_file, vocab_file, do_lower_case: likewise; None: what is beside it, or they say.

    Raises:
      InputError: there is none, or something does not fit.
    """
    path = os.fspath(path).rstrip("/")
    with files.path_errors(path):
        versions = _versions(path, MODEL_FILES[SAVED_MODEL])
        if not versions:
            _refuse_other_formats(path)
    if versions:
        if not all(one is None for one in (options, bert_config_file, vocab_file, do_lower_case)):
            raise InputError(
                received=f"options for the export {path}",
                expected="none: they were chosen when it was made",
                remedy="leave them out, or give the folder of the checkpoint",
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
    """Folders with a file by version; None is the version of a folder that has it itself."""
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
                received=tf.io.gfile.join(folder, file),
                expected="a SavedModel or a checkpoint; this file is for its own runtime, and ids",
                remedy="export the model with --format=saved_model",
            )


def _chosen(path: str, versions: Mapping[int | None, str], version: int | None) -> int | None:
    """The key of a version among those that there are."""
    if version is None:
        return max(versions, key=lambda one: one or 0)
    if version not in versions:
        numbers = ", ".join(str(one) for one in sorted(versions, key=lambda one: one or 0) if one)
        raise InputError(
            received=f"version {version} of {path}",
            expected=f"one of its versions: {numbers}" if numbers else "a folder with versions",
            remedy="name one that is there, or none for the greatest",
        )
    return version


def open_export(folder: str) -> ServedModel:
    """Loads one version of an export.

    Raises:
      InputError: it is not one of export_model.py, or cannot be read.
    """
    facts = files.read_json(
        tf.io.gfile.join(folder, FACTS),
        expected=f"the {FACTS} of an export of export_model.py",
        remedy="export the model again; SavedModels of other programs cannot be used here",
    )
    with files.path_errors(folder):
        loaded = tf.saved_model.load(folder)

    @functools.cache
    def tokenizer() -> FullTokenizer:
        vocab_file = tf.io.gfile.join(folder, "assets", VOCAB_FILE)
        return FullTokenizer(vocab_file, facts["do_lower_case"])

    return ServedModel(
        folder,
        facts,
        loaded.model,
        function=loaded.signatures.__getitem__,
        tokenizer=tokenizer,
        keep=loaded,
    )


def of_weights(
    source: Weights, config: BertConfig, tokenizer: FullTokenizer, options: ServingOptions
) -> ServedModel:
    """Makes of a checkpoint what its export would be.

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

    @functools.cache  # each takes seconds to trace: when it is first asked for
    def function(name: str) -> Callable[..., dict[str, tf.Tensor]]:
        return signatures[name].traced()

    return ServedModel(
        source.path,
        model_card.facts_of(task, model_card.Origin(source.path)),
        task.model,
        function=function,
        tokenizer=lambda: tokenizer,
        keep=task,
    )
