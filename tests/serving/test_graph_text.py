"""Pieces -> batches in the graph: the sequences that the Python side makes, padding and chunks."""

import numpy as np
import pytest
import small
import small_squad
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import BertConfig
from bert_tf.heads import Labels
from bert_tf.serving import graph_text
from bert_tf.serving.graph_text import Sequences
from bert_tf.tasks.examples import Example
from bert_tf.tasks.features import classifier_record, make_features
from bert_tf.tokenization.layer import FEATURE_NAMES

CASED = small_squad.make_tokenizer(do_lower_case=False)
CONFIG = BertConfig(vocab_size=CASED.vocab_size, max_position_embeddings=31)
LENGTH = 11
MADE = Sequences(CASED, CONFIG, max_seq_length=LENGTH)
of_pairs = tf.function(MADE.of_pairs, input_signature=[tf.TensorSpec([None], tf.string)] * 2)
of_texts = tf.function(MADE.of_texts, input_signature=[tf.TensorSpec([None], tf.string)])
ONE = Labels(names=("a", "b"))


def expected(pairs) -> dict[str, list[list[int]]]:
    """What run_classifier.py makes of them, padded to the longest."""
    examples = [Example("g", *pair) for pair in pairs]
    rows = list(make_features(examples, ONE, CASED, max_seq_length=LENGTH))
    longest = max((len(row.input_ids[0]) for row in rows), default=1)
    values = [row.values(longest) for row in rows]
    return {name: [value[name] for value in values] for name in FEATURE_NAMES}


def utf8(texts) -> tf.Tensor:
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)


clean = small_squad.long_texts.map(lambda text: text.encode("utf-8", "replace").decode())


@settings(max_examples=60)
@given(st.lists(st.tuples(clean, clean), max_size=5))
def test_pairs_and_texts_are_those_of_training(pairs):
    first, second = ([pair[i] for pair in pairs] for i in (0, 1))
    for made, given_pairs in (
        (of_pairs(utf8(first), utf8(second)), pairs),
        (of_texts(utf8(first)), [(text, None) for text in first]),
    ):
        wanted = expected(given_pairs)
        for name in FEATURE_NAMES:
            assert made[name].dtype == tf.int32
            assert made[name].numpy().tolist() == wanted[name], name


# ---------------------------------------------------------------------------- records


def test_records_of_different_lengths_become_one_batch():
    serialized, lengths = [], (3, 7, 5)
    for length in lengths:
        values = {name: [i + 1] * length for i, name in enumerate(FEATURE_NAMES)}
        values |= {"label_ids": [1], "is_real_example": [1]}
        serialized.append(classifier_record(max_seq_length=length).serialize(values))
    parsed = graph_text.parse_examples(tf.constant(serialized))
    for i, name in enumerate(FEATURE_NAMES):
        wanted = [[i + 1] * length + [0] * (7 - length) for length in lengths]
        assert (parsed[name].numpy().tolist(), parsed[name].dtype) == (wanted, tf.int32)
    none = graph_text.parse_examples(tf.constant([], tf.string))
    assert {value.shape[0] for value in none.values()} == {0}


def test_a_mask_of_any_numbers():
    """What is not 0 is seen, and columns that no row sees are cut."""
    ids = tf.constant([[5, 6, 7, 8], [5, 0, 7, 0]])
    mask = tf.constant([[7, -3, 1, 0], [1, 2, 0, 0]])
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    found = graph_text.accepted(features, CONFIG)
    assert found["input_mask"].numpy().tolist() == [[1, 1, 1], [1, 1, 0]]
    assert found["input_ids"].numpy().tolist() == [[5, 6, 7], [5, 0, 7]]


@pytest.mark.parametrize("lengths", [(3, 3, None), (3, 0, 3), (3, 3, 4), (0, 0, 0)])
def test_a_record_that_lacks_something_is_refused(lengths):
    def serialized(*sizes: int | None) -> bytes:
        features = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=[1] * size))
            for name, size in zip(FEATURE_NAMES, sizes, strict=True)
            if size is not None
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    whole = serialized(3, 3, 3)
    assert graph_text.parse_examples(tf.constant([whole]))["input_mask"].shape == (1, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="equally many and at least one"):
        graph_text.parse_examples(tf.constant([whole, serialized(*lengths)]))


def test_columns_that_are_padding_in_every_row_are_taken_off():
    features = small.examples(rows=6, seed=2)
    features["input_mask"][:, 5:] = 0
    given_features = {name: tf.constant(features[name]) for name in FEATURE_NAMES}
    longest = int(features["input_mask"].sum(axis=1).max())
    assert longest < small.S
    for least in (1, longest + 1):
        cut = graph_text.without_padding(given_features, most=small.S, least=least)
        for name in FEATURE_NAMES:
            np.testing.assert_array_equal(cut[name], features[name][:, : max(longest, least)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"more than {longest - 1} pieces"):
        graph_text.without_padding(given_features, most=longest - 1)


# ---------------------------------------------------------------------------- chunks


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_chunks_give_what_one_computation_gives(rows, monkeypatch):
    monkeypatch.setattr(graph_text, "TOKENS_AT_ONCE", 10)  # two rows of five, and a rest of one
    features = {"input_ids": tf.reshape(tf.range(rows * 5), [rows, 5])}
    seen = []

    def compute(chunk):
        seen.append(chunk["input_ids"].shape[0])
        ids = chunk["input_ids"]
        return [tf.cast(ids, tf.float32) * 2, tf.reduce_sum(ids, 1)]

    twice, sums = graph_text.in_chunks(compute, features, dtypes=[tf.float32, tf.int32])
    np.testing.assert_array_equal(twice, features["input_ids"].numpy() * 2.0)
    np.testing.assert_array_equal(sums, features["input_ids"].numpy().sum(axis=1))
    assert max(seen) <= 2
    assert len(seen) == max(1, -(-rows // 2))
