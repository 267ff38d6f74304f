"""Several labels: what parts them in a column, and the thresholds from which on they apply."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.heads import LabelSets, MultiLabel, multi_label
from bert_tf.heads.multi_label import HALF, best_threshold, separators_of


def test_the_examples_of_the_page():
    assert doctest.testmod(multi_label).failed == 0
    assert doctest.testmod(multi_label).attempted == 3


@pytest.mark.parametrize(
    ("cells", "separators"),
    [
        ([], ",;|"),
        (["a,b", "", None, 3, ["x;y"]], ",;|"),
        (["a,b", "c|d"], ";|"),
        (["Arts, culture & media;Sport"], ";|"),
    ],
)
def test_what_parts_labels_is_decided_for_a_column(cells, separators, caplog):
    caplog.set_level("INFO", "absl")
    assert separators_of(cells) == separators
    labels = LabelSets().of_column(iter(cells))
    assert labels.separators == separators
    assert ("a comma is a part of a label" in caplog.text) == (separators == ";|")
    caplog.clear()
    assert labels.of_column(iter(cells)) == labels
    assert "comma" not in caplog.text  # it is said once


def test_a_comma_in_a_label():
    labels = LabelSets().of_column(["Arts, culture & media;Sport"])
    parsed = labels.parse("Arts, culture & media;Sport")
    assert parsed == ("Arts, culture & media", "Sport")
    named = labels.with_names_in([parsed, ("Sport", "War")])
    assert named.spell([1, 1, 0]) == named.spell_label(parsed) == "Arts, culture & media;Sport"
    # In a column without ; and |, as of dev data, the names say it.
    other = LabelSets(names=named.names)
    assert other.of_column(["Arts, culture & media"]).parse("Arts, culture & media") == parsed[:1]
    assert LabelSets(names=("a;b", "c")).parse("a;b,c") == ("a;b", "c")  # of jsonl
    assert LabelSets(names=("a,;|b", "c")).parse("a,;|b") == ("a,;|b",)


def f1(probabilities: np.ndarray, gold: np.ndarray, threshold: float) -> float:
    said = probabilities >= threshold
    hits = np.sum(said & (gold == 1))
    return 2 * hits / max(said.sum() + gold.sum(), 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.51, 0.9, 1.0]), st.booleans()),
        min_size=1,
        max_size=9,
    )
)
def test_no_threshold_is_better(rows):
    probabilities, gold = (np.array(column, float) for column in zip(*rows, strict=True))
    threshold = best_threshold(probabilities, gold)
    tried = np.linspace(0.005, 0.995, 199)
    best = max(f1(probabilities, gold, value) for value in tried)
    assert f1(probabilities, gold, threshold) >= best - 1e-12
    nearest = [x for x in tried if f1(probabilities, gold, x) > best - 1e-12]
    if HALF in np.round(nearest, 6) and gold.any():
        assert f1(probabilities, gold, HALF) == pytest.approx(best)
    if not gold.any():
        assert threshold == HALF  # nothing can be learned of such a label


def test_thresholds_decide_and_are_kept_by_name():
    labels = LabelSets(names=("x", "y")).with_thresholds({"y": 0.7, "x": 0.2})
    assert labels.thresholds == (0.2, 0.7)
    assert labels.decide([[0.2, 0.69], [0.19, 0.7]]).tolist() == [[1, 0], [0, 1]]
    assert labels.thresholds_by_name == {"x": 0.2, "y": 0.7}
    assert LabelSets(names=("x", "y")).thresholds_by_name == {}
    head = MultiLabel().with_thresholds({"y": 0.7, "x": 0.2}, ("y", "x"))
    logits = np.log(
        np.array([[0.71, 0.19], [0.69, 0.21]], np.float32) / [[0.29, 0.81], [0.31, 0.79]]
    )
    answers = head.answers({"logits": logits.astype(np.float32)}, ["y", "x"])
    assert answers["applies"].numpy().tolist() == [[True, False], [False, True]]
    assert MultiLabel().thresholds == ()
    for wrong in ({"x": 0.2}, {"x": 0.2, "z": 0.3}):
        with pytest.raises(InputError, match="thresholds of the labels"):
            labels.with_thresholds(wrong)
