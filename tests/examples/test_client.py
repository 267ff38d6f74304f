"""examples/client.py against real servers of both protocols, each with an export behind it."""

import base64
import concurrent.futures
import contextlib
import http.server
import io
import json
import pathlib
import re
import socket
import threading

import grpc
import numpy as np
import pytest
import served_models
import tensorflow as tf
from google.protobuf import text_format

from bert_tf.serving.predictor import Predictor, ServedModel
from bert_tf.tasks.features import classifier_record

predict_pb2, prediction_service_pb2_grpc, model_server_config_pb2 = (
    pytest.importorskip(f"tensorflow_serving.{module}", reason="needs tensorflow-serving-api")
    for module in (
        "apis.predict_pb2",
        "apis.prediction_service_pb2_grpc",
        "config.model_server_config_pb2",
    )
)

ROOT = pathlib.Path(__file__).parents[2]
LINES = [
    {"text_a": "who founded it", "text_b": "Ruprecht (1386)"},
    {"text_a": "", "text_b": ""},
    {"text_a": "café 中 😀", "text_b": "in " * 30},
]
# The first id is 7 if only the lower half of its bits is sent.
TOO_LARGE = {"input_ids": [2**32 + 7], "input_mask": [1], "segment_ids": [0]}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, ServedModel]:
    """A model with several answers, and one with a single one."""
    folder = tmp_path_factory.mktemp("served")
    return {
        name: served_models.open_kind(served_models.write_folder(kind, folder / name), kind)
        for name, kind in (("pairs", "pairs"), ("score", "regression"))
    }


# ---------------------------------------------------------------------------- the servers


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Runs requests as TensorFlow Serving does, with its messages."""

    def __init__(self, models: dict[str, ServedModel]):
        self._models = models

    def Predict(self, request, context):  # noqa: N802 (named by the service)
        name = request.model_spec.name
        if name not in self._models or request.model_spec.version.value not in (0, 1):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {name}")
        arrays = {key: tf.make_ndarray(proto) for key, proto in request.inputs.items()}
        try:
            outputs = self._models[name].run(arrays, request.model_spec.signature_name)
        except Exception as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response


@pytest.fixture(scope="module")
def grpc_server(models):
    """A PredictionService on a port of this machine."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.service = PredictionService(models)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(server.service, server)
    server.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield server
    server.stop(None).wait()


class RestHandler(http.server.BaseHTTPRequestHandler):
    """TensorFlow Serving's REST: columns, strings and bytes, metadata, errors."""

    def do_GET(self):
        model, rest = self._model()
        if model is None or rest != "/metadata":
            return self._send(404, {"error": "Malformed request: GET"})
        signature = {"serving_default": {"outputs": {key: {} for key in model.metadata["outputs"]}}}
        return self._send(200, {"metadata": {"signature_def": {"signature_def": signature}}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, rest = self._model()
        if model is None or rest != ":predict":
            return self._send(404, {"error": f"Servable not found for request: {self.path}"})
        try:
            return self._send(200, self._predict(model, body))
        except Exception as error:
            return self._send(400, {"error": str(error)})

    def _model(self):
        parts = re.fullmatch(r"/v1/models/(\w+)(?:/versions/1)?(:predict|/metadata)", self.path)
        return (self.server.models.get(parts[1]), parts[2]) if parts else (None, None)

    def _predict(self, model, body):
        name = body.get("signature_name", "serving_default")
        specs = model.metadata["signatures"][name]
        columns = body["inputs"]
        outputs = model.run({k: _array(columns[k], specs[k]["dtype"]) for k in specs}, name)
        found = {key: _json(value.tolist()) for key, value in outputs.items()}
        return {"outputs": found if len(found) > 1 else next(iter(found.values()))}

    def _send(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def _array(values: list, dtype: str) -> np.ndarray:
    def plain(value):
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, dict):
            return base64.b64decode(value["b64"], validate=True)
        if (dtype == "string") != isinstance(value, str):
            raise ValueError(f"JSON Value: {value!r} is not of expected type: {dtype}")
        return value.encode() if isinstance(value, str) else value

    return np.array(plain(values), object if dtype == "string" else dtype)


def _json(value):
    if isinstance(value, list):
        return [_json(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


@pytest.fixture(scope="module")
def rest_server(models):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RestHandler)
    server.models = models
    server.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(params=["grpc", "rest"])
def ask(request, client, capsys, monkeypatch):
    """Gives the client's command: lines -> exit code, answers, message."""
    server = request.getfixturevalue(f"{request.param}_server")

    def run(lines, *flags, model="pairs"):
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        stream = io.TextIOWrapper(io.BytesIO(content))
        monkeypatch.setattr("sys.stdin", stream)
        command = [f"--protocol={request.param}", f"--address={server.address}", "--timeout=60"]
        code = client.main([*command, f"--model={model}", *flags])
        printed = capsys.readouterr()
        return code, [json.loads(line) for line in printed.out.splitlines()], printed.err

    return run


# ---------------------------------------------------------------------------- the round trip


def near(found: list[dict], wanted: list[dict]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert set(one) == set(other)
        for name, value in other.items():
            if isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], str)):
                assert one[name] == value
            else:
                np.testing.assert_allclose(one[name], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", ["pairs", "score"])
def test_lines_are_answered(ask, models, model):
    code, found, message = ask(LINES, "--batch_size=2", model=model)
    assert (code, message) == (0, "")
    near(found, Predictor(models[model]).predict(LINES))
    if model == "pairs":
        assert found[0]["labels"] == list(served_models.LABELS)  # not ASCII all of them
    else:
        assert set(found[0]) == {"score"}


def test_numbers_and_bytes_are_sent(ask, models):
    ids, mask, segments = [2, 7, 9, 3], [1] * 4, [0, 0, 1, 1]
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    values = features | {"label_ids": [0], "is_real_example": [1]}
    record = classifier_record(max_seq_length=4).serialize(values)
    example = {"examples": {"b64": base64.b64encode(record).decode()}}
    _, of_ids, _ = ask([features] * 2, "--signature_name=ids")
    code, of_examples, message = ask([example], "--signature_name=examples")
    assert (code, message) == (0, "")
    near(of_ids, of_examples * 2)
    arrays = {name: np.array([value], np.int32) for name, value in features.items()}
    wanted = models["pairs"].run(arrays, "ids")
    np.testing.assert_allclose(of_ids[0]["probabilities"], wanted["probabilities"][0], atol=1e-5)


@pytest.mark.parametrize(
    ("lines", "flags", "message"),
    [
        (LINES, {"model": "none"}, "Servable not found"),
        (LINES, {"version": 3}, "Servable not found"),
        ([{"text_a": 5, "text_b": 6}], {}, ""),
        ([{"text_a": "a", "text_b": {"b65": ""}}], {}, ""),
        ([TOO_LARGE], {"signature_name": "ids"}, ""),
    ],
)
def test_what_fails_is_said(ask, lines, flags, message):
    words = [f"--{name}={value}" for name, value in flags.items() if name != "model"]
    code, _, said = ask(lines, *words, model=flags.get("model", "pairs"))
    assert code == 1
    assert message in said
    parts = [line.split(":")[0] for line in said.splitlines()[1:]]
    assert parts == ["Received", "Expected", "To do"]


def reply(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """An answer of a server that is none."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


BAD_REPLIES = {
    "closed": (b"", "Remote end closed"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9\r\n", "BadStatusLine|SSH"),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (2 << 20), "more than 1048576 bytes"),
    "empty": (reply(b""), "Expecting value"),
    "not UTF-8": (reply(b'{"outputs": "\xff"}'), "codec"),
    "deep": (reply(b"[" * 200_000), "nested too deep"),
    "infinite": (reply(b'{"outputs": {"a": [1e999]}}'), "the number 1e999"),
    "a list": (reply(b"[1]"), "without outputs"),
    "too many": (reply(b'{"outputs": {"a": [1, 2]}}'), "a without a value for each"),
    "gzip": (reply(b"x", "200 OK", "Content-Encoding: gzip"), "the encoding gzip"),
    "redirected": (reply(b"", "302 Found", "Location: http://127.0.0.1:1/"), "302"),
    "error": (reply(b'{"error": "no \x5cu001b[31mmodel"}', "404 No"), r"404 no \\x1b\[31mmodel"),
    "nobody": (None, "127.0.0.1:1"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_bad_reply_is_said_in_three_parts(client, capsys, monkeypatch, name):
    answer, says = BAD_REPLIES[name]
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "a"}\n')))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)  # until the client has read it

        thread = threading.Thread(target=serve, daemon=True)
        port = 1
        if answer is not None:
            thread.start()
            port = listening.getsockname()[1]
        assert client.main([f"--address=127.0.0.1:{port}", "--model=m", "--timeout=20"]) == 1
        if answer is not None:
            thread.join()
    said = capsys.readouterr().err
    assert re.search(says, said), said
    parts = [line.split(":")[0] for line in said.splitlines()[1:]]
    assert parts == ["Received", "Expected", "To do"]
    assert all(line.isprintable() for line in said.splitlines())


@pytest.mark.parametrize(
    ("content", "flag", "says"),
    [
        (b'{"a": 1}\n\n', "--timeout=5", "line 2 is not a JSON object"),
        (b'{"text": NaN}', "--timeout=5", "the number NaN"),
        (b"\xff\xfe\x00", "--timeout=5", "line 1 is not"),
        (b"{}", "--address=127.0.0.1:99999", "not host:port"),
        (b"{}", "--model=\x1b[2J", "not printable"),
        (b"{}", "--timeout=nan", "--timeout=nan"),
        (b"{}", "--input_file=/nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_a_mistake_is_said(client, capsys, monkeypatch, content, flag, says):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert client.main(["--address=127.0.0.1:1", "--model=m", flag]) == 1
    assert says in capsys.readouterr().err


def test_batches_are_of_one_length_and_no_more_than_asked_for(client):
    rows = [{"context": "a", "endings": ["b"] * n} for n in (2, 2, 2, 3, 2)]
    sizes = [len(batch) for batch in client.batches(rows, 2)]
    assert sizes == [2, 1, 1, 1]


# ---------------------------------------------------------------------------- serve/


def test_the_files_of_settings():
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((ROOT / "serve/models.config").read_text(), config)
    assert [model.name for model in config.model_config_list.config] == ["mrpc", "squad"]
    # It would pad with the first element of a tensor: a mask with 1, choices with a choice.
    batching = re.sub("#.*", "", (ROOT / "serve/batching.pbtxt").read_text())
    assert "pad_variable_length_inputs: true" not in batching
