"""Shows a model in the browser.

    bert-tf playground /serving/squad
    bert-tf playground /models/mrpc --pairs --port=8001

Takes an export of `bert-tf export`, or a folder with weights.
"""

import sys
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import served_model
from bert_tf.errors import InputError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    served_model.define_flags()
    flags.DEFINE_string("host", "127.0.0.1", "A loopback address to listen on.")
    shared_flags.define_count(
        "port", 8000, "The port to listen on; 0: one that is free.", least=0, most=2**16 - 1
    )


def check_flags(words: Sequence[str]) -> None:
    """Refuses all but one path."""
    if len(words) != 1:
        raise InputError(
            f"{len(words)} paths",
            "one: an export, or a folder with weights",
            "write bert-tf playground PATH",
        )


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from bert_tf.playground.api import Playground
from bert_tf.playground.server import Server
from bert_tf.terminal import Progress


def main(argv: Sequence[str]) -> None:
    """Model -> page -> server, until it is stopped."""
    playground = Playground(served_model.make_predictor(argv[1]))
    with Progress("compile"):
        playground.warm_up()
    with Server(playground, host=FLAGS.host, port=FLAGS.port) as server:
        print(f"{argv[1]} is shown at {server.url} (Ctrl-C stops it)", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
