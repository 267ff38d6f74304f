"""The process that serves an application: its port, stalled connections, its end.

After SIGTERM or Ctrl-C new connections are refused, open requests are answered within a limit, and
the exit code is 0. After a second signal open requests are refused.
"""

import asyncio
import contextlib
import fcntl
import ipaddress
import signal
import socket
import sys
import termios
import threading
from collections.abc import Callable, Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bert_tf.errors import InputError
from bert_tf.http.application import Application
from bert_tf.http.bodies import SECONDS_TO_STALL
from bert_tf.http.callers import Address
from bert_tf.http.options import Limits

SECONDS_TO_REFUSE = 2  # for the answers to requests that are refused at the end


class Connection(H11Protocol):
    """A connection that ends if its client stalls while it sends headers or reads an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Notes when the connection began."""
        super().connection_made(transport)
        self._stalls_at: object = None
        self._stalls_since = self.loop.time()

    def end_if_stalled(self) -> None:
        """Ends the connection if the client has made no progress for SECONDS_TO_STALL."""
        place = self._place()
        now = self.loop.time()
        if place is None or place != self._stalls_at:
            self._stalls_at = place
            self._stalls_since = now
        elif now - self._stalls_since > SECONDS_TO_STALL:
            self.transport.abort()

    def _place(self) -> object:
        """How far the client has come in what it has to do; None if the server has to act."""
        if self.transport.get_write_buffer_size():
            return "reads", self._unread()
        if self.cycle is None:
            return "sends", None
        # Between two requests uvicorn has its own timer, until the client sends something.
        has_begun = self.cycle.response_complete and self.timeout_keep_alive_task is None
        return ("sends", self.cycle) if has_begun else None

    def _unread(self) -> tuple[int, ...]:
        """The bytes that the client has not read: those in this process, and in the system."""
        connection = self.transport.get_extra_info("socket")
        of_system = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        return self.transport.get_write_buffer_size(), int.from_bytes(of_system, sys.byteorder)

    def send_400_response(self, msg: str) -> None:
        """Tells a client that its request is malformed, unless it has an answer already."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()


class Server(uvicorn.Server):
    """Serves an application on a socket, until a signal or `drain`."""

    def __init__(
        self,
        application: Application,
        listener: socket.socket,
        *,
        limits: Limits | None = None,
        on_started: Callable[[], None] = lambda: None,
    ):
        """Configures uvicorn.

        Args:
          application: answers requests.
          listener: a bound socket, as from `bound`.
          limits: on connections and on the time to shut down; None: the defaults.
          on_started: is called once the port is open.
        """
        self._limits = limits or Limits()
        self._application = application
        self._listener = listener
        self._on_started = on_started
        config = uvicorn.Config(
            application,
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # mistakes of clients are not logged
            access_log=False,
            proxy_headers=False,  # any client could forge them
            server_header=False,
            timeout_keep_alive=self._limits.keep_alive_seconds,
            timeout_graceful_shutdown=self._limits.drain_seconds + SECONDS_TO_REFUSE,
        )
        super().__init__(config)

    def serve_to_end(self) -> None:
        """Serves until the end.

        Raises:
          InputError: another process has the port.
        """
        try:
            self.run([self._listener])
        except OSError as error:
            if self.started:
                raise
            raise refused_address(*self._listener.getsockname()[:2], error) from None
        finally:
            self._listener.close()
            self._application.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the port."""
        await super().startup(sockets)
        self._watching = asyncio.create_task(self._end_stalled())
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the server once all requests are answered."""
        await super().shutdown(sockets)
        self._watching.cancel()

    async def _end_stalled(self) -> None:
        """Checks the connections once a second."""
        while True:
            await asyncio.sleep(1)
            for connection in [*self.server_state.connections]:
                connection.end_if_stalled()  # type: ignore[union-attr]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drains at signals; uvicorn's own handlers would raise them again at the end."""
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    loop.add_signal_handler(number, self.drain)
        yield

    def drain(self) -> None:
        """Begins to end; the second call refuses open requests. Call it in the server's loop."""
        loop = asyncio.get_running_loop()
        if self.should_exit:
            self._application.give_up()
            loop.call_later(SECONDS_TO_REFUSE, setattr, self, "force_exit", True)
        self.should_exit = True
        self._application.is_draining = True
        loop.call_later(self._limits.drain_seconds, self._application.give_up)


def bound(host: str, port: int) -> tuple[socket.socket, Address]:
    """A socket that is bound to a port and does not listen yet, and its address.

    Args:
      host: an address of this machine.
      port: 0 for any free one.

    Raises:
      InputError: the host is no address of this machine, or the port is taken.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        expected = "an IP address of this machine, such as 127.0.0.1 or ::1; 0.0.0.0: all"
        raise InputError(f"--host={host}", expected, "correct or leave out --host") from None
    address = getattr(address, "ipv4_mapped", None) or address
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listener = None
    try:
        # Only where the protocol is named does asyncio send small packets at once (TCP_NODELAY).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after a restart
        listener.bind((str(address), port))
    except (OSError, OverflowError) as error:
        if listener:
            listener.close()
        raise refused_address(host, port, error) from None
    return listener, address


def refused_address(host: str, port: int, error: Exception) -> InputError:
    """The error for an address and port that cannot be bound."""
    received = f"--host={host} with port {port} ({error})"
    expected = "an address of this machine and a free port"
    return InputError(received, expected, "give another --port; 0: any free one")


def url_of(listener: socket.socket, address: Address) -> str:
    """The URL of the root of a server on a socket."""
    shown = f"[{address}]" if address.version == 6 else str(address)
    return f"http://{shown}:{listener.getsockname()[1]}/"
