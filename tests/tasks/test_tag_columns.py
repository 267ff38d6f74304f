"""tasks/tag_columns.py: the column of the tags in files with a word a line."""

import doctest

import pytest

from bert_tf.errors import InputError
from bert_tf.tasks import tag_columns
from bert_tf.tasks.tag_columns import TagColumn, chosen_column, find_tags

CONLL_2003 = ["Anna NNP B-NP B-PER", "sleeps VBZ B-VP O"]
GERMEVAL = ["1 Anna B-PER O", "2 Rom B-LOC B-LOC", "3 schlaeft O O"]
NORNE = [
    "1 Anna Anna PROPN _ Gender=Fem 2 nsubj _ name=B-PER",
    "2 sover sove VERB _ _ 0 root _ SpaceAfter=No|name=O",
]
UD = ["1 Anna Anna PROPN _ _ 2 nsubj _ _", "2 sover sove VERB _ _ 0 root _ SpaceAfter=No"]


def test_the_drawn_example():
    assert doctest.testmod(tag_columns).failed == 0


@pytest.mark.parametrize(
    ("lines", "are_counted", "column"),
    [
        (CONLL_2003, False, TagColumn(3)),  # the column of chunks fits as well
        (["Anna NOUN", "sleeps VERB"], False, TagColumn(1)),
        (["Anna B-PER x", "sleeps O y"], False, TagColumn(1)),
        (["Anna B-PER x", "sleeps 0 y"], False, TagColumn(1)),
        (["1 Anna NOUN", "2 sleeps VERB"], True, TagColumn(2)),
        (["1 Anna U-PER x", "2 sleeps O y"], True, TagColumn(2)),
        (NORNE, True, TagColumn(9, "name")),
    ],
)
def test_the_column_that_fits(lines, are_counted, column):
    rows = [line.split() for line in lines]
    assert find_tags("a.txt", rows, are_counted=are_counted) == column
    assert column.tag(rows[1][column.position]) in ("O", "0", "VERB")


@pytest.mark.parametrize(
    ("lines", "are_counted", "received"),
    [
        (GERMEVAL, True, "2 have tags: 2: B-PER, B-LOC, O; 3: O, B-LOC"),
        (UD, True, "none has tags: 2: Anna, sove; 3: PROPN, VERB; 4: _;"),
        (["Anna B-X B-Y x", "sleeps O O y"], False, "2 have tags: 1: B-X, O; 2: B-Y, O"),
    ],
)
def test_several_columns_or_none_are_asked_for(lines, are_counted, received):
    with pytest.raises(InputError) as refused:
        find_tags("a.txt", [line.split() for line in lines], are_counted=are_counted)
    assert received in refused.value.received
    assert "--label_column" in refused.value.remedy


@pytest.mark.parametrize(
    ("column", "width", "names", "chosen"),
    [
        ("2", 4, (), TagColumn(2)), ("UPOS", 10, (), TagColumn(3)), ("9", 10, (), TagColumn(9)),
        ("name", 10, (), TagColumn(9, "name")), ("Tag", 3, ("Id", "Word", "Tag"), TagColumn(2)),
    ],
)  # fmt: skip
def test_a_column_that_is_chosen(column, width, names, chosen):
    assert chosen_column("a.txt", column, width, names=names) == chosen


@pytest.mark.parametrize(
    ("column", "width", "flag"),
    [("4", 4, "label_column"), ("tag", 4, "label_column"), ("word", 10, "text_a_column"),
     ("10", 10, "label_column"), ("-1", 4, "label_column")],
)  # fmt: skip
def test_a_column_that_is_not_there(column, width, flag):
    with pytest.raises(InputError, match=f"--{flag}={column} for a.txt, which has {width}"):
        chosen_column("a.txt", column, width, flag=flag)
