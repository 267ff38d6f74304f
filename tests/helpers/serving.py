"""A server of a model on a port of this process; and requests to it, whole or byte by byte."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.http.application import Application
from bert_tf.http.callers import Callers
from bert_tf.http.options import Limits
from bert_tf.http.page import Page
from bert_tf.http.server import Server, bound

PREDICT = "/v1/models/m:predict"


class Answer(NamedTuple):
    """An answer: its status, its headers and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


class Served(NamedTuple):
    """A server that answers, on a port."""

    server: Server
    application: Application
    port: int
    loop: asyncio.AbstractEventLoop
    host: str

    def ask(
        self, path: str = PREDICT, body: Any = None, method: str = "", **headers: Any
    ) -> Answer:
        """Sends a request; headers that are None are left out, those of others are added."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Host": f"localhost:{self.port}"}
        if content is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            method = method or ("GET" if content is None else "POST")
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())

    def connect(self) -> socket.socket:
        """A connection for bytes."""
        return socket.create_connection((self.host, self.port), timeout=30)

    def send(self, *parts: bytes) -> bytes:
        """Sends bytes; returns all that comes until the server ends the connection."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            return all_of(connection)


def answer_to(connection: socket.socket, content: bytes) -> int:
    """Sends bytes; reads one answer, which leaves the connection open; returns its status."""
    connection.sendall(content)
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other end closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def head(method: str, path: str, *lines: str) -> bytes:
    """The first bytes of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


@contextlib.contextmanager
def serving(
    model: Any,
    *,
    name: str = "m",
    host: str = "127.0.0.1",
    allowed: Sequence[str] = (),
    page: Page | None = None,
    has_log: bool = False,
    **limits: int,
) -> Iterator[Served]:
    """Serves a model under a name."""
    listener, address = bound(host, 0)
    chosen = Limits(**limits)
    application = Application(
        model, name, callers=Callers(address, allowed), limits=chosen, page=page, has_log=has_log
    )
    is_open = threading.Event()
    loops = []

    def note() -> None:
        loops.append(asyncio.get_running_loop())
        is_open.set()

    server = Server(application, listener, limits=chosen, on_started=note)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.serve_to_end)
    thread.start()
    assert is_open.wait(30)
    try:
        yield Served(server, application, port, loops[0], str(address))
    finally:
        with contextlib.suppress(RuntimeError):  # a test has ended it
            loops[0].call_soon_threadsafe(server.drain)
        thread.join()
