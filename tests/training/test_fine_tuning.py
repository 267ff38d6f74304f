"""Runs: the order of the records, settings, the best checkpoint. The runs compute nothing."""

import math

import pytest
from scripted_run import DEV, TRAIN, ScriptedRun, make_config, saved_settings

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.errors import InputError
from bert_tf.tasks import trials
from bert_tf.training.best import BestCheckpoint
from bert_tf.training.evaluation import StopTraining
from bert_tf.training.fine_tuning import optimizer_of
from bert_tf.training.options import FineTuningSchedule, Intervals
from bert_tf.training.plan import RunPlan

# ------------------------------------------------------------------------------ order, settings


def test_steps_and_warm_up_of_mrpc():
    """As the original has them: int(3668 / 32 * 3.0), int(343 * 0.1)."""
    schedule = FineTuningSchedule()
    sizes = {"num_records": 3668, "num_counted": 3668, "batch_size": 32, "seed": 5}
    assert RunPlan.of_epochs(**sizes, num_epochs=3.0).num_train_steps == 343
    found = optimizer_of(schedule, 343).schedule
    assert (found.num_train_steps, found.num_warmup_steps) == (343, 34)
    assert (found.learning_rate, found.end_learning_rate) == (5e-5, 0.0)
    with pytest.raises(InputError, match="--train_batch_size=32"):
        RunPlan.of_epochs(**sizes | {"num_counted": 63}, num_epochs=0.5)


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


def nothing() -> None:
    """Saves no checkpoint of the run."""


def best_of(run, last=0) -> BestCheckpoint:
    """That of a run whose last checkpoint is that of a step."""
    checkpoints, settings = tf1.CheckpointFolder(run.output_dir), {"dev_data": DEV.digest}
    if last:
        checkpoints.save(last, run.state(last, settings))
    return BestCheckpoint(run, DEV, checkpoints, settings, early_stopping=2)


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
    best(0, nothing)  # is no step that training has made
    for step in range(10, last, 10):
        best(step, nothing)
    with pytest.raises(StopTraining, match="2 evaluations without a better") as stopped:
        best(last, nothing)
    score = stopped.value.results["eval_accuracy"]  # logged like all others
    assert score == accuracies[last // 10 - 1]
    assert best.folder.latest() == f"{tmp_path}/best/model.ckpt-{best_step}"
    assert tf1.find_checkpoint(str(tmp_path)) == best.folder.latest()
    assert {*run.files_written} == {f"{tmp_path}/best"}


NAN = math.nan


@pytest.mark.parametrize(
    ("scores", "best_step", "stops"),
    [
        ([NAN, -0.2, NAN], 20, False),  # any number is better
        ([0.3, NAN, NAN], 10, True),
        ([NAN, NAN, NAN], 30, False),  # nothing is known of any: the last one
        ([NAN, NAN, 0.1, NAN, 0.05], 30, True),
    ],
)
def test_an_undefined_score_is_never_the_best(tmp_path, scores, best_step, stops):
    best = best_of(ScriptedRun(tmp_path, scores))
    for step in range(10, 10 * len(scores) + 1, 10):
        best.evaluate(step, nothing)
    assert best.folder.latest() == f"{tmp_path}/best/model.ckpt-{best_step}"
    assert best.has_stopped is stops
    assert "null" in (tmp_path / "best" / "evaluations.json").read_text()
    again = best_of(ScriptedRun(tmp_path), last=10 * len(scores))  # killed there
    assert [*again.values.values()] == pytest.approx(scores, nan_ok=True)
    assert again.has_stopped is stops


def test_a_checkpoint_of_the_run_comes_before_each_new_best(tmp_path):
    """So a run that is killed at any moment goes on at the best one's step or later.

    There best/ held a step that the resumed run never made, with values of another.
    """
    run = ScriptedRun(tmp_path, [0.5, 0.6, 0.4, 0.7])
    best = best_of(run)
    saved = []

    def save_of(step):
        def save():
            assert tf1.step_of(best.folder.latest() or "") < step
            tf1.CheckpointFolder(tmp_path).save(step, run.state(step, {}))
            saved.append(step)

        return save

    for step in (10, 20, 30):
        best.evaluate(step, save_of(step))
    assert saved == [10, 20]
    again = best_of(ScriptedRun(tmp_path, [0.7]), last=20)  # killed after step 30
    assert again.values == {10: 0.5, 20: 0.6}
    again.evaluate(30, nothing)
    assert again.folder.latest().endswith("model.ckpt-30")


def test_a_best_checkpoint_that_the_run_has_not_made_does_not_count(tmp_path, caplog):
    """Somebody has removed the later checkpoints: its value is that of other weights."""
    best = best_of(ScriptedRun(tmp_path, [0.5, 0.9]))
    for step in (10, 20):
        best.evaluate(step, nothing)
    again = best_of(ScriptedRun(tmp_path, [0.1]), last=10)
    assert again.values == {}
    assert "is of step 20, after the run's last checkpoint, of step 10" in caplog.text
    again.evaluate(20, nothing)
    assert again.values == {20: 0.1}


def test_another_batch_size_is_refused_where_a_run_goes_on(tmp_path):
    """Of 97 rows 31 were never read, 6 twice."""
    run = ScriptedRun(tmp_path)
    tf1.CheckpointFolder(tmp_path).save(3, run.state(3, {"train_batch_size": 16}))
    with pytest.raises(InputError, match=r"--train_batch_size=8 .* began with 16") as caught:
        run.train(make_config(), TRAIN)
    assert "--gradient_accumulation_steps" in caught.value.remedy
    assert "--output_dir" in caught.value.remedy


def test_the_best_checkpoint_of_another_task_is_not_loaded(tmp_path):
    run = ScriptedRun(tmp_path, [0.5])
    best_of(run).evaluate(10, nothing)
    (tmp_path / "best" / "model_facts.json").write_text('{"task": "regression"}')
    run.metadata = lambda: ModelMetadata(task="classification")
    assert best_of(run).values == {}  # of a run that begins again: it is replaced
    with pytest.raises(InputError, match="best, where a model with another task"):
        best_of(run, last=10)


@pytest.mark.parametrize(
    ("saved", "says"),
    [({"dev_data": "others"}, "other dev data"), ({"best_metric": "f1"}, "another metric")],
)
def test_other_scores_are_not_compared(tmp_path, saved, says):
    run = ScriptedRun(tmp_path, [0.5])
    best_of(run).evaluate(10, nothing)
    tf1.CheckpointFolder(tmp_path).save(12, run.state(12, saved))
    with pytest.raises(InputError, match=f"best checkpoint by {says}"):
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


def test_settings_of_a_run(tmp_path):
    """Those of the command, what the data decide, and its own learning rate and seed."""
    assert ScriptedRun(tmp_path).settings_of(make_config(), TRAIN, DEV) == {
        "hidden_dropout_prob": 0.1, "learning_rate": 3e-5, "seed": 5, "train_data": "t1",
        "dev_data": "digest of dev", "num_records": 70, "num_train_steps": 24,
        "task": "classification", "init_checkpoint": "begun/with",
    }  # fmt: skip


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
    best_of(run).evaluate(10, nothing)
    with pytest.raises(InputError, match="best checkpoint of a single run with --eval_steps"):
        run.train(make_config(intervals=Intervals()), TRAIN, DEV)
    with pytest.raises(InputError, match="best checkpoint of a single run with --eval_steps"):
        trials.train_trials(run, make_config(), TRAIN, DEV, [(3e-5, 5)])
