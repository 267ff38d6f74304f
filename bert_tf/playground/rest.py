"""TensorFlow Serving's REST interface of one model: requests in JSON -> arrays -> answers in JSON.

GET  /v1/models/NAME                         status of its version
GET  /v1/models/NAME/metadata                types and shapes of its signatures
POST /v1/models/NAME:predict                 {"instances": [...]}, or {"inputs": {...}}
     .../versions/1 behind the name          the same of a version, of which there is one

As described in "RESTful API" of TensorFlow Serving 2.x: same paths, forms, statuses and messages.
"""

import base64
import dataclasses
import json
import re
import threading
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from bert_tf.errors import InputError
from bert_tf.serving.options import DEFAULT
from bert_tf.serving.predictor import ServedModel
from bert_tf.serving.rows import plain
from bert_tf.tokenization.wordpiece import utf8

MOST_ROWS = 32  # of requests that are answered together
_PATH = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+))?(?P<what>/metadata|:\w+)?"
)
Arrays = dict[str, np.ndarray]


class HttpError(Exception):
    """A request that is answered with this status, and {"error": message}."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class RestModel:
    """Answers the requests about one model. Several threads may ask."""

    def __init__(self, model: ServedModel, name: str):
        """Takes a model, and the name that it has in paths."""
        answers = model.metadata["answers"]
        # The shape of answers with a count of words or masks depends on the longest row.
        alone = {s for s, names in answers.items() if any(n.startswith("num_") for n in names)}
        self.name, self._model, self._queue = name, model, Queue(model, alone=alone)
        # An export is a version of its folder; weights have none.
        last = model.path.rstrip("/").rsplit("/", 1)[-1]
        self.version = last if last.isdecimal() else "1"
        self._inputs: dict[str, dict[str, Any]] = model.metadata["signatures"]

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET.

        Raises:
          HttpError: there is no such model or path.
        """
        found = self._found(path, "GET", (None, "/metadata"))
        if found == "/metadata":
            signatures = {name: self._described(name) for name in self._inputs}
            spec = {"name": self.name, "signature_name": "", "version": self.version}
            return {
                "model_spec": spec,
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        ok = {"error_code": "OK", "error_message": ""}
        status = {"version": self.version, "state": "AVAILABLE", "status": ok}
        return {"model_version_status": [status]}

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        """The answer to a POST.

        Raises:
          HttpError: there is no such model or path, or the request cannot be used.
        """
        self._found(path, "POST", (":predict",))
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"JSON Parse error: {error}") from None
        if not isinstance(request, dict):
            raise HttpError(400, "Request body must be a JSON object")
        signature = request.get("signature_name") or DEFAULT
        if not isinstance(signature, str) or signature not in self._inputs:
            raise HttpError(400, f'Serving signature key "{signature}" not found.')
        forms = [form for form in ("instances", "inputs") if form in request]
        if len(forms) != 1:
            raise HttpError(400, f"{'Both' if forms else 'Missing'} 'inputs' or 'instances' key")
        by_rows = forms == ["instances"]
        specs, given = self._inputs[signature], request[forms[0]]
        columns = _columns_of_rows(given, specs) if by_rows else _columns(given, specs)
        arrays = {name: _array(name, columns[name], specs[name]) for name in specs}
        if len({*map(len, arrays.values())}) > 1:
            raise HttpError(400, "inputs of different batch sizes")
        try:
            outputs = self._queue.run(arrays, signature)
        except (InputError, tf.errors.OpError, ValueError) as error:
            text = str(error)  # of TensorFlow with the stack of the function before it
            raise HttpError(400, text[max(text.find("assertion failed"), 0) :]) from None
        values = {name: plain(output) for name, output in outputs.items()}
        if not by_rows:
            return {"outputs": _alone(values)}
        rows = zip(*values.values(), strict=True)
        return {"predictions": [_alone(dict(zip(values, row, strict=True))) for row in rows]}

    def _found(self, path: str, method: str, known: Sequence[str | None]) -> str | None:
        """What a path asks for: "/metadata", ":predict", or None for the status."""
        match = _PATH.fullmatch(path)
        if not match or match["what"] not in known:
            raise HttpError(400, f"Malformed request: {method} {path}")
        name, version = urllib.parse.unquote(match["name"]), match["version"]
        if name == self.name and version in (None, self.version):
            return match["what"]
        if method == "POST" or match["what"]:
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise HttpError(404, f"Servable not found for request: {which}")
        which = f"version {version}" if version else "any versions"
        raise HttpError(404, f"Could not find {which} of model {name}")

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
        method = "tensorflow/serving/predict"
        return {"inputs": inputs, "outputs": outputs, "method_name": method, "defaults": {}}


# ---------------------------------------------------------------------------- requests together


@dataclasses.dataclass(eq=False)
class Ticket:
    """A request that waits, and what became of it."""

    arrays: Arrays
    signature: str
    outputs: Arrays | None = None
    error: Exception | None = None

    @property
    def kind(self) -> tuple:
        """What those have in common that can be answered together."""
        return self.signature, *((name, x.shape[1:]) for name, x in self.arrays.items())

    @property
    def rows(self) -> int:
        """B, the same of every array."""
        return len(next(iter(self.arrays.values())))


class Queue:
    """Runs a model for one request at a time, or for several that came meanwhile together."""

    def __init__(self, model: ServedModel, *, alone: Collection[str] = ()):
        """Takes the model, and the signatures of which requests are answered one by one."""
        self._model, self._alone, self._waiting = model, alone, list[Ticket]()
        self._runs, self._changes = threading.Lock(), threading.Lock()

    def run(self, arrays: Arrays, signature: str) -> Arrays:
        """What the model answers.

        Raises:
          InputError, tf.errors.OpError, ValueError: as `ServedModel.run`.
        """
        own = Ticket(arrays, signature)
        with self._changes:
            self._waiting.append(own)
        with self._runs:
            if own.outputs is own.error is None:
                self._run([own, *self._others(own)])
        if own.error:
            raise own.error
        return own.outputs or {}

    def _others(self, own: Ticket) -> list[Ticket]:
        """Takes from those that wait what fits beside a request, which is taken too."""
        with self._changes:
            self._waiting.remove(own)
            left, taken = 0 if own.signature in self._alone else MOST_ROWS - own.rows, []
            for one in self._waiting:
                if one.kind == own.kind and one.rows <= left:
                    taken.append(one)
                    left -= one.rows
            self._waiting[:] = [one for one in self._waiting if one not in taken]
        return taken

    def _run(self, tickets: list[Ticket]) -> None:
        names = tickets[0].arrays
        joined = {name: np.concatenate([one.arrays[name] for one in tickets]) for name in names}
        try:
            outputs, at = self._model.run(joined, tickets[0].signature), 0
            for one in tickets:
                one.outputs = {name: x[at : at + one.rows] for name, x in outputs.items()}
                at += one.rows
        except Exception as error:
            if len(tickets) == 1:
                tickets[0].error = error
                return
            for one in tickets:  # one of them is at fault
                self._run([one])


# ---------------------------------------------------------------------------- JSON and arrays


def _columns_of_rows(given: Any, specs: Mapping[str, Any]) -> dict[str, list]:
    """The values of {"instances": [...]} by input."""
    if not isinstance(given, list) or not given:
        raise HttpError(400, "'instances' must be a non-empty list")
    columns: dict[str, list] = {name: [] for name in specs}
    for number, row in enumerate(given):
        is_named = isinstance(row, dict) and row.keys() != {"b64"}
        if not is_named and len(specs) > 1:
            says = "instances is a plain list, but expecting list of objects as multiple input"
            raise HttpError(400, f"{says} tensors required as per tensorinfo_map")
        values = row if is_named else dict.fromkeys(specs, row)
        if values.keys() != specs.keys():
            other = next(iter(values.keys() ^ specs.keys()))
            says = f"Failed to process element: {number} of 'instances' list"
            raise HttpError(400, f"{says}: missing or unexpected named input {other!r}")
        for name, value in values.items():
            columns[name].append(value)
    return columns


def _columns(given: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    """The values of {"inputs": ...} by input."""
    is_named = isinstance(given, dict) and given.keys() != {"b64"}
    values = given if is_named else dict.fromkeys(specs, given)
    if (len(specs) > 1 and not is_named) or values.keys() != specs.keys():
        wanted = ", ".join(specs)
        raise HttpError(400, f"'inputs' must be an object with the named inputs: {wanted}")
    return dict(values)


def _array(name: str, values: Any, spec: Mapping[str, Any]) -> np.ndarray:
    """The values of an input, in its type and number of dimensions."""
    dtype, rank = spec["dtype"], len(spec["shape"])

    def checked(value: Any, depth: int) -> Any:
        if isinstance(value, list) == (depth == rank):
            raise ValueError(f"expected {rank} dimensions")
        if isinstance(value, list):
            if len({len(one) for one in value if isinstance(one, list)}) > 1:
                raise ValueError("rows of different lengths")
            return [checked(one, depth + 1) for one in value]
        if dtype == "string":
            if isinstance(value, dict) and value.keys() == {"b64"}:
                return base64.b64decode(value["b64"], validate=True)
            if not isinstance(value, str):
                raise ValueError(f"JSON Value: {value!r:.40} not of expected type: string")
            return utf8(value)
        kinds = {"bool": bool, "float32": int | float}.get(dtype, int)
        if not isinstance(value, kinds) or (dtype != "bool" and isinstance(value, bool)):
            raise ValueError(f"JSON Value: {value!r:.40} not of expected type: {dtype}")
        return value

    try:
        return np.array(checked(values, 0), object if dtype == "string" else dtype)
    except (ValueError, OverflowError, TypeError) as error:
        raise HttpError(400, f"Failed to process the input {name!r}: {error}") from None


def _alone(values: dict[str, Any]) -> Any:
    """The value of the only output, or all by name."""
    return next(iter(values.values())) if len(values) == 1 else values
