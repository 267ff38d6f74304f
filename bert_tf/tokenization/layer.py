"""Texts -> the batch that a model takes, as TensorFlow operations; a layer that does it.

    a            [[who, founded, it], [why]]
    b            [[ru, ##pre, ##cht], []]
    input_ids    [CLS] who founded it [SEP] ru ##pre ##cht [SEP]
                 [CLS] why [SEP]  0    0     0   0     0     0      padded to the longest row only

The same sequences as `FullTokenizer` makes, and `bert_tf.tasks.features` in Python.

Shapes: N runs or rows, S the longest sequence.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.declarations import check
from bert_tf.errors import InputError
from bert_tf.runtime import refuse_forked
from bert_tf.tokenization.texts import EXPECTED, as_columns, not_a_text
from bert_tf.tokenization.wordpiece import (
    LEAST_LENGTH,
    SPECIAL_PIECES,
    FullTokenizer,
    choose_case,
    read_vocabulary,
    utf8,
)

FEATURE_NAMES = ("input_ids", "input_mask", "segment_ids")


@keras.saving.register_keras_serializable(package="bert_tf")
class Tokenizer(keras.layers.Layer):
    """Raw texts -> input_ids, input_mask and segment_ids, int32 [..., S]: a layer on TensorFlow.

        tokenize = bert_tf.layers.Tokenizer("vocab.txt", length=128)
        tokenize(["a text", "another"], ["the second of the first", ""])            eagerly
        tokenize([("a text", "the second of the first"), ("another", "")])          the same
        dataset.map(lambda text, label: (tokenize(text), label))                    in tf.data
        model(tokenize(keras.Input((), dtype="string")))                            in a model
        keras.Sequential([tokenize, ...])                                           its first layer

    The ids are those of `FullTokenizer`. A model with this layer is saved with its vocabulary,
    takes texts in `fit`, `predict` and what `model.export` writes, and is not compiled by XLA,
    which has no texts. Of a subclass of `keras.Model` Keras exports inputs of float32, unless the
    class has the attribute `input_dtype = "string"`, or the call says it:

        model.export(path, input_signature=[keras.InputSpec("string", (None,))])

    Attributes:
      tokenizer: the `FullTokenizer`.
    """

    def __init__(
        self,
        vocabulary: str | os.PathLike | Sequence[str] | Mapping[str, Any] | FullTokenizer,
        length: int | None = None,
        *,
        max_length: int | None = None,
        do_lower_case: bool | None = None,
        **kwargs: Any,
    ):
        """With a vocabulary.

        Args:
          vocabulary: the path of a vocab.txt, its pieces, or a tokenizer, such as that of a model;
            or what `FullTokenizer.get_config` gives.
          length: S: of longer texts the end is cut off, of pairs that of the longer, and shorter
            ones are padded with 0. None: cut to `max_length`, padded to the longest of the batch.
          max_length: the most ids of a sequence, without a `length`; None: `longest` of the
            tokenizer, else 512.
          do_lower_case: whether a path or pieces are lower-cased; None: as they show. A tokenizer
            has its own.
          **kwargs: as of Keras's layers: name, dtype, trainable.

        Raises:
          InputError: the vocabulary cannot be read, lacks [CLS], [SEP] or [UNK], does not show its
            case; or a length is below 5 or above the positions of the tokenizer's model.
          ValueError: Keras's layers have no such argument.
        """
        super().__init__(**{"trainable": False, **kwargs})
        self.supports_jit = False
        self.built = True
        for name, value in {"length": length, "max_length": max_length}.items():
            check(name, value, int | None, low=LEAST_LENGTH)
        self.tokenizer = _tokenizer(vocabulary, do_lower_case)
        self.length = length
        self.max_length = max_length or self.tokenizer.longest or 512
        most = self.tokenizer.positions
        if most:
            check("length", self.length or self.max_length, int, high=most)
        self.tokenizer.require_special_tokens("[CLS]", "[SEP]")
        self._special = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])

    @property
    def compute_dtype(self) -> str:
        """Of the inputs, from which `keras.Sequential` makes its own."""
        return "string"

    variable_dtype = compute_dtype

    def __call__(
        self,
        texts: Any,
        text_pairs: Any = None,
        *,
        training: bool | None = None,  # noqa: ARG002
    ) -> dict[str, tf.Tensor]:
        """As `call`, whether in `training` or not; also of Keras's symbolic inputs.

        Keras's own converts what it is given to numbers, and refuses texts that are no tensors.
        """
        if isinstance(texts, keras.KerasTensor):
            return super().__call__(texts, *([] if text_pairs is None else [text_pairs]))
        return self.call(texts, text_pairs)

    def call(self, texts: Any, text_pairs: Any = None) -> dict[str, tf.Tensor]:
        """Texts -> the inputs of a model.

        Args:
          texts: str or bytes of any shape [...]: a text, lists, columns, arrays, a string tensor.
            Or a list of pairs, each a tuple of two texts.
          text_pairs: as many, the second of each, "" for none; None: there are none, or `texts` has
            them.

        Returns:
          input_ids, input_mask, segment_ids, int32 [..., S] each.

        Raises:
          InputError: an item is not a text, or there are pairs among texts; the message names it.
            Or the process was forked after TensorFlow had run.
        """
        refuse_forked("a tokenizer")  # before any operation
        if _has_tuples(texts):
            texts, text_pairs = as_columns(texts, text_pairs)
        first = _as_tensor(texts, "texts")  # [...]
        flat = tf.reshape(first, [-1])  # [N]
        if text_pairs is None:
            features = self.of_runs(runs_of(self.tokenizer.tokenize_ids(flat)))
        else:
            second = _as_tensor(text_pairs, "text_pairs")
            second = tf.reshape(tf.reshape(second, tf.shape(first)), [-1])
            features = self.of_pairs(flat, second)
        shape = tf.concat([tf.shape(first), [-1]], 0)
        return {name: self._shaped(value, first, shape) for name, value in features.items()}

    def _shaped(self, value: tf.Tensor, texts: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        """[N, S] -> [..., S], padded to `length`."""
        if self.length:
            value = tf.pad(value, [[0, 0], [0, self.length - tf.shape(value)[1]]])
        value = tf.reshape(value, shape)
        value.set_shape([*texts.shape, self.length])  # as far as it is known
        return value

    @property
    def _most(self) -> int:
        """The most ids of a sequence; the tokenizer may have been given to a model since."""
        most = self.length or self.max_length
        return min(most, self.tokenizer.positions or most)

    def of_pairs(self, texts_a: tf.Tensor, texts_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """Pairs of texts [N] as sequences; a second text without a piece counts as none."""
        count = tf.shape(texts_a)[0]
        # One call for both: tokenization has many small operations.
        both = runs_of(self.tokenizer.tokenize_ids(tf.concat([texts_a, texts_b], 0)))
        a = Runs(both.ids, both.starts[:count], both.lengths[:count])
        b = Runs(both.ids, both.starts[count:], both.lengths[count:])
        special = tf.where(b.lengths > 0, SPECIAL_PIECES, SPECIAL_PIECES - 1)  # [N]
        return self.join(*cut_pair(a, b, self._most - special))

    def of_runs(self, runs: "Runs") -> dict[str, tf.Tensor]:
        """Runs of ids, each cut to length, as sequences."""
        return self.join(runs.cut(self._most - SPECIAL_PIECES + 1), None)

    def join(self, a: "Runs", b: "Runs | None") -> dict[str, tf.Tensor]:
        """[CLS] a [SEP] b [SEP] of N runs each; where b has no piece, [CLS] a [SEP].

        Returns:
          input_ids, input_mask, segment_ids, int32 [N, S] with S at least 1.
        """
        special = tf.constant([0, *self._special], tf.int32)  # padding is 0, as in the original
        lengths = a.lengths + 2  # with [CLS] and [SEP]
        first_end = lengths[:, tf.newaxis]  # [N, 1]
        if b is not None:
            lengths += tf.where(b.lengths > 0, b.lengths + 1, 0)
        longest = tf.reduce_max(tf.concat([lengths, [1]], 0))  # of no row at all: 1
        position = tf.range(longest)[tf.newaxis]  # [1, S]
        # The index in [special, a.ids, b.ids] of each position's id; 2, [SEP], unless set below.
        in_a = position <= a.lengths[:, tf.newaxis]
        place = tf.where(in_a, 2 + a.starts[:, tf.newaxis] + position, 2)
        values = [special, a.ids]
        if b is not None:
            shift = 3 + tf.size(a.ids) + b.starts[:, tf.newaxis] - first_end  # [N, 1]
            in_b = (position >= first_end) & (position < first_end + b.lengths[:, tf.newaxis])
            place = tf.where(in_b, shift + position, place)
            values.append(b.ids)
        mask = position < lengths[:, tf.newaxis]
        place = tf.where(mask, tf.where(position == 0, 1, place), 0)
        return {
            "input_ids": tf.gather(tf.concat(values, 0), place),
            "input_mask": tf.cast(mask, tf.int32),
            "segment_ids": tf.cast(mask & (position >= first_end), tf.int32),
        }

    def compute_output_spec(self, texts: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """int32 [..., S] each."""
        shape = (*texts.shape, self.length)
        return {name: keras.KerasTensor(shape, dtype="int32") for name in FEATURE_NAMES}

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the vocabulary's pieces among them."""
        return {
            **super().get_config(),
            "vocabulary": self.tokenizer.get_config(),
            "length": self.length,
            "max_length": self.max_length,
        }


def _tokenizer(vocabulary: Any, do_lower_case: bool | None) -> FullTokenizer:
    if isinstance(vocabulary, FullTokenizer | Mapping):
        if do_lower_case is not None:
            received = f"do_lower_case={do_lower_case} with a tokenizer, which has its own"
            raise InputError(received, "one of the two", "give the path of the vocabulary")
        is_made = isinstance(vocabulary, FullTokenizer)
        return vocabulary if is_made else FullTokenizer(**vocabulary)
    is_path = isinstance(vocabulary, str | os.PathLike)
    name = os.fspath(vocabulary) if is_path else "the given pieces"
    pieces = read_vocabulary(name) if is_path else list(vocabulary)
    lower = choose_case(name, pieces, do_lower_case)
    return FullTokenizer(name, lower, pieces=pieces)


def _has_tuples(texts: Any) -> bool:
    """Whether it is a list, a column or an array with a tuple in it; a tuple itself is a list."""
    if tf.is_tensor(texts) or isinstance(texts, str | bytes | Mapping | Iterator):
        return False
    is_list = hasattr(texts, "__iter__") and getattr(texts, "ndim", 1) > 0
    return is_list and any(isinstance(text, tuple) for text in texts)


def _as_tensor(texts: Any, name: str) -> tf.Tensor:
    """Texts of any shape as a string tensor."""
    if tf.is_tensor(texts):
        return _checked(texts, name)
    array = np.asarray(texts, dtype=object)
    for place, text in np.ndenumerate(array):
        if not isinstance(text, str | bytes):
            raise not_a_text(text, f"{name}[{', '.join(map(str, place))}]" if place else name)
    return tf.reshape(tf.constant([utf8(text) for text in array.ravel()], tf.string), array.shape)


def _checked(texts: tf.Tensor, name: str) -> tf.Tensor:
    """A string tensor; of other symbolic ones "" for each value, and an error where they are run.

    Keras calls the layers of a subclassed model with placeholders of float32, whatever it takes: to
    make their weights when it is loaded, and for a function that is in each export.
    """
    if texts.dtype == tf.string and isinstance(texts, tf.Tensor):
        return texts
    received = f"{name}, a tensor of {texts.dtype.name} ({type(texts).__name__})"
    remedy = """give texts; a ragged tensor with .to_tensor(""); a subclass of keras.Model with \
`input_dtype = "string"`, or exported with input_signature=[keras.InputSpec("string", (None,))]"""
    error = InputError(received, f"{EXPECTED}, or a string tensor", remedy)
    if hasattr(texts, "numpy") or not isinstance(texts, tf.Tensor):
        raise error
    with tf.control_dependencies([tf.debugging.Assert(False, [str(error)])]):
        empty = tf.fill(tf.shape(texts), "")
    empty.set_shape(texts.shape)
    return empty


# ---------------------------------------------------------------------------- runs of ids


class Runs(NamedTuple):
    """N runs of one flat list of ids, which may overlap.

    Attributes:
      ids: int32 [any].
      starts, lengths: int32 [N].
    """

    ids: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor

    def cut(self, most: int | tf.Tensor) -> "Runs":
        """The first `most` ids of each run."""
        return self._replace(lengths=tf.minimum(self.lengths, most))


def runs_of(ragged: tf.RaggedTensor) -> Runs:
    """The rows of a ragged tensor [N, (pieces)]."""
    splits = tf.cast(ragged.row_splits, tf.int32)
    return Runs(ragged.values, splits[:-1], splits[1:] - splits[:-1])


def cut_pair(a: Runs, b: Runs, most: int | tf.Tensor) -> tuple[Runs, Runs]:
    """Cuts pairs to `most` pieces, from the longer's end, from b's if equal.

    The closed form of the original's loop `_truncate_seq_pair`.
    """
    of_a = tf.minimum(a.lengths, tf.maximum(most - b.lengths, (most + 1) // 2))
    return a.cut(of_a), b.cut(most - of_a)
