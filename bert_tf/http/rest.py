"""TensorFlow Serving's REST interface of one model: requests in JSON -> arrays, answers -> JSON.

GET  /v1/models/NAME                         status of its version
GET  /v1/models/NAME/metadata                types and shapes of its signatures
POST /v1/models/NAME:predict                 {"instances": [...]}, or {"inputs": {...}}
     .../versions/1 behind the name          the same of a version, of which there is one
     .../labels/NAME, :classify, :regress    refused: a model has neither labels of versions nor
                                             such signatures

Paths, forms, order of checks, statuses and messages are those of TensorFlow Serving 2 ("RESTful
API"; http_rest_api_handler.cc, json_tensor.cc). What differs: the details of broken JSON, keys that
are there twice, and the messages of what TensorFlow refuses there while it runs (ranks, batch
sizes).
"""

import base64
import dataclasses
import itertools
import json
import math
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from starlette.exceptions import HTTPException
from tensorflow.core.framework import types_pb2

from bert_tf.files import each_key_once
from bert_tf.serving.batching import Arrays
from bert_tf.serving.options import DEFAULT
from bert_tf.serving.predictor import ServedModel
from bert_tf.serving.rows import plain
from bert_tf.tokenization.wordpiece import utf8

MOST_SHOWN = 200  # characters of a value in a message
_KINDS = {dict: "Object", str: "String", type(None): "Null", int: "Number", float: "Number"}
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_NAMED = f"/v1/models/(?P<name>[^/:]+){_VERSION}"
_PATHS = {
    "GET": re.compile(f"(?i)/v1/models|{_NAMED}(?P<what>/metadata)?"),
    "POST": re.compile(f"(?i){_NAMED}:(?P<what>classify|regress|predict)"),
}
_METHOD = "tensorflow/serving/predict"


@dataclasses.dataclass(frozen=True)
class Question:
    """What a request asks.

    Attributes:
      arrays: of the signature, [B, ...].
      signature: its name.
      by_rows: whether the answers are listed by rows.
    """

    arrays: Arrays
    signature: str
    by_rows: bool

    @property
    def num_rows(self) -> int:
        """B."""
        return len(next(iter(self.arrays.values())))

    def reply(self, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The answer, in the form of the request."""
        values = {name: plain(output) for name, output in outputs.items()}
        if not self.by_rows:
            return {"outputs": _alone(values)}
        rows = zip(*values.values(), strict=True)
        return {"predictions": [_alone(dict(zip(values, row, strict=True))) for row in rows]}


class RestModel:
    """Answers the requests about one model. Several threads may ask."""

    def __init__(self, model: ServedModel, name: str):
        """Takes a model, and the name that it has in paths."""
        self.name = name
        self._model = model
        # An export is a version of its folder; weights have none.
        last = model.path.rstrip("/").rsplit("/", 1)[-1]
        self.version = last if last.isdecimal() else "1"
        self._inputs: dict[str, dict[str, Any]] = model.metadata["signatures"]

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET.

        Raises:
          HTTPException: there is no such model or path.
        """
        found = _parts_of(path, "GET")
        self._check(found, "GET")
        if found["what"]:
            signatures = {name: self._described(name) for name in self._inputs}
            spec = {"name": self.name, "signature_name": "", "version": self.version}
            return {
                "model_spec": spec,
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        ok = {"error_code": "OK", "error_message": ""}
        status = {"version": self.version, "state": "AVAILABLE", "status": ok}
        return {"model_version_status": [status]}

    def question(self, path: str, body: bytes) -> Question:
        """What a POST asks.

        Raises:
          HTTPException: there is no such model or path, or the request cannot be used.
        """
        parts = _parts_of(path, "POST")
        try:
            request = _parsed(body)
            signature = self._signature_of(request, parts)
            by_rows = "instances" in request
            arrays = (of_rows if by_rows else of_columns)(request, self._inputs[signature])
        except RecursionError as error:
            raise HTTPException(400, f"JSON Parse error: {error}") from None
        return Question(arrays, signature, by_rows)

    def _signature_of(self, request: Any, found: re.Match) -> str:
        """The signature that a request asks for; checks all but its values."""
        if not isinstance(request, dict):
            raise _refusal(request, "Is not object")
        name = request.get("signature_name", "")
        if not isinstance(name, str):
            says = "not formatted correctly. 'signature_name' key must be a string value."
            raise _refusal(request, says)
        self._check(found, "POST")
        if (kind := found["what"].lower()) != "predict":
            if "examples" not in request:
                says = "When method is classify, key 'examples' is expected and was not found"
                raise _refusal(request, says)
            name = {"classify": "classification", "regress": "regression"}[kind]
            says = f"Expected {name} signature method_name to be tensorflow/serving/{kind}"
            raise HTTPException(400, f"{says}. Was: {_METHOD}")
        if (name := name or DEFAULT) not in self._inputs:
            shown = f"{name:.{MOST_SHOWN}}"
            says = f'Serving signature name: "{shown}" not found in signature def'
            raise HTTPException(400, says)
        if (given := request.keys() & {"instances", "inputs"}) and len(given) > 1:
            says = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys"
            raise _refusal(request, f"{says} to exist ")
        if not given:
            raise HTTPException(400, "Missing 'inputs' or 'instances' key")
        return name

    def _check(self, found: re.Match, method: str) -> None:
        """Raises `HTTPException` for another model or version."""
        if found["name"] is None:
            raise HTTPException(400, "Missing model name in request.")
        name, version = urllib.parse.unquote(found["name"]), found["version"]
        if version and (len(version) > 19 or int(version) >= 2**63):
            raise HTTPException(400, f"Failed to convert version: {version} to numeric.")
        if name == self.name and found["label"]:
            label = urllib.parse.unquote(found["label"])
            raise HTTPException(400, f"Unrecognized servable version label: {label}")
        if name == self.name and (version is None or int(version) == int(self.version)):
            return
        if method == "POST" or found["what"]:
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise HTTPException(404, f"Servable not found for request: {which}")
        which = f"version {version}" if version else "any versions"
        raise HTTPException(404, f"Could not find {which} of model {name}")

    def _described(self, signature: str) -> dict[str, Any]:
        """A signature as its protocol buffer is in JSON; a checkpoint's is traced first."""

        def tensor(name: str, dtype: Any, shape: Any) -> dict[str, Any]:
            sizes = [{"size": str(-1 if n is None else n), "name": ""} for n in shape]
            kind = types_pb2.DataType.Name(tf.as_dtype(dtype).as_datatype_enum)
            shape = {"dim": sizes, "unknown_rank": False}
            return {"dtype": kind, "tensor_shape": shape, "name": name}

        outputs = {
            name: tensor(f"StatefulPartitionedCall:{number}", spec.dtype, spec.shape)
            for number, (name, spec) in enumerate(sorted(self._model.outputs_of(signature).items()))
        }
        inputs = {
            name: tensor(f"{signature}_{name}:0", spec["dtype"], spec["shape"])
            for name, spec in self._inputs[signature].items()
        }
        return {"inputs": inputs, "outputs": outputs, "method_name": _METHOD, "defaults": {}}


# ---------------------------------------------------------------------------- JSON and arrays


def _parts_of(path: str, method: str) -> re.Match:
    """The parts of a path."""
    if not (found := _PATHS[method].fullmatch(path)):
        raise HTTPException(400, f"Malformed request: {method} {path}")
    return found


def _parsed(body: bytes) -> Any:
    """The JSON of a body."""
    if not body:
        raise HTTPException(400, "JSON Parse error: The document is empty")
    try:
        return json.loads(body, object_pairs_hook=each_key_once)
    except ValueError as error:
        raise HTTPException(400, f"JSON Parse error: {error}") from None


def of_rows(request: Mapping[str, Any], specs: Mapping[str, Any]) -> Arrays:
    """The inputs of {"instances": [...]}: a value for each row, or an object with all inputs."""
    rows = request["instances"]
    if not isinstance(rows, list):
        raise _refusal(request, "Excepting 'instances' to be an list/array")  # its spelling
    if not rows:
        raise _refusal(request, "No values in 'instances' array")
    if not _is_object(rows[0]) and len(specs) > 1:
        says = "instances is a plain list, but expecting list of objects as multiple input"
        raise HTTPException(400, f"{says} tensors required as per tensorinfo_map")
    are_named, shapes = _is_object(rows[0]), dict[str, list[int]]()
    leaves: dict[str, list] = {name: [] for name in specs}
    for number, row in enumerate(rows):
        if _is_object(row) != are_named:
            says = "object but got list" if are_named else "value/list but got object"
            raise HTTPException(400, f"Expecting {says} at item {number} of input list")
        at = f"Failed to process element: {number}"
        for name, value in row.items() if are_named else [(next(iter(specs)), row)]:
            try:
                if name not in specs:
                    says = f"JSON object: does not have named input: {name:.{MOST_SHOWN}}"
                    raise HTTPException(400, says)
                shape = _shape_of(value)
                leaves[name] += _leaves(value, specs[name]["dtype"], shape)
                _check_alike(shapes.setdefault(name, shape), shape)
            except HTTPException as error:
                key = f" key: {name:.{MOST_SHOWN}}" if are_named else ""
                says = f"{at}{key} of 'instances' list. Error: INVALID_ARGUMENT: {error.detail}"
                raise HTTPException(400, says) from None
        if are_named and row.keys() != specs.keys():
            says = f"{at} of 'instances' list. JSON object: {_json(row)} keys must be equal to: "
            raise HTTPException(400, says + ",".join(sorted(specs)))
    return _arrays(leaves, {name: [len(rows), *shapes[name]] for name in shapes}, specs)


def of_columns(request: Mapping[str, Any], specs: Mapping[str, Any]) -> Arrays:
    """The inputs of {"inputs": ...}: the only one, or an object with all, and others to ignore."""
    given = request["inputs"]
    if not _is_object(given) and len(specs) > 1:
        says = "inputs is a plain value/list, but expecting an object as multiple input tensors"
        raise HTTPException(400, f"{says} required as per tensorinfo_map")
    values = given if _is_object(given) else dict.fromkeys(specs, given)
    for name in specs:
        if name not in values:
            raise HTTPException(400, f"Missing named input: {name} in 'inputs' object.")
    shapes = {name: _shape_of(values[name]) for name in specs}
    leaves = {n: [*_leaves(values[n], specs[n]["dtype"], shapes[n])] for n in specs}
    return _arrays(leaves, shapes, specs)


def _arrays(
    leaves: Mapping[str, list], shapes: Mapping[str, list[int]], specs: Mapping[str, Any]
) -> Arrays:
    """The inputs, with as many dimensions as the signature has, and all of one batch size."""
    for name, shape in shapes.items():
        if len(shape) != (rank := len(specs[name]["shape"])):
            raise HTTPException(400, f"{name} has {len(shape)} dimensions, expected {rank}")
    if len({shape[0] for shape in shapes.values()}) > 1:
        raise HTTPException(400, "inputs of different batch sizes")
    types = {n: object if specs[n]["dtype"] == "string" else specs[n]["dtype"] for n in shapes}
    return {name: np.array(leaves[name], types[name]).reshape(shapes[name]) for name in shapes}


def _shape_of(value: Any) -> list[int]:
    """The shape of a value's first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _leaves(value: Any, dtype: str, shape: Sequence[int], level: int = 0) -> Iterator[bytes | int]:
    if not isinstance(value, list):
        if level != len(shape):
            says = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: "
            raise _refusal(value, f"{says}{len(shape)}")
        yield _leaf(value, dtype)
        return
    if level >= len(shape):
        says = f"Encountered list at unexpected level: {level} expected < {len(shape)}"
        raise HTTPException(400, says)
    if len(value) != shape[level]:
        says = f"Encountered list at unexpected size: {len(value)} at level: {level}"
        raise HTTPException(400, f"{says} expected size: {shape[level]}")
    for one in value:
        yield from _leaves(one, dtype, shape, level + 1)


def _leaf(value: Any, dtype: str) -> bytes | int:
    if dtype == "string" and isinstance(value, dict):
        if _is_object(value):
            raise _refusal(value, "not formatted correctly for base64 data")
        coded = "".join(value["b64"].split()).rstrip("=")  # some break its lines
        try:
            return base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
        except ValueError:
            raise HTTPException(400, "Unable to base64 decode") from None
    if dtype == "string" and isinstance(value, str):
        return utf8(value)
    if dtype != "string" and type(value) is int and -(2**31) <= value < 2**31:
        return value
    kind = str(value) if isinstance(value, bool) else _KINDS[type(value)]
    raise _refusal(value, f"Type: {kind} is not of expected type: {dtype}")


def _check_alike(first: Sequence[int], other: Sequence[int]) -> None:
    """Raises `HTTPException` if an input has another shape in another row."""
    if (size := math.prod(first)) != math.prod(other):
        raise HTTPException(400, f"Expecting tensor size: {size} but got: {math.prod(other)}")
    if first != other:
        one, two = (f"[{','.join(map(str, shape))}]" for shape in (first, other))
        raise HTTPException(400, f"Expecting shape {one} but got: {two}")


def _is_object(value: Any) -> bool:
    """Whether it is an object, but not {"b64": text}."""
    is_coded = isinstance(value, dict) and value.keys() == {"b64"} and type(value["b64"]) is str
    return isinstance(value, dict) and not is_coded


def _refusal(value: Any, says: str) -> HTTPException:
    return HTTPException(400, f"JSON Value: {_json(value)} {says}")


def _json(value: Any) -> str:
    """The beginning of a value, for a message."""
    parts = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    text = "".join(itertools.islice(parts, MOST_SHOWN))  # each has a character or more
    return text if len(text) < MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _alone(values: dict[str, Any]) -> Any:
    """The value of the only output, or all by name."""
    return next(iter(values.values())) if len(values) == 1 else values
