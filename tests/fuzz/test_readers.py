"""Every reader: damaged input is read as what it says, or refused in a message naming the file."""

import logging

import pytest
import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SLOW = {"keras_files": 12, "summaries": 25}  # inputs of readers that take long
INPUTS = 100


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Gives a reader, made once."""
    found = {}

    def get(name: str) -> readers.Reader:
        if name not in found:
            found[name] = readers.make(name, tmp_path_factory.mktemp(name))
        return found[name]

    return get


@pytest.mark.parametrize("name", readers.makers())
def test_damaged_input_is_read_or_refused(name, made, caplog):
    reader, seen = made(name), set()
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


@pytest.mark.parametrize("name", readers.makers())
def test_the_valid_files_are_accepted_again(name, made):
    """After all the damage: nothing is kept from one input for the next."""
    made(name).read(made(name).folder)
