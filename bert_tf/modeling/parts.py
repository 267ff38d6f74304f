"""The layers inside of a layer or model, by what its attributes hold."""

from collections.abc import Iterator
from types import UnionType
from typing import Any

import keras


def parts_of(layer: keras.layers.Layer, kind: type | UnionType) -> list[Any]:
    """The layer itself and all layers inside of it that are of a kind, each once.

    In the order in which they were made parts, the outer ones before the inner ones.
    """
    found: dict[int, Any] = {}

    def visit(part: keras.layers.Layer) -> None:
        if id(part) in found:
            return
        found[id(part)] = part
        if isinstance(part, keras.Model):
            for inner in part.layers:
                visit(inner)
        for value in vars(part).values():
            for inner in _layers_in(value):
                visit(inner)

    visit(layer)
    return [part for part in found.values() if isinstance(part, kind)]


def _layers_in(value: Any) -> Iterator[keras.layers.Layer]:
    """The layers in an attribute: one, or those of lists and dicts."""
    if isinstance(value, keras.layers.Layer):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _layers_in(item)
