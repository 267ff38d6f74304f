"""Sequences of one and two texts, by hand and against the original's loop."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bert_tf.tokenization.packing import Packer, truncate_pair
from bert_tf.tokenization.wordpiece import FullTokenizer

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
