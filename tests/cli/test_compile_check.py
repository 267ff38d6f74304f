"""bert-tf compile-check: its table and exit code, and the real compiler on a tiny model."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from walking import ROOT, in_process, write_config

from bert_tf.cli import compile_check
from bert_tf.errors import InputError
from bert_tf.planning.compilers import Compiled
from bert_tf.planning.devices import DEVICES

SHAPES = {"max_seq_length": 17, "max_predictions_per_seq": 5, "train_batch_size": 6}


class Compiler:
    """Takes 1 GB and 2 GB an example, if the device has them; or answers as it is told."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __call__(self, device, hlo, *, as_is):
        step, batch = hlo
        self.asked.append((device.name, step, batch, as_is))
        found = Compiled(arguments=10**9, temporary=2 * 10**9 * batch, flops=3e12, seconds=61)
        if found.peak > device.memory_bytes:
            found = Compiled(needed=found.peak, seconds=2)
        return self.answers.get(step, found)


class Programs:
    """Names of programs in place of programs."""

    def __init__(self, work):
        self.work = work

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def lowered(self, step, batch):
        return step, batch


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Runs the command with a compiler of ours."""
    config = write_config(tmp_path / "bert_config.json")
    monkeypatch.setattr(compile_check.compilers, "check_packages", lambda _: None)
    monkeypatch.setattr(compile_check, "Programs", Programs)

    def run(compiler, *words):
        monkeypatch.setattr(compile_check, "compile_program", compiler)
        with in_process("compile-check") as main:
            main(*words, bert_config_file=config, **SHAPES)

    return run


def test_a_line_for_each_program_and_the_largest_batch(check, capsys):
    compiler = Compiler()
    check(compiler, "--for=v5e,v6e", "--head=span", "--eval_batch_size=3", "--predict_batch_size=7")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("span: 17 tokens, float32")
    assert " ".join(lines[2].split()) == "v5e train 6 1 GB 12 GB 13 GB 16.9 GB 3 T 1 min 1 s"
    assert [line.split()[:3] for line in lines[3:]] == [
        ["v5e", "largest", "--train_batch_size:"],
        ["v5e", "evaluate", "3"],
        ["v5e", "predict", "7"],
        ["v6e", "train", "6"],
        ["v6e", "largest", "--train_batch_size:"],
        ["v6e", "evaluate", "3"],
        ["v6e", "predict", "7"],
    ]
    assert [int(line.split()[-1]) for line in lines if "largest" in line] == [7, 16]
    asked = [words[1:] for words in compiler.asked]
    assert {("train", 6, False), ("train", 6, True), ("evaluate", 3, False)} <= set(asked)


def test_what_is_refused_and_what_does_not_fit_end_the_command(check, capsys):
    answers = {
        "evaluate": Compiled(refused="UNIMPLEMENTED: strings"),
        "predict": Compiled(needed=17 * 10**9),
    }
    with pytest.raises(InputError) as caught:
        check(Compiler(**answers), "--for=v5e", "--nolargest_batch", "--head=span,pretraining")
    received = caught.value.received
    assert received.count("v5e refuses the step evaluate of batch 8: UNIMPLEMENTED: strings") == 2
    needs = "the step predict of batch 8 needs 17 GB, v5e has room for 16.9 GB"
    assert received.count(needs) == 2
    assert "largest" not in capsys.readouterr().out


def test_a_larger_batch_that_is_refused_is_not_the_largest(check, capsys):
    """Its compiler may end without a word of memory."""

    def compiler(device, hlo, *, as_is):
        refused = "the compiler ended with SIGSEGV" if hlo[1] > 9 else ""
        return Compiled(temporary=10**7 * hlo[1], refused=refused)

    check(compiler, "--for=v5e", "--head=span", "--steps=train")
    assert int(capsys.readouterr().out.split()[-1]) in range(6, 10)


def command(*words, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bert_tf", "compile-check", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        **options,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "add --for=v5e,h100"),
        (["--for=v5e", "--steps="], "an empty --steps"),
        (["--for=v5e,cpu"], "expected words of v4, v5e"),
        (["--for=v5e,h100,v5e"], "each once"),
        (["--for=v5e", "--head=sentence"], "expected words of pretraining, classifier"),
    ],
)
def test_mistakes_are_answered_before_anything_loads(words, says):
    ended = command(*words)
    assert ended.returncode == 1
    assert not re.search(r"\| +(tensorflow|jax|keras)$", ended.stderr, re.M)
    assert says in ended.stderr


@pytest.mark.parametrize("device", ["v5e", "h100"])
def test_the_tiny_model_goes_through_the_real_compiler(device, tmp_path):
    kind = DEVICES[device].kind
    needed = "libtpu" if kind == "tpu" else "jax_plugins"
    for module in ("jax", needed):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'bert-tf[compile-check]'")
    config = write_config(tmp_path / "bert_config.json")
    words = [f"--{name}={value}" for name, value in SHAPES.items()]
    ended = command(
        f"--for={device}",
        f"--bert_config_file={config}",
        "--head=pretraining",
        "--steps=train,predict",
        "--nolargest_batch",
        "--recompute",
        *words,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = re.findall(rf"^  {device} +(train|predict) +(\d+) +([\d.]+ k?M?B)", ended.stdout, re.M)
    assert [(step, batch) for step, batch, _ in found] == [("train", "6"), ("predict", "8")]
