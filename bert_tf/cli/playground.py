"""Shows a model in the browser.

    python -m bert_tf.playground /serving/squad
    python -m bert_tf.playground /models/mrpc --pairs --port=8001

Takes an export of export_model.py, or a folder with weights.
"""

import sys
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import main as cli
from bert_tf.cli import predictor_flags
from bert_tf.errors import InputError
from bert_tf.playground.server import Server
from bert_tf.playground.views import Playground

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    predictor_flags.define_flags()
    flags.DEFINE_string("host", "127.0.0.1", "A loopback address to listen on.")
    flags.DEFINE_integer("port", 8000, "The port to listen on; 0: one that is free.")


def main(argv: Sequence[str]) -> None:
    """Model -> page -> server, until it is ended."""
    if len(argv) != 2:
        raise InputError(
            received=f"{len(argv) - 1} paths",
            expected="one: an export, or a folder with weights",
            remedy="write python -m bert_tf.playground PATH",
        )
    playground = Playground(predictor_flags.make_predictor(argv[1]))
    playground.warm_up()
    with Server(playground, host=FLAGS.host, port=FLAGS.port) as server:
        print(f"{argv[1]} is shown at {server.url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
