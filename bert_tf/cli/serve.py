"""Answers requests as TensorFlow Serving does, by its REST interface; and shows a page.

    bert-tf serve models/topics
    curl -d '{"instances": ["Rain in May"]}' http://localhost:8501/v1/models/topics:predict

Takes an export of `bert-tf export`, or a folder with weights. Requests that come while the model
runs are answered together. There is no log-in and no TLS: put a proxy before it.
"""

import contextlib
import sys
import urllib.parse

from bert_tf.options import Options, option
from bert_tf.serving.options import WeightsOptions


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
    weights: WeightsOptions = WeightsOptions()


def main(options: Serve) -> None:
    """Model -> server, until Ctrl-C."""
    from bert_tf.playground.api import Playground
    from bert_tf.playground.rest import RestModel
    from bert_tf.playground.server import Server
    from bert_tf.serving.predictor import Predictor
    from bert_tf.terminal import Progress

    name = options.name or name_of(options.path)
    with Server(host=options.host, port=options.port) as server:  # at once: the port may be taken
        with Progress(f"load {options.path}"):
            predictor = Predictor(options.path, **options.weights.arguments())
        server.rest = RestModel(predictor.model, name)
        server.playground = Playground(predictor)
        with Progress("compile"):
            server.playground.warm_up()
        url = f"{server.url}v1/models/{urllib.parse.quote(name, safe='')}:predict"
        page = f", with a page at {server.url}" if server.has_page else ""
        message = f"{options.path} is served at {url}{page} (Ctrl-C stops it)"
        print(message, file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        print(file=sys.stderr)


def name_of(path: str) -> str:
    """The name of a model by its path: that of its folder, not of a version in it.

    >>> name_of("/serving/topics/3"), name_of("models/topics/"), name_of("..")
    ('topics', 'topics', 'model')
    """
    parts = [part for part in path.split("/") if not part.isdecimal()]
    return next((part for part in reversed(parts) if part.strip(".")), "model")
