"""JSON and fields are checked against their declarations: what is taken, what is refused."""

import dataclasses
import math
import typing

import pytest

from bert_tf.declarations import declared, typed
from bert_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Tensor:
    shape: tuple[int | None, ...]
    dtype: str = declared("int32", choices=("int32", "string"))


@dataclasses.dataclass(frozen=True)
class Declared:
    """A field of each kind that a file may have."""

    count: int = declared(low=1, high=13)
    share: float | None = declared(None, low=-1, below=2.5)
    cased: bool = False
    labels: tuple[str, ...] | None = declared(None, distinct=True, filled=True)
    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    first: Tensor | None = None
    numbers: tuple[int, ...] = declared((), low=-3, high=9)
    other: typing.Any = None


def test_typed_values():
    assert typed(Declared, {"count": 13}, source="f") == Declared(13)
    values = {
        "count": 1, "share": -1, "cased": True, "labels": ["b", "a"], "other": [1.5, {}],
        "tensors": {"x": {"shape": [None, 7], "dtype": "string"}}, "first": {"shape": []},
        "numbers": [5, -3, 9],
    }  # fmt: skip
    tensors = {"x": Tensor((None, 7), "string")}
    assert typed(Declared, values, source="f") == Declared(
        1, -1, True, ("b", "a"), tensors, Tensor(()), (5, -3, 9), [1.5, {}]
    )
    optional = ("share", "labels", "first")
    assert typed(Declared, {"count": 2} | dict.fromkeys(optional), source="f") == Declared(2)


@pytest.mark.parametrize(
    ("changes", "received", "expected"),
    [
        ({"count": 0}, "count 0", "a whole number, at least 1, at most 13"),
        ({"count": 14}, "count 14", "at most 13"),
        ({"share": 2.5}, "share 2.5", "a finite number, at least -1, below 2.5"),
        ({"share": -math.inf}, "share -inf", "a finite number"),
        ({"cased": "false"}, "cased 'false'", "true or false"),
        ({"cased": 0}, "cased 0", "true or false"),
        ({"labels": "ab"}, "labels 'ab'", "a list"),
        ({"labels": []}, "labels []", "a list, not empty"),
        ({"labels": ["a", ""]}, "labels[1] ''", "a text, not empty"),
        ({"labels": ["a", "\ud800"]}, "labels[1] '\\ud800'", "a text"),
        ({"labels": ["b", "a", "b"]}, "labels ['b', 'a', 'b']", "'b' only once"),
        ({"numbers": [5, 10, 3]}, "numbers[1] 10", "at most 9"),
        ({"numbers": [5, 3, -4]}, "numbers[2] -4", "at least -3"),
        ({"numbers": [5, True]}, "numbers[1] True", "a whole number"),
        ({"tensors": []}, "tensors []", "a JSON object"),
        ({"tensors": {"x": 3}}, "tensors.x 3", "a JSON object"),
        ({"tensors": {"x": {}}}, "no tensors.x.shape", "a value for each"),
        ({"tensors": {"x": {"shape": [1, "2"]}}}, "tensors.x.shape[1] '2'", "a whole number"),
        ({"first": {"shape": [], "dtype": "int8"}}, "first.dtype 'int8'", "one of int32, string"),
        ({"first": {"shape": [], "name": 1}}, "the unknown keys first.name", "only shape, dtype"),
        ({"cout": 1, "\x1b": 2}, r"the unknown keys \x1b, cout", "only count, share"),
    ],
)
def test_values_that_are_not_as_declared(changes, received, expected):
    with pytest.raises(InputError) as caught:
        typed(Declared, {"count": 3} | changes, source="a.json")
    assert caught.value.received == f"a.json with {received}"
    assert expected in caught.value.expected
    assert caught.value.remedy.endswith(", in a.json")


@pytest.mark.parametrize("values", [None, 3, [{"count": 3}]])
def test_what_is_no_object(values):
    with pytest.raises(InputError, match=r"a\.json with the outermost value .*\n.*a JSON object"):
        typed(Declared, values, source="a.json")
