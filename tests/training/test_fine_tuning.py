"""Runs: the order of the records, settings, the best checkpoint, a grid of trials.

The runs compute nothing: their model has the accuracies that are given, one after the other.
"""

import json
import types

import numpy as np
import pytest

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.tf1 import changed_settings
from bert_tf.errors import InputError
from bert_tf.tasks import text_run
from bert_tf.tasks.registry import get_task
from bert_tf.training.fine_tuning import BestCheckpoint, Run, TrainingConfig, make_optimizer
from bert_tf.training.settings import FineTuningSchedule, Intervals
from bert_tf.training.trainer import StopTraining

TRAIN = types.SimpleNamespace(examples=range(64), files=range(70), digest="t1")
DEV = types.SimpleNamespace(digest="digest of dev")


class ScriptedRun(Run):
    """It notes the folders that are made models, and what batches are asked for."""

    metric, task = "eval_accuracy", get_task("rte")

    def __init__(self, folder, accuracies=()):
        self.output_dir, self.accuracies = str(folder), [*accuracies]
        source = types.SimpleNamespace(path="begun/with")
        tokenizer = types.SimpleNamespace(pieces=None)
        self.model = types.SimpleNamespace(source=source, config=None, tokenizer=tokenizer)
        self.batching, self.trainer = types.SimpleNamespace(training=self._training), self
        self.files_written, self.asked, self.step = [], [], 0

    def prepare(self, data):
        return data

    def evaluate(self, data):
        return {"eval_accuracy": self.accuracies.pop(0), "loss": 0.5}

    def facts(self):
        return {"task": "classification"}

    def metadata(self):
        return ModelMetadata()

    def write_model_files(self, folder):
        self.files_written.append(folder)

    def make_trainer(self, optimizer, *, seed, freeze):
        restore = lambda folder, _: tf1.step_of(folder.latest())  # noqa: E731
        self.trainer = types.SimpleNamespace(train=self._trained, state=self.state, restore=restore)
        return self.trainer

    def load_pretrained(self):
        pass

    def state(self, step, run_settings):
        recorded = np.array(json.dumps(run_settings, sort_keys=True))
        return {"w": np.full([3], step, np.float32), tf1.RUN_SETTINGS: recorded}

    def _training(self, files, **asked):
        self.asked.append(asked)

    def _trained(self, batches, *, folder, run_settings, num_train_steps, **_):
        folder.save(num_train_steps, self.state(num_train_steps, run_settings))


def make_config(**changes) -> TrainingConfig:
    fixed = {
        "schedule": FineTuningSchedule(train_batch_size=8, learning_rate=3e-5),
        "seed": 5,
        "run_settings": {"learning_rate": 0.5, "hidden_dropout_prob": 0.1},
        "intervals": Intervals(eval_steps=10),
        "early_stopping": 2,
    }
    return TrainingConfig(**fixed | changes)


# ------------------------------------------------------------------------------ order, settings


def test_steps_and_warm_up_of_mrpc():
    """As the original has them: int(3668 / 32 * 3.0), int(343 * 0.1)."""
    schedule = FineTuningSchedule()
    assert schedule.num_train_steps(3668) == 343
    found = make_optimizer(schedule, 343).schedule
    assert (found.num_train_steps, found.num_warmup_steps) == (343, 34)
    assert (found.learning_rate, found.end_learning_rate) == (5e-5, 0.0)


def test_a_finished_run_may_be_trained_longer_with_the_same_settings(tmp_path):
    def train(epochs: float, **changes):
        schedule = FineTuningSchedule(train_batch_size=8, num_train_epochs=epochs)
        run = ScriptedRun(tmp_path)
        run.train(make_config(schedule=schedule, intervals=Intervals(), **changes), TRAIN)
        return run.step

    assert [train(0.75), train(1.0)] == [6, 8]
    with pytest.raises(InputError, match="other settings: seed 4"):
        train(1.5, seed=4)


# ------------------------------------------------------------------------------ the best


def best_of(run, last=0) -> BestCheckpoint:
    return BestCheckpoint(run, DEV, run.output_dir, {}, early_stopping=2, last=last)


@pytest.mark.parametrize(
    ("accuracies", "last", "best_step"),
    [
        ([0.5, 0.5, 0.5, 0.9], 30, 10),  # equal is not better
        ([0.5, 0.6, 0.55, 0.7, 0.69, 0.68, 0.9], 60, 40),
    ],
)
def test_it_stops_after_two_that_are_not_better(tmp_path, accuracies, last, best_step):
    run = ScriptedRun(tmp_path, [0.99, *accuracies])
    best = best_of(run)
    best(0)  # is no step that training has made
    for step in range(10, last, 10):
        best(step)
    with pytest.raises(StopTraining, match="2 evaluations without a better eval_accuracy"):
        best(last)
    assert best.folder.latest() == f"{tmp_path}/best/model.ckpt-{best_step}"
    assert tf1.find_checkpoint(str(tmp_path)) == best.folder.latest()
    assert {*run.files_written} == {f"{tmp_path}/best"}


def test_a_killed_run_sees_again_what_was_beyond_its_checkpoint(tmp_path):
    best = best_of(ScriptedRun(tmp_path, [0.5, 0.6, 0.4]))
    for step in (10, 20, 30):
        best.evaluate(step)
    again = best_of(ScriptedRun(tmp_path, [0.6]), last=10)
    assert again.values == {10: 0.5}
    again.evaluate(20)
    assert again.values == {10: 0.5, 20: 0.6}
    assert again.folder.latest().endswith("model.ckpt-20")
    assert not again.has_stopped


def test_scores_of_other_data_are_not_compared(tmp_path):
    run = ScriptedRun(tmp_path, [0.5])
    best_of(run).evaluate(10)
    tf1.CheckpointFolder(tmp_path).save(12, run.state(12, {"dev_data": "others"}))
    with pytest.raises(InputError, match="best checkpoint by other dev data"):
        run.train(make_config(), TRAIN, DEV)


@pytest.mark.parametrize(
    "content",
    [
        *('{"a": 0.5}', '{"-1": 0.5}', '{"10": "x"}', '{"10": true}'),
        *('{"%s": 0.5}' % ("9" * 5000), '{"10": 1%s}' % ("0" * 400)),
    ],
)
def test_evaluations_that_are_damaged(tmp_path, content):
    path = tmp_path / "best" / "evaluations.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(InputError, match=str(path)):
        best_of(ScriptedRun(tmp_path))


def saved_settings(folder) -> dict:
    return tf1.CheckpointReader(tf1.CheckpointFolder(folder).latest()).run_settings()


def test_settings_of_a_run(tmp_path):
    """Those of the command, what the data decide, and its own learning rate and seed."""
    assert ScriptedRun(tmp_path).settings_of(make_config(), TRAIN, DEV) == {
        "hidden_dropout_prob": 0.1,
        "learning_rate": 3e-5,
        "seed": 5,
        "train_data": "t1",
        "dev_data": "digest of dev",
        "num_records": 70,
        "num_train_steps": 24,
        "task": "classification",
        "init_checkpoint": "begun/with",
    }


@pytest.mark.parametrize(
    ("eval_steps", "is_trial", "recorded"), [(10, False, True), (0, False, False), (0, True, True)]
)
def test_dev_data_are_recorded_where_they_select_a_model(tmp_path, eval_steps, is_trial, recorded):
    folder = str(tmp_path / "trial") if is_trial else None
    run = ScriptedRun(tmp_path, [0.5])
    config = make_config(intervals=Intervals(eval_steps=eval_steps))
    run.train(config, TRAIN, DEV, folder=folder)
    found = saved_settings(folder or tmp_path)["dev_data"]
    assert found == (DEV.digest if recorded else None)
    assert run.files_written == ([f"{tmp_path}/best"] if eval_steps else [])


def test_the_best_checkpoint_of_another_run_is_not_taken_over(tmp_path):
    run = ScriptedRun(tmp_path, [0.5])
    best_of(run).evaluate(10)
    with pytest.raises(InputError, match="best checkpoint of a single run with --eval_steps"):
        run.train(make_config(intervals=Intervals()), TRAIN, DEV)
    with pytest.raises(InputError, match="best checkpoint of a single run with --eval_steps"):
        text_run.train_trials(run, make_config(), TRAIN, DEV, [(3e-5, 5)])


# ------------------------------------------------------------------------------ a grid


@pytest.mark.parametrize("other", ["train_data", "hidden_dropout_prob"])
def test_an_unfinished_trial_of_other_data_or_configuration_is_refused(tmp_path, other):
    run, config, train = ScriptedRun(tmp_path), make_config(), TRAIN
    folder = tf1.CheckpointFolder(text_run.trial_folder(run, 3e-5, 5))
    folder.save(4, run.state(4, run.settings_of(config, TRAIN, DEV)))
    if other == "train_data":
        train = types.SimpleNamespace(**vars(TRAIN) | {"digest": "t2"})
    else:
        config = make_config(run_settings={"hidden_dropout_prob": 0.4})
    with pytest.raises(InputError, match=f"a trial with another {other}"):
        text_run.train_or_read(run, config, train, DEV)


def test_elsewhere_the_first_weights_may_lie_at_another_place(monkeypatch):
    """The chief compares with its own place, which it has noted."""
    old, new = {"init_checkpoint": "a", "seed": 5}, {"init_checkpoint": "b", "seed": 5}
    assert changed_settings(old, new) == ["init_checkpoint"]
    monkeypatch.setattr(tf1.runtime, "is_chief", lambda: False)
    assert changed_settings(old, new | {"seed": 6}) == ["seed"]


@pytest.mark.parametrize(
    ("scores", "kept", "best"),
    [
        ({2e-5: 0.5, 3e-5: 0.5}, None, 2e-5),
        ({2e-5: 0.5, 3e-5: 0.5}, 3e-5, 3e-5),  # the model of an equal one is there
        ({2e-5: 0.5, 3e-5: 0.6}, 2e-5, 3e-5),
        ({2e-5: 0.5}, 3e-5, None),  # a grid without the earlier winner
    ],
)
def test_the_best_trial_is_kept(tmp_path, monkeypatch, scores, kept, best):
    run, opened = ScriptedRun(tmp_path), []
    monkeypatch.setattr(text_run, "open_weights", opened.append)
    monkeypatch.setattr(text_run.dataclasses, "replace", lambda model, **_: model)
    monkeypatch.setattr(run, "restore", lambda: None)
    if kept:
        settings = {"learning_rate": kept, "seed": 5}
        tf1.CheckpointFolder(tmp_path).save(9, run.state(9, settings))
    for rate in scores if best else ():
        folder = tf1.CheckpointFolder(text_run.trial_folder(run, rate, 5))
        folder.save(10, run.state(10, {"learning_rate": rate, "seed": 5}))
    results = {(rate, 5): {"eval_accuracy": score} for rate, score in scores.items()}
    if best is None:
        with pytest.raises(InputError, match=r"whose model was not kept; kept .*\(3e-05, 5\)"):
            text_run.keep_best(run, results)
        return
    text_run.keep_best(run, results)
    assert saved_settings(tmp_path)["learning_rate"] == best
    assert opened == [f"{tmp_path}/model.ckpt-10"]


@pytest.mark.parametrize(
    "content",
    [
        *("{", "{}", '{"facts": {}}', '{"facts": [], "results": {"eval_accuracy": 0.5}}'),
        *('{"facts": {}, "results": {"eval_accuracy": "0.5"}}', '{"facts": {}, "results": 1}'),
        *('{"facts": {}, "results": {"eval_accuracy": NaN}}', '{"facts": {}, "results": {"l": 1}}'),
    ],
)
def test_results_of_a_trial_that_are_damaged(tmp_path, content):
    run = ScriptedRun(tmp_path)
    path = tmp_path / "learning_rate_3e-05_seed_5" / "trial.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(InputError, match=str(path)):
        text_run.train_or_read(run, make_config(), TRAIN, DEV)


SCORES = {5e-5: [0.5, 0.75, 0.25], 2e-5: [0.625]}


def write_sweep(folder) -> None:
    results = {
        (rate, seed): {"eval_f1": score, "global_step": 30, "loss": 1 - score}
        for rate, scores in SCORES.items()
        for seed, score in enumerate(scores, 7)
    }
    text_run.write_sweep(results, task=get_task("mrpc"), output_dir=str(folder))


def test_tables_of_a_sweep(tmp_path):
    write_sweep(tmp_path)
    assert (tmp_path / "trials.tsv").read_text() == (
        "learning_rate\tseed\teval_f1\tglobal_step\tloss\n"
        "5e-05\t7\t0.5\t30\t0.5\n"
        "5e-05\t8\t0.75\t30\t0.25\n"
        "5e-05\t9\t0.25\t30\t0.75\n"
        "2e-05\t7\t0.625\t30\t0.375\n"
    )
    assert (tmp_path / "trials_summary.tsv").read_text() == (
        "learning_rate\ttrials\tmean_f1\tdeviation\tbest\n"
        "5e-05\t3\t0.5000\t0.2500\t0.7500\n"
        "2e-05\t1\t0.6250\t0.0000\t0.6250\n"
    )


def test_the_picture_of_a_sweep(monkeypatch):
    figure = pytest.importorskip("matplotlib.figure").Figure
    picture = text_run.draw_sweep(SCORES, task="mrpc", metric="f1")
    assert picture.startswith(b"\x89PNG")
    assert text_run.draw_sweep(SCORES, task="mrpc", metric="f1") == picture
    drawn = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: drawn.append(self.axes[0]))
    text_run.draw_sweep(SCORES, task="mrpc", metric="f1")
    assert drawn[0].get_ylabel() == "F1 (0 to 1)"
    assert drawn[0].get_title().startswith("mrpc: F1 on dev, 3 seeds each")
    ticks = [label.get_text() for label in drawn[0].get_xticklabels()]
    assert ticks == ["5e-05\n0.500 ± 0.250", "2e-05\n0.625"]
