"""bert_tf/runtime.py: tensorflow-text, a process alone."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf import runtime
from bert_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[1]


# ---------------------------------------------------------------------------- tensorflow-text


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (tf.errors.NotFoundError(None, None, "icudt77_dat\nand more"), InputError),
        (ImportError("_x.so: cannot open shared object file: Too many open files"), ImportError),
        (OSError(5, "Input/output error"), OSError),
    ],
)
def test_only_another_version_of_tensorflow_text_is_refused(monkeypatch, error, raised):
    def fail(name):
        if name == "tensorflow_text":
            raise error
        return tf

    monkeypatch.setattr(runtime.importlib, "import_module", fail)
    with pytest.raises(raised) as caught:
        runtime.import_tensorflow_text()
    if raised is InputError:
        minor = tf.__version__.rpartition(".")[0]
        assert caught.value.received.startswith(f"TensorFlow {tf.__version__}, and a tensorflow-t")
        assert caught.value.received.endswith("(icudt77_dat)")
        assert caught.value.remedy.endswith(f"--no-deps 'tensorflow-text=={minor}.*'")


def test_the_versions_that_are_declared_fit():
    def read(name):
        return (ROOT / name).read_text(encoding="utf-8")

    pinned = dict(
        re.findall(r"^(tensorflow|tensorflow-text)==(\S+)$", read("constraints.txt"), re.M)
    )
    minor = pinned["tensorflow"].rpartition(".")[0]
    assert pinned["tensorflow-text"].startswith(f"{minor}.")
    commands = read("requirements-tpu.txt")
    on_tpu = re.search(r"^tensorflow-tpu==(\d+\.\d+)\.", commands, re.M)[1]
    assert f"tensorflow-text=={on_tpu}." in commands
    assert '"tensorflow-text>=2.20.1,!=2.21.0,<2.22"' in read("setup.py")
    assert "tensorflow-text)==.*/\\1==2.20.1/" in read("Makefile")


# ---------------------------------------------------------------------------- processes of a run


def test_a_process_alone_waits_for_nobody():
    assert runtime.is_chief()
    assert not runtime.has_peers()
    assert runtime.process.all_gather(7) == [7]
    assert [runtime.any_process(flag) for flag in (False, True)] == [False, True]
    runtime.check_same({"steps": 7})
    runtime.process.leave()
    assert runtime.process.ending(tf.errors.UnavailableError(None, None, "gone")) is None


# ---------------------------------------------------------------------------- what TensorFlow says

# Stands for TensorFlow: it writes as C++ does, loads a process, and may abort.
SAYING = """
import os, sys
def say(text): os.write(2, text.encode() + b"\\n")
say("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")
say("I0000 00:00:1795928072.4 16196 port.cc:153] oneDNN custom operations are on. And more")
say("W0000 00:00:1795928072.4 16196 gpu.cc:7] This GPU is too old")
os.write(2, b"no end of a line")
if os.environ.get("ENDS") == "abort":
    os.abort()
say(" yet")
import types
config = types.SimpleNamespace(list_physical_devices=lambda: say(
    "E0000 00:00:1795928072.4 16196 cuda_platform.cc:52] failed call to cuInit: 303"))
"""
LOADING = """
from bert_tf import runtime
runtime.prepare_command()
runtime.gpus = lambda: GPUS
runtime._DRIVERS = ()
import sys, types
sys.modules["keras"] = types.SimpleNamespace(config=types.SimpleNamespace(set_floatx=print))
runtime.load_tensorflow()
print("after", file=sys.stderr)
"""
GPU, TOLD = ["H200"], ["This GPU is too old", "no end of a line"]


@pytest.mark.parametrize(
    ("gpus", "environment", "lines"),
    [
        ([], {}, [*TOLD, "after"]),
        (GPU, {}, [*TOLD, "cuInit: 303", "after"]),
        ([], {"ENDS": "abort"}, TOLD),
        ([], {"TF_CPP_MIN_LOG_LEVEL": "1"}, ["absl", "oneDNN", *TOLD, "cuInit: 303", "after"]),
    ],
)
def test_what_tensorflow_says_while_it_loads(tmp_path, gpus, environment, lines):
    """Known noise is left out; whatever else it says stays, in order, also before it aborts."""
    (tmp_path / "tensorflow.py").write_text(SAYING)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    clean["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    command = [sys.executable, "-c", LOADING.replace("GPUS", repr(gpus))]
    process = subprocess.run(command, env=clean | environment, capture_output=True, text=True)
    said = [line for line in process.stderr.splitlines() if "load TensorFlow" not in line]
    assert len(said) == len(lines), process.stderr
    assert all(part in line for part, line in zip(lines, said, strict=True))
    assert process.returncode == (-6 if environment.get("ENDS") else 0)
