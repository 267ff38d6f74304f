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


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "5000000\n"}, 5000000),
        ("0::/a/b\n", {"memory.max": "max\n", "a/memory.max": "7000000\n"}, 7000000),
        ("0::/a\n", {"a/memory.max": "9000000\n", "memory.max": "8000000\n"}, 8000000),
        (
            "4:memory:/a\n3:cpuset:/\n0::/\n",
            {"memory/a/memory.limit_in_bytes": "6000000\n",
             "memory/memory.limit_in_bytes": "9223372036854771712\n"},
            6000000,
        ),
        ("0::/gone\n", {}, None),
    ],
)  # fmt: skip
def test_memory_is_that_of_the_control_group(tmp_path, monkeypatch, own, files, limit):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    found = runtime._control_group_limits(f"{tmp_path}/root", f"{tmp_path}/own")
    monkeypatch.setattr(runtime, "_control_group_limits", lambda: found)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert runtime.memory_bytes() == (limit or machine)


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
    ("installed", "received", "remedy"),
    [
        (
            {"tensorflow": "2.21.0", "tensorflow-text": "2.20.1"},
            "tensorflow 2.21.0 with tensorflow-text 2.20.1, which cannot be imported (why)",
            "pip install tensorflow-text==2.21.1",
        ),
        (
            {"tensorflow": "2.20.0"},
            "tensorflow 2.20.0 with tensorflow-text (not installed), which cannot be imported",
            "pip install tensorflow-text==2.20.1",
        ),
        (
            {"tensorflow-tpu": "2.20.0", "tensorflow-text": "2.21.1"},
            "tensorflow-tpu 2.20.0 with tensorflow-text 2.21.1",
            "pip install --no-deps tensorflow-text==2.20.1",
        ),
        (
            {"tensorflow": "2.21.0", "tensorflow-text": "2.21.1"},
            "tensorflow 2.21.0 with tensorflow-text 2.21.1",
            "pip install --force-reinstall --no-deps tensorflow-text==2.21.1",
        ),
        (
            {"tensorflow-cpu": "2.18.1", "tensorflow-text": "2.18.1"},
            "tensorflow-cpu 2.18.1 with",
            "pip install 'tensorflow==2.21.*' tensorflow-text==2.21.1",
        ),
        ({}, "an unknown TensorFlow with", "pip install 'tensorflow==2.21.*'"),
    ],
)
def test_versions_that_do_not_fit(monkeypatch, installed, received, remedy):
    def version(name):
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    error = runtime._text_error("why")
    assert error.received.startswith(received)
    assert error.remedy.startswith(remedy)
    for minor, text in runtime.FITTING_TEXT.items():
        assert re.search(rf"\b{text} with (TensorFlow )?{minor}\b", error.expected)


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


FAULTS = {
    "another version": (
        "import tensorflow\n"
        'raise tensorflow.errors.NotFoundError(None, None, "_x.so: undefined symbol: icudt77_dat")',
        "(_x.so: undefined symbol: icudt77_dat)",
    ),
    "missing": (
        "raise ModuleNotFoundError(\"No module named 'tensorflow_text'\")",
        "(No module named 'tensorflow_text')",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_without_a_fitting_tensorflow_text(tmp_path, fault):
    code, reason = FAULTS[fault]
    (tmp_path / "tensorflow_text.py").write_text(code + "\n", encoding="utf-8")
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
    assert re.match(rf"Received: tensorflow\S* \S+ with tensorflow-text {version}, which", received)
    assert received.endswith(reason)
    assert expected.startswith("Expected: tensorflow-text of the same version")
    assert f"tensorflow-text=={version}" in remedy


def test_a_system_that_fails_is_not_taken_for_another_version(monkeypatch):
    def fail(name):
        raise ImportError("_x.so: cannot open shared object file: Too many open files")

    monkeypatch.setattr(runtime.importlib, "import_module", fail)
    with pytest.raises(ImportError):
        runtime.import_tensorflow_text()
