"""tasks/spans.py: spans of characters become words with tags."""

import doctest

import pytest

from bert_tf.tasks import spans
from bert_tf.tasks.spans import Span, spans_of, tags_of, words_of

TEXT = "Anna's 🙂 flat, Rome-East. "


def test_the_drawn_example():
    assert doctest.testmod(spans).failed == 0


def test_words_and_tags_of_texts():
    first, empty, last = words_of([TEXT, " ", "東京 U.S."])
    assert [word.text for word in first] == [
        "Anna",
        "'",
        "s",
        "🙂",
        "flat",
        ",",
        "Rome",
        "-",
        "East",
        ".",
    ]
    assert all(TEXT[word.start : word.end] == word.text for word in first)
    assert (empty, [word.text for word in last]) == ([], ["東", "京", "U", ".", "S", "."])
    found = tags_of(first, [Span(15, 24, "LOC"), Span(0, 4, "PER")], len(TEXT))
    assert found == ["B-PER", "O", "O", "O", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O"]
    assert tags_of(first, [Span(0, 4, "X"), Span(4, 7, "X")], len(TEXT))[:4] == (
        ["B-X", "B-X", "I-X", "O"]
    )  # white space at a border is of no word
    assert tags_of(first, [], len(TEXT)) == ["O"] * 10


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (1, 4, "begins inside of the word 'Anna'"), (0, 3, "ends inside of the word 'Anna'"),
        (1, 3, "begins inside of the word 'Anna'"), (25, 27, "of a text of 26 characters"),
        (-1, 4, "of a text of 26 characters"), (7, 7, "of a text"), (6, 7, "has no word in it"),
        (17, 24, "inside of the word 'Rome'"), (4, 19, "overlaps another one"),
    ],
)  # fmt: skip
def test_spans_that_are_of_no_words_are_refused_with_the_reason(start, end, reason):
    (words,) = words_of([TEXT])
    others = [Span(15, 19, "LOC")] if "overlaps" in reason else []
    with pytest.raises(ValueError, match=reason):
        tags_of(words, [*others, Span(start, end, "PER")], len(TEXT))


@pytest.mark.parametrize(
    "value",
    [
        {"start": 0, "end": 4}, ["PER"], [{"start": "0", "end": 4, "label": "X"}], [[0, 4]],
        [{"start": 0, "end": 4, "label": " "}], [[False, 4, "X"]], None, [None], "0",
        [{"start": 0, "end": 4.0, "label": "X"}], [{"start": 0, "end": 4, "label": ["X"]}],
    ],
)  # fmt: skip
def test_what_is_no_span_is_refused(value):
    with pytest.raises(ValueError, match="without start, end and label"):
        spans_of(value)
