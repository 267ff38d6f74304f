"""The kinds of arguments that `fit`, `evaluate` and `predict` of a `TextModel` take."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import keras

FitArrays = tuple[Any, Any, Any]  # x, y, sample_weight


def is_of_numbers(x: Any) -> bool:
    """Whether x is an array, a tensor or a column of numbers."""
    kind = str(getattr(x, "dtype", ""))
    return hasattr(x, "shape") and re.search("int|float|bool", kind, re.IGNORECASE) is not None


def is_of_ids(x: Any) -> bool:
    """Whether x is the inputs of a model: ids, or inputs by name or in a list."""
    if isinstance(x, Mapping):
        return "input_ids" in x
    parts = keras.tree.flatten(x)
    return bool(parts) and all(map(is_of_numbers, parts))


def is_stream(x: Any) -> bool:
    """Whether x yields batches: a generator, a PyDataset, a loader of PyTorch."""
    is_iterable = isinstance(x, Iterable) and not hasattr(x, "__getitem__")
    return isinstance(x, keras.utils.PyDataset) or (is_iterable and not isinstance(x, Collection))


def items_of(x: Any) -> list[Any] | None:
    """The items of a list, an array or a column; [x] of a single text; None of anything else."""
    if isinstance(x, str | bytes):
        return [x]
    if isinstance(x, Mapping) or not (hasattr(x, "__len__") and hasattr(x, "__getitem__")):
        return None
    return list(x.numpy()) if hasattr(x, "numpy") else list(x)
