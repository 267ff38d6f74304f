"""Batches of records, whatever their order: for any replicas and hosts, from any step on.

LaneBatches      pre-training: files of any size, by blocks        lane_batches.py
RecordBatches    fine-tuning: in a sampler's order, cut to length  record_batches.py
"""

import contextlib
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature, Record, untuned
from bert_tf.errors import InputError

MULTIPLE = 8  # lengths to which batches are cut are multiples of it


class Batches:
    """Batches of records, on any number of replicas, from any step on.

    With `num_examples` the last batch may be short of rows; it is filled up with other records
    whose `is_real_example` is 0, so that every batch has the same shape and no example is lost or
    counted twice.

    Attributes:
      batch_size: B, rows of a batch, over all replicas together.
      num_records: in the files.
      error: the `InputError` that ended the iteration, which tf.data hides; else None.
    """

    num_records: int

    def __init__(self, record: Record, *, batch_size: int, num_examples: int | None = None):
        """Reads nothing yet.

        Args:
          record: the kind of the records.
          batch_size: B, rows of a batch, over all replicas together.
          num_examples: how many examples in all; None for endless batches.
        """
        self._record, self.batch_size, self._num_examples = record, batch_size, num_examples
        self.error: InputError | None = None

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if they are endless."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def fingerprint(self) -> int:
        """A number that differs for other files."""
        raise NotImplementedError

    def dataset(
        self, *, start: int = 0, num_parts: int = 1, first_part: int = 0, parts_here: int = 1
    ) -> tf.data.Dataset:
        """The batches from batch `start` on, each cut into one part for each replica.

        Args:
          start: the first batch.
          num_parts: replicas of all hosts; must divide B.
          first_part: the first replica of this host.
          parts_here: replicas of this host; their parts follow each other.

        Returns:
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features and
          is_real_example float32 [B / num_parts].

        Raises:
          InputError: B is not a multiple of num_parts.
        """
        if self.batch_size % num_parts:
            raise InputError(
                f"a batch size of {self.batch_size} for {num_parts} replicas",
                "a batch size that is a multiple of the number of replicas",
                f"use a multiple of {num_parts}",
            )
        size = self.batch_size // num_parts
        rows = range(first_part * size, (first_part + parts_here) * size)
        return untuned(self._parts(start, rows, size).prefetch(2))

    def _parts(self, start: int, rows: range, size: int) -> tf.data.Dataset:
        """From batch `start` on these rows of each batch, `size` at a time."""
        raise NotImplementedError

    def _generated(
        self, make: Callable[[], Iterator[dict[str, np.ndarray]]], size: int | None
    ) -> tf.data.Dataset:
        """The dicts of arrays [size, ...] that `make` yields; keeps the error that ends them."""

        def generate() -> Iterator[dict[str, np.ndarray]]:
            try:
                yield from make()
            except InputError as error:
                self.error = error
                raise

        signature = {
            f.name: tf.TensorSpec([size, *self._shape(f)], f.batch_dtype)
            for f in self._record.features
        }
        signature["is_real_example"] = tf.TensorSpec([size], tf.float32)
        return tf.data.Dataset.from_generator(generate, output_signature=signature)

    def _shape(self, feature: Feature) -> list[int | None]:
        """The shape of one example's feature."""
        return [feature.size]

    @contextlib.contextmanager
    def record_errors(self) -> Iterator[None]:
        """Re-raises the original error of a record instead of tf.data's."""
        try:
            yield
        except tf.errors.OpError as ended:
            error, self.error = self.error, None
            if error is None:
                raise
            # What is kept of either would keep the iterator, and so the threads that read.
            traceback.clear_frames(ended.__traceback__)
            raise error.with_traceback(None) from None
