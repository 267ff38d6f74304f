"""A grid of trials: which are trained again, which is kept, their tables."""

import functools
import math
import types
from typing import Any

import pytest
from scripted_run import DEV, TRAIN, ScriptedRun, make_config, saved_settings

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import changed_settings
from bert_tf.errors import InputError
from bert_tf.tasks import text_run, trials


@pytest.mark.parametrize("other", ["train_data", "hidden_dropout_prob"])
def test_an_unfinished_trial_of_other_data_or_configuration_is_refused(tmp_path, other):
    run, config, train = ScriptedRun(tmp_path), make_config(), TRAIN
    folder = tf1.CheckpointFolder(trials.trial_folder(run, 3e-5, 5))
    folder.save(4, run.state(4, run.settings_of(config, TRAIN, DEV)))
    if other == "train_data":
        train = types.SimpleNamespace(**vars(TRAIN) | {"digest": "t2"})
    else:
        config = make_config(run_settings={"hidden_dropout_prob": 0.4})
    with pytest.raises(InputError, match=f"a trial with another {other}"):
        trials.train_or_read(run, config, train, DEV)


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
        ({2e-5: math.nan, 3e-5: -0.4, 4e-5: math.nan}, None, 3e-5),  # undefined is never best
        ({2e-5: math.nan, 3e-5: math.nan}, 3e-5, 3e-5),
        ({2e-5: 0.5}, 3e-5, None),  # a grid without the earlier winner
    ],
)
def test_the_best_trial_is_kept(tmp_path, monkeypatch, scores, kept, best):
    run, opened = ScriptedRun(tmp_path), []
    monkeypatch.setattr(trials.tf1, "open_tf1", opened.append)
    monkeypatch.setattr(trials.dataclasses, "replace", lambda model, **_: model)
    monkeypatch.setattr(run, "restore", lambda: None)
    if kept:
        settings = {"learning_rate": kept, "seed": 5}
        tf1.CheckpointFolder(tmp_path).save(9, run.state(9, settings))
    for rate in scores if best else ():
        folder = tf1.CheckpointFolder(trials.trial_folder(run, rate, 5))
        folder.save(10, run.state(10, {"learning_rate": rate, "seed": 5}))
    results = {(rate, 5): {"eval_accuracy": score} for rate, score in scores.items()}
    if best is None:
        with pytest.raises(InputError, match=r"whose model was not kept; kept .*\(3e-05, 5\)"):
            trials.keep_best(run, results)
        return
    trials.keep_best(run, results)
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
        trials.train_or_read(run, make_config(), TRAIN, DEV)


def test_tables_of_a_sweep(tmp_path):
    scores = {(5e-5, 7): 0.5, (5e-5, 8): 0.75, (5e-5, 9): 0.25, (2e-5, 7): 0.625}
    results = {
        point: {"eval_f1": score, "global_step": 30, "loss": 1 - score}
        for point, score in scores.items()
    }
    trials.write_sweep(results, run=run_of("eval_f1", tmp_path))
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


def run_of(metric: str, folder) -> Any:
    """What is known of a run where its scores are compared."""
    run = types.SimpleNamespace(metric=metric, output_dir=str(folder))
    run.rank = functools.partial(text_run.TextRun.rank, run)
    return run


def test_the_least_loss_is_the_best(tmp_path):
    results = {(5e-5, seed): {"eval_loss": loss} for seed, loss in ((1, 0.5), (2, 0.25))}
    trials.write_sweep(results, run=run_of("eval_loss", tmp_path))
    last = (tmp_path / "trials_summary.tsv").read_text().splitlines()[-1]
    assert last.endswith("\t0.2500")
    assert run_of("eval_loss", "").rank(math.nan) == -math.inf


def test_tables_with_undefined_scores(tmp_path):
    scores = {(5e-5, 7): math.nan, (5e-5, 8): -0.25, (5e-5, 9): math.nan, (2e-5, 7): math.nan}
    results = {point: {"eval_spearman": score} for point, score in scores.items()}
    trials.write_sweep(results, run=run_of("eval_spearman", tmp_path))
    rows = [row.split("\t") for row in (tmp_path / "trials_summary.tsv").read_text().splitlines()]
    assert rows[1:] == [
        ["5e-05", "3", "nan", "nan", "-0.2500"], ["2e-05", "1", "nan", "0.0000", "nan"],
    ]  # fmt: skip
