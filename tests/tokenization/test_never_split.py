"""Pieces that are never split: by hand, and against a search in Python on random texts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer

KEPT = ("[MASK]", "<e1>", "<e1>x", "a+b é", "İ")
PIECES = ["[UNK]", "[MASK]", "<e1>x", "<e1>", "a+b é", "İ", "he", "##r", "a", "##a", "b", "##b"]
PIECES += ["i", "e", "x", "1", ".", "[", "]", "<", ">", "+", "mask", "σ", "ς", "##ς", "##σ"]


def make(never_split=KEPT, *, do_lower_case: bool = True) -> FullTokenizer:
    return FullTokenizer("v", do_lower_case, pieces=PIECES, never_split=never_split)


@pytest.fixture(scope="module")
def tokenizer() -> FullTokenizer:
    return make()


@pytest.fixture(scope="module")
def original() -> FullTokenizer:
    return make(())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("he[MASK]a", ["he", "[MASK]", "a"]),  # needs no spaces
        ("her [MASK].", ["he", "##r", "[MASK]", "."]),
        ("[MASK][MASK]", ["[MASK]", "[MASK]"]),
        ("[mask] [MASK", ["[", "mask", "]", "[", "mask"]),  # of its own case, and whole
        ("<e1>xx <e1>", ["<e1>x", "x", "<e1>"]),  # the longer of two
        ("aa+b éb", ["a", "a+b é", "b"]),  # no pattern, though it has characters of one
        ("İ i̇", ["İ", "i"]),  # before lower-casing, which would make them alike
        ("σΣ[MASK]Σ", ["σ", "##ς", "[MASK]", "σ"]),  # a part ends as a text does
        (b"a[MA\xffSK]\xffb\xff", ["a", "[MASK]", "b"]),  # what is no UTF-8 is not there
        ("", []),
        ("[MASK]", ["[MASK]"]),
    ],
)
def test_by_hand(tokenizer, text, pieces):
    assert tokenizer.tokenize(text) == pieces


def test_the_original_splits_them(original):
    assert original.tokenize("he[MASK]a < b") == ["he", "[", "mask", "]", "a", "<", "b"]
    assert original.never_split == ()


def test_offsets(tokenizer):
    """In code points of the text, whatever is before: two bytes, an accent, a line end."""
    texts = ["é[MASK]e\u0301 her<e1>\n", "", b"\xff[MASK]a"]
    ids, starts, ends = (ragged.to_list() for ragged in tokenizer.tokenize_with_offsets(texts))
    assert ids == tokenizer.tokenize_ids(texts).to_list()
    names = [tokenizer.convert_ids_to_tokens(row) for row in ids]
    assert names == [["e", "[MASK]", "e", "he", "##r", "<e1>"], [], ["[MASK]", "a"]]
    assert starts == [[0, 1, 7, 10, 12, 13], [], [0, 6]]
    assert ends == [[1, 7, 9, 12, 13, 17], [], [6, 7]]


def by_search(original: FullTokenizer, text: str) -> list[str]:
    """The original's pieces of what is between, and the kept ones."""
    pattern = "|".join(re.escape(piece) for piece in sorted(KEPT, key=len, reverse=True))
    pieces = []
    for part in re.split(f"({pattern})", text):
        pieces += [part] if part in KEPT else original.tokenize(part)
    return pieces


@given(texts=st.lists(st.lists(st.sampled_from([*KEPT, *"aebσΣéx. [<+", "\u0301", "\ud800"]))))
@settings(max_examples=30)
def test_random_texts(tokenizer, original, texts):
    texts = ["".join(parts) for parts in texts]
    expected = [by_search(original, text) for text in texts]
    assert tokenizer.tokenize(texts) == expected
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    found = zip(ids.to_list(), starts.to_list(), ends.to_list(), strict=True)
    for text, pieces, row in zip(texts, expected, found, strict=True):
        assert tokenizer.convert_ids_to_tokens(row[0]) == pieces
        for piece, start, end in zip(pieces, *row[1:], strict=True):
            assert piece not in KEPT or text[start:end] == piece
        assert sorted(row[1]) == row[1]


@pytest.mark.parametrize(
    ("never_split", "message"),
    [("[MASK]", "never_split"), (("[MASK]", ""), "never_split"), (("<e2>",), "without <e2>")],
)
def test_no_pieces_of_the_vocabulary(never_split, message):
    with pytest.raises(InputError, match=message):
        make(never_split)
