"""bert_tf/runtime.py: the command line, the memory, the version of tensorflow-text."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest

from bert_tf import runtime
from bert_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["run_squad.py", "--a=b c", "--d"], "python run_squad.py '--a=b c' --d"),
        (["bert-tf export", "--init_checkpoint=model"], "bert-tf export --init_checkpoint=model"),
    ],
)
def test_a_command_can_be_typed_again(monkeypatch, argv, line):
    monkeypatch.setattr(sys, "argv", argv)
    assert runtime.command_line() == line


@pytest.mark.parametrize("text", ["max\n", "5000000\n", None])
def test_memory_is_that_of_the_container(tmp_path, monkeypatch, text):
    if text:
        (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(runtime, "_CONTROL_GROUP_LIMITS", [str(tmp_path / "memory.max")])
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert runtime.memory_bytes() == (5000000 if text == "5000000\n" else machine)


def test_a_model_larger_than_the_memory(monkeypatch):
    monkeypatch.setattr(runtime, "memory_bytes", lambda: 4_000_000_000)
    runtime.check_model_memory(1_000_000_000)
    runtime.check_model_memory(333_333_333, moments=2)
    with pytest.raises(InputError) as caught:
        runtime.check_model_memory(1_000_000_001)
    assert caught.value.received == "a model of 1,000,000,001 parameters, which need 4.0 GB"
    assert "4.0 GB" in caught.value.expected
    with pytest.raises(InputError, match=r"12\.0 GB with the optimizer's moments"):
        runtime.check_model_memory(1_000_000_000, moments=2)
    monkeypatch.setattr(runtime, "memory_bytes", lambda: None)
    runtime.check_model_memory(10**18)


# ---------------------------------------------------------------------------- tensorflow-text


@pytest.mark.parametrize(
    ("tensorflow", "text", "remedy"),
    [
        ("2.21.0", "2.20.1", "--force-reinstall --no-deps tensorflow-text==2.21.1"),
        ("2.20.0", None, "--force-reinstall --no-deps tensorflow-text==2.20.1"),
        ("2.18.1", "2.18.1", "'tensorflow==2.21.*' tensorflow-text==2.21.1"),
    ],
)
def test_versions_that_do_not_fit(monkeypatch, tensorflow, text, remedy):
    def version(_):
        if text is None:
            raise importlib.metadata.PackageNotFoundError
        return text

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr("tensorflow.__version__", tensorflow)
    error = runtime._text_error("why")
    found = f"TensorFlow {tensorflow} with tensorflow-text {text or '(not installed)'}"
    assert error.received == f"{found}, which cannot be imported (why)"
    assert error.remedy == f"pip install {remedy}"
    for minor, fitting in runtime.FITTING_TEXT.items():
        assert f"{fitting} with TensorFlow {minor}" in error.expected


def test_the_fitting_versions_are_those_that_are_declared():
    def read(name):
        return (ROOT / name).read_text(encoding="utf-8")

    fitting = runtime.FITTING_TEXT
    pinned = dict(
        re.findall(r"^(tensorflow|tensorflow-text)==(\S+)$", read("constraints.txt"), re.M)
    )
    assert fitting[pinned["tensorflow"].rpartition(".")[0]] == pinned["tensorflow-text"]
    commands = read("requirements-tpu.txt")
    on_tpu = re.search(r"^tensorflow-tpu==(\d+\.\d+)\.", commands, re.M)[1]
    assert f"tensorflow-text=={fitting[on_tpu]} " in commands
    assert f'"tensorflow-text>={min(fitting.values())},!=2.21.0,<2.22"' in read("setup.py")
    assert f"tensorflow-text)==.*/\\1=={fitting['2.20']}/" in read("Makefile")


def test_a_command_without_a_fitting_tensorflow_text(tmp_path):
    code = 'import tensorflow\nraise tensorflow.errors.NotFoundError(None, None, "icudt77_dat")\n'
    (tmp_path / "tensorflow_text.py").write_text(code, encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("[UNK]\n", encoding="utf-8")
    words = ["--input_file=a", f"--output_file={tmp_path}/b", f"--vocab_file={tmp_path}/vocab.txt"]
    ended = subprocess.run(
        [sys.executable, "create_pretraining_data.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    received, expected, remedy = ended.stderr.rstrip().splitlines()[-3:]
    version = importlib.metadata.version("tensorflow-text")
    assert re.match(rf"Received: TensorFlow \S+ with tensorflow-text {version}, which", received)
    assert received.endswith("(icudt77_dat)")
    assert expected.startswith("Expected: tensorflow-text of the same version")
    assert f"tensorflow-text=={version}" in remedy


def test_a_system_that_fails_is_not_taken_for_another_version(monkeypatch):
    def fail(name):
        raise ImportError("_x.so: cannot open shared object file: Too many open files")

    monkeypatch.setattr(runtime.importlib, "import_module", fail)
    with pytest.raises(ImportError):
        runtime.import_tensorflow_text()
