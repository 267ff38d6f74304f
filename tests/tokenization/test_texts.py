"""What is taken for texts and for pairs; everything else is refused by name."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import FullTokenizer, InputError, layers
from bert_tf.tokenization.texts import as_columns, texts_of
from bert_tf.tokenization.wordpiece import utf8

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
TOKENIZER = FullTokenizer("v", pieces=PIECES)
NAN = float("nan")


class Column(Sequence):
    """As a column of `datasets`: a sequence that is no list."""

    def __init__(self, *items):
        self.items = items

    def __getitem__(self, place):
        return self.items[place]

    def __len__(self):
        return len(self.items)


class Table:
    """As a DataFrame of pandas: iterating over it gives the names of the columns."""

    shape = (2, 2)
    columns = ("a", "b")

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    "texts",
    [
        ["a b", "c"],
        ("a b", "c"),
        iter(["a b", "c"]),
        Column("a b", "c"),
        {"a b": 1, "c": 2}.keys(),
        np.array(["a b", "c"]),
        np.array(["a b", "c"], object),
        np.array([b"a b", b"c"]),
        tf.constant(["a b", "c"]),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_lists_columns_arrays_and_tensors(texts):
    if not isinstance(texts, Iterator):  # which can be read once
        assert [utf8(text) for text in texts_of(texts)] == [b"a b", b"c"]
        assert list(TOKENIZER.iter_ids(texts)) == [[4, 5], [6]]
        assert TOKENIZER.tokenize(texts) == [["a", "b"], ["c"]]
        assert TOKENIZER.tokenize_ids(texts).to_list() == [[4, 5], [6]]
    if isinstance(texts, list | tuple | Column | np.ndarray | tf.Tensor):
        batch = layers.Tokenizer(TOKENIZER)(texts)
        assert batch["input_ids"].numpy().tolist() == [[2, 4, 5, 3], [2, 6, 3, 0]]
    assert TOKENIZER(texts)["input_ids"].tolist() == [[2, 4, 5, 3], [2, 6, 3, 0]]


ENTRIES = {
    "call": TOKENIZER,
    "tokenize": TOKENIZER.tokenize,
    "iter_ids": lambda texts: list(TOKENIZER.iter_ids(texts)),
    "tokenize_ids": TOKENIZER.tokenize_ids,
    "tokenize_with_offsets": TOKENIZER.tokenize_with_offsets,
    "layer": layers.Tokenizer(TOKENIZER),
}
BARE = [["a", "b"], ["c"]]  # lists of lists, which are no two dimensions


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("texts", "received", "remedy"),
    [
        (BARE, r"texts\[0\], of type list: \['a', 'b'\]$", "for pairs give tuples, or two lists"),
        (["a", None, 7], r"texts\[1\], of type NoneType: None$", "leave such rows out"),
        (["a", "b", NAN], r"texts\[2\], of type float: nan$", "leave such rows out"),
        (["a", 7], r"texts\[1\], of type int: 7$", "list of str"),
        (np.array([7, 8]), r"texts\[0\], of type int", "list of str"),
        (np.array(["a", NAN], object), r"texts\[1\], of type float: nan$", "leave such rows out"),
        ({"text": ["a"]}, r"texts, of type dict: {'text': \['a'\]}$", r"of one key \(here: 'text'"),
        ([{"text": "a"}], r"texts\[0\], of type dict: {'text': 'a'}$", "of one key"),
        ({"a", "b"}, r"texts, of type set: ", "list of str"),
        (None, "texts, of type NoneType: None$", "leave such rows out"),
        (7, "texts, of type int: 7$", "list of str"),
    ],
)
def test_what_is_no_list_of_texts(entry, texts, received, remedy):
    with pytest.raises(
        InputError, match="Expected: a list of texts, each a str or bytes"
    ) as caught:
        ENTRIES[entry](texts)
    assert re.search(received, caught.value.received)
    assert re.search(remedy, caught.value.remedy)


TABLES = [np.array([["a", "b"], ["c", ""]]), Table(), np.array("a"), tf.constant([["a"], ["b"]])]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(table).__name__)
def test_other_dimensions_than_one(table):
    for entry in ("call", "tokenize", "iter_ids", "tokenize_ids"):
        with pytest.raises(InputError, match=r"texts, of type .* and shape \((2, [12])?\)\n"):
            ENTRIES[entry](table)


def test_numbers_in_a_tensor():
    with pytest.raises(InputError, match=r"texts\[0\], of type float"):
        TOKENIZER.tokenize_ids(tf.constant([0.5]))

    @tf.function(autograph=False)
    def in_a_graph(numbers):
        return TOKENIZER.tokenize_ids(numbers)

    with pytest.raises(InputError, match="a tensor without a value yet, of type float32"):
        in_a_graph(tf.constant([0.5]))


@pytest.mark.parametrize("item", ["x" * 999, ["x" * 999], {"x" * 999: 1}, b"x" * 999, 10**999])
def test_a_value_is_shown_shortened(item):
    with pytest.raises(InputError) as caught:
        texts_of(["a", [item] * 999])
    assert len(str(caught.value)) < 600
    if isinstance(item, str | bytes):
        with pytest.raises(InputError, match="brackets") as caught:
            texts_of(item)
        assert len(str(caught.value)) < 300


def test_the_place_in_several_dimensions():
    with pytest.raises(InputError, match=r"texts\[1, 0\], of type int: 7"):
        layers.Tokenizer(TOKENIZER)([["a", "b", "c"], [7, "b", "c"]])


def test_texts_are_read_as_they_are_asked_for():
    texts = iter(["a", "b", 7, "c"])
    ids = TOKENIZER.iter_batches(texts)
    with pytest.raises(InputError, match=r"texts\[2\]"):
        next(ids)
    assert list(texts) == ["c"]


# ---------------------------------------------------------------------------- pairs


PAIRS = [("a b", "c"), (b"c", "")]
OF_PAIRS = [[2, 4, 5, 3, 6, 3], [2, 6, 3, 0, 0, 0]]
SEGMENTS = [[0, 0, 0, 0, 1, 1], [0] * 6]


def of_series() -> np.ndarray:
    """Pairs as objects of an array, as a column of pandas has them."""
    array = np.empty(2, object)
    array[:] = PAIRS
    return array


@pytest.mark.parametrize("tokenize", [TOKENIZER, layers.Tokenizer(TOKENIZER)])
@pytest.mark.parametrize(
    "given",
    [(PAIRS,), (tuple(PAIRS),), (Column(*PAIRS),), (of_series(),), (["a b", "c"], ["c", ""])],
)
def test_pairs_are_tuples_or_two_lists(tokenize, given):
    batch = {name: np.asarray(value).tolist() for name, value in tokenize(*given).items()}
    assert (batch["input_ids"], batch["segment_ids"]) == (OF_PAIRS, SEGMENTS)


def test_columns():
    assert as_columns(PAIRS) == (["a b", b"c"], ["c", ""])
    assert as_columns(iter(PAIRS)) == (["a b", b"c"], ["c", ""])
    assert as_columns(("a", "b", "c")) == (["a", "b", "c"], None)  # a tuple of texts is a list
    assert as_columns("a") == (["a"], None)
    assert as_columns("a", "b") == (["a"], ["b"])
    assert as_columns([]) == ([], None)
    assert as_columns([], []) == ([], [])
    assert as_columns(np.array(["a", "b"]), Column("c", "")) == (["a", "b"], ["c", ""])


@pytest.mark.parametrize("tokenize", [TOKENIZER, layers.Tokenizer(TOKENIZER)])
@pytest.mark.parametrize(
    ("pairs", "received"),
    [
        (["a", ("b", "c")], r"texts\[1\], of type tuple: \('b', 'c'\), where .* of type str"),
        ([("a", "b"), "c"], r"texts\[1\], of type str: 'c', where .* of type tuple"),
        ([("a", "b"), ("a", "b", "c")], r"texts\[1\], a tuple of 3: \('a', 'b', 'c'\)"),
        ([("a", "b"), ("a",)], r"texts\[1\], a tuple of 1"),
        ([("a", "b"), ("a", None)], r"texts\[1\]\[1\], of type NoneType: None"),
        ([(NAN, "b")], r"texts\[0\]\[0\], of type float: nan"),
        ([("a", "b"), ["a", "b"]], r"texts\[1\], of type list: \['a', 'b'\]"),
        ([(["a"], ["b"])], r"texts\[0\]\[0\], of type list: \['a'\]"),
    ],
)
def test_what_is_no_list_of_pairs(tokenize, pairs, received):
    with pytest.raises(InputError) as caught:
        tokenize(pairs)
    assert re.match(received, caught.value.received)


def test_pairs_beside_second_texts():
    for tokenize in (TOKENIZER, layers.Tokenizer(TOKENIZER)):
        with pytest.raises(InputError, match="either of them alone"):
            tokenize([("a", "b"), ("b", "c")], ["c", "a"])
        with pytest.raises(InputError, match=r"text_pairs\[0\], of type NoneType"):
            tokenize(["a"], [None])


def test_lists_of_lists_have_a_shape_for_the_layer_alone():
    rows = [["a", "b"], ["c", "a b"], ["", "c"]]
    assert layers.Tokenizer(TOKENIZER, 6)(rows)["input_ids"].shape == (3, 2, 6)
    with pytest.raises(InputError, match="for pairs give tuples, or two lists"):
        TOKENIZER(rows)
