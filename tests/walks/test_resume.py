"""kill -9 at any moment, the same command again: the run ends as if nothing had happened."""

import pathlib
import random
import signal
import subprocess
import time

import killed
import numpy as np
import pytest
from walking import (
    SECONDS,
    SIZES,
    contents,
    end_all,
    index_with_blocks_of,
    read_tensors,
    start,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf.data.batches import number_of_lanes

pytestmark = pytest.mark.walk

STEPS, SAVED_EVERY, LOGGED_EVERY = 200, 4, 2
RECORDS_OF_FILES = (21, 12, 8)
BATCH = 4  # most epochs end within a batch
SMALL_PIPE = 4096  # bytes, some 25 lines


@pytest.fixture
def train(tmp_path):
    """The command that is killed and given again; its model has dropout, its data three files."""
    for number, rows in enumerate(RECORDS_OF_FILES):
        index_with_blocks_of(1, write_records(tmp_path / f"{number}.tfrecord", rows, seed=number))
    assert number_of_lanes(BATCH, sum(RECORDS_OF_FILES)) == 2  # each record is a block
    flags = {
        "input_file": tmp_path / "*.tfrecord",
        "bert_config_file": write_config(tmp_path / "bert_config.json", num_hidden_layers=1),
        "vocab_file": write_vocabulary(tmp_path / "vocab.txt"),
        "do_lower_case": True,
        "do_train": True,
        "train_batch_size": BATCH,
        "num_train_steps": STEPS,
        "num_warmup_steps": 20,
        "learning_rate": 3e-3,
        "save_checkpoints_steps": SAVED_EVERY,
        "keep_checkpoint_max": 3,
        "log_steps": LOGGED_EVERY,
        "iterations_per_loop": 3,
        "seed": 17,
        **SIZES,
    }
    yield lambda folder, **options: start(
        "run_pretraining.py", output_dir=folder, **flags, **options
    )
    end_all()


def kill_after(process: subprocess.Popen, step: int, seconds: float) -> str:
    """Kills the run `seconds` after it says that it has reached `step`; returns what it says.

    With a small pipe between them the run cannot get far ahead of what is read here.
    """
    said = ""
    for line in process.stderr:
        said += line
        if f"train: {step} of" in line:
            time.sleep(seconds)
            process.kill()
            break
    said += process.communicate(timeout=SECONDS)[1]
    assert process.returncode == -signal.SIGKILL, said
    return said


def finish(process: subprocess.Popen) -> str:
    """Waits for the end of the run; returns what it says."""
    said = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 0, said
    return said


def check_what_is_left(folder: pathlib.Path) -> int:
    """Every checkpoint of a killed run is whole; returns the step of the latest, or 0."""
    for index in folder.glob("model.ckpt-*.index"):
        tensors = read_tensors(index)
        assert tensors["global_step"] == int(index.stem.partition("-")[2])
        assert all(np.isfinite(tensors[name]).all() for name in tensors if "adam_" in name)
    return int(read_tensors(folder)["global_step"]) if (folder / "checkpoint").exists() else 0


def leave_half_written(folder: pathlib.Path, step: int) -> None:
    """What a kill leaves behind if it comes while a checkpoint and texts are written."""
    token = (folder / ".lock").read_text().split()[1]  # of the process that was killed
    incomplete = folder / killed.left_name(f"model.ckpt-{step}", token=token)
    incomplete.mkdir()
    (incomplete / "checkpoint.data-00000-of-00001").write_bytes(b"begun")
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"renamed before its index")
    for name in ("checkpoint", "bert_config.json", "vocab.txt"):
        (folder / killed.left_name(name, token=token)).write_text("beg")


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a run but its summaries, which tell times of day."""
    return {name: data for name, data in contents(folder).items() if "tfevents" not in name}


def test_killed_three_times(train, tmp_path):
    undisturbed, folder = train(tmp_path / "undisturbed"), tmp_path / "killed"
    moments, latest = random.Random(20240229), 0
    for kill in range(3):
        step = latest + LOGGED_EVERY * moments.randint(1, 15)
        said = kill_after(train(folder, pipesize=SMALL_PIPE), step, moments.uniform(0, 0.05))
        assert ("Loaded checkpoint" in said) == (kill > 0)
        reached = int(said.rpartition("train: ")[2].partition(" of")[0])
        before, latest = latest, check_what_is_left(folder)
        assert before < reached < STEPS
        # The checkpoint before the last one may still have been being written.
        assert reached - 2 * SAVED_EVERY <= latest < STEPS
        if kill == 1:
            leave_half_written(folder, latest + SAVED_EVERY)
    said = finish(train(folder))
    assert f"Loaded checkpoint {folder}/model.ckpt-{latest}, step {latest}." in said
    assert "but is no longer the run" not in said
    finish(undisturbed)
    np.testing.assert_equal(read_tensors(folder), read_tensors(tmp_path / "undisturbed"))
    assert files_of(folder) == files_of(tmp_path / "undisturbed")
    assert len([name for name in files_of(folder) if name.endswith(".index")]) == 3
