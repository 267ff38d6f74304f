"""What is said of data and predictions that are likely a mistake."""

import types

import numpy as np
import pytest

from bert_tf.heads import Labels, LabelSets, Scores
from bert_tf.heads.labels import look_alikes
from bert_tf.tasks.examples import Example
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.run_results import FEWEST_ALIKE, warn_of_one_answer


def run_with(labels, probabilities):
    run = types.SimpleNamespace(task=types.SimpleNamespace(labels=labels))
    split = types.SimpleNamespace(name="dev")
    return run, types.SimpleNamespace(split=split, probabilities=probabilities)


FIRST, SECOND = [0.9, 0.1], [0.3, 0.7]


@pytest.mark.parametrize(
    ("labels", "rows", "says"),
    [
        (Labels(names=("no", "yes")), [FIRST] * FEWEST_ALIKE, ": no."),
        (Labels(names=("no", "yes")), [SECOND] * (FEWEST_ALIKE + 3), ": yes."),
        (Labels(names=("no", "yes")), [FIRST] * FEWEST_ALIKE + [SECOND], ""),
        (Labels(names=("no", "yes")), [FIRST] * (FEWEST_ALIKE - 1), ""),
        (LabelSets(names=("a", "b")), [[0.1, 0.2]] * FEWEST_ALIKE, ": no label."),
        (Scores(), [[2.5]] * FEWEST_ALIKE, ": 2.5."),
        (Scores(), [[2.5]] * FEWEST_ALIKE + [[2.25]], ""),
    ],
)
def test_predictions_that_are_all_the_same(labels, rows, says, caplog):
    said = warn_of_one_answer(*run_with(labels, np.array(rows, np.float32)))  # of the report, too
    assert said == (caplog.messages or [""])[-1]
    assert ("are the same" in caplog.text) == bool(says)
    if says:
        assert f"the {len(rows)} dev examples are the same{says}" in caplog.text


def test_a_label_for_each_example(caplog):
    task = get_task("csv")
    rows = [Example(str(n), "a text", label=f"id {n}") for n in range(13)]
    task.with_labels_of(rows)
    assert "Each of the 13 examples has a label of its own" in caplog.text
    caplog.clear()
    task.with_labels_of([*rows, Example("13", "a text", label="id 3")])
    assert "label of its own" not in caplog.text


INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b\u200d\u200e\u202a\u202e\u2060\u2066\ufe0f\ufeff\U000e0041"
)


@pytest.mark.parametrize("mark", INVISIBLE)
def test_labels_that_differ_in_what_no_font_shows(mark):
    assert look_alikes([f"po{mark}s", "neg", "pos"]) == [[f"po{mark}s", "pos"]]


def test_labels_that_only_a_reader_can_tell_apart():
    """Of other scripts: Unicode has no rule that is short enough to be kept here."""
    assert look_alikes(["pos", "p\u043es"]) == []


@pytest.mark.parametrize("name", ["N/A", "NULL", "None", "#N/A"])
def test_labels_that_are_missing_values_elsewhere(name, caplog):
    rows = [Example(str(n), "a text", label=("yes", name)[n % 2]) for n in range(14)]
    get_task("csv").with_labels_of(rows)
    assert f"The label {name!r} (7) is a missing value to pandas" in caplog.text


def test_a_score_is_written_with_all_its_digits():
    labels = Scores()
    texts = [labels.spell_label(x) for x in (1234567.89, 3.0, 0.1, -2.5e-7, None)]
    assert texts == ["1234567.89", "3", "0.1", "-2.5e-07", ""]
