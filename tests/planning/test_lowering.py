"""Programs from another process: one model for all of them, errors, ends."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil
import pytest
from small_plans import CONFIG, changed

from bert_tf import BertConfig
from bert_tf.errors import InputError
from bert_tf.planning import lowering
from bert_tf.planning.devices import STEPS
from bert_tf.planning.lowering import Programs

ROOT = pathlib.Path(__file__).parents[2]


def test_one_model_gives_the_programs_of_all_steps_and_shapes(capfd):
    work = changed(head="token_labels", train_batch_size=6, gradient_accumulation_steps=3)
    with Programs(work) as made:
        sizes = zip(STEPS, (6, 5, 4), strict=True)
        found = {step: made.lowered(step, batch) for step, batch in sizes}
    assert b"while" in found["train"]
    assert b"while" not in found["evaluate"]
    assert len({len(hlo) for hlo in found.values()}) == 3
    assert made.lowered("train", 6) is found["train"]
    assert not re.search("oneDNN|cuInit", capfd.readouterr().err)


def test_an_error_of_the_model_comes_back_and_its_process_ends():
    """A table of 2^41 numbers is more than any memory."""
    sizes = {"vocab_size": 2**31 - 1, "hidden_size": 1023, "num_attention_heads": 3}
    config = BertConfig(**CONFIG.to_dict() | sizes)
    with Programs(changed(config=config)) as made:
        process = psutil.Process(made._process.pid)
        with pytest.raises(InputError, match="memory"):
            made.lowered("predict", 7)
        assert process.is_running()
    assert not process.is_running()


def test_a_process_that_is_killed_is_an_error():
    with Programs(changed()) as made:
        os.kill(made._process.pid, signal.SIGKILL)
        with pytest.raises(InputError, match="ended with code -9 while it made the step train"):
            made.lowered("train", 11)


def test_it_ends_with_the_one_that_started_it():
    """Killed, that one cannot end it: the pipe between them does."""
    text = (
        "from bert_tf.planning.lowering import Programs\n"
        "with Programs(None) as made:\n"
        "    print(made._process.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        process = psutil.Process(int(parent.stdout.readline()))
        assert process.is_running()
        parent.kill()
    process.wait(timeout=60)


def test_a_tensorflow_without_xla_is_named_and_a_bug_stays_one():
    says = "could not find registered transfer manager for platform Host"
    found = lowering._as_input_error(RuntimeError(says))
    assert "without XLA" in found.received
    assert says in found.received
    assert "memory" in lowering._as_input_error(MemoryError()).expected
    assert lowering._as_input_error(KeyError("x")) is None
