"""Programs and the answers of their compilers, and the search for the largest batch."""

import dataclasses
import doctest
import importlib.metadata
import json
import math
import pathlib
import re
import signal
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from small_plans import CONFIG, B, C, P, S, changed

from bert_tf.errors import InputError
from bert_tf.planning import compilers, programs
from bert_tf.planning.compilers import Compiled
from bert_tf.planning.workload import DEVICES, HEADS, STEPS

V5E, H100 = DEVICES["v5e"], DEVICES["h100"]


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_is_that_of_the_records(head):
    batch = programs.random_batch(changed(head=head))
    assert batch["input_ids"].shape == (B, S)
    assert batch["is_real_example"].dtype == np.float32
    labels = {
        "pretraining": {"masked_lm_ids": (B, P), "next_sentence_labels": (B, 1)},
        "classification": {"label_ids": (B, 1)},
        "token_labels": {"label_ids": (B, S)},
        "question_answering": {"start_positions": (B, 1), "end_positions": (B, 1)},
    }[head]
    assert {name: batch[name].shape for name in labels} == labels
    assert batch.get("label_ids", np.zeros(1)).max() < C


def test_one_model_gives_the_programs_of_all_steps_and_shapes():
    work = changed(head="token_labels", train_batch_size=6, gradient_accumulation_steps=3)
    made = programs.Programs(work)
    found = {s: made.lowered(s, batch) for s, batch in zip(STEPS, (6, 5, 4), strict=True)}
    assert b"while" in found["train"]
    assert b"while" not in found["evaluate"]
    assert len({len(hlo) for hlo in found.values()}) == 3
    assert made.lowered("train", 6) is found["train"]
    causal = changed(config=dataclasses.replace(CONFIG, attention="causal"))
    assert programs.Programs(causal).lowered("predict", 5)  # which has no next sentences


# ---------------------------------------------------------------------------- answers


def answer(code=0, stdout="", stderr="") -> Compiled:
    stdout = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return compilers.answer(subprocess.CompletedProcess([], code, stdout, stderr), 2.5)


def test_examples_in_docstrings():
    assert doctest.testmod(compilers).attempted == 2
    assert doctest.testmod(compilers).failed == 0


def test_an_answer_is_the_last_line():
    sizes = '{"arguments": 5, "temporary": 70, "output": 3, "code": 20, "flops": 1e9}'
    found = answer(stdout=f"I am a plugin\nready\n{sizes}\n")
    assert found == Compiled(arguments=5, temporary=70, output=3, code=20, flops=1e9, seconds=2.5)
    assert found.peak == 98


@pytest.mark.parametrize(
    ("ended", "needed", "refused"),
    [
        ({"error": "Ran out of memory on HBM, the total memory required for HLO temporaries "
          "(336.00G) exceeds available HBM (15.75G).", "arguments": 5}, (336 << 30) + 5, ""),
        ({"error": "Ran out of memory in memory space hbm. Used 17.50G of 15.75G hbm.",
          "arguments": 5}, int(17.5 * 2**30), ""),
        ({"error": "Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem.",
          "arguments": 5}, math.inf, "Ran out of memory in memory space vmem. Used 20.00M of "),
        ({"error": "Shared memory size limit exceeded: available: 232448 (1.5G)", "arguments": 5},
         math.inf, "Shared memory size limit exceeded: available: 232448 (1.5G)"),
        ({"error": "UNIMPLEMENTED: no strings\nat foo", "arguments": 5}, math.inf,
         "UNIMPLEMENTED: no strings"),
        ({"error": "", "arguments": 5}, math.inf, "no reason given"),
        ((-6, "ready\n", "starting\nCheck failed: x > 0\n\n"), math.inf,
         "the compiler ended with SIGABRT: Check failed: x > 0"),
    ],
)  # fmt: skip
def test_a_program_that_does_not_fit_or_is_refused(ended, needed, refused):
    found = answer(*ended) if isinstance(ended, tuple) else answer(0, ended)
    assert found.bytes_on(V5E) == needed
    assert found.refused.startswith(refused)
    assert bool(found.refused) == bool(refused)


def test_what_a_program_takes_of_a_device():
    """A TPU's sums may exceed what its compiler has found room for; what it needs is rounded."""
    large = V5E.memory_bytes + 10**9
    assert Compiled(arguments=10**9, temporary=large - 10**9).bytes_on(V5E) == V5E.memory_bytes
    assert Compiled(needed=int(15.75 * 2**30)).bytes_on(V5E) == V5E.memory_bytes + 1
    assert Compiled(temporary=H100.memory_bytes, code=7).bytes_on(H100) == H100.memory_bytes + 7


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "says"),
    [
        (0, '{"unavailable": "ImportError: no plugin"}', "", "not work (ImportError: no plugin)"),
        (-6, "", "Check failed: libtpu\n", "not work (it ended with SIGABRT: Check failed: lib"),
        (1, "", "Traceback\nSyntaxError: x\n", "not work (it ended with code 1: SyntaxError: x)"),
        (-signal.SIGKILL, "ready\n", "", "it ended with SIGKILL"),
        (-6, "ready\n", "what():  std::bad_alloc\n", "ended with SIGABRT: what():  std::bad_alloc"),
    ],
)
def test_what_says_nothing_of_the_program_is_an_error(code, stdout, stderr, says):
    with pytest.raises(InputError) as caught:
        answer(code, stdout, stderr)
    assert says in caught.value.received


def test_a_compiler_that_lacks_what_is_used_of_it_does_not_start(tmp_path):
    """The other process itself, with a jax that has nothing."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/__init__.py").touch()
    request = tmp_path / "request.json"
    names = ("hlo", "topology", "slice_type", "gpu", "as_is")
    request.write_text(json.dumps(dict.fromkeys(names, "")))
    words, env = [sys.executable, "-m", compilers.__name__, request], {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
    with pytest.raises(InputError, match=r"does not work \(ModuleNotFoundError: .*jax\."):
        compilers.answer(found, 1)


@pytest.mark.parametrize("version", [None, compilers.JAX, "0.7.1"])
def test_a_compiler_that_is_not_installed(monkeypatch, version):
    def version_of(package: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return version

    found = (lambda name: None) if version == compilers.JAX else (lambda name: name)
    monkeypatch.setattr(importlib.metadata, "version", version_of)
    monkeypatch.setattr(importlib.util, "find_spec", found)
    for name, module, extra in (
        ("v5e", "libtpu", "compile-check"),
        ("h100", "jax_plugins.xla_cuda12", "compile-check-gpu"),
    ):
        with pytest.raises(InputError) as caught:
            compilers.check_packages([name])
        needs = f"--for={name}, whose compiler needs jax {compilers.JAX} (found: "
        assert caught.value.received.startswith(needs)
        assert caught.value.received.endswith(f" and {module}")
        assert caught.value.remedy == f"pip install 'bert-tf[{extra}]'"
    monkeypatch.setattr(importlib.metadata, "version", lambda _: compilers.JAX)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    compilers.check_packages(DEVICES)
    text = (pathlib.Path(__file__).parents[2] / "setup.py").read_text(encoding="utf-8")
    wanted = [("tpu", compilers.JAX), ("cuda12", compilers.JAX)]
    assert re.findall(r'"jax\[(\w+)\]==([\d.]+)"', text) == wanted  # of the extras


# ---------------------------------------------------------------------------- the largest batch

SIZES = st.integers(1, 200)


@hypothesis.given(st.integers(0, 3000), st.integers(1, 60), st.integers(0, 3), st.integers(1, 4),
                  SIZES, SIZES)  # fmt: skip
def test_the_largest_batch_of_nearly_straight_lines(constant, slope, bend, unit, first, guess):
    """Within 4 % of the true one, or one unit, after six compilations at most."""
    available, tries = 4000, []

    def size_of(batch: int) -> int:
        return constant + slope * batch + bend * batch // 7

    def peak(batch: int) -> int:
        assert batch % unit == 0
        tries.append(batch)
        return size_of(batch)

    first *= unit
    found = compilers.largest_batch(peak, available, (first, peak(first)), unit=unit, guess=guess)
    true = max((s for s in range(unit, 5000, unit) if size_of(s) <= available), default=0)
    assert found == 0 or size_of(found) <= available
    assert found >= true * 0.96 - unit
    assert len(tries) <= compilers.MOST_TRIES
    assert min(tries) > 0


@pytest.mark.parametrize(
    ("constant", "slope", "refused", "available", "first", "unit", "guess", "tries", "largest"),
    [
        (1320, 288, math.inf, 15750, 32, 1, 44, [32, 44, 50], 50),
        (1320, 288, math.inf, 1500, 32, 1, 1, [32, 1], 0),
        # Nothing is known of its memory: the middle between it and what fits comes next.
        (1000, 10, 90, 4000, 32, 2, 280, [32, 280, 156, 94, 62, 78], 78),
        (1000, 10, 90, 4000, 160, 1, 300, None, 90),
    ],
)
def test_few_compilations_find_the_largest_batch(
    constant, slope, refused, available, first, unit, guess, tries, largest
):
    tried = []

    def peak(size: int) -> float:
        tried.append(size)
        return math.inf if size > refused else constant + slope * size

    found = compilers.largest_batch(peak, available, (first, peak(first)), unit=unit, guess=guess)
    assert found == largest
    assert tries in (None, tried)
