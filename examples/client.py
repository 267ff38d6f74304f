"""Asks a TensorFlow Serving server, by gRPC or REST: JSON lines in, JSON lines out.

    echo '{"text_a": "He left.", "text_b": "He went away."}' |
        python examples/client.py --protocol=rest --address=localhost:8501 --model=mrpc
    python examples/client.py --protocol=grpc --address=localhost:8500 --model=squad \\
        --input_file=questions.jsonl

A line holds a value for each input of the signature: a string, a list of strings, numbers (int32
if they are whole), or bytes as {"b64": "..."}. You can copy this file and use it without the
package bert_tf: REST needs only Python's standard library, gRPC also tensorflow-serving-api.
"""

import argparse
import base64
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import math
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

Columns = dict[str, list]  # for each name the values of all rows
Row = dict[str, Any]
Ask = Callable[[Columns], Columns]
PORTS = {"grpc": 8500, "rest": 8501}
RANGES = {"batch_size": (1, 1 << 20), "timeout": (1e-3, 1e6), "version": (0, 1 << 62)}
MOST_BYTES = 128 << 20  # of an answer
LONGEST_LINE = 16 << 20  # bytes
MOST_SHOWN = 500  # characters of a message


class Failed(Exception):  # noqa: N818 (its text is printed for the user)
    """A request that cannot be sent or answered: what was received, what is expected, what to do.

    Control characters, which a server might send to the terminal, are escaped.
    """

    def __init__(self, received: str, expected: str, remedy: str):
        if len(received) > MOST_SHOWN:
            received = f"{received[:MOST_SHOWN]}..."
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in received)
        super().__init__(f"Received: {shown}\nExpected: {expected}\nTo do: {remedy}")


def main(argv: Sequence[str] | None = None) -> int:
    """Reads lines, asks the server in batches, and prints its answers; returns the exit code."""
    try:
        args = parse(argv)
        ask = by_grpc(args) if args.protocol == "grpc" else by_rest(args)
        if sys.stdout is None or (sys.stdin is None and not args.input_file):
            raise Failed("a closed stream", "standard input and output", "redirect them elsewhere")
        with open(args.input_file, "rb") if args.input_file else sys.stdin.buffer as file:
            for rows in batches(read_rows(file), args.batch_size):
                for row in rows_of(ask(columns_of(rows)), len(rows)):
                    sys.stdout.buffer.write(line_of(row))
                    sys.stdout.buffer.flush()
        return 0
    except BrokenPipeError:  # the reader of the output has ended
        return 0
    except KeyboardInterrupt:
        return 130
    except Failed as error:
        failed = error
    except OSError as error:
        failed = Failed(str(error), "lines to read, and room for the answers", "check the paths")
    print(f"{sys.argv[0]}: failed.\n{failed}", file=sys.stderr)
    return 1


def refuse(message: str) -> NoReturn:
    """Raises the error for a mistake in the command."""
    raise Failed(message, "the flags that --help lists", "correct the command")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line and checks the values of its flags."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.error = refuse
    parser.add_argument("--protocol", choices=tuple(PORTS), default="rest")
    parser.add_argument("--address", help="host:port; default localhost:8500 or localhost:8501")
    parser.add_argument("--model", required=True, help="name of the model on the server")
    parser.add_argument("--version", type=int, help="of the model; default: the server chooses")
    parser.add_argument("--signature_name", default="serving_default")
    parser.add_argument("--input_file", help="JSON lines; default: standard input")
    parser.add_argument("--batch_size", type=int, default=8, help="most lines of a request")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a request")
    args = parser.parse_args(argv)
    args.address = args.address or f"localhost:{PORTS[args.protocol]}"
    is_socket = args.protocol == "grpc" and args.address.startswith("unix:")
    match = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.%]+\]):(\d{1,5})", args.address, re.ASCII)
    has_port = match is not None and 0 < int(match[2]) < 65536
    if not is_socket and not has_port:
        refuse(f"--address={args.address}, which is not host:port")
    for name, (low, high) in RANGES.items():
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            refuse(f"--{name}={value}, which is not from {low} to {high}")
    for name in ("model", "signature_name"):
        if not getattr(args, name).isprintable():
            refuse(f"--{name}={getattr(args, name)}, which is not printable text")
    return args


# ---------------------------------------------------------------------------- lines and columns


def read_rows(file: BinaryIO) -> Iterator[Row]:
    """Parses the JSON object on each line."""
    lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"longer than {LONGEST_LINE} bytes")
            row = parse_json(line)
            if not isinstance(row, dict) or not row:
                raise ValueError("no object with values")
            json.dumps(row, ensure_ascii=False).encode()  # fails for a lone surrogate
        except (ValueError, RecursionError) as error:
            raise Failed(
                f"line {number} is not a JSON object such as {{...}}: {error}",
                "an object with a value for each input of the signature on each line",
                "correct the line",
            ) from None
        yield row


def parse_json(content: bytes) -> Any:
    """Parses JSON; raises ValueError if it is not JSON or has a NaN or infinite number."""

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"the number {text[:40]}")
        return value

    try:
        return json.loads(content, parse_float=finite, parse_constant=finite)
    except RecursionError:
        raise ValueError("nested too deep") from None


def line_of(row: Row) -> bytes:
    """A row as a line of JSON, without control characters for a terminal."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise answer_error(f"an answer that JSON cannot hold: {error}") from None
    text = re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)
    # Lone surrogates are valid in JSON but not in UTF-8: they become JSON escapes.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Batches of consecutive rows whose values have the same names and lengths."""

    def lengths(row: Row) -> dict[str, int | None]:
        return {name: len(v) if isinstance(v, list) else None for name, v in row.items()}

    for _, group in itertools.groupby(rows, key=lengths):
        while batch := list(itertools.islice(group, size)):
            yield batch


def columns_of(rows: list[Row]) -> Columns:
    """Turns rows into columns, with the names of the first row."""
    columns = {}
    for name in rows[0]:
        columns[name] = [row[name] for row in rows]
    return columns


def rows_of(columns: Columns, count: int) -> list[Row]:
    """Turns columns into `count` rows."""
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != count:
            raise answer_error(f"{name} without a value for each of {count} rows")
    rows = []
    for number in range(count):
        rows.append({name: values[number] for name, values in columns.items()})
    return rows


def answer_error(received: str) -> Failed:
    """The error for an answer that cannot be used."""
    return Failed(
        received,
        "the answer of TensorFlow Serving to a model of `bert-tf export`",
        "check that the server is running, --address, --model and --timeout; see also its log",
    )


# ---------------------------------------------------------------------------- REST


def by_rest(args: argparse.Namespace) -> Ask:
    """Returns a function that asks by REST, in TensorFlow Serving's columnar format."""
    version = f"/versions/{args.version}" if args.version is not None else ""
    path = f"/v1/models/{urllib.parse.quote(args.model, safe='')}{version}"
    url = f"http://{args.address}{path}"
    # A thread, because the timeout of a connection is not for a whole answer.
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def fetch(suffix: str, body: Any = None) -> Any:
        try:
            exchanged = pool.submit(exchange, args, path + suffix, body and json.dumps(body))
            status, content = exchanged.result(args.timeout)
            if status == http.client.OK:
                return parse_json(content)
            message = f"{status} {_message(content)}"
        except TimeoutError:
            message = f"no whole answer in {args.timeout:g} seconds"
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            message = str(error) or type(error).__name__
        raise answer_error(f"{url}: {message}")

    def ask(columns: Columns) -> Columns:
        answer = fetch(":predict", {"signature_name": args.signature_name, "inputs": columns})
        if not isinstance(answer, dict) or "outputs" not in answer:
            raise answer_error(f"{url}: an answer without outputs")
        outputs = answer["outputs"]
        if isinstance(outputs, dict):
            return outputs
        # The server leaves out the name of a single output; its metadata has it.
        return {only_output(): outputs}

    def only_output() -> str:
        metadata = fetch("/metadata")
        try:
            signatures = metadata["metadata"]["signature_def"]["signature_def"]
            (name,) = dict(signatures[args.signature_name]["outputs"])
        except (KeyError, TypeError, ValueError):
            raise answer_error(f"{url}/metadata: not the name of one output") from None
        return name

    return ask


def exchange(args: argparse.Namespace, path: str, body: str | None) -> tuple[int, bytes]:
    """Sends a request, without following redirections; returns status and content."""
    connection = http.client.HTTPConnection(args.address, timeout=args.timeout)
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, headers)
        with connection.getresponse() as response:
            if (coding := response.getheader("Content-Encoding", "identity")) != "identity":
                raise ValueError(f"an answer in the encoding {coding}, which was not asked for")
            expected = response.length
            content = bytearray()
            while part := response.read1(1 << 16):  # `read` takes whole chunks of any length
                content += part
                if len(content) > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
            if expected is not None and len(content) < expected:
                raise ValueError(f"{len(content)} bytes of {expected}, then the connection ended")
            return response.status, bytes(content)


def _message(content: bytes) -> str:
    """The message of an error response."""
    try:
        return str(parse_json(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content[: 4 * MOST_SHOWN].decode(errors="replace")


# ---------------------------------------------------------------------------- gRPC


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Discards what the process, including its C++ libraries, writes to standard error."""
    try:
        stderr = os.dup(2)
    except OSError:  # the process has no standard error
        yield
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def by_grpc(args: argparse.Namespace) -> Ask:
    """Returns a function that asks the PredictionService by gRPC."""
    try:
        with _without_messages():  # TensorFlow's messages about the devices of this machine
            import grpc
            import tensorflow  # noqa: F401  (loaded here, for `_to_tensor` and `_from_tensor`)
            from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
    except ImportError as error:
        raise Failed(
            str(error), "the package", "pip install tensorflow-serving-api, or use --protocol=rest"
        ) from None
    limits = {"grpc.max_send_message_length": -1, "grpc.max_receive_message_length": MOST_BYTES}
    channel = grpc.insecure_channel(args.address, options=tuple(limits.items()))
    service = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def ask(columns: Columns) -> Columns:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = args.model
        request.model_spec.signature_name = args.signature_name
        if args.version is not None:
            request.model_spec.version.value = args.version
        for name, values in columns.items():
            try:
                request.inputs[name].CopyFrom(_to_tensor(values))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                raise Failed(
                    f"{name}, which cannot be sent: {error}",
                    'strings, numbers, {"b64": "..."}, or lists of them, alike in all rows',
                    "correct the lines",
                ) from None
        try:
            response = service.Predict(request, timeout=args.timeout)
        except grpc.RpcError as error:
            raise answer_error(f"{args.address}: {error.code().name} {error.details()}") from None
        answers = {}
        for name, proto in sorted(response.outputs.items()):
            try:
                answers[name] = _from_tensor(proto)
            except (ValueError, TypeError) as error:
                raise answer_error(f"{args.address}: {name}: {error}") from None
        return answers

    return ask


def _to_tensor(values: list) -> Any:
    """The values of a column as a TensorProto of strings, booleans, int32 or float32."""
    import numpy as np
    import tensorflow as tf

    plain = [_to_bytes(value) for value in values]
    array = np.array(plain)
    kind = array.dtype.kind
    if kind not in "bif":
        return tf.make_tensor_proto(np.array(plain, object), tf.string)
    types = {"b": np.bool_, "i": np.int32, "f": np.float32}
    with np.errstate(over="ignore"):
        sent = array.astype(types[kind])
    if not np.isfinite(sent).all() or (kind == "i" and (sent != array).any()):
        raise ValueError("a number outside int32 or float32")
    return tf.make_tensor_proto(sent)


def _from_tensor(proto: Any) -> list:
    """The values of a TensorProto, for JSON."""
    import tensorflow as tf

    # A small message may claim a huge shape.
    if math.prod(dim.size for dim in proto.tensor_shape.dim) > MOST_BYTES:
        raise ValueError("too large")
    return _to_json(tf.make_ndarray(proto).tolist())


def _to_bytes(value: Any) -> Any:
    """A value of a line, with its strings and encoded bytes as bytes."""
    if isinstance(value, list):
        return [_to_bytes(item) for item in value]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return base64.b64decode(value["b64"], validate=True)
    return value


def _to_json(value: Any) -> Any:
    """A value of an answer, with its bytes as strings, or as {"b64": ...} if they are not UTF-8."""
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


if __name__ == "__main__":
    os._exit(main())  # at once: all output is flushed, and a request may still be running
