"""kill -9 while a run trains, the same command again: it ends as if nothing had happened."""

import pathlib
import shutil
import signal
import subprocess

import killed
import numpy as np
import pytest
from walking import (
    SIZES,
    command,
    in_process,
    index_with_blocks_of,
    read_tensors,
    results_of,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf.data.batches import number_of_lanes

pytestmark = pytest.mark.walk
RECORDS_OF_FILES = (21, 12, 8)
BATCH = 4  # most epochs end within a batch
KILLED_AT, SAVED_EVERY = 26, 4
SMALL_PIPE = 4096  # bytes, some 25 lines: the run cannot get far ahead of what is read here
FLAGS = {
    "do_lower_case": True, "do_train": True, "train_batch_size": BATCH, "num_train_steps": 120,
    "num_warmup_steps": 20, "learning_rate": 3e-3, "save_checkpoints_steps": SAVED_EVERY,
    "keep_checkpoint_max": 3, "log_steps": 2, "iterations_per_loop": 3, "seed": 17, "xla": "false",
    "strategy": "one", **SIZES,
}  # fmt: skip


def leave_half_written(folder: pathlib.Path, step: int) -> None:
    """What a kill leaves behind if it comes while a checkpoint and texts are written."""
    shutil.rmtree(folder / killed.left_name(f"model.ckpt-{step}"), ignore_errors=True)
    name = f"model.ckpt-{step}"
    incomplete = killed.leave(folder / name, None) / name
    (incomplete / "checkpoint.data-00000-of-00001").write_bytes(b"begun")
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"renamed before its index")
    for name in ("checkpoint", "bert_config.json", "vocab.txt"):
        killed.leave(folder / name)


def test_killed_and_started_again(tmp_path, caplog):
    """With dropout and several files of data."""
    for number, rows in enumerate(RECORDS_OF_FILES):
        index_with_blocks_of(1, write_records(tmp_path / f"{number}.tfrecord", rows, seed=number))
    assert number_of_lanes(BATCH, sum(RECORDS_OF_FILES)) == 2  # each record is a block
    flags = FLAGS | {
        "input_file": tmp_path / "*.tfrecord",
        "bert_config_file": write_config(tmp_path / "bert_config.json", num_hidden_layers=1),
        "vocab_file": write_vocabulary(tmp_path / "vocab.txt"),
    }
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "killed"
    words = command("run_pretraining.py", **flags, output_dir=folder)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, pipesize=SMALL_PIPE) as process:
        said = next(line for line in process.stderr if f"train: {KILLED_AT} of" in line)
        process.kill()
        said += process.stderr.read()
    assert process.returncode == -signal.SIGKILL, said
    reached = int(said.rpartition("train: ")[2].partition(" of")[0])
    for index in folder.glob("model.ckpt-*.index"):  # they are whole
        tensors = read_tensors(index)
        assert tensors["global_step"] == int(index.stem.partition("-")[2])
        assert all(np.isfinite(tensors[name]).all() for name in tensors if "adam_" in name)
    latest = int(read_tensors(folder)["global_step"])
    # The checkpoint before the last one may still have been being written.
    assert reached - 2 * SAVED_EVERY <= latest < FLAGS["num_train_steps"]
    leave_half_written(folder, latest + SAVED_EVERY)
    with in_process("run_pretraining.py") as main, caplog.at_level("INFO", logger="absl"):
        main(**flags, output_dir=folder, verbosity=0)
        assert f"Loaded checkpoint {folder}/model.ckpt-{latest}, step {latest}." in caplog.text
        main(**flags, output_dir=undisturbed)
    np.testing.assert_equal(read_tensors(folder), read_tensors(undisturbed))
    assert results_of(folder) == results_of(undisturbed)
    assert len([name for name in results_of(folder) if name.endswith(".index")]) == 3
