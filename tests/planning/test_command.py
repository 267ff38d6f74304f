"""bert-tf plan: what it prints, and what it refuses; --for with a compiler of ours and the real."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from small_plans import BASE, changed
from walking import ROOT, in_process, write_config

from bert_tf.errors import InputError
from bert_tf.planning import compilers, programs, tables
from bert_tf.planning.compilers import Compiled
from bert_tf.planning.memory import largest_batch
from bert_tf.planning.workload import DEVICES

SHAPES = {"max_seq_length": 17, "max_predictions_per_seq": 5, "train_batch_size": 6}


def plan(tmp_path, capsys, *words, **flags) -> str:
    """What the command prints for BERT-Base."""
    config = write_config(tmp_path / "c.json", **BASE.config.to_dict())
    with in_process("plan") as main:
        main(*words, bert_config_file=config, **flags)
    return capsys.readouterr().out


def command(*words, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bert_tf", "plan", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        **options,
    )


def test_a_gpu_by_its_figures(tmp_path, capsys):
    printed = plan(
        tmp_path, capsys, memory_gb=16, fits=True, device_tflops=15.7, device_gb_per_s=900,
        num_train_steps=1000,
    )  # fmt: skip
    lines = printed.splitlines()
    assert lines[0] == "Parameters: 110,106,428"
    batch = tables.usable_batch(BASE, 16, 0.75)
    assert f"Largest --train_batch_size in 16 GB: {batch}" in lines
    (fits,) = (line.split() for line in lines if line.startswith("  BERT-Base       128"))
    assert (fits[4], fits[-1]) == (str(batch), "32")
    assert any(line.startswith("  1,000 steps: ") for line in lines)
    assert " 0 B" not in printed


def test_an_accelerator_by_name(tmp_path, capsys):
    """Its memory, its largest batch, its speed in half precision, and what all steps cost."""
    words = ["--device=v5e", "--num_train_steps=1000", "--price_per_hour=3.6"]
    half = plan(tmp_path, capsys, *words, precision="bfloat16", num_replicas=2)
    work = changed(BASE, precision="bfloat16", num_replicas=2)
    expected = largest_batch(work, DEVICES["v5e"].memory_bytes, "tpu")
    assert f"Largest --train_batch_size on TPU v5e: {expected}\n" in half
    seconds = float(re.search(r"1,000 steps: ([\d.]+) s", half)[1])
    cost = float(re.search(r"cost: ([\d.]+) \(2 devices, each 3.6 an hour\)", half)[1])
    assert cost == pytest.approx(2 * seconds * 3.6 / 3600, abs=0.01)
    single = plan(tmp_path, capsys, "--device=v5e", variables=True)
    assert "cls/predictions/output_bias" in single
    assert "Time of a step" not in single  # no figure of a data sheet holds for float32


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["--device=v5e", "--num_train_steps=9"], "--num_train_steps without a device's speed"),
        (["--device=h100", "--memory_gb=9"], "--memory_gb with --device=h100, where"),
        (["--device=v5e", "--price_per_hour=1"], "--price_per_hour"),
        (["--steps=train"], "--steps without --for"),
    ],
)
def test_what_would_have_no_effect_is_refused(tmp_path, capsys, words, received):
    with pytest.raises(InputError) as caught:
        plan(tmp_path, capsys, *words)
    assert caught.value.received.startswith(received)


def test_the_command_answers_without_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('TensorFlow was loaded')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    words = ("--fits", "--head=question_answering")
    ended = command(*words, env=env)
    assert ended.returncode == 0, ended.stderr
    fits = tables.fits_lines(changed(BASE, head="question_answering"), 0.75)
    assert ended.stdout.splitlines() == list(fits)
    assert "--device without --bert_config" in command(*words, "--device=a100", env=env).stderr
    assert "where there is nothing" in command("--bert_config_file=none.json", env=env).stderr


# ------------------------------------------------------------------------------ compilers


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

    def lowered(self, step, batch):
        return step, batch


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Runs the command with a compiler of ours."""
    config = write_config(tmp_path / "bert_config.json")
    monkeypatch.setattr(compilers, "check_packages", lambda _: None)
    monkeypatch.setattr(programs, "Programs", Programs)

    def run(compiler, *words):
        monkeypatch.setattr(compilers, "compile_program", compiler)
        with in_process("plan") as main:
            main(*words, bert_config_file=config, **SHAPES)

    return run


QUESTIONS = "--head=question_answering"


def test_a_line_for_each_program_and_the_largest_batch(check, capsys):
    compiler = Compiler()
    check(compiler, "--for=v5e,v6e", QUESTIONS, "--eval_batch_size=3", "--predict_batch_size=7")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("question_answering: 17 tokens, float32")
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
        check(Compiler(**answers), "--for=v5e", "--nolargest_batch")
    received = caught.value.received
    assert received.count("v5e refuses the step evaluate of batch 8: UNIMPLEMENTED: strings") == 4
    needs = "the step predict of batch 8 needs 17 GB, v5e has room for 16.9 GB"
    assert received.count(needs) == 4  # heads
    assert "largest" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for=v5e,h100,v5e"], "each once"),
        (["--for=v5e", "--device=h100"], "--device with --for"),
    ],
)
def test_mistakes_are_answered_before_anything_loads(words, says):
    ended = command(*words)
    assert ended.returncode == 1
    assert not re.search(r"\| +(tensorflow|jax|keras)$", ended.stderr, re.M)
    assert says in ended.stderr or "whose compiler needs" in ended.stderr


@pytest.mark.parametrize("device", ["v5e", "h100"])
def test_the_tiny_model_goes_through_the_real_compiler(device, tmp_path):
    needed = "libtpu" if DEVICES[device].kind == "tpu" else "jax_plugins"
    for module in ("jax", needed):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'bert-tf[compile-check]'")
    ended = command(
        f"--for={device}", f"--bert_config_file={write_config(tmp_path / 'bert_config.json')}",
        "--head=pretraining", "--steps=train,predict", "--nolargest_batch", "--recompute",
        *(f"--{name}={value}" for name, value in SHAPES.items()),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = re.findall(rf"^  {device} +(train|predict) +(\d+) +([\d.]+ k?M?B)", ended.stdout, re.M)
    assert [(step, batch) for step, batch, _ in found] == [("train", "6"), ("predict", "8")]
