"""Reads the body of a request within limits; deadlines."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bert_tf.http.options import Limits

SECONDS_TO_STALL = 20  # in which a client must send or read something
GZIP = 31  # zlib's number for this format, `wbits`


class Deadlines:
    """Deadlines of blocks of code; at the end of the process all of them pass at once."""

    def __init__(self) -> None:
        self._running: set[asyncio.Timeout] = set()
        self._is_over = False

    @contextlib.asynccontextmanager
    async def within(self, seconds: float, status: int, says: str) -> AsyncIterator[None]:
        """Limits the time of a block.

        Args:
          seconds: until the deadline.
          status: the status of the refusal.
          says: its message.

        Raises:
          HTTPException: with this status and message, or 503 at the end of the process.
        """
        try:
            async with asyncio.timeout(0 if self._is_over else seconds) as deadline:
                self._running.add(deadline)
                try:
                    yield
                finally:
                    self._running.discard(deadline)
        except TimeoutError:
            if self._is_over:
                raise unavailable("the server ends") from None
            raise HTTPException(status, says) from None

    def end(self) -> None:
        """Ends all blocks with 503, those too that begin later. Call it in the server's loop."""
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for deadline in self._running:
            if not deadline.expired():
                deadline.reschedule(now)


def unavailable(says: str) -> HTTPException:
    """The refusal of a request that the client may send again."""
    return HTTPException(503, says, headers={"Retry-After": "1"})


async def read_body(request: Request, limits: Limits, deadlines: Deadlines) -> bytes:
    """Reads the body of a request, and unpacks gzip.

    Raises:
      HTTPException: 408 after a deadline, 413 for too many bytes, 415 for another coding than gzip,
        400 for gzip that is damaged.
      ClientDisconnect: the client has left.
    """
    most = limits.max_body_bytes
    too_long = HTTPException(413, f"a body of more than {most:,} bytes")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise HTTPException(415, f"a body in {coding}, expected gzip or none")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_long
    unpacker = None if coding == "identity" else zlib.decompressobj(GZIP)
    parts = []
    received = 0
    size = 0
    stream = request.stream()
    async with deadlines.within(limits.timeout_seconds, 408, "the request did not end"):
        while True:
            async with deadlines.within(SECONDS_TO_STALL, 408, "the request did not arrive"):
                part = await anext(stream, b"")
            if not part:
                break
            received += len(part)
            if unpacker:
                part = _unpacked(unpacker, part, most - size + 1)
            size += len(part)
            if max(received, size) > most:
                raise too_long
            parts.append(part)
    if unpacker and not unpacker.eof:
        raise HTTPException(400, "a gzip body that ends too early")
    return b"".join(parts)


def _unpacked(unpacker: Any, part: bytes, most: int) -> bytes:
    """The next bytes of a gzip body, at most `most`."""
    try:
        content = unpacker.decompress(part, most)
    except zlib.error as error:
        raise HTTPException(400, f"a body that is not gzip ({error})") from None
    if unpacker.unused_data:
        raise HTTPException(400, "a gzip body with something behind it")
    return content
