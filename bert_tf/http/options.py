"""The limits of a server. Loads no TensorFlow."""

from bert_tf.options import Options, option


class Limits(Options, title="Limits"):
    """Limits of sizes, numbers and times."""

    max_rows: int = option("Most rows of a request; beyond it 413.", default=10_000, low=1)
    max_body_bytes: int = option(
        "Most bytes of a request, also when it is unpacked; beyond it 413.",
        default=64 << 20,
        low=1,
    )
    max_waiting: int = option(
        "Most requests that are read, wait or are computed; beyond it 503, with Retry-After.",
        default=256,
        low=1,
    )
    timeout_seconds: int = option(
        "The longest that a request may take to arrive, then for its answer; beyond it 408 or 504.",
        default=60,
        low=1,
    )
    keep_alive_seconds: int = option(
        "How long a connection is kept between requests: longer than the load balancer does.",
        default=75,
        low=1,
    )
    drain_seconds: int = option(
        "How long what runs and waits is answered after SIGTERM.", default=30, low=1
    )
