"""Records: each kind declared once; writer, parser and checks follow from the declaration."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError

GREATEST_FLOAT = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `size` numbers of type int64 or float32, from `least` to `most`."""

    name: str
    dtype: tf.DType
    size: int
    size_flag: str | None = None  # the flag that sets the size
    sequences: int = 1  # how many sequences lie in it, one after the other
    least: float = 0
    most: float = 2**31 - 1  # batches have int32
    model_size: str = ""  # the key of bert_config.json that sets `most`

    @property
    def is_sequence(self) -> bool:
        """Whether it has a value for each token."""
        return self.size_flag == "max_seq_length"

    @property
    def batch_dtype(self) -> np.dtype:
        """Its type in a batch: int64 becomes int32, as in the original."""
        return np.dtype(np.int32 if self.dtype == tf.int64 else np.float32)

    @property
    def range(self) -> str:
        """The numbers it may have, for messages."""
        if self.dtype == tf.float32:
            return "finite numbers" + (", 0 or more" if self.least == 0 else "")
        why = f", as the model's {self.model_size} is {self.most + 1}" if self.model_size else ""
        return f"numbers from {self.least} to {self.most}{why}"

    def holds(self, values: np.ndarray) -> bool:
        """Whether all values are in its range."""
        if self.least == 0 and self.dtype == tf.int64:  # one pass: negative ones are the greatest
            return bool(values.view(np.uint64).max() <= self.most)
        return bool(values.min() >= self.least and values.max() <= self.most)  # NaN is not


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
        self.check_sizes({name: len(value) for name, value in values.items()})
        example = tf.train.Example()
        for feature in self.features:
            slot = example.features.feature[feature.name]
            numbers = slot.int64_list if feature.dtype == tf.int64 else slot.float_list
            numbers.value.extend(values[feature.name])
        return example.SerializeToString(deterministic=True)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raises `ValueError` unless these are all features, with their sizes."""
        declared = {feature.name: feature.size for feature in self.features}
        if sizes != declared:
            raise ValueError(f"received features {sizes}, expected {declared}")

    def parse(self, serialized: Sequence[bytes]) -> dict[str, tf.Tensor]:
        """Serialized records [B] -> features [B, size], as they are stored and unchecked."""
        return tf.io.parse_example(
            serialized, {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in self.features}
        )

    def checked(
        self, serialized: Sequence[bytes] | tf.Tensor, *, where: Callable[[int], str]
    ) -> dict[str, np.ndarray]:
        """Serialized records [B] -> features as in a batch, int32 or float32 [B, size].

        Args:
          serialized: the records.
          where: gives the file and the number of record b, for the message.

        Raises:
          InputError: one of them is of another kind, or has a value that is out of its range.
        """
        try:
            stored = {name: value.numpy() for name, value in self.parse(serialized).items()}
        except (tf.errors.OpError, UnicodeDecodeError):  # the latter of TensorFlow's own message
            self._refuse(serialized, where)
            raise
        self._check_values(stored, where)
        return {f.name: stored[f.name].astype(f.batch_dtype) for f in self.features}

    def _check_values(self, stored: Mapping[str, np.ndarray], where: Callable[[int], str]) -> None:
        """Raises `InputError` if a value of records [B, size] is out of its feature's range.

        On a device such a value would be clamped, cut off, or end in NaN.
        """
        for feature in self.features:
            given = stored[feature.name]
            if not feature.holds(given):
                inside = (given >= feature.least) & (given <= feature.most)
                row, place = np.argwhere(~inside)[0]
                belongs = "give the configuration that belongs to the data, or "
                raise InputError(
                    f"{where(int(row))}, with the {feature.name} {given[row, place]}",
                    feature.range,
                    f"{belongs if feature.model_size else ''}make the data again",
                )

    def _refuse(self, serialized: Sequence[bytes] | tf.Tensor, where: Callable[[int], str]) -> None:
        """Raises the `InputError` of the first record that cannot be parsed."""
        for place, one in enumerate(np.asarray(serialized, object)):
            self.check_kind(one, where=where(place))
            try:
                self.parse([one])
            except (tf.errors.OpError, UnicodeDecodeError):
                received = f"{where(place)}, which TensorFlow cannot parse"
                raise InputError(received, f"a {self.name} record", "make it again") from None

    def check_kind(self, serialized: bytes, *, where: str) -> None:
        """Raises `InputError` if the record at `where` is not of this kind."""
        try:
            given = tf.train.Example.FromString(serialized).features.feature
            found = f"a record with the features {sorted(given)}"
        except Exception:  # protobuf's DecodeError; its class differs between implementations
            given, found = {}, "a record that is not a tf.train.Example"
        for feature in self.features:
            if feature.name not in given:
                raise InputError(
                    f"{where}, {found:.600}",
                    f"the {self.name} features {', '.join(f.name for f in self.features)}",
                    "give a file that was made for this script",
                )
            kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
            size = len(getattr(given[feature.name], kind).value)
            if size != feature.size:
                flag, length = f"--{feature.size_flag}", size // feature.sequences
                use = f"use {flag}={length}, with which the data were made, or "
                raise InputError(
                    f"{where}, a record whose {feature.name} has {size} values in its {kind}",
                    f"{feature.size} values" + (f", as {flag} says" if feature.size_flag else ""),
                    f"{use if feature.size_flag and length else ''}make the data again",
                )


def input_features(
    max_seq_length: int,
    *,
    vocab_size: int | None = None,
    type_vocab_size: int | None = None,
    sequences: int = 1,
) -> tuple[Feature, ...]:
    """input_ids, input_mask and segment_ids int64 [C * S], which all records have.

    Args:
      max_seq_length: S.
      vocab_size: V of the model that reads them; None where they are only written.
      type_vocab_size: of that model.
      sequences: C.
    """

    def feature(name: str, below: int | None, model_size: str = "") -> Feature:
        bounds = {"most": below - 1, "model_size": model_size} if below else {}
        length = sequences * max_seq_length
        return Feature(name, tf.int64, length, "max_seq_length", sequences, **bounds)

    return (
        feature("input_ids", vocab_size, "vocab_size"),
        feature("input_mask", 2),
        feature("segment_ids", type_vocab_size, "type_vocab_size"),
    )


def pretraining_record(
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    next_sentence: bool = True,
    **model_sizes: int,
) -> Record:
    """The record of masked-LM and next-sentence pre-training (original: `input_fn_builder`).

    Features: input_ids, input_mask, segment_ids int64 [S]; masked_lm_positions, masked_lm_ids
    int64 [P]; masked_lm_weights float32 [P]; unless `next_sentence` is false,
    next_sentence_labels int64 [1], 1 = random. `model_sizes`: as for `input_features`.

    A weight may stand at a position that is padding: a model can be trained with it, and it need
    not be damage.
    """
    inputs = input_features(max_seq_length, **model_sizes)

    def prediction(name: str, dtype: tf.DType, **options: Any) -> Feature:
        return Feature(name, dtype, max_predictions_per_seq, "max_predictions_per_seq", **options)

    ids = inputs[0]
    predictions = (
        prediction("masked_lm_positions", tf.int64, most=max_seq_length - 1),
        prediction("masked_lm_ids", tf.int64, most=ids.most, model_size=ids.model_size),
        prediction("masked_lm_weights", tf.float32, most=GREATEST_FLOAT),
    )
    labels = (Feature("next_sentence_labels", tf.int64, 1, most=1),) if next_sentence else ()
    return Record("pre-training", (*inputs, *predictions, *labels))


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without tf.data's tuning of itself.

    The thread that tunes sleeps by the time of day, and the end waits for it: for a minute, or for
    as long as the clock was set back meanwhile.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
