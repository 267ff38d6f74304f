"""What training records of a run, and the protocol of several trials."""

import dataclasses
import functools
import types

import pytest
from scripted_run import DEV, TRAIN, ScriptedRun, make_config

from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.tasks import sweep
from bert_tf.tasks.best import BestCheckpoint
from bert_tf.tasks.sweep import Trial
from bert_tf.training.settings import FineTuningSchedule, Intervals


def make_trial(folder, rate=3e-5, **results) -> Trial:
    schedule = FineTuningSchedule(train_batch_size=8, learning_rate=rate)
    return Trial(make_config(schedule=schedule), str(folder), results)


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
        "task_name": "rte",
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


@pytest.mark.parametrize("other", ["train_data", "hidden_dropout_prob"])
def test_an_unfinished_trial_of_other_data_or_configuration_is_refused(tmp_path, other):
    run, trial = ScriptedRun(tmp_path), make_trial(tmp_path / "trial")
    saved = run.settings_of(trial.config, TRAIN, DEV)
    tf1.CheckpointFolder(trial.folder).save(4, run.state(4, saved))
    train = types.SimpleNamespace(**vars(TRAIN) | {"digest": "t2"})
    if other != "train_data":
        config = make_config(run_settings={"hidden_dropout_prob": 0.4})
        train, trial = TRAIN, dataclasses.replace(trial, config=config)
    with pytest.raises(InputError, match=f"a trial with another {other}"):
        sweep.train_or_read(run, trial, train, DEV)


@pytest.mark.parametrize("rates", [None, (3e-5, 2e-5)])
def test_the_best_checkpoint_of_another_run_is_not_taken_over(tmp_path, rates):
    run = ScriptedRun(tmp_path, [0.5])
    BestCheckpoint(run, DEV, run.output_dir, {"dev_data": DEV.digest}, 2).evaluate(10)
    grid = {"learning_rates": rates, "seeds": (5,)}
    train = functools.partial(sweep.train_trials, run, **grid) if rates else run.train
    with pytest.raises(InputError, match=r"or remove .*best; for that run add --eval_steps"):
        train(make_config(intervals=Intervals(eval_steps=10 if rates else 0)), TRAIN, DEV)


def test_a_grid_without_the_earlier_winner_is_refused(tmp_path):
    run = ScriptedRun(tmp_path)
    own = tf1.CheckpointFolder(tmp_path)
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    (tmp_path / "trial").mkdir()
    with pytest.raises(InputError, match="keeps the model of learning rate 3e-05, seed 5"):
        sweep.keep_best(run, make_trial(tmp_path / "trial", 2e-5))


def test_of_equal_trials_the_one_whose_model_is_there_wins(tmp_path):
    run = ScriptedRun(tmp_path)
    equal = [make_trial(tmp_path, rate, eval_accuracy=0.5) for rate in (2e-5, 3e-5)]
    better = [make_trial(tmp_path, 4e-5, eval_accuracy=0.6)]
    assert sweep.find_best(run, equal) is equal[0]
    own = tf1.CheckpointFolder(tmp_path)
    own.save(9, run.state(9, {"learning_rate": 3e-5, "seed": 5}))
    assert sweep.find_best(run, equal) is equal[1]
    assert sweep.find_best(run, equal + better) is better[0]


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
    with pytest.raises(InputError, match=str(path)):
        sweep.train_or_read(ScriptedRun(tmp_path), make_trial(tmp_path), TRAIN, DEV)
