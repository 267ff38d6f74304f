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
      text_pair: the column of the second texts, "" for none; None: there is no such column. A
        model that is trained on pairs is read as one by `Predictor(path, pairs=True)`.
      label: the column of the labels; None: batches have no labels, as for `predict`.
      labels: the names of the classes, in their order (`model.labels`). The column then has names,
        or numbers of classes from 0; of several labels a row, lists of names. Numbers of a
        Dataset that has these names in another order are in its order. None: it has numbers, or
        lists of 0 and 1 for several labels a row, and they are taken as they are.
      max_length: the ids of a row at most; None: the tokenizer's own.
      batch_size: B, rows of a batch; the last one may have fewer.
      seed: shuffles the rows, in a new order for each epoch; None: they stay in order.

    Returns:
      A dataset of (inputs, labels): input_ids, input_mask and segment_ids, int32 [B, S] each, and
      labels int32 [B], [B, L] of lists (0 and 1 for each of L `labels`); float32 if the column has
      floats and `labels` is None. S is the least of 32, 64, 128, ... and the greatest length that
      holds the longest row of the batch.

    Raises:
      InputError: a column is missing, a text is none, a label is none of `labels`, which are no
        list of different names, max_length is below 5 or above
        the model's positions, or batch_size or seed is no whole number.
    """
    check("batch_size", np.asarray(batch_size).tolist(), int, low=1)  # NumPy's integers as well
    check("seed", np.asarray(seed).tolist(), int | None)
    most = tokenizer.max_length if max_length is None else max_length
    pairs = None if text_pair is None else _column(data, text_pair)
    rows = pack_texts(tokenizer, _column(data, text), pairs, most)
    names = None if labels is None else checked_names(labels)
    y = None if label is None else _label_values(_classes(data, label, names), names, label)
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
    values: list[Any] = []
    try:
        are_rows = isinstance(data, list | tuple)
        values.extend((row[name] for row in data) if are_rows else data[name])
        return values
    except (KeyError, TypeError, IndexError, ValueError):  # datasets has its own choice of them
        names = getattr(data, "column_names", None) or (data if isinstance(data, Mapping) else ())
        names = getattr(data, "columns", names)
        found = ", ".join(map(str, names)) or type(data).__name__
        if are_rows:
            found = f"row {len(values)}, counted from 0, is {data[len(values)]!r:.80}"
        wanted = "a DataFrame, a Dataset of Hugging Face, a dict of columns or a list of dicts"
        remedy = "name the column with text=, text_pair= or label=; of several splits give one"
        raise InputError(f"data without a column {name!r}: {found}", wanted, remedy) from None


def _classes(data: Any, label: str, names: Sequence[str] | None) -> list:
    """The values of a column; numbers for which a Dataset has just these names, as names."""
    features = getattr(data, "features", None)
    feature = features.get(label) if isinstance(features, Mapping) else None
    own: Sequence[str] = getattr(getattr(feature, "feature", feature), "names", None) or ()

    def named(value: Any) -> Any:
        if isinstance(value, list | tuple | np.ndarray):
            return [*map(named, value)]
        is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return own[value] if is_number and 0 <= value < len(own) else value

    values = _column(data, label)
    return [*map(named, values)] if own and {*own} == {*(names or ())} else values


def checked_names(labels: Any, least: int = 1) -> tuple[str, ...]:
    """The names of classes, in their order.

    Raises:
      InputError: they are no ordered collection of different texts, or fewer than `least`.
    """
    is_ordered = hasattr(labels, "__getitem__") and not isinstance(labels, str | bytes | Mapping)
    names = tuple(labels) if is_ordered else ()
    are_names = all(isinstance(name, str) and name for name in names)
    if not are_names or not least <= len(names) == len({*names}):
        wanted = f"{least} or more different names, as a list of strings"
        remedy = "correct labels; sorted(set(column)) lists the names in a column"
        raise InputError(f"labels={labels!r:.200}", wanted, remedy)
    return names


def _label_values(values: list, labels: Sequence[str] | None, column: str) -> tf.Tensor:
    """Numbers of classes int32 [N], of lists of names 0 and 1 [N, L], or numbers as they are."""
    if labels is None:
        return _numbers(values, column)
    names: dict[Any, int] = {name: number for number, name in enumerate(labels)}
    spelled = {n: (str(n), f"{n}.0", *("False", "True")[n : n + 1]) for n in names.values()}
    # Without numbers that are names too, of another class. 1.0 and True are found as 1.
    numbers = {n: n for n in spelled if all(names.get(text, n) == n for text in spelled[n])}

    def class_of(row: int, value: Any, known: Mapping[Any, int]) -> int:
        try:
            return known[value]
        except (KeyError, TypeError):  # the latter of lists and the like
            wanted = f"one of the labels {', '.join(labels)}; whole numbers are classes from 0"
            remedy = "correct it or labels=, or leave out the row; names are texts, numbers are not"
            raise _wrong(row, value, column, wanted, remedy) from None

    if not all(isinstance(value, list | tuple | np.ndarray) for value in values):
        known = names | numbers
        ids = [class_of(row, value, known) for row, value in enumerate(values)]
        return tf.constant(ids, tf.int32)
    several = np.zeros([len(values), len(labels)], np.int32)
    for row, of_row in enumerate(values):
        several[row, [class_of(row, value, names) for value in of_row]] = 1
    return tf.constant(several)


def _numbers(values: list, column: str) -> tf.Tensor:
    """Whole numbers int32, others float32; [N], of lists [N, L]."""
    rows = [np.asarray(value) for value in values]
    for row, x in enumerate(rows):
        is_whole = x.dtype.kind in "biu" and (x == x.astype(np.int32)).all()
        is_finite = x.dtype.kind == "f" and np.isfinite(x).all()
        if not (is_whole or is_finite) or x.shape != rows[0].shape:
            expected = "finite numbers, or whole numbers of 32 bits, as many in each row"
            remedy = "name the classes with labels=, correct the label, or leave out the row"
            raise _wrong(row, values[row], column, expected, remedy)
    found = np.asarray(values)
    return tf.constant(found, tf.float32 if found.dtype.kind == "f" else tf.int32)


def _wrong(row: int, value: Any, column: str, expected: str, remedy: str) -> InputError:
    received = f"{value!r:.80} in row {row} of the column {column!r}, counted from 0"
    return InputError(received, expected, remedy)
