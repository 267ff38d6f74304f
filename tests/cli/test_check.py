"""bert-tf check: a machine that computes as the original, and one that does not."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bert_tf import runtime
from bert_tf.cli import check
from bert_tf.errors import InputError
from bert_tf.training import parity

WHOLE = """
import dataclasses, os, subprocess
from bert_tf.cli import check
check.LIMITS = {"float32": check.LIMITS["float32"]}
check.SECONDS = 0.1
check.STEPS = 400
check.EVERY = 40
started = subprocess.Popen
def quickly(*command, env=None, **options):  # of the two runs; XLA optimizes the figures only
    flags = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    return started(*command, env={**(env or os.environ), **flags}, **options)
subprocess.Popen = quickly
one_layer = dataclasses.replace(check.MINI.config, num_hidden_layers=1)
check.MINI = dataclasses.replace(check.MINI, config=one_layer)

from bert_tf import runtime
runtime.prepare_command()
check.main(check.Check())
"""


def test_a_machine_that_computes_as_the_original():
    """In a process of its own, its figures with all that XLA does for speed."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ended = subprocess.run([sys.executable, "-c", WHOLE], env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    text = ended.stdout
    assert re.search(r"tensorflow 2\.\d+\.\d+.*\nPython 3", text)
    assert re.search(r"CPU:0 float32 +vectors \S+ < 1e-05, gradients .*, losses .*, weights", text)
    assert "A killed and resumed training ends the same.\n" in text
    assert re.search(r"CPU:0 BERT-Mini, 128 tokens, batch 16, float32: [\d,]+ examples/s", text)
    on_this_cpu = r"--precision=bfloat16 (is advisable|does not pay) on this CPU"
    advice = rf"\n  ({on_this_cpu}|.*float32 is advisable\.)"
    assert re.search(advice, text)
    assert text.endswith("\nAll is as it should be.\n")


CHANGES = {  # by kind of figure: the file, the array, what is added to its first number
    "vectors": ("forward.npz", "layer_1", 3e-5),
    "gradients": ("forward.npz", "grad/bert/pooler/dense/kernel", 3e-5),
    "losses": ("forward.npz", "nsp_loss", np.nan),
    "weights": ("train_one_hot.npz", "final/bert/encoder/layer_0/output/dense/bias", 3e-5),
}


def test_changed_goldens_are_named(tmp_path, monkeypatch, capsys):
    goldens = shutil.copytree(parity.GOLDENS, tmp_path / "goldens")
    for file, name, by in CHANGES.values():
        arrays = dict(np.load(goldens / file))
        arrays[name].flat[0] += by
        np.savez(goldens / file, **arrays)
    monkeypatch.setattr(parity, "GOLDENS", goldens)
    monkeypatch.setattr(check, "LIMITS", {"float32": check.LIMITS["float32"]})
    wrong = list(check.check_figures({"CPU:0": "the CPU"}))
    expected = [f"CPU:0, float32: {kind}, {name} is " for kind, (_, name, _) in CHANGES.items()]
    assert [text.partition(" is ")[0] + " is " for text in wrong] == expected
    assert capsys.readouterr().out.count(" NOT < ") == len(CHANGES)


def test_a_difference_ends_with_an_error(monkeypatch, capsys):
    monkeypatch.setattr(check, "check_figures", lambda devices: iter(["GPU:0, TF32: far away"]))
    monkeypatch.setattr(check.Resume, "run", lambda self: " These differ: some/bias.")
    monkeypatch.setattr(check, "say_speed", lambda devices: None)
    with pytest.raises(InputError, match="GPU:0, TF32: far away; a training that is killed"):
        check.main(check.Check())
    assert "ends otherwise. These differ: some/bias." in capsys.readouterr().out


# ---------------------------------------------------------------------------- settings for GPUs


@pytest.fixture
def environment(monkeypatch, tmp_path):
    for name in ("XLA_FLAGS", "TF_XLA_FLAGS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(runtime, "keep_freed_memory", lambda: None)
    return monkeypatch


def prepared(environment, gpus) -> tuple[dict[str, str], str]:
    """XLA_FLAGS by name, and TF_XLA_FLAGS, as a command sets them."""
    environment.setattr(runtime, "gpus", lambda: gpus)
    environment.setattr(runtime, "_of_command", [])
    runtime.prepare_command()
    flags = dict(flag.split("=") for flag in os.environ.get("XLA_FLAGS", "").split())
    return flags, os.environ.get("TF_XLA_FLAGS", "")


def test_without_a_gpu_nothing_is_set_for_it(environment):
    flags, kept = prepared(environment, [])
    assert not [name for name in flags if "gpu" in name]
    assert not kept


def test_flags_and_programs_for_a_gpu(environment, tmp_path):
    flags, kept = prepared(environment, ["NVIDIA H200"])
    for name in runtime.OF_GPUS:
        assert flags[f"--{name}"] == "0"
    (folder,) = (tmp_path / ".cache/bert_tf").iterdir()
    assert kept.endswith(f"_directory={folder} --tf_xla_persistent_cache_device_types=GPU")
    assert folder.stat().st_mode & 0o777 == 0o700
    environment.delenv("TF_XLA_FLAGS")
    assert prepared(environment, ["NVIDIA A100"])[1] != kept  # its own programs
    environment.delenv("TF_XLA_FLAGS")
    assert not prepared(environment, ["NVIDIA A100"] * 2)[1]


def test_the_users_flags_stay(environment):
    environment.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=true")
    environment.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=0")
    flags, kept = prepared(environment, ["NVIDIA H200"])
    assert flags["--xla_gpu_enable_triton_gemm"] == "true"
    assert flags["--xla_gpu_experimental_enable_fusion_autotuner"] == "0"
    assert kept == "--tf_xla_auto_jit=0"


def test_a_home_that_cannot_be_written_to(environment, tmp_path):
    (tmp_path / ".cache").touch()
    assert prepared(environment, ["NVIDIA H200"])[1] == ""
    environment.setattr(pathlib.Path, "expanduser", raising(RuntimeError))  # a user without one
    assert prepared(environment, ["NVIDIA H200"])[1] == ""


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_a_file_of_flags_stays_as_it_is(environment, tmp_path):
    environment.setattr(runtime, "gpus", lambda: ["NVIDIA H200"])
    environment.setenv("XLA_FLAGS", f"{tmp_path}/flags")
    runtime.prepare_process()
    assert os.environ["XLA_FLAGS"] == f"{tmp_path}/flags"
