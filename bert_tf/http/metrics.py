"""Figures for an operator, in the text format of Prometheus."""

import threading
from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from bert_tf.serving.batching import Arrays, num_tokens, sizes_of
from bert_tf.serving.predictor import ServedModel

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
ROWS = (1, 2, 4, 8, 16, 32)
# Tokens of so many requests are counted together; one by one it would take 100 times as long.
REQUESTS_TO_COUNT = 1000
BYTES_TO_COUNT = 1 << 20  # the same by the bytes of texts and the number of ids
CONTENT_TYPE = CONTENT_TYPE_LATEST
disable_created_metrics()  # they would double the series


class Metrics:
    """The counts and times of one server."""

    def __init__(self, model: ServedModel, num_waiting: Callable[[], int]):
        """Starts all counts at zero.

        Args:
          model: its tokenizer counts tokens.
          num_waiting: returns the number of open requests.
        """
        self._model = model
        self._uncounted: list[tuple[Arrays, str]] = []
        self._bytes_uncounted = 0
        self._is_counting = False
        self._lock = threading.Lock()
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

    def note_answered(self, arrays: Arrays, signature: str) -> bool:
        """Counts the rows of a request; returns whether the caller should call `count_tokens`."""
        self.rows.inc(len(next(iter(arrays.values()))))
        with self._lock:
            self._uncounted.append((arrays, signature))
            self._bytes_uncounted += sum(sizes_of(arrays))
            are_many = len(self._uncounted) >= REQUESTS_TO_COUNT
            is_due = are_many or self._bytes_uncounted >= BYTES_TO_COUNT
            if is_due and not self._is_counting:
                self._is_counting = True
                return True
            return False

    def count_tokens(self) -> None:
        """Counts the word pieces of the requests that were answered since the last call."""
        with self._lock:
            requests = self._uncounted
            self._uncounted = []
            self._bytes_uncounted = 0
            self._is_counting = False
        self.tokens.inc(num_tokens(self._model, requests))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        self.count_tokens()
        return generate_latest(self._registry)
