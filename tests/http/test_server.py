"""The server: stalled clients, the end of the process, addresses."""

import contextlib
import json
import re
import socket
import statistics
import threading
import time

import pytest
from lengths import Lengths, rows
from serving import PREDICT, all_of, answer_to, head, serving

from bert_tf.errors import InputError
from bert_tf.http import bodies
from bert_tf.http import server as server_module
from bert_tf.http.application import Application
from bert_tf.http.callers import Callers
from bert_tf.http.server import bound


@pytest.fixture
def model():
    return Lengths()


@pytest.fixture
def short(monkeypatch):
    """Clients may stall for a second alone."""
    for module in (server_module, bodies):
        monkeypatch.setattr(module, "SECONDS_TO_STALL", 1)


# ---------------------------------------------------------------------------- the wire


def test_one_connection_serves_many_requests(model):
    body = json.dumps(rows("x" * 20_000)).encode()
    with serving(model) as server, server.connect() as connection:
        seconds = []
        for _ in range(9):  # no segment of an answer waits for the client, which takes 40 ms
            begin = time.perf_counter()
            request = head("POST", PREDICT, f"Content-Length: {len(body)}") + body
            assert answer_to(connection, request) == 200
            seconds.append(time.perf_counter() - begin)
        assert statistics.median(seconds) < 0.03


def test_a_client_that_waits_is_told_to_go_on(model):
    with serving(model, max_body_bytes=99) as server:
        with server.connect() as connection:
            lines = "Content-Length: 19", "Expect: 100-continue"
            connection.sendall(head("POST", PREDICT, *lines))
            assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
            connection.sendall(b'{"instances":["a"]}')
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        with server.connect() as connection:  # not before it is refused
            lines = "Content-Length: 999", "Expect: 100-continue"
            connection.sendall(head("POST", PREDICT, *lines))
            assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Host: again"],
        ["X: " + "y" * 200_000],
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(model, lines):
    with serving(model) as server:
        with contextlib.suppress(ConnectionResetError):  # what is too long is not read whole
            assert server.send(head("POST", PREDICT, *lines)).startswith(b"HTTP/1.1 400 ")
        assert server.ask("/healthz").status == 200


# ---------------------------------------------------------------------------- clients that stall


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/mod", head("POST", PREDICT, "A: b")[:-2]], ids=["none", "path", "most"]
)
def test_headers_that_do_not_come_end_the_connection(short, model, sent):
    with serving(model) as server, server.connect() as connection:
        connection.sendall(sent)
        begin = time.monotonic()
        assert all_of(connection) == b""
        assert time.monotonic() - begin < 10


def drip(connection: socket.socket, content: bytes) -> None:
    """Sends a byte after the other."""
    for byte in content:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def test_headers_that_drip_end_the_connection(short, model):
    """Before the first request of a connection, and before another."""
    for first in (b"", head("GET", "/healthz")):
        with serving(model) as server, server.connect() as connection:
            connection.sendall(first)
            begin = time.monotonic()
            with pytest.raises(OSError, match=r"reset|pipe"):
                drip(connection, head("GET", "/", "X: " + "y" * 999))
            assert time.monotonic() - begin < 10


def test_a_body_that_does_not_come_is_refused(short, model):
    with serving(model) as server:
        answer = server.send(head("POST", PREDICT, "Content-Length: 99", "Connection: close"), b"{")
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_connection_whose_body_came_after_its_refusal_ends(short, model):
    body = b"x" * 99
    with serving(model) as server, server.connect() as connection:
        lines = f"Content-Length: {len(body)}", "Host: evil.example"
        request = head("POST", PREDICT, *lines).replace(b"Host: localhost\r\n", b"")
        assert answer_to(connection, request) == 421
        connection.sendall(body)
        begin = time.monotonic()
        assert all_of(connection) == b""
        assert time.monotonic() - begin < 10


def test_a_body_that_drips_is_given_up(short, model):
    with serving(model, timeout_seconds=2) as server, server.connect() as connection:
        connection.sendall(head("POST", PREDICT, "Content-Length: 999", "Connection: close"))
        with pytest.raises(OSError, match=r"reset|pipe"):
            drip(connection, b"x" * 998)


def test_an_answer_that_is_not_read_ends_the_connection(short, model):
    """However little of it waits; one that is read slowly arrives."""
    names = {"instances": ["x"] * 200_000}
    body = json.dumps(names).encode()
    lines = f"Content-Length: {len(body)}", "Connection: close"
    with (
        serving(model, max_rows=10**6) as server,
        server.connect() as slow,
        server.connect() as stalled,
    ):
        for connection in (slow, stalled):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            connection.sendall(head("POST", PREDICT, *lines) + body)
        size = 0
        while part := slow.recv(1 << 14):
            size += len(part)
            time.sleep(0.08 if size < 200_000 else 0)
        assert size > 3 * 200_000
        deadline = time.monotonic() + 10
        while server.server.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not server.server.server_state.connections


def test_a_connection_is_kept_as_long_as_said(short, model):
    """Between requests the limit of stalls does not count."""
    with serving(model, keep_alive_seconds=3) as server, server.connect() as connection:
        assert answer_to(connection, head("GET", "/healthz")) == 200
        time.sleep(2.3)
        assert answer_to(connection, head("GET", "/healthz")) == 200
        begin = time.monotonic()
        assert all_of(connection) == b""
        assert 2 < time.monotonic() - begin < 6


# ---------------------------------------------------------------------------- the end


def test_what_runs_and_waits_is_answered_before_the_end(model):
    """Half a request too; new connections are refused, and probes say that it ends."""
    model.may_run.clear()
    with serving(model) as server:
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(server.ask(body=rows("x" * 99, "b"))))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        while server.application._num_open < 5:
            time.sleep(0.01)
        with server.connect() as half, server.connect() as probe, server.connect() as idle:
            body = json.dumps(rows("half")).encode()
            half.sendall(head("POST", PREDICT, f"Content-Length: {len(body)}") + body[:5])
            assert answer_to(probe, head("GET", "/readyz")) == 200
            probe.sendall(head("POST", PREDICT, f"Content-Length: {len(body)}"))
            time.sleep(0.3)
            server.loop.call_soon_threadsafe(server.server.drain)
            assert all_of(idle) == b""
            with pytest.raises(ConnectionRefusedError):
                server.connect()
            assert server.application.is_draining
            half.sendall(body[5:])
            model.may_run.set()
            answer = all_of(half)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nconnection: close\r\n" in answer  # nobody sends another one here
            probe.sendall(body)
            assert all_of(probe).startswith(b"HTTP/1.1 200 ")
        for thread in threads:
            thread.join()
    assert [answer.status for answer in found] == [200] * 5


def test_what_is_not_answered_within_the_limit_is_refused(model):
    model.may_run.clear()
    with serving(model, drain_seconds=1) as server:
        found = []
        ask = threading.Thread(target=lambda: found.append(server.ask(body=rows("a"))))
        ask.start()
        while not server.application._num_open:
            time.sleep(0.01)
        server.loop.call_soon_threadsafe(server.server.drain)
        ask.join()
        model.may_run.set()
    assert (found[0].status, found[0].error) == (503, "the server ends")


def test_after_a_second_signal_all_is_refused(model):
    model.may_run.clear()
    with serving(model) as server:
        found = []
        ask = threading.Thread(target=lambda: found.append(server.ask(body=rows("a"))))
        ask.start()
        while not server.application._num_open:
            time.sleep(0.01)
        for _ in range(3):
            server.loop.call_soon_threadsafe(server.server.drain)
        ask.join()
        model.may_run.set()
    assert (found[0].status, found[0].error) == (503, "the server ends")


def test_a_server_that_ends_is_not_ready(model):
    with serving(model) as server:
        assert server.ask("/readyz").status == 200
        server.application.is_draining = True
        assert server.ask("/readyz").status == 503
        assert server.ask("/healthz").status == 200


# ---------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        *((host, 0, f"--host={re.escape(host)}") for host in ("192.0.2.7", "example.com", "")),
        *(("127.0.0.1", port, f"port {port}") for port in (65_536, -1)),
        ("127.0.0.1", None, "0: any free one"),  # one that is taken
    ],
)
def test_addresses_that_are_refused(model, host, port, says):
    with serving(model) as server, pytest.raises(InputError, match=says):
        bound(host, server.port if port is None else port)


def test_of_two_that_begin_at_once_one_is_refused(model):
    """Both have the port until one opens it."""
    listener, address = bound("127.0.0.1", 0)
    other, _ = bound("127.0.0.1", listener.getsockname()[1])
    with listener:
        listener.listen()
        application = Application(model, "m", callers=Callers(address))
        with pytest.raises(InputError, match="a free port"):
            server_module.Server(application, other).serve_to_end()


def test_an_address_of_both_kinds_is_loopback():
    listener, address = bound("::ffff:127.0.0.1", 0)
    listener.close()
    assert address.is_loopback


def test_loopback_of_the_other_kind(model):
    try:
        bound("::1", 0)[0].close()
    except InputError:
        pytest.skip("no IPv6 here")
    with serving(model, host="::1") as server:
        for host in ("[::1]", f"[::1]:{server.port}", "[0:0:0:0:0:0:0:1]", "localhost"):
            assert server.ask(body=rows("a"), Host=host).status == 200, host
        assert server.ask(body=rows("a"), Host="127.0.0.1").status == 421
