"""Answers to texts, in Python: a model is loaded once, then asked any number of times.

predictor = bert_tf.Predictor("/serving/mrpc")
predictor.predict([("He left.", "He went away."), ("It rains.", "I am hungry.")])

items     in the order of the caller; a window of them is in memory, not all
batches   rows of similar length, as a batch is as wide as its longest row
answers   in the order of the caller again, each as soon as its window is done
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.data.by_length import batches_by_length
from bert_tf.errors import InputError
from bert_tf.serving.loading import ServedModel, open_model
from bert_tf.serving.rows import Row, RowReader, answers_of, arrays_of, shape_of, size_of

BATCHES_OF_A_WINDOW = 16  # at most; a window is sorted by length
BYTES_OF_A_WINDOW = 16 << 20  # of text, unless a single text has more
BYTES_OF_A_BATCH = 1 << 20  # likewise; tokenization takes many times the memory of the text


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
        batch_size: int = 32,
        **options: Any,
    ):
        """Loads a model.

        Args:
          path: of an export (one version, or the folder of all), of a checkpoint's folder, or a
            loaded model.
          version: of the export; None: the greatest.
          batch_size: maximum number of rows in a batch.
          **options: for a checkpoint, what its files do not say: bert_config_file, vocab_file,
            do_lower_case, and fields of `bert_tf.serving.options.ServingOptions`: task, labels,
            pairs, max_seq_length and so on.

        Raises:
          InputError: there is no such model, or something does not fit.
        """
        if batch_size < 1:
            raise InputError(f"a batch_size of {batch_size}", "1 or more", "correct it")
        if not isinstance(path, ServedModel):
            path = open_model(path, version=version, **options)
        elif options or version is not None:
            raise InputError(
                f"options for the model {path.path}, which is loaded",
                "none: they were chosen when it was loaded",
                "leave them out, or give the path",
            )
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
            `texts`, or dicts by their names. Several endings are a list of strings.

        Returns:
          A dict by the names of `outputs` for each item: strings, numbers, and lists of them,
          without padding.

        Raises:
          InputError: an item is something else; the message has its number, from 1.
        """
        return list(self.stream(items))

    def stream(
        self,
        items: Iterable[Any],
        *,
        window: int | None = None,
        place: Callable[[int], str] = "item {}".format,
    ) -> Iterator[dict[str, Any]]:
        """The answers to any number of items, in their order, in constant memory.

        Args:
          items: as for `predict`; read as they are needed.
          window: items to read before the first is answered; None: many batches of them, so that
            each batch has items of similar length. 1: answer each at once.
          place: names the item of a number, from 1, in messages.

        Yields:
          As `predict` returns.

        Raises:
          InputError: an item cannot be used; earlier windows are answered.
        """
        if isinstance(items, str | bytes | Mapping):
            raise InputError(
                f"a single item ({type(items).__name__})",
                "a list, or another iterable, of items",
                "put brackets around it",
            )
        most = self.batch_size * BATCHES_OF_A_WINDOW if window is None else window
        rows = (self._reader.read(item, place(number)) for number, item in enumerate(items, 1))
        for held in _windows(rows, most):
            yield from self._answers(held)

    def _answers(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The answers to the rows of a window."""
        found: dict[int, dict[str, Any]] = {}
        for batch in batches(rows, batch_size=self.batch_size):
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


def batches(rows: Sequence[Row], *, batch_size: int) -> Iterator[list[int]]:
    """Batches of row numbers: of one shape, similar length, and bounded number and bytes."""
    shapes = [shape_of(row) for row in rows]
    numbers = {shape: number for number, shape in enumerate(sorted(set(shapes)))}
    return batches_by_length(
        [size_of(row) for row in rows],
        batch_size=batch_size,
        groups=[numbers[shape] for shape in shapes],
        most=BYTES_OF_A_BATCH,
    )
