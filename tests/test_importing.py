"""`import bert_tf`, and the use of its names, change nothing in the program that does it."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import bert_tf
from bert_tf import heads

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
LIBRARY = """
states = [state()]
import bert_tf
states.append(state())
import tensorflow, tensorflow_text, keras, h5py
states.append(state())
for name in bert_tf.__all__:
    getattr(bert_tf, name)
assert len(bert_tf.FullTokenizer(sys.argv[1]).vocab) == 3
bert_tf.BertModel(bert_tf.BertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1))
states.append(state())
print(json.dumps(states))
"""
COMMAND = """
from bert_tf.cli import main as cli
cli.prepare()
prepared = state()
from bert_tf import runtime
runtime.load_tensorflow()
runtime.import_tensorflow_text()
import keras
chosen = keras.config.backend(), keras.config.floatx(), keras.layers.Dense(3).compute_dtype
print(json.dumps([prepared, chosen]))
"""


def run(program: str, *words: str, **environment: str) -> Any:
    """What a program prints as JSON, in a process of its own."""
    return json.loads(ended(program, *words, **environment).stdout)


def ended(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """A process that has run a program."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "XLA_", "KERAS_"))}
    environment |= clean | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STATE + program, *words]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc and /proc")
def test_nothing_is_changed_that_tensorflow_and_keras_do_not_change(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nb\n")
    before, imported, others, used = run(LIBRARY, str(tmp_path / "vocab.txt"))
    assert imported == before
    assert used["memory is given back"]
    used["logging"] = {name: used["logging"][name] for name in others["logging"]}
    assert used == others


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc and /proc")
def test_a_command_computes_in_float32_on_tensorflow(tmp_path):
    """Whatever the user has chosen for Keras in other programs; and it may change its process."""
    (tmp_path / "keras.json").write_text('{"floatx": "float16", "backend": "torch"}')
    legacy = {"TF_USE_LEGACY_KERAS": "1"}  # without its package tf_keras
    process = ended(COMMAND, KERAS_HOME=str(tmp_path), KERAS_BACKEND="jax", **legacy)
    state, chosen = json.loads(process.stdout)
    own = re.compile(r"\S+ \S+ load TensorFlow( \.\.\.|: \d+ s)|WARNING: Logging before flag .*")
    assert all(map(own.fullmatch, process.stderr.splitlines())), process.stderr  # nothing else
    assert chosen == ["tensorflow", "float32", "float32"]
    wanted = {"TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND"}
    assert wanted <= state["environment"].keys()
    assert not state["memory is given back"]


def test_editors_know_the_public_names():
    """The stub has the names that the package has, from the same modules."""
    tree = ast.parse((ROOT / "bert_tf/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    pairs = [(node.module, alias) for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for _, alias in pairs)  # else it is no public name
    home = {alias.name: module for module, alias in pairs}
    home |= {name: f"bert_tf.{name}" for name, module in home.items() if module == "bert_tf"}
    assert home == bert_tf._HOMES


def test_the_import_is_quick():
    """It loads nothing but itself: 0.1 s and more is what a library costs."""
    program = """
import json, sys, time
before = {*sys.modules}
begun = time.process_time()
import bert_tf
seconds = time.process_time() - begun
print(json.dumps([seconds, sorted({*sys.modules} - before)]))
"""
    seconds, modules = run(program)
    assert seconds < 0.1
    assert modules == ["bert_tf"]


def test_editors_know_the_names_of_heads():
    """What type checkers read of layers is what the first use loads; and `dir` lists all names."""
    tree = ast.parse((ROOT / "bert_tf/heads/__init__.py").read_text())
    (branch,) = (x.orelse for x in tree.body if isinstance(x, ast.If))
    seen = {alias.asname: node.module for node in branch for alias in node.names}
    layers = {name: home for name, home in seen.items() if name}
    assert layers == dict.fromkeys(heads._LAYERS, "bert_tf.modeling.heads")
    assert layers.keys() < {*heads.__all__} == {*dir(heads)}


@pytest.mark.parametrize("module", [bert_tf, heads])
def test_every_name_can_be_used(module):
    assert all(hasattr(module, name) for name in dir(module))
    assert not hasattr(module, "BertModell")
    assert not {"ast", "pathlib", "Any"} & vars(bert_tf).keys()  # which editors would list
