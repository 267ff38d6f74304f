"""Asks a TensorFlow Serving server, by gRPC or REST: JSON lines in, JSON lines out.

    echo '{"text_a": "He left.", "text_b": "He went away."}' |
        python examples/client.py --protocol=rest --address=localhost:8501 --model=mrpc
    python examples/client.py --protocol=grpc --address=localhost:8500 --model=squad \
        --input_file=questions.jsonl

A line holds a value for each input of the signature: a string, a list of strings, numbers (whole
ones are int32), or bytes as {"b64": "..."}. This file is all there is to it and may be copied: REST
needs Python's standard library alone, gRPC the package tensorflow-serving-api.
"""

import argparse
import base64
import itertools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Columns = dict[str, list]  # values by name, one for each row
Row = dict[str, Any]
Ask = Callable[[Columns], Columns]


class Failed(Exception):  # noqa: N818 (its text is printed for the user)
    """A request that cannot be made or answered."""


def main(argv: Sequence[str] | None = None) -> int:
    """Command line -> lines -> batches -> answers -> lines."""
    args = parse(argv)
    try:
        ask = {"grpc": by_grpc, "rest": by_rest}[args.protocol](args)
        with open(args.input_file, "rb") if args.input_file else sys.stdin.buffer as file:
            for rows in batches(read_rows(file), args.batch_size):
                for row in rows_of(ask(columns_of(rows)), len(rows)):
                    print(json.dumps(row, ensure_ascii=False), flush=True)
    except (Failed, OSError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 1
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--protocol", choices=("grpc", "rest"), default="rest")
    parser.add_argument("--address", help="host:port; default localhost:8500 or localhost:8501")
    parser.add_argument("--model", required=True, help="as the server calls it")
    parser.add_argument("--version", type=int, help="of the model; default: the server's choice")
    parser.add_argument("--signature_name", default="serving_default")
    parser.add_argument("--input_file", help="JSON lines; default: standard input")
    parser.add_argument("--batch_size", type=int, default=8, help="lines of a request at most")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a request")
    args = parser.parse_args(argv)
    if args.batch_size < 1 or args.timeout <= 0:
        parser.error("--batch_size and --timeout are above 0")
    args.address = (
        args.address or {"grpc": "localhost:8500", "rest": "localhost:8501"}[args.protocol]
    )
    return args


# ---------------------------------------------------------------------------- lines and columns


def read_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """Parses the object on each line."""
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not row:
                raise ValueError("no object with values")
        except (ValueError, RecursionError) as error:
            raise Failed(f"line {number} is not a JSON object such as {{...}}: {error}") from None
        yield row


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Batches of consecutive rows whose values have the same names and lengths."""
    for _, alike in itertools.groupby(rows, key=shape_of):
        while batch := list(itertools.islice(alike, size)):
            yield batch


def shape_of(row: Row) -> dict[str, int | None]:
    """The length of each list of a row."""
    return {name: len(v) if isinstance(v, list) else None for name, v in row.items()}


def columns_of(rows: Sequence[Row]) -> Columns:
    """Rows with the same names -> a list for each name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def rows_of(columns: Columns, count: int) -> list[Row]:
    """A list for each name -> rows."""
    short = [name for name, values in columns.items() if len(values) != count]
    if short:
        raise Failed(f"the server has not answered {count} rows in {', '.join(short)}")
    return [{name: values[i] for name, values in columns.items()} for i in range(count)]


# ---------------------------------------------------------------------------- REST


def by_rest(args: argparse.Namespace) -> Ask:
    """Asks in TensorFlow Serving's columnar format."""
    version = f"/versions/{args.version}" if args.version is not None else ""
    url = f"http://{args.address}/v1/models/{args.model}{version}"

    def fetch(suffix: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + suffix, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=args.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise Failed(f"{url}: {error.code} {_message(error.read())}") from None
        except (OSError, ValueError) as error:
            raise Failed(f"{url}: {error}") from None

    def ask(columns: Columns) -> Columns:
        body = {"signature_name": args.signature_name, "inputs": columns}
        outputs = fetch(":predict", body)["outputs"]
        # A single output comes without its name, which the server's metadata has.
        return outputs if isinstance(outputs, dict) else {only_output(): outputs}

    def only_output() -> str:
        metadata = fetch("/metadata")["metadata"]["signature_def"]["signature_def"]
        (name,) = metadata[args.signature_name]["outputs"]
        return name

    return ask


def _message(body: bytes) -> str:
    """The message of an error response."""
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")


# ---------------------------------------------------------------------------- gRPC


def by_grpc(args: argparse.Namespace) -> Ask:
    """Asks the PredictionService."""
    try:
        import grpc
        import numpy as np
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
    except ImportError as error:
        raise Failed(f"{error}; install tensorflow-serving-api, or use --protocol=rest") from None
    unlimited = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    channel = grpc.insecure_channel(args.address, options=unlimited)
    service = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def tensor(values: list) -> Any:
        plain = [_to_bytes(value) for value in values]
        array = np.array(plain)
        if array.dtype.kind == "i" and not np.array_equal(array, array.astype(np.int32)):
            raise ValueError("an integer outside int32")
        if array.dtype.kind not in "bif":
            return tf.make_tensor_proto(np.array(plain, object), tf.string)
        types = {"b": np.bool_, "i": np.int32, "f": np.float32}
        return tf.make_tensor_proto(array.astype(types[array.dtype.kind]))

    def ask(columns: Columns) -> Columns:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = args.model
        request.model_spec.signature_name = args.signature_name
        if args.version is not None:
            request.model_spec.version.value = args.version
        for name, values in columns.items():
            try:
                request.inputs[name].CopyFrom(tensor(values))
            except (ValueError, TypeError, KeyError) as error:
                raise Failed(f"{name} cannot be sent: {error}") from None
        try:
            response = service.Predict(request, timeout=args.timeout)
        except grpc.RpcError as error:
            raise Failed(f"{args.address}: {error.code().name} {error.details()}") from None
        outputs = sorted(response.outputs.items())
        return {name: _to_json(tf.make_ndarray(proto).tolist()) for name, proto in outputs}

    return ask


def _to_bytes(value: Any) -> Any:
    """A value of a line, with its strings and encoded bytes as bytes."""
    if isinstance(value, list):
        return [_to_bytes(one) for one in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value


def _to_json(value: Any) -> Any:
    """A value of an answer, with its bytes as strings."""
    if isinstance(value, list):
        return [_to_json(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


if __name__ == "__main__":
    sys.exit(main())
