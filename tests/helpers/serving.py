"""A server of a model in this process, and requests to it, whole or as bytes."""

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
    """The answer to a request."""

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
    """A running server and its port."""

    server: Server
    application: Application
    port: int
    loop: asyncio.AbstractEventLoop
    host: str

    def ask(
        self, path: str = PREDICT, body: Any = None, method: str = "", **headers: Any
    ) -> Answer:
        """Sends a request; returns the answer.

        Args:
          path: the path of the URL.
          body: bytes, or a value to send as JSON; None: no body.
          method: the HTTP method; "": GET without a body, POST with one.
          **headers: headers to change or add, with _ for -. None: the header is left out.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent_headers = {"Host": f"localhost:{self.port}"}
        if content is not None:
            sent_headers["Content-Type"] = "application/json"
            sent_headers["Content-Length"] = str(len(content))
        sent_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            method = method or ("GET" if content is None else "POST")
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent_headers.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())

    def connect(self) -> socket.socket:
        """A connection over which a test sends bytes."""
        return socket.create_connection((self.host, self.port), timeout=30)

    def send(self, *parts: bytes) -> bytes:
        """Sends bytes; returns all bytes until the server closes the connection."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            return all_of(connection)


def answer_to(connection: socket.socket, content: bytes) -> int:
    """Sends bytes and reads one answer; returns its status. The connection stays open."""
    connection.sendall(content)
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def all_of(connection: socket.socket) -> bytes:
    """All bytes until the other end closes the connection."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def head(method: str, path: str, *lines: str) -> bytes:
    """The bytes of a request up to its body."""
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
    """Serves a model under a name, on a free port.

    Args:
      model: the model.
      name: its name in paths.
      host: the address to listen on.
      allowed: further hosts, as in `Callers`.
      page: the page, if any.
      has_log: whether requests are logged.
      **limits: fields of `Limits`.
    """
    listener, address = bound(host, 0)
    server_limits = Limits(**limits)
    application = Application(
        model,
        name,
        callers=Callers(address, allowed),
        limits=server_limits,
        page=page,
        has_log=has_log,
    )
    is_open = threading.Event()
    loops = []

    def note() -> None:
        loops.append(asyncio.get_running_loop())
        is_open.set()

    server = Server(application, listener, limits=server_limits, on_started=note)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.serve_to_end)
    thread.start()
    assert is_open.wait(30)
    try:
        yield Served(server, application, port, loops[0], str(address))
    finally:
        with contextlib.suppress(RuntimeError):  # if the test has ended the server already
            loops[0].call_soon_threadsafe(server.drain)
        thread.join()
