"""Checks the content of JSON files, and values of fields, against dataclasses."""

import dataclasses
import functools
import math
import operator
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from bert_tf.decoding import LONE_SURROGATE
from bert_tf.errors import InputError, quoted, shortened

Declared = TypeVar("Declared")
# For each annotation: the types of its values, their name in messages, and a condition.
_KINDS = {
    bool: (bool, "true or false", lambda _: True),
    int: (int, "a whole number", lambda _: True),
    float: (int | float, "a finite number", lambda value: abs(value) <= sys.float_info.max),
    str: (str, "a text", lambda value: not LONE_SURROGATE.search(value)),  # UTF-8 can hold it
    str | int: (str | int, "a text or number", lambda value: not LONE_SURROGATE.search(str(value))),
}
_hints = functools.cache(typing.get_type_hints)
_BOUNDS = {
    "above": (operator.gt, "above {}"),
    "low": (operator.ge, "at least {}"),
    "high": (operator.le, "at most {}"),
    "below": (operator.lt, "below {}"),
    "filled": (lambda value, _: value != "", "not empty"),
}


class OtherKeys:
    """A base of dataclasses for objects of other programs, which may have further keys."""


def typed(kind: type[Declared], values: Any, *, source: str) -> Declared:
    """The content of a JSON file as a dataclass or another kind, checked against its declaration.

    A kind is int, float, bool, str, Any, a dataclass, `tuple[KIND, ...]` (a list in JSON) or
    `dict[str, KIND]`, each also `| None`. The metadata of a dataclass's field may hold

        above, low, high, below    bounds of every number in it
        choices                    the only values
        filled                     whether no text and no list in it may be empty
        distinct                   whether the items of a list must differ
        infinite                   whether a float may be infinite
        any other name             a role that other code gives the field: see `names_with`

    A whole number is accepted as a float; 12.0 is not a whole number, true is not a number. NaN is
    refused, and so is infinity unless the metadata allow it. A subclass of `OtherKeys` ignores
    unknown keys.

    Args:
      kind: the dataclass, or for instance dict[str, float].
      values: the content of the file.
      source: the name of the file, for messages.

    Raises:
      InputError: it is of another kind, a key is unknown or missing, or a value is not as declared.
    """
    try:
        return _taken(kind, values, "", {})
    except InputError as error:
        received = f"{source} with {error.received}"
        raise InputError(received, error.expected, f"{error.remedy}, in {source}") from None


def declared(default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """A field of a dataclass with metadata for `typed`."""
    return dataclasses.field(default=default, metadata=metadata)


def names_with(cls: type, role: str) -> list[str]:
    """The names of the fields of a dataclass whose metadata have a role, such as `of_sequences`."""
    return [field.name for field in dataclasses.fields(cls) if field.metadata.get(role)]


def size(default: Any = dataclasses.MISSING, *, most: int = 2**31 - 1, **metadata: Any) -> Any:
    """A field for a number of rows, layers, word pieces or the like: from 1 to what fits int32."""
    return declared(default, low=1, high=most, **metadata)


def check_fields(instance: Any) -> None:
    """Raises `InputError` unless the fields of a dataclass have values that `typed` takes."""
    kinds = _hints(type(instance))
    for field in dataclasses.fields(instance):
        _taken(kinds[field.name], getattr(instance, field.name), field.name, field.metadata)


def check(name: str, value: Any, kind: Any, **bounds: Any) -> None:
    """Raises `InputError` unless `typed` accepts the value; `bounds`: as in a field's metadata."""
    _taken(kind, value, name, bounds)


def check_field(cls: type, key: str, value: Any, *, name: str, remedy: str) -> None:
    """As `check`, by the declaration of a field; any other key is a property, of type bool."""
    declarations = {field.name: field.metadata for field in dataclasses.fields(cls)}
    kind = _hints(cls).get(key, bool)
    _taken(kind, value, name, {**declarations.get(key, {}), "remedy": remedy})


def _taken(kind: Any, value: Any, name: str, bounds: Mapping[str, Any]) -> Any:
    """A JSON value as the type `kind`, checked: lists as tuples, objects as dataclasses."""
    inner = typing.get_args(kind)
    if types.NoneType in inner:
        if value is None:
            return None
        (kind,) = set(inner) - {types.NoneType}
        inner = typing.get_args(kind)
    prefix = f"{name}." if name else ""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return value if isinstance(value, kind) else _built(kind, value, prefix)
    if origin is tuple:
        return _taken_list(inner[0], value, name, bounds)
    if origin is dict:
        _check_object(value, name)
        items = {}
        for key, item in value.items():
            items[key] = _taken(inner[1], item, f"{prefix}{shortened(str(key), 80)}", bounds)
        return items
    if kind is not Any:
        _check_value(kind, value, name, bounds)
    return value


def _built(cls: type[Declared], values: Any, prefix: str) -> Declared:
    """An instance from an object; `prefix` stands before its keys in messages."""
    _check_object(values, prefix.rstrip("."))
    kinds = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if issubclass(cls, OtherKeys):
        values = {key: value for key, value in values.items() if key in fields}
    if unknown := sorted(values.keys() - fields.keys(), key=str):
        listed = ", ".join(f"{prefix}{shortened(str(key), 80)}" for key in unknown[:9])
        expected = f"only {', '.join(fields)}"
        raise InputError(f"the unknown keys {listed}", expected, "correct or remove them")
    missing = []
    for name, field in fields.items():
        has_default = field.default is not field.default_factory  # otherwise both are MISSING
        if not has_default and name not in values:
            missing.append(prefix + name)
    if missing:
        raise InputError(f"no {', '.join(missing)}", "a value for each", "add what is missing")
    arguments = {}
    for name, value in values.items():
        arguments[name] = _taken(kinds[name], value, prefix + name, fields[name].metadata)
    return cls(**arguments)


def _taken_list(kind: Any, value: Any, name: str, bounds: Mapping[str, Any]) -> tuple:
    """A list as a tuple, its items checked."""
    if not isinstance(value, list | tuple):
        raise _refused(name, value, "a list, not empty" if bounds.get("filled") else "a list")
    if bounds.get("filled") and not value:
        raise _refused(name, value, "a list, not empty")
    items = list(value)
    places: Sequence[int] = range(len(items))
    if kind is int and {*map(type, items)} == {int}:  # maybe millions: check the extremes
        places = [items.index(min(items)), items.index(max(items))]
    for place in places:
        items[place] = _taken(kind, items[place], f"{name}[{place}]", bounds)
    if bounds.get("distinct") and len(set(items)) < len(items):
        raise _refused(name, value, f"{quoted(max(items, key=items.count))} only once")
    return tuple(items)


def _check_object(value: Any, name: str) -> None:
    if not isinstance(value, Mapping):
        raise _refused(name, value, "a JSON object")


def _check_value(kind: type, value: Any, name: str, bounds: Mapping[str, Any]) -> None:
    """Raises `InputError` unless a value is of type `kind` and within bounds.

    Args:
      kind: a key of `_KINDS`.
      value: the value.
      name: its name, for messages.
      bounds: metadata, as for `typed`.
    """
    kinds, expected, holds = _KINDS[kind]
    fits = isinstance(value, kinds) and isinstance(value, bool) is (kind is bool)
    if bounds.get("infinite"):
        expected = "a number"
        fits = fits and not math.isnan(value)
    else:
        fits = fits and holds(value)
    for bound, (holds, text) in _BOUNDS.items():
        if bound in bounds:
            expected += ", " + text.format(bounds[bound])
            fits = fits and holds(value, bounds[bound])
    if choices := bounds.get("choices"):
        expected = f"one of {', '.join(map(str, choices))}"
        fits = fits and value in choices
    if not fits:
        raise _refused(name, value, expected, bounds.get("remedy"))


def _refused(name: str, value: Any, expected: str, remedy: str | None = None) -> InputError:
    """The error of a value; by default the remedy is to correct it."""
    name = name or "the outermost value"
    return InputError(f"{name} {quoted(value)}", expected, remedy or f"correct {name}")
