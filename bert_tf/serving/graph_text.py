"""Texts and records of a request -> the batch that a model takes, as TensorFlow operations.

`bert_tf.layers.Tokenizer` makes sequences of texts. Shapes: N rows, S the longest sequence.
"""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.tokenization.layer import FEATURE_NAMES, Tokenizer
from bert_tf.tokenization.wordpiece import LEAST_LENGTH, FullTokenizer

Features = dict[str, tf.Tensor]


class Sequences:
    """Texts -> sequences of a model, by the tokenizer that the model was trained with."""

    def __init__(self, tokenizer: FullTokenizer, config: BertConfig, *, max_seq_length: int):
        """Checks that the three fit each other.

        Args:
          tokenizer: with [CLS] and [SEP] in its vocabulary.
          config: the configuration of the model.
          max_seq_length: maximum sequence length in tokens; longer sequences are cut.

        Raises:
          InputError: [CLS] or [SEP] is missing, or the length is out of the model's range.
        """
        config.check_sequence_length(max_seq_length)
        if max_seq_length < LEAST_LENGTH:
            received = f"--max_seq_length={max_seq_length}"
            raise InputError(received, f"{LEAST_LENGTH} or more", "use a greater one")
        self.tokenizer = tokenizer
        self.config = config
        self.max_seq_length = max_seq_length
        layer = Tokenizer(tokenizer, max_length=max_seq_length)
        self.of_texts = layer.call
        self.of_pairs = layer.of_pairs
        self.of_runs = layer.of_runs
        self.join = layer.join

    def piece_names(self) -> list[str]:
        """The word piece of each row of the embedding table, `#row` beyond the vocabulary."""
        return [self.tokenizer.inv_vocab.get(i, f"#{i}") for i in range(self.config.vocab_size)]


# ---------------------------------------------------------------------------- records


def parse_records(
    serialized: tf.Tensor, names: tuple[str, ...] = FEATURE_NAMES
) -> dict[str, tf.RaggedTensor]:
    """Serialized tf.Examples [N] -> features int64 [N, (length of the record)].

    Raises (at run time):
      InvalidArgumentError: one is no tf.Example, has no input_ids, has a mask or segments of
        another length, or has numbers beyond int32.
    """
    spec = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for name in names}
    parsed = tf.io.parse_example(serialized, spec)
    lengths = tf.stack([parsed[name].row_lengths() for name in FEATURE_NAMES])  # [3, N]
    values = tf.concat([parsed[name].values for name in names], 0)
    fits = tf.reduce_all((values >= tf.int32.min) & (values <= tf.int32.max))
    alike = tf.reduce_all((lengths == lengths[:1]) & (lengths > 0))
    wanted = f"{', '.join(FEATURE_NAMES)}, equally many and at least one"
    parsed = checked(parsed, fits, "a tf.Example must have numbers of 32 bits")
    return checked(parsed, alike, f"a tf.Example must have {wanted}")


def parse_examples(serialized: tf.Tensor, names: tuple[str, ...] = FEATURE_NAMES) -> Features:
    """Serialized tf.Examples [N] -> features int32 [N, S], padded with 0 to the longest record."""
    parsed = parse_records(serialized, names)
    size = tf.reduce_max(tf.concat([parsed["input_ids"].row_lengths(), [1]], 0))
    widths = {name: size if name in FEATURE_NAMES else -1 for name in names}
    return {
        name: tf.cast(parsed[name].to_tensor(shape=tf.stack([-1, width])), tf.int32)
        for name, width in widths.items()
    }


def accepted(features: Features, config: BertConfig) -> Features:
    """Checks a request's features, and removes columns that are padding in every row.

    A mask may have any number but 0 for word pieces, as in the models; here it becomes 1.

    Raises (at run time):
      InvalidArgumentError: they do not fit each other or the model.
    """
    # Checked here because look-ups on a GPU accept any number.
    for name, size in (("input_ids", config.vocab_size), ("segment_ids", config.type_vocab_size)):
        fits = tf.reduce_all((features[name] >= 0) & (features[name] < size))
        features = checked(features, fits, f"{name} must be 0 or more and below {size}")
    mask = tf.cast(features["input_mask"] != 0, tf.int32)
    features = {**features, "input_mask": mask}
    least = 1
    if "masked_lm_positions" in features:
        rows, width = tf.unstack(tf.shape(features["input_ids"]))
        positions = features["masked_lm_positions"]  # [B, P]
        fits = tf.reduce_all((positions >= 0) & (positions < width))
        message = (
            "masked_lm_positions must have a row for each of input_ids, and be 0 or more and below "
            "their width"
        )
        features = checked(features, fits & (tf.shape(positions)[0] == rows), message)
        flat = tf.reshape(features["masked_lm_positions"], [-1])
        least = tf.reduce_max(tf.concat([flat, [0]], 0)) + 1
    return without_padding(features, most=config.max_position_embeddings, least=least)


def without_padding(features: Features, *, most: int, least: int | tf.Tensor = 1) -> Features:
    """Features [N, S] cut to the longest row, but not below `least` columns.

    Raises (at run time):
      InvalidArgumentError: the shapes differ, or a row is longer than `most`.
    """
    shapes = [tf.shape(features[name]) for name in FEATURE_NAMES]
    alike = tf.reduce_all(tf.equal(shapes[0], tf.stack(shapes)))
    features = checked(features, alike, f"{', '.join(FEATURE_NAMES)} must have the same shape")
    ends = tf.where(features["input_mask"] != 0, tf.range(1, shapes[0][-1] + 1), 1)
    longest = tf.reduce_max(tf.concat([tf.reshape(ends, [-1]), [least]], 0))
    fits = longest <= most
    features = checked(features, fits, f"a row has more than {most} pieces, the most of this model")
    shorter = {name: features[name][..., :longest] for name in FEATURE_NAMES}
    return features | shorter


def checked(features: dict, condition: tf.Tensor, message: str) -> dict:
    """The same tensors, dense or ragged; a request that fails the condition is refused."""
    check = tf.raw_ops.Assert(condition=condition, data=[message])
    with tf.control_dependencies([check]):
        return tf.nest.map_structure(tf.identity, features, expand_composites=True)


# ---------------------------------------------------------------------------- many sequences

TOKENS_AT_ONCE = 16384  # of the windows of a long document that the model computes together


def in_chunks(
    compute: Callable[[Features], list[tf.Tensor]], features: Features, *, dtypes: list[tf.DType]
) -> list[tf.Tensor]:
    """Runs `compute` on some rows at a time, so that any number of rows needs bounded memory.

    Args:
      compute: features [n, S] -> tensors [n, ...].
      features: int32 [N, S].
      dtypes: the dtypes of the computed tensors.

    Returns:
      The tensors [N, ...].
    """
    rows, length = tf.unstack(tf.shape(features["input_ids"]))
    at_once = tf.maximum(TOKENS_AT_ONCE // length, 1)
    # At least one chunk: without rows it gives the shapes.
    num_chunks = tf.maximum((rows + at_once - 1) // at_once, 1)
    arrays = [tf.TensorArray(dtype, size=num_chunks, infer_shape=False) for dtype in dtypes]

    def body(i, arrays):
        chunk = {name: x[i * at_once : (i + 1) * at_once] for name, x in features.items()}
        values = compute(chunk)
        arrays = [array.write(i, value) for array, value in zip(arrays, values, strict=True)]
        return i + 1, arrays

    _, arrays = tf.while_loop(lambda i, _: i < num_chunks, body, [0, arrays], parallel_iterations=1)
    return [array.concat() for array in arrays]
