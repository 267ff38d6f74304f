"""The application: bodies, limits, errors, who may ask, and what an operator sees."""

import base64
import concurrent.futures
import contextlib
import gzip
import ipaddress
import json
import logging
import threading
import time

import pytest
from lengths import Lengths, rows
from serving import PREDICT, head, serving

from bert_tf.errors import InputError
from bert_tf.http import application as application_module
from bert_tf.http import metrics as metrics_module
from bert_tf.http.callers import Callers


@pytest.fixture
def model():
    return Lengths()


@pytest.fixture
def server(model):
    with serving(model) as started:
        yield started


# ---------------------------------------------------------------------------- bodies


LONG = json.dumps(rows(*["é" * 400] * 500)).encode()


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_as_clients_send_them(server, is_packed, is_chunked):
    body = gzip.compress(LONG) if is_packed else LONG
    lines = ["Connection: close"] + ["Content-Encoding: gzip"] * is_packed
    lines.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}")
    if is_chunked:
        parts = [body[at : at + 999] for at in range(0, len(body), 999)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    answer = server.send(head("POST", PREDICT, *lines), body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"predictions": [400] * 500}


def test_base64_may_have_white_space(server):
    coded = base64.encodebytes(b"some longer text " * 9).decode()
    assert "\n" in coded
    for text in (coded, f" {coded.rstrip('=')}\t"):
        assert server.ask(body=rows({"b64": text})).json == {"predictions": [153]}
    assert "Unable to base64 decode" in server.ask(body=rows({"b64": "a b%"})).error


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (gzip.compress(b"{}")[:-4], {"Content_Encoding": "gzip"}, 400, "too early"),
        (gzip.compress(b"{}") + b"x", {"Content_Encoding": "gzip"}, 400, "behind it"),
        (b"{}", {"Content_Encoding": "gzip"}, 400, "not gzip"),
        (b"{}", {"Content_Encoding": "br"}, 415, "a body in br"),
        (b"x" * 1001, {}, 413, "more than 1,000 bytes"),
        (b"x", {"Content_Length": "99999999999999999999"}, 413, "more than 1,000 bytes"),
        (gzip.compress(b" " * 10**7)[:999], {"Content_Encoding": "gzip"}, 413, "1,000 bytes"),
        (json.dumps(rows(*"abcd")).encode(), {}, 413, "4 rows, expected at most 3"),
    ],
    ids=["cut", "longer", "no gzip", "br", "long", "said to be long", "unpacks", "rows"],
)
def test_bodies_that_are_refused(model, body, headers, status, says):
    with serving(model, max_body_bytes=1000, max_rows=3) as server:
        answer = server.ask(PREDICT, body, **headers)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert says in answer.error
        assert server.ask(body=rows("still there")).status == 200
    assert model.asked == [["still there"]]


def test_a_chunked_body_is_not_kept_beyond_the_limit(model):
    with serving(model, max_body_bytes=1000) as server:
        chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        answer = server.send(
            head("POST", PREDICT, "Transfer-Encoding: chunked", "Connection: close"),
            chunk * 3 + b"0\r\n\r\n",
        )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_what_follows_a_gzip_body_is_not_kept(model):
    """Nor blocks that unpack to nothing."""
    for more in (b"x" * 1000, b"\0\0\0\xff\xff" * 200):
        packed = gzip.compress(b"") if more[:1] == b"x" else gzip.compress(b"")[:10]
        with serving(model, max_body_bytes=4000) as server, server.connect() as connection:
            lines = "Transfer-Encoding: chunked", "Content-Encoding: gzip", "Connection: close"
            connection.sendall(head("POST", PREDICT, *lines))
            connection.sendall(b"%x\r\n%s\r\n" % (len(packed), packed))
            with contextlib.suppress(ConnectionError):
                for _ in range(9):
                    connection.sendall(b"3e8\r\n" + more + b"\r\n")
                assert connection.recv(4096)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413")


# ---------------------------------------------------------------------------- methods and paths


def test_head_is_get_without_the_body(server):
    for path in ("/v1/models/m", "/healthz", "/readyz", "/metrics"):
        by_get = server.ask(path)
        by_head = server.ask(path, method="HEAD")
        assert (by_head.status, by_head.body) == (200, b"")
        if path != "/metrics":
            assert by_head.headers["content-length"] == by_get.headers["content-length"]


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "PUT", "PATCH"])
def test_other_methods_are_told_which_there_are(server, method):
    answer = server.ask("/v1/models/m", method=method)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    answer = server.ask("/readyz", method=method)
    assert (answer.status, set(answer.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})


@pytest.mark.parametrize("path", ["/", "/v1", "/healthz/", "/api/model", "/../x", "/page.js"])
def test_there_is_nothing_elsewhere(server, path):
    assert server.ask(path).status == 404


# ---------------------------------------------------------------------------- limits


def test_too_many_requests_are_told_to_come_again(model):
    model.may_run.clear()
    with serving(model, max_waiting=3) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(server.ask, PREDICT, rows(text)) for text in "abc"]
        while server.application._num_open < 3:
            time.sleep(0.01)
        busy = server.ask(body=rows("d"))
        assert (busy.status, busy.headers["retry-after"]) == (503, "1")
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models/m"):  # and these answer
            assert server.ask(path).status == 200
        assert b"bert_tf_waiting_requests 3.0" in server.ask("/metrics").body
        model.may_run.set()
        assert [answer.result().status for answer in waits] == [200] * 3
        assert server.ask(body=rows("d")).status == 200


def test_what_takes_too_long_is_given_up(model):
    model.may_run.clear()
    with serving(model, timeout_seconds=1) as server:
        first = threading.Thread(target=server.ask, args=[PREDICT, rows("first")])
        first.start()
        while not server.application._num_open:
            time.sleep(0.01)
        assert server.ask(body=rows("second")).status == 504
        first.join()
        model.may_run.set()
        assert server.ask(body=rows("third")).status == 200
    assert model.asked == [["first"], ["third"]]  # nobody waited for the second any more


def test_a_client_that_leaves_is_not_computed(model):
    model.may_run.clear()
    with serving(model) as server:
        busy = threading.Thread(target=server.ask, args=[PREDICT, rows("first")])
        busy.start()
        while not server.application._num_open:
            time.sleep(0.01)
        body = json.dumps(rows("left")).encode()
        with server.connect() as connection:
            connection.sendall(head("POST", PREDICT, f"Content-Length: {len(body)}") + body)
            while server.application._num_open < 2:
                time.sleep(0.01)
        time.sleep(0.3)
        model.may_run.set()
        busy.join()
        assert server.ask(body=rows("after")).status == 200
        assert b'bert_tf_requests_total{code="499"} 1.0' in server.ask("/metrics").body
    assert model.asked == [["first"], ["after"]]


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize("text", ["not finite", "no memory", "fail"])
def test_a_fault_of_the_servers_is_no_fault_of_the_clients(model, caplog, text):
    with serving(model) as server, caplog.at_level(logging.ERROR):
        answer = server.ask(body=rows(text))
        assert (answer.status, answer.json) == (
            500,
            {"error": "the server failed; its log says where"},
        )
        assert server.ask(body=rows("still there")).status == 200
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "lengths.py" in line  # its place
    assert not {"\x1b", "\r"} & {*line}


def test_what_the_model_refuses_is_said_alone(server, caplog):
    answer = server.ask(body=rows("refused"))
    assert (answer.status, answer.error) == (400, "assertion failed: [ids must be small]")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_log_has_no_control_characters(model, caplog):
    with serving(model, has_log=True) as server, caplog.at_level("INFO", logger="absl"):
        server.ask("/v1/models/%1b[31m%0d%0a" + "x" * 5000)
        server.ask("/healthz")
        server.ask(body=rows("a"))
        first = server.send(b"GET /v1/\x1b[31m HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 400 ")
        while '"POST' not in caplog.text:
            time.sleep(0.01)  # it is logged after the answer
    said = [record.getMessage() for record in caplog.records]
    lines = [line for line in said if "127.0.0.1" in line]
    assert len(lines) == 2  # probes are not logged
    assert '"POST /v1/models/m:predict" 200 ' in lines[1]
    assert len(lines[0]) < 300
    assert not {"\x1b", "\r", "\n"} & {*"".join(said)}


def test_there_need_be_no_log(model, caplog):
    with serving(model) as server, caplog.at_level("INFO", logger="absl"):
        server.ask(body=rows("a"))
    assert "predict" not in caplog.text


def test_memory_is_given_back_once_after_the_last_request(monkeypatch, server):
    """Not after each of many."""
    given_back = []
    monkeypatch.setattr(application_module, "SECONDS_TO_TRIM", 0.3)
    monkeypatch.setattr(application_module, "release_memory", lambda: given_back.append(True))
    for _ in range(20):
        server.ask(body=rows("a"))
    assert not given_back
    time.sleep(0.8)
    assert given_back == [True]


# ---------------------------------------------------------------------------- who may ask


OWN = ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "localhost:9000", "127.0.0.1:1"]
OTHERS = ["evil.example", "evil.example:8501", "127.0.0.2", "localhost.evil.example", "[::1", ""]


def test_on_loopback_only_its_own_names_may_be_asked(server):
    for host in OWN:
        assert server.ask(body=rows("a"), Host=host).status == 200, host
        assert server.ask(body=rows("a"), Origin=f"http://{host}").status == 200, host
    for host in OTHERS:
        assert server.ask(body=rows("a"), Host=host).status == 421, host
        assert server.ask(body=rows("a"), Origin=f"http://{host}").status == 403, host
    assert server.ask(body=rows("a"), Origin="null").status == 403
    for path in ("/healthz", "/readyz", "/metrics"):  # which a load balancer asks by an address
        assert server.ask(path, Host="10.0.0.7", Origin="http://evil.example").status == 200


def test_further_names_can_be_allowed(model):
    with serving(model, allowed=["Models.Example", "[0:0::2]"]) as server:
        for host in [*OWN, "models.example:8501", "[::2]:80"]:
            assert server.ask(body=rows("a"), Host=host).status == 200, host
        assert server.ask(body=rows("a"), Host="evil.example").status == 421


def test_on_all_addresses_everybody_may_ask_unless_names_are_listed(model):
    with serving(model, host="0.0.0.0") as server:
        for host in ["models.example", "evil.example", "127.0.0.1"]:
            assert server.ask(body=rows("a"), Host=host, Origin=f"http://{host}").status == 200
        assert server.ask("/").status == 404  # there is no page
    with serving(model, host="0.0.0.0", allowed=["models.example"]) as server:
        assert server.ask(body=rows("a"), Host="models.example:80").status == 200
        assert server.ask(body=rows("a"), Host="localhost").status == 421
        own = {"Host": "models.example", "Origin": "https://evil.example"}
        assert server.ask(body=rows("a"), **own).status == 403


@pytest.mark.parametrize("name", ["", "http://models.example", "a/b", "a b", "[::1", "evil\n"])
def test_what_is_no_name_of_a_host_cannot_be_allowed(name):
    with pytest.raises(InputError, match="--allow_host="):
        Callers(ipaddress.ip_address("127.0.0.1"), [name])


def test_an_address_can_be_allowed_without_brackets(model):
    with serving(model, allowed=["::2"]) as server:
        assert server.ask(body=rows("a"), Host="[::2]:80").status == 200
        assert server.ask(body=rows("a"), Origin="null").status == 403


# ---------------------------------------------------------------------------- the page


class PageStub:
    """A page of which one request is wrong and one fails."""

    def describe(self):
        return {"task": "none"}

    def row(self, request):
        if "wrong" in request:
            raise InputError(received="é", expected="b", remedy="c")
        return {"text": b"asked"}

    def answer(self, row, outputs):
        return {"row": row["text"].decode(), "length": outputs["length"].tolist()}

    def attention(self, request):
        raise RuntimeError("secret")


@pytest.fixture
def with_page(model):
    with serving(model, page=PageStub()) as started:
        yield started


def test_the_page_and_its_files(with_page):
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
        answer = with_page.ask(path)
        assert answer.status == 200
        assert kind in answer.headers["content-type"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        name = path[1:] or "page.html"
        folder = application_module.importlib.resources.files("bert_tf.http")
        assert answer.body == folder.joinpath(name).read_bytes()
    assert with_page.ask("/api/model").json == {"task": "none"}
    answer = with_page.ask("/api/answer", {"texts": {}}).json
    assert answer.pop("milliseconds") >= 0
    assert answer == {"row": "asked", "length": [5]}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "says"),
    [
        ("GET", "/", None, {"Host": "evil.example:80"}, 421, "Host"),
        ("POST", "/api/answer", {}, {"Origin": "http://evil.example"}, 403, "pages"),
        ("POST", "/api/answer", {}, {"Origin": "null"}, 403, "pages"),
        # For which a browser does not ask first.
        ("POST", "/api/answer", {}, {"Content_Type": "text/plain"}, 415, "text/plain"),
        ("POST", "/api/answer", {}, {"Content_Type": None}, 415, "no type"),
        ("POST", "/api/answer", b"[" * 100_000, {}, 400, "JSON"),
        ("POST", "/api/answer", b"[]", {}, 400, "object"),
        ("POST", "/api/answer", {"wrong": 1}, {}, 400, "Received: é\nExpected: b\nTo do: c"),
        ("POST", "/api/attention", {}, {}, 500, "the server failed"),
        ("POST", "/api/model", {}, {}, 405, ""),
        ("GET", "/api/answer", None, {}, 405, ""),
        ("GET", "/../page.js", None, {}, 404, ""),
    ],
)
def test_what_the_page_does_not_answer(with_page, method, path, body, headers, status, says):
    answer = with_page.ask(path, body, method, **headers)
    assert answer.status == status
    assert says in answer.error
    assert b"secret" not in answer.body


# ---------------------------------------------------------------------------- metrics


def test_what_an_operator_looks_at(server):
    server.ask(body=rows("a", "bcd"))
    server.ask(body=rows(7))
    server.ask("/healthz")
    text = server.ask("/metrics").body.decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    wanted = {
        'bert_tf_requests_total{code="200"}': 1,
        'bert_tf_requests_total{code="400"}': 1,
        "bert_tf_request_seconds_count": 2,
        "bert_tf_rows_total": 2,
        "bert_tf_batch_rows_sum": 2,
        "bert_tf_waiting_requests": 0,
        "bert_tf_tokens_total": 4,
    }
    assert {name: float(found[name]) for name in wanted} == wanted
    assert float(found["process_resident_memory_bytes"]) > 1e6


def test_tokens_are_counted_without_metrics_being_asked_for(monkeypatch, server):
    monkeypatch.setattr(metrics_module, "REQUESTS_TO_COUNT", 3)
    metrics = server.application.metrics
    for number in range(7):
        server.ask(body=rows("ab"))
        while number % 3 == 2 and metrics._uncounted:
            time.sleep(0.01)
    assert len(metrics._uncounted) == 1
    assert b"bert_tf_tokens_total 14.0" in server.ask("/metrics").body
    server.ask(body=rows("x" * (1 << 20)))  # and is not kept till the third
    while metrics._uncounted:
        time.sleep(0.01)
