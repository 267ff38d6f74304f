"""Tables of texts -> batches for `fit`, from whatever gives its columns by name.

frame = pandas.read_csv("train.csv")            datasets.load_dataset("csv", ...)["train"]
{"text": [...], "label": [...]}                 [{"text": "...", "label": "..."}, ...]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.data.grouping import padded_length
from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer, pack_texts, padded


class Columns(Protocol):
    """A pandas DataFrame, a Dataset of the package datasets, or a dict."""

    def __getitem__(self, name: str, /) -> Any:
        """A column."""


Table = Columns | Sequence[Mapping[str, Any]]
WIDTHS = [32 << n for n in range(26)]  # of a batch in ids: few, as XLA compiles each anew


def make_dataset(
    data: Table,
    tokenizer: FullTokenizer,
    *,
    text: str = "text",
    text_pair: str | None = None,
    label: str | None = "label",
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Batches of a table, for `fit`, `evaluate` and `predict`.

    Args:
      data: a pandas DataFrame, a Dataset of the package datasets, a dict of columns, or a list of
        dicts, the rows.
      tokenizer: the model's.
      text: the column of the texts.
      text_pair: the column of the second texts; None: there are none.
      label: the column of the labels; None: batches have no labels, as for `predict`.
      labels: the names of the classes, in their order (`model.labels`). The column then has names,
        or numbers of classes from 0. None: it has numbers, and they are taken as they are.
      max_length: the ids of a row at most; None: the tokenizer's own.
      batch_size: B, rows of a batch; the last one may have fewer.
      seed: shuffles the rows, in each epoch otherwise; None: they stay in order.

    Returns:
      A dataset of (inputs, labels): input_ids, input_mask and segment_ids, int32 [B, S] each, and
      labels int32 [B], or float32 for numbers with a fraction. S is the least of 32, 64, 128, ...
      and the greatest length that holds the longest row of the batch.

    Raises:
      InputError: a column is missing, a text is none, a label is none of `labels`, the
        tokenizer is another object, or the batch size is no whole number from 1.
    """
    check("batch_size", np.asarray(batch_size).tolist(), int, low=1)  # NumPy's integers as well
    if not isinstance(tokenizer, FullTokenizer):
        received = f"a {type(tokenizer).__name__} as tokenizer, the second argument"
        raise InputError(received, "a FullTokenizer", "give model.tokenizer")
    most = tokenizer.max_length if max_length is None else max_length
    pairs = None if text_pair is None else _column(data, text_pair)
    rows = pack_texts(tokenizer, _column(data, text), pairs, most)
    if not rows:
        raise InputError("data without rows", "one row or more", "check the data")
    y = None if label is None else _label_values(_column(data, label), labels, label)
    if y is not None and len(y) != len(rows):
        received = f"{len(rows)} texts and {len(y)} labels"
        raise InputError(received, "a label for each text", "correct the columns")
    numbers = tf.data.Dataset.range(len(rows))
    if seed is not None:
        numbers = numbers.shuffle(len(rows), seed=seed)
    return numbers.batch(batch_size).map(_gathering(rows, y, most)).prefetch(2)


def _gathering(rows: list, y: tf.Tensor | None, most: int | None) -> Callable[[tf.Tensor], Any]:
    """From the numbers of a batch's rows, [B], to the batch."""

    def padded_rows(numbers: np.ndarray) -> list[np.ndarray]:
        of_batch = [rows[number] for number in numbers]
        width = padded_length(max(len(ids) for ids, _ in of_batch), WIDTHS)
        return list(padded(of_batch, min(width, most or width)).values())

    def gather(numbers: tf.Tensor) -> Any:
        values = tf.numpy_function(padded_rows, [numbers], [tf.int32] * 3)
        values = [tf.ensure_shape(value, [None, None]) for value in values]
        inputs = dict(zip(("input_ids", "input_mask", "segment_ids"), values, strict=True))
        return inputs if y is None else (inputs, tf.gather(y, numbers))

    return gather


def _column(data: Any, name: str) -> list:
    """The values of a column."""
    try:
        if isinstance(data, list | tuple):
            return [row[name] for row in data]
        return list(data[name])
    except (KeyError, TypeError, IndexError, ValueError):  # datasets has its own choice of them
        names = getattr(data, "column_names", None) or (data if isinstance(data, Mapping) else ())
        names = getattr(data, "columns", names)
        found = ", ".join(map(str, names)) or type(data).__name__
        wanted = "a DataFrame, a Dataset, a dict of columns or a list of dicts, with that column"
        remedy = "name it with text=, text_pair= or label=; of several splits give one"
        raise InputError(f"data without a column {name!r}: {found}", wanted, remedy) from None


def _label_values(values: list, labels: Sequence[str] | None, name: str) -> tf.Tensor:
    """Numbers of classes int32 [N], or numbers as they are."""
    try:
        found = np.asarray(values)
    except ValueError:  # lists of several lengths
        found = np.asarray(values, object)
    kind = found.dtype.kind
    if labels is None:
        if kind == "f" and np.isfinite(found).all():
            return tf.constant(found, tf.float32)
        if kind in "biu" and (found == found.astype(np.int32)).all():
            return tf.constant(found, tf.int32)
        expected = "finite numbers, or whole numbers of 32 bits"
        raise _wrong(name, values, expected, "name the classes with labels=, or make them floats")
    if found.ndim != 1 or kind not in "Ubiu":
        raise _wrong(name, values, "names of classes or their numbers", "correct the column")
    ids, names = [], {label: number for number, label in enumerate(labels)}
    for row, value in enumerate(found.tolist()):
        number = names.get(value) if kind == "U" else int(value)
        # A number may be a name too, of another class.
        if number not in range(len(labels)) or names.get(str(value), number) != number:
            received = f"{value!r:.80} in row {row} of the column {name!r}, counted from 0"
            wanted = f"one of the labels {', '.join(labels)}; whole numbers are classes from 0"
            remedy = (
                "correct the label or labels=; if the column's numbers are names, make them text"
            )
            raise InputError(received, wanted, remedy)
        ids.append(number)
    return tf.constant(ids, tf.int32)


def _wrong(name: str, values: list, expected: str, remedy: str) -> InputError:
    return InputError(f"the column {name!r} with {values[:3]!r:.200}", expected, remedy)
