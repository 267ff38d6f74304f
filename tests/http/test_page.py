"""The page: whom the server answers, and what it says of answers, attention and the model."""

import base64
import contextlib
import functools
import http.client
import json
import pathlib
import random
import re
import socket
import threading
import time

import numpy as np
import pytest

from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError
from bert_tf.playground import api
from bert_tf.playground import server as server_module
from bert_tf.playground.api import Playground
from bert_tf.playground.server import Server
from bert_tf.serving.inference import InferenceModel, encode
from bert_tf.serving.predictor import Predictor

PAGE = pathlib.Path(server_module.__file__).parent


@pytest.fixture(scope="module")
def models():
    """The helper, which starts TensorFlow, after devices are configured."""
    import served_models

    return served_models


@pytest.fixture(scope="module")
def shown(models, exported, tmp_path_factory):
    """Gives the page of a kind of model, and its weights; that of questions is of an export."""

    @functools.cache
    def get(kind: str):
        if kind == "no_answer":
            folder = exported(kind)
            return Playground(Predictor(folder / "export")), open_weights(folder / "model")
        weights = models.write_folder(kind, tmp_path_factory.mktemp(kind) / "model")
        return Playground(Predictor(models.open_kind(weights, kind))), weights

    return get


# ---------------------------------------------------------------------------- what is shown


def test_the_window_of_the_answer_is_shown_first(models, shown):
    from bert_tf.squad.windows import doc_spans, max_context_window

    choose, parts, (playground, _) = random.Random(2), set(), shown("no_answer")
    for _ in range(8):
        words = choose.choices(["Ruprecht", "founded", "it", "in", "1386", "the", "café"], k=15)
        texts = {"question": "who", "context": " ".join(words)}
        told = playground.answer({"texts": texts})
        ids, starts, _ = models.TOKENIZER.tokenize_with_offsets([texts["context"]])
        sizes = models.WINDOWS
        spans = doc_spans(len(ids[0]), room=sizes.room(1), doc_stride=sizes.doc_stride)
        assert told["parts"] == [f"window {number}" for number in range(1, len(spans) + 1)]
        if not told["answer"]["has_answer"]:
            assert told["part"] == 0
            continue
        piece = int(np.searchsorted(starts[0], told["answer"]["start"], side="right")) - 1
        assert told["part"] == max_context_window(spans, len(ids[0]))[piece]
        parts.add(told["part"])
    assert len(parts) > 1


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("classification", [""]),
        ("pairs", [""]),
        ("fill_mask", [""]),
        ("multiple_choice", ["ending 1", "ending 2", "ending 3"]),
        ("token_labels", ["window 1", "window 2", "window 3"]),
    ],
)
def test_the_sequences_of_every_task(models, shown, kind, parts):
    """Those that the model is given, without padding; of empty texts there is one."""
    playground, _ = shown(kind)
    told = playground.answer({"texts": models.ROWS[kind]})
    assert told["parts"][: len(parts)] == parts
    assert told["part"] == told["answer"].get("choice", 0)
    assert (len(told["parts"]) > 1) == (len(parts) > 1)
    request = {"texts": models.ROWS[kind], "part": len(told["parts"]) - 1, "layer": 0}
    found = playground.attention(request)
    assert (found["pieces"][0], found["pieces"][-1]) == ("[CLS]", "[SEP]")
    assert len(found["pieces"]) <= models.LENGTH
    texts = {name: [""] if name == "endings" else "" for name in models.ROWS[kind]}
    found = playground.attention({"texts": texts, "part": 0, "layer": 0})
    assert found["pieces"] == ["[CLS]", "[SEP]"]


def test_an_export_shows_its_attention(models, shown):
    playground, weights = shown("no_answer")
    texts = models.ROWS["question_answering"]
    told = playground.attention({"texts": texts, "part": 1, "layer": 0})
    size = len(told["ids"])
    assert told["pieces"] == [models.TOKENIZER.inv_vocab[i] for i in told["ids"]]
    found = np.frombuffer(base64.b64decode(told["attention"]), np.uint8)
    found = found.reshape(models.CONFIG.num_attention_heads, size, size) / 255
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=size / 255)
    # The same of the checkpoint, whose variables are not read back from an export.
    model = models.Reference("no_answer", weights).model
    own = InferenceModel(model, models.CONFIG, ("start_logits",))
    features = models.features_of(told["ids"], told["segments"])
    _, (wanted,) = encode(own, models.CONFIG, features)
    np.testing.assert_allclose(found, wanted[0], atol=0.5 / 255 + 1e-6)
    described = playground.describe()
    assert described["task"] == "question_answering"
    assert [text["name"] for text in described["texts"]] == ["question", "context"]
    assert described["config"]["num_hidden_layers"] == 1
    answered = playground.answer({"texts": texts})
    assert {"answer", "has_answer", "nbest_answers"} <= set(answered["answer"])
    assert json.loads(json.dumps([described, answered, told])) == [described, answered, told]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": None}, "a request without texts"),
        ({"texts": {"question": "a"}}, "without context"),
        ({"texts": {"question": "a", "context": "b" * 200_001}}, "200,002 bytes"),
        ({"part": 99}, "part 99"),
        ({"part": True}, "part True"),
        ({"layer": 1}, "layer 1"),
        ({"layer": "0"}, "layer '0'"),
    ],
)
def test_what_is_no_request_is_refused(models, shown, changes, message):
    request = {"texts": models.ROWS["question_answering"], "part": 0, "layer": 0} | changes
    with pytest.raises(InputError, match=message):
        shown("no_answer")[0].attention(request)


def test_too_many_endings_are_refused(models, shown, monkeypatch):
    monkeypatch.setattr(api, "MOST_ENDINGS", 2)
    with pytest.raises(InputError, match="3 endings"):
        shown("multiple_choice")[0].answer({"texts": models.ROWS["multiple_choice"]})


# ---------------------------------------------------------------------------- the server


class Stub:
    """A playground without a model."""

    def answer(self, request):
        if "fail" in request:
            raise RuntimeError("secret")
        if "wrong" in request:
            raise InputError(received="é", expected="b", remedy="c")
        return {"asked": request}

    def attention(self, request):
        return {"attention of": request}

    def describe(self):
        return {"task": "none"}


def of_stub(**address) -> Server:
    server = Server(**address)
    server.playground = Stub()
    return server


@pytest.fixture(scope="module")
def server():
    with serving(of_stub()) as one:
        yield one


@contextlib.contextmanager
def serving(one: Server):
    thread = threading.Thread(target=one.serve_forever, args=[0.02])
    thread.start()
    try:
        yield one
    finally:
        one.shutdown()
        one.server_close()
        thread.join()


def send(server: Server, method: str, path: str, body=None, **headers):
    """Status, headers and content; headers that are None are left out."""
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(host, port, timeout=30)
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    given = {"Host": f"{host}:{port}"}
    if content is not None:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()


def test_the_page_and_its_files(server):
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
        status, headers, content = send(server, "GET", path)
        assert status == 200
        assert kind in headers["Content-Type"]
        assert content == (PAGE / (path[1:] or "page.html")).read_bytes()
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
    status, _, content = send(server, "GET", "/api/model")
    assert (status, json.loads(content)) == (200, {"task": "none"})


def test_the_page_asks_nobody_else():
    for name in ("page.html", "page.css", "page.js"):
        text = (PAGE / name).read_text()
        assert not re.search(r"https?://|@import|url\(", text), name
        assert "innerHTML" not in text
        assert not re.search(r"(local|session)Storage|indexedDB|cookie", text), name
    page = (PAGE / "page.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,", "/page.css", "/page.js"}
    assert not re.search(r"<script(?![^>]*src)|style=| on\w+=", page)  # the policy forbids them
    used = re.findall(r'\$\("([\w-]+)"\)', (PAGE / "page.js").read_text())
    assert set(used) <= set(re.findall(r'id="([\w-]+)"', page))


def test_every_kind_of_task_has_a_view(models):
    page = (PAGE / "page.js").read_text()
    views = page[page.index("const VIEWS") : page.index("const earlier")]
    titles = page[page.index("const TITLES") : page.index("const TOWER")]
    for kind in models.KINDS:
        name = {"pairs": "classification", "no_answer": "question_answering"}.get(kind, kind)
        assert f"  {name}(answer" in views
        assert f" {name}:" in titles


def test_one_connection_serves_many_requests(server):
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(host, port, timeout=30)
    with contextlib.closing(connection):
        for path, wanted in (("answer", {"asked": {"é": 1}}), ("attention", {"attention of": {}})):
            body = json.dumps(wanted.get("asked", {})).encode()
            kind = {"Content-Type": "application/json", "Origin": f"http://localhost:{port}"}
            connection.request("POST", f"/api/{path}", body, kind)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())) == (200, wanted)
        seconds = []
        for _ in range(9):  # no segment of a long answer waits for the client, which takes 40 ms
            begin = time.perf_counter()
            connection.request("POST", "/api/answer", json.dumps({"a": "x" * 20_000}), kind)
            assert len(connection.getresponse().read()) > 20_000
            seconds.append(time.perf_counter() - begin)
        assert min(seconds[1:]) < 0.03
    _, _, content = send(server, "POST", "/api/answer", {"wrong": 1})
    assert json.loads(content)["error"] == "Received: é\nExpected: b\nTo do: c"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", None, {"Host": "evil.example:80"}, 421),
        ("GET", "/", None, {"Host": None}, 421),
        ("GET", "/api/model", None, {"Host": "localhost"}, 421),  # without the port
        ("POST", "/api/answer", {}, {"Origin": "http://evil.example"}, 403),
        ("POST", "/api/answer", {}, {"Origin": "null"}, 403),
        ("POST", "/api/answer", {}, {"Origin": "https://{host}"}, 403),
        ("POST", "/api/answer", {}, {"Content_Type": "text/plain"}, 415),
        ("POST", "/api/answer", {}, {"Content_Length": None}, 411),
        ("POST", "/api/answer", {}, {"Content_Length": "9" * 30}, 413),
        ("POST", "/api/answer", b"{}" + b" " * (1 << 20), {}, 413),
        ("POST", "/api/answer", b"[" * 100_000, {}, 400),
        ("POST", "/api/answer", b"[]", {}, 400),
        ("POST", "/api/answer", {"fail": 1}, {}, 500),
        ("POST", "/api/model", {}, {}, 404),
        ("GET", "/api/answer", None, {}, 404),
        ("GET", "/../page.js", None, {}, 404),
        ("GET", "/", None, {"X": "y" * 70_000}, 431),
        ("DELETE", "/", None, {}, 501),
    ],
)
def test_whom_it_does_not_answer(server, method, path, body, headers, status):
    host = "{}:{}".format(*server.server_address[:2])
    headers = {name: value and value.replace("{host}", host) for name, value in headers.items()}
    # What is too long need not be read, and the connection may end before it has been sent.
    is_too_long = isinstance(body, bytes) and len(body) > server_module.MOST_BYTES_OF_BODY
    with contextlib.suppress(ConnectionError) if is_too_long else contextlib.nullcontext():
        found, received, content = send(server, method, path, body, **headers)
        assert found == status
        assert b"secret" not in content
        assert received["Connection"] == "close"


@pytest.mark.parametrize(
    ("way", "lengths", "status"),
    [
        ("GET /", "Content-Length: {length}", 200),
        ("GET /", "Transfer-Encoding: chunked", 200),
        ("POST /api/answer", "Content-Length: 0\r\nTransfer-Encoding: chunked", 411),
        ("POST /api/answer", "Content-Length: 999", 408),
    ],
)
def test_a_body_that_is_not_read_is_no_request(monkeypatch, server, way, lengths, status):
    """Nor one that does not come."""
    monkeypatch.setattr(server_module.Handler, "timeout", 0.3)
    host, port = server.server_address[:2]
    body = f"GET /api/model HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    head = f"{way} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(f"{head}{lengths.format(length=len(body))}\r\n\r\n{body}".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_client_that_waits_is_told_to_go_on(server):
    host, port = server.server_address[:2]
    head = f"POST /api/answer HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        *((host, 0, f"--host={re.escape(host)}") for host in ("192.0.2.7", "example.com", "")),
        *(("127.0.0.1", port, f"port {port}") for port in (65_536, -1)),
        ("127.0.0.1", None, "0: any free one"),  # one that is taken
    ],
)
def test_addresses_that_are_refused(server, host, port, says):
    with pytest.raises(InputError, match=says):
        Server(host=host, port=server.server_address[1] if port is None else port)


def test_loopback_of_either_kind(server):
    port = server.server_address[1]
    assert server.url == f"http://127.0.0.1:{port}/"
    assert server.hosts == {f"127.0.0.1:{port}", f"localhost:{port}"}
    try:
        six = of_stub(host="::1")
    except InputError:
        pytest.skip("no IPv6 here")
    with serving(six):
        assert send(six, "GET", "/", Host=f"[::1]:{six.server_address[1]}")[0] == 200
        assert send(six, "GET", "/", Host="[::1]")[0] == 421
