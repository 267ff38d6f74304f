"""Records: each kind declared once; writer, parser and checks follow from the declaration."""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.errors import InputError


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

    @property
    def parsed_dtype(self) -> tf.DType:
        """Its type in a batch: int64 becomes int32, as in the original."""
        return tf.int32 if self.dtype == tf.int64 else self.dtype


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
        """Serialized records [B] -> features [B, size] of their `parsed_dtype`."""
        spec = {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in self.features}
        parsed = tf.io.parse_example(serialized, spec)
        return {f.name: tf.cast(parsed[f.name], f.parsed_dtype) for f in self.features}

    def check(self, serialized: bytes, *, where: str) -> None:
        """Raises `InputError` if the record at `where` is not of this kind."""
        try:
            given = tf.train.Example.FromString(serialized).features.feature
        except Exception:  # protobuf's DecodeError; its class differs between implementations
            given = {}
        for feature in self.features:
            if feature.name not in given:
                raise InputError(
                    f"{where}, a record with the features {sorted(given)}",
                    f"the features of a {self.name} record: "
                    f"{', '.join(f.name for f in self.features)}",
                    "give a file that was made for this script",
                )
            self._check_size(feature, given[feature.name], where)

    def _check_size(self, feature: Feature, given: tf.train.Feature, where: str) -> None:
        kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
        size = len(getattr(given, kind).value)
        if size == feature.size:
            return
        flag = f"--{feature.size_flag}" if feature.size_flag else feature.name
        other = f"use {flag}={size}, with which the data were made, or " if size else ""
        raise InputError(
            f"{where}, a record whose {feature.name} has {size} values in its {kind}",
            f"{feature.size} values, as {flag} says",
            f"{other}make the data again",
        )


def pretraining_record(
    *, max_seq_length: int, max_predictions_per_seq: int, next_sentence: bool = True
) -> Record:
    """The record of masked-LM and next-sentence pre-training (original: `input_fn_builder`).

    Features: input_ids, input_mask, segment_ids int64 [S]; masked_lm_positions, masked_lm_ids
    int64 [P]; masked_lm_weights float32 [P]; unless `next_sentence` is false,
    next_sentence_labels int64 [1], 1 = random.
    """
    length, predictions = "max_seq_length", "max_predictions_per_seq"
    features = [
        *(
            Feature(name, tf.int64, max_seq_length, length)
            for name in ("input_ids", "input_mask", "segment_ids")
        ),
        Feature("masked_lm_positions", tf.int64, max_predictions_per_seq, predictions),
        Feature("masked_lm_ids", tf.int64, max_predictions_per_seq, predictions),
        Feature("masked_lm_weights", tf.float32, max_predictions_per_seq, predictions),
    ]
    if next_sentence:
        features.append(Feature("next_sentence_labels", tf.int64, 1))
    return Record("pre-training", tuple(features))
