"""Labels: parsed, found, as numbers, decided, spelled."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.heads import Labels, LabelSets, Scores, Tags
from bert_tf.heads.labels import UNKNOWN

CLASSES = Labels(names=("no", "yes", "maybe"), synonyms={"yep": "yes"})
SCORES = Scores(limits=(0.0, 5.0))
SETS = LabelSets(names=("a", "b", "c"))
TAGS = Tags(names=("O", "B-X", "I-X"))


NAMED_SETS = LabelSets(names=("[other]", "nan", "x"))
PARSED = [
    (CLASSES, " yep ", "yes"),
    (SCORES, "4.50", 4.5),
    *((SETS, cell, ("c", "a")) for cell in ("c| a|", "c;a", ["c", "a"])),
    (SETS, "", ()),
    (Labels(), 3, "3"),
    # Names that are given may look like lists.
    (NAMED_SETS, "[other],x", ("[other]", "x")),
    (NAMED_SETS, ["nan"], ("nan",)),
    (Labels(names=("nan", "x")), "nan", "nan"),
    *((LabelSets(), value, ("0", "1")) for value in ("0,1", [0, 1])),  # ids
    *((Scores(), text, float(text)) for text in ("-4.", ".5", "1e-05", "007")),
]


@pytest.mark.parametrize(("labels", "value", "expected"), PARSED)
def test_parse(labels, value, expected):
    assert labels.parse(value) == expected


@pytest.mark.parametrize(
    ("labels", "value", "expected"),
    [
        (CLASSES, "perhaps", "one of the 3 labels no, yes, maybe"),
        (CLASSES, "", "a label: one of the 3 labels no, yes, maybe"),
        (SCORES, "nan", "a finite number from 0 to 5, such as 2.5 or 1e-3"),
        (SCORES, "-0.1", "a finite number from 0 to 5, such as 2.5 or 1e-3"),
        (Scores(), "-inf", "a finite number, such as 2.5 or 1e-3"),
        (SETS, "a|d", "one of the 3 labels a, b, c"),
        (SETS, None, "labels; an empty cell or list where none applies"),
        *(
            (Labels(), value, "a label: any text")
            for value in (None, math.nan, "NaN", "nan", "<NA>", " ", {"x": 1}, ["x"])
        ),
        *(
            (Scores(), text, "a finite number, such as 2.5 or 1e-3")
            for text in ("1_0", "nan", "inf", "0x1", "３", "1,5", "1e", "--1", "1e39", ".", "true")
        ),
    ],
)
def test_what_is_no_label(labels, value, expected):
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        labels.parse(value)


NO_SETS = [
    *([0, 1, 0, 1, 0], [1, 1], [True, False, True], {"x": 1, "y": 0}, ["x", "x"], [["x"], "y"]),
    *("['x', 'z']", "[0,1,0,1,0]", "0,1,0,1,0", "0 1 0", "[0. 1. 0.]", "{'x': 1, 'z': 0}", "[]"),
    *("('x', 'z')", "(0, 1)", "set()", "array([0, 1])", "x,z,x", "tensor([1, 0])"),
    *(["x", None], ["x", math.nan], ["NaN", "x"], "x,nan", ["x", "\udc00"]),
]


@pytest.mark.parametrize("value", NO_SETS, ids=ascii)
def test_vectors_dicts_and_printed_lists_are_no_names(value):
    with pytest.raises(ValueError, match=r"weather,sport .* in a cell, .* \[\"weather\", "):
        LabelSets().parse(value)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O I-X I-X O", "O B-X I-X O"),  # CoNLL-2003 as published
        ("I-X B-X I-X", "B-X B-X I-X"),  # there B- begins an entity right after another
        ("B-X I-X B-X", "B-X I-X B-X"),
        ("I-Y I-X", "B-Y B-X"),
        ("S-X B-X E-X O", "B-X B-X I-X O"),
        ("U-X B-X I-X L-X", "B-X B-X I-X I-X"),
        ("B-X E-X I-X I-X", "B-X I-X B-X I-X"),
        ("b_X i_X o s_Y", "B-X I-X O B-Y"),
        ("B I O S", "B I O B"),
        ("NOUN VERB", "NOUN VERB"),
        ("PER PER O e-mail", "PER PER O e-mail"),
        ("B-a-b I-a-b", "B-a-b I-a-b"),
    ],
)
def test_tags_of_all_schemes(tags, expected):
    found = Tags().parse(tags.split())
    assert found == tuple(expected.split())


@pytest.mark.parametrize("tag", ["", "X", "B", "B-", "X-PER"])
def test_what_is_no_tag(tag):
    for labels in (TAGS, Tags()):
        with pytest.raises(ValueError, match="O, or B- or I- and the type of an entity"):
            labels.parse(["O", "B-X", tag])
    for names, says in (("OBI", "O, or B or I"), ((), "a tag")):
        with pytest.raises(ValueError, match=says):
            Tags(names=tuple(names)).parse(["I", "", "PER"])


def test_tags_by_the_names_of_a_model():
    """Those of another model have their own scheme; unknown tags have no label id."""
    inner = Tags(names=("O", "I-X", "I-Y"))
    assert inner.parse(["B-X", "I-X", "U-Y", "B-Z"]) == ("I-X", "I-X", "I-Y", "B-Z")
    assert inner.ids(("O", "I-Y", "B-Z")) == [0, 2, UNKNOWN]
    ended = Tags(names=("O", "B-X", "I-X", "E-X", "S-X"))
    assert ended.parse(["I-X", "I-X", "B-X", "O"]) == ("B-X", "E-X", "S-X", "O")


def test_finding():
    assert Labels().with_names_in(["b", "10", "a", "9", "b"]).names == ("9", "10", "a", "b")
    sets = LabelSets().with_names_in([("y", "x"), (), ("z",)])
    assert sets.names == ("x", "y", "z")
    tags = Tags().with_names_in([("O", "B-PER"), ("I-LOC",)])
    assert tags.names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    for found, names in (
        ([("b_x", "i_x", "o")], ("O", "B-x", "I-x")),
        ([("B", "E"), ("O", "M")], ("O", "B", "I")),
        ([("VERB", "NOUN")], ("NOUN", "VERB")),
        ([("PER", "O"), ("LOC",)], ("O", "LOC", "PER")),
    ):
        assert Tags().with_names_in(found).names == names
    assert CLASSES.with_names_in(["other"]) == CLASSES
    assert SCORES.with_names_in([1.0]) == SCORES


@given(st.permutations(["b", "10", "a", "9", "01", "1", "ü", "B"]))
def test_the_order_of_examples_does_not_matter(names):
    assert Labels().with_names_in(names).names == ("01", "1", "9", "10", "B", "a", "b", "ü")


@pytest.mark.parametrize(
    ("labels", "label", "ids"),
    [
        *((CLASSES, "maybe", [2]), (CLASSES, None, [0]), (SCORES, 2.5, [2.5]), (SCORES, None, [0])),
        *((SETS, ("c", "a"), [1, 0, 1]), (SETS, None, [0, 0, 0]), (TAGS, ("I-X", "O"), [2, 0])),
    ],
)
def test_ids(labels, label, ids):
    assert labels.ids(label) == ids


def test_decide_and_spell():
    """With limits and for classes: test_results.py."""
    assert Scores().spell(0.00012) == "0.00012"
    sets = SETS.decide(np.array([[0.5, 0.49, 0.9], [0.1, 0.2, 0.3]]))
    assert [SETS.spell(row) for row in sets] == ["a,c", ""]
    assert SETS.spell_label(("c", "a")) == "c,a"


def test_what_labels_cannot_be():
    with pytest.raises(InputError, match="different names"):
        Labels(names=("a", "a"))
