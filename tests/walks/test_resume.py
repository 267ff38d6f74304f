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

from bert_tf import BertConfig
from bert_tf.data.samplers import number_of_lanes

pytestmark = pytest.mark.walk

NUM_TRAIN_STEPS = 200
SAVE_CHECKPOINTS_STEPS = 4
LOG_STEPS = 2
RECORDS_OF_FILES = (21, 12, 8)
BATCH = 4  # most epochs end within a batch
SMALL_PIPE = 4096  # bytes, some 25 lines


@pytest.fixture(autouse=True)
def _leave_nothing_running():
    yield
    end_all()


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> pathlib.Path:
    """Records in three files, a configuration with dropout, a vocabulary."""
    folder = tmp_path_factory.mktemp("given")
    for number, rows in enumerate(RECORDS_OF_FILES):
        index_with_blocks_of(1, write_records(folder / f"{number}.tfrecord", rows, seed=number))
    assert number_of_lanes(BATCH, sum(RECORDS_OF_FILES)) == 2  # each record is a block
    config = write_config(folder / "bert_config.json", num_hidden_layers=1)
    assert BertConfig.from_json_file(config).hidden_dropout_prob > 0
    write_vocabulary(folder / "vocab.txt")
    return folder


def train(given: pathlib.Path, output_dir: pathlib.Path, *, pipesize: int = -1) -> subprocess.Popen:
    """The command that is killed and given again."""
    return start(
        "run_pretraining.py",
        pipesize=pipesize,
        input_file=given / "*.tfrecord",
        bert_config_file=given / "bert_config.json",
        vocab_file=given / "vocab.txt",
        do_lower_case=True,
        output_dir=output_dir,
        do_train=True,
        train_batch_size=BATCH,
        num_train_steps=NUM_TRAIN_STEPS,
        num_warmup_steps=20,
        learning_rate=3e-3,
        save_checkpoints_steps=SAVE_CHECKPOINTS_STEPS,
        keep_checkpoint_max=3,
        log_steps=LOG_STEPS,
        iterations_per_loop=3,
        seed=17,
        **SIZES,
    )


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


def last_step(said: str) -> int:
    """The last step that a run told of."""
    return int(said.rpartition("train: ")[2].partition(" of")[0])


def check_what_is_left(folder: pathlib.Path) -> int:
    """Every checkpoint of a killed run is whole; returns the step of the latest, or 0."""
    for index in folder.glob("model.ckpt-*.index"):
        tensors = read_tensors(index)
        assert tensors["global_step"] == int(index.stem.partition("-")[2])
        assert all(np.isfinite(tensors[name]).all() for name in tensors if "adam_" in name)
    if not (folder / "checkpoint").exists():
        return 0
    return int(read_tensors(folder)["global_step"])


def leave_half_written(folder: pathlib.Path, step: int) -> None:
    """What a kill leaves behind if it comes while a checkpoint and texts are written."""
    killed.leave_lock(folder / ".lock")
    incomplete = folder / killed.left_name(f"model.ckpt-{step}")
    incomplete.mkdir()
    (incomplete / "checkpoint.data-00000-of-00001").write_bytes(b"begun")
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"renamed before its index")
    for name in ("checkpoint", "bert_config.json", "vocab.txt"):
        (folder / killed.left_name(name)).write_text("beg")


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a run but its summaries, which tell times of day."""
    files = contents(folder)
    return {name: data for name, data in files.items() if "events.out.tfevents" not in name}


def test_killed_three_times(given, tmp_path):
    undisturbed = train(given, tmp_path / "undisturbed")
    moments = random.Random(20240229)
    latest, folder = 0, tmp_path / "killed"
    for kill in range(3):
        step = latest + LOG_STEPS * moments.randint(1, 15)
        seconds = moments.uniform(0, 0.05)
        said = kill_after(train(given, folder, pipesize=SMALL_PIPE), step, seconds)
        assert ("Loaded checkpoint" in said) == (kill > 0)
        before, latest = latest, check_what_is_left(folder)
        print(
            f"killed {seconds * 1000:.0f} ms after step {step}, at {last_step(said)} or later; "
            f"latest checkpoint {latest}; there are {sorted(p.name for p in folder.iterdir())}"
        )
        assert before < last_step(said) < NUM_TRAIN_STEPS
        # The checkpoint before the last one may still have been being written.
        assert last_step(said) - 2 * SAVE_CHECKPOINTS_STEPS <= latest < NUM_TRAIN_STEPS
        if kill == 1:
            leave_half_written(folder, latest + SAVE_CHECKPOINTS_STEPS)
    said = finish(train(given, folder))
    assert f"Loaded checkpoint {folder}/model.ckpt-{latest}, step {latest}." in said
    assert "but is no longer the run" not in said

    finish(undisturbed)
    expected = read_tensors(tmp_path / "undisturbed")
    tensors = read_tensors(folder)
    assert tensors.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(tensors[name]).tobytes() == np.asarray(value).tobytes(), name
    assert files_of(folder) == files_of(tmp_path / "undisturbed")
    assert len([name for name in files_of(folder) if name.endswith(".index")]) == 3
