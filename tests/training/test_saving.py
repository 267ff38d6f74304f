"""Runs that end early and are resumed, and checkpoints that are written while training goes on."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from small_runs import (
    EVERY_STEP,
    STEPS,
    assert_same,
    endless,
    make_trainer,
    spoil,
    tensors_of,
    train,
    write_files,
)

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.runtime import Interrupted
from bert_tf.training.evaluation import StopTraining
from bert_tf.training.options import Intervals

STRIDES = Intervals(iterations_per_loop=3, log_steps=0, save_checkpoints_steps=6)
LATE = 0.2  # seconds; whoever does not wait for the thread is there long before


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    return endless(write_files(tmp_path_factory.mktemp("records")))


@pytest.fixture(scope="module")
def trainer():
    return make_trainer()


@pytest.fixture(scope="module")
def in_turn(trainer, batches, tmp_path_factory) -> tuple[pathlib.Path, dict[int, dict]]:
    """The folder and the losses of a run that does nothing while it writes."""
    folder = tmp_path_factory.mktemp("in_turn")
    CheckpointFolder(folder).save(0, trainer.state(0, {"seed": 3}))

    def save_in_turn(folder: CheckpointFolder, step: int, tensors) -> None:
        folder._write(step, {name: np.array(value) for name, value in tensors.items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "start_saving", save_in_turn)
        losses = train(trainer, batches, folder)
    return folder, losses


@pytest.fixture
def folder(tmp_path, in_turn) -> pathlib.Path:
    """A run's folder, with nothing done yet."""
    CheckpointFolder(tmp_path / "run").save(0, tensors_of(in_turn[0], 0))
    return tmp_path / "run"


def files_of(folder: pathlib.Path, step: int) -> list[bytes]:
    """The bytes of a checkpoint; none where it is not there."""
    return [path.read_bytes() for path in sorted(folder.glob(f"model.ckpt-{step}.*"))]


class Writing:
    """In the place of what writes a checkpoint's files: is held up at chosen steps."""

    def __init__(self, monkeypatch, *held: int):
        self._write, self._goes_on = tf1.write_checkpoint, threading.Event()
        self._held, self.begun = held, []
        monkeypatch.setattr(tf1, "write_checkpoint", self)

    def __call__(self, prefix: str, tensors, *, temporary: str) -> None:
        step = tf1.step_of(prefix)
        self.begun.append(step)
        if step in self._held:
            assert self._goes_on.wait(60)
        self._write(prefix, tensors, temporary=temporary)

    def let_go(self, *, after: float = 0.0) -> None:
        threading.Timer(after, self._goes_on.set).start()


# ---------------------------------------------------------------------------- what is written


def test_steps_go_on_while_a_checkpoint_is_written(
    trainer, batches, folder, in_turn, monkeypatch, tmp_path
):
    """Two of them; a run that is killed meanwhile has the checkpoint before, and ends the same."""
    writing, run, found = Writing(monkeypatch, 2), CheckpointFolder(folder), []

    def on_stop(step, means):
        if step == 4:  # whose checkpoint waits for that of step 2
            assert writing.begun == [2]
            assert CheckpointFolder(folder).latest().endswith("-0")
            shutil.copytree(folder, tmp_path / "killed")
            writing.let_go()

    def evaluate(step):  # finds the checkpoint of its step
        found.append(tf1.step_of(run.latest()))
        return {"loss": 0.5}

    intervals = dataclasses.replace(EVERY_STEP, eval_steps=4)
    train(trainer, batches, run, intervals=intervals, evaluate=evaluate, on_stop=on_stop)
    assert found == [0, 4]
    assert writing.begun == [2, 4, 6]
    assert list(train(trainer, batches, tmp_path / "killed")) == [1, 2, 3, 4, 5, 6]
    for step in (2, 4, 6):
        assert len(files_of(in_turn[0], step)) == 2
        assert files_of(folder, step) == files_of(in_turn[0], step), step
        assert files_of(tmp_path / "killed", step) == files_of(in_turn[0], step), step


# ---------------------------------------------------------------------------- what ends a run


@pytest.mark.parametrize(("failing", "last"), [(2, 3), (6, 6)])
def test_a_checkpoint_that_cannot_be_written(trainer, batches, folder, monkeypatch, failing, last):
    """Ends the run at the next stop; that of the last step is an error of the run, too."""
    write, run, steps = tf1.write_checkpoint, CheckpointFolder(folder), []

    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    def broken(prefix, *args, **kwargs):
        with monkeypatch.context() as patch:
            if tf1.step_of(prefix) == failing:
                patch.setattr(tf.raw_ops, "SaveV2", full)
            write(prefix, *args, **kwargs)

    def on_stop(step, means):
        steps.append(step)
        if step == failing + 1:
            futures.wait([run._saving])

    monkeypatch.setattr(tf1, "write_checkpoint", broken)
    with pytest.raises(InputError, match=rf"step {failing} cannot be written \(no space") as caught:
        train(trainer, batches, run, on_stop=on_stop)
    assert steps[-1] == last
    assert f"resumes from {folder}/model.ckpt-{failing - 2}" in caught.value.remedy
    assert not files_of(folder, failing)
    assert not list(folder.glob(".*"))


def sigterm(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def ctrl_c() -> None:
    raise KeyboardInterrupt


def enough() -> None:
    raise StopTraining("it is good enough", {"loss": 0.0})


ENDS: dict[str, tuple] = {
    # What is raised; what is done after step 3, and in its evaluation; the steps evaluated then;
    # the checkpoint that is held up, and the last one.
    "ctrl-c in a notebook": (KeyboardInterrupt, ctrl_c, None, [0], 2, 2),
    "sigterm": (Interrupted, sigterm, None, [0], 2, 3),  # the run that goes on evaluates
    "sigterm in an evaluation": (Interrupted, None, sigterm, [0, 3], 3, 3),
    "an evaluation": (None, None, enough, [0], 3, 3),
    "the last step": (None, None, None, [0, 3, 6], 6, 6),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_ends_has_a_whole_checkpoint_and_is_resumed_exactly(
    trainer, batches, folder, in_turn, monkeypatch, how
):
    """The writing of one checkpoint is held up; the run is resumed in strides of another length."""
    undisturbed, losses = in_turn
    error, after, within, evaluates, held, latest = ENDS[how]
    evaluated: list[int] = []

    def at(step: int, action: Callable | None) -> None:
        if step == 3 and action:
            action()

    def evaluate(step: int) -> dict[str, float]:
        at(step, within)
        evaluated.append(step)
        return {"loss": 0.0}

    writing, barriers = Writing(monkeypatch, held), []
    monkeypatch.setattr(runtime, "barrier", lambda: barriers.append(len(files_of(folder, latest))))
    handler = signal.getsignal(signal.SIGTERM)
    intervals = dataclasses.replace(EVERY_STEP, eval_steps=3)
    writing.let_go(after=3 * LATE)
    calls = {"evaluate": evaluate, "on_stop": lambda step, means: at(step, after)}
    with pytest.raises(error) if error else contextlib.nullcontext() as caught:
        train(trainer, batches, folder, intervals=intervals, **calls)
    if error is Interrupted:
        assert (caught.value.step, caught.value.code) == (3, 143)
        assert barriers == [0, 2]  # after the checkpoints of steps 2 and 3: all processes know
    assert signal.getsignal(signal.SIGTERM) is handler
    assert evaluated == evaluates
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-{latest}"
    assert not list(folder.glob(".*"))
    assert files_of(folder, 2) == files_of(undisturbed, 2)
    monkeypatch.undo()
    spoil(trainer)
    resumed = train(trainer, batches, folder, intervals=STRIDES)
    assert files_of(folder, 6) == files_of(undisturbed, 6)
    for stop, means in resumed.items():
        for name, mean in means.items():
            expected = np.mean([losses[step][name] for step in range(latest + 1, stop + 1)])
            assert mean == pytest.approx(expected, rel=1e-6)
        latest = stop
    assert latest == STEPS


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_after_the_steps_that_it_makes_now(
    trainer, batches, folder, in_turn, monkeypatch, number, code
):
    """It comes within the steps of the first half second, and nothing else stops before step 6."""
    make, made = trainer.steps.train, []

    def train_on(totals, iterator, step, steps):
        made.append(int(step + steps))
        if step == 0:
            sigterm(number)
        return make(totals, iterator, step, steps)

    monkeypatch.setattr(trainer.steps, "train", train_on)
    monkeypatch.setattr(trainer.programs, "_seconds", 0.5)
    strides = Intervals(iterations_per_loop=6, log_steps=6, save_checkpoints_steps=6)
    handler = signal.signal(signal.SIGINT, lambda *_: None)  # of a command, say
    try:
        with pytest.raises(Interrupted) as caught:
            train(trainer, batches, folder, intervals=strides)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (made, caught.value.step, caught.value.code) == ([2], 2, code)
    spoil(trainer)
    train(trainer, batches, folder, intervals=strides)
    assert_same(folder, in_turn[0], 6)
