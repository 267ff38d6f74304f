"""What an operator looks at, in the text format of Prometheus."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
ROWS = (1, 2, 4, 8, 16, 32)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counts and times of one server."""

    def __init__(self, num_waiting: Callable[[], int]):
        """Begins at zero.

        Args:
          num_waiting: says how many requests wait.
        """
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = Counter(
            "bert_tf_requests", "Requests answered.", ["code"], registry=self._registry
        )
        self.seconds = Histogram(
            "bert_tf_request_seconds",
            "From a request's headers to the end of its answer, but for probes and metrics.",
            buckets=SECONDS,
            registry=self._registry,
        )
        self.rows = Counter("bert_tf_rows", "Rows answered.", registry=self._registry)
        self.tokens = Counter(
            "bert_tf_tokens", "Word pieces of the rows answered.", registry=self._registry
        )
        self.batch_rows = Histogram(
            "bert_tf_batch_rows",
            "Rows that the model computed together.",
            buckets=ROWS,
            registry=self._registry,
        )
        waiting = Gauge(
            "bert_tf_waiting_requests",
            "Requests that wait or are computed.",
            registry=self._registry,
        )
        waiting.set_function(num_waiting)

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)
