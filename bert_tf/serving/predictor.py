"""An export or a checkpoint, loaded once and asked any number of times, in Python.

predictor = bert_tf.Predictor("/serving/mrpc")
predictor.predict([("He left.", "He went away."), ("It rains.", "I am hungry.")])

EXPORT_DIR/1, /2, ...    the greatest version, or the one asked for
EXPORT_DIR/2             this version
a folder with weights    the functions that an export of it would have, without writing one

items     in the order of the caller; a window of them is in memory, not all
batches   rows of similar length, as a batch is as wide as its longest row
answers   in the order of the caller again, each as soon as its window is done
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
BATCHES_OF_A_WINDOW = 16  # at most; a window is sorted by length
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
      keep: an object that must live as long as this one.
    """

    path: str
    metadata: Mapping[str, Any]
    model: Any
    function: Callable[[str], Any]
    make_tokenizer: Callable[[], FullTokenizer]
    keep: Any = None
    # One thread traces a function or reads a vocabulary.
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def run(
        self, arrays: Mapping[str, np.ndarray], signature: str = DEFAULT
    ) -> dict[str, np.ndarray]:
        """Runs a signature; arrays of objects hold bytes. The answers come in the order of names.

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
      path: of an export, of the folder of its versions, or of weights; local or remote.
      version: of the export; None: the greatest.
      **options: what the files of a checkpoint do not say: bert_config_file, vocab_file,
        do_lower_case, and fields of `ServingOptions`. None counts as not given.

    Raises:
      InputError: there is no model, or something does not fit.
    """
    path = files.own_path(path)
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with files.path_errors(path):
        versions = _versions(path)
    if version is not None and version not in versions:
        expected = f"one of the versions {', '.join(map(str, sorted(versions))) or 'of an export'}"
        remedy = "name an existing version, or none for the greatest"
        raise InputError(f"version {version} of {path}", expected, remedy)
    if versions:
        if given:
            received = f"{', '.join(given)} for the export {path}"
            expected = "no such options: they were chosen when it was made"
            raise InputError(received, expected, "leave them out, or give the checkpoint's folder")
        return open_export(versions[max(versions) if version is None else version])
    source = open_weights(path)
    config_file, vocab_file, lower = (
        given.pop(name, None) for name in ("bert_config_file", "vocab_file", "do_lower_case")
    )
    chosen = ServingOptions(**given)
    config = config_of(source, config_file)
    return of_weights(source, config, tokenizer_of(source, config, vocab_file, lower), chosen)


def _versions(path: str) -> dict[int, str]:
    """The folders of SavedModels by version; an export itself is version 0 of its folder."""
    folders = {0: path} | export.versions(path) if tf.io.gfile.isdir(path) else {}
    file = MODEL_FILES[SAVED_MODEL]
    return {n: f for n, f in folders.items() if tf.io.gfile.exists(tf.io.gfile.join(f, file))}


def open_export(folder: str) -> ServedModel:
    """Loads one version of an export.

    Raises:
      InputError: `bert-tf export` has not written it, it is damaged, or TensorFlow takes its path
        for a pattern.
    """
    files.refuse_pattern(folder)
    path = tf.io.gfile.join(folder, METADATA_FILE)
    metadata = files.read_json(
        path,
        expected=f"the {METADATA_FILE} of an export of `bert-tf export`",
        remedy="export it with `bert-tf export`; SavedModels of `model.export` cannot be used",
    )
    with damage_errors(folder, "an export as `bert-tf export` wrote it"):
        with contextlib.suppress(FileNotFoundError):  # else a traceback is logged
            tf.saved_model.experimental.read_fingerprint(folder)
        # Nothing is logged, not even tracebacks.
        with export.without_chatter(logging.FATAL):
            loaded = tf.saved_model.load(folder)
        signatures = loaded.signatures
        inputs = {name: one.structured_input_signature[1] for name, one in signatures.items()}
        metadata["signatures"] = export.specs_of(inputs)
        text_inputs(metadata)
        BertConfig.from_dict(metadata["config"], source=f"{path}, its config")
    warn_of_precision(metadata.get("options", {}).get("precision", ""))
    vocab_file = tf.io.gfile.join(folder, "assets", VOCAB_FILE)
    names = ("do_lower_case", "strip_accents", *KEPT_WHOLE)
    own = {name: metadata[name] for name in names if name in metadata}
    tokenizer = functools.cache(lambda: FullTokenizer(vocab_file, **own))
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
    metadata = export.metadata_of(task, source, signatures)
    # Each takes seconds to trace: only when first used.
    function = functools.cache(lambda name: signatures[name].traced())
    return ServedModel(source.path, metadata, task.model, function, lambda: tokenizer, keep=task)


def warm_up(model: ServedModel) -> None:
    """Asks a model and its tokenizer once, so that the first answer takes no longer than others."""
    list(model.tokenizer.iter_ids(["a"]))
    reader = RowReader(model.metadata)
    texts = {name: ["a", "b"] if is_list else "a" for name, is_list in reader.is_list.items()}
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
          path: of an export (one version, or the folder of all), or of weights, as for
            `bert_tf.load`; or a `ServedModel`, such as another Predictor's `model`.
          version: of the export; None: the greatest.
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
        if not isinstance(path, ServedModel):
            path = open_model(path, version=version, **options)
        elif options or version is not None:
            received = f"options for the model {path.path}, which is loaded"
            expected = "none: they were chosen when it was loaded"
            raise InputError(received, expected, "leave them out, or give the path")
        self.model = path
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
          InputError: an item is something else; the message has its number, from 1. Or the
            process was forked after TensorFlow had run.
        """
        return list(self.stream(items))

    def stream(self, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The answers to any number of items, in their order, in constant memory.

        Args:
          items: as for `predict`; many batches of them are read before the first is answered, so
            that each batch has items of similar length.

        Yields:
          As `predict` returns. At the end it is logged how many texts were cut.

        Raises:
          InputError: an item cannot be used; earlier windows are answered.
        """
        refuse_forked("a Predictor")
        if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
            received = f"a single item ({type(items).__name__})"
            raise InputError(received, "an iterable of items", "put brackets around it")
        if hasattr(items, "columns"):  # it would give their names
            remedy = 'give a column, or the rows: table.to_dict("records")'
            raise InputError(f"a table ({type(items).__name__})", "an iterable of items", remedy)
        rows = (self._reader.read(item, f"item {number}") for number, item in enumerate(items, 1))
        number = num_cut = 0
        for held in _windows(rows, self.batch_size * BATCHES_OF_A_WINDOW):
            number += len(held)
            num_cut += self._num_cut(held)
            yield from self._answers(held)
        if num_cut:
            logging.warning("%s", told_cut(num_cut, number, self._most))

    @property
    def _most(self) -> int:
        """The tokens of a sequence at most; 0 where long texts are read in windows."""
        most = self.model.metadata.get("options", {}).get("max_seq_length", 0)
        return 0 if self.model.metadata.get("task") in IN_WINDOWS else most

    def _num_cut(self, rows: Sequence[Row]) -> int:
        """How many rows have more tokens than the model reads."""
        most = self._most
        if not most:
            return 0
        # The graph cuts them. A token has a byte or more: only long texts are tokenized here, too.
        numbers, pairs = [], []
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
        found: dict[int, dict[str, Any]] = {}
        sizes = [size_of(row) for row in rows]
        shapes = [shape_of(row) for row in rows]
        for batch in batches(sizes, shapes=shapes, batch_size=self.batch_size):
            outputs = self.model.run(arrays_of([rows[i] for i in batch]))
            found.update(zip(batch, answers_of(outputs), strict=True))
        return [found[i] for i in range(len(rows))]


def _windows(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Consecutive rows, bounded in number and bytes."""
    held, size = [], 0
    for row in rows:
        held.append(row)
        size += size_of(row)
        if len(held) >= most or size >= BYTES_OF_A_WINDOW:
            yield held
            held, size = [], 0
    if held:
        yield held


def pairs_of(row: Row) -> Iterator[tuple[bytes, bytes]]:
    """The first and the second text of each sequence of a row; the second may be empty."""
    singles = [text for text in row.values() if isinstance(text, bytes)]
    lists = [texts for texts in row.values() if not isinstance(texts, bytes)]
    if lists:
        for ending in lists[0]:
            yield singles[0], ending
    else:
        first, second = [*singles, b""][:2]
        yield first, second
