"""Checkpoints that are written while training goes on: what is in them, and what ends the run."""

import dataclasses
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent import futures

import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import cluster, pretraining_model
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.runtime import Interrupted
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.stops import StopTraining
from bert_tf.training.trainer import Trainer

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
STEPS, BATCH, RECORDS = 6, 4, 11
INTERVALS = Intervals(iterations_per_loop=1, log_steps=0, save_checkpoints_steps=2)


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> Batches:
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    files = RecordFiles(small.write_records(path, small.examples(RECORDS)), small.RECORD)
    return Batches(files, ShuffledSampler(len(files), seed=5), batch_size=BATCH)


def make_trainer(strategy: tf.distribute.Strategy | None = None, *, xla: bool = False) -> Trainer:
    return Trainer(
        lambda: pretraining_model(CONFIG, with_losses=True),
        PretrainingObjective(),
        AdamWeightDecay(schedule=Schedule(learning_rate=1e-2, num_train_steps=STEPS)),
        strategy=strategy or distribution.make_strategy("one"),
        seed=3,
        step_config=StepConfig(xla=xla),
    )


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return make_trainer()


@pytest.fixture(scope="module")
def start(trainer) -> dict[str, np.ndarray]:
    """The state before the first step, with which every test begins."""
    return {name: np.array(value) for name, value in trainer.state(0, {}).items()}


@pytest.fixture
def folder(tmp_path, start) -> pathlib.Path:
    CheckpointFolder(tmp_path / "run").save(0, start)
    return tmp_path / "run"


def train(trainer: Trainer, batches, folder, **changes) -> list[int]:
    """Trains; the steps at which it stopped."""
    steps, on_stop = [], changes.pop("on_stop", lambda step: None)

    def note(step, means):
        steps.append(step)
        on_stop(step)

    run = folder if isinstance(folder, CheckpointFolder) else CheckpointFolder(folder)
    given = {"intervals": INTERVALS, "num_train_steps": STEPS, "run_settings": {}} | changes
    trainer.train(batches, folder=run, on_stop=note, **given)
    return steps


def files_of(folder: pathlib.Path, step: int) -> list[bytes]:
    """The bytes of a checkpoint; none where it is not there."""
    return [path.read_bytes() for path in sorted(folder.glob(f"model.ckpt-{step}.*"))]


@pytest.fixture(scope="module")
def in_turn(trainer, start, batches, tmp_path_factory) -> pathlib.Path:
    """The folder of a run that does nothing while it writes."""
    folder = tmp_path_factory.mktemp("in_turn")
    CheckpointFolder(folder).save(0, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "start_saving", save_in_turn)
        train(trainer, batches, folder)
    return folder


def save_in_turn(folder: CheckpointFolder, step: int, tensors) -> None:
    copies = {name: np.array(value) for name, value in tensors.items()}
    folder._write(step, copies)


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


LATE = 0.2  # seconds; whoever does not wait for the thread is there long before


# ---------------------------------------------------------------------------- what is written


@pytest.mark.parametrize(("replicas", "xla"), [(1, False), (1, True), (2, False)])
def test_a_state_stays_as_it_is_while_steps_go_on(replicas, xla, batches, request):
    strategy = request.getfixturevalue("two_replicas") if replicas == 2 else None
    trainer = make_trainer(strategy, xla=xla)
    iterator = distribution.distributed_batches(trainer.strategy, batches)
    trainer.run_steps(iterator, 0, 1)
    for step in (1, 3):  # the second state is of weights that have moved for the first
        state = trainer.state(step, {})
        before = {name: np.array(value) for name, value in state.items()}
        trainer.run_steps(iterator, step, step + 2)
        after = trainer.state(step + 2, {})
        for name, value in before.items():
            assert np.asarray(state[name]).tobytes() == value.tobytes(), name
        same = [n for n, v in before.items() if np.asarray(after[n]).tobytes() == v.tobytes()]
        assert same == [tf1.RUN_SETTINGS]


def test_steps_go_on_while_a_checkpoint_is_written(
    trainer, batches, folder, in_turn, monkeypatch, tmp_path
):
    """Two of them; a run that is killed meanwhile has the checkpoint before, and ends the same."""
    writing = Writing(monkeypatch, 2)

    def on_stop(step):
        if step == 4:  # whose checkpoint waits for that of step 2
            assert writing.begun == [2]
            assert CheckpointFolder(folder).latest().endswith("-0")
            shutil.copytree(folder, tmp_path / "killed")
            writing.let_go()

    assert train(trainer, batches, folder, on_stop=on_stop) == [1, 2, 3, 4, 5, 6]
    assert writing.begun == [2, 4, 6]
    assert train(trainer, batches, tmp_path / "killed") == [1, 2, 3, 4, 5, 6]
    for step in (2, 4, 6):
        assert len(files_of(in_turn, step)) == 2
        assert files_of(folder, step) == files_of(in_turn, step), step
        assert files_of(tmp_path / "killed", step) == files_of(in_turn, step), step


def test_an_evaluation_finds_the_checkpoint_of_its_step(trainer, batches, folder, monkeypatch):
    """Whoever evaluates what is in the folder waits for it; others do not."""
    writing, found = Writing(monkeypatch, 4), {}
    run = CheckpointFolder(folder)

    def evaluate(step):
        found[step] = len(files_of(folder, step))
        if step == 4:
            writing.let_go(after=LATE)
        assert run.latest().endswith(f"-{step}")
        return {"loss": 0.5}

    intervals = dataclasses.replace(INTERVALS, eval_steps=4)
    train(trainer, batches, run, intervals=intervals, evaluate=evaluate)
    assert found == {0: 2, 4: 0}


# ---------------------------------------------------------------------------- what ends a run


def full(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(None, None, "no space left")


def fail_at(step: int, monkeypatch) -> None:
    """Lets the thread fail with the checkpoint of a step."""
    write = tf1.write_checkpoint

    def broken(prefix, *args, **kwargs):
        with monkeypatch.context() as patch:
            if tf1.step_of(prefix) == step:
                patch.setattr(tf.raw_ops, "SaveV2", full)
            write(prefix, *args, **kwargs)

    monkeypatch.setattr(tf1, "write_checkpoint", broken)


def test_an_error_of_the_thread_ends_the_run_at_the_next_stop(
    trainer, batches, folder, monkeypatch
):
    fail_at(2, monkeypatch)
    run, steps = CheckpointFolder(folder), []

    def on_stop(step):
        steps.append(step)
        if step == 3:
            futures.wait([run._saving])

    with pytest.raises(InputError, match=r"step 2 cannot be written \(no space left") as caught:
        train(trainer, batches, run, on_stop=on_stop)
    assert steps == [1, 2, 3]
    assert f"resumes from {folder}/model.ckpt-0" in caught.value.remedy
    assert not files_of(folder, 2)
    assert not list(folder.glob(".*"))


def test_an_error_of_the_last_checkpoint_is_one_of_the_run(trainer, batches, folder, monkeypatch):
    fail_at(6, monkeypatch)
    with pytest.raises(InputError, match="step 6 cannot be written"):
        train(trainer, batches, folder)
    assert CheckpointFolder(folder).latest().endswith("-4")


def ends_by(how: str) -> tuple[type | None, dict]:
    """What ends a run after step 3 while the checkpoint of step 2 is written, or of step 6."""

    def at_3(action: Callable[[], None]) -> dict:
        return {"on_stop": lambda step: action() if step == 3 else None}

    def interrupt():
        raise KeyboardInterrupt

    def stop(step):
        if step == 3:
            raise StopTraining("it is good enough")
        return {}

    match how:
        case "ctrl-c":
            return KeyboardInterrupt, at_3(interrupt)
        case "sigterm":
            return Interrupted, at_3(lambda: signal.raise_signal(signal.SIGTERM))
        case "evaluation":
            intervals = dataclasses.replace(INTERVALS, eval_steps=3)
            return None, {"evaluate": stop, "intervals": intervals}
    return None, {}


@pytest.mark.parametrize(
    ("how", "held", "latest"),
    [("ctrl-c", 2, 2), ("sigterm", 2, 3), ("sigterm", 3, 3), ("evaluation", 3, 3), ("end", 6, 6)],
)
def test_no_end_comes_before_the_checkpoint_is_whole(
    trainer, batches, folder, in_turn, monkeypatch, how, held, latest
):
    writing = Writing(monkeypatch, held)
    error, changes = ends_by(how)
    writing.let_go(after=5 * LATE)
    if error:
        with pytest.raises(error):
            train(trainer, batches, folder, **changes)
    else:
        train(trainer, batches, folder, **changes)
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-{latest}"
    assert not list(folder.glob(".*"))
    assert files_of(folder, 2) == files_of(in_turn, 2)
    monkeypatch.undo()
    assert train(trainer, batches, folder) == list(range(latest + 1, STEPS + 1))
    assert files_of(folder, 6) == files_of(in_turn, 6)


def test_processes_have_waited_for_each_other_when_a_run_ends(
    trainer, batches, folder, monkeypatch
):
    """Each says that there is a checkpoint, of which only the chief knows."""
    barriers = []
    monkeypatch.setattr(cluster, "barrier", lambda: barriers.append(len(files_of(folder, 3))))
    error, changes = ends_by("sigterm")
    with pytest.raises(error):
        train(trainer, batches, folder, **changes)
    assert barriers == [0, 2]  # after the checkpoints of steps 2 and 3
