"""Every reader: damaged input is read as what it says, or refused in a message naming the file."""

import logging

import pytest
import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

INPUTS = 60
SLOW = {"keras_files": 10, "summaries": 20, "pretraining_blocks": 20}  # inputs of slow readers


@pytest.mark.parametrize("name", readers.makers())
def test_damaged_input_is_read_or_refused(name, tmp_path, caplog):
    """And after it the valid one: nothing is kept from one input for the next."""
    reader, seen = readers.make(name, tmp_path / name), set()
    caplog.set_level(logging.CRITICAL)

    @settings(
        max_examples=SLOW.get(name, INPUTS),
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=True))
    def attempts(rng):
        seen.add(readers.attempt(reader, rng))

    attempts()
    assert readers.REFUSED in seen
    reader.read(reader.folder)
