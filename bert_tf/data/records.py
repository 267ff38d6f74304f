"""Records: each declared once, written and parsed from that declaration, read in any order.

    Record           names, types and lengths of the features; serialize, parse, check
    RecordFiles      TFRecord files with an index, so that any record can be read
    RecordBatches    records -> dicts of arrays [B, ...], from any position on; orders.py

Nothing here has a state that would have to be saved: a run that is resumed at step t asks for the
batches from step t on, and gets what an undisturbed run would have got.
"""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

# Reads records one after the other with their checksums and says where each begins. TensorFlow
# does not export it; test_records.py covers what we use of it.
from tensorflow.python.lib.io import tf_record as tf_record_io

from bert_tf.errors import InputError
from bert_tf.files import is_remote
from bert_tf.data.samplers import Order

# A TFRecord is a length (8 bytes), its checksum (4), the data, and their checksum (4).
HEADER_BYTES = 12
FOOTER_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `size` values of type int64 or float32."""

    name: str
    dtype: tf.DType
    size: int
    size_flag: str | None = None  # the flag that sets the size
    sequences: int = 1  # how many sequences lie in it, one after the other

    @property
    def is_sequence(self) -> bool:
        """Whether it has a value for each token."""
        return self.size_flag == "max_seq_length"


@dataclasses.dataclass(frozen=True)
class Record:
    """The declaration of one kind of record."""

    name: str
    features: tuple[Feature, ...]

    def serialize(self, values: Mapping[str, Sequence]) -> bytes:
        """A `tf.train.Example` with just the declared features; the same values, the same bytes.

        Args:
          values: for each declared feature its `size` numbers.

        Raises:
          ValueError: a feature is missing, unknown, or has another length.
        """
        sizes = {name: len(value) for name, value in values.items()}
        declared = {feature.name: feature.size for feature in self.features}
        if sizes != declared:
            raise ValueError(f"received features {sizes}, expected {declared}")
        example = tf.train.Example()
        for feature in self.features:
            slot = example.features.feature[feature.name]
            numbers = slot.int64_list if feature.dtype == tf.int64 else slot.float_list
            numbers.value.extend(values[feature.name])
        return example.SerializeToString(deterministic=True)

    def parse(self, serialized) -> dict[str, tf.Tensor]:
        """Serialized records [B] -> features [B, size]; int64 becomes int32 as in the original."""
        spec = {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in self.features}
        parsed = tf.io.parse_example(serialized, spec)
        return {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in parsed.items()
        }

    def check(self, serialized: bytes, *, where: str) -> None:
        """Raises `InputError` if the record at `where` is not of this kind."""
        try:
            given = tf.train.Example.FromString(serialized).features.feature
        except Exception:  # protobuf's DecodeError; its class differs between implementations
            given = {}
        for feature in self.features:
            if feature.name not in given:
                raise InputError(
                    received=f"{where}, a record with the features {sorted(given)}",
                    expected=f"the features of a {self.name} record: "
                    f"{', '.join(f.name for f in self.features)}",
                    remedy="give a file that was made for this script",
                )
            self._check_feature(feature, given[feature.name], where)

    def _check_feature(self, feature: Feature, given: tf.train.Feature, where: str) -> None:
        kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
        size = len(getattr(given, kind).value)
        if size == feature.size:
            return
        flag = f"--{feature.size_flag}" if feature.size_flag else feature.name
        other = f"use {flag}={size}, with which the data were made, or " if size else ""
        raise InputError(
            received=f"{where}, a record whose {feature.name} has {size} values in its {kind}",
            expected=f"{feature.size} values, as {flag} says",
            remedy=f"{other}make the data again",
        )


def pretraining_record(
    *, max_seq_length: int, max_predictions_per_seq: int, next_sentence: bool = True
) -> Record:
    """The record of masked-LM and next-sentence pre-training (original: `input_fn_builder`).

    Features: input_ids, input_mask, segment_ids int64 [S]; masked_lm_positions, masked_lm_ids
    int64 [P]; masked_lm_weights float32 [P]; unless `next_sentence` is false,
    next_sentence_labels int64 [1], 1 = random.
    """

    def per_token(name: str) -> Feature:
        return Feature(name, tf.int64, max_seq_length, "max_seq_length")

    def per_prediction(name: str, dtype: tf.DType) -> Feature:
        return Feature(name, dtype, max_predictions_per_seq, "max_predictions_per_seq")

    features = (
        per_token("input_ids"),
        per_token("input_mask"),
        per_token("segment_ids"),
        per_prediction("masked_lm_positions", tf.int64),
        per_prediction("masked_lm_ids", tf.int64),
        per_prediction("masked_lm_weights", tf.float32),
    )
    label = (Feature("next_sentence_labels", tf.int64, 1),) if next_sentence else ()
    return Record("pre-training", features + label)


class RecordFiles:
    """TFRecord files as one sequence of records, in the order of the files.

    Opening reads every file once and checks every checksum, so that a damaged file is found before
    the first step. The index takes 8 bytes a record.
    """

    def __init__(self, patterns: str | Sequence[str], record: Record):
        """Opens the files.

        Args:
          patterns: paths or globs, a list or one string with commas; local or remote.
          record: what the files hold.

        Raises:
          InputError: nothing matches, a file is empty or damaged, or its first record is of
            another kind.
        """
        self.record = record
        self.paths = expand_patterns(patterns)
        self._offsets = [self._index(path) for path in self.paths]
        self._first_rows = np.cumsum([0] + [len(offsets) - 1 for offsets in self._offsets])

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def _index(self, path: str) -> np.ndarray:
        """Where each record of the file begins, and at last where the file ends."""
        offsets, reader = [0], tf_record_io.tf_record_random_reader(path)
        size = tf.io.gfile.stat(path).length
        while offsets[-1] < size:
            try:
                serialized, next_offset = reader.read(offsets[-1])
            except (IndexError, tf.errors.OpError):  # IndexError is its end of file
                raise InputError(
                    received=f"{path}, damaged or cut off after {len(offsets) - 1} records "
                    f"(byte {offsets[-1]} of {size})",
                    expected="a complete TFRecord file",
                    remedy="copy or make the file again",
                ) from None
            if len(offsets) == 1:
                self.record.check(serialized, where=f"{path}, record 1")
            offsets.append(next_offset)
        if size == 0:
            raise InputError(
                received=f"{path}, an empty file",
                expected="a TFRecord file with at least one record",
                remedy="make the file again, or leave it out",
            )
        return np.asarray(offsets, np.int64)

    def _locate(self, row: int) -> tuple[int, int]:
        file = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        return file, int(row - self._first_rows[file])

    def fingerprint(self) -> int:
        """A number that is another for other files, as far as their records' sizes tell."""
        return zlib.crc32(b"".join(offsets.tobytes() for offsets in self._offsets))

    def where(self, row: int) -> str:
        """The file and the number in it (from 1) of a record, for messages."""
        file, number = self._locate(row)
        return f"{self.paths[file]}, record {number + 1}"

    def read(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """The records at `rows` as a dict of arrays [len(rows), size]."""
        serialized = []
        for row in rows:
            file, number = self._locate(row)
            begin, end = map(int, self._offsets[file][number : number + 2])
            serialized.append(
                _read_bytes(self.paths[file], begin + HEADER_BYTES, end - FOOTER_BYTES)
            )
        try:
            parsed = self.record.parse(serialized)
        except tf.errors.InvalidArgumentError:
            for row, one in zip(rows, serialized, strict=True):
                self.record.check(one, where=self.where(row))
            raise
        return {name: value.numpy() for name, value in parsed.items()}


def _read_bytes(path: str, begin: int, end: int) -> bytes:
    # Opened for each read: several threads may read, and there may be more files than a process
    # can hold open. Not with GFile where it can be helped: it fetches half a megabyte for each.
    with (
        tf.io.gfile.GFile(path, "rb") if is_remote(path) else open(path, "rb", buffering=0) as file
    ):
        file.seek(begin)
        return file.read(end - begin)


def _is_file(path: str) -> bool:
    return bool(path) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def expand_patterns(patterns: str | Sequence[str]) -> list[str]:
    """Paths and globs, comma-separated or a list -> the files; each must match something."""
    if isinstance(patterns, str):  # a name may have a comma in it, or a bracket
        patterns = [patterns] if _is_file(patterns) else patterns.split(",")
    paths = []
    for pattern in patterns:
        if _is_file(pattern):
            matches = [pattern]
        else:
            matches = sorted(tf.io.gfile.glob(pattern)) if pattern else []
        if not matches:
            raise InputError(
                received=f"{pattern!r}, which matches no file",
                expected="paths or globs of existing files, separated by commas",
                remedy="check the path, and that the step that makes the file has been run",
            )
        paths.extend(matches)
    return paths


class RecordBatches:
    """Batches of records: batch t holds the rows at positions t*B .. (t+1)*B-1 of an order.

    With `num_batches` the last batch may be short of rows; it is filled up with copies of row 0
    whose `is_real_example` is 0, so that every batch has the same shape and no example is lost or
    counted twice.
    """

    def __init__(
        self,
        files: RecordFiles,
        order: Order,
        *,
        batch_size: int,
        vocab_size: int,
        num_examples: int | None = None,
    ):
        """Plans the batches.

        Args:
          files: where the records are.
          order: which record comes at which position.
          batch_size: B, rows of a batch, over all replicas together.
          vocab_size: V; an id that has no row in the embedding table is an `InputError`.
          num_examples: how many examples in all; None goes on for ever.
        """
        self._files = files
        self._order = order
        self.batch_size = batch_size
        self._vocab_size = vocab_size
        self._num_examples = num_examples
        self.error: InputError | None = None  # what ended the iteration, tf.data hides it

    @property
    def num_batches(self) -> int | None:
        """How many batches there are; None if they go on for ever."""
        return None if self._num_examples is None else -(-self._num_examples // self.batch_size)

    def dataset(
        self, *, start: int = 0, num_parts: int = 1, first_part: int = 0, parts_here: int = 1
    ) -> tf.data.Dataset:
        """The batches from batch `start` on, cut into parts, one for each replica.

        Args:
          start: the first batch.
          num_parts: the replicas of all hosts; must divide B.
          first_part: the first replica of this host.
          parts_here: the replicas of this host; their parts come one after the other.

        Returns:
          A dataset of dicts of tensors [B / num_parts, ...]: the record's features and
          is_real_example float32 [B / num_parts].
        """
        if self.batch_size % num_parts:
            raise InputError(
                received=f"a batch size of {self.batch_size} for {num_parts} replicas",
                expected="a batch size that is a multiple of the number of replicas",
                remedy=f"use a multiple of {num_parts}",
            )
        part_size = self.batch_size // num_parts

        def parts() -> Iterator[dict[str, np.ndarray]]:
            batch = start
            while self.num_batches is None or batch < self.num_batches:
                for part in range(first_part, first_part + parts_here):
                    first = batch * self.batch_size + part * part_size
                    values = self._read_or_note(first, first + part_size)
                    yield self.cut(batch, values)
                batch += 1

        shapes = {
            f.name: tf.TensorSpec([part_size, *self.shape(f)], _parsed_dtype(f))
            for f in self.features
        }
        shapes["is_real_example"] = tf.TensorSpec([part_size], tf.float32)
        dataset = tf.data.Dataset.from_generator(parts, output_signature=shapes).prefetch(2)
        options = tf.data.Options()
        # There is nothing to tune, and when training ends its thread may sleep on for a minute.
        options.autotune.enabled = False
        return dataset.with_options(options)

    @property
    def num_records(self) -> int:
        """How many records the files hold."""
        return len(self._files)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of the records."""
        return self._files.record.features

    def shape(self, feature: Feature) -> list[int | None]:
        """The shape of a feature in one example of a batch."""
        return [feature.size]

    def cut(self, batch: int, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values of a part of a batch, in those shapes; overridden where lengths differ."""
        del batch
        return values

    def fingerprint(self) -> int:
        """That of the files."""
        return self._files.fingerprint()

    def batch_rows(self, batch: int) -> np.ndarray:
        """The rows of the real examples of a batch, in its order."""
        start, stop = batch * self.batch_size, (batch + 1) * self.batch_size
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        return self._order.rows(start, max(start, end))

    def _read_or_note(self, start: int, stop: int) -> dict[str, np.ndarray]:
        try:
            return self._read(start, stop)
        except InputError as error:
            self.error = error
            raise

    def _read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        end = stop if self._num_examples is None else min(stop, self._num_examples)
        rows = self._order.rows(start, max(start, end))
        missing = (stop - start) - len(rows)
        rows = np.concatenate([rows, np.zeros(missing, rows.dtype)])
        batch = self._files.read(rows)
        for name in ("input_ids", "masked_lm_ids"):
            if name in batch:
                self._check_ids(name, batch[name], rows)
        real = np.arange(stop - start) < stop - start - missing
        if "is_real_example" in batch:  # a record of a task says it itself, int [rows, 1]
            real &= batch["is_real_example"][:, 0] != 0
        batch["is_real_example"] = np.float32(real)
        return batch

    def _check_ids(self, name: str, ids: np.ndarray, rows: np.ndarray) -> None:
        # On a device an id beyond the table is silently clamped or gives NaN.
        bad = (ids < 0) | (ids >= self._vocab_size)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            raise InputError(
                received=f"{self._files.where(int(rows[row]))}, with the {name} "
                f"{int(ids[row][bad[row]][0])}",
                expected=f"ids from 0 to {self._vocab_size - 1}, the vocab_size of the model",
                remedy="give the configuration that belongs to the vocabulary of the data",
            )


def _parsed_dtype(feature: Feature) -> tf.DType:
    return tf.int32 if feature.dtype == tf.int64 else feature.dtype
