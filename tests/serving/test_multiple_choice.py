"""Choices, and records of several sequences."""

import numpy as np
from exported_answers import CHOICES, near


def test_choices(answers, references):
    found = answers["multiple_choice"][0]
    wanted = np.array([references["multiple_choice"].choices(*choice) for choice in CHOICES])
    near(found["probabilities"], wanted)
    assert found["choice"].tolist() == wanted.argmax(axis=1).tolist()


def test_records_of_other_lengths_are_cut_into_their_own_sequences(results):
    together, *alone = results["unequal"]
    for row, one in enumerate(alone):
        near(together["probabilities"][row], one["probabilities"][0])
        assert together["choice"][row] == one["choice"][0]
    assert np.ptp(together["probabilities"], axis=0).max() > 0.02
