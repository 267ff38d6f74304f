"""Serves a model by TensorFlow Serving's REST interface, and shows a page.

    bert-tf serve models/topics
    curl -d '{"instances": ["Rain in May"]}' http://localhost:8501/v1/models/topics:predict

Takes an export of `bert-tf export`, or a folder with weights. Requests that come while the model
runs are answered together. There is no log-in and no TLS: put a proxy before it. Needs the extra
`serve`.
"""

import functools
import sys
import urllib.parse

from bert_tf.http.options import Limits
from bert_tf.options import Options, option
from bert_tf.serving.options import WeightsOptions

PACKAGES = ("starlette", "uvicorn", "prometheus-client")


class Serve(Options):
    """The options of this command."""

    path: str = option("an export, or a folder with weights", words="PATH")
    name: str | None = option(
        "The model's name in paths, /v1/models/NAME; default: that of its folder.", default=None
    )
    host: str = option(
        "The address to listen on; 0.0.0.0: all of this machine. The page is on loopback alone.",
        default="127.0.0.1",
    )
    port: int = option(
        "The port to listen on; 0: one that is free.", default=8501, low=0, high=2**16 - 1
    )
    allow_host: tuple[str, ...] = option(
        "Names that a request's Host and Origin may have: on a loopback address beside its own, on "
        "others alone; default there: any.",
        default=(),
    )
    access_log: bool = option("Log each request, but for probes and metrics.", default=True)
    limits: Limits = Limits()
    weights: WeightsOptions = WeightsOptions()


def main(options: Serve) -> None:
    """Model -> server, until SIGTERM or Ctrl-C."""
    require_packages()
    from bert_tf.http.application import Application
    from bert_tf.http.callers import Callers
    from bert_tf.http.page import Page
    from bert_tf.http.server import Server, bound, url_of
    from bert_tf.serving.predictor import open_model, warm_up
    from bert_tf.terminal import Progress

    listener, address = bound(options.host, options.port)  # first: the port may be taken
    name = options.name or name_of(options.path)
    with Progress(f"load {options.path}"):
        model = open_model(options.path, **options.weights.arguments())
    with Progress("compile"):
        warm_up(model)
    page = Page(model) if address.is_loopback else None
    application = Application(
        model,
        name,
        callers=Callers(address, options.allow_host),
        limits=options.limits,
        page=page,
        has_log=options.access_log,
    )
    root = url_of(listener, address)
    url = f"{root}v1/models/{urllib.parse.quote(name, safe='')}:predict"
    where = f", with a page at {root}" if page else ""
    message = f"{options.path} is served at {url}{where} (Ctrl-C stops it)"
    tell = functools.partial(print, message, file=sys.stderr, flush=True)
    Server(application, listener, limits=options.limits, on_started=tell).serve_to_end()


def require_packages() -> None:
    """Raises `InputError` where a package of the extra `serve` is missing."""
    from bert_tf.runtime import import_extra

    for package in PACKAGES:
        module = package.replace("-", "_")
        import_extra(module, package=package, extra="serve", needed_by="bert-tf serve")


def name_of(path: str) -> str:
    """The name of a model by its path: that of its folder, not of a version in it.

    >>> name_of("/serving/topics/3"), name_of("models/topics/"), name_of("..")
    ('topics', 'topics', 'model')
    """
    parts = [part for part in path.split("/") if not part.isdecimal()]
    return next((part for part in reversed(parts) if part.strip(".")), "model")
