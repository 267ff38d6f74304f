"""Training with --precision=bfloat16 on a CPU: what it says, and that a resumed run is the same."""

import shutil

import numpy as np
import pytest
from walking import (
    SIZES,
    read_tensors,
    run,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf import processor

pytestmark = pytest.mark.walk
FLAGS = {
    "do_lower_case": True, "do_train": True,
    "train_batch_size": 4, "num_train_steps": 12, "num_warmup_steps": 2, "learning_rate": 3e-3,
    "save_checkpoints_steps": 4, "seed": 17, "precision": "bfloat16", "verbosity": 0, **SIZES,
}  # fmt: skip


def test_a_resumed_run_is_the_same_and_the_log_says_how_it_is_computed(tmp_path, monkeypatch):
    """From its second checkpoint, in a process of its own."""
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    flags = FLAGS | {
        "input_file": write_records(tmp_path / "0.tfrecord", 21, seed=0),
        "bert_config_file": write_config(tmp_path / "bert_config.json", num_hidden_layers=1),
        "vocab_file": write_vocabulary(tmp_path / "vocab.txt"),
    }
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    evaluated = {"do_eval": True, "max_eval_steps": 2}
    said = run("run_pretraining.py", **flags, **evaluated, output_dir=whole).stderr
    if processor.bfloat16():
        assert "oneDNN multiplies in bfloat16 on this CPU" in said
        assert "XLA compiles what stands between them." in said
    else:
        assert f"{processor.without_bfloat16()}--precision=bfloat16 is not faster" in said
    resumed.mkdir()
    for path in (*whole.glob("model.ckpt-8.*"), whole / "bert_config.json"):
        shutil.copy(path, resumed)
    (resumed / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-8"\n')
    said = run("run_pretraining.py", **flags, output_dir=resumed).stderr
    assert "step 8." in said
    np.testing.assert_equal(read_tensors(resumed), read_tensors(whole))


def test_on_a_cpu_that_does_not_multiply_it(tmp_path, monkeypatch):
    """Its instructions are hidden from oneDNN: XLA compiles the step, as before."""
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    flags = FLAGS | {
        "input_file": write_records(tmp_path / "0.tfrecord", 21, seed=0),
        "bert_config_file": write_config(tmp_path / "bert_config.json", num_hidden_layers=1),
        "vocab_file": write_vocabulary(tmp_path / "vocab.txt"),
        "num_train_steps": 1,
        "num_warmup_steps": 0,
    }
    said = run("run_pretraining.py", **flags, output_dir=tmp_path / "run").stderr
    assert f"{processor.without_bfloat16()}--precision=bfloat16 is not faster than float32." in said
