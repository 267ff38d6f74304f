"""The application of one model: its paths, limits and errors.

    /healthz              200 while the process computes
    /readyz               200 while the process takes requests, 503 while it ends
    /metrics              for Prometheus
    /v1/models/NAME...    TensorFlow Serving's REST interface (rest.py)
    /, /api/...           the page, on a loopback address (page.py)

Errors are {"error": message}. A fault of the server is 500: the log shows where, the answer shows
nothing of it.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import importlib.resources
import json
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
from bert_tf.http.bodies import Deadlines, read_body, unavailable
from bert_tf.http.callers import Callers
from bert_tf.http.metrics import CONTENT_TYPE, Metrics
from bert_tf.http.options import Limits
from bert_tf.http.page import Page
from bert_tf.http.rest import Question, RestModel
from bert_tf.runtime import release_memory
from bert_tf.serving.batching import Arrays, ClosedError, Turns
from bert_tf.serving.export import arrays_of
from bert_tf.serving.options import DEFAULT
from bert_tf.serving.predictor import ServedModel

PROBES = ("/healthz", "/readyz", "/metrics")  # open to every caller, and not counted
SECONDS_TO_TRIM = 1  # without requests, until freed memory is given back to the system
MOST_SHOWN = 200  # characters of a path in the log
LEFT = 499  # the status of requests whose client has left
_HEADERS = [  # of every answer
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


class Application:
    """An ASGI application that answers the requests about one model.

    Attributes:
      is_draining: whether the process is about to end; set by the server.
      metrics: counts of requests.
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
        """Starts the thread that computes.

        Args:
          model: computes the answers.
          name: the name of the model, in paths.
          callers: the callers that are answered.
          limits: the limits of requests; None: the defaults.
          page: is shown at the root; None: there is no page.
          has_log: whether each request is logged.
        """
        self.is_draining = False
        self._rest = RestModel(model, name)
        self._page = page
        self._callers = callers
        self._limits = limits or Limits()
        self._has_log = has_log
        self._num_open = 0  # requests that are read, wait or are computed
        self._trimming: asyncio.TimerHandle | None = None  # the timer after the last one
        self.metrics = Metrics(model, lambda: self._num_open)
        self._turns = Turns(model, observe=self.metrics.batch_rows.observe)
        self._deadlines = Deadlines()
        self._attention_lock = asyncio.Lock()
        handlers = {HTTPException: _refused, ClientDisconnect: _left, Exception: _failed}
        self._asgi = Starlette(routes=self._routes(), exception_handlers=handlers)
        self._asgi.router.redirect_slashes = False

    def _routes(self) -> list[Route]:
        """The paths with their views."""
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
            Route("/metrics", self._measures),
            *(Route(path, self._guarded(view), methods=methods) for path, methods, view in views),
        ]

    def _guarded(self, view: "View") -> "View":
        """The view, which then refuses other callers."""

        async def guarded(request: Request) -> Response:
            self._callers.check(request.headers)
            return await view(request)

        return guarded

    def give_up(self) -> None:
        """Answers all open requests with 503."""
        self._deadlines.end()

    def close(self) -> None:
        """Ends the thread that computes."""
        self._turns.close()

    # ------------------------------------------------------------------------ every request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; counts and logs it."""
        begin = end = time.perf_counter()
        status = LEFT

        async def send_and_note(message: Message) -> None:
            nonlocal status, end
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
                if self.is_draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)
            end = time.perf_counter()

        if scope["path"][:4].lower() == "/v1/":  # TensorFlow Serving ignores upper and lower case
            scope["path"] = f"/v1/{scope['path'][4:]}"
        try:
            await self._asgi(scope, receive, send_and_note)
        except Exception as error:  # `_failed` has answered the request
            lines = "".join(traceback.format_exception(error))
            logging.error("A request failed.\n%s", printable(lines, besides="\n"))
        if scope["path"] not in PROBES:
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(end - begin)
            if self._has_log:
                _log(scope, status, end - begin)

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[None]:
        """Counts a request with a body as open; refuses it if there are too many."""
        if self._num_open >= self._limits.max_waiting:
            raise unavailable("too many requests wait")
        self._num_open += 1
        if self._trimming:
            self._trimming.cancel()
        try:
            yield
        finally:
            self._num_open -= 1
            if not self._num_open:
                loop = asyncio.get_running_loop()
                trim = functools.partial(loop.run_in_executor, None, release_memory)
                self._trimming = loop.call_later(SECONDS_TO_TRIM, trim)

    # ------------------------------------------------------------------------ for an operator

    async def _health(self, _: Request) -> Response:
        """Whether the thread that computes is alive."""
        is_alive = self._turns.is_alive
        return PlainTextResponse("ok\n" if is_alive else "ended\n", 200 if is_alive else 500)

    async def _readiness(self, _: Request) -> Response:
        """Whether the process takes requests."""
        if self.is_draining or not self._turns.is_alive:
            return PlainTextResponse("ends\n", 503)
        return PlainTextResponse("ready\n")

    async def _measures(self, _: Request) -> Response:
        """The metrics."""
        return Response(await run_in_threadpool(self.metrics.text), media_type=CONTENT_TYPE)

    # ------------------------------------------------------------------------ REST

    async def _rest_request(self, request: Request) -> Response:
        """The answer that TensorFlow Serving would give."""
        path = request.scope["raw_path"].decode("ascii", "backslashreplace")
        if request.method != "POST":
            return _json_response(await run_in_threadpool(self._rest.get, path))
        with self._admitted():
            body = await read_body(request, self._limits, self._deadlines)
            question = await run_in_threadpool(self._question, path, body)
            outputs = await self._computed(request, question.arrays, question.signature)
            return await run_in_threadpool(self._reply, question, outputs)

    def _question(self, path: str, body: bytes) -> Question:
        """The question of a request; refuses too many rows."""
        question = self._rest.question(path, body)
        if question.num_rows > self._limits.max_rows:
            says = f"{question.num_rows:,} rows, expected at most {self._limits.max_rows:,}"
            raise HTTPException(413, says)
        return question

    def _reply(self, question: Question, outputs: Arrays) -> Response:
        """The answer; once in a while tokens are counted after it is sent."""
        is_due = self.metrics.note_answered(question.arrays, question.signature)
        counting = BackgroundTask(self.metrics.count_tokens) if is_due else None
        content = _json(question.reply(outputs))
        return Response(content, media_type="application/json", background=counting)

    async def _computed(self, request: Request, arrays: Arrays, signature: str) -> Arrays:
        """The answers to arrays.

        Raises:
          HTTPException: 400 if the signature refuses them, 503 at the end of the process, or 504
            after the deadline.
          ClientDisconnect: the client has left.
        """
        limit = self._limits.timeout_seconds
        async with self._deadlines.within(limit, 504, f"there was no answer within {limit} s"):
            try:
                answers = await run_in_threadpool(self._turns.ask, arrays, signature)
                return await _unless_left(request, answers)
            except ClosedError:
                raise unavailable("the server ends") from None
            except tf.errors.InvalidArgumentError as error:
                if (refusal := _refusal_of(error)) is None:
                    raise
                raise HTTPException(400, refusal) from None

    # ------------------------------------------------------------------------ the page

    async def _describe(self, _: Request) -> Response:
        """The model's task, texts and sizes."""
        return _json_response(self._page.describe())

    async def _answer(self, request: Request) -> Response:
        """The answer to texts, and how long it took."""
        with self._admitted():
            row = await _of_page(self._page.row, await self._object(request))
            begin = time.perf_counter()
            outputs = await self._computed(request, arrays_of([row]), DEFAULT)
            seconds = time.perf_counter() - begin
            answer = await _of_page(self._page.answer, row, outputs)
        return _json_response(answer | {"milliseconds": round(seconds * 1000, 1)})

    async def _attention(self, request: Request) -> Response:
        """A layer's attention, computed one request at a time, beside the thread that answers."""
        limit = self._limits.timeout_seconds
        with self._admitted():
            content = await self._object(request)
            deadline = self._deadlines.within(limit, 504, f"not within {limit} s")
            async with deadline, self._attention_lock:
                return _json_response(await _of_page(self._page.attention, content))

    async def _object(self, request: Request) -> Mapping[str, Any]:
        """The JSON object of a request of the page.

        Its content type must be application/json: from a page of another site, a browser sends that
        only after it has asked this server.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, f"received {kind or 'no type'}, expected application/json")
        try:
            content = json.loads(await read_body(request, self._limits, self._deadlines))
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"expected JSON ({error})") from None
        if not isinstance(content, dict):
            raise HTTPException(400, "expected a JSON object")
        return content


View = Callable[[Request], Awaitable[Response]]


async def _file(request: Request) -> Response:
    """A file of the page."""
    name, kind = _FILES[request.url.path]
    content = importlib.resources.files(__package__).joinpath(name).read_bytes()
    return Response(content, media_type=kind)


async def _unless_left(request: Request, future: concurrent.futures.Future[Arrays]) -> Arrays:
    """The answers of a future, which is cancelled if the client leaves or the deadline passes.

    Raises:
      ClientDisconnect: the client has left.
    """
    answers = asyncio.wrap_future(future)
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answers, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answers.done():
            raise ClientDisconnect
        return answers.result()
    finally:
        future.cancel()  # not `answers`, which would pass it on only later, in the event loop
        leaving.cancel()


async def _of_page(view: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a method of the page; its `InputError` becomes the status 400."""
    try:
        return await run_in_threadpool(view, *arguments)
    except InputError as error:
        raise HTTPException(400, str(error)) from None


# ---------------------------------------------------------------------------- errors, answers


_REFUSALS = re.compile(r"assertion failed: \[.*|Could not parse example input")


def _refusal_of(error: tf.errors.InvalidArgumentError) -> str | None:
    """The message of a signature that refuses a request; None if this is another error."""
    refusal = _REFUSALS.search(str(error))
    return refusal[0] if refusal else None


async def _refused(_: Request, error: HTTPException) -> Response:
    """The answer for an HTTPException."""
    detail = printable(error.detail, besides="\n")
    return _json_response({"error": detail}, error.status_code, error.headers)


async def _left(_: Request, __: Exception) -> Response:
    """The answer after the client has left: only the log shows its status."""
    return Response(status_code=LEFT)


async def _failed(_: Request, __: Exception) -> Response:
    """The answer for a fault of the server, which `__call__` logs."""
    return _json_response({"error": "the server failed; its log says where"}, 500)


def _json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(_json(content), status, headers, media_type="application/json")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Writes a line of the access log."""
    client, *_ = scope.get("client") or ("-",)
    path = printable(scope["raw_path"].decode("ascii", "backslashreplace"))
    what = f"{scope['method']} {shortened(path, MOST_SHOWN)}"
    logging.info('%s "%s" %d %.1f ms', client, what, status, seconds * 1000)
