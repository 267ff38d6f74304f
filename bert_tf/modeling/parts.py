"""The layers inside of a layer or model: those in its attributes."""

from collections.abc import Iterator
from types import UnionType
from typing import Any

import keras


def parts_of(layer: keras.layers.Layer, kind: type | UnionType) -> list[Any]:
    """The layers of a class in a layer, itself included, each once.

    They are in the order in which they became parts, an outer layer before its inner ones.
    """
    parts: dict[int, Any] = {}  # by id

    def visit(part: keras.layers.Layer) -> None:
        if id(part) in parts:
            return
        parts[id(part)] = part
        if isinstance(part, keras.Model):
            for inner in part.layers:
                visit(inner)
        for value in vars(part).values():
            for inner in _layers_in(value):
                visit(inner)

    visit(layer)
    return [part for part in parts.values() if isinstance(part, kind)]


def _layers_in(value: Any) -> Iterator[keras.layers.Layer]:
    """The layers in an attribute: a layer, or those in lists and dicts."""
    if isinstance(value, keras.layers.Layer):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _layers_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _layers_in(item)
