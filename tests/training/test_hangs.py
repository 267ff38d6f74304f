"""Training and evaluation that wait for a batch say so; afterwards nobody watches."""

import dataclasses
import threading
import time

import pytest
import small

from bert_tf import pretraining_model
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data import batches as batches_module
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import SequentialSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.terminal import watchdog
from bert_tf.terminal.watchdog import WATCHDOG
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.trainer import Trainer

BATCH, BATCHES, HELD = 2, 7, 5
CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)


class Held(SequentialSampler):
    """The rows of one batch come when a hang has been reported."""

    def __init__(self, num_rows: int, caplog):
        super().__init__(num_rows)
        self._caplog = caplog

    def rows(self, start, stop):
        if start == HELD * BATCH:
            before, deadline = len(self.hangs()), time.monotonic() + 20
            while len(self.hangs()) == before and time.monotonic() < deadline:
                time.sleep(0.01)
        return super().rows(start, stop)

    def hangs(self) -> list[str]:
        said = [record.getMessage() for record in self._caplog.records]
        return [text for text in said if "No progress" in text]


@pytest.fixture
def watched(monkeypatch):
    """A hang takes a fifth of a second, but for what is compiled."""
    monkeypatch.setattr(WATCHDOG, "_seconds", 0.2)
    monkeypatch.setattr(watchdog, "COMPILING", 300)
    monkeypatch.setattr(batches_module, "ROWS_AT_ONCE", 1)  # each batch is asked for by itself
    monkeypatch.setattr(batches_module, "PARSED_AHEAD", 0)


def test_a_batch_that_does_not_come(watched, caplog, tmp_path):
    path = small.write_records(tmp_path / "a.tfrecord", small.examples(BATCH * BATCHES))
    files = RecordFiles(path, small.RECORD)
    sampler = Held(len(files), caplog)
    trainer = Trainer(
        lambda: pretraining_model(CONFIG, with_losses=True),
        PretrainingObjective(),
        AdamWeightDecay(schedule=Schedule(learning_rate=1e-3, num_train_steps=BATCHES)),
        strategy=distribution.make_strategy("one"),
        seed=3,
        step_config=StepConfig(xla=False),
    )
    batches = Batches(files, sampler, batch_size=BATCH, num_examples=len(files))
    trainer.train(
        batches,
        num_train_steps=BATCHES,
        folder=CheckpointFolder(tmp_path / "run"),
        intervals=Intervals(iterations_per_loop=1),
        run_settings={},
    )
    trainer.evaluate(batches)
    hangs = sampler.hangs()
    assert f": train, steps {HELD + 1} to {HELD + 1}, since" in hangs[0]
    assert f": evaluate, batch {HELD + 1} of {BATCHES}, since" in hangs[-1]
    deadline = time.monotonic() + 20
    while any(thread.name == "watchdog" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
