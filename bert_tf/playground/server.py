"""The HTTP server of one model: its page, and TensorFlow Serving's REST interface (rest.py).

It listens on a loopback address unless told otherwise; the page is shown there alone. Other sites'
pages in the same browser cannot use it there: the Host header must name this server (against DNS
rebinding), the Origin must be this page, and what the page sends must be JSON, for which a browser
first sends a preflight request, which is refused.
"""

import http.server
import importlib.resources
import ipaddress
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from absl import logging

from bert_tf.errors import InputError
from bert_tf.playground.api import Playground
from bert_tf.playground.rest import HttpError, RestModel

MOST_BYTES_OF_BODY, MOST_BYTES_OF_REST = 1 << 20, 64 << 20
SECONDS_TO_WAIT = 20  # for the other end to send or to read
JSON_TYPE = "application/json; charset=utf-8"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_VIEWS = {"/api/answer": "answer", "/api/attention": "attention"}  # methods of `Playground`
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(http.server.ThreadingHTTPServer):
    """Serves the page and the API of one model; the page's requests run one at a time.

    Attributes:
      rest, playground: the model's REST interface and page; set before requests are answered.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that wait to be accepted
    rest: RestModel
    playground: Playground

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0):
        """Begins to listen.

        Args:
          host: an address of this machine; only on a loopback address the page is shown.
          port: 0 for any that is free.

        Raises:
          InputError: this is no such address, or the port is taken.
        """
        try:
            address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError:
            expected = "an IP address of this machine, such as 127.0.0.1 or ::1; 0.0.0.0: all"
            raise InputError(f"--host={host}", expected, "correct or leave out --host") from None
        self.has_page = address.is_loopback
        self.address_family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        self.model_lock = threading.Lock()
        try:
            super().__init__((str(address), port), Handler)
        except (OSError, OverflowError) as error:
            received = f"--host={host} with port {port} ({error})"
            expected = "an address of this machine and a free port"
            raise InputError(received, expected, "give another --port; 0: any free one") from None
        shown = f"[{address}]" if address.version == 6 else str(address)
        port = self.server_address[1]
        self.url = f"http://{shown}:{port}/"
        # The Host headers of requests to this server; browsers leave out port 80.
        names = (shown, "localhost")
        self.hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    def handle_error(self, *_: Any) -> None:
        """Keeps broken connections out of the log."""
        logging.debug("A connection ended early.", exc_info=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bert_tf", ""
    timeout = SECONDS_TO_WAIT
    # Else all but an answer's first bytes wait 40 ms for the client.
    wbufsize, disable_nagle_algorithm = -1, True

    def handle_expect_100(self) -> bool:
        """Tells a client that waits for it to send its body."""
        is_expected = super().handle_expect_100()
        self.wfile.flush()
        return is_expected

    def do_GET(self) -> None:
        """The page and its files, and the description of the model."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # its body is not read, and is no request
        self._respond(self._get)

    def do_POST(self) -> None:
        """Answers and attention."""
        self._respond(self._post)

    def _get(self) -> tuple[bytes, str]:
        if self.path.lower().startswith("/v1/"):
            return _json(self.server.rest.get(self.path)), "application/json"
        if not self.server.has_page:
            raise HttpError(404, "there is nothing here")
        if self.path == "/api/model":
            return _json(self.server.playground.describe()), JSON_TYPE
        if self.path not in _FILES:
            raise HttpError(404, "there is nothing here")
        name, kind = _FILES[self.path]
        return importlib.resources.files(__package__).joinpath(name).read_bytes(), kind

    def _post(self) -> tuple[bytes, str]:
        is_rest = self.path.lower().startswith("/v1/")
        if not is_rest and not (self.server.has_page and self.path in _VIEWS):
            raise HttpError(404, "there is nothing here")
        kind, length = self.headers.get_content_type(), self.headers.get("Content-Length", "")
        most = MOST_BYTES_OF_REST if is_rest else MOST_BYTES_OF_BODY
        if kind != "application/json" and not is_rest:
            raise HttpError(415, f"received {kind}, expected application/json")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            raise HttpError(411, "expected a Content-Length")
        if len(length) > 12 or int(length) > most:
            raise HttpError(413, f"received {length} bytes, expected at most {most}")
        body = self.rfile.read(int(length))
        if is_rest:
            return _json(self.server.rest.post(self.path, body)), "application/json"
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"expected JSON ({error})") from None
        if not isinstance(request, dict):
            raise HttpError(400, "expected a JSON object")
        with self.server.model_lock:
            view = getattr(self.server.playground, _VIEWS[self.path])
            return _json(view(request)), JSON_TYPE

    def _respond(self, make: Callable[[], tuple[bytes, str]]) -> None:
        status, error = 200, None
        try:
            # Refuses requests of other sites' pages.
            origin = self.headers.get("Origin")
            if self.server.has_page and self.headers.get("Host") not in self.server.hosts:
                raise HttpError(421, f"this server is {self.server.url}")
            is_own = origin is None or origin.removeprefix("http://") in self.server.hosts
            if self.server.has_page and not is_own:
                raise HttpError(403, f"only the page of {self.server.url} may ask")
            body, kind = make()
        except HttpError as refusal:
            status, error = refusal.status, refusal
        except InputError as refusal:
            status, error = 400, refusal
        except TimeoutError:
            status, error = 408, "the request did not arrive"
        except Exception:  # one failed request must not end the server
            logging.exception("A request failed.")
            status, error = 500, "failed; see the log"
        if error:
            body, kind = _json({"error": str(error)}), JSON_TYPE
            # The next request would begin with the rest of a body that was not read.
            self.close_connection = True
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (as http.server has it)
        """Only for those who want to see it: --verbosity=1."""
        logging.debug(format, *args)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
