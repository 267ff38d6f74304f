"""Predictions in Python: loads an export or a checkpoint, and answers any number of items.

    predictor = bert_tf.Predictor("/serving/mrpc")
    predictor.predict([("He left.", "He went away."), ("It rains.", "I am hungry.")])

What can be loaded:

    EXPORT_DIR               the greatest version in it, or the one asked for
    EXPORT_DIR/2             this version
    a folder with weights    the functions that an export of it would have, without writing one

How items are answered:

    items     come in the caller's order; a window of them is in memory, not all
    batches   have rows of similar length, as a batch is as wide as its longest row
    answers   are in the caller's order again, each as soon as its window is done
"""

import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.checkpoints.loading import config_of, open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, damage_errors
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.runtime import refuse_forked
from bert_tf.serving import export
from bert_tf.serving.batching import BATCH_SIZE, batches
from bert_tf.serving.export import METADATA_FILE, MODEL_FILES, arrays_of
from bert_tf.serving.options import DEFAULT, SAVED_MODEL, ServingOptions
from bert_tf.serving.rows import Row, RowReader, answers_of, shape_of, size_of, text_inputs
from bert_tf.serving.signatures import make_task, refuse_not_finite, warn_of_precision
from bert_tf.tokenization.whole_pieces import KEPT_WHOLE
from bert_tf.tokenization.wordpiece import (  # also registers operations of exports
    FullTokenizer,
    room_for,
    told_cut,
)

if TYPE_CHECKING:
    from bert_tf.keywords import PredictorOptions

IN_WINDOWS = ("question_answering", "token_labels")  # tasks that read long texts whole
BATCHES_OF_A_WINDOW = 16  # at most; the rows of a window are sorted by length
BYTES_OF_A_WINDOW = 16 << 20  # of text, unless a single text has more

# ---------------------------------------------------------------------------- loaded models


@dataclasses.dataclass(eq=False)
class ServedModel:
    """A model that answers texts. It may be used by several threads.

    Attributes:
      path: the folder it was loaded from.
      metadata: as in export.json.
      model: holds the weights under the names of `inference.InferenceModel`.
      function: returns the concrete function of a signature: arrays by name -> answers by name.
      make_tokenizer: returns the model's tokenizer.
      keep: an object that must live as long as this one; TensorFlow holds its variables weakly.
    """

    path: str
    metadata: Mapping[str, Any]
    model: Any
    function: Callable[[str], Any]
    make_tokenizer: Callable[[], FullTokenizer]
    keep: Any = None
    # Only one thread at a time traces a function or reads the vocabulary.
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def run(
        self, arrays: Mapping[str, np.ndarray], signature: str = DEFAULT
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
          arrays: its inputs by name, [B, ...]; texts as objects, which are bytes.
          signature: its name.

        Returns:
          The answers, [B, ...], sorted by name.

        Raises:
          KeyError: there is no such signature.
          InputError: answers are NaN or infinite, or the process was forked after TensorFlow had
            run.
          tf.errors.InvalidArgumentError: the signature refuses the arrays.
        """
        refuse_forked("a model")
        with self._lock:
            function = self.function(signature)
        tensors = {name: tf.constant(value) for name, value in arrays.items()}
        answers = {name: value.numpy() for name, value in sorted(function(**tensors).items())}
        refuse_not_finite(answers)
        return answers

    def outputs_of(self, signature: str) -> Mapping[str, tf.TensorSpec]:
        """Types and shapes of a signature's answers."""
        with self._lock:
            return self.function(signature).structured_outputs

    @property
    def config(self) -> BertConfig:
        """The model's configuration."""
        return BertConfig.from_dict(self.metadata["config"], source=f"{self.path}, its config")

    @property
    def tokenizer(self) -> FullTokenizer:
        """The tokenizer that the model was trained with."""
        with self._lock:
            return self.make_tokenizer()


def open_model(
    path: str | os.PathLike, *, version: int | None = None, **options: "Unpack[PredictorOptions]"
) -> ServedModel:
    """Loads an export or a checkpoint.

    Args:
      path: the path of an export, of the folder of its versions, or of weights; local or remote.
      version: the version of the export; None: the greatest.
      **options: what the files of a checkpoint do not say: bert_config_file, vocab_file,
        do_lower_case, and fields of `ServingOptions`. None means not given.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    path = files.own_path(path)
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with files.path_errors(path):
        versions = _versions(path)
    if version is not None and version not in versions:
        expected = f"one of the versions {', '.join(map(str, sorted(versions))) or 'of an export'}"
        remedy = "name an existing version, or none for the greatest"
        raise InputError(f"version {version} of {path}", expected, remedy)
    if versions:
        if chosen:
            received = f"{', '.join(chosen)} for the export {path}"
            expected = "no such options: they were chosen when it was made"
            raise InputError(received, expected, "leave them out, or give the checkpoint's folder")
        return open_export(versions[max(versions) if version is None else version])
    return _open_checkpoint(path, **chosen)


def _open_checkpoint(
    path: str,
    *,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    **options: Any,
) -> ServedModel:
    """Loads a checkpoint; `options` are fields of `ServingOptions`."""
    source = open_weights(path)
    serving_options = ServingOptions(**options)
    config = config_of(source, bert_config_file)
    tokenizer = tokenizer_of(source, config, vocab_file, do_lower_case)
    return of_weights(source, config, tokenizer, serving_options)


def _versions(path: str) -> dict[int, str]:
    """The folders of SavedModels by version; a path that is an export itself is version 0."""
    if not tf.io.gfile.isdir(path):
        return {}
    versions = {}
    for number, folder in ({0: path} | export.versions(path)).items():
        if tf.io.gfile.exists(tf.io.gfile.join(folder, MODEL_FILES[SAVED_MODEL])):
            versions[number] = folder
    return versions


def open_export(folder: str) -> ServedModel:
    """Loads one version of an export.

    Raises:
      InputError: it was not written by `bert-tf export`, is damaged, or has a path that TensorFlow
        takes for a pattern.
    """
    files.refuse_pattern(folder)
    path = tf.io.gfile.join(folder, METADATA_FILE)
    metadata = files.read_json(
        path,
        expected=f"the {METADATA_FILE} of an export of `bert-tf export`",
        remedy="export it with `bert-tf export`; SavedModels of `model.export` cannot be used",
    )
    with damage_errors(folder, "an export as `bert-tf export` wrote it"):
        # A damaged fingerprint is an error here; `load` would log a traceback.
        with contextlib.suppress(FileNotFoundError):
            tf.saved_model.experimental.read_fingerprint(folder)
        with export.without_chatter(logging.FATAL):
            loaded = tf.saved_model.load(folder)
        signatures = loaded.signatures
        inputs = {
            name: signature.structured_input_signature[1] for name, signature in signatures.items()
        }
        metadata["signatures"] = export.specs_of(inputs)
        metadata["padded"] = [*metadata["padded"]]  # an export without it is refused
        text_inputs(metadata)
        BertConfig.from_dict(metadata["config"], source=f"{path}, its config")
    warn_of_precision(metadata.get("options", {}).get("precision", ""))
    vocab_file = tf.io.gfile.join(folder, "assets", VOCAB_FILE)
    names = ("do_lower_case", "strip_accents", *KEPT_WHOLE)
    case = {name: metadata[name] for name in names if name in metadata}
    make_tokenizer = functools.cache(lambda: FullTokenizer(vocab_file, **case))
    function = signatures.__getitem__
    return ServedModel(folder, metadata, loaded.model, function, make_tokenizer, keep=loaded)


def of_weights(
    source: Weights, config: BertConfig, tokenizer: FullTokenizer, options: ServingOptions
) -> ServedModel:
    """Loads a checkpoint with the functions that an export of it would have.

    Args:
      source: the checkpoint.
      config: the configuration of its model.
      tokenizer: with its vocabulary.
      options: what is not in the checkpoint.

    Raises:
      InputError: the checkpoint was trained for another task, or something does not fit.
    """
    task = make_task(source, config, tokenizer, options)
    signatures = task.signatures()
    metadata = export.metadata_of(task, source, signatures)
    # A function takes seconds to trace, so it is traced when it is first used.
    function = functools.cache(lambda name: signatures[name].traced())
    return ServedModel(source.path, metadata, task.model, function, lambda: tokenizer, keep=task)


def warm_up(model: ServedModel) -> None:
    """Runs a model and its tokenizer once, so that the first request is as fast as later ones."""
    list(model.tokenizer.iter_ids(["a"]))
    reader = RowReader(model.metadata)
    texts = {}
    for name, is_list in reader.is_list_by_name.items():
        texts[name] = ["a", "b"] if is_list else "a"
    model.run(arrays_of([reader.read(texts, "a text")]))


# ---------------------------------------------------------------------------- predictions


class Predictor:
    """A loaded model. Several threads may use it.

    Attributes:
      model: the `ServedModel`.
      batch_size: maximum number of rows in a batch.
    """

    def __init__(
        self,
        path: str | os.PathLike | ServedModel,
        *,
        version: int | None = None,
        batch_size: int = BATCH_SIZE,
        **options: "Unpack[PredictorOptions]",
    ):
        """Loads a model.

        Args:
          path: the path of an export (one version, or the folder of all), or of weights, as for
            `bert_tf.load`; or a `ServedModel`, such as another Predictor's `model`.
          version: the version of the export; None: the greatest.
          batch_size: maximum number of rows in a batch.
          **options: for a checkpoint, what its files do not say: bert_config_file, vocab_file,
            do_lower_case, and fields of `bert_tf.serving.options.ServingOptions`: task, labels,
            pairs, max_seq_length and so on.

        Raises:
          InputError: there is no such model, something does not fit, or the process was forked
            after TensorFlow had run.
        """
        if batch_size < 1:
            raise InputError(f"a batch_size of {batch_size}", "1 or more", "correct it")
        refuse_forked("a Predictor")
        if isinstance(path, ServedModel):
            model = path
            if options or version is not None:
                received = f"options for the model {model.path}, which is loaded"
                expected = "none: they were chosen when it was loaded"
                raise InputError(received, expected, "leave them out, or give the path")
        else:
            model = open_model(path, version=version, **options)
        self.model = model
        self.batch_size = batch_size
        self._reader = RowReader(self.model.metadata)

    @property
    def task(self) -> str:
        """The task: the name of a head."""
        return self.model.metadata["task"]

    @property
    def texts(self) -> Mapping[str, str]:
        """The names of the text inputs, in order, and what each is."""
        return self.model.metadata["texts"]

    @property
    def outputs(self) -> Mapping[str, str]:
        """The names of the answers, and each one's type, shape and meaning."""
        return self.model.metadata["outputs"]

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """The answers to items, in their order.

        Args:
          items: strings for a model of single texts; otherwise tuples of texts in the order of
            `texts`, a pair of two say, or dicts by their names. Several endings are a list of
            strings.

        Returns:
          A dict by the names of `outputs` for each item: strings, numbers, and lists of them,
          without padding.

        Raises:
          InputError: an item is something else (the message has its number, from 1), or the process
            was forked after TensorFlow had run.
        """
        return list(self.stream(items))

    def stream(self, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The answers to any number of items, in their order, in constant memory.

        Args:
          items: as for `predict`. Many batches of them are read before the first is answered, so
            that each batch has items of similar length.

        Yields:
          The answers as `predict` returns them. At the end the number of cut texts is logged.

        Raises:
          InputError: an item cannot be used; earlier windows are answered.
        """
        refuse_forked("a Predictor")
        if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
            received = f"a single item ({type(items).__name__})"
            raise InputError(received, "an iterable of items", "put brackets around it")
        if hasattr(items, "columns"):  # iterating over a table gives the names of its columns
            remedy = 'give a column, or the rows: table.to_dict("records")'
            raise InputError(f"a table ({type(items).__name__})", "an iterable of items", remedy)
        rows = (self._reader.read(item, f"item {number}") for number, item in enumerate(items, 1))
        number = num_cut = 0
        for window in _windows(rows, self.batch_size * BATCHES_OF_A_WINDOW):
            number += len(window)
            num_cut += self._num_cut(window)
            yield from self._answers(window)
        if num_cut:
            logging.warning("%s", told_cut(num_cut, number, self._most))

    @property
    def _most(self) -> int:
        """The maximum number of tokens of a sequence; 0 where long texts are read in windows."""
        if self.model.metadata.get("task") in IN_WINDOWS:
            return 0
        return self.model.metadata.get("options", {}).get("max_seq_length", 0)

    def _num_cut(self, rows: Sequence[Row]) -> int:
        """The number of rows that have more tokens than the model reads; the graph cuts them."""
        most = self._most
        if not most:
            return 0
        # A token has at least one byte, so only texts with more bytes are tokenized here.
        numbers = []
        pairs = []
        for number, row in enumerate(rows):
            for a, b in pairs_of(row):
                if len(a) + len(b) > room_for(most, bool(b)):
                    numbers.append(number)
                    pairs.append((a, b))
        if not pairs:
            return 0
        ids = self.model.tokenizer.iter_ids(text for pair in pairs for text in pair)
        cut = set()
        for number, of_a, of_b in zip(numbers, ids, ids, strict=True):
            if len(of_a) + len(of_b) > room_for(most, bool(of_b)):
                cut.add(number)
        return len(cut)

    def _answers(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The answers to the rows of a window."""
        answers: dict[int, dict[str, Any]] = {}
        sizes = [size_of(row) for row in rows]
        shapes = [shape_of(row) for row in rows]
        for batch in batches(sizes, shapes=shapes, batch_size=self.batch_size):
            outputs = self.model.run(arrays_of([rows[i] for i in batch]))
            answers.update(zip(batch, answers_of(outputs), strict=True))
        return [answers[i] for i in range(len(rows))]


def _windows(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Yields consecutive rows, at most `most`, and not many more bytes than BYTES_OF_A_WINDOW."""
    window: list[Row] = []
    size = 0
    for row in rows:
        window.append(row)
        size += size_of(row)
        if len(window) >= most or size >= BYTES_OF_A_WINDOW:
            yield window
            window = []
            size = 0
    if window:
        yield window


def pairs_of(row: Row) -> Iterator[tuple[bytes, bytes]]:
    """Yields the first and the second text of each sequence of a row; the second may be empty."""
    singles = [text for text in row.values() if isinstance(text, bytes)]
    lists = [texts for texts in row.values() if not isinstance(texts, bytes)]
    if lists:
        for ending in lists[0]:
            yield singles[0], ending
    else:
        yield singles[0], (singles[1] if len(singles) > 1 else b"")
