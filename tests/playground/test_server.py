"""The server of the page: its files, and whom it answers."""

import contextlib
import errno
import http.client
import json
import pathlib
import re
import socket
import threading
import time

import pytest
from served_models import KINDS

from bert_tf.errors import InputError
from bert_tf.playground import server as server_module
from bert_tf.playground.server import Server

PAGE = pathlib.Path(server_module.__file__).parent


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
    monkeypatch.setattr(server_module, "SECONDS_TO_READ", 0.3)
    host, port = server.server_address[:2]
    with socket.create_connection((host, port), timeout=30) as connection:
        head = f"POST /api/answer HTTP/1.1\r\nHost: {host}:{port}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("way", "lengths", "status"),
    [
        ("GET /", "Content-Length: {length}", 200),
        ("GET /", "Transfer-Encoding: chunked", 200),
        ("POST /api/answer", "Content-Length: 0\r\nTransfer-Encoding: chunked", 411),
    ],
)
def test_a_body_that_is_not_read_is_no_request(server, way, lengths, status):
    host, port = server.server_address[:2]
    body = f"GET /api/model HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    head = f"{way} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(f"{head}{lengths.format(length=len(body))}\r\n\r\n{body}".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("sent_before", ["", "POST /api/answer HTTP/1.1\r\n", None])
def test_a_byte_now_and_then_does_not_hold_a_connection(monkeypatch, server, sent_before):
    """In the request line, in the head, or in the body: the time is for the whole request."""
    monkeypatch.setattr(server_module, "SECONDS_TO_READ", 1)
    host, port = server.server_address[:2]
    if sent_before is None:
        sent_before = f"POST /api/answer HTTP/1.1\r\nHost: {host}:{port}\r\n"
        sent_before += "Content-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    start = time.monotonic()
    with socket.create_connection((host, port), timeout=0.2) as connection:
        connection.sendall(sent_before.encode())
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 10:
                connection.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(999):
                        break
    assert 0.8 < time.monotonic() - start < 5


def test_who_does_not_read_does_not_hold_a_connection(monkeypatch, server):
    monkeypatch.setattr(server_module, "SECONDS_TO_READ", 0.5)
    monkeypatch.setattr(server, "describe", lambda: {"a": "x" * (50 << 20)})
    before = threading.active_count()
    with socket.create_connection(server.server_address[:2], timeout=30) as connection:
        host = "{}:{}".format(*server.server_address[:2])
        connection.sendall(f"GET /api/model HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        deadline = time.monotonic() + 10
        while threading.active_count() <= before and time.monotonic() < deadline:
            time.sleep(0.01)  # until there is a thread for it
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert threading.active_count() <= before


def test_connections_are_bounded_in_number(monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    with serving(Server(Stub())) as one, contextlib.ExitStack() as held:
        address = one.server_address[:2]
        for _ in range(3):
            held.enter_context(socket.create_connection(address, timeout=30))
        with socket.create_connection(address, timeout=30) as late:
            assert late.recv(9) == b""  # closed at once
        held.close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                assert send(one, "GET", "/")[0] == 200
                break
            time.sleep(0.05)
        else:
            pytest.fail("connections that have ended still count")


@pytest.mark.parametrize(
    ("count", "length", "status"),
    [(50, 4_000, 431), (3, 60_000, 431), (1, 70_000, 431), (1, 9, 200)],
)
def test_a_large_head_is_refused(server, count, length, status):
    headers = {f"X_{number}": "y" * length for number in range(count)}
    assert send(server, "GET", "/", **headers)[0] == status


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
    for task in {KINDS[kind][-1].get("task", kind) for kind in KINDS}:
        name = {"pairs": "classification", "no_answer": "question_answering"}.get(task, task)
        assert f"  {name}(answer" in views
        assert f" {name}:" in titles
