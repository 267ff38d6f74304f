"""Tables of every kind -> batches, by hand."""

import types

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import InputError

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
COLUMNS = {"text": ["a b", "c", "b a a"], "other": ["", "c c", "a"], "label": ["x", "y", "x"]}


class Frame:
    """What is used of a pandas DataFrame: columns by name, and their names."""

    columns = tuple(COLUMNS)

    def __getitem__(self, name):
        return np.array(COLUMNS[name], object)


class Dataset:
    """What is used of a Dataset of the package datasets."""

    column_names = tuple(COLUMNS)

    def __getitem__(self, name):
        if name not in COLUMNS:
            raise ValueError(f"Column '{name}' doesn't exist.")
        return COLUMNS[name]


ROWS = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]


@pytest.fixture(scope="module")
def tokenizer():
    return bert_tf.FullTokenizer("v", pieces=PIECES, max_length=40)


@pytest.mark.parametrize("data", [Frame(), Dataset(), COLUMNS, ROWS])
def test_batches_by_hand(tokenizer, data):
    dataset = bert_tf.make_dataset(
        data, tokenizer, text_pair="other", labels=["y", "x"], batch_size=2
    )
    assert len(dataset) == 2
    (first, y), (last, rest) = [(b, y.numpy().tolist()) for b, y in dataset]
    assert (y, rest) == ([1, 0], [1])
    expected = {
        "input_ids": [[2, 4, 5, 3, 0, 0], [2, 6, 3, 6, 6, 3]],
        "input_mask": [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]],
        "segment_ids": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]],
    }
    for name, values in expected.items():
        assert (first[name].dtype, first[name].shape) == ("int32", (2, 32))
        assert first[name].numpy()[:, :6].tolist() == values
        assert not first[name].numpy()[:, 6:].any()
    assert last["input_ids"].numpy()[0, :8].tolist() == [2, 5, 4, 4, 3, 4, 3, 0]


def test_numbers_of_a_dataset_that_names_them(tokenizer):
    """Of another order than the labels, and lists of them."""
    names = types.SimpleNamespace(names=["y", "x", "z"])
    for column, feature, y in (
        ([0, 2, 1], names, [2, 0, 1]),
        ([[0, 2], [], [1]], types.SimpleNamespace(feature=names), [[1, 0, 1], [0] * 3, [0, 1, 0]]),
    ):

        class Named(dict):
            features = {"label": feature}  # noqa: RUF012

        data = Named(text=["a", "b", "c"], label=column)
        ((_, found),) = bert_tf.make_dataset(data, tokenizer, labels=["z", "x", "y"])
        assert found.numpy().tolist() == y
    data["label"] = np.array([0, 2, 1])
    Named.features = {"label": names}
    for labels, y in ((["z", "x", "y"], [2, 0, 1]), (["n", "o", "p"], [0, 2, 1])):  # other names
        ((_, found),) = bert_tf.make_dataset(data, tokenizer, labels=labels)
        assert found.numpy().tolist() == y


def test_widths(tokenizer):
    """Powers of two, and the greatest length."""
    texts = ["a " * n for n in (30, 31, 99)]
    for most, widths in {None: [32, 40, 40], 300: [32, 64, 128], 20: [20, 20, 20]}.items():
        dataset = bert_tf.make_dataset(
            {"text": texts}, tokenizer, label=None, max_length=most, batch_size=1
        )
        assert [batch["input_ids"].shape[1] for batch in dataset] == widths


def test_order(tokenizer):
    data = {"text": ["a"] * 50, "label": [*range(50)]}

    def epochs(seed):
        dataset = bert_tf.make_dataset(data, tokenizer, seed=seed, batch_size=7)
        return [np.concatenate([y for _, y in dataset]).tolist() for _ in range(2)]

    assert epochs(None) == [[*range(50)]] * 2
    first, second = epochs(3)
    assert sorted(first) == sorted(second) == [*range(50)]
    assert first != second
    assert epochs(3) == [first, second]
    assert epochs(4)[0] != first


@pytest.mark.parametrize(
    ("labels", "values", "expected", "dtype"),
    [
        (None, [3, 0, 7], [3, 0, 7], "int32"),
        (None, [0.5, 1, 2], [0.5, 1, 2], "float32"),
        (None, [[1, 0], [0, 0], [1, 1]], [[1, 0], [0, 0], [1, 1]], "int32"),
        (["no", "yes"], [False, True, True], [0, 1, 1], "int32"),
        (["0", "1"], [0, 1, 1], [0, 1, 1], "int32"),
        (["1", "0"], ["0", "1", "1"], [1, 0, 0], "int32"),
        (np.array(["b", "g"]), np.array([1.0, 0.0, 1.0]), [1, 0, 1], "int32"),  # as of pandas
        (["a", "b"], [["b", "a"], [], ("b",)], [[1, 1], [0, 0], [0, 1]], "int32"),
    ],
)
def test_labels(tokenizer, labels, values, expected, dtype):
    data = COLUMNS | {"label": values}
    ((_, y),) = bert_tf.make_dataset(data, tokenizer, labels=labels)
    assert y.dtype == dtype
    assert y.numpy().tolist() == expected


@pytest.mark.parametrize(
    ("changes", "options", "received"),
    [
        ({"other": ["a"]}, {"text_pair": "other"}, "3 texts and 1 second texts"),
        ({}, {"labels": ["x", "z"]}, "'y' in row 1 of the column 'label'"),
        ({}, {}, "'x' in row 0 of the column 'label'"),
        ({}, {"labels": {"x", "y"}}, "labels={'"),  # its order changes from run to run
        ({}, {"labels": ["x", "y", "x"]}, r"labels=\['x', 'y', 'x'\]"),
        ({}, {"labels": "xy"}, "labels='xy'"),
        ({"label": [0, 2, 1]}, {"labels": ["x", "y"]}, "2 in row 1"),
        ({"label": [1, 2, 1]}, {"labels": ["1", "2", "3"]}, "1 in row 0"),  # names or numbers?
        ({"label": ["y", "1", "x"]}, {"labels": ["x", "y"]}, "'1' in row 1"),
        ({"label": [1.0, 0.5, 1.0]}, {"labels": ["x", "y"]}, "0.5 in row 1"),
        ({"label": [1.0, 0.0, 1.0]}, {"labels": ["1.0", "0.0"]}, "1.0 in row 0"),
        ({"label": [True, False, True]}, {"labels": ["True", "False"]}, "True in row 0"),
        ({"label": ["x", "y", None]}, {"labels": ["x", "y"]}, "None in row 2"),
        ({"label": [["x"], [0], []]}, {"labels": ["x", "y"]}, "0 in row 1"),  # a number, 0 and 1?
        ({"label": [["x"], "y", []]}, {"labels": ["x", "y"]}, r"\['x'\] in row 0"),
        ({"label": [1.0, float("nan"), 0]}, {}, "nan in row 1"),
        ({"label": [1, 0, None]}, {}, "None in row 2"),
        ({"label": [[1], [1, 0], []]}, {}, r"\[1, 0\] in row 1"),
        ({"label": [0, 1]}, {"labels": ["x", "y"]}, "3 texts and 2 labels"),
        ({"label": [1, 2, 2**31]}, {}, "2147483648 in row 2"),
        ({}, {"max_length": 4, "label": None}, "max_length 4"),
        ({"label": [0, 1, 0]}, {"batch_size": 0}, "batch_size 0"),
        ({"label": [0, 1, 0]}, {"seed": 1.5}, "seed 1.5"),
    ],
)
def test_data_that_cannot_be_used(tokenizer, changes, options, received):
    with pytest.raises(InputError, match=received):
        bert_tf.make_dataset(COLUMNS | changes, tokenizer, **options)


@pytest.mark.parametrize("data", [Frame(), Dataset(), COLUMNS, ROWS, "words", [("a", "x")]])
def test_a_column_that_is_missing(tokenizer, data):
    with pytest.raises(InputError, match="without a column 'words': ") as caught:
        bert_tf.make_dataset(data, tokenizer, text="words")
    assert isinstance(data, list | str) or caught.value.received.endswith("text, other, label")
    if isinstance(data, list):
        lacking = [*({"words": "a"} | row for row in ROWS), *data]
        with pytest.raises(InputError, match=r"'words': row 3, counted from 0, is [{(]'"):
            bert_tf.make_dataset(lacking, tokenizer, text="words")
