"""Texts with spans of characters -> words with tags.

    text     Anna's flat, Rome.
    spans    {"start": 0, "end": 4, "label": "PER"}, {"start": 13, "end": 17, "label": "LOC"}
    words    Anna   '  s  flat  ,  Rome   .
    tags     B-PER  O  O  O     O  B-LOC  O

doccano, Prodigy and spaCy write annotations in this form. Every punctuation mark is a word, so that
an entity may end before a mark, as here.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.errors import quoted
from bert_tf.heads.schemes import OUTSIDE

KEYS = ("start", "end", "label")


class Span(NamedTuple):
    """Characters start .. end-1 of a text, in code points from 0, and the label of them."""

    start: int
    end: int
    label: str


class PlacedWord(NamedTuple):
    """A word, and its characters start .. end-1 in the text."""

    text: str
    start: int
    end: int


def words_of(texts: Sequence[str]) -> list[list[PlacedWord]]:
    """The words of each text; every punctuation mark is a word."""
    import tensorflow as tf

    from bert_tf.tokenization.words import words_of_texts

    encoded = [text.encode("utf-8", "replace") for text in texts]  # a lone surrogate becomes ?
    all_words = words_of_texts(tf.constant(encoded, tf.string), every_mark=True)
    borders = zip(all_words.starts.numpy().tolist(), all_words.ends.numpy().tolist(), strict=True)
    words_of_each: list[list[PlacedWord]] = []
    for text, count in zip(texts, all_words.counts.numpy().tolist(), strict=True):
        borders_of_text = itertools.islice(borders, count)
        words = [PlacedWord(text[start:end], start, end) for start, end in borders_of_text]
        words_of_each.append(words)
    return words_of_each


def spans_of(value: Any) -> list[Span]:
    """The spans in a value of JSON: a list of objects with `KEYS`, or of triples of their values.

    >>> spans_of([{"start": 0, "end": 4, "label": "PER", "id": 7}, [13, 17, "LOC"]])
    [Span(start=0, end=4, label='PER'), Span(start=13, end=17, label='LOC')]

    Raises:
      ValueError: an item is no span.
    """
    spans = []
    for item in value if isinstance(value, list) else [value]:
        parts = item
        if isinstance(item, Mapping):
            parts = [item.get(key) for key in KEYS]
        is_triple = isinstance(parts, list | tuple) and len(parts) == len(KEYS)
        if not is_triple or not _are_of_a_span(*parts):
            raise ValueError(f"the span {quoted(item, 60)} without start, end and label")
        start, end, label = parts
        spans.append(Span(start, end, label.strip()))
    return spans


def _are_of_a_span(start: Any, end: Any, label: Any) -> bool:
    """Whether these are two whole numbers and a label with text."""
    are_numbers = type(start) is int and type(end) is int  # a bool is an int, too
    return are_numbers and isinstance(label, str) and bool(label.strip())


def tags_of(words: Sequence[PlacedWord], spans: Sequence[Span], length: int) -> list[str]:
    """IOB2 tags of the words of a text of `length` characters.

    Raises:
      ValueError: a span is outside of the text or empty, has no word, begins or ends inside of a
        word, or shares characters with another one.
    """
    tags = [OUTSIDE] * len(words)
    last_end = 0
    for span in sorted(spans):
        shown = f"the span {span.start} to {span.end} ({span.label})"
        if not 0 <= span.start < span.end <= length:
            raise ValueError(f"{shown} of a text of {length} characters")
        if span.start < last_end:
            raise ValueError(f"{shown} overlaps another one")
        last_end = span.end
        members = [
            number
            for number, word in enumerate(words)
            if word.start < span.end and word.end > span.start
        ]
        if not members:
            raise ValueError(f"{shown} has no word in it")
        first = words[members[0]]
        last = words[members[-1]]
        if first.start < span.start:
            raise ValueError(f"{shown} begins inside of the word {quoted(first.text, 40)}")
        if last.end > span.end:
            raise ValueError(f"{shown} ends inside of the word {quoted(last.text, 40)}")
        for number in members:
            tags[number] = f"I-{span.label}"
        tags[members[0]] = f"B-{span.label}"
    return tags
