"""examples/client.py against servers of both protocols: gRPC, and `bert-tf serve`."""

import base64
import concurrent.futures
import contextlib
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
from serving import serving

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


@pytest.fixture(scope="module")
def rest_addresses(models):
    """Addresses of `bert-tf serve` by model; a model of another name is asked for at the first."""
    with contextlib.ExitStack() as stack:
        addresses = {}
        for name, model in models.items():
            server = stack.enter_context(serving(model, name=name))
            addresses[name] = f"127.0.0.1:{server.port}"
        yield addresses


@pytest.fixture(params=["grpc", "rest"])
def ask(request, client, capsys, monkeypatch):
    """Gives the client's command: lines -> exit code, answers, message."""
    is_rest = request.param == "rest"
    given = request.getfixturevalue("rest_addresses" if is_rest else "grpc_server")

    def run(lines, *flags, model="pairs"):
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        stream = io.TextIOWrapper(io.BytesIO(content))
        monkeypatch.setattr("sys.stdin", stream)
        address = given.get(model, given["pairs"]) if is_rest else given.address
        command = [f"--protocol={request.param}", f"--address={address}", "--timeout=60"]
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
    text_format.Parse((ROOT / "examples/serving/models.config").read_text(), config)
    assert [model.name for model in config.model_config_list.config] == ["mrpc", "squad"]
    # It would pad with the first element of a tensor: a mask with 1, choices with a choice.
    batching = re.sub("#.*", "", (ROOT / "examples/serving/batching.pbtxt").read_text())
    assert "pad_variable_length_inputs: true" not in batching
