"""The protocol of several trials: the best checkpoint, what is refused."""

import json
import types

import numpy as np
import pytest

from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.tasks import sweep
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.sweep import Sweep, SweepConfig, Trial
from bert_tf.training.best import BestCheckpoint
from bert_tf.training.settings import FineTuningSchedule, Intervals


class Run:
    """Stands in for a run whose model has the accuracies that are given, one after the other."""

    def __init__(self, folder, accuracies=()):
        self.output_dir = str(folder)
        self.task = get_task("rte")
        self.model = types.SimpleNamespace(source=types.SimpleNamespace(path="begun/with"))
        self.trainer, self.accuracies, self.step = self, [*accuracies], 0
        self.files_written, self.doc_stride = [], 0

    def prepare(self, data):
        return data

    def evaluate(self, data, *, batch_size):
        return {"eval_accuracy": self.accuracies.pop(0), "loss": 0.5}

    def state(self, step, run_settings):
        recorded = np.array(json.dumps(run_settings, sort_keys=True))
        return {"w": np.full([3], step, np.float32), tf1.RUN_SETTINGS: recorded}

    def write_model_files(self, folder):
        self.files_written.append(folder)


TRAIN = types.SimpleNamespace(examples=range(64), files=range(70), digest="t1")
DEV = types.SimpleNamespace(digest="digest of dev")


def make_config(**changes) -> SweepConfig:
    fixed = {
        "schedule": FineTuningSchedule(train_batch_size=8),
        "learning_rates": (3e-5,),
        "seeds": (5,),
        "run_settings": {"learning_rate": 0.5, "hidden_dropout_prob": 0.1},
        "intervals": Intervals(eval_steps=10),
        "early_stopping": 2,
    }
    return SweepConfig(**fixed | changes)


def make_sweep(run, config: SweepConfig | None = None, *, train=TRAIN, dev=(DEV,)) -> Sweep:
    return Sweep(run, config or make_config(), train, dev)


def best_of(run) -> BestCheckpoint:
    trial = Trial(3e-5, 5, run.output_dir)
    return make_sweep(run).best_checkpoint(trial, {"dev_data": DEV.digest})


def test_settings_of_a_trial(tmp_path):
    """Those of the command, what the data decide, and its own learning rate and seed."""
    run, trial = Run(tmp_path), Trial(3e-5, 5, str(tmp_path))
    found = make_sweep(run).settings_of(trial)
    assert found == {
        "hidden_dropout_prob": 0.1,
        "learning_rate": 3e-5,
        "seed": 5,
        "train_data": "t1",
        "dev_data": "digest of dev",
        "labels": ["entailment", "not_entailment"],
        "num_records": 70,
        "num_train_steps": 24,
        "task_name": "rte",
        "init_checkpoint": "begun/with",
    }


def test_windows_count_as_training_examples(tmp_path):
    """70 records of 64 examples, in batches of 8, three times."""
    run = Run(tmp_path)
    run.doc_stride = 5
    found = make_sweep(run).settings_of(Trial(3e-5, 5, str(tmp_path)))
    assert found["num_train_steps"] == 26


@pytest.mark.parametrize(
    ("changes", "dev_decide"),
    [
        ({}, True),
        ({"intervals": Intervals()}, False),
        ({"intervals": Intervals(), "seeds": (5, 6)}, True),
    ],
)
def test_dev_data_are_recorded_where_they_select_a_model(tmp_path, changes, dev_decide):
    trial = Trial(3e-5, 5, str(tmp_path))
    found = make_sweep(Run(tmp_path), make_config(**changes)).settings_of(trial)
    assert found["dev_data"] == ("digest of dev" if dev_decide else None)
    assert make_sweep(Run(tmp_path), dev=()).settings_of(trial)["dev_data"] is None


@pytest.mark.parametrize("other", ["train_data", "hidden_dropout_prob"])
def test_an_unfinished_trial_of_other_data_or_configuration_is_refused(tmp_path, other):
    run, path = Run(tmp_path), str(tmp_path / "trial")
    trial = Trial(3e-5, 5, path)
    tf1.CheckpointFolder(path).save(4, run.state(4, make_sweep(run).settings_of(trial)))
    if other == "train_data":
        train = types.SimpleNamespace(**vars(TRAIN) | {"digest": "t2"})
        changed = make_sweep(run, train=train)
    else:
        changed = make_sweep(run, make_config(run_settings={"hidden_dropout_prob": 0.4}))
    with pytest.raises(InputError, match=f"a trial with another {other}"):
        changed.train_or_read(trial)


@pytest.mark.parametrize("rates", [(3e-5,), (3e-5, 2e-5)])
def test_the_best_checkpoint_of_another_run_is_not_taken_over(tmp_path, rates):
    run = Run(tmp_path, [0.5])
    best_of(run).evaluate(10)
    with pytest.raises(InputError, match=r"or remove .*best; for that run add --eval_steps"):
        make_sweep(run, make_config(intervals=Intervals(), learning_rates=rates)).run_all()


def test_a_grid_without_the_earlier_winner_is_refused(tmp_path):
    run = Run(tmp_path)
    own = tf1.CheckpointFolder(str(tmp_path))
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    (tmp_path / "trial").mkdir()
    with pytest.raises(InputError, match="keeps the model of learning rate 3e-05, seed 5"):
        sweep.keep_best(run, Trial(2e-5, 5, str(tmp_path / "trial")))


def test_of_equal_trials_the_one_whose_model_is_there_wins(tmp_path):
    run = Run(tmp_path)
    equal = [Trial(rate, 5, f"{tmp_path}/{rate}", {"eval_accuracy": 0.5}) for rate in (2e-5, 3e-5)]
    better = [Trial(4e-5, 5, f"{tmp_path}/4e-5", {"eval_accuracy": 0.6})]
    assert sweep.find_best(run, equal, "eval_accuracy") is equal[0]
    own = tf1.CheckpointFolder(str(tmp_path))
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    assert sweep.find_best(run, equal, "eval_accuracy") is equal[1]
    assert sweep.find_best(run, equal + better, "eval_accuracy") is better[0]


def test_a_trial_that_is_trained_further_keeps_its_old_end(tmp_path):
    """Of 64 examples in batches of 8: 24 steps of three epochs, then 40 of five."""
    asked = []

    def trained(batches, *, folder, run_settings, num_train_steps, **_):
        folder.save(num_train_steps, run.state(num_train_steps, run_settings))

    for epochs in (3, 5, 5, 6):
        run = Run(tmp_path)
        run.batching = types.SimpleNamespace(training=lambda files, **given: asked.append(given))
        run.make_trainer = lambda *_, **__: types.SimpleNamespace(train=trained)
        run.load_pretrained = lambda: None
        schedule = FineTuningSchedule(train_batch_size=8, num_train_epochs=epochs)
        config = make_config(schedule=schedule, intervals=Intervals())
        make_sweep(run, config, dev=()).train_trial(Trial(3e-5, 5, str(tmp_path)))
    assert [given["run_ends"] for given in asked] == [(), [24, 40], [24, 40], [24, 40, 48]]


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "{}", '{"facts": {}}', '{"facts": [], "results": {"eval_accuracy": 0.5}}'),
        *('{"facts": {}, "results": {"eval_accuracy": "0.5"}}', '{"facts": {}, "results": 1}'),
        '{"facts": {}, "results": {"eval_accuracy": NaN}}',
        '{"facts": {}, "results": {"loss": 0.5}}',
    ],
)
def test_results_of_a_trial_that_are_damaged(tmp_path, monkeypatch, content):
    monkeypatch.setattr(sweep, "refuse_changed_settings", lambda *_: None)
    path = tmp_path / "trial.json"
    path.write_text(content)
    trials = make_sweep(Run(tmp_path))
    with pytest.raises(InputError, match=str(path)):
        trials.train_or_read(Trial(3e-5, 5, str(tmp_path)))
