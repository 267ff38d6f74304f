"""The protocol of several trials: early stopping, the best checkpoint, what is refused."""

import dataclasses
import json
import types

import numpy as np
import pytest
import small

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.data.batches import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.tasks import sweep
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.reports import Trial
from bert_tf.training.intervals import Intervals, StopTraining
from bert_tf.training.settings import FineTuningSchedule, StepConfig


class Run:
    """Stands in for a run whose model has the accuracies that are given, one after the other."""

    def __init__(self, folder, accuracies=()):
        self.output_dir = str(folder)
        self.task = get_task("rte")
        self.step_config = StepConfig()
        self.batching = BatchingConfig(vocab_size=11, max_seq_length=7)
        self.model = types.SimpleNamespace(
            source=types.SimpleNamespace(path="begun/with"), config=small.CONFIG
        )
        self.strategy = types.SimpleNamespace(num_replicas_in_sync=3)
        self.train_digest, self.train_files, self.num_train_examples = "t1", range(64), 64
        self.trainer, self.accuracies, self.step = self, [*accuracies], 0
        self.files_written = []

    def digest_of(self, data):
        return f"digest of {data}"

    def evaluate(self, data, *, batch_size):
        return {"eval_accuracy": self.accuracies.pop(0), "loss": 0.5}

    def state(self, step, facts):
        notes = np.array(json.dumps(facts, sort_keys=True))
        return {"w": np.full([3], step, np.float32), tf1.RUN_SETTINGS: notes}

    def write_model_files(self, folder):
        self.files_written.append(folder)


def settings(**changes) -> sweep.Settings:
    fixed = {
        "schedule": FineTuningSchedule(train_batch_size=8),
        "learning_rates": (3e-5,),
        "seeds": (5,),
        "intervals": Intervals(eval_steps=10),
        "early_stopping": 2,
    }
    return sweep.Settings(**fixed | changes)


def best_of(run, **changes) -> sweep._Best:
    trial = Trial(3e-5, 5, run.output_dir)
    return sweep._Best(run, settings(**changes), trial, ["dev"], {"dev_data": "digest of dev"})


@pytest.mark.parametrize(
    ("accuracies", "last", "best"),
    [
        ([0.5, 0.5, 0.5, 0.9], 30, 10),  # equal is not better
        ([0.5, 0.4, 0.6, 0.6, 0.5, 0.9], 50, 30),
        ([0.5, 0.6, 0.55, 0.7, 0.69, 0.68, 0.9], 60, 40),
    ],
)
def test_it_stops_after_two_that_are_not_better(tmp_path, accuracies, last, best):
    looking = best_of(Run(tmp_path, accuracies))
    for step in range(10, last, 10):
        looking(step)
    with pytest.raises(StopTraining, match="2 evaluations without a better eval_accuracy"):
        looking(last)
    assert looking.folder.latest() == f"{tmp_path}/best/model.ckpt-{best}"
    assert tf1.find_checkpoint(str(tmp_path)) == looking.folder.latest()


def test_a_killed_run_sees_again_what_was_beyond_its_checkpoint(tmp_path):
    looking = best_of(Run(tmp_path, [0.5, 0.6, 0.4]))
    for step in (10, 20, 30):
        looking.look(step)
    run = Run(tmp_path, [0.6])
    again = best_of(run)
    assert again.values == {10: 0.5, 20: 0.6, 30: 0.4}
    notes = {"dev_data": "digest of dev"}
    last = tf1.CheckpointFolder(str(tmp_path)).save(10, run.state(10, notes))
    again.go_on_after(last)
    again.look(20)
    assert again.values == {10: 0.5, 20: 0.6}
    assert again.folder.latest().endswith("model.ckpt-20")
    assert not again.has_stopped


def test_scores_of_other_data_are_not_compared(tmp_path):
    run = Run(tmp_path, [0.5])
    best_of(run).look(10)
    own = tf1.CheckpointFolder(str(tmp_path))
    with pytest.raises(InputError, match="another dev_data"):
        best_of(run).go_on_after(own.save(12, run.state(12, {"dev_data": "others"})))
    # At its last checkpoint, as before the first one, a run looks again: it may have been begun
    # without evaluations.
    best_of(run).go_on_after(own.save(10, run.state(10, {"dev_data": None})))
    best_of(run).go_on_after(None)


def facts(run, chosen=None, dev=("dev",)) -> dict:
    chosen = chosen or settings()
    schedule = dataclasses.replace(chosen.schedule, learning_rate=3e-5)
    return sweep._facts(run, chosen, schedule, Trial(3e-5, 5, run.output_dir), dev)


def test_facts_say_what_a_trial_depends_on(tmp_path):
    run = Run(tmp_path)
    first = facts(run)
    assert first["dev_data"] == "digest of dev"
    assert facts(run, settings(intervals=Intervals(eval_steps=0)))["dev_data"] is None
    others = {
        "train_data": {"train_digest": "t2"},
        "labels": {"task": dataclasses.replace(run.task, labels=get_task("cola").labels)},
    }
    for name, changed in others.items():
        other = Run(tmp_path)
        vars(other).update(changed)
        assert facts(other)[name] != first[name]
    assert facts(run, settings(early_stopping=3))["early_stopping"] != first["early_stopping"]


def test_clipped_by_replica_their_number_decides(tmp_path):
    run = Run(tmp_path)
    assert "num_replicas" not in facts(run)
    run.step_config = StepConfig(clip_per_replica=True)
    assert facts(run)["num_replicas"] == 3


@pytest.mark.parametrize("other", ["train_data", "hidden_dropout_prob"])
def test_an_unfinished_trial_of_other_data_or_configuration_is_refused(tmp_path, other):
    run = Run(tmp_path)
    folder = tf1.CheckpointFolder(str(tmp_path / "trial"))
    folder.save(4, run.state(4, facts(run)))
    if other == "train_data":
        run.train_digest = "t2"
    else:
        run.model.config = dataclasses.replace(small.CONFIG, hidden_dropout_prob=0.4)
    with pytest.raises(InputError, match=f"a trial with another {other}"):
        sweep._run_or_read(run, settings(), Trial(3e-5, 5, folder.path), ["dev"])


def test_elsewhere_the_first_weights_may_lie_at_another_place(monkeypatch):
    """The chief compares with its own place, which it has noted."""
    old, new = {"init_checkpoint": "a", "seed": 5}, {"init_checkpoint": "b", "seed": 5}
    sweep._refuse_changed_settings({"seed": 5}, new, "trial")  # of an earlier version
    with pytest.raises(InputError, match="another init_checkpoint"):
        sweep._refuse_changed_settings(old, new, "trial")
    monkeypatch.setattr(cluster, "is_chief", lambda: False)
    sweep._refuse_changed_settings(old, new, "trial")
    with pytest.raises(InputError, match="another seed"):
        sweep._refuse_changed_settings(old, new | {"seed": 6}, "trial")


def test_a_best_checkpoint_keeps_what_is_noted_beside_it(tmp_path):
    """Until there is a better one: a run that looks again may have other flags."""
    run = Run(tmp_path, [0.5, 0.4, 0.6])
    looking = best_of(run)
    assert run.files_written == []
    looking.look(10)
    best_of(run).look(20)
    assert run.files_written == [f"{tmp_path}/best"]
    best_of(run).look(30)
    assert run.files_written == [f"{tmp_path}/best"] * 2


@pytest.mark.parametrize("rates", [(3e-5,), (3e-5, 2e-5)])
def test_the_best_checkpoint_of_another_run_is_not_taken_over(tmp_path, rates):
    run = Run(tmp_path, [0.5])
    best_of(run).look(10)
    with pytest.raises(InputError, match=r"or remove .*best; for that run add --eval_steps"):
        sweep.run_all(run, settings(intervals=Intervals(), learning_rates=rates), ["dev"])


def test_a_grid_without_the_earlier_winner_is_refused(tmp_path):
    run = Run(tmp_path)
    own = tf1.CheckpointFolder(str(tmp_path))
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    (tmp_path / "trial").mkdir()
    with pytest.raises(InputError, match="keeps the model of learning rate 3e-05, seed 5"):
        sweep._keep(run, Trial(2e-5, 5, str(tmp_path / "trial")))


def test_of_equal_trials_the_one_whose_model_is_there_wins(tmp_path):
    run = Run(tmp_path)
    equal = [Trial(rate, 5, f"{tmp_path}/{rate}", {"eval_accuracy": 0.5}) for rate in (2e-5, 3e-5)]
    better = [Trial(4e-5, 5, f"{tmp_path}/4e-5", {"eval_accuracy": 0.6})]
    assert sweep._winner(run, equal, "eval_accuracy") is equal[0]
    own = tf1.CheckpointFolder(str(tmp_path))
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    assert sweep._winner(run, equal, "eval_accuracy") is equal[1]
    assert sweep._winner(run, equal + better, "eval_accuracy") is better[0]
