"""Answers of the device compilers, and the search for the largest batch."""

import doctest
import importlib.metadata
import json
import math
import pathlib
import re
import signal
import subprocess

import hypothesis
import hypothesis.strategies as st
import pytest

from bert_tf.errors import InputError
from bert_tf.planning import compilers, devices
from bert_tf.planning.compilers import Compiled


def ended(code=0, stdout="", stderr="") -> subprocess.CompletedProcess:
    return subprocess.CompletedProcess([], code, stdout, stderr)


def test_examples_in_docstrings():
    assert doctest.testmod(compilers).attempted == 3
    assert doctest.testmod(compilers).failed == 0


def test_an_answer_is_the_last_line():
    sizes = '{"arguments": 5, "temporary": 70, "output": 3, "code": 20, "flops": 1e9}'
    found = compilers.answer(ended(stdout=f"I am a plugin\nready\n{sizes}\n"), 2.5)
    assert found == Compiled(arguments=5, temporary=70, output=3, code=20, flops=1e9, seconds=2.5)
    assert found.peak == 98


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (336.00G) exceeds available HBM (15.75G).",
            (336 << 30) + 5,  # temporaries alone are named
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G.",
            int(17.5 * 2**30),
        ),
    ],
)
def test_a_program_that_is_too_large_tells_what_it_needs(message, needed):
    answer = ended(stdout=json.dumps({"error": message, "arguments": 5}))
    found = compilers.answer(answer, 1)
    assert (found.peak, found.refused) == (needed, "")
    assert found.bytes_on(V5E) == needed


V5E, H100 = devices.DEVICES["v5e"], devices.DEVICES["h100"]


@pytest.mark.parametrize(
    "message",
    [
        "Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem.",
        "Shared memory size limit exceeded: requested 300000, available: 232448 (1.5G)",
    ],
)
def test_another_memory_than_that_of_the_device_is_a_refusal(message):
    found = compilers.answer(
        ended(stdout=json.dumps({"error": f"RESOURCE_EXHAUSTED: {message}", "arguments": 5})), 1
    )
    assert found.refused == f"RESOURCE_EXHAUSTED: {message}"
    assert found.bytes_on(V5E) == math.inf


def test_what_a_program_takes_of_a_device():
    """A TPU's sums may exceed what its compiler has found room for; what it needs is rounded."""
    large = V5E.memory_bytes + 10**9
    assert Compiled(arguments=10**9, temporary=large - 10**9).bytes_on(V5E) == V5E.memory_bytes
    assert Compiled(needed=int(15.75 * 2**30)).bytes_on(V5E) == V5E.memory_bytes + 1
    assert Compiled(temporary=H100.memory_bytes, code=7).bytes_on(H100) == H100.memory_bytes + 7


def test_what_is_refused_and_what_ends_the_compiler():
    found = compilers.answer(
        ended(stdout='{"error": "UNIMPLEMENTED: no strings\\nat foo", "arguments": 5}'), 1
    )
    assert found.refused == "UNIMPLEMENTED: no strings"
    assert (
        compilers.answer(ended(stdout='{"error": "", "arguments": 5}'), 1).refused
        == "no reason given"
    )
    found = compilers.answer(ended(-6, "ready\n", "starting\nCheck failed: x > 0\n\n"), 1)
    assert found.refused == "the compiler ended with SIGABRT: Check failed: x > 0"


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "says"),
    [
        (0, '{"unavailable": "ImportError: no plugin"}', "", "not start (ImportError: no plugin)"),
        (
            -6,
            "",
            "Check failed: libtpu.so\n",
            "not start (it ended with SIGABRT: Check failed: lib",
        ),
        (1, "", "Traceback\nSyntaxError: x\n", "not start (it ended with code 1: SyntaxError: x)"),
        (-signal.SIGKILL, "ready\n", "", "a compiler that ended with SIGKILL"),
        (-6, "ready\n", "what():  std::bad_alloc\n", "ended with SIGABRT: what():  std::bad_alloc"),
    ],
)
def test_what_says_nothing_of_the_program_is_an_error(code, stdout, stderr, says):
    with pytest.raises(InputError) as caught:
        compilers.answer(ended(code, stdout, stderr), 1)
    assert says in caught.value.received


def test_a_compiler_that_lacks_what_is_used_of_it_does_not_start(tmp_path):
    """The other process itself, with a jax that has nothing."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/__init__.py").touch()
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"hlo": "none.pb", "as_is": False, "topology": "v5e:2x2"}))
    words = [compilers.sys.executable, str(compilers.CHILD), str(request)]
    found = subprocess.run(
        words, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, check=True
    )
    with pytest.raises(InputError, match=r"does not start \(ModuleNotFoundError: .*jax\.errors"):
        compilers.answer(found, 1)


@pytest.mark.parametrize(
    ("version", "modules"),
    [
        (None, ()),
        (compilers.JAX, ("jax",)),
        ("0.7.1", ("jax", "libtpu", "jax_plugins.xla_cuda12")),
    ],
)
def test_a_compiler_that_is_not_installed(monkeypatch, version, modules):
    def version_of(package: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(compilers.importlib.metadata, "version", version_of)
    monkeypatch.setattr(
        compilers.importlib.util, "find_spec", lambda name: name if name in modules else None
    )
    for name, module, extra in (
        ("v5e", "libtpu", "compile-check"),
        ("h100", "jax_plugins.xla_cuda12", "compile-check-gpu"),
    ):
        with pytest.raises(InputError) as caught:
            compilers.check_packages([name])
        needs = f"--for={name}, whose compiler needs jax {compilers.JAX} (found: {version})"
        assert caught.value.received == f"{needs} and {module}"
        assert caught.value.remedy == f"pip install 'bert-tf[{extra}]'"
    monkeypatch.setattr(compilers.importlib.metadata, "version", lambda _: compilers.JAX)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: name)
    compilers.check_packages(devices.DEVICES)


def test_the_extras_bring_the_version_that_is_asked_for():
    text = (pathlib.Path(__file__).parents[2] / "setup.py").read_text(encoding="utf-8")
    assert re.findall(r'"jax\[(\w+)\]==([\d.]+)"', text) == [
        ("tpu", compilers.JAX),
        ("cuda12", compilers.JAX),
    ]


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


def test_a_size_that_is_refused_is_halved():
    """Nothing is known of its memory: the middle between it and what fits comes next."""
    tries = []

    def peak(size: int) -> float:
        tries.append(size)
        return math.inf if size > 90 else 1000 + 10 * size

    assert compilers.largest_batch(peak, 4000, (32, peak(32)), unit=2, guess=280) == 78
    assert tries == [32, 280, 156, 94, 62, 78]
    tries.clear()
    assert compilers.largest_batch(peak, 4000, (160, peak(160)), unit=1, guess=300) == 90
