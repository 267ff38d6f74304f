"""bert_tf.training.settings: sizes, numbers of steps and intervals."""

import pytest

from bert_tf.errors import InputError
from bert_tf.training.settings import Intervals, StepConfig


def stops(intervals: Intervals, first: int, last: int) -> list[int]:
    steps = [first]
    while steps[-1] < last:
        steps.append(intervals.next_stop(steps[-1], last))
    return steps[1:]


@pytest.mark.parametrize(
    ("loop", "log", "save", "evaluate", "first", "expected"),
    [
        (4, 5, 7, 0, 0, [4, 5, 7, 10, 14, 15, 16]),
        (4, 5, 7, 0, 6, [7, 10, 14, 15, 16]),
        (1000, 5, 7, 3, 0, [3, 5, 6, 7, 9, 10, 12, 14, 15, 16]),
        (10, 0, 0, 0, 0, [10, 16]),  # nothing but the end
    ],
)
def test_intervals(loop, log, save, evaluate, first, expected):
    intervals = Intervals(
        iterations_per_loop=loop, log_steps=log, save_checkpoints_steps=save, eval_steps=evaluate
    )
    assert stops(intervals, first, 16) == expected


def test_settings_that_are_none():
    for name in ("iterations_per_loop", "log_steps", "save_checkpoints_steps", "eval_steps"):
        with pytest.raises(InputError, match=name):
            Intervals(**{name: -1})
    with pytest.raises(InputError, match="iterations_per_loop"):
        Intervals(iterations_per_loop=0)
    with pytest.raises(InputError, match="precision"):
        StepConfig(precision="float8")


def test_a_batch_that_cannot_be_shared_out():
    step_config = StepConfig(gradient_accumulation_steps=3)
    step_config.check_batch_size(12, 2)
    with pytest.raises(InputError) as caught:
        step_config.check_batch_size(8, 2, name="--train_batch_size")
    assert "--train_batch_size=8 for 2 replicas" in caught.value.received
    assert "--gradient_accumulation_steps=3" in caught.value.received
    assert "a multiple of 6" in caught.value.remedy
