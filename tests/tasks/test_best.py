"""The best checkpoint of a run: which is kept, when training stops, what is refused."""

import pytest
from scripted_run import DEV, ScriptedRun

from bert_tf import runtime
from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.tasks import best as best_module
from bert_tf.tasks.best import BestCheckpoint
from bert_tf.training.trainer import StopTraining


def best_of(run) -> BestCheckpoint:
    return BestCheckpoint(run, DEV, run.output_dir, {"dev_data": DEV.digest}, early_stopping=2)


@pytest.mark.parametrize(
    ("accuracies", "last", "best_step"),
    [
        ([0.5, 0.5, 0.5, 0.9], 30, 10),  # equal is not better
        ([0.5, 0.4, 0.6, 0.6, 0.5, 0.9], 50, 30),
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
    run = ScriptedRun(tmp_path, [0.6])
    again = best_of(run)
    assert again.values == {10: 0.5, 20: 0.6, 30: 0.4}
    last = tf1.CheckpointFolder(tmp_path).save(10, run.state(10, {"dev_data": DEV.digest}))
    again.resume_after(last)
    again.evaluate(20)
    assert again.values == {10: 0.5, 20: 0.6}
    assert again.folder.latest().endswith("model.ckpt-20")
    assert not again.has_stopped


def test_scores_of_other_data_are_not_compared(tmp_path):
    run = ScriptedRun(tmp_path, [0.5])
    best_of(run).evaluate(10)
    own = tf1.CheckpointFolder(tmp_path)
    with pytest.raises(InputError, match="another dev_data"):
        best_of(run).resume_after(own.save(12, run.state(12, {"dev_data": "others"})))
    # At its last checkpoint, as before the first one, a run looks again: it may have been begun
    # without evaluations.
    best_of(run).resume_after(own.save(10, run.state(10, {"dev_data": None})))
    best_of(run).resume_after(None)


def test_elsewhere_the_first_weights_may_lie_at_another_place(monkeypatch):
    """The chief compares with its own place, which it has noted."""
    old, new = {"init_checkpoint": "a", "seed": 5}, {"init_checkpoint": "b", "seed": 5}
    with pytest.raises(InputError, match="another init_checkpoint"):
        best_module.refuse_changed_settings(old, new, "trial")
    monkeypatch.setattr(runtime, "is_chief", lambda: False)
    best_module.refuse_changed_settings(old, new, "trial")
    with pytest.raises(InputError, match="another seed"):
        best_module.refuse_changed_settings(old, new | {"seed": 6}, "trial")


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
