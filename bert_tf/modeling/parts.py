"""The layers inside of a layer or model, by what its attributes hold."""

from collections.abc import Mapping
from typing import Any, TypeVar

import keras

Kind = TypeVar("Kind", bound=keras.layers.Layer)


def parts_of(layer: keras.layers.Layer, kind: type[Kind]) -> list[Kind]:
    """The layer itself and all layers inside of it that are of a kind, each once.

    In the order in which they were made parts, the outer ones before the inner ones.
    """
    found: dict[int, Any] = {}

    def visit(part: keras.layers.Layer) -> None:
        if id(part) not in found:
            found[id(part)] = part
            inside = part.layers if isinstance(part, keras.Model) else _held(part)
            for inner in (*inside, *_held(part)):
                visit(inner)

    visit(layer)
    return [part for part in found.values() if isinstance(part, kind)]


def _held(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers in the attributes of a layer, also in lists and dicts.

    Not by `keras.tree`, which sorts keys: a compiled model has a dict whose keys are layers.
    """
    found: list[keras.layers.Layer] = []

    def visit(value: Any) -> None:
        if isinstance(value, keras.layers.Layer):
            found.append(value)
        elif isinstance(value, list | tuple | Mapping):
            for item in value.values() if isinstance(value, Mapping) else value:
                visit(item)

    visit(vars(layer))
    return found
