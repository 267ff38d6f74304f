"""The best checkpoint of a run: which is kept, when training stops, what is refused."""

import json

import numpy as np
import pytest

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.training import best as best_module
from bert_tf.training.best import BestCheckpoint
from bert_tf.training.trainer import StopTraining


class Run:
    """Stands in for a run whose model has the accuracies that are given, one after the other."""

    def __init__(self, folder, accuracies=()):
        self.output_dir, self.accuracies, self.files_written = str(folder), [*accuracies], []

    def state(self, step, run_settings):
        recorded = np.array(json.dumps(run_settings, sort_keys=True))
        return {"w": np.full([3], step, np.float32), tf1.RUN_SETTINGS: recorded}


def best_of(run) -> BestCheckpoint:
    return BestCheckpoint(
        run.output_dir,
        {"dev_data": "digest of dev"},
        metric="eval_accuracy",
        early_stopping=2,
        evaluate=lambda: {"eval_accuracy": run.accuracies.pop(0), "loss": 0.5},
        state=run.state,
        write_model_files=run.files_written.append,
    )


@pytest.mark.parametrize(
    ("accuracies", "last", "best_step"),
    [
        ([0.5, 0.5, 0.5, 0.9], 30, 10),  # equal is not better
        ([0.5, 0.4, 0.6, 0.6, 0.5, 0.9], 50, 30),
        ([0.5, 0.6, 0.55, 0.7, 0.69, 0.68, 0.9], 60, 40),
    ],
)
def test_it_stops_after_two_that_are_not_better(tmp_path, accuracies, last, best_step):
    best = best_of(Run(tmp_path, accuracies))
    for step in range(10, last, 10):
        best(step)
    with pytest.raises(StopTraining, match="2 evaluations without a better eval_accuracy"):
        best(last)
    assert best.folder.latest() == f"{tmp_path}/best/model.ckpt-{best_step}"
    assert tf1.find_checkpoint(str(tmp_path)) == best.folder.latest()


def test_a_killed_run_sees_again_what_was_beyond_its_checkpoint(tmp_path):
    best = best_of(Run(tmp_path, [0.5, 0.6, 0.4]))
    for step in (10, 20, 30):
        best.evaluate(step)
    run = Run(tmp_path, [0.6])
    again = best_of(run)
    assert again.values == {10: 0.5, 20: 0.6, 30: 0.4}
    notes = {"dev_data": "digest of dev"}
    last = tf1.CheckpointFolder(str(tmp_path)).save(10, run.state(10, notes))
    again.resume_after(last)
    again.evaluate(20)
    assert again.values == {10: 0.5, 20: 0.6}
    assert again.folder.latest().endswith("model.ckpt-20")
    assert not again.has_stopped


def test_scores_of_other_data_are_not_compared(tmp_path):
    run = Run(tmp_path, [0.5])
    best_of(run).evaluate(10)
    own = tf1.CheckpointFolder(str(tmp_path))
    with pytest.raises(InputError, match="another dev_data"):
        best_of(run).resume_after(own.save(12, run.state(12, {"dev_data": "others"})))
    # At its last checkpoint, as before the first one, a run looks again: it may have been begun
    # without evaluations.
    best_of(run).resume_after(own.save(10, run.state(10, {"dev_data": None})))
    best_of(run).resume_after(None)


def test_elsewhere_the_first_weights_may_lie_at_another_place(monkeypatch):
    """The chief compares with its own place, which it has noted."""
    old, new = {"init_checkpoint": "a", "seed": 5}, {"init_checkpoint": "b", "seed": 5}
    best_module.refuse_changed_settings({"seed": 5}, new, "trial")  # of an earlier version
    with pytest.raises(InputError, match="another init_checkpoint"):
        best_module.refuse_changed_settings(old, new, "trial")
    monkeypatch.setattr(cluster, "is_chief", lambda: False)
    best_module.refuse_changed_settings(old, new, "trial")
    with pytest.raises(InputError, match="another seed"):
        best_module.refuse_changed_settings(old, new | {"seed": 6}, "trial")


def test_a_best_checkpoint_keeps_what_is_noted_beside_it(tmp_path):
    """Until there is a better one: a run that looks again may have other flags."""
    run = Run(tmp_path, [0.5, 0.4, 0.6])
    best = best_of(run)
    assert run.files_written == []
    best.evaluate(10)
    best_of(run).evaluate(20)
    assert run.files_written == [f"{tmp_path}/best"]
    best_of(run).evaluate(30)
    assert run.files_written == [f"{tmp_path}/best"] * 2


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
        best_of(Run(tmp_path))
