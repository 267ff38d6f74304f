"""An export or a checkpoint -> functions of arrays, the same for both.

EXPORT_DIR/1, /2, ...    the greatest version, or the one asked for
EXPORT_DIR/2             this version
a folder with weights    the functions that an export of it would have, without writing one
"""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.checkpoints.loading import config_of, open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, damage_errors
from bert_tf.config import BertConfig, typed
from bert_tf.errors import InputError
from bert_tf.serving import export, model_card
from bert_tf.serving.checksums import check_files
from bert_tf.serving.export import METADATA_FILE, MODEL_FILES
from bert_tf.serving.options import DEFAULT, SAVED_MODEL, ServingOptions
from bert_tf.serving.registry import check_options, make_task
from bert_tf.serving.signatures import refuse_not_finite
from bert_tf.tokenization.wordpiece import (  # also registers operations of exports
    FullTokenizer,
    read_vocabulary,
)

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(eq=False)
class ServedModel:
    """A model that answers texts. It may be used by several threads.

    Attributes:
      path: the folder it was loaded from.
      metadata: as in export.json.
      model: holds the weights under the names of `inference.InferenceModel`.
      function: returns the function of a signature.
      make_tokenizer: returns the model's tokenizer.
      keep: an object that must live as long as this one.
    """

    path: str
    metadata: Mapping[str, Any]
    model: Any
    function: Callable[[str], Callable[..., dict[str, tf.Tensor]]]
    make_tokenizer: Callable[[], FullTokenizer]
    keep: Any = None
    # One thread traces a function or reads a vocabulary.
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

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
            function = self.function(signature)
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
            return self.make_tokenizer()


def open_model(
    path: str | os.PathLike, *, version: int | None = None, **options: Any
) -> ServedModel:
    """Loads an export or a checkpoint.

    Args:
      path: of an export, of the folder of its versions, or of weights; local or remote.
      version: of the export; None: the greatest.
      **options: what the files of a checkpoint do not say: bert_config_file, vocab_file,
        do_lower_case, and fields of `ServingOptions`. None counts as not given.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    path = os.fspath(path).rstrip("/")
    given = {name: value for name, value in options.items() if value is not None}
    with files.path_errors(path):
        versions = _versions(path)
    if version is not None and version not in versions:
        numbers = ", ".join(str(number) for number in sorted(filter(None, versions)))
        raise InputError(
            f"version {version} of {path}",
            f"one of its versions: {numbers}" if numbers else "a folder with versions",
            "name an existing version, or none for the greatest",
        )
    if versions:
        if given:
            raise InputError(
                f"{', '.join(given)} for the export {path}",
                "no such options: they were chosen when it was made",
                "leave them out, or give the folder of the checkpoint in place of the export",
            )
        return open_export(versions[max(versions) if version is None else version])
    source = open_weights(path)
    config_file, vocab_file, lower = (
        given.pop(name, None) for name in ("bert_config_file", "vocab_file", "do_lower_case")
    )
    chosen = ServingOptions(**given)
    check_options(source, chosen)
    config = config_of(source, config_file)
    return of_weights(source, config, tokenizer_of(source, config, vocab_file, lower), chosen)


def _versions(path: str) -> dict[int, str]:
    """The folders of SavedModels by version; an export itself is version 0 of its folder.

    Raises:
      InputError: there are only files of another format.
    """
    if not tf.io.gfile.isdir(path):
        return {}
    folders = {0: path} | export.versions(path)
    found: dict[str, dict[int, str]] = {
        file: {n: f for n, f in folders.items() if tf.io.gfile.exists(tf.io.gfile.join(f, file))}
        for file in MODEL_FILES.values()
    }
    saved_models = found.pop(MODEL_FILES[SAVED_MODEL])
    others = [tf.io.gfile.join(f, file) for file, one in found.items() for f in one.values()]
    if others and not saved_models:
        raise InputError(
            others[0],
            "a SavedModel or a checkpoint; this file needs its own runtime, and takes ids",
            "export the model with --format=saved_model",
        )
    return saved_models


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
        signatures = loaded.signatures
        inputs = {name: one.structured_input_signature[1] for name, one in signatures.items()}
        answers = {name: {*one.structured_outputs} for name, one in signatures.items()}
    for key, said, there in (
        ("signatures", metadata.get("signatures"), model_card.specs_of(inputs)),
        ("texts", described.texts.keys(), inputs.get(DEFAULT, {}).keys()),
        ("outputs", described.outputs.keys(), answers.get(DEFAULT)),
    ):
        if said != there:
            raise InputError(
                f"{path}, whose {key} do not fit the model beside it",
                "the file that was written with the model",
                "copy the folder again, or export the model again",
            )
    vocab_file = tf.io.gfile.join(folder, "assets", VOCAB_FILE)
    num_pieces = len(read_vocabulary(vocab_file))
    described.config.check_vocabulary_size(num_pieces, vocab_file=vocab_file)

    @functools.cache
    def tokenizer() -> FullTokenizer:
        lower, kept = described.do_lower_case, described.never_split
        return FullTokenizer(vocab_file, lower, never_split=kept)

    function = signatures.__getitem__
    return ServedModel(folder, metadata, loaded.model, function, tokenizer, keep=loaded)


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

    metadata = model_card.metadata_of(task, source.path, signatures)
    return ServedModel(source.path, metadata, task.model, function, lambda: tokenizer, keep=task)
