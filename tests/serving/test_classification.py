"""Labels, any number of labels, and scores, as the Python side computes them."""

import numpy as np
import pytest
import served_models
from exported_answers import PAIRS, TEXTS, near, strings


@pytest.mark.parametrize("kind", ["classification", "pairs"])
def test_labels_and_probabilities(answers, references, kind):
    found = answers[kind][0]
    asked = PAIRS if kind == "pairs" else [(text, None) for text in TEXTS]
    wanted = references[kind].texts(asked, "classification")
    near(found["probabilities"], wanted)
    near(found["probability"], wanted.max(axis=1))
    names = list(served_models.LABELS)
    assert strings(found["labels"]) == [names] * len(asked)
    assert strings(found["label"]) == [names[i] for i in wanted.argmax(axis=1)]
    assert np.ptp(wanted, axis=0).max() > 0.02  # the texts make a difference


def test_any_number_of_labels(answers, references):
    found = answers["multi_label"][0]
    wanted = references["multi_label"].texts([(text, None) for text in TEXTS], "multi_label")
    near(found["probabilities"], wanted)
    np.testing.assert_array_equal(found["applies"], wanted >= 0.5)
    assert 0 < found["applies"].sum() < found["applies"].size


def test_scores(answers, references):
    wanted = references["regression"].texts(PAIRS, "regression")
    near(answers["regression"][0]["score"], wanted[:, 0])
