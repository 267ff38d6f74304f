"""Answers of the device compilers, and the search for the largest batch."""

import dataclasses
import doctest
import json
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_tf.errors import InputError
from bert_tf.planning import compilers, devices
from bert_tf.planning.compilers import Compiled


def ended(code=0, stdout="", stderr="") -> subprocess.CompletedProcess:
    return subprocess.CompletedProcess([], code, stdout, stderr)


def test_examples_in_docstrings():
    assert doctest.testmod(compilers).attempted == 2
    assert doctest.testmod(compilers).failed == 0


def test_an_answer_is_the_last_line():
    sizes = '{"arguments": 5, "temporary": 70, "output": 3, "code": 20, "flops": 1e9}'
    found = compilers.answer(ended(stdout=f"I am a plugin\n{sizes}\n"), 2.5)
    assert found == Compiled(arguments=5, temporary=70, output=3, code=20, flops=1e9, seconds=2.5)
    assert found.peak == 98


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (336.00G) exceeds available HBM (15.75G).",
            336 << 30,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 17.50M of 15.75G hbm. Exceeded hbm capacity by 1.75G.",
            int(17.5 * 2**20),
        ),
        ("RESOURCE_EXHAUSTED: in other words", sys.maxsize),
    ],
)
def test_a_program_that_is_too_large_tells_what_it_needs(message, needed):
    answer = ended(stdout=json.dumps({"error": message}))
    found = compilers.answer(answer, 1)
    assert (found.peak, found.refused) == (needed, "")


def test_what_is_refused_and_what_ends_the_compiler():
    found = compilers.answer(ended(stdout='{"error": "UNIMPLEMENTED: no strings\\nat foo"}'), 1)
    assert found.refused == "UNIMPLEMENTED: no strings"
    found = compilers.answer(ended(-6, stderr="starting\nCheck failed: x > 0\n\n"), 1)
    assert found.refused == "the compiler ended with code -6: Check failed: x > 0"
    assert "code 0" in compilers.answer(ended(), 1).refused
    with pytest.raises(InputError, match="does not start"):
        compilers.answer(ended(stdout='{"unavailable": "ImportError: no plugin"}'), 1)


def test_a_compiler_that_is_not_installed(monkeypatch):
    asked = []
    monkeypatch.setattr(compilers.importlib.util, "find_spec", asked.append)
    for name, extra in (("v5e", "compile-check"), ("h100", "compile-check-gpu")):
        with pytest.raises(InputError, match=f"--for={name}, whose compiler needs jax") as caught:
            compilers.check_packages([name])
        assert caught.value.remedy == f"pip install 'bert-tf[{extra}]'"
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: name)
    compilers.check_packages(devices.DEVICES)
    assert asked == ["jax", "jax"]


@hypothesis.given(
    st.integers(0, 3000),
    st.integers(1, 60),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(1, 200),
    st.integers(1, 200),
)
def test_the_largest_batch_of_nearly_straight_lines(constant, slope, bend, unit, first, guess):
    """Within 4 % of the true one, or one unit, after six compilations at most."""
    available, tries = 4000, []

    def peak(size: int) -> int:
        assert size % unit == 0
        assert size > 0
        tries.append(size)
        return constant + slope * size + bend * size // 7

    first *= unit
    tried = first, peak(first)
    found = compilers.largest_batch(peak, available, tried, unit=unit, guess=guess)
    true = max((s for s in range(unit, 5000, unit) if peak(s) <= available), default=0)
    assert found == 0 or constant + slope * found + bend * found // 7 <= available
    assert found >= true * 0.96 - unit


def test_few_compilations_find_the_largest_batch():
    tries = []

    def peak(size: int) -> int:
        tries.append(size)
        return 1320 + 288 * size

    found = compilers.largest_batch(peak, 15750, (32, peak(32)), unit=1, guess=44)
    assert (found, tries) == (50, [32, 44, 50])
    tries.clear()
    assert compilers.largest_batch(peak, 1500, (32, peak(32)), unit=1, guess=1) == 0
    assert tries == [32, 1]


def test_devices_are_described():
    for device in devices.DEVICES.values():
        if device.kind == "gpu":
            assert f"NVIDIA {device.name.split()[1]}" in device.description
            memory = int(device.description.split("device_memory_size: ")[1].split()[0])
            assert device.memory_bytes == int(devices.GPU_SHARE * memory)
        else:
            assert device.topology.startswith(device.slice_type[:2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.kind = "cpu"
