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
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.data.grouping import batches_by_length
from bert_tf.serving.options import FROM_EXAMPLES, FROM_IDS

BATCH_SIZE = 32  # rows
BYTES_OF_A_BATCH = 1 << 20  # of text, unless a single text has more: tokens take many times that
BYTES_OF_A_TURN = 1 << 14  # likewise: what a short request waits for
MOST_ALIKE = 2  # rows of requests share a batch if none is more than so many times as long
SHORT = 32  # bytes; what is shorter counts as so long
Arrays = dict[str, np.ndarray]


class ClosedError(Exception):
    """Nothing is computed any more."""


class Model(Protocol):
    """What is asked: a `predictor.ServedModel`."""

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
    """Batches of row numbers: of one shape, similar size, and bounded number and bytes.

    Args:
      sizes: of the rows: bytes of texts.
      shapes: of the rows, of which a batch has one; none: all are alike.
      batch_size: rows of a batch, at most.
      most_bytes: its rows times their greatest size, at most, unless a single row has more.
    """
    numbers = {shape: number for number, shape in enumerate(sorted(set(shapes)))}
    groups = [numbers[shape] for shape in shapes] or None
    return batches_by_length(sizes, batch_size=batch_size, groups=groups, most=most_bytes)


def sizes_of(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """The size of each row of arrays [B, ...]: bytes of texts, or how many ids."""
    num_rows = len(next(iter(arrays.values())))
    sizes = np.zeros(num_rows, np.int64)
    for array in arrays.values():
        rows = array.reshape(num_rows, math.prod(array.shape[1:]))
        lengths = np.vectorize(len, otypes=[np.int64])(rows) if rows.dtype == object else rows != 0
        sizes += lengths.sum(1)
    return sizes.tolist()


def joined(parts: Sequence[tuple[Sequence[int], Arrays]], num_rows: int) -> Arrays:
    """The answers of all rows, of those of some rows each; what is narrower is padded by zeros."""
    if len(parts) == 1:
        (rows, outputs), *_ = parts
        order = np.argsort(rows)
        return {name: array[order] for name, array in outputs.items()}
    answers = {}
    for name, first in parts[0][1].items():
        widths = np.max([outputs[name].shape[1:] for _, outputs in parts], axis=0).astype(int)
        filler = b"" if first.dtype == object else 0
        whole = np.full((num_rows, *widths), filler, first.dtype)
        for rows, outputs in parts:
            array = outputs[name]
            whole[(np.array(rows), *map(slice, array.shape[1:]))] = array
        answers[name] = whole
    return answers


# ---------------------------------------------------------------------------- turns


@dataclasses.dataclass(eq=False)
class Job:
    """What is asked at once, and what has been computed of it.

    Attributes:
      arrays: of the signature, [B, ...].
      batches: numbers of the rows that are not computed yet.
      sizes: of the rows, as of `sizes_of`.
      answers: of the signature, [B, ...], once all are there.
      parts: rows and their answers.
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
        """What jobs have in common that can share a batch."""
        return self.signature, *((name, x.shape[1:]) for name, x in self.arrays.items())

    @property
    def is_left(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.answers.cancelled()

    def add(self, rows: Sequence[int], outputs: Arrays) -> None:
        """Takes the answers to some rows; after the last ones all are there."""
        self.parts.append((rows, outputs))
        if sum(len(rows) for rows, _ in self.parts) < len(self.sizes):
            return
        answers = joined(self.parts, len(self.sizes))
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it is left
            self.answers.set_result(answers)

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
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
    """A thread that computes what several ask of one model, a batch at a time, in turn."""

    def __init__(self, model: Model, *, observe: Callable[[int], None] | None = None):
        """Starts the thread.

        Args:
          model: answers a batch.
          observe: is told the rows of each batch; None: nobody is.
        """
        self._model = model
        self._observe = observe
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_open = True
        self._alone = {
            signature
            for signature, answers in model.metadata["answers"].items()
            if any(is_as_wide_as_its_batch(name, what) for name, what in answers.items())
        }
        self._thread = threading.Thread(target=self._work, name="turns", daemon=True)
        self._thread.start()

    def ask(self, arrays: Arrays, signature: str) -> concurrent.futures.Future[Arrays]:
        """The answers that a signature gives to arrays [B, ...], once they are computed.

        Cancelled, what is left of it is not computed. It fails as `ServedModel.run` does.

        Raises:
          ClosedError: nothing is computed any more.
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
        """Whether it computes, or would."""
        return self._thread.is_alive()

    def close(self, seconds: float = 2) -> None:
        """Refuses what waits, and waits so long at most for the batch that is computed."""
        with self._changed:
            self._is_open = False
            self._refuse_all()
            self._changed.notify()
        self._thread.join(seconds)

    def _refuse_all(self) -> None:
        """Ends what waits."""
        for job in self._waiting:
            job.fail(ClosedError())
        self._waiting.clear()

    def _work(self) -> None:
        """What the thread does."""
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
                # Not before: a job has one batch computed at a time; and behind those that came.
                self._waiting.extend(job for job, _ in shares if job.batches)
                if not self._is_open:
                    self._refuse_all()

    def _next_turn(self) -> list[Share]:
        """A batch of the job that waits longest, and those of others that fit beside it."""
        first = self._waiting.popleft()
        if first.is_left:
            return []
        shares = [Share(first, first.batches.popleft())]
        sizes = shares[0].sizes
        if not sizes or first.signature in self._alone:
            return shares
        for job in [*self._waiting]:
            share = Share(job, job.batches[0])
            if job.kind == first.kind and not job.is_left and are_alike([*sizes, *share.sizes]):
                job.batches.popleft()
                self._waiting.remove(job)
                shares.append(share)
                sizes += share.sizes
        return shares

    def _compute(self, shares: Sequence[Share]) -> None:
        """Answers a turn; jobs that fail together are computed one by one."""
        first = shares[0].job
        try:
            arrays = {
                name: np.concatenate([job.arrays[name][rows] for job, rows in shares])
                for name in first.arrays
            }
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


def are_alike(sizes: Sequence[int]) -> bool:
    """Whether rows of these sizes, of several jobs, may share a batch."""
    longest = max(sizes)
    is_short = len(sizes) <= BATCH_SIZE and len(sizes) * longest <= BYTES_OF_A_TURN
    return is_short and longest <= MOST_ALIKE * max(SHORT, min(sizes))


def is_as_wide_as_its_batch(name: str, what: str) -> bool:
    """Whether an answer's width depends on all rows of a batch, by its name and its description.

    >>> is_as_wide_as_its_batch("sequence_output", "float [B, S, D]: the vector of each piece")
    True
    >>> is_as_wide_as_its_batch("num_words", "int [B]"), is_as_wide_as_its_batch("mean", "[B, D]")
    (True, False)
    """
    shape = what.partition("]")[0]
    return name.startswith("num_") or bool(re.search(r"\bS\b", shape))


def num_tokens(model: Any, asked: Iterable[tuple[Arrays, str]]) -> int:
    """The word pieces of what signatures of a model are asked, without special ones for texts."""
    number = 0
    texts: list[bytes] = []
    for arrays, signature in asked:
        if signature == FROM_IDS:
            number += int(np.count_nonzero(arrays["input_mask"]))
        elif signature == FROM_EXAMPLES:
            for record in arrays["examples"].tolist():
                features = tf.train.Example.FromString(record).features.feature
                number += np.count_nonzero(features["input_mask"].int64_list.value)
        else:
            texts.extend(text for array in arrays.values() for text in array.ravel().tolist())
    return number + sum(map(len, model.tokenizer.iter_ids(texts)))
