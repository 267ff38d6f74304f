"""The plan as text, and the command."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import walking
from small_plans import BASE, changed

from bert_tf.errors import InputError
from bert_tf.planning import tables
from bert_tf.planning.accelerators import largest_batch_on
from bert_tf.planning.devices import DEVICES

ROOT = pathlib.Path(__file__).parents[2]


def test_figures_as_text():
    assert tables.amount(1234567890) == "1.23 GB"
    assert tables.amount(999.6) == "1 kB"
    assert tables.amount(0, "FLOP") == "0 FLOP"
    assert [tables.precise_duration(s) for s in (0.0123, 100, 8000, 300_000)] == [
        "12.3 ms",
        "100 s",
        "2.22 h",
        "3.47 days",
    ]
    assert list(tables.columns([("a", "1"), ("bcd", "234")])) == ["a      1", "bcd  234"]


def plan(tmp_path, capsys, *words, **flags) -> str:
    """What the command prints for BERT-Base."""
    config = walking.write_config(tmp_path / "c.json", **BASE.config.to_dict())
    with walking.in_process("plan") as main:
        main(*words, bert_config_file=config, **flags)
    return capsys.readouterr().out


def test_an_accelerator_by_name(tmp_path, capsys):
    """Its memory, its largest batch, its speed in half precision, and what all steps cost."""
    words = ["--device=v5e", "--num_train_steps=1000", "--price_per_hour=3.6"]
    half = plan(tmp_path, capsys, *words, precision="bfloat16", num_replicas=2)
    work = changed(BASE, precision="bfloat16")
    expected = largest_batch_on(changed(work, num_replicas=2), DEVICES["v5e"])
    assert expected == 2 * largest_batch_on(work, DEVICES["v5e"])
    assert f"Largest --train_batch_size on TPU v5e: {expected}\n" in half
    seconds = float(re.search(r"1,000 steps: ([\d.]+) s", half)[1])
    cost = int(re.search(r"(\d+) at 3.6 an hour for each of 2", half)[1])
    assert cost == round(2 * seconds * 3.6 / 3600)
    single = plan(tmp_path, capsys, "--device=v5e")
    assert "Largest --train_batch_size on TPU v5e" in single
    assert "Time of a step" not in single  # no figure of a data sheet holds for float32
    assert " 0 B" not in single
    with pytest.raises(InputError, match="price_per_hour"):
        plan(tmp_path, capsys, "--device=v5e", "--price_per_hour=1")


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["--device=v5e", "--num_train_steps=9"], "--num_train_steps without a device's speed"),
        (["--link_gb_per_s=9"], "--link_gb_per_s without a device's speed"),
        (["--device=h100", "--memory_gb=9"], "--memory_gb with --device=h100, where"),
    ],
)
def test_what_would_have_no_effect_is_refused(tmp_path, capsys, words, received):
    with pytest.raises(InputError) as caught:
        plan(tmp_path, capsys, *words)
    assert caught.value.received.startswith(received)


def test_the_command_answers_without_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('TensorFlow was loaded')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "bert_tf", "plan", "--fits", "--head=span"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
    )
    assert ended.returncode == 0, ended.stderr
    work_of = changed(BASE, head="question_answering")
    assert ended.stdout.splitlines() == list(tables.fits_lines(work_of, 0.75))


def test_the_notices_of_tensorflow_are_left_out(tmp_path):
    """Which is loaded for the file, wherever that may be."""
    config = walking.write_config(tmp_path / "c.json")
    words = ["plan", f"--bert_config_file={config}", "--max_seq_length=17"]
    ended = subprocess.run(
        [sys.executable, "-m", "bert_tf", *words], capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr
    assert not re.search("oneDNN|cuInit|cudart", ended.stderr)


def test_the_command(tmp_path, capsys):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(tables.PUBLISHED["BERT-Base"].to_dict()))
    with walking.in_process("plan") as main:
        main(
            bert_config_file=path,
            memory_gb=16,
            fits=True,
            device_tflops=15.7,
            device_gb_per_s=900,
            link_gb_per_s=10,
            num_train_steps=1000,
        )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Parameters: 110,106,428"
    batch = tables.usable_batch(BASE, 16, 0.75)
    assert f"Largest --train_batch_size in 16 GB: {batch}" in lines
    (fits,) = (line.split() for line in lines if line.startswith("  BERT-Base       128"))
    assert fits[4] == str(batch)
    assert fits[-1] == "32"
    assert any(line.startswith("  1,000 steps: ") for line in lines)
    assert any(line.startswith("  1024 ") for line in lines)
