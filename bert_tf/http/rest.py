"""TensorFlow Serving's REST interface of one model: requests in JSON -> arrays, answers -> JSON.

    GET  /v1/models/NAME                     status of its version
    GET  /v1/models/NAME/metadata            types and shapes of its signatures
    POST /v1/models/NAME:predict             {"instances": [...]}, or {"inputs": {...}}
         .../versions/1 after the name       the same of a version; there is only one
         .../labels/NAME, :classify, :regress
                                             refused: a model has neither labels of versions nor
                                             such signatures

Paths, forms, order of checks, statuses and messages are those of TensorFlow Serving 2 ("RESTful
API"; http_rest_api_handler.cc, json_tensor.cc). Differences: the details of broken JSON, repeated
keys, and messages about ranks and batch sizes, which TensorFlow Serving finds while the model runs.
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
    """The inputs of a request.

    Attributes:
      arrays: inputs of the signature, [B, ...].
      signature: its name.
      by_rows: whether the reply lists answers by rows.
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
        columns = {name: plain(output) for name, output in outputs.items()}
        if not self.by_rows:
            return {"outputs": _alone(columns)}
        predictions = []
        for values in zip(*columns.values(), strict=True):
            predictions.append(_alone(dict(zip(columns, values, strict=True))))
        return {"predictions": predictions}


class RestModel:
    """Answers the requests about one model. Several threads may ask."""

    def __init__(self, model: ServedModel, name: str):
        """Names a model; `name` is its name in paths."""
        self.name = name
        self._model = model
        # The folder of an export is named by its version; weights have none.
        last = model.path.rstrip("/").rsplit("/", 1)[-1]
        self.version = last if last.isdecimal() else "1"
        self._inputs: dict[str, dict[str, Any]] = model.metadata["signatures"]

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET.

        Raises:
          HTTPException: there is no such model or path.
        """
        parts = _parts_of(path, "GET")
        self._check(parts, "GET")
        if parts["what"]:
            signatures = {name: self._described(name) for name in self._inputs}
            return {
                "model_spec": {"name": self.name, "signature_name": "", "version": self.version},
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        ok = {"error_code": "OK", "error_message": ""}
        status = {"version": self.version, "state": "AVAILABLE", "status": ok}
        return {"model_version_status": [status]}

    def question(self, path: str, body: bytes) -> Question:
        """The inputs of a POST.

        Raises:
          HTTPException: there is no such model or path, or the request cannot be used.
        """
        parts = _parts_of(path, "POST")
        try:
            request = _parsed(body)
            signature = self._signature_of(request, parts)
            by_rows = "instances" in request
            read = of_rows if by_rows else of_columns
            arrays = read(request, self._inputs[signature])
        except RecursionError as error:
            raise HTTPException(400, f"JSON Parse error: {error}") from None
        return Question(arrays, signature, by_rows)

    def _signature_of(self, request: Any, parts: re.Match) -> str:
        """The name of the signature of a request; checks everything but its values."""
        if not isinstance(request, dict):
            raise _refusal(request, "Is not object")
        name = request.get("signature_name", "")
        if not isinstance(name, str):
            says = "not formatted correctly. 'signature_name' key must be a string value."
            raise _refusal(request, says)
        self._check(parts, "POST")
        if (kind := parts["what"].lower()) != "predict":
            if "examples" not in request:
                says = "When method is classify, key 'examples' is expected and was not found"
                raise _refusal(request, says)
            method = {"classify": "classification", "regress": "regression"}[kind]
            says = f"Expected {method} signature method_name to be tensorflow/serving/{kind}"
            raise HTTPException(400, f"{says}. Was: {_METHOD}")
        name = name or DEFAULT
        if name not in self._inputs:
            shown = f"{name:.{MOST_SHOWN}}"
            says = f'Serving signature name: "{shown}" not found in signature def'
            raise HTTPException(400, says)
        keys = request.keys() & {"instances", "inputs"}
        if len(keys) > 1:
            says = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys"
            raise _refusal(request, f"{says} to exist ")
        if not keys:
            raise HTTPException(400, "Missing 'inputs' or 'instances' key")
        return name

    def _check(self, parts: re.Match, method: str) -> None:
        """Raises `HTTPException` for another model or version."""
        if parts["name"] is None:
            raise HTTPException(400, "Missing model name in request.")
        name = urllib.parse.unquote(parts["name"])
        version = parts["version"]
        if version and (len(version) > 19 or int(version) >= 2**63):
            raise HTTPException(400, f"Failed to convert version: {version} to numeric.")
        if name == self.name and parts["label"]:
            label = urllib.parse.unquote(parts["label"])
            raise HTTPException(400, f"Unrecognized servable version label: {label}")
        if name == self.name and (version is None or int(version) == int(self.version)):
            return
        if method == "POST" or parts["what"]:
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise HTTPException(404, f"Servable not found for request: {which}")
        which = f"version {version}" if version else "any versions"
        raise HTTPException(404, f"Could not find {which} of model {name}")

    def _described(self, signature: str) -> dict[str, Any]:
        """A signature in the JSON form of its protocol buffer; a checkpoint's is traced first."""
        outputs = {}
        specs = sorted(self._model.outputs_of(signature).items())
        for number, (name, spec) in enumerate(specs):
            key = f"StatefulPartitionedCall:{number}"
            outputs[name] = _described_tensor(key, spec.dtype, spec.shape)
        inputs = {}
        for name, listed in self._inputs[signature].items():
            key = f"{signature}_{name}:0"
            inputs[name] = _described_tensor(key, listed["dtype"], listed["shape"])
        return {"inputs": inputs, "outputs": outputs, "method_name": _METHOD, "defaults": {}}


def _described_tensor(name: str, dtype: Any, shape: Any) -> dict[str, Any]:
    """A tensor in the JSON form of its protocol buffer, `TensorInfo`."""
    sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in shape]
    return {
        "dtype": types_pb2.DataType.Name(tf.as_dtype(dtype).as_datatype_enum),
        "tensor_shape": {"dim": sizes, "unknown_rank": False},
        "name": name,
    }


# ---------------------------------------------------------------------------- JSON and arrays


def _parts_of(path: str, method: str) -> re.Match:
    """The parts of a path; raises `HTTPException` for an unknown one."""
    parts = _PATHS[method].fullmatch(path)
    if not parts:
        raise HTTPException(400, f"Malformed request: {method} {path}")
    return parts


def _parsed(body: bytes) -> Any:
    """The value of a body in JSON; raises `HTTPException` if it is no JSON."""
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
    are_named = _is_object(rows[0])
    shapes: dict[str, list[int]] = {}
    leaves: dict[str, list] = {name: [] for name in specs}
    for number, row in enumerate(rows):
        if _is_object(row) != are_named:
            says = "object but got list" if are_named else "value/list but got object"
            raise HTTPException(400, f"Expecting {says} at item {number} of input list")
        at = f"Failed to process element: {number}"
        values = row if are_named else {next(iter(specs)): row}
        for name, value in values.items():
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
    """The inputs of {"inputs": ...}: the only one, or an object with all; others are ignored."""
    inputs = request["inputs"]
    if not _is_object(inputs) and len(specs) > 1:
        says = "inputs is a plain value/list, but expecting an object as multiple input tensors"
        raise HTTPException(400, f"{says} required as per tensorinfo_map")
    values = inputs if _is_object(inputs) else dict.fromkeys(specs, inputs)
    for name in specs:
        if name not in values:
            raise HTTPException(400, f"Missing named input: {name} in 'inputs' object.")
    shapes = {name: _shape_of(values[name]) for name in specs}
    leaves = {}
    for name, spec in specs.items():
        leaves[name] = list(_leaves(values[name], spec["dtype"], shapes[name]))
    return _arrays(leaves, shapes, specs)


def _arrays(
    leaves: Mapping[str, list], shapes: Mapping[str, list[int]], specs: Mapping[str, Any]
) -> Arrays:
    """The inputs as arrays; raises `HTTPException` for other ranks or different batch sizes."""
    for name, shape in shapes.items():
        rank = len(specs[name]["shape"])
        if len(shape) != rank:
            raise HTTPException(400, f"{name} has {len(shape)} dimensions, expected {rank}")
    if len({shape[0] for shape in shapes.values()}) > 1:
        raise HTTPException(400, "inputs of different batch sizes")
    arrays = {}
    for name, shape in shapes.items():
        dtype = specs[name]["dtype"]
        array = np.array(leaves[name], object if dtype == "string" else dtype)
        arrays[name] = array.reshape(shape)
    return arrays


def _shape_of(value: Any) -> list[int]:
    """The shape of a value's first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _leaves(value: Any, dtype: str, shape: Sequence[int], level: int = 0) -> Iterator[bytes | int]:
    """Yields the elements of nested lists; raises `HTTPException` if they have another shape."""
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
    for element in value:
        yield from _leaves(element, dtype, shape, level + 1)


def _leaf(value: Any, dtype: str) -> bytes | int:
    """A text in UTF-8, decoded base64, or an int32; raises `HTTPException` for anything else."""
    if dtype == "string" and isinstance(value, dict):
        if _is_object(value):
            raise _refusal(value, "not formatted correctly for base64 data")
        coded = "".join(value["b64"].split()).rstrip("=")  # some clients break its lines
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
    """Raises `HTTPException` if a row has another shape than the first row."""
    first_size = math.prod(first)
    other_size = math.prod(other)
    if first_size != other_size:
        raise HTTPException(400, f"Expecting tensor size: {first_size} but got: {other_size}")
    if first != other:
        expected = ",".join(map(str, first))
        received = ",".join(map(str, other))
        raise HTTPException(400, f"Expecting shape [{expected}] but got: [{received}]")


def _is_object(value: Any) -> bool:
    """Whether a value is an object other than {"b64": text}, which is a text."""
    if not isinstance(value, dict):
        return False
    return not (value.keys() == {"b64"} and type(value["b64"]) is str)


def _refusal(value: Any, says: str) -> HTTPException:
    """The error for a value in a request."""
    return HTTPException(400, f"JSON Value: {_json(value)} {says}")


def _json(value: Any) -> str:
    """The beginning of a value, for a message."""
    parts = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    text = "".join(itertools.islice(parts, MOST_SHOWN))  # each has a character or more
    return text if len(text) < MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _alone(values: dict[str, Any]) -> Any:
    """The value if there is only one, else all values by name."""
    return next(iter(values.values())) if len(values) == 1 else values
