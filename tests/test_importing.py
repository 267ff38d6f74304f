"""`import bert_tf`, and the use of its names, change nothing in the program that does it."""

import ast
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
STATE = """
import json, logging, os, signal, sys, threading, warnings
import numpy

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

def state():
    before = resident()
    numpy.ones(50_000_000)  # 400 MB, freed at once
    loggers = {"": logging.root} | logging.root.manager.loggerDict
    return {
        "environment": dict(os.environ),
        "imports": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "hidden modules": sorted(name for name, module in sys.modules.items() if module is None),
        "signals": {number: repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "hooks": [hook.__module__ for hook in
                  (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)],
        "warnings": [repr(one) for one in warnings.filters],
        "logging": {name: [one.level, list(map(repr, one.handlers))]
                    for name, one in loggers.items() if isinstance(one, logging.Logger)},
        "streams": [repr(type(sys.stdout)), repr(type(sys.stderr)), os.fstat(2).st_ino],
        "NumPy": repr(numpy.geterr()),
        "threads": threading.active_count(),
        "memory is given back": resident() - before < 100_000,
    }

"""
OTHERS = (
    STATE
    + """
import tensorflow, tensorflow_text, keras, h5py
print(json.dumps(state()))
"""
)
OURS = (
    STATE
    + """
states = [state()]
import bert_tf
states.append(state())
for name in bert_tf.__all__:
    getattr(bert_tf, name)
assert len(bert_tf.FullTokenizer(sys.argv[1]).vocab) == 3
bert_tf.BertModel(bert_tf.BertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1))
states.append(state())
print(json.dumps(states))
"""
)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_nothing_is_changed_that_tensorflow_and_keras_do_not_change(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nb\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "XLA_", "KERAS_"))}
    options = {"env": clean | {"PYTHONPATH": str(ROOT)}, "text": True, "stdout": subprocess.PIPE}
    errors = [tmp_path / "others.log", tmp_path / "ours.log"]
    started = []
    for program, log in zip((OTHERS, OURS), errors, strict=True):
        command = [sys.executable, "-c", program, str(tmp_path / "vocab.txt")]
        with log.open("w") as stderr:
            started.append(subprocess.Popen(command, stderr=stderr, **options))
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors[1].read_text()
    others, (before, imported, used) = map(json.loads, said)
    assert imported == before
    assert used["memory is given back"]
    for state in (others, used):
        del state["streams"][2]  # each has its log
    used["logging"] = {name: used["logging"][name] for name in others["logging"]}
    assert used == others
    # What TensorFlow says comes through.
    assert {notice for log in errors for notice in notices(log)} == notices(errors[1])


COMMAND = (
    STATE
    + """
from bert_tf.cli import main as cli
cli.prepare()
print(json.dumps(state()))
"""
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc and /proc")
def test_commands_make_their_settings():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "XLA_", "KERAS_"))}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND],
        env=clean | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
    )
    state = json.loads(done.stdout)
    wanted = {"TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND"}
    assert wanted <= state["environment"].keys()
    assert not state["memory is given back"]


@pytest.mark.parametrize("path", ["bert_tf/__init__.py", "bert_tf/heads/__init__.py"])
def test_editors_know_the_names(path):
    """What type checkers read is what the first use of a name loads; and `dir` lists it."""
    tree = ast.parse((ROOT / path).read_text())
    (branch,) = (x.orelse for x in tree.body if isinstance(x, ast.If))
    seen = {alias.name: node.module for node in branch for alias in node.names}
    module = importlib.import_module(path.removesuffix("/__init__.py").replace("/", "."))
    homes = {name: home for name, home in seen.items() if name in module._HOMES}
    assert homes == module._HOMES
    assert {*module.__all__, *seen} - {"BertModel"} <= {*dir(module)}
    assert all(hasattr(module, name) for name in dir(module))


def notices(log: pathlib.Path) -> set[str]:
    """The lines of TensorFlow's start, without times."""
    return set(re.findall(r"^[IWE]\d{4} .*?\] (.*)", log.read_text(), re.MULTILINE))


def test_the_backend_that_keras_is_told_to_use(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    clean = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    program = "import bert_tf, keras; print(keras.backend.backend())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean | {"KERAS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
    )
    assert done.stdout == "jax\n" or "No module named 'jax'" in done.stderr
