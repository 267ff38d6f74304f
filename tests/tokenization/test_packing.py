"""Sequences of one and two texts, by hand and against the original's loop."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given

from bert_tf import layers
from bert_tf.errors import InputError
from bert_tf.tokenization.layer import cut_pair, runs_of
from bert_tf.tokenization.wordpiece import (
    FullTokenizer,
    Packer,
    joined,
    padded,
    room_for,
    truncate_pair,
)

TOKENIZER = FullTokenizer("/memory/vocab.txt", pieces=["[UNK]", "[CLS]", "[SEP]"])
CLS, SEP = 1, 2


@pytest.mark.parametrize(
    ("a", "b", "ids", "segments", "is_cut"),
    [
        ([7, 8], [], [CLS, 7, 8, SEP], [0] * 4, False),
        ([7, 8], [9], [CLS, 7, 8, SEP, 9, SEP], [0, 0, 0, 0, 1, 1], False),
        ([], [], [CLS, SEP], [0, 0], False),
        ([], [9], [CLS, SEP, 9, SEP], [0, 0, 1, 1], False),
        ([3, 4, 5, 6, 7], [], [CLS, 3, 4, 5, 6, 7, SEP], [0] * 7, False),
        ([3, 4, 5, 6, 7, 8], [], [CLS, 3, 4, 5, 6, 7, SEP], [0] * 7, True),
        ([3, 4, 5, 6], [7, 8, 9], [CLS, 3, 4, SEP, 7, 8, SEP], [0, 0, 0, 0, 1, 1, 1], True),
        ([3, 4, 5, 6], [9], [CLS, 3, 4, 5, SEP, 9, SEP], [0, 0, 0, 0, 0, 1, 1], True),
    ],
)
def test_sequences_of_seven(a, b, ids, segments, is_cut):
    assert Packer(TOKENIZER, 7).pack(a, b) == (ids, segments, is_cut)


ids = st.lists(st.integers(), max_size=30)


@given(ids, ids, st.integers(0, 40))
def test_truncation_is_that_of_the_original(a, b, most):
    """One id at a time from the end of the longer, of the second if they are alike."""
    first, second = list(a), list(b)
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()
    assert truncate_pair(a, b, most) == (first, second)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5), st.integers(5, 40))
def test_sequences_are_joined_alike_of_lists_of_bytes_and_in_graphs(pairs, most):
    """All that makes [CLS] a [SEP] b [SEP] calls one of the three."""
    pairs = [([i % 97 for i in a], [i % 97 for i in b]) for a, b in pairs]
    layer = layers.Tokenizer(TOKENIZER, max_length=most)
    a, b = (runs_of(tf.ragged.constant(column, tf.int32)) for column in zip(*pairs, strict=True))
    room = tf.constant([room_for(most, bool(second)) for _, second in pairs])
    expected = layer.join(*cut_pair(a, b, room))
    packed = [Packer(TOKENIZER, most).pack(*pair) for pair in pairs]
    for name, value in padded([(ids, segments) for ids, segments, _ in packed]).items():
        np.testing.assert_array_equal(value, expected[name])
    for (first, second), (of_lists, _, is_cut) in zip(pairs, packed, strict=True):
        if not is_cut:
            parts = (bytes(part) for part in ([CLS], first, [SEP], second))
            assert [*joined(*parts)] == of_lists


# ------------------------------------------------------------------------------ called

CALLED = FullTokenizer(
    "v", pieces=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"], max_length=9
)


def test_texts_are_padded_to_the_longest():
    batch = CALLED(["a b", b"C", ""])
    expected = {
        "input_ids": [[2, 4, 5, 3], [2, 6, 3, 0], [2, 3, 0, 0]],
        "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]],
        "segment_ids": [[0, 0, 0, 0]] * 3,
    }
    assert {name: array.tolist() for name, array in batch.items()} == expected
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}


def test_pairs():
    batch = CALLED(iter(["a b", "c"]), iter(["c", ""]))
    assert batch["input_ids"].tolist() == [[2, 4, 5, 3, 6, 3], [2, 6, 3, 0, 0, 0]]
    assert batch["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]
    assert CALLED("a", "b")["input_ids"].tolist() == [[2, 4, 3, 5, 3]]


def test_lengths_of_a_call():
    """The tokenizer's own, that of the call, none at all; the longer text of a pair is cut."""
    long = "a b c " * 9
    assert CALLED(long)["input_ids"].tolist() == [[2, *[4, 5, 6] * 2, 4, 3]]
    assert CALLED(long, max_length=6)["input_ids"].tolist() == [[2, 4, 5, 6, 4, 3]]
    assert CALLED([long], ["c"], max_length=6)["input_ids"].tolist() == [[2, 4, 5, 3, 6, 3]]
    without = FullTokenizer("v", pieces=list(CALLED.vocab))
    assert without(long)["input_ids"].shape == (1, 29)
    assert without([])["input_ids"].shape == (0, 0)


@pytest.mark.parametrize(
    ("max_length", "positions", "length"),
    [(None, None, None), (9, None, 9), (None, 7, 7), (9, 7, 7), (9, 11, 9)],
)
def test_no_sequence_is_longer_than_the_positions_of_the_model(max_length, positions, length):
    """However the tokenizer came about, and if it belongs to the model only later."""
    tokenizer = FullTokenizer("v", pieces=list(CALLED.vocab), max_length=max_length)
    early = layers.Tokenizer(tokenizer)
    tokenizer.positions = positions
    long = "a b c " * 9
    assert tokenizer.longest == length
    for tokenize in (
        tokenizer,
        early,
        layers.Tokenizer(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert tokenize([long])["input_ids"].shape == (1, length or 29)
        assert tokenize([long], ["c"])["input_ids"].shape[1] == (length or 31)
    if positions:
        for call in (tokenizer, lambda long, **length: layers.Tokenizer(tokenizer, **length)(long)):
            with pytest.raises(InputError, match=f"at most {positions}"):
                call(long, max_length=positions + 1)
        assert tokenizer(long, max_length=positions)["input_ids"].shape == (1, positions)


def test_a_tokenizer_of_its_own_configuration():
    for again in (FullTokenizer(**CALLED.get_config()), pickle.loads(pickle.dumps(CALLED))):
        assert again.get_config() == CALLED.get_config()
        assert again("a B")["input_ids"].tolist() == CALLED("a B")["input_ids"].tolist()


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ((["a", "b"], ["c"]), "2 texts and 1 second texts"),
        (("a", None, 4), "max_length 4"),
        (("a", None, 64.0), "max_length 64.0"),
    ],
)
def test_calls_that_cannot_be_answered(arguments, received):
    with pytest.raises(InputError, match=received):
        CALLED(*arguments)
    with pytest.raises(InputError, match=r"without \[CLS\], \[SEP\]"):
        FullTokenizer("v", pieces=["[UNK]"])("a")
