"""The application of one model: its paths, limits and errors.

/healthz                  the process lives
/readyz                   it answers: 503 while it ends
/metrics                  for Prometheus
/v1/models/NAME...        TensorFlow Serving's REST interface (rest.py)
/, /api/...               the page, on a loopback address (page.py)

Errors are {"error": message}. A fault of the server's is 500: the log has its place, the answer has
none of it.
"""

import asyncio
import contextlib
import importlib.resources
import json
import time
import traceback
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from bert_tf.errors import InputError, printable, shortened
from bert_tf.http.callers import Callers
from bert_tf.http.metrics import CONTENT_TYPE, Metrics
from bert_tf.http.options import Limits
from bert_tf.http.page import Page
from bert_tf.http.rest import RestModel
from bert_tf.serving.batching import Arrays, BusyError, Turns
from bert_tf.serving.export import arrays_of
from bert_tf.serving.options import DEFAULT
from bert_tf.serving.predictor import ServedModel

SECONDS_TO_STALL = 20  # in which a client sends or reads something
PROBES = ("/healthz", "/readyz", "/metrics")  # for every caller, and not counted
GZIP = 31  # zlib's window bits of the format
MOST_SHOWN = 200  # characters of a path in the log
LEFT = 499  # the status of requests whose client has left
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


class Application:
    """Answers the requests about one model, by ASGI.

    Attributes:
      is_draining: whether the process is to end; set by the server.
    """

    def __init__(
        self,
        model: ServedModel,
        name: str,
        *,
        callers: Callers,
        limits: Limits | None = None,
        page: Page | None = None,
        has_log: bool = False,
    ):
        """Takes a model, and the name that it has in paths.

        Args:
          model: answers.
          name: of it, in paths.
          callers: who may ask.
          limits: of requests; None: the defaults.
          page: what the root shows; None: there is none.
          has_log: whether each request is logged.
        """
        self.is_draining = False
        self._rest = RestModel(model, name)
        self._page = page
        self._callers = callers
        self._limits = limits or Limits()
        self._has_log = has_log
        self._turns = Turns(
            model,
            most_waiting=self._limits.max_waiting,
            observe=lambda rows: self.metrics.batch_rows.observe(rows),
        )
        self.metrics = Metrics(model, lambda: self._turns.num_waiting)
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_over = False
        handlers = {
            HTTPException: _refused,
            InputError: _wrong,
            ClientDisconnect: _left,
            Exception: _failed,
        }
        self._asgi = Starlette(routes=self._routes(), exception_handlers=handlers)
        self._asgi.router.redirect_slashes = False

    def _routes(self) -> list[Route]:
        """The paths."""
        views: list[tuple[str, list[str], View]] = [
            ("/v1/{path:path}", ["GET", "POST"], self._rest_request)
        ]
        if self._page:
            views += [(path, ["GET"], _file) for path in _FILES]
            views += [
                ("/api/model", ["GET"], self._describe),
                ("/api/answer", ["POST"], self._answer),
                ("/api/attention", ["POST"], self._attention),
            ]
        return [
            Route("/healthz", self._health),
            Route("/readyz", self._readiness),
            Route("/metrics", self._metrics),
            *(Route(path, self._guarded(view), methods=methods) for path, methods, view in views),
        ]

    def _guarded(self, view: "View") -> "View":
        """The view, for those who may ask."""

        async def guarded(request: Request) -> Response:
            self._callers.check(request.headers)
            return await view(request)

        return guarded

    def give_up(self) -> None:
        """Ends what is not answered yet, with 503."""
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def close(self) -> None:
        """Ends the thread that computes."""
        self._turns.close()

    # ------------------------------------------------------------------------ every request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; counts and logs it."""
        begin = time.perf_counter()
        status = LEFT

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ends = [(b"connection", b"close")] * self.is_draining
                message["headers"] = [*message["headers"], *_HEADERS, *ends]
            await send(message)

        if scope["path"][:4].lower() == "/v1/":  # which TensorFlow Serving takes in any case
            scope["path"] = f"/v1/{scope['path'][4:]}"
        try:
            await self._asgi(scope, receive, send_noted)
        except Exception as error:  # it has been answered by `_failed`
            lines = "".join(traceback.format_exception(error))
            logging.error("A request failed.\n%s", printable(lines, besides="\n"))
        seconds = time.perf_counter() - begin
        if scope["path"] not in PROBES:
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(seconds)
            if self._has_log:
                _log(scope, status, seconds)

    # ------------------------------------------------------------------------ for an operator

    async def _health(self, _: Request) -> Response:
        """Whether the process computes, or would."""
        is_alive = self._turns.is_alive
        return PlainTextResponse("ok\n" if is_alive else "ended\n", 200 if is_alive else 500)

    async def _readiness(self, _: Request) -> Response:
        """Whether requests should be sent here."""
        if self.is_draining or not self._turns.is_alive:
            return PlainTextResponse("ends\n", 503)
        return PlainTextResponse("ready\n")

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self.metrics.text), media_type=CONTENT_TYPE)

    # ------------------------------------------------------------------------ REST

    async def _rest_request(self, request: Request) -> Response:
        """What TensorFlow Serving would answer."""
        path = request.scope["raw_path"].decode("ascii", "backslashreplace")
        if request.method != "POST":
            return _json_response(await run_in_threadpool(self._rest.get, path))
        body = await self._body(request)
        question = await run_in_threadpool(self._rest.question, path, body)
        if question.num_rows > self._limits.max_rows:
            says = f"{question.num_rows:,} rows, expected at most {self._limits.max_rows:,}"
            raise HTTPException(413, says)
        outputs = await self._computed(request, question.arrays, question.signature)
        content = await run_in_threadpool(lambda: _json(question.reply(outputs)))
        is_due = self.metrics.note_answered(question.arrays, question.signature)
        counting = BackgroundTask(self.metrics.count_tokens) if is_due else None
        return Response(content, media_type="application/json", background=counting)

    async def _computed(self, request: Request, arrays: Arrays, signature: str) -> Arrays:
        """The answers to arrays, unless the client leaves before."""
        limit = self._limits.timeout_seconds
        async with self._within(limit, 504, f"there was no answer within {limit} s"):
            try:
                answers = asyncio.wrap_future(self._turns.ask(arrays, signature))
                left = asyncio.ensure_future(request.receive())
                try:
                    await asyncio.wait({answers, left}, return_when=asyncio.FIRST_COMPLETED)
                    if not answers.done():
                        raise ClientDisconnect
                    return answers.result()
                finally:
                    answers.cancel()
                    left.cancel()
            except BusyError:
                says = "the server ends" if self.is_draining else "too many requests wait"
                raise _unavailable(says) from None
            except tf.errors.InvalidArgumentError as error:
                if not (refusal := _refusal_of(error)):
                    raise
                raise HTTPException(400, refusal) from None
            except InputError as error:  # of what it was started with, not of the request
                raise RuntimeError(str(error)) from error

    # ------------------------------------------------------------------------ the page

    async def _describe(self, _: Request) -> Response:
        return _json_response(self._page.describe())

    async def _answer(self, request: Request) -> Response:
        row = await run_in_threadpool(self._page.row, await self._object(request))
        begin = time.perf_counter()
        outputs = await self._computed(request, arrays_of([row]), DEFAULT)
        seconds = time.perf_counter() - begin
        told = await run_in_threadpool(self._page.answer, row, outputs)
        return _json_response(told | {"milliseconds": round(seconds * 1000, 1)})

    async def _attention(self, request: Request) -> Response:
        asked = await self._object(request)
        return _json_response(await run_in_threadpool(self._page.attention, asked))

    # ------------------------------------------------------------------------ bodies and times

    async def _object(self, request: Request) -> Mapping[str, Any]:
        """The JSON object that the page sends: with a type for which a browser asks first."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, f"received {kind or 'no type'}, expected application/json")
        try:
            content = json.loads(await self._body(request))
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"expected JSON ({error})") from None
        if not isinstance(content, dict):
            raise HTTPException(400, "expected a JSON object")
        return content

    async def _body(self, request: Request) -> bytes:
        """The body of a request, unpacked."""
        most = self._limits.max_body_bytes
        too_long = HTTPException(413, f"a body of more than {most:,} bytes")
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "x-gzip"):
            raise HTTPException(415, f"a body in {coding}, expected gzip or none")
        unpacker = None if coding == "identity" else zlib.decompressobj(GZIP)
        if int(request.headers.get("content-length", 0)) > most:
            raise too_long
        parts = []
        size = 0
        stream = request.stream()
        while True:
            async with self._within(SECONDS_TO_STALL, 408, "the request did not arrive"):
                part = await anext(stream, b"")
            if not part:
                break
            if unpacker:
                part = _unpacked(unpacker, part, most - size + 1)
            size += len(part)
            if size > most:
                raise too_long
            parts.append(part)
        if unpacker and (not unpacker.eof or unpacker.unused_data):
            raise HTTPException(400, "a gzip body that does not end where the request ends")
        return b"".join(parts)

    @contextlib.asynccontextmanager
    async def _within(self, seconds: float, status: int, says: str) -> AsyncIterator[None]:
        """What takes longer is refused; so is, at the end of the process, what is not done yet."""
        try:
            async with asyncio.timeout(0 if self._is_over else seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    yield
                finally:
                    self._deadlines.discard(deadline)
        except TimeoutError:
            if self._is_over:
                raise _unavailable("the server ends") from None
            raise HTTPException(status, says) from None


View = Callable[[Request], Awaitable[Response]]


async def _file(request: Request) -> Response:
    """A file of the page."""
    name, kind = _FILES[request.url.path]
    content = importlib.resources.files(__package__).joinpath(name).read_bytes()
    return Response(content, media_type=kind)


def _unpacked(unpacker: Any, part: bytes, most: int) -> bytes:
    """The next bytes of a gzip body, so many at most."""
    try:
        return unpacker.decompress(part, most)
    except zlib.error as error:
        raise HTTPException(400, f"a body that is not gzip ({error})") from None


# ---------------------------------------------------------------------------- errors, answers


def _unavailable(says: str) -> HTTPException:
    return HTTPException(503, says, headers={"Retry-After": "1"})


def _refusal_of(error: tf.errors.InvalidArgumentError) -> str:
    """What a signature says of a request that does not fit it; "" if it is another error."""
    text = str(error)
    begin = text.find("assertion failed: [")
    return text[begin:].splitlines()[0] if begin >= 0 else ""


async def _refused(_: Request, error: HTTPException) -> Response:
    """A request that cannot be answered, by its HTTPException."""
    return _json_response({"error": error.detail}, error.status_code, error.headers)


async def _wrong(_: Request, error: Exception) -> Response:
    """A request of the page that says something wrong."""
    return _json_response({"error": str(error)}, 400)


async def _left(_: Request, __: Exception) -> Response:
    """Nobody reads this answer but the log."""
    return Response(status_code=LEFT)


async def _failed(_: Request, __: Exception) -> Response:
    """A fault of the server's; it is logged where it ends."""
    return _json_response({"error": "the server failed; its log says where"}, 500)


def _json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(_json(content), status, headers, media_type="application/json")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _log(scope: Scope, status: int, seconds: float) -> None:
    """A line of the access log."""
    client, *_ = scope.get("client") or ("-",)
    path = printable(scope["raw_path"].decode("ascii", "backslashreplace"))
    what = f"{scope['method']} {shortened(path, MOST_SHOWN)}"
    logging.info('%s "%s" %d %.1f ms', client, what, status, seconds * 1000)
