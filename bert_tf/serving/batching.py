"""Batches of the rows that a model is asked: made here for `Predictor`, files and the server.

    rows of one request    1,001 texts
    batches of them        texts of similar length; ids, which have one shape, as they come
    turns                  a batch of one request, then a batch of the next that waits; requests
                           that fit together share a turn
    answers of a request   its batches joined again, in the order of its rows

Shapes: B rows.
"""

import concurrent.futures
import contextlib
import dataclasses
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.data.grouping import batches_by_length
from bert_tf.serving.options import FROM_EXAMPLES, FROM_IDS

BATCH_SIZE = 32  # rows
# Bytes of text in a batch, unless a single text has more: its tokens take many times that.
BYTES_OF_A_BATCH = 1 << 20
BYTES_OF_A_TURN = 1 << 14  # the same for a turn: a short request waits for it
# Requests share a batch if no row is more than this many times as long as another.
MOST_ALIKE = 2
SHORT = 32  # bytes; a shorter row counts as this long
Arrays = dict[str, np.ndarray]


class ClosedError(Exception):
    """The model no longer computes."""


class Model(Protocol):
    """A model that answers batches: a `predictor.ServedModel`."""

    metadata: Mapping[str, Any]

    def run(self, arrays: Arrays, signature: str) -> Arrays: ...


# ---------------------------------------------------------------------------- batches


def batches(
    sizes: Sequence[int],
    *,
    shapes: Sequence[tuple[int, ...]] = (),
    batch_size: int = BATCH_SIZE,
    most_bytes: int = BYTES_OF_A_BATCH,
) -> Iterator[list[int]]:
    """Yields the row numbers of each batch: rows of one shape and similar size.

    Args:
      sizes: the sizes of the rows, in bytes of text.
      shapes: the shapes of the rows; all rows of a batch have one shape. Empty: all rows are alike.
      batch_size: maximum number of rows in a batch.
      most_bytes: maximum of a batch's rows times their greatest size, unless a single row has more.
    """
    numbers = {shape: number for number, shape in enumerate(sorted(set(shapes)))}
    groups = [numbers[shape] for shape in shapes] or None
    return batches_by_length(sizes, batch_size=batch_size, groups=groups, most=most_bytes)


def sizes_of(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """The size of each row of arrays [B, ...]: the bytes of its texts, or the number of its ids."""
    num_rows = len(next(iter(arrays.values())))
    sizes = np.zeros(num_rows, np.int64)  # [B]
    for array in arrays.values():
        values = array.reshape(num_rows, math.prod(array.shape[1:]))
        if values.dtype == object:
            lengths = np.vectorize(len, otypes=[np.int64])(values)
        else:
            lengths = values != 0
        sizes += lengths.sum(1)
    return sizes.tolist()


def joined(parts: Sequence[tuple[Sequence[int], Arrays]], num_rows: int) -> Arrays:
    """Joins the answers to batches of a request; narrower ones are padded with zeros.

    Args:
      parts: for each batch its row numbers and its answers.
      num_rows: the number of rows of the request.
    """
    if len(parts) == 1:
        rows, outputs = parts[0]
        order = np.argsort(rows)
        return {name: array[order] for name, array in outputs.items()}
    answers = {}
    for name, first in parts[0][1].items():
        widths = np.max([outputs[name].shape[1:] for _, outputs in parts], axis=0).astype(int)
        filler = b"" if first.dtype == object else 0
        answer = np.full((num_rows, *widths), filler, first.dtype)
        for rows, outputs in parts:
            array = outputs[name]
            answer[(np.array(rows), *map(slice, array.shape[1:]))] = array
        answers[name] = answer
    return answers


# ---------------------------------------------------------------------------- turns


@dataclasses.dataclass(eq=False)
class Job:
    """A request, with the batches that are left and the answers that there are.

    Attributes:
      arrays: inputs of the signature, [B, ...].
      signature: its name.
      batches: row numbers of each batch that is not computed yet.
      sizes: the sizes of the rows, as from `sizes_of`.
      answers: the answers of the signature, [B, ...], once all rows are computed.
      parts: row numbers and answers of each computed batch.
    """

    arrays: Arrays
    signature: str
    batches: deque[list[int]]
    sizes: Sequence[int]
    answers: concurrent.futures.Future[Arrays] = dataclasses.field(
        default_factory=concurrent.futures.Future
    )
    parts: list[tuple[Sequence[int], Arrays]] = dataclasses.field(default_factory=list)

    @property
    def kind(self) -> tuple:
        """Signature and shapes of a row; only jobs of one kind can share a batch."""
        return self.signature, *((name, x.shape[1:]) for name, x in self.arrays.items())

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answers any more."""
        return self.answers.cancelled()

    def add(self, rows: Sequence[int], outputs: Arrays) -> None:
        """Adds the answers to some rows; with the last rows it sets `answers`."""
        self.parts.append((rows, outputs))
        num_computed = sum(len(rows) for rows, _ in self.parts)
        if num_computed < len(self.sizes):
            return
        answers = joined(self.parts, len(self.sizes))
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled
            self.answers.set_result(answers)

    def fail(self, error: Exception) -> None:
        """Ends the job with an error."""
        self.batches.clear()
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self.answers.set_exception(error)


class Share(NamedTuple):
    """The rows of a job that are computed in a turn."""

    job: Job
    rows: list[int]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the rows."""
        return [self.job.sizes[row] for row in self.rows]


class Turns:
    """A thread that computes the requests to one model, a batch of each in turn."""

    def __init__(self, model: Model, *, observe: Callable[[int], None] | None = None):
        """Starts the thread.

        Args:
          model: answers a batch.
          observe: is called with the number of rows of each batch.
        """
        self._model = model
        self._observe = observe
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_open = True
        # Their answers depend on the batch's longest row, so each request gets batches of its own.
        self._unshared = frozenset(model.metadata["padded"])
        self._thread = threading.Thread(target=self._work, name="turns", daemon=True)
        self._thread.start()

    def ask(self, arrays: Arrays, signature: str) -> concurrent.futures.Future[Arrays]:
        """Returns a future of the answers that a signature gives to arrays [B, ...].

        Once the future is cancelled, no further batch of the request is computed. It fails with
        what `ServedModel.run` raises.

        Raises:
          ClosedError: `close` was called.
        """
        sizes = sizes_of(arrays)
        job = Job(arrays, signature, deque(batches(sizes, most_bytes=BYTES_OF_A_TURN)), sizes)
        if not sizes:
            job.batches.append([])  # for the shapes of the answers
        with self._changed:
            if not self._is_open:
                raise ClosedError
            self._waiting.append(job)
            self._changed.notify()
        return job.answers

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self, seconds: float = 2) -> None:
        """Refuses the waiting requests; waits at most `seconds` for the batch that is computed."""
        with self._changed:
            self._is_open = False
            self._refuse_all()
            self._changed.notify()
        self._thread.join(seconds)

    def _refuse_all(self) -> None:
        """Fails the waiting jobs."""
        for job in self._waiting:
            job.fail(ClosedError())
        self._waiting.clear()

    def _work(self) -> None:
        """Computes turn after turn until `close`; the thread runs this."""
        while True:
            with self._changed:
                while self._is_open and not self._waiting:
                    self._changed.wait()
                if not self._is_open:
                    return
                shares = self._next_turn()
            if shares:
                self._compute(shares)
            with self._changed:
                # Only now, as one batch of a job is computed at a time; and behind newer jobs.
                self._waiting.extend(job for job, _ in shares if job.batches)
                if not self._is_open:
                    self._refuse_all()

    def _next_turn(self) -> list[Share]:
        """A batch of the job that waits longest, with batches of other jobs that fit beside it."""
        first = self._waiting.popleft()
        if first.is_cancelled:
            return []
        shares = [Share(first, first.batches.popleft())]
        sizes = shares[0].sizes
        if not sizes or first.signature in self._unshared:
            return shares
        for job in [*self._waiting]:
            if job.kind != first.kind or job.is_cancelled:
                continue
            share = Share(job, job.batches[0])
            if are_alike([*sizes, *share.sizes]):
                job.batches.popleft()
                self._waiting.remove(job)
                shares.append(share)
                sizes += share.sizes
        return shares

    def _compute(self, shares: Sequence[Share]) -> None:
        """Answers a turn; jobs that fail together are computed one by one."""
        first = shares[0].job
        try:
            arrays = {name: _rows_of(shares, name) for name in first.arrays}
            outputs = self._model.run(arrays, first.signature)
            begin = 0
            for job, rows in shares:
                end = begin + len(rows)
                job.add(rows, {name: array[begin:end] for name, array in outputs.items()})
                begin = end
        except Exception as error:
            if len(shares) == 1:
                first.fail(error)
                return
            for share in shares:
                if not share.job.answers.done():
                    self._compute([share])
            return
        if self._observe:
            self._observe(begin)


def _rows_of(shares: Sequence[Share], name: str) -> np.ndarray:
    """The rows of a turn in the array of this name, [B, ...]."""
    return np.concatenate([job.arrays[name][rows] for job, rows in shares])


def are_alike(sizes: Sequence[int]) -> bool:
    """Whether rows of these sizes, of several jobs, may share a batch."""
    longest = max(sizes)
    if len(sizes) > BATCH_SIZE or len(sizes) * longest > BYTES_OF_A_TURN:
        return False
    return longest <= MOST_ALIKE * max(SHORT, min(sizes))


def num_tokens(model: Any, requests: Iterable[tuple[Arrays, str]]) -> int:
    """The number of word pieces in requests; of texts without [CLS] and [SEP].

    Args:
      model: with a tokenizer.
      requests: inputs, and the name of their signature.
    """
    number = 0
    texts: list[bytes] = []
    for arrays, signature in requests:
        if signature == FROM_IDS:
            number += int(np.count_nonzero(arrays["input_mask"]))
        elif signature == FROM_EXAMPLES:
            for record in arrays["examples"].tolist():
                features = tf.train.Example.FromString(record).features.feature
                number += np.count_nonzero(features["input_mask"].int64_list.value)
        else:
            for array in arrays.values():
                texts.extend(array.ravel().tolist())
    return number + sum(map(len, model.tokenizer.iter_ids(texts)))
