"""The playground: what the page is told, and whom its server answers."""

import base64
import contextlib
import errno
import http.client
import json
import pathlib
import random
import re
import socket
import threading

import numpy as np
import pytest
import reference
import served_models
import tensorflow as tf
from served_models import CONFIG, KINDS, LENGTH, TOKENIZER, WINDOWS, make_model

from bert_tf import BertConfig, bert_encoder
from bert_tf.checkpoints.loading import Weights
from bert_tf.errors import InputError
from bert_tf.playground import api
from bert_tf.playground import server as server_module
from bert_tf.playground.api import Playground
from bert_tf.playground.sequences import InputSequences
from bert_tf.playground.server import Server
from bert_tf.serving import inference, loading
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.loading import ServedModel
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import RowReader
from bert_tf.squad.windows import doc_spans, max_context_window

PAGE = pathlib.Path(server_module.__file__).parent

# ---------------------------------------------------------------------------- attention

DEEP = BertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=17,
    max_position_embeddings=11,
    type_vocab_size=2,
    hidden_act="gelu_erf",
)
IDS, SEGMENTS = [2, 7, 30, 3, 9, 3], [0, 0, 0, 0, 1, 1]


def features_of(ids, segments) -> dict[str, tf.Tensor]:
    values = {"input_ids": [ids], "segment_ids": [segments], "input_mask": [[1] * len(ids)]}
    return {name: tf.constant(value) for name, value in values.items()}


@pytest.fixture(scope="module")
def deep():
    """A model of three layers, and its weights by the original's names."""
    model = bert_encoder(DEEP)
    weights = reference.random_weights(DEEP, seed=3)
    reference.put_weights(model, weights)
    tensors = inference.tensors_of(model)
    return inference.InferenceModel(tensors, DEEP, head="embeddings"), tensors


def test_attention_is_that_of_the_reference(deep):
    model, tensors = deep
    x = reference.embed(tensors, np.array(IDS), np.array(SEGMENTS))
    mask = np.ones(len(IDS))
    size = DEEP.hidden_size // DEEP.num_attention_heads
    _, probabilities = inference.encode(model, DEEP, features_of(IDS, SEGMENTS))
    assert len(probabilities) == DEEP.num_hidden_layers
    for layer in range(DEEP.num_hidden_layers):
        scope = f"bert/encoder/layer_{layer}"
        query, key = (
            reference.dense(tensors, f"{scope}/attention/self/{name}", x)
            for name in ("query", "key")
        )
        found = probabilities[layer][0]
        assert found.shape == (2, len(IDS), len(IDS))
        for head in range(2):
            columns = slice(head * size, (head + 1) * size)
            scores = query[:, columns] @ key[:, columns].T / np.sqrt(size)
            np.testing.assert_allclose(found[head], reference.softmax(scores), atol=1e-5)
        x = reference.encoder_block(tensors, DEEP, scope, x, mask)
    assert np.ptp(found[0], axis=0).max() > 0.05  # the pieces look at different ones


# ---------------------------------------------------------------------------- sequences

ROWS = {
    "classification": {"text": "who founded it? " * 9},
    "pairs": {"text_a": "who founded", "text_b": "Ruprecht, the café, in 1386 by " * 2},
    "multiple_choice": {"context": "who founded", "endings": ["it", "Ruprecht by", ""]},
    "token_labels": {"text": "Ruprecht founded 中 in 1386 (by the café). " * 2},
    "fill_mask": {"text": "[MASK] founded [MASK][MASK] in 1386"},
    "question_answering": {"question": "who?", "context": "Ruprecht founded it in 1386. " * 4},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Gives the checkpoint of a kind."""
    made: dict[str, Weights] = {}

    def get(kind: str) -> Weights:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind) / "model"
            made[kind] = served_models.write_folder(kind, folder)
        return made[kind]

    return get


def open_kind(weights: Weights, kind: str) -> ServedModel:
    return loading.of_weights(weights, weights.config, TOKENIZER, served_models.options(kind))


@pytest.mark.parametrize("kind", ROWS)
def test_the_sequences_shown_are_those_that_the_model_is_given(folders, kind, monkeypatch):
    """What the task's own function, run here step by step, hands to the model."""
    weights = folders(kind)
    model = open_kind(weights, kind)
    row = RowReader(model.metadata).read(ROWS[kind], "the row")
    given = []
    task = model._keep
    original = task.outputs_of
    monkeypatch.setattr(task, "outputs_of", lambda f: given.append(f) or original(f))
    task.answer(**{name: tf.constant([value]) for name, value in row.items()})
    (features,) = given
    parts = InputSequences(model).of_row(row)
    mask = features["input_mask"].numpy()
    assert [len(part.ids) for part in parts] == mask.sum(axis=1).tolist()
    for part, ids, segments in zip(
        parts, features["input_ids"].numpy(), features["segment_ids"].numpy(), strict=True
    ):
        assert part.ids == ids[: len(part.ids)].tolist()
        assert part.segments == segments[: len(part.ids)].tolist()
    several = kind in ("multiple_choice", "token_labels", "question_answering")
    assert (len(parts) > 1) == several
    assert [bool(part.name) for part in parts] == [several] * len(parts)
    assert max(len(part.ids) for part in parts) <= LENGTH


@pytest.mark.parametrize("kind", ROWS)
def test_empty_texts_are_a_sequence_too(folders, kind):
    model = open_kind(folders(kind), kind)
    empty = {name: [""] if name == "endings" else "" for name in ROWS[kind]}
    (part,) = InputSequences(model).of_row(RowReader(model.metadata).read(empty, "the row"))
    assert [TOKENIZER.inv_vocab[i] for i in part.ids] == ["[CLS]", "[SEP]"]


@pytest.fixture(scope="module")
def exported(folders, tmp_path_factory) -> Playground:
    """The page of an export of a model for questions."""
    weights = folders("no_answer")
    folder = tmp_path_factory.mktemp("export")
    export_checkpoint(
        weights,
        weights.config,
        TOKENIZER,
        str(folder),
        options=served_models.options("no_answer"),
    )
    return Playground(Predictor(folder))


def test_the_window_of_the_answer_is_shown_first(exported):
    choose = random.Random(2)
    shown = set()
    for _ in range(8):
        words = choose.choices(["Ruprecht", "founded", "it", "in", "1386", "the", "café"], k=15)
        texts = {"question": "who", "context": " ".join(words)}
        told = exported.answer({"texts": texts})
        answer = told["answer"]
        ids, starts, _ = TOKENIZER.tokenize_with_offsets([texts["context"]])
        spans = doc_spans(len(ids[0]), room=WINDOWS.room(1), doc_stride=WINDOWS.doc_stride)
        assert len(told["parts"]) == len(spans)
        if not answer["has_answer"]:
            assert told["part"] == 0
            continue
        piece = int(np.searchsorted(starts[0], answer["start"], side="right")) - 1
        assert told["part"] == max_context_window(spans, len(ids[0]))[piece]
        shown.add(told["part"])
    assert len(shown) > 1


# ---------------------------------------------------------------------------- the API


def test_an_export_shows_its_attention(exported, folders):
    texts = ROWS["question_answering"]
    told = exported.attention({"texts": texts, "part": 1, "layer": 0})
    size = len(told["ids"])
    assert told["pieces"] == [TOKENIZER.inv_vocab[i] for i in told["ids"]]
    found = np.frombuffer(base64.b64decode(told["attention"]), np.uint8)
    found = found.reshape(CONFIG.num_attention_heads, size, size) / 255
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=size / 255)
    # The same of the checkpoint, whose variables are not read back from an export.
    model = make_model("no_answer")
    for variable in model.trainable_variables:
        name = inference.checkpoint_name(variable)
        variable.assign(folders("no_answer").read(name))
    own = inference.InferenceModel(inference.tensors_of(model), CONFIG, head="question_answering")
    _, (wanted,) = inference.encode(own, CONFIG, features_of(told["ids"], told["segments"]))
    np.testing.assert_allclose(found, wanted[0], atol=0.5 / 255 + 1e-6)


def test_the_model_is_described(exported):
    told = exported.describe()
    assert told["task"] == "question_answering"
    assert [text["name"] for text in told["texts"]] == ["question", "context"]
    assert (told["layers"], told["heads"]) == (1, 2)
    assert json.loads(json.dumps(told)) == told


def test_an_answer_says_what_it_is(exported):
    told = exported.answer({"texts": ROWS["question_answering"]})
    assert {"answer", "has_answer", "nbest_answers"} <= set(told["answer"])
    assert told["milliseconds"] > 0
    assert len(told["parts"]) > 3
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": None}, "a request without texts"),
        ({"texts": {"question": "a"}}, "without context"),
        ({"texts": {"question": "a", "context": 5}}, "context: 5"),
        ({"texts": {"question": "a", "context": "b" * 200_001}}, "200,002 bytes"),
        ({"part": 99}, "part 99"),
        ({"part": None}, "part None"),
        ({"part": True}, "part True"),
        ({"layer": 1}, "layer 1"),
        ({"layer": -1}, "layer -1"),
        ({"layer": "0"}, "layer '0'"),
    ],
)
def test_what_is_no_request_is_refused(exported, changes, message):
    request = {"texts": ROWS["question_answering"], "part": 0, "layer": 0} | changes
    with pytest.raises(InputError, match=message):
        exported.attention(request)


def test_too_many_endings_are_refused(folders, monkeypatch):
    monkeypatch.setattr(api, "MOST_ENDINGS", 2)
    playground = Playground(Predictor(open_kind(folders("multiple_choice"), "multiple_choice")))
    with pytest.raises(InputError, match="3 endings"):
        playground.answer({"texts": ROWS["multiple_choice"]})


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


@pytest.fixture(scope="module")
def server():
    with serving(Server(Stub())) as one:
        yield one


@contextlib.contextmanager
def serving(one: Server):
    thread = threading.Thread(target=one.serve_forever)
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
    page = (PAGE / "page.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,", "/page.css", "/page.js"}
    assert not re.search(r"<script(?![^>]*src)|style=| on\w+=", page)  # the policy forbids them
    used = re.findall(r'\$\("([\w-]+)"\)', (PAGE / "page.js").read_text())
    assert set(used) <= set(re.findall(r'id="([\w-]+)"', page))


def test_answers(server):
    status, _, content = send(server, "POST", "/api/answer", {"texts": {"text": "é"}})
    assert (status, json.loads(content)) == (200, {"asked": {"texts": {"text": "é"}}})
    status, _, content = send(server, "POST", "/api/attention", {"a": 1})
    assert (status, json.loads(content)) == (200, {"attention of": {"a": 1}})


def test_one_connection_serves_many_requests(server):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=30)
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("POST", "/api/answer", b"{}", {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b'{"asked": {}}')


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", None, {"Host": "evil.example:80"}, 421),
        ("GET", "/", None, {"Host": None}, 421),
        ("GET", "/api/model", None, {"Host": "localhost"}, 421),  # without the port
        ("POST", "/api/answer", {}, {"Host": "evil.example"}, 421),
        ("POST", "/api/answer", {}, {"Origin": "http://evil.example"}, 403),
        ("POST", "/api/answer", {}, {"Origin": "null"}, 403),
        ("POST", "/api/answer", {}, {"Origin": "https://{host}"}, 403),
        ("POST", "/api/answer", {}, {"Content_Type": "text/plain"}, 415),
        ("POST", "/api/answer", {}, {"Content_Type": None}, 415),
        ("POST", "/api/answer", {}, {"Content_Length": None}, 411),
        ("POST", "/api/answer", {}, {"Content_Length": "-1"}, 411),
        ("POST", "/api/answer", {}, {"Content_Length": "9" * 30}, 413),
        ("POST", "/api/answer", b"{}" + b" " * (1 << 20), {}, 413),
        ("POST", "/api/answer", b"\xff", {}, 400),
        ("POST", "/api/answer", b"[" * 100_000, {}, 400),
        ("POST", "/api/answer", b"[]", {}, 400),
        ("POST", "/api/answer", {"wrong": 1}, {}, 400),
        ("POST", "/api/answer", {"fail": 1}, {}, 500),
        ("POST", "/api/model", {}, {}, 404),
        ("POST", "/", {}, {}, 404),
        ("GET", "/api/answer", None, {}, 404),
        ("GET", "/../page.js", None, {}, 404),
        ("GET", "/server.py", None, {}, 404),
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
    assert send(server, "GET", "/")[0] == 200


def test_its_own_page_may_ask(server):
    port = server.server_address[1]
    for name in (f"127.0.0.1:{port}", f"localhost:{port}"):
        given = {"Host": name, "Origin": f"http://{name}"}
        assert send(server, "POST", "/api/answer", {}, **given)[0] == 200


def test_an_error_is_told_in_its_three_parts(server):
    _, _, content = send(server, "POST", "/api/answer", {"wrong": 1})
    assert json.loads(content)["error"] == "Received: é\nExpected: b\nTo do: c"


def test_a_body_that_does_not_come(monkeypatch, server):
    monkeypatch.setattr(server_module.Handler, "timeout", 0.3)
    host, port = server.server_address[:2]
    with socket.create_connection((host, port), timeout=30) as connection:
        head = f"POST /api/answer HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_model_that_is_busy(monkeypatch, server):
    monkeypatch.setattr(server_module, "SECONDS_TO_WAIT", 0.1)
    with server.model_lock:
        assert send(server, "POST", "/api/answer", {})[0] == 503
    assert send(server, "POST", "/api/answer", {})[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_only_loopback_addresses_are_listened_on(host):
    with pytest.raises(InputError, match=f"--host={re.escape(host)}"):
        Server(Stub(), host=host)


def test_loopback_of_either_kind(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        six = Server(Stub(), host="::1")
    except InputError:
        pytest.skip("no IPv6 here")
    with serving(six):
        assert send(six, "GET", "/", Host=f"[::1]:{six.server_address[1]}")[0] == 200
        assert send(six, "GET", "/", Host="[::1]")[0] == 421


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_an_address_that_this_machine_has_not(monkeypatch, number):
    def fail(*_):
        raise OSError(number, "not here")

    monkeypatch.setattr(server_module.http.server.ThreadingHTTPServer, "__init__", fail)
    with pytest.raises(InputError, match=r"--host=::1 .*not here") as caught:
        Server(Stub(), host="::1")
    assert "--port" not in str(caught.value)


def test_browsers_leave_out_the_port_of_http():
    assert server_module.names_of("127.0.0.1", 80) == {
        *("127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80")
    }
    assert server_module.names_of("[::1]", 8000) == {"[::1]:8000", "localhost:8000"}


@pytest.mark.parametrize("port", [65_536, -1])
def test_a_port_that_is_none(port):
    with pytest.raises(InputError, match=f"port {port}"):
        Server(Stub(), port=port)


def test_a_port_that_is_taken(server):
    with pytest.raises(InputError, match="give another --port"):
        Server(Stub(), port=server.server_address[1])


def test_every_kind_of_task_has_a_view():
    page = (PAGE / "page.js").read_text()
    views = page[page.index("const VIEWS") : page.index("const earlier")]
    titles = page[page.index("const TITLES") : page.index("const TOWER")]
    for task in {KINDS[kind][3].get("task", kind) for kind in KINDS}:
        name = {"pairs": "classification", "no_answer": "question_answering"}.get(task, task)
        assert f"  {name}(answer" in views
        assert f" {name}:" in titles
