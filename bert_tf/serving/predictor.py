"""Answers to texts, in Python: a model is loaded once, then asked as often as one likes.

predictor = bert_tf.Predictor("/serving/mrpc")
predictor.predict([("He left.", "He went away."), ("It rains.", "I am hungry.")])

items     in the order of the caller; a window of them is held, not all
batches   of rows that are alike long, since a batch is as wide as its longest row
answers   in the order of the caller again, each as soon as its window is done
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.errors import InputError
from bert_tf.serving import rows as rows_module
from bert_tf.serving.loading import ServedModel, open_model
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.rows import Row, RowReader

BATCHES_OF_A_WINDOW = 16  # at most, that are sorted by length at once
BYTES_OF_A_WINDOW = 16 << 20  # of their texts, if no single one has more
BYTES_OF_A_BATCH = 1 << 20  # likewise: what the tokenizer makes of a text is many times as large


class Predictor:
    """A model, ready to answer. It may be used by several threads.

    Attributes:
      model: what is asked.
      batch_size: rows of a batch.
    """

    def __init__(
        self,
        path: str | os.PathLike | ServedModel,
        *,
        version: int | None = None,
        batch_size: int = 32,
        bert_config_file: str | None = None,
        vocab_file: str | None = None,
        do_lower_case: bool | None = None,
        **options: Any,
    ):
        """Loads a model.

        Args:
          path: of an export (of one version, or of the folder of all), of a folder with weights
            and all that belongs to them, or a model that is loaded.
          version: of the export; None: the greatest.
          batch_size: rows of a batch at most.
          bert_config_file, vocab_file, do_lower_case: of weights, where their files do not say
            them; None: what these say.
          **options: fields of `bert_tf.serving.kinds.ServingOptions`, for weights whose files do
            not say them: task, labels, pairs, max_seq_length and so on.

        Raises:
          InputError: there is no such model, or something does not fit.
        """
        if batch_size < 1:
            raise InputError(
                received=f"a batch_size of {batch_size}",
                expected="1 or more",
                remedy="correct it; 32 suits most models",
            )
        if isinstance(path, ServedModel):
            given = (version, bert_config_file, vocab_file, do_lower_case)
            if options or any(one is not None for one in given):
                raise InputError(
                    received=f"options for the model {path.path}, which is loaded",
                    expected="none: they were chosen when it was loaded",
                    remedy="leave them out, or give the path",
                )
            self.model = path
        else:
            chosen = ServingOptions(**options) if options else None
            self.model = open_model(
                path,
                version=version,
                options=chosen,
                bert_config_file=bert_config_file,
                vocab_file=vocab_file,
                do_lower_case=do_lower_case,
            )
        self.batch_size = batch_size
        self._reader = RowReader(self.model.facts)

    @property
    def task(self) -> str:
        """The kind of task, as in --task of export_model.py."""
        return self.model.facts["task"]

    @property
    def texts(self) -> Mapping[str, str]:
        """The names of the texts that it takes, in order, and what each is."""
        return self.model.facts["texts"]

    @property
    def outputs(self) -> Mapping[str, str]:
        """The names of the answers, and what each is."""
        return self.model.facts["outputs"]

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """The answers to items, in their order.

        Args:
          items: for a model of single texts each a string; else a tuple of texts in the order of
            `texts`, or a dict by their names. Several endings are a list of strings.

        Returns:
          A dict by the names of `outputs` for each item: strings, numbers, and lists of them,
          without padding.

        Raises:
          InputError: an item is something else; it is named by its number, from 1.
        """
        return list(self.stream(items))

    def stream(
        self,
        items: Iterable[Any],
        *,
        window: int | None = None,
        place: Callable[[int], str] = "item {}".format,
    ) -> Iterator[dict[str, Any]]:
        """The answers to any number of items, in their order, in memory that does not grow.

        Args:
          items: as for `predict`; read as they are needed.
          window: items that are read before the first of them is answered; None: many batches of
            them, so that each batch can be of items alike long. 1: each at once.
          place: what the item of a number, from 1, is called in messages.

        Yields:
          As `predict` returns.

        Raises:
          InputError: an item cannot be used; those of the windows before are answered.
        """
        if isinstance(items, str | bytes | Mapping):
            raise InputError(
                received=f"a single item ({type(items).__name__})",
                expected="a list, or another iterable, of items",
                remedy="put brackets around it",
            )
        most = self.batch_size * BATCHES_OF_A_WINDOW if window is None else window
        rows = (self._reader.read(item, place(number)) for number, item in enumerate(items, 1))
        for held in _windows(rows, most):
            yield from self._answers(held)

    def _answers(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """To the rows of a window."""
        found: dict[int, dict[str, Any]] = {}
        for batch in batches(rows, batch_size=self.batch_size):
            outputs = self.model.run(rows_module.arrays_of([rows[i] for i in batch]))
            found.update(zip(batch, rows_module.answers_of(outputs, self.task), strict=True))
        return [found[i] for i in range(len(rows))]


def _windows(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Parts of rows, bounded in number and bytes."""
    held, size = [], 0
    for row in rows:
        held.append(row)
        size += rows_module.size_of(row)
        if len(held) >= most or size >= BYTES_OF_A_WINDOW:
            yield held
            held, size = [], 0
    if held:
        yield held


def batches(rows: Sequence[Row], *, batch_size: int) -> Iterator[list[int]]:
    """The numbers of rows in batches: of one shape, alike long, bounded in number and bytes.

    Args:
      rows: to be parted.
      batch_size: of a batch at most.
    """
    keys = [(rows_module.shape_of(row), rows_module.size_of(row)) for row in rows]
    batch: list[int] = []
    for i in sorted(range(len(rows)), key=keys.__getitem__):
        shape, size = keys[i]
        # Sorted, so that `size` is the largest of the batch.
        full = len(batch) == batch_size or (len(batch) + 1) * size > BYTES_OF_A_BATCH
        if batch and (full or shape != keys[batch[0]][0]):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
